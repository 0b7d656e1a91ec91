"""Variables that loop bodies share with the code around them."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.codegen.emit import bodies
from pytrace.codegen.emit.bodies import called_functions, shared_variables
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.support.facts import RecordedKernel


def checked(text: str) -> CheckedProgram:
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), RecordedKernel(), Diagnostics())
    return pipeline.front_end(compilation).checked


def shared(text: str) -> set[str]:
    program = checked(text)
    body = program.units[0].body
    return {info.name for info in shared_variables(program, body, bodies.split_plan(program, [body]))}


def test_only_what_crosses_a_loop_is_shared() -> None:
    assert shared("begin { $a = 1; $b = 2; for ($i : 0..3) { $c = $a; print($c + $i); } print($b); }") == {"a"}


def test_a_loop_variable_is_shared_with_an_inner_loop() -> None:
    assert shared("begin { for ($i : 0..3) { for ($j : 0..3) { print($i + $j); } } }") == {"i"}


def test_the_condition_of_while_runs_inside() -> None:
    assert shared("begin { $n = 3; while ($n > 0) { $n--; } }") == {"n"}


def test_bounds_of_a_range_are_outside() -> None:
    assert shared("begin { $n = 3; for ($i : 0..$n) { print($i); } }") == set()


def test_functions_come_after_those_that_they_call() -> None:
    text = (
        "fn a(): int64 { return 1; } fn b(): int64 { return a() + 1; } fn c(): int64 { return b() + a(); } "
        "begin { print(c()); }"
    )
    program = checked(text)
    assert [info.name for info in called_functions(program, program.units[0].body)] == ["a", "b", "c"]


def test_parts_share_what_crosses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WHOLE", 5)
    monkeypatch.setattr(bodies, "PART", 8)
    assert shared("begin { $a = 1; @x = $a; $b = 2; @y = $b; @z = $a + 1; }") == {"a"}


def test_unrolls_that_are_loops_share_what_is_around(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "begin { $a = 1; unroll (50) { $b = $a; @ = $b; $a++; } }"
    assert shared(text) == set()
    monkeypatch.setattr(bodies, "UNROLLED", 100)
    assert shared(text) == {"a"}


def test_in_parts_variables_with_an_address_outlive_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "begin { $v = (uint64)1; $p = &$v; @x = 1; @y = 2; @z = *$p; $w = 3; @w = $w; }"
    assert shared(text) == set()
    monkeypatch.setattr(bodies, "WHOLE", 5)
    monkeypatch.setattr(bodies, "PART", 12)
    assert {"v", "p"} <= shared(text)
