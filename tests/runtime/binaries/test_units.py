"""Units of debug information: their abbreviations, forms, lists and sections."""

from __future__ import annotations

import ctypes
import inspect
import random
import re
import struct
import zlib
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import zstandard
from elftools.common.exceptions import DWARFError
from elftools.dwarf import abbrevtable, compileunit, dwarfinfo, structs
from elftools.dwarf import die as elftools_die
from elftools.dwarf.dwarfinfo import DwarfConfig, DWARFInfo

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries import elftools_overrides
from pytrace.runtime.binaries.debug_info import explained
from pytrace.runtime.binaries.dwarf_units import (
    EVERYWHERE,
    SHF_COMPRESSED,
    SHF_GROUP,
    Die,
    FileSections,
    SectionParts,
    Unit,
    UnitTable,
    ViewStream,
    locations,
    low_high,
    ranges,
)
from pytrace.runtime.binaries.elf_file import SHT_NOBITS, ElfFile, Section
from pytrace.runtime.binaries.elftools_overrides import PRIVATE
from tests.support.compile import SOURCES, compiled, tool
from tests.support.dwarf_programs import FORMS as LISTS_FORMS
from tests.support.dwarf_programs import TEXT, below, entries, table, unit

# ---------------------------------------------------------------------------------------------- units
# pytrace.runtime.binaries.dwarf_units: values of entries, units of a table, and what damage is called.


FORMS = "-O1 -gdwarf-5", "-O1 -gdwarf-4", "-O1 -gdwarf-5 -fdebug-types-section", "-O1 -gdwarf-4 -fdebug-types-section"


