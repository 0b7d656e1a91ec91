"""Keys and values as columns."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.results import columns
from pytrace.results.columns import Column, Reader, Writer
from pytrace.results.values import Value
from tests.support.snapshots import STRING, stack

INTEGERS = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([-129, -128, 127, 128, 255, 256, (1 << 64) - 1, 1 << 64])


def test_every_type_has_columns() -> None:
    assert columns.ROWS.keys() == set(types.ALL) - {types.Void}



@given(st.lists(INTEGERS))
def test_integers_of_any_size_are_columns(values: list[int]) -> None:
    column = msgpack.unpackb(msgpack.packb(columns.pack_integers(values)))
    assert columns.unpack_integers(column) == values



def test_columns_are_as_narrow_as_their_numbers() -> None:
    for most, size in ((255, 1), (256, 2), (70_000, 4), (1 << 32, 8)):
        assert len(columns.pack_integers([0, most])[1]) == 2 * size



def again(type_: types.Type, values: list[Value]) -> list[Value]:
    writer = Writer()
    column = msgpack.unpackb(msgpack.packb(writer.column(type_, values)))
    return list(Reader(msgpack.unpackb(msgpack.packb(writer.tables()))).column(type_, column))


def test_members_are_columns_of_their_own() -> None:
    pair = types.Record(("n", "name"), (types.INT64, STRING))
    assert columns.Writer().column(pair, [(1, "a"), (300, "b")]) == [2, ["H", b"\1\0,\1"], ["a", "b"]]
    assert again(pair, [(1, "a"), (300, "b")]) == [(1, "a"), (300, "b")]
    assert again(types.Tuple(()), [(), ()]) == [(), ()]
    assert again(types.Array(types.BOOL, 2), [(True, False)]) == [(True, False)]


def test_stacks_are_numbers_of_a_table() -> None:
    kind = types.Stack(True)
    writer = Writer()
    assert writer.column(kind, [stack("f"), stack("g"), stack("f")]) == ["B", b"\0\1\0"]
    assert again(kind, [stack("f"), stack("g"), stack("f")]) == [stack("f"), stack("g"), stack("f")]


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        (types.INT64, 5),
        (types.INT64, ["B"]),
        (types.INT64, ["x", b""]),
        (types.INT64, ["H", b"odd"]),
        (types.INT64, ["B", "text"]),
        (types.INT64, ["s", [1]]),
        (STRING, [b"bytes"]),
        (STRING, {"a": "b"}),
        (types.Buffer(4), ["text"]),
        (types.Tuple((types.INT64,)), [2, ["B", b"1"]]),
        (types.Tuple((types.INT64,)), ["2", ["B", b"12"]]),
        (types.Tuple((types.Hist(),)), [1, [["B", b"\1"], ["B", b"\1"], ["B", b"\1"]]]),
        (types.Stack(True), ["B", b"\1"]),
        (types.Avg(), [["B", b"12"], ["B", b"1"]]),
        (types.LHist(0, 3, 1), [["B", b"\1"], ["B", b"\7"], ["B", b"\1"]]),
        (types.TSeries(), [["B", b"\2"], ["B", b"\1"], ["B", b"\1"], ["B", b"\1"]]),
    ],
)
def test_what_is_no_column_is_refused(type_: types.Type, column: Column) -> None:
    reader = Reader(Writer().tables())
    with pytest.raises((ValueError, LookupError)):
        reader.column(type_, column)


@pytest.mark.parametrize("read", [columns.listed, columns.named, lambda column: columns.checked(column, str)])
def test_documents_are_looked_at_before_they_are_believed(read: Callable[[Column], object]) -> None:
    for column in (None, 5, "text", [5] if read is not columns.listed else {}):
        with pytest.raises(ValueError, match=r"should hold|is missing"):
            read(column)


def test_keys_are_no_histograms() -> None:
    assert columns.keys([1, "a", (2,)]) == [1, "a", (2,)]
    with pytest.raises(ValueError, match="histogram"):
        columns.keys([1, {2: 3}])
