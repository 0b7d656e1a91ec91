"""Rows that are kept for snapshots."""

from __future__ import annotations

from pytrace.core.types import INT64, Record, String, Username
from pytrace.core.types.tables import RowTable, TableSchema
from pytrace.runtime.capture.row_keeper import RowKeeper
from tests.support.captured import forms
from tests.support.encode import Run

PROCESS = RowTable(2, TableSchema.of(["pid", "comm"], [INT64, String(8)]))
USER = RowTable(1, TableSchema.of(["user"], [Username()]))


def test_rows_are_kept_by_table_in_the_order_of_arrival() -> None:
    keeper = RowKeeper()
    keeper.keep(PROCESS, (1, b"init"))
    keeper.keep(USER, (0,))
    keeper.keep(PROCESS, (2, b"a\xff"))
    first, second = keeper.tables("run", forms(Run()))
    assert first.type == Record(("pid", "comm"), (INT64, String(8)))
    assert (first.rows, first.dropped, first.number) == ({"run": [(1, "init"), (2, "a\udcff")]}, 0, 2)
    assert (second.type, second.rows) == (Record(("user",), (Username(),)), {"run": [("root",)]})
    assert second.number == 1


def test_the_newest_rows_are_kept_and_the_others_counted() -> None:
    keeper = RowKeeper(3)
    for number in range(10):
        keeper.keep(PROCESS, (number, b""))
    keeper.keep(USER, (0,))
    first, second = keeper.tables("run", forms(Run()))
    assert [row[0] for row in first.rows["run"]] == [7, 8, 9]
    assert (first.dropped, second.dropped) == (7, 0)


def test_no_rows_make_no_tables() -> None:
    assert RowKeeper().tables("run", forms(Run())) == ()
