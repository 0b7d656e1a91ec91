"""Tables: columns of nested values, units, what makes two schemas one table."""

from __future__ import annotations

import pytest

from pytrace.core.types import (
    BOOL,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    Count,
    Enum,
    Hist,
    Int,
    Joined,
    Record,
    Stats,
    String,
    TSeries,
    Tuple,
    Type,
)
from pytrace.core.types.tables import (
    JOINED_TEXTS,
    Column,
    TableSchema,
    key_columns,
    map_unit,
    row_tables,
    value_columns,
)
from tests.support.rows import each_row


@each_row(
    ("name", "kind", "title", "unit"),
    [
        ("pid", UINT32, "PID", ""),
        ("lat_us", INT64, "LAT(us)", "us"),
        ("lat_ns", INT64, "LAT(ns)", "ns"),
        ("max_lat_ms", UINT64, "MAX_LAT(ms)", "ms"),
        ("age_s", INT64, "AGE(s)", "s"),
        ("rss_kb", INT64, "RSS(KB)", "KB"),
        ("rss_mb", INT64, "RSS(MB)", "MB"),
        ("size_bytes", INT64, "SIZE(bytes)", "bytes"),
        ("a.lat_us", INT64, "A.LAT(us)", "us"),
        ("bytes", INT64, "BYTES", ""),
        ("_us", INT64, "_US", ""),
        ("menus", INT64, "MENUS", ""),
        ("plural_s", String(16), "PLURAL_S", ""),
        ("seen_s", BOOL, "SEEN_S", ""),
    ],
)
def test_titles_have_the_units_of_numbers(name: str, kind: Type, title: str, unit: str) -> None:
    column = Column.of(name, kind)
    assert (column.title, column.unit) == (title, unit)


def test_members_of_records_and_tuples_are_columns() -> None:
    inner = Record(("x", "y"), (INT8, Tuple((BOOL, INT64))))
    schema = TableSchema.of(["a", "b", "c.d"], [UINT32, inner, String(4)])
    assert schema.names == ("a", "b.x", "b.y.0", "b.y.1", "c.d")
    assert [column.type for column in schema.columns] == [UINT32, INT8, BOOL, INT64, String(4)]
    assert TableSchema.of([""], [inner]).names == ("x", "y.0", "y.1")
    assert TableSchema.of(["e"], [Tuple(())]).names == ("e",)


def test_joined_values_share_a_table_whatever_their_parts() -> None:
    first, second = (TableSchema.of(["at"], [Joined(":", parts)]) for parts in ((INT8, INT8), (String(4),)))
    assert first.shape == second.shape
    assert first.joined(first).columns[0].type == first.columns[0].type
    mixed = first.joined(second)
    assert mixed.columns[0].type == JOINED_TEXTS
    assert mixed.joined(first) == mixed


def test_statements_of_one_shape_share_a_table() -> None:
    """How wide integers and strings are makes no difference, names, their order and kinds of values do."""
    first = TableSchema.of(["op", "n"], [String(5), UINT8])
    wider = TableSchema.of(["op", "n"], [String(64), INT32])
    others = [
        TableSchema.of(["n", "op"], [UINT8, String(5)]),
        TableSchema.of(["op", "m"], [String(5), UINT8]),
        TableSchema.of(["op", "n"], [String(5), BOOL]),
        TableSchema.of(["op"], [String(5)]),
    ]
    tables = row_tables(enumerate([first, others[0], wider, *others[1:]], 10))
    assert [table.number for table in tables.values()] == [1, 2, 1, 3, 4, 5]
    assert list(tables) == [10, 11, 12, 13, 14, 15]
    assert tables[10] is tables[12]
    assert [column.type for column in tables[10].schema.columns] == [String(64), INT32]


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        (UINT8, UINT64, UINT64),
        (INT8, INT32, INT32),
        (UINT8, INT32, INT32),
        (UINT32, INT32, INT64),
        (INT64, UINT8, INT64),
        (UINT64, INT64, INT64),
    ],
)
def test_integers_of_one_column_become_as_wide_as_needed(one: Int, other: Int, joined: Int) -> None:
    for first, second in ((one, other), (other, one)):
        schema = TableSchema.of(["n"], [first]).joined(TableSchema.of(["n"], [second]))
        assert schema.columns[0].type == joined


def test_enums_are_told_apart_by_name() -> None:
    state, colour = Enum("state", 4, False, (("ON", 1),)), Enum("colour", 4, False, (("RED", 1),))
    assert TableSchema.of(["a"], [state]).shape != TableSchema.of(["a"], [colour]).shape


def test_columns_of_maps() -> None:
    def names(columns: tuple[Column, ...]) -> list[str]:
        return [column.name for column in columns]

    pair, record = Tuple((UINT32, String(16))), Record(("pid", "comm"), (UINT32, String(16)))
    assert names(key_columns(None)) == []
    assert names(key_columns(UINT32)) == ["key"]
    assert names(key_columns(pair)) == ["key1", "key2"]
    assert names(key_columns(record)) == ["pid", "comm"]
    assert names(key_columns(Tuple((pair, INT8)))) == ["key1.0", "key1.1", "key2"]
    assert names(value_columns("@a", INT64)) == names(value_columns("@a", Count())) == ["@a"]
    assert names(value_columns("@a", Stats())) == ["@a.count", "@a.average", "@a.total"]
    assert names(value_columns("@a", Hist())) == ["@a.min", "@a.max", "@a.count"]
    assert names(value_columns("@a", TSeries())) == ["@a.start", "@a.value"]
    assert names(value_columns("@", pair)) == ["@.0", "@.1"]
    assert names(value_columns("@", record)) == ["@.pid", "@.comm"]


@each_row(
    ("name", "unit"),
    [
        ("@usecs", "us"), ("@nsecs", "ns"), ("@total_msecs", "ms"), ("@lat_us", "us"), ("@bytes", "bytes"),
        ("@read_bytes", "bytes"), ("@kb", "KB"), ("@wait_s", "s"), ("@s", ""), ("@", ""), ("@status", ""),
        ("@msecs_seen", ""),
    ],
)  # fmt: skip
def test_units_of_maps(name: str, unit: str) -> None:
    assert map_unit(name) == unit
