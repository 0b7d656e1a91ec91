"""pytrace.runtime.dwarf.lists: ranges and locations of entries of compiled programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.runtime.dwarf.lists import EVERYWHERE, locations, low_high, ranges
from tests.support.dwarf_programs import FORMS, below, entries, unit


@pytest.mark.parametrize("options", [*FORMS, "-O2 -gdwarf-2 -gstrict-dwarf"])
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
