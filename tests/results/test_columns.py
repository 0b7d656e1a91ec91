"""Keys and values as columns."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from pytrace.core import types
from pytrace.render.portable import Held, one_nan
from pytrace.results import columns
from pytrace.results.stored_tables import Numbers, TablesReader, TablesWriter
from pytrace.results.values import Value
from tests.support.rows import each_row
from tests.support.snapshots import STRING, stack


def test_every_form_of_values_has_columns() -> None:
    assert columns.ROWS.keys() == set(Held)


def reader(writer: TablesWriter) -> TablesReader:
    found = TablesReader()
    (frames, pack_frames), (stacks, pack_stacks), (strings, pack_strings) = writer.tables
    blocks = [(len(list(rows)), pack(list(rows))) if rows else (0, None)
              for rows, pack in ((frames, pack_frames), (stacks, pack_stacks), (strings, pack_strings))]  # fmt: skip
    for at, add in ((2, found.add_strings), (0, found.add_frames), (1, found.add_stacks)):
        count, block = blocks[at]
        if count:
            add(block, count)  # type: ignore[arg-type]
    return found


def unpacked(type_: types.Type, data: bytes, count: int, tables: TablesReader) -> list[Value]:
    column = msgspec.msgpack.decode(data, type=columns.form(type_))
    return columns.unpack(tables, type_, column, count)


def again(type_: types.Type, values: list[Value]) -> list[Value]:
    writer = TablesWriter()
    data = msgspec.msgpack.encode(columns.pack(writer, type_, values))
    return unpacked(type_, data, len(values), reader(writer))


def test_members_are_columns_of_their_own() -> None:
    pair = types.Record(("n", "name"), (types.INT64, STRING))
    assert columns.pack(TablesWriter(), pair, [(1, "a"), (300, "b")]) == (Numbers("H", b"\1\0,\1"), [b"a", b"b"])
    assert again(pair, [(1, "a"), (300, "b")]) == [(1, "a"), (300, "b")]
    assert again(types.Tuple(()), [(), ()]) == [(), ()]
    assert again(types.Array(types.BOOL, 2), [(True, False)]) == [(True, False)]


def test_floating_point_numbers() -> None:
    values: list[Value] = [2.5, -0.0, math.inf, math.nan, -math.nan]
    assert repr(again(types.DOUBLE, values)) == repr(values)
    assert again(types.Tuple((types.DOUBLE, types.FLOAT)), [(math.nan, 0.5)]) == [(one_nan(float("nan")), 0.5)]


def test_stacks_are_numbers_of_a_table() -> None:
    kind = types.Stack(True)
    assert columns.pack(TablesWriter(), kind, [stack("f"), stack("g"), stack("f")]) == Numbers("B", b"\0\1\0")
    assert again(kind, [stack("f"), stack("g"), stack("f")]) == [stack("f"), stack("g"), stack("f")]


def test_elements_of_arrays_are_one_column() -> None:
    pairs = types.Array(types.INT64, 2)
    assert columns.pack(TablesWriter(), pairs, [(1, 2), (3, 4)]) == Numbers("B", b"\1\2\3\4")
    assert again(pairs, [(1, 2), (3, 4)]) == [(1, 2), (3, 4)]
    assert again(types.Array(types.INT64, 0), [(), ()]) == [(), ()]


@each_row(
    ("type_", "count", "column"),
    [
        (types.INT64, 1, 5),
        (types.INT64, 1, ["B"]),
        (types.INT64, 1, ["x", b""]),
        (types.INT64, 2, ["H", b"odd"]),
        (types.INT64, 4, ["B", "text"]),
        (types.INT64, 1, ["B", b"12"]),
        (types.INT64, 1, ["O", b"12"]),
        (types.INT64, 1 << 60, ["B", b"12"]),
        (types.DOUBLE, 2, b"12345678"),
        (types.DOUBLE, 1 << 60, b"12345678"),
        (STRING, 1, ["text"]),
        (STRING, 2, [b"text"]),
        (STRING, 1, {"a": b"b"}),
        (types.Tuple((types.INT64,)), 2, [["B", b"1"]]),
        (types.Tuple((types.INT64,)), 1, [["B", b"1"], ["B", b"1"]]),
        (types.Tuple(()), 2, b"1"),
        (types.Tuple(()), 1 << 60, b"1"),
        (types.Array(types.INT64, 1 << 60), 1, ["B", b"1"]),
        (types.Array(types.INT64, 0), 1 << 60, b"1"),
        (types.Stack(True), 1, ["B", b"\1"]),
        (types.Stack(True), 1, ["b", b"\xff"]),
        (types.Avg(), 2, [["B", b"12"], ["B", b"1"]]),
        (types.LHist(0, 3, 1), 1, [["B", b"\1"], ["B", b"\7"], ["B", b"\1"]]),
        (types.LHist(0, 3, 1), 1, [["b", b"\xff"], ["B", b""], ["B", b""]]),
        (types.LHist(0, 3, 1), 1, [["B", b"\1"], ["B", b"\1\1"], ["B", b"\1\1"]]),
        (types.TSeries(), 1, [["B", b"\2"], ["B", b"\1"], ["B", b"\1"], ["B", b"\1"]]),
    ],
)
def test_what_is_no_column_is_refused(type_: types.Type, count: int, column: Any) -> None:
    with pytest.raises((ValueError, LookupError)):
        unpacked(type_, msgspec.msgpack.encode(column), count, TablesReader())
