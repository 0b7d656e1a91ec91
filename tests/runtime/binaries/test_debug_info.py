"""What probes ask of debug information: parameters of Go, scopes, lines."""

from __future__ import annotations

import gc
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import (
    DOUBLE,
    INT8,
    INT32,
    INT64,
    UINT32,
    AddressSpace,
    Array,
    Enum,
    Field,
    Pointer,
    String,
    Struct,
)
from pytrace.runtime.binaries.debug_info import DebugInfo, segments
from pytrace.runtime.binaries.dwarf_lines import Functions, LineMachine, LineRows, LineTable, Scope
from pytrace.runtime.binaries.dwarf_units import FileSections, Unit, UnitTable, low_high
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary, CachedDebugInfo, UserBinaries
from tests.support.compile import SOURCES, compiled
from tests.support.dwarf_programs import TEXT, below, unit

# ---------------------------------------------------------------------------------------------- debug info
# pytrace.runtime.binaries.debug_info on compiled programs: parameters, source lines, inlined functions.


FORMS = [
    "-O0", "-O2", "-O2 -gdwarf-4", "-O0 -gdwarf-3 -gstrict-dwarf", "-O0 -gdwarf-2",
    "-O2 -fdebug-types-section", "-O2 -gdwarf-4 -fdebug-types-section", "-O2 -gdwarf64", "-O2 -gz", "-O2 -gz=zlib-gnu",
    "-O0 -gsplit-dwarf", "-O2 -gsplit-dwarf", "-O0 -gsplit-dwarf -gdwarf-4", "-O2 -gsplit-dwarf -gdwarf-4",
    "-O2 -gsplit-dwarf -fdebug-types-section", "-O2 -gsplit-dwarf -gdwarf-4 -fdebug-types-section",
    "-O2 -gsplit-dwarf -gz",
]  # fmt: skip


