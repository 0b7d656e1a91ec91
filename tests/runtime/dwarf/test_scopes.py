"""pytrace.runtime.dwarf.scopes: which functions, also inlined ones, code belongs to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from pytrace.runtime.dwarf.lines import LineTable
from pytrace.runtime.dwarf.lists import low_high
from pytrace.runtime.dwarf.scopes import Functions, Scope, segments
from pytrace.runtime.dwarf.units import Unit
from tests.support.dwarf_programs import TEXT, below, unit

CALL = 1 + next(number for number, text in enumerate(TEXT.splitlines()) if "int r = inner(" in text)


@pytest.fixture(params=["-O2 -gdwarf-5", "-O2 -gdwarf-4"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Unit:
    return unit(tmp_path, request.param)


def bounds(program: Unit, name: str) -> tuple[int, int]:
    return low_high(next(die for die in below(program.top) if die.text("DW_AT_name") == name))


def test_functions_by_address(program: Unit) -> None:
    functions = Functions(program)
    low, high = bounds(program, "work")
    for address in (low, high - 1):
        found = functions.covering(address)
        assert found is not None
        assert found.text("DW_AT_name") == "work"
    assert functions.covering(0) is functions.covering(1 << 50) is None
    names = [die.text("DW_AT_name") for die in functions]
    assert sorted(names) == ["main", "plain", "work"]
    assert len(functions) == 3


def test_from_where_to_where_a_function_is(program: Unit) -> None:
    functions = Functions(program)
    low, high = bounds(program, "plain")
    start, end, scope = functions.around(low + 1)
    assert (start, end) == (low, high)
    assert scope is not None
    assert scope.function == "plain"
    first = min(bounds(program, name)[0] for name in ("main", "plain", "work"))
    last = max(bounds(program, name)[1] for name in ("main", "plain", "work"))
    assert functions.around(first - 1) == (0, first, None)
    assert functions.around(last) == (last, 1 << 64, None)


def test_a_unit_that_is_missing_has_none() -> None:
    functions = Functions(None)
    assert (len(functions), list(functions), functions.covering(1), functions.known) == (0, [], None, 0)
    assert functions.around(5) == (0, 1 << 64, None)


def test_reading_goes_on_where_it_stopped(program: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.runtime.dwarf.scopes._STEP", 1)
    functions = Functions(program)
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


def test_what_was_inlined_and_where(program: Unit) -> None:
    low, high = bounds(program, "work")
    _, _, work = Functions(program).around(low)
    assert work is not None
    inside = list(work.inside())
    assert {tuple(chain(scope)) for _, _, scope in inside} >= {("innermost", "inner", "work")}
    assert all(low <= start < end <= high for start, end, _ in inside)
    calls = {scope.call[1] for _, _, scope in inside if chain(scope) == ["inner", "work"]}
    assert CALL in calls
    assert work.call == (-1, 0)


def test_pieces_of_one_line_in_one_function(program: Unit) -> None:
    low, high = bounds(program, "work")
    _, _, work = Functions(program).around(low)
    table = LineTable(program)
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


def test_code_of_no_function(program: Unit) -> None:
    assert {item.scope for item in segments(0, 5, None, LineTable(program))} == {None}
