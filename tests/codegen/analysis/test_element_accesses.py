"""Elements of maps that are read once, and those that have to be read again."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.codegen.emit.map_uses import element_maps, inserted_maps, repeated_reads
from pytrace.core.options import CompileOptions
from tests.codegen.analysis.test_shared_variables import checked
from tests.codegen.running import helpers, machine, ran

LOOKUP, UPDATE, DELETE = 1, 2, 3
"""Numbers of the BPF helpers for elements."""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("print(@a[tid] + 1); print(@a[tid] + 2);", 0),  # arguments may not be evaluated
        ("$x = @a[tid]; print(@a[tid]);", 1),
        ("$x = @a[tid] + @a[tid]; $y = @a[tid];", 2),
        ("$x = @a[tid]; $y = @a[pid];", 0),
        ("$x = @a[1]; $y = @a[1]; $z = @a[2];", 1),
        ("$x = @b[pid, 1]; $y = @b[pid, 1]; $z = @b[1, pid];", 1),
        ("$x = @a[nsecs]; $y = @a[nsecs];", 0),
        ("$x = @a[(int8)1]; $y = @a[(int8)1];", 0),
        ("$k = 5; $x = @a[$k]; $y = @a[$k];", 1),
        ("$k = 5; $x = @a[$k]; $k = 6; $y = @a[$k];", 0),
        ("$k = 5; $x = @a[$k]; $k++; $y = @a[$k];", 0),
        ("$k = 5; $x = @a[$k]; find(@a, 1, $k); $y = @a[$k];", 0),
        # What changes the map, or may.
        ("$x = @a[tid]; @a[tid] = 5; $y = @a[tid];", 0),
        ("$x = @a[tid]; @a[7] = 5; $y = @a[tid];", 0),
        ("$x = @a[tid]; @b[1, 2] = 5; $y = @a[tid];", 1),
        ("$x = @a[tid]; @a[tid] += 5; $y = @a[tid];", 0),
        ("$x = @a[tid]; @a[tid]++; $y = @a[tid];", 0),
        ("$x = @a[tid]; $z = @a[tid]--; $y = @a[tid];", 0),
        ("$x = @a[tid]; delete(@a[tid]); $y = @a[tid];", 0),
        ("$x = @a[tid]; delete(@a, tid); $y = @a[tid];", 0),
        ("$x = @a[tid]; clear(@a); $y = @a[tid];", 0),
        ("$x = @a[tid]; zero(@a); $y = @a[tid];", 0),
        ("$x = @a[tid]; print(@a); print(@a[tid]); if (has_key(@a, tid)) { print(len(@a)); } $y = @a[tid];", 2),
        ("$x = @a[tid]; $f = change(1); $y = @a[tid];", 0),
        ("$x = @a[tid]; $p = &@a[tid]; $y = @a[tid];", 0),
        ("$x = @a[tid]; if (rand > 5) { @a[tid] = 1; } $y = @a[tid];", 0),
        ("$x = @a[tid]; if (rand > 5) { print(1); } else { delete(@a[tid]); } $y = @a[tid];", 0),
        ("$x = @a[tid] + { @a[tid] = 7; 1 } + @a[tid];", 0),
        # What is not always evaluated.
        ("if (@a[tid]) { $x = @a[tid]; } else { $x = @a[tid]; } $y = @a[tid];", 3),
        ("if (rand > 5 && @a[tid]) { $x = @a[tid]; } else { $x = @a[tid]; }", 1),
        ("if (@a[tid] && @a[1]) { $x = @a[tid] + @a[1]; } else { $x = @a[tid] + @a[1]; } $y = @a[tid];", 4),
        ("if (rand > 5 || @a[tid]) { $x = @a[tid]; }", 0),
        ("if (@a[tid] || @a[1]) { $x = @a[tid] + @a[1]; }", 1),
        ("$x = @a[1] ? @a[1] : @a[2]; $y = @a[2];", 1),
        ("$b = rand > 5 && @a[1]; $x = @a[1];", 0),
        # Loops see what others write.
        ("$x = @a[1]; while (@a[1] == 0) { $y = @a[1]; } $z = @a[1];", 1),
        ("$x = @a[1]; for ($i : 0..3) { $y = @a[1]; $z = @a[1]; } $x = @a[1];", 1),
        ("$x = @a[1]; unroll (3) { $y = @a[1]; $z = @a[1]; } $x = @a[1];", 1),
        # Only numbers.
        ("$x = @s[1]; $y = @s[1]; $u = (int64)@c[1]; $v = (int64)@c[1];", 0),
    ],
)
def test_reads_that_repeat_an_earlier_one(body: str, wanted: int) -> None:
    start = 'begin { @a[1] = 1; @b[1, 2] = 2; @s[1] = "text"; @c[1] = count(); }'
    function = "fn change($n: int64): int64 { @a[1] = 3; return 1; }"
    program = checked(f"{function} {start} interval:s:1 {{ {body} }}")
    found = repeated_reads(program, program.units[1].body, element_maps(program))
    assert len(found) == wanted


def test_a_predicate_and_its_action() -> None:
    script = "begin /@a[tid] && @a[1] != 5/ { @d[1] = @a[tid] - @a[1]; delete(@a[tid]); }"
    program = checked(f"{script} end {{ @a[tid] = 1; @a[1] = 7; }}")
    assert len(repeated_reads(program, program.units[0].body, element_maps(program))) == 2


BODY = """@a[1] = 5;
if (@a[1] == 5) { @r[1] = @a[1] + @a[1]; }
@a[1] = 6; $x = @a[1]; unroll (2) { $x += @a[1]; @a[1]++; $x += @a[1]; $x += @a[1] * 100; }
@r[2] = $x;"""


@pytest.mark.parametrize(("options", "spares"), [(CompileOptions(), True), (CompileOptions(checks=2), False)])
def test_values_and_look_ups(options: CompileOptions, spares: bool) -> None:
    found = ran(f"begin {{ {BODY} }}", None, options)
    elements: dict[int, Any] = dict(found.entries("@r"))
    assert elements == {1: 10, 2: 6 + (6 + 7 + 700) + (7 + 8 + 800)}
    plain = ran(f"begin {{ {BODY} }}", None, CompileOptions(checks=2))
    assert (helpers(found).count(LOOKUP) < helpers(plain).count(LOOKUP)) is spares


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
