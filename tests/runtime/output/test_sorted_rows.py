"""Rows that wait for print_rows(): their order, how many are printed, and what does not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytrace.core.types import INT64, UINT64, Fixed, Joined, String, Type
from pytrace.runtime.output import sorted_rows
from pytrace.runtime.output.sorted_rows import SortedRows
from tests.support.encode import Run

COLUMNS: dict[str, Type] = {"n": INT64, "name": String(8), "path": String(256)}


def printed(run: Run) -> list[list[Any]]:
    return [list(json.loads(line)["data"].values()) for line in run.printed().splitlines()]


def place(run: Run, order: Sequence[int], **columns: Type) -> int:
    columns = columns or COLUMNS
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


def test_rows_that_do_not_fit_are_counted() -> None:
    run = Run(json=True)
    row, done = place(run, (-1,), n=INT64), run.event("print_rows")
    context = run.renderer._context
    context.sorted_rows = SortedRows(context, most=5 * sorted_rows.OVERHEAD)
    run.send_many(row, [(value,) for value in range(10)])
    run.send(done)
    shown = len(printed(run))
    assert 0 < shown < 10
    assert run.renderer.all_losses({}) == {("unsorted", 0): 10 - shown}
    run.send(row, 5)
    run.send(done)
    assert printed(run) == [[5]]