@pytest.fixture(params=FORMS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Unit:
    return unit(tmp_path, request.param)


def test_values_by_kind(program: Unit, tmp_path: Path) -> None:
    top = program.top
    assert top.text("DW_AT_name").endswith("program.c")
    assert top.text("DW_AT_comp_dir")
    assert top.number("DW_AT_language") > 0
    assert (top.text("DW_AT_linkage_name"), top.number("DW_AT_decl_line", 7)) == ("", 7)
    assert top.address("DW_AT_decl_line") is None
    assert top.value("DW_AT_decl_line") is None
    assert "DW_AT_name" in top
    assert "DW_AT_decl_line" not in top
    plain = next(die for die in below(top) if die.text("DW_AT_name") == "plain")
    assert plain.address("DW_AT_low_pc") == plain.value("DW_AT_low_pc")
    assert plain.address("DW_AT_high_pc") is None, "a distance is no address"
    assert plain.number("DW_AT_type", 9) == 9, "a reference is no number"
    assert plain.number("DW_AT_low_pc") > 0


def test_references_are_followed(program: Unit) -> None:
    plain = next(die for die in below(program.top) if die.text("DW_AT_name") == "plain")
    assert plain.follow("DW_AT_type").text("DW_AT_name") == "int"


def test_a_reference_to_the_end_of_a_list(program: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = next(die for die in below(program.top) if die.text("DW_AT_name") == "plain")
    ended: Any = SimpleNamespace(is_null=lambda: True, offset=0x40)
    monkeypatch.setattr(plain, "get_DIE_from_attribute", lambda _name: ended, raising=False)
    with pytest.raises(DWARFError, match="a reference to 0x40 meets the end of a list"):
        plain.follow("DW_AT_type")


def test_entries_are_read_once(program: Unit) -> None:
    plain = below(program.top)[0]
    assert program.entry(plain.offset) is plain
    assert program.entry(program.cu_die_offset) is program.top
    assert program.has_top_DIE()
    wanted = list(program.top.children(lambda shape: shape.tag == "DW_TAG_base_type"))
    assert wanted
    assert {die.tag for die in wanted} == {"DW_TAG_base_type"}


def test_a_unit_is_found_by_its_place(program: Unit) -> None:
    assert program.dwarfinfo.unit(program.cu_offset).top.text("DW_AT_name") == program.top.text("DW_AT_name")
    assert program.label == f"{program.dwarfinfo.path}:{program.cu_offset:x}"
    assert program.low == (program.top.address("DW_AT_low_pc") or 0)


def test_type_units_by_signature(program: Unit) -> None:
    made = program.dwarfinfo
    kinds = [die for die in program.top.children() if "DW_AT_signature" in die]
    for die in kinds:
        assert die.follow("DW_AT_signature").number("DW_AT_byte_size") == 16
    with pytest.raises(DWARFError, match="there is no type unit 00000000000000ff"):
        made.get_DIE_by_sig8(0xFF)
    assert made.type_unit(0xFF) is None


def test_a_type_unit_that_is_elsewhere(tmp_path: Path) -> None:
    made = table(tmp_path, "-gdwarf-5 -fdebug-types-section", "struct s { int a; } s; int main(void) { return s.a; }\n")
    found = next(item for item in made if item.signature is not None)
    asked: list[int] = []
    other = UnitTable(made._sections, types=lambda signature: asked.append(signature) or found)
    assert other.get_DIE_by_sig8(0x77).tag == "DW_TAG_structure_type"
    assert asked == [0x77]


def test_pieces_of_code(program: Unit) -> None:
    for die in below(program.top):
        low = die.address("DW_AT_low_pc")
        assert low is not None
        assert any(start <= low < end and at == program.cu_offset for start, end, at in program.dwarfinfo.code)
    assert program.dwarfinfo.code == sorted(program.dwarfinfo.code)


def aranges(*rows: tuple[int, int], size: int = 8, segment: int = 0, wide: bool = False) -> bytes:
    """One set of ``.debug_aranges`` for the unit at 0x30; pairs are aligned as pairs."""
    pairs = b"".join(struct.pack("<QQ" if size == 8 else "<II", *row) for row in (*rows, (0, 0)))
    head = struct.pack("<HQBB" if wide else "<HIBB", 2, 0x30, size, segment)
    start = (12 if wide else 4) + len(head)
    width = 2 * size
    body = head + bytes(-start % width) + pairs
    return (b"\xff" * 4 + struct.pack("<Q", len(body)) if wide else struct.pack("<I", len(body))) + body


def coded(data: bytes) -> list[tuple[int, int, int]]:
    section = SimpleNamespace(data=memoryview(data))
    made: Any = SimpleNamespace(_sections=SimpleNamespace(section=lambda _name: section))
    found: list[tuple[int, int, int]] = UnitTable.code.func(made)  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("size", [4, 8])
def test_sets_of_both_formats(size: int, wide: bool) -> None:
    first = aranges((0x2000, 0x10), (0x1000, 0x20), size=size, wide=wide)
    second = aranges((0x3000, 0), (0x500, 1), size=size)
    assert coded(first + second) == [(0x500, 0x501, 0x30), (0x1000, 0x1020, 0x30), (0x2000, 0x2010, 0x30)]
    assert coded(b"") == coded(first[:5]) == []


@pytest.mark.parametrize(("size", "segment", "said"), [(2, 0, r"2 \+ 0"), (8, 4, r"8 \+ 4")])
def test_addresses_of_another_size(size: int, segment: int, said: str) -> None:
    data = bytearray(aranges(segment=segment))
    data[10] = size
    with pytest.raises(DWARFError, match=f"the addresses in .debug_aranges have {said} bytes"):
        coded(bytes(data))


def test_a_supplement_that_nobody_named(tmp_path: Path) -> None:
    made = table(tmp_path, "-g", TEXT)
    with pytest.raises(DWARFError, match="refers to a supplementary file and does not name one"):
        _ = made.supplement
    other = UnitTable(made._sections, supplement=lambda: made)
    assert other.supplement is made


def test_abbreviations_that_are_not_there(tmp_path: Path) -> None:
    made = table(tmp_path, "-g", TEXT)
    with pytest.raises(DWARFError, match="there are no abbreviations at 0x1000000"):
        made.get_abbrev_table(1 << 24)
    assert made.get_abbrev_table(0) is made.get_abbrev_table(0)


@pytest.mark.parametrize(("error", "text"), [(ValueError("why"), "why"), (AssertionError(), "AssertionError")])
def test_errors_have_words(error: Exception, text: str) -> None:
    assert explained(error) == text


# ---------------------------------------------------------------------------------------------- forms
# pytrace.runtime.binaries.dwarf_units: the ways past entries lead where pyelftools gets by reading them.


FORMS_FORMS = [
    "-gdwarf-2 -gstrict-dwarf",
    "-gdwarf-4",
    "-gdwarf-5",
    "-gdwarf-5 -fdebug-types-section",
    "-gdwarf-4 -gsplit-dwarf",
]


@pytest.mark.parametrize(("form", "compiler", "level"), [
    (form, compiler, level)
    for number, form in enumerate(FORMS_FORMS)
    for compiler, level in zip(("g++", "clang++"), ("-O0", "-O2") if number % 2 else ("-O2", "-O0"), strict=True)
])  # fmt: skip
def test_entries_are_those_that_pyelftools_reads(form: str, level: str, compiler: str, tmp_path: Path) -> None:
    options = (level, *form.split(), "-c")
    path = compiled(tmp_path, "cats", SOURCES / "forms.cpp", *options, language="c++", compiler=compiler)
    split = "split" in form
    if split:
        path = path.with_suffix(".dwo")
    table = UnitTable(FileSections(ElfFile.open(str(path)), split=split))
    checked = 0
    for one in table:
        waiting = [one.top]
        while waiting:
            die = waiting.pop()
            mine = [child.offset for child in die.children()]
            assert mine == [child.offset for child in die.iter_children()]
            checked += len(mine)
            waiting += die.children()
    assert checked > 1000
    assert {die.tag for die in _subprograms(table)} == {"DW_TAG_subprogram"}


def _subprograms(table: UnitTable) -> list[Die]:
    return [die for unit in table for die in unit.top.children(lambda shape: shape.tag == "DW_TAG_subprogram")]


def test_tables_of_abbreviations_end(tmp_path: Path) -> None:
    path = compiled(tmp_path, "plain", "int main(void) { return 0; }\n", "-g", "-c")
    tool("objcopy", "--update-section", f".debug_abbrev={_file(tmp_path, bytes(64))}", path)
    table = UnitTable(FileSections(ElfFile.open(str(path))))
    with pytest.raises(DWARFError, match="abbreviation 1 is missing"):
        assert next(iter(table)).top


def _file(folder: Path, data: bytes) -> Path:
    path = folder / "data"
    path.write_bytes(data)
    return path


# ---------------------------------------------------------------------------------------------- lists
# pytrace.runtime.binaries.dwarf_units: ranges and locations of entries of compiled programs.


@pytest.mark.parametrize("options", [*LISTS_FORMS, "-O2 -gdwarf-2 -gstrict-dwarf"])
def test_start_and_end_of_functions(options: str, tmp_path: Path) -> None:
    """Before DWARF 4 the end is an address, since then a distance."""
    functions = below(unit(tmp_path, options).top)
    assert {"work", "plain", "main"} <= {die.text("DW_AT_name") for die in functions}
    for die in functions:
        low, high = low_high(die)
        assert 0 < high - low < 4096
        assert ranges(die) == [(low, high)]


def test_entries_without_code(tmp_path: Path) -> None:
    item = unit(tmp_path, "-O2 -g")
    kind = next(die for die in item.top.children() if die.tag == "DW_TAG_structure_type")
    assert low_high(kind) == (0, 0)
    assert ranges(kind) == []
    assert locations(kind) == []


@pytest.mark.parametrize("options", ["-O2 -gdwarf-5", "-O2 -gdwarf-4", "-O2 -gdwarf-3 -gstrict-dwarf"])
def test_values_that_move(options: str, tmp_path: Path) -> None:
    item = unit(tmp_path, options)
    work = next(die for die in below(item.top) if die.text("DW_AT_name") == "work")
    low, high = low_high(work)
    lists = [locations(die) for die in work.children() if die.tag == "DW_TAG_formal_parameter"]
    assert len(lists) == 2
    assert any(len(found) > 1 for found in lists)
    for found in lists:
        assert found[0].low == low, "at the entry it is known"
        assert all(low <= item.low <= item.high <= high and item.expression for item in found)


def test_a_value_in_one_place_is_there_everywhere(tmp_path: Path) -> None:
    item = unit(tmp_path, "-O0 -gdwarf-5")
    found = [locations(die) for die in entries(item.top) if die.tag == "DW_TAG_formal_parameter"]
    assert any(found)
    assert all((one.low, one.high) == EVERYWHERE for row in found for one in row)
    assert {len(row) for row in found} <= {0, 1}


def test_code_in_several_pieces(tmp_path: Path) -> None:
    item = unit(tmp_path, "-O2 -g -ffunction-sections")
    whole = ranges(item.top)
    assert len(whole) > 1
    assert {(low, high) for die in below(item.top) for low, high in ranges(die)} <= set(whole)


# ---------------------------------------------------------------------------------------------- sections
# pytrace.runtime.binaries.dwarf_units: contents by name, decompressed, joined and divided.


SECTIONS_TEXT = b"debug information" * 10


def file(*rows: tuple[str, bytes, int], wide: bool = True, kind: int = 1) -> Any:
    """A file with sections: name, contents, flags."""
    sections = tuple(
        Section(name, kind, flags, 0, number, len(data), 0) for number, (name, data, flags) in enumerate(rows)
    )
    return SimpleNamespace(
        path="/bin/app",
        wide=wide,
        sections=sections,
        contents=lambda section: memoryview(rows[section.offset][1]),
        check_size=partial(ElfFile.check_size, SimpleNamespace(path="/bin/app", _copied={}, view=memoryview(b""))),
    )


def chdr(method: int, size: int, data: bytes, *, wide: bool = True) -> bytes:
    """A compressed section with its header."""
    return struct.pack("<IIQQ" if wide else "<III", *((method, 0, size, 1) if wide else (method, size, 1))) + data


@pytest.mark.parametrize("wide", [True, False])
def test_compressed_by_the_standard(wide: bool) -> None:
    data = chdr(1, len(SECTIONS_TEXT), zlib.compress(SECTIONS_TEXT), wide=wide)
    found = FileSections(file((".debug_info", data, SHF_COMPRESSED), wide=wide)).section("info")
    assert bytes(found.data) == SECTIONS_TEXT
    assert found.size == len(SECTIONS_TEXT)


def test_compressed_in_the_older_form() -> None:
    data = b"ZLIB" + len(SECTIONS_TEXT).to_bytes(8, "big") + zlib.compress(SECTIONS_TEXT)
    assert bytes(FileSections(file((".zdebug_info", data, 0))).section("info").data) == SECTIONS_TEXT
    # Without the mark it is as it is.
    assert bytes(FileSections(file((".zdebug_info", SECTIONS_TEXT, 0))).section("info").data) == SECTIONS_TEXT


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    "data", [zstd(SECTIONS_TEXT), zstd(SECTIONS_TEXT[:9]) + zstd(SECTIONS_TEXT[9:])], ids=["one frame", "two frames"]
)
def test_compressed_with_zstd(data: bytes) -> None:
    data = chdr(2, len(SECTIONS_TEXT), data)
    assert bytes(FileSections(file((".debug_info", data, SHF_COMPRESSED))).section("info").data) == SECTIONS_TEXT


def test_zstd_needs_no_library_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: object) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    data = chdr(2, len(SECTIONS_TEXT), zstd(SECTIONS_TEXT))
    assert bytes(FileSections(file((".debug_info", data, SHF_COMPRESSED))).section("info").data) == SECTIONS_TEXT


