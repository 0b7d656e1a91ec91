"""Assignments to elements of which it is known that they are mostly missing."""

from __future__ import annotations

import pytest

from pytrace.codegen.analysis.inserted_elements import inserted_maps
from pytrace.codegen.analysis.repeated_reads import element_maps
from tests.codegen.analysis.test_shared_variables import checked
from tests.codegen.running import helpers, machine

LOOKUP, UPDATE, DELETE = 1, 2, 3
TAKES = "end /@start[tid]/ { @us = hist(nsecs - @start[tid]); delete(@start[tid]); }"


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("@start[tid] = nsecs;", "if (@start[tid]) { print(@start[tid]); delete(@start[tid]); }", {"@start"}),
        ("@start[tid] = nsecs;", "print(@start[tid]); delete(@start, tid);", {"@start"}),
        # Whoever reads it first has it mostly.
        ("print(@start[tid]); @start[tid] = nsecs;", "print(@start[tid]); delete(@start[tid]);", set()),
        ("@start[tid] += 5;", "print(@start[tid]); delete(@start[tid]);", set()),
        # A probe that only deletes tidies up.
        ("@start[tid] = nsecs;", "delete(@start[tid]);", set()),
        ("@start[tid] = nsecs;", "print(@start[tid]);", set()),
    ],
)
def test_maps_whose_elements_another_probe_takes(first: str, second: str, wanted: set[str]) -> None:
    program = checked(f"begin {{ {first} }} end {{ {second} }}")
    assert inserted_maps(program, element_maps(program))[program.units[0].body] == wanted


def test_an_element_is_inserted_without_a_look_up_and_replaced_when_it_is_there() -> None:
    found = machine(f"begin {{ @start[tid] = 5; }} {TAKES}")
    found.run()
    assert helpers(found).count(LOOKUP) == 0
    assert helpers(found).count(UPDATE) == 1
    found.run()
    assert list(found.entries("@start").values()) == [5]


def test_the_look_up_stays_where_elements_stay() -> None:
    found = machine("begin { @start[tid] = 5; } end { print(@start[tid]); }")
    found.run()
    found.run()
    assert helpers(found).count(LOOKUP) == 2
    assert helpers(found).count(UPDATE) == 1
