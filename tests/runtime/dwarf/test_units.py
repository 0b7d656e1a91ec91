"""pytrace.runtime.dwarf.units: values of entries, units of a table, and what damage is called."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.runtime.dwarf.units import Unit, UnitTable, explained
from tests.support.dwarf_programs import TEXT, below, table, unit

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