@pytest.mark.parametrize(
    ("name", "data", "flags"),
    [
        (".debug_info", chdr(1, 5, zlib.compress(SECTIONS_TEXT)), SHF_COMPRESSED),
        (".debug_info", chdr(2, 5, zstd(SECTIONS_TEXT)), SHF_COMPRESSED),
        (".zdebug_info", b"ZLIB" + (5).to_bytes(8, "big") + zlib.compress(SECTIONS_TEXT), 0),
    ],
)
def test_no_more_than_the_header_says(name: str, data: bytes, flags: int) -> None:
    assert bytes(FileSections(file((name, data, flags))).section("info").data) == SECTIONS_TEXT[:5]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (chdr(1, 9, b"damaged"), "incorrect header check"),
        (chdr(2, 9, b"damaged"), "[Uu]nknown frame"),
        (chdr(9, 9, b""), "the method has the number 9"),
    ],
)
def test_damage_names_file_and_section(data: bytes, reason: str) -> None:
    section = FileSections(file((".debug_line", data, SHF_COMPRESSED))).section("line")
    with pytest.raises(TraceError, match=rf"^/bin/app: \.debug_line cannot be decompressed: .*{reason}"):
        _ = section.data


@pytest.mark.parametrize(
    ("size", "reason"),
    [(64 << 20, r"cannot be 67108864 of debug information"), (1 << 40, r"not read: its 1048576 MiB are more than")],
)
@pytest.mark.parametrize("method", [1, 2])
def test_what_would_fill_memory_is_refused(method: int, size: int, reason: str) -> None:
    """Nothing is unpacked for it, and the next question costs nothing."""
    zeros = bytes(64 << 20)
    data = chdr(method, size, zlib.compress(zeros, 9) if method == 1 else zstd(zeros))
    asked: list[int] = []
    bomb = file((".debug_info", data, SHF_COMPRESSED))
    contents = bomb.contents
    bomb.contents = lambda section: (asked.append(1), contents(section))[1]
    section = FileSections(bomb).section("info")
    for _ in range(3):
        with pytest.raises(TraceError, match=reason):
            _ = section.data
    assert len(asked) == 1