@pytest.fixture(scope="module", params=FORMS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Binary:
    options = request.param.split()
    folder = tmp_path_factory.mktemp("dwarf")
    return Binary.open(str(compiled(folder, "program", SOURCES / "debug_info.c", "-g", *options)))


def _debug(binary: Binary) -> DebugInfo:
    assert binary.debug is not None
    return binary.debug.decoder


def test_parameters_and_where_they_are_at_the_entry(program: Binary) -> None:
    found = _debug(program).parameters("work", program.address_of("work"))
    assert found is not None
    assert [(item.name, item.location) for item in found] == [
        ("name", "di"), ("p", "si"), ("c", "dx"), ("a4", "cx"), ("a5", "r8"), ("a6", "r9"), ("a7", "sp+8"),
        ("b", "sp+16"),
    ]  # fmt: skip
    assert [item.declaration for item in found[:3]] == ["const char*", "struct point*", "enum colour"]
    assert found[0].type == Pointer(INT8, AddressSpace.USER)
    assert (found[3].type, found[6].type) == (INT64, INT32)
    colour = cast(Enum, found[2].type)
    assert dict(colour.members)["GREEN"] == 5
    assert cast(Struct, found[7].type).fields == (Field("a", Array(INT64, 4), 0),)


def test_structs(program: Binary) -> None:
    found = _debug(program).parameters("work", None)
    assert found is not None
    point = cast(Struct, cast(Pointer, found[1].type).target)
    assert point.find("flag") == Field("flag", UINT32, 4, 0, 3)
    assert point.find("rest") == Field("rest", UINT32, 4, 3, 5)
    assert point.find("tag") == Field("tag", String(8), 5)
    assert point.find("b") == Field("b", INT8, 16)
    following = point.find("next")
    assert following is not None
    assert cast(Pointer, following.type).target == point


def test_floating_point_parameters_cannot_be_read(program: Binary) -> None:
    found = _debug(program).parameters("mixed", program.address_of("mixed"))
    assert found is not None
    assert [(item.name, item.location) for item in found if item.readable] == [("n", "di")]
    assert [item.lost for item in found if not item.readable] == [("",)]


def test_unknown_function(program: Binary) -> None:
    assert _debug(program).parameters("nothing", None) is None


def test_lines(program: Binary) -> None:
    debug = _debug(program)
    (address,) = debug.addresses("program.c", 7, None)
    symbol = program.covering(address)
    assert symbol is not None
    assert symbol.name == "work", "the line is inlined there"
    assert debug.addresses("rogram.c", 7, None) == []
    assert debug.addresses("program.c", 6000, None) == []
    assert debug.line_of(address)[0].endswith("/program.c")


def test_inlined_functions(program: Binary) -> None:
    debug = _debug(program)
    symbol = program.functions("work")[0]
    chains = [[place.function for place in debug.frames(symbol.address + step)] for step in range(symbol.size)]
    assert ["inner", "work"] in chains
    assert all(chain in (["work"], ["inner", "work"]) for chain in chains)
    inlined = next(
        debug.frames(symbol.address + step) for step in range(symbol.size) if chains[step] == ["inner", "work"]
    )
    assert inlined[0].line == 7
    assert inlined[1].line == 11, "the place of the call"


def test_without_dwarf(tmp_path: Path) -> None:
    path = compiled(tmp_path, "plain", "int main(void) { return 0; }\n")
    binaries = UserBinaries()
    assert binaries.parameters(str(path), "main") is None
    assert binaries.lines(str(path), "plain.c", 1, None) == []


def test_the_reader_of_dwarf_is_imported_for_binaries_that_have_it(tmp_path: Path) -> None:
    compiled(tmp_path, "plain", "int main(void) { return 0; }\n")
    compiled(tmp_path, "full", "int main(void) { return 0; }\n", "-g")
    code = (
        "import sys\nfrom pytrace.runtime.binaries.user_binary import UserBinaries\n"
        "UserBinaries().parameters(sys.argv[1], 'main')\nprint('elftools' in sys.modules)\n"
    )
    for name, imported in (("plain", "False"), ("full", "True")):
        command = [sys.executable, "-c", code, str(tmp_path / name)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == imported


def test_columns(tmp_path: Path) -> None:
    text = "int f(int);\nint g(int n) { if (n) return f(n); return f(n + 1); }\nint f(int n) { return n; }\n"
    path = compiled(tmp_path, "columns", text, "-g", "-O0", "-shared", "-fPIC")
    debug = CachedDebugInfo(ElfFile.open(str(path))).decoder
    line = debug.addresses("columns.c", 2, None)
    second = debug.addresses("columns.c", 2, text.splitlines()[1].index("f(n + 1)") + 1)
    assert len(line) == len(second) == 1
    assert second[0] > line[0]


def test_methods_and_references(tmp_path: Path) -> None:
    text = """
    namespace zoo { struct Base { long age; };
    struct Cat : Base { int legs; __attribute__((noinline)) int walk(const int &steps) { return legs * steps; } }; }
    int main(int argc, char **) { zoo::Cat cat; cat.legs = 4; return cat.walk(argc); }
    """
    binary = Binary.open(str(compiled(tmp_path, "cat", text, "-g", "-O1", language="c++")))
    name = binary.function_names("*walk*")[0]
    found = _debug(binary).parameters(name, binary.address_of(name))
    assert found is not None
    assert [(item.name, item.location) for item in found] == [("this", "di"), ("steps", "si")]
    cat = cast(Struct, cast(Pointer, found[0].type).target)
    assert cat.find("age") == Field("age", INT64, 0), "a member of the base class"
    assert cat.find("legs") == Field("legs", INT32, 8)


def test_damaged_dwarf_is_an_error_with_the_name(tmp_path: Path) -> None:
    path = compiled(tmp_path, "damaged", "int main(void) { return 0; }\n", "-g")
    binary = Binary.open(str(path))
    main = binary.address_of("main")
    section = binary.elf.section(".debug_abbrev")
    assert section is not None
    data = bytearray(path.read_bytes())
    data[section.offset : section.offset + section.size] = b"\xff" * section.size
    path.write_bytes(data)
    with pytest.raises(TraceError, match="damaged"):
        CachedDebugInfo(ElfFile.open(str(path))).decoder.frames(main or 0)


def test_results(program: Binary) -> None:
    debug = _debug(program)
    assert debug.result("work", program.address_of("work")) == INT32
    assert debug.result("mixed", program.address_of("mixed")) == DOUBLE
    assert debug.result("nothing", None) is None


@pytest.mark.parametrize("split", [False, True])
def test_units_are_forgotten_and_read_again(split: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of days comes by all units of a large library: only some stay in memory, and answers do not change."""
    options = ["-g", "-gsplit-dwarf"] if split else ["-g"]
    sources = [f"int part_{at}(int x) {{ return x + {at}; }}\n" for at in range(4)]
    objects = [compiled(tmp_path, f"part_{at}.o", text, *options, "-c") for at, text in enumerate(sources)]
    calls = " + ".join(f"part_{at}(1)" for at in range(4))
    declared = "".join(f"int part_{at}(int);\n" for at in range(4))
    path = compiled(tmp_path, "parts", f"{declared}int main(void) {{ return {calls}; }}\n", "-g", *map(str, objects))
    addresses = [symbol.address + 4 for symbol in Binary.open(str(path)).functions("part_*")] * 2
    whole = CachedDebugInfo(ElfFile.open(str(path))).decoder
    expected = [whole.frames(address) for address in addresses]
    assert [frames[0].function for frames in expected[:4]] == [f"part_{at}" for at in range(4)]
    before = _units_in_memory()
    monkeypatch.setattr("pytrace.runtime.binaries.debug_info.MOST_READ", 1)
    debug = CachedDebugInfo(ElfFile.open(str(path))).decoder
    assert [debug.frames(address) for address in addresses] == expected
    assert len(debug._functions) <= 2
    assert _units_in_memory() - before <= (4 if split else 2)


def _units_in_memory() -> int:
    gc.collect()
    return sum(isinstance(found, Unit) for found in gc.get_objects())


# ---------------------------------------------------------------------------------------------- scopes
# pytrace.runtime.binaries.dwarf_lines: which functions, also inlined ones, code belongs to.


CALL = 1 + next(number for number, text in enumerate(TEXT.splitlines()) if "int r = inner(" in text)


@pytest.fixture(params=["-O2 -gdwarf-5", "-O2 -gdwarf-4"])
def scopes_program(request: pytest.FixtureRequest, tmp_path: Path) -> Unit:
    return unit(tmp_path, request.param)


def bounds(program: Unit, name: str) -> tuple[int, int]:
    return low_high(next(die for die in below(program.top) if die.text("DW_AT_name") == name))


def test_functions_by_address(scopes_program: Unit) -> None:
    functions = Functions(scopes_program)
    low, high = bounds(scopes_program, "work")
    for address in (low, high - 1):
        found = functions.covering(address)
        assert found is not None
        assert found.text("DW_AT_name") == "work"
    assert functions.covering(0) is functions.covering(1 << 50) is None
    names = [die.text("DW_AT_name") for die in functions]
    assert sorted(names) == ["main", "plain", "work"]
    assert len(functions) == 3


def test_from_where_to_where_a_function_is(scopes_program: Unit) -> None:
    functions = Functions(scopes_program)
    low, high = bounds(scopes_program, "plain")
    start, end, scope = functions.around(low + 1)
    assert (start, end) == (low, high)
    assert scope is not None
    assert scope.function == "plain"
    first = min(bounds(scopes_program, name)[0] for name in ("main", "plain", "work"))
    last = max(bounds(scopes_program, name)[1] for name in ("main", "plain", "work"))
    assert functions.around(first - 1) == (0, first, None)
    assert functions.around(last) == (last, 1 << 64, None)


def test_a_unit_that_is_missing_has_none() -> None:
    functions = Functions(None)
    assert (len(functions), list(functions), functions.covering(1), functions.known) == (0, [], None, 0)
    assert functions.around(5) == (0, 1 << 64, None)


def test_reading_goes_on_where_it_stopped(scopes_program: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.runtime.binaries.dwarf_lines._STEP", 1)
    functions = Functions(scopes_program)
    next(functions.reading())
    assert len(functions) == 0
    assert len(list(functions.reading())) > 3
    assert len(functions) == 3
    assert functions.known > 0


def chain(scope: Scope | None) -> list[str]:
    found = []
    while scope is not None:
        found.append(scope.function)
        scope = scope.parent
    return found


def test_what_was_inlined_and_where(scopes_program: Unit) -> None:
    low, high = bounds(scopes_program, "work")
    _, _, work = Functions(scopes_program).around(low)
    assert work is not None
    inside = list(work.inside())
    assert {tuple(chain(scope)) for _, _, scope in inside} >= {("innermost", "inner", "work")}
    assert all(low <= start < end <= high for start, end, _ in inside)
    calls = {scope.call[1] for _, _, scope in inside if chain(scope) == ["inner", "work"]}
    assert CALL in calls
    assert work.call == (-1, 0)


def test_pieces_of_one_line_in_one_function(scopes_program: Unit) -> None:
    low, high = bounds(scopes_program, "work")
    _, _, work = Functions(scopes_program).around(low)
    table = LineTable(scopes_program)
    found = segments(low, high, work, table)
    assert found[0].start == low
    assert [item.start for item in found] == sorted({item.start for item in found})
    assert all(low <= item.start < high for item in found)
    assert all(one[1:] != other[1:] for one, other in pairwise(found))
    for item in found:
        assert item.line == table.place(item.start)[1]
    names = {tuple(chain(item.scope)) for item in found}
    assert ("work",) in names
    assert any(len(row) > 1 for row in names)


def test_code_of_no_function(scopes_program: Unit) -> None:
    assert {item.scope for item in segments(0, 5, None, LineTable(scopes_program))} == {None}


# ---------------------------------------------------------------------------------------------- lines
# pytrace.runtime.binaries.dwarf_lines: files of a unit, rows of a line, and lines of addresses.


LINE = 1 + next(number for number, text in enumerate(TEXT.splitlines()) if "int plain(" in text)
LINES_FORMS = "-O1 -gdwarf-5", "-O1 -gdwarf-4"


@pytest.fixture(params=LINES_FORMS)
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


def test_lines_reading_goes_on_where_it_stopped(plain: tuple[LineTable, int, int]) -> None:
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


LINES_FORMS = ["-O2", "-O0 -gdwarf-4", "-O2 -gdwarf-2", "-O2 -ffunction-sections -Wl,--gc-sections"]
DAMAGED = [b"\x05", b"\x02\x80", b"\x09\x01", b"\0", b"\0\x02", b"\x04\xff\xff\xff\xff\xff\x7f\x01"]


@pytest.mark.parametrize("options", LINES_FORMS)
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
