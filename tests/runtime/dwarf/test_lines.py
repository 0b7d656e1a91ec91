"""pytrace.runtime.dwarf.lines: files of a unit, rows of a line, and lines of addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.runtime.dwarf.lines import LineTable
from tests.support.dwarf_programs import TEXT, below, unit

LINE = 1 + next(number for number, text in enumerate(TEXT.splitlines()) if "int plain(" in text)
FORMS = "-O1 -gdwarf-5", "-O1 -gdwarf-4"


@pytest.fixture(params=FORMS)
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LineTable, int, int]:
    """The table of a program, and start and end of one function."""
    item = unit(tmp_path, request.param)
    die = next(die for die in below(item.top) if die.text("DW_AT_name") == "plain")
    low = die.address("DW_AT_low_pc")
    assert low is not None
    return LineTable(item), low, low + die.number("DW_AT_high_pc")


def test_lines_of_addresses(plain: tuple[LineTable, int, int], tmp_path: Path) -> None:
    table, low, high = plain
    for address in range(low, high):
        assert table.place(address) == (str(tmp_path / "program.c"), LINE)
    assert table.place(0) == table.place(1 << 50) == ("", 0)


def test_pieces_between_addresses(plain: tuple[LineTable, int, int]) -> None:
    table, low, high = plain
    pieces = list(table.between(low + 1, high))
    assert pieces[0][0] == low + 1, "a row that starts before counts from here"
    assert {line for _, _, line in pieces} == {LINE}
    assert all(low < start < high for start, _, _ in pieces)
    assert {table.file(number) for _, number, _ in pieces} == {table.place(low)[0]}
    assert [line for _, number, line in table.between(0, 1)] in ([], [0])


def test_rows_of_a_line(plain: tuple[LineTable, int, int]) -> None:
    table, low, high = plain
    own = {number for number, path in enumerate(table.files) if path.endswith("program.c")}
    rows = list(table.rows(LINE, own))
    assert rows[0].address == low
    assert all(low <= row.address < high and row.line == LINE and row.file in own for row in rows)
    assert rows[0].column > 0
    assert any(row.statement for row in rows)
    assert list(table.rows(LINE, frozenset())) == []
    assert list(table.rows(9999, own)) == []


def test_files_by_number(plain: tuple[LineTable, int, int]) -> None:
    table, _, _ = plain
    assert table.file(len(table.files)) == table.file(-1) == ""
    assert all(path.startswith("/") for path in table.files if path)


def test_reading_goes_on_where_it_stopped(plain: tuple[LineTable, int, int]) -> None:
    table, _, _ = plain
    next(table.reading(), None)
    rows = table.read()
    assert len(table) == len(rows.addresses) > 5
    assert table.read() is rows
    assert list(table.reading()) == []


def test_a_unit_without_lines(tmp_path: Path) -> None:
    item = unit(tmp_path, "-O1 -g")
    del item.top.attributes["DW_AT_stmt_list"]
    table = LineTable(item)
    assert (table.files, len(table), table.place(1)) == ([], 0, ("", 0))
