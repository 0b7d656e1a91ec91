"""Which columns of rows say when, how long, where and what."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.results.row_events import RowEvent, has_spans, row_events, shown
from tests.support.snapshots import SECOND, STRING, run, snapshot, stack, table

U = types.UINT64


def only(names: list[str], kinds: list[types.Type], row: tuple[object, ...]) -> RowEvent:
    return next(row_events(snapshot(of=run(start=100 * SECOND)), table(names, kinds, [row])))


@pytest.mark.parametrize(("names", "start", "duration"), [
    (["ts", "lat_us"], 100 * SECOND + 9_000 - 4_000, 4_000),
    (["lat_us", "ts"], 100 * SECOND + 4_000_000 // 1000 - 9_000_000, 9_000_000),
    (["start", "took_ns"], 100 * SECOND + 9_000, 4),
    (["end_us", "x_ms"], 100 * SECOND + 9_000_000 - 4_000_000, 4_000_000),
    (["start_us", "ts"], 100 * SECOND + 4 - 9_000_000, 9_000_000),
])  # fmt: skip
def test_time_and_duration(names: list[str], start: int, duration: int) -> None:
    values = (9_000, 4) if names[0] != "lat_us" else (9_000, 4_000)
    found = only(names, [U, U], values)
    assert (found.start, found.duration) == (start, duration)


def test_which_rows_are_spans() -> None:
    for names, expected in (
        (["start", "took_ns"], True), (["ts", "lat_us"], True), (["ts", "elapsed_ms"], True),
        (["ts", "cpu_ns"], False), (["ts", "pid"], False), (["count", "took_ns"], False),
    ):  # fmt: skip
        assert has_spans(table(names, [U, U], [(1, 2)])) == expected, names


def test_which_columns_are_used() -> None:
    found = only(["cpu_ns", "latency_us", "nsecs"], [U, U, U], (1, 2, 0))
    assert (found.duration, found.name) == (2_000, "latency")
    assert found.arguments == (("cpu_ns", 1), ("latency_us", 2))
    kinds: list[types.Type] = [U, STRING, STRING, STRING]
    assert only(["ts", "comm", "path", "name"], kinds, (1, "c", "p", "n")).name == "n"
    assert only(["ts", "comm", "path", "other"], kinds, (1, "c", "p", "n")).name == "p"
    assert only(["ts"], [U], (1,)).name == "ts"
    assert only(["ts"], [U], (1_700_000_000 * SECOND,)).start == 1_700_000_000 * SECOND


def test_values_of_arguments() -> None:
    enum = types.Enum("e", 4, False, (("A", 0),))
    pairs: list[tuple[types.Type, object, object]] = [
        (enum, 0, "A"), (enum, 9, "9"), (types.Pointer(types.VOID), 255, "0xff"), (types.Buffer(4), b"\0\xff", "00ff"),
        (types.Stack(True), stack("f", "main"), "f;main"), (types.BOOL, True, True), (STRING, "a\udcff", "a\\xff"),
        (types.Array(types.INT32, 2), (1, 2), "(1, 2)"),
    ]  # fmt: skip
    for type_, value, expected in pairs:
        assert shown(type_, value) == expected
