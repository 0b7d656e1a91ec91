"""Keys and values as columns."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.results import columns, message_pack
from pytrace.results.columns import Column, Reader, Writer
from pytrace.results.message_pack import Cursor, Memory
from pytrace.results.stored_columns import Stored
from pytrace.results.values import Value
from tests.support.snapshots import STRING, stack


def test_every_type_has_columns() -> None:
    assert columns.ROWS.keys() == set(types.ALL) - {types.Void}


def test_columns_are_as_narrow_as_their_numbers() -> None:
    for most, size in ((255, 1), (256, 2), (70_000, 4), (1 << 32, 8)):
        assert columns.pack_integers([0, most])[1] == bytes(size) + most.to_bytes(size, "little")


def reader(writer: Writer) -> Reader:
    pages = Memory(message_pack.pack(writer.tables()))
    return Reader(pages, Cursor(pages).members())


def again(type_: types.Type, values: list[Value]) -> list[Value]:
    writer = Writer()
    pages = Memory(message_pack.pack(writer.column(type_, values)))
    cursor = Cursor(pages)
    found = reader(writer).column(type_, cursor)
    assert cursor.position == pages.size
    assert found.count == len(values)
    return found.all()


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
        (types.Tuple(()), [1 << 60]),
        (types.Tuple(()), [-1]),
        (types.Array(types.INT64, 1 << 60), [1, ["B", b"1"]]),
        (types.Tuple((types.INT64,)), ["2", ["B", b"12"]]),
        (types.Tuple((types.Hist(),)), [1, [["B", b"\1"], ["B", b"\1"], ["B", b"\1"]]]),
        (types.Stack(True), ["B", b"\1"]),
        (types.Avg(), [["B", b"12"], ["B", b"1"]]),
        (types.LHist(0, 3, 1), [["B", b"\1"], ["B", b"\7"], ["B", b"\1"]]),
        (types.TSeries(), [["B", b"\2"], ["B", b"\1"], ["B", b"\1"], ["B", b"\1"]]),
    ],
)
def test_what_is_no_column_is_refused(type_: types.Type, column: Column) -> None:
    with pytest.raises((ValueError, LookupError)):
        reader(Writer()).column(type_, Cursor(Memory(message_pack.pack(column)))).all()


def test_keys_are_no_histograms() -> None:
    plain: Stored[Value] = Stored(3, lambda _size: iter([[1, "a", (2,)]]))
    assert columns.keys(plain).all() == [1, "a", (2,)]
    with pytest.raises(ValueError, match="histogram"):
        columns.keys(Stored(2, lambda _size: iter([[1, {2: 3}]]))).all()


def test_stacks_of_which_parts_are_missing_are_refused() -> None:
    writer = Writer()
    writer.column(types.Stack(True), [stack("f", "main")])
    frames, stacks, strings = (writer.tables()[name] for name in ("frames", "stacks", "strings"))
    assert isinstance(stacks, list)
    for changed in (
        {"frames": frames, "stacks": [["B", b"\3"], *stacks[1:]], "strings": strings},
        {"frames": frames, "stacks": [stacks[0], ["B", b"\0\7"], *stacks[2:]], "strings": strings},
        {"frames": frames, "stacks": [*stacks[:2], ["B", b""], stacks[3]], "strings": strings},
        {"frames": frames, "stacks": stacks, "strings": []},
        {"frames": [], "stacks": stacks, "strings": strings},
    ):
        pages = Memory(message_pack.pack(changed))
        with pytest.raises((ValueError, LookupError)):
            Reader(pages, Cursor(pages).members())