def test_much_is_unpacked_in_pieces() -> None:
    text = random.Random(1).randbytes(1 << 20) + SECTIONS_TEXT * 10_000
    for data in (chdr(1, len(text), zlib.compress(text)), chdr(2, len(text), zstd(text))):
        assert bytes(FileSections(file((".debug_info", data, SHF_COMPRESSED))).section("info").data) == text


def test_what_is_not_there_is_empty() -> None:
    assert FileSections(file()).section("info").size == 0
    assert FileSections(file((".debug_info", SECTIONS_TEXT, 0), kind=SHT_NOBITS)).section("info").size == 0


def test_sections_of_split_files_have_names_of_their_own() -> None:
    both = file((".debug_info", b"own", 0), (".debug_info.dwo", b"split", 0), (".debug_cu_index", b"index", 0))
    assert bytes(FileSections(both).section("info").data) == b"own"
    split = FileSections(both, split=True)
    assert bytes(split.section("info").data) == b"split"
    assert bytes(split.index("cu_index").data) == b"index"
    assert split.section("info") is split.section("info")


def test_sections_of_one_name_are_joined_those_of_groups_last() -> None:
    parts = file((".debug_types", b"A", SHF_GROUP), (".debug_types", b"b", 0), (".debug_types", b"C", SHF_GROUP))
    assert bytes(FileSections(parts).section("types").data) == b"bAC"


