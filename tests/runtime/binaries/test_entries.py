"""pytrace.runtime.binaries.dwarf_lines: what is read of bytes is what pyelftools reads, entry by entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.runtime.binaries.dwarf_lines import Entries, Value
from pytrace.runtime.binaries.dwarf_types import described
from pytrace.runtime.binaries.dwarf_units import ranges
from tests.support.compile import SOURCES
from tests.support.dwarf_programs import FORMS, TEXT, entries, table, unit
from tests.support.rows import each_row

SECTIONS = "-O2 -gdwarf-5 -ffunction-sections", "-O2 -gdwarf-4 -ffunction-sections"


@pytest.mark.needs("clang")
@each_row("compiler", ["gcc", "clang"])
@each_row("options", [*FORMS, *SECTIONS])
def test_code_and_names_are_those_of_pyelftools(options: str, compiler: str, tmp_path: Path) -> None:
    checked = with_code = 0
    for item in table(tmp_path, options, compiler=compiler):
        made = Entries(item)
        for die in entries(item.top):
            values = made.values(die.offset)
            assert made.code(die.offset, values) == ranges(die), (die.tag, hex(die.offset))
            with_code += bool(ranges(die))
            if die.tag in ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine"):
                linkage = described(die, "DW_AT_linkage_name").text("DW_AT_linkage_name")
                assert made.function(die.offset) == (linkage or described(die, "DW_AT_name").text("DW_AT_name"))
                for name in ("DW_AT_call_file", "DW_AT_call_line"):
                    assert made.number(die.offset, values, name, -1) == die.number(name, -1)
                checked += 1
    assert checked >= 4
    assert with_code >= 4


CLASSES = """
namespace zoo { struct Cat { int walk(int n) const; }; }
int zoo::Cat::walk(int n) const { return n + 1; }
int main(int argc, char **) { return zoo::Cat().walk(argc); }
"""


def test_linkage_names_come_first(tmp_path: Path) -> None:
    item = unit(tmp_path, "-O1 -g", CLASSES, language="c++")
    made = Entries(item)
    names = [made.function(die.offset) for die in entries(item.top) if die.tag == "DW_TAG_subprogram"]
    assert "_ZNK3zoo3Cat4walkEi" in names
    assert "main" in names


def test_functions_of_one_file_have_the_names_of_what_they_are_in(tmp_path: Path) -> None:
    """GCC gives them no linkage name, clang does."""
    item = unit(tmp_path, "-O1 -g", (SOURCES / "local_types.cpp").read_text(), language="c++")
    made = Entries(item)
    names = {made.function(die.offset) for die in entries(item.top) if die.tag == "DW_TAG_inlined_subroutine"}
    inside = {f"app::(anonymous namespace)::{name}" for name in ("Part::twice", "inner")}
    assert names == {*inside, "plain", "main::{lambda}::operator()"}


def test_entries_that_refer_to_each_other_in_a_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Entries(unit(tmp_path, "-g", TEXT))
    origin = {"DW_AT_abstract_origin": Value("DW_FORM_ref4", 7)}
    monkeypatch.setattr(made, "values", lambda _at: origin)
    with pytest.raises(DWARFError, match="in a cycle"):
        made.function(made.unit.top.offset)


def test_a_string_outside_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Entries(unit(tmp_path, "-g", TEXT))
    monkeypatch.setattr(made, "values", lambda _at: {"DW_AT_name": Value("DW_FORM_strp", 1 << 30)})
    with pytest.raises(DWARFError, match="a string is outside its table"):
        made.function(made.unit.top.offset)


def test_an_unknown_kind_of_range(tmp_path: Path) -> None:
    item = unit(tmp_path, "-O2 -gdwarf-5", TEXT)
    item.dwarfinfo.section("rnglists").__dict__["data"] = memoryview(b"\x63")
    with pytest.raises(DWARFError, match="the unknown kind 99"):
        Entries(item)._listed(0)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x04\x05\x85\x01\x00", [(0x1005, 0x1085)]),
        (b"\x05" + (0x9000).to_bytes(8, "little") + b"\x04\x01\x02\x00", [(0x9001, 0x9002)]),
        (b"\x06" + (7).to_bytes(8, "little") + (9).to_bytes(8, "little") + b"\x00", [(7, 9)]),
        (b"\x07" + (7).to_bytes(8, "little") + b"\x09\x00", [(7, 16)]),
        # An empty range is none.
        (b"\x04\x05\x05\x00", []),
        (b"\x00\x04\x05\x06\x00", []),
        (b"\x01\x02\x04\x01\x02\x00", [(0x2003, 0x2004)]),
        (b"\x02\x01\x02\x00", [(0x2001, 0x2002)]),
        (b"\x03\x01\x10\x00", [(0x2001, 0x2011)]),
    ],
)
def test_ranges_since_version_5(
    data: bytes, found: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = unit(tmp_path, "-O2 -gdwarf-5", TEXT)
    item.dwarfinfo.section("rnglists").__dict__["data"] = memoryview(data)
    item.__dict__["low"] = 0x1000
    monkeypatch.setattr(item.dwarfinfo, "get_addr", lambda _unit, number: 0x2000 + number)
    assert Entries(item)._listed(0) == found
