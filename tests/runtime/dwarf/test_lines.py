"""pytrace.runtime.dwarf.lines: files of a unit, rows of a line, and lines of addresses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.runtime.dwarf.lines import LineMachine, LineRows, LineTable
from pytrace.runtime.dwarf.sections import FileSections
from pytrace.runtime.dwarf.units import UnitTable
from pytrace.runtime.elf.file import ElfFile
from tests.support.compile import compiled
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


# ---------------------------------------------------------------------------------------------- programs


HEADER = {
    "opcode_base": 13, "line_base": -5, "line_range": 14, "minimum_instruction_length": 1, "default_is_stmt": 1,
    "standard_opcode_lengths": [0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1],
}  # fmt: skip
SET_ADDRESS = b"\0\x09\x02"
END = b"\0\x01\x01"


def _rows(code: bytes, **changed: object) -> tuple[list[tuple[int, int, int, int]], list[tuple[bytes, int]]]:
    """Address, file, line and detail of rows; declared files."""
    rows, files = LineRows(), []
    for _ in LineMachine(HEADER | changed, code, rows, lambda name, folder: files.append((name, folder))).run():
        pass
    columns = zip(rows.addresses, rows.sources, rows.details, strict=True)
    return [(address, source >> 32, source & 0xFFFFFFFF, detail) for address, source, detail in columns], files


FORMS = ["-O2", "-O0 -gdwarf-4", "-O2 -gdwarf-2", "-O2 -ffunction-sections -Wl,--gc-sections"]
DAMAGED = [b"\x05", b"\x02\x80", b"\x09\x01", b"\0", b"\0\x02", b"\x04\xff\xff\xff\xff\xff\x7f\x01"]


@pytest.mark.parametrize("options", FORMS)
def test_rows_are_those_of_pyelftools(options: str, tmp_path: Path) -> None:
    one = "int f{}(int x) {{\n int y = x * {};\n return y ? f{}(y) : 0; }}\n"
    functions = "".join(one.format(number, number, number - 1) for number in range(1, 40))
    text = f"int f0(int x) {{ return x; }}\n{functions}int main(int c, char **v) {{ (void)v; return f39(c); }}\n"
    path = compiled(tmp_path, "many", text, "-g", *options.split())
    units = list(UnitTable(FileSections(ElfFile.open(str(path)))))
    assert units
    for item in units:
        rows = LineTable(item).read()
        program = item.dwarfinfo.line_program(item)
        assert program is not None
        states = [entry.state for entry in program.get_entries() if entry.state is not None]
        expected = {(one.address, 0 if one.end_sequence else one.file << 32 | one.line) for one in states}
        assert set(zip(rows.addresses, rows.sources, strict=True)) == expected
        assert len(rows.addresses) == len(states)
        assert all(one <= other for one, other in pairwise(rows.addresses))


def test_all_instructions() -> None:
    code = SET_ADDRESS + (0x1000).to_bytes(8, "little") + b"\x05\x07\x01"  # column 7, copy
    code += b"\x03\x7f\x02\x90\x01\x06\x01"  # line - 1, address + 0x90, no statement, copy
    code += b"\x08\x09\x34\x12\x04\x02\x0a\x0b\x0c\x05\x12"  # const_add_pc, fixed advance, file 2, ..., special 18
    code += b"\0\x07\x03ab\0\x01\0\0" + END
    rows, files = _rows(code)
    assert rows == [
        (0x1000, 1, 1, 15), (0x1090, 1, 0, 14), (0x1090 + 17 + 0x1234, 2, 0, 14), (0x1090 + 17 + 0x1234, 0, 0, 0),
    ]  # fmt: skip
    assert files == [(b"ab", 1)]


def test_runs_of_code_are_put_in_order() -> None:
    one = SET_ADDRESS + (0x2000).to_bytes(8, "little") + b"\x01\x02\x10" + END
    other = SET_ADDRESS + (0x1000).to_bytes(8, "little") + b"\x03\x04\x01\x02\x80\x20" + END
    rows, _ = _rows(one + other)
    assert [(address, line) for address, _, line, _ in rows] == [(0x1000, 5), (0x2000, 0), (0x2000, 1), (0x2010, 0)]


@pytest.mark.parametrize("code", DAMAGED)
def test_damaged_programs_are_refused(code: bytes) -> None:
    with pytest.raises((IndexError, OverflowError)):
        _rows(code)


def test_machines_with_bundles_are_refused() -> None:
    with pytest.raises(DWARFError, match="another kind of machine"):
        _rows(b"\x01", maximum_operations_per_instruction=3)


def test_code_without_a_line_has_no_file(tmp_path: Path) -> None:
    """Compilers give line 0 to what they moved together."""
    path = compiled(tmp_path, "program", "int main(void) { return 0; }\n", "-g")
    (unit,) = UnitTable(FileSections(ElfFile.open(str(path))))
    table = LineTable(unit)
    rows = table.read()
    start = rows.addresses[0]
    assert list(table.between(start, start + 1)) == [(start, rows.sources[0] >> 32, 1)]
    rows.sources[0] &= ~0xFFFFFFFF
    assert list(table.between(start, start + 1)) == [(start, -1, 0)]
    assert table.place(start) == ("", 0)