@pytest.mark.parametrize(("wide", "size"), [(True, 8), (False, 4)])
def test_addresses(wide: bool, size: int) -> None:
    assert FileSections(file(wide=wide)).address_size == size


def test_parts_of_a_package() -> None:
    rows = (".debug_info", b"0123456789", 0), (".debug_str", b"shared", 0), (".debug_line", b"x", 0)
    whole = FileSections(file(*rows))
    parts = SectionParts(whole, {"info": (2, 3)}, frozenset({"info", "line"}))
    assert bytes(parts.section("info").data) == b"234"
    assert bytes(parts.section("str").data) == b"shared"
    assert parts.section("line").size == 0, "the unit has none of it"
    assert (parts.path, parts.address_size) == ("/bin/app", 8)


def test_a_view_reads_like_a_file() -> None:
    stream = ViewStream(memoryview(b"0123456789"))
    assert (stream.read(3), stream.tell(), stream.read(0)) == (b"012", 3, b"")
    assert (stream.seek(2, 1), stream.read(2)) == (5, b"56")
    assert (stream.seek(-3, 2), stream.read()) == (7, b"789")
    assert (stream.read(5), stream.tell()) == (b"", 10)
    assert (stream.seek(20), stream.read(1)) == (20, b"")
    with pytest.raises(ValueError, match="there is nothing at -1"):
        stream.seek(-1)


