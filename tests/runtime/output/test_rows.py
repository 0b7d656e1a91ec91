"""Rows as JSON, CSV and typed values, of all types of values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core.types import (
    BOOL,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    VOID,
    Array,
    Buffer,
    Enum,
    Fixed,
    Inet,
    Joined,
    KSym,
    Mac,
    Pointer,
    Record,
    Stack,
    String,
    Timestamp,
    Tuple,
    Type,
    USym,
)
from pytrace.core.value_tables import RowTable, TableSchema
from pytrace.render.csv import without_formula
from pytrace.runtime.output import rows
from tests.support.encode import Cut, Frame, Run, Symbols, encode_event, unescaped_utf8

STATE = Enum("state", 4, False, (("IDLE", 0), ("BUSY", 1)))
NESTED = Record(("x", "y"), (INT8, Tuple((BOOL, String(4)))))
COLUMNS: dict[str, tuple[Type, Any]] = {
    "small": (INT8, -5),
    "large": (UINT64, 2**64 - 1),
    "flag": (BOOL, True),
    "comm": (String(16), b"bash"),
    "path": (String(256), b'/tmp/a,"b"\n'),
    "cut": (String(1024), Cut(b"y" * 1024)),
    "state": (STATE, 1),
    "other": (STATE, 7),
    "address": (Pointer(VOID), 0xFFFF),
    "ip": (Inet(), (2, b"\x7f\0\0\x01")),
    "mac": (Mac(), b"\x01\x02\x03\x04\x05\xff"),
    "at": (Timestamp(), (0, 0, 0)),
    "stack": (Stack(False, 3), (0, (0x10, 0x20), 0)),
    "function": (KSym(), 0x10),
    "user": (USym(), (5, 0x20)),
    "bytes": (Buffer(8), b"\x01b"),
    "list": (Array(INT32, 2), (1, -1)),
    "nested": (NESTED, (1, (False, b"abc"))),
}
KNOWN = {0x10: [Frame("inner", 4)], 0x20: [Frame("outer", 8)]}


def run_with(**form: bool) -> tuple[Run, int]:
    run = Run(symbols=Symbols(KNOWN), strings=("fixed",), **form)  # type: ignore[arg-type]
    identity = run.event("row", [kind for kind, _ in COLUMNS.values()], names=list(COLUMNS))
    return run, identity


VALUES = [value for _, value in COLUMNS.values()]


def test_json_has_the_forms_that_values_have_elsewhere() -> None:
    run, identity = run_with(json=True)
    run.send(identity, *VALUES)
    line = json.loads(run.printed())
    assert line["type"] == "row"
    assert line["table"] == 1
    assert list(line["data"]) == list(COLUMNS)
    assert line["data"] == {
        "small": -5, "large": "18446744073709551615", "flag": True, "comm": "bash", "path": '/tmp/a,"b"\n',
        "cut": "y" * 1024 + "..", "state": 1, "other": 7, "address": 65535, "ip": "127.0.0.1",
        "mac": "01:02:03:04:05:FF", "at": "fixed",
        "stack": ["inner+4", "outer+8"], "function": "inner", "user": "outer", "bytes": [1, 98],
        "list": [1, -1], "nested": {"x": 1, "y": [False, "abc"]},
    }  # fmt: skip


NAMES = [*list(COLUMNS)[:-1], "nested.x", "nested.y.0", "nested.y.1"]


def sections(text: str) -> list[list[list[str]]]:
    """The tables of CSV output."""
    found: list[list[list[str]]] = [[]]
    for row in csv.reader(io.StringIO(text, newline=""), strict=True):
        if row:
            found[-1].append(row)
        else:
            found.append([])
    return found


def test_csv_is_read_back() -> None:
    run, identity = run_with(csv=True)
    run.send(identity, *VALUES)
    ((names, values),) = sections(run.printed_text())
    assert names == NAMES
    assert values == [
        "-5", "18446744073709551615", "true", "bash", '/tmp/a,"b"\n', "y" * 1024 + "..", "BUSY", "7", "0xffff",
        "127.0.0.1", "01:02:03:04:05:FF", "fixed", "inner+4;outer+8", "inner", "outer", "\\x01b", "[1,-1]",
        "1", "false", "abc",
    ]  # fmt: skip


def test_text_has_the_same_values_in_one_line_and_stacks_below() -> None:
    run, identity = run_with()
    run.send(identity, *VALUES)
    heading, row, *frames = run.printed_text().splitlines()
    assert frames == ["    inner+4", "    outer+8"]
    assert heading.split() == [name.upper() for name in NAMES if name != "stack"]
    assert row.split() == [
        "-5", "18446744073709551615", "true", "bash", '/tmp/a,"b"\\n', "y" * 1024 + "..", "BUSY", "7", "0xffff",
        "127.0.0.1", "01:02:03:04:05:FF", "fixed", "inner", "outer", "\\x01b", "[1,-1]", "1", "false", "abc",
    ]  # fmt: skip


def test_stacks_stand_below_rows_that_grow_and_have_escapes() -> None:
    run = Run(symbols=Symbols(KNOWN))
    kinds = [String(64), Stack(user=False), String(64)]
    identity = run.event("row", kinds, names=["first", "stack", "last"])
    stack = VALUES[list(COLUMNS).index("stack")]
    run.send(identity, b"a\nb", stack, b"short")
    run.send(identity, b"x" * 30, stack, b"end")
    lines = run.printed_text().splitlines()
    assert lines[0].split() == ["FIRST", "LAST"]
    assert lines[1].split() == ["a\\nb", "short"]
    assert lines[4] == f"{'x' * 30} end"
    assert lines[2:4] == lines[5:7] == ["    inner+4", "    outer+8"]


def test_a_row_of_stacks_alone_keeps_its_columns() -> None:
    run = Run(symbols=Symbols(KNOWN))
    run.send(run.event("row", [Stack(user=False)], names=["stack"]), VALUES[list(COLUMNS).index("stack")])
    assert run.printed_text().splitlines() == ["STACK", "inner+4;outer+8"]


def read(run: Run, identity: int, values: Sequence[Any]) -> tuple[Any, ...]:
    spec = run.specs[identity]
    made: Callable[[bytes, int], tuple[Any, ...]] = rows.values(run.renderer, spec)
    return made(b"12345678" + encode_event(identity, spec.args, values), 8)


def test_typed_values_of_numbers_are_those_of_the_event() -> None:
    run = Run()
    identity = run.event("row", [UINT32, INT64, BOOL], names=["a", "b", "c"])
    assert read(run, identity, (1, -2, True)) == (1, -2, True)


def test_rows_are_kept_where_somebody_wants_them() -> None:
    kept: list[tuple[RowTable, tuple[Any, ...]]] = []
    run = Run(keep_row=lambda table, values: kept.append((table, values)))
    identity = run.event("row", [UINT32, String(8)], names=["a_us", "b"])
    run.send(identity, 1, b"x")
    run.send(identity, 2, b"y")
    table = RowTable(1, TableSchema.of(["a_us", "b"], [UINT32, String(8)]))
    assert kept == [(table, (1, b"x")), (table, (2, b"y"))]
    assert run.printed_text().split() == ["A(us)", "B", "1", "x", "2", "y"]


def test_a_record_that_is_the_whole_row() -> None:
    for form, printed in (
        ({"json": True}, '{"type": "row", "table": 1, "data": {"x": 1, "y": [true,"ab"]}}\n'),
        ({"csv": True}, "x,y.0,y.1\r\n1,true,ab\r\n"),
        ({}, "   X Y.0   Y.1\n   1 true  ab\n"),
    ):
        run = Run(**form)  # type: ignore[arg-type]
        identity = run.event("row", [NESTED], names=[""])
        run.send(identity, (1, (True, b"ab")))
        assert run.printed_text() == printed


def test_members_of_literals_are_nested_in_json_as_they_were_written() -> None:
    run = Run(json=True)
    names = ["a.b", "a.c.0", "a.c.1", "d", "e.f.g"]
    identity = run.event("row", [INT8, INT8, String(4), BOOL, NESTED], names=names)
    run.send(identity, 1, 2, b"x", True, (3, (False, b"y")))
    assert json.loads(run.printed())["data"] == {
        "a": {"b": 1, "c": [2, "x"]}, "d": True, "e": {"f": {"g": {"x": 3, "y": [False, "y"]}}}
    }  # fmt: skip


def test_json_tells_tables_apart_by_number() -> None:
    run = Run(json=True)
    places = [run.event("row", [kind], names=[name]) for name, kind in
              (("a", INT8), ("b", INT8), ("a", UINT64), ("a", BOOL))]  # fmt: skip
    for identity in reversed(places):
        run.send(identity, 1)
    assert [json.loads(line)["table"] for line in run.printed().splitlines()] == [3, 1, 2, 1]


def test_csv_has_an_empty_line_and_a_heading_where_the_table_changes() -> None:
    run = Run(csv=True)
    first, second = run.event("row", [UINT8], names=["a"]), run.event("row", [String(8)], names=["b"])
    for identity, value in ((first, 1), (first, 2), (second, b""), (second, b"x"), (first, 3)):
        run.send(identity, value)
    text = run.printed_text()
    assert text == 'a\r\n1\r\n2\r\n\r\nb\r\n""\r\nx\r\n\r\na\r\n3\r\n'
    assert sections(text) == [[["a"], ["1"], ["2"]], [["b"], [""], ["x"]], [["a"], ["3"]]]


def test_what_is_no_table_goes_beside_csv() -> None:
    run = Run(csv=True)
    row, text = run.event("row", [UINT8], names=["a"]), run.event("printf", [UINT8], format="n %d\n")
    value, time = run.event("print_value", [UINT8]), run.event("time", format="now\n")
    run.send(row, 1)
    run.send_many(text, [(5,), (6,)])
    run.send(value, 7)
    run.send(time)
    run.send(row, 2)
    assert run.printed_text() == "a\r\n1\r\n2\r\n"
    assert run.messages == b"n 5\nn 6\n7\nnow\n"


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=70).filter(lambda item: 0 not in item))))
def test_csv_and_json_say_the_same(values: list[tuple[int, bytes]]) -> None:
    """CSV loses nothing: its texts become the values again. JSON has as many objects, with the same numbers."""
    printed = []
    for form in ({"json": True}, {"csv": True}):
        run = Run(**form)  # type: ignore[arg-type]
        identity = run.event("row", [INT64, String(100)], names=["n", "s"])
        run.send_many(identity, values)
        printed.append(run.printed_text())
    objects = [json.loads(line)["data"] for line in printed[0].splitlines()]
    table = sections(printed[1])[0]
    assert [str(item["n"]) for item in objects] == [number for number, _ in table[1:]]
    assert [restored(text) for _, text in table[1:]] == [value for _, value in values]


def restored(text: str) -> bytes:
    """The value that a field of CSV was made of, as docs/reference/output.md says."""
    field = text.encode()
    bare = field.removeprefix(b"'")
    return unescaped_utf8(bare if without_formula(bare) == field else field)


# ---------------------------------------------------------------------------------------------- sorted rows

SORTED_COLUMNS: dict[str, Type] = {"n": INT64, "name": String(8), "path": String(256)}


def printed(run: Run) -> list[list[Any]]:
    return [list(json.loads(line)["data"].values()) for line in run.printed().splitlines()]


def place(run: Run, order: Sequence[int], **columns: Type) -> int:
    columns = columns or SORTED_COLUMNS
    return run.event("row", list(columns.values()), names=list(columns), order=list(order))


ROWS = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([b"", b"a", b"ab", b"b"]), st.sampled_from([b"x", b"y"])))


@given(ROWS, st.sampled_from([(1,), (-1,), (2,), (-2, 1), (-3, -1), (3, 2)]), st.integers(0, 5))
def test_rows_are_sorted_by_columns_then_by_the_others(
    rows: list[tuple[int, bytes, bytes]], order: tuple[int, ...], most: int
) -> None:
    run = Run(json=True)
    row, done = place(run, order), run.event("print_rows", [INT64])
    run.send_many(row, rows)
    assert run.printed() == b""
    run.send(done, most)
    expected = sorted(rows)
    for column in reversed(order):
        expected.sort(key=lambda values: values[abs(column) - 1], reverse=column < 0)
    shown = expected[:most] if most else expected
    assert printed(run) == [[n, name.decode(), path.decode()] for n, name, path in shown]
    run.send(done, 0)
    assert run.printed() == b""


def test_rows_that_are_equal_stay_in_the_order_of_several_statements() -> None:
    run = Run(json=True)
    first, second = place(run, (1,), n=INT64), place(run, (1,), n=UINT64)
    done = run.event("print_rows")
    for identity, value in ((second, 5), (first, 1), (second, 1), (first, 4)):
        run.send(identity, value)
    run.send(done)
    assert printed(run) == [[1], [1], [4], [5]]


def test_decimal_numbers_are_sorted_by_value() -> None:
    run = Run(json=True)
    row, done = place(run, (-1,), n=Fixed(1000, 0)), run.event("print_rows")
    run.send_many(row, [(1499,), (-5000,), (1001,), (90000,)])
    run.send(done)
    assert run.printed().count(b'"n": 1}') == 2


def test_joined_values_of_several_statements_are_sorted_as_texts() -> None:
    run = Run(json=True)
    numbers = place(run, (1,), n=Joined(":", (INT64, INT64)))
    texts = place(run, (1,), n=Joined("", (String(8),)))
    done = run.event("print_rows")
    for identity, value in ((texts, (b"b",)), (numbers, (7, 1)), (texts, (b"1",))):
        run.send(identity, value)
    run.send(done)
    assert printed(run) == [["1"], ["7:1"], ["b"]]


def test_each_print_is_a_table_of_its_own() -> None:
    for form, gap in (({}, "\n"), ({"csv": True}, "\r\n")):
        run = Run(**form)  # type: ignore[arg-type]
        row, done = place(run, (-1,), n=INT64), run.event("print_rows", [INT64])
        for _ in range(2):
            run.send_many(row, [(1,), (2,)])
            run.send(done, 1)
        first, second = run.printed_text().split(f"{gap}{gap}")
        assert first.strip() == second.strip()
        assert first.split()[1:] == ["2"]


def test_tables_are_printed_one_after_another() -> None:
    run = Run(json=True)
    first, second, done = place(run, (-1,), n=INT64), place(run, (1,), m=INT64), run.event("print_rows", [INT64])
    for value in range(3):
        run.send(second, value)
        run.send(first, value)
    run.send(done, 2)
    lines = [json.loads(line) for line in run.printed().splitlines()]
    assert [(line["table"], line["data"]) for line in lines] == [
        (2, {"m": 0}), (2, {"m": 1}), (1, {"n": 2}), (1, {"n": 1}),
    ]  # fmt: skip


def test_what_waits_is_printed_at_the_end() -> None:
    run = Run(json=True)
    run.send_many(place(run, (-1,), n=INT64), [(1,), (3,), (2,)])
    run.renderer.print_rows()
    assert printed(run) == [[3], [2], [1]]


def test_printed_rows_are_kept_for_snapshots() -> None:
    kept: list[Any] = []
    run = Run(keep_row=lambda _table, values: kept.append(values))
    row, done = place(run, (-1,), n=INT64), run.event("print_rows", [INT64])
    run.send_many(row, [(1,), (3,), (2,)])
    assert kept == []
    run.send(done, 2)
    assert kept == [(3,), (2,)]


def test_rows_that_do_not_fit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(json=True)
    row, done = place(run, (-1,), n=INT64), run.event("print_rows")
    monkeypatch.setattr(rows, "MOST_BYTES", 5 * rows.OVERHEAD)
    run.send_many(row, [(value,) for value in range(10)])
    run.send(done)
    shown = len(printed(run))
    assert 0 < shown < 10
    assert run.renderer.all_losses({}) == {("unsorted", 0): 10 - shown}
    run.send(row, 5)
    run.send(done)
    assert printed(run) == [[5]]