# ---------------------------------------------------------------------------------------------- elftools overrides
# The private parts of pyelftools that pytrace leans on are still there, and leant on in one module only.


ROOT = Path(__file__).resolve().parents[3]
MODULES: dict[str, ModuleType] = {
    "DWARFStructs": structs,
    "AbbrevTable": abbrevtable,
    "DIE": elftools_die,
    "CompileUnit": compileunit,
    "DWARFInfo": dwarfinfo,
}
EACH = [pytest.param(owner, name, id=f"{owner.__name__}.{name}") for owner, names in PRIVATE.items() for name in names]
_PRIVATE = re.compile(r"_[a-zA-Z]\w*")


def attributes(owner: type[Any]) -> set[str]:
    """Names that a class defines or its methods set."""
    set_by_methods = set(re.findall(r"self\.(\w+)\b[^=\n]*=(?!=)", inspect.getsource(owner)))
    return set_by_methods | {name for base in owner.__mro__[:-1] for name in vars(base)}


@pytest.mark.parametrize(("owner", "name"), EACH)
def test_each_private_attribute_is_there_and_used(owner: type[Any], name: str) -> None:
    assert name in attributes(owner), f"pyelftools {version('pyelftools')}: {owner.__name__}.{name} is gone"
    # An override that nothing calls any more would be as good as gone.
    source = inspect.getsource(MODULES[owner.__name__])
    assert len(re.findall(rf"(?:self|cls|\w+)\.{name}\b", source)) >= 1
    assert re.search(rf"\b{name}\b", Path(elftools_overrides.__file__).read_text().split('"""The private', 1)[1])


def test_line_programs_are_kept_where_they_are_forgotten() -> None:
    named = dict.fromkeys(list(inspect.signature(DWARFInfo.__init__).parameters)[2:])
    assert DWARFInfo(DwarfConfig(True, "x64", 8), **named)._linetable_cache == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [Die, Unit, UnitTable], ids=lambda own: own.__name__)
def test_no_other_module_overrides_what_is_private(own: type[Any]) -> None:
    """By intent or by chance: an attribute of ours with the name of one of theirs would change what they do."""
    mine = {name for name in set(vars(own)) | attributes_set(own) if _PRIVATE.fullmatch(name)}
    theirs = {
        name
        for base in own.__mro__
        if base.__module__.startswith("elftools.")
        for name in attributes(base)
        if _PRIVATE.fullmatch(name)
    }
    assert theirs
    assert not mine & theirs


def attributes_set(own: type[Any]) -> set[str]:
    return set(re.findall(r"self\.(_\w+)(?:: [^=\n]+)? = ", inspect.getsource(own)))


def test_what_leans_on_pyelftools_is_listed() -> None:
    """Each private name that the module defines or reads of its bases is in the list."""
    source = Path(elftools_overrides.__file__).read_text()
    used = set(re.findall(r"(?:def |super\(\)\.|self\.)(_[a-zA-Z]\w*)", source))
    ours = {"_data", "_known", "_at"}
    assert used - ours <= {name for names in PRIVATE.values() for name in names}
    for names in (attributes(owner) for owner in PRIVATE):
        assert not ours & names


def test_only_tested_releases_are_admitted() -> None:
    pinned = re.search(r"^pyelftools==([\d.]+)$", (ROOT / "scripts/requirements.in").read_text(), re.MULTILINE)
    admitted = re.search(r'"pyelftools>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    assert admitted is not None
    major, minor = map(int, pinned[1].split(".")[:2])
    assert admitted.groups() == (pinned[1], f"{major}.{minor + 1}")
    assert version("pyelftools") == pinned[1]
