"""Splitting of long bodies into functions; the code for LLVM and the kernel grows linearly with the script."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.codegen.emit import bodies
from pytrace.codegen.ir import target
from pytrace.codegen.lower.generator import generate
from pytrace.core.options import CompileOptions
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from tests.codegen.analysis.test_shared_variables import checked
from tests.support.facts import RecordedKernel


def planned(text: str) -> tuple[bodies.Plan, nodes.Block]:
    program = checked(text)
    body = program.units[0].body
    with pipeline._room():
        return bodies.split_plan(program, [body]), body


def ir(text: str) -> str:
    return generate(checked(text), RecordedKernel(), CompileOptions())[0]


def statements(count: int) -> str:
    return " ".join(f"@a[{number}] = {number};" for number in range(count))


def test_short_bodies_are_one_function() -> None:
    plan, _ = planned(f"begin {{ {statements(200)} unroll (20) {{ @++; }} }}")
    assert not plan.blocks
    assert not plan.loops
    assert not plan.chains


def test_statements_are_cut_in_order() -> None:
    plan, body = planned(f"begin {{ {statements(1500)} }}")
    segments = plan.blocks[body]
    assert [item for segment in segments for item in segment.statements] == list(body.statements)
    assert all(segment.apart for segment in segments[:-1])
    assert 7 <= len(segments) <= 12


def test_there_are_never_more_parts_than_the_kernel_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_PARTS", 8)
    plan, body = planned(f"begin {{ {statements(3000)} }}")
    assert 8 <= len(plan.blocks[body]) <= 10


def test_what_leaves_a_loop_stays_in_it() -> None:
    inside = " ".join(f"if (@a[{number}] == 1) {{ break; }} {statements(150)}" for number in range(8))
    plan, body = planned(f"begin {{ for ($i : 0..3) {{ {inside} }} }}")
    loop = next(node for node in walk(body) if isinstance(node, nodes.For))
    for segment in plan.blocks[loop.body]:
        jumps = any(isinstance(node, nodes.Break) for item in segment.statements for node in walk(item))
        assert segment.apart != jumps


def test_few_statements_are_no_function() -> None:
    inside = " ".join(f"if (@a[{number}] == 1) {{ break; }} @a[{number}] = 1;" for number in range(400))
    plan, _ = planned(f"begin {{ for ($i : 0..3) {{ {inside} }} }}")
    assert not any(segment.apart for segments in plan.blocks.values() for segment in segments)


def test_long_chains_are_cut() -> None:
    text = " else ".join(f"if (pid == {number}) {{ @ = {number}; }}" for number in range(700))
    plan, body = planned(f"begin {{ {text} else {{ @ = 5; }} }}")
    (chain,) = plan.chains.values()
    assert sum(len(group) for group in chain.groups) == 700
    assert chain.other is not None
    assert body in plan.blocks


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("unroll (100) { @x++; }", 0),
        ("unroll (100) { unroll (100) { @x++; } }", 1),
        ("unroll (100) { unroll (100) { unroll (100) { @x++; } } }", 2),
        ("unroll (100) { unroll (100) { unroll (100) { unroll (100) { unroll (9) { @x++; } } } } }", 3),
    ],
)
def test_unrolls_that_become_loops(text: str, loops: int) -> None:
    plan, _ = planned(f"begin {{ {text} }}")
    assert len(plan.loops) == loops


def test_nested_unrolls_cost_no_more_than_their_bodies() -> None:
    flat = len(ir("begin { unroll (50) { @x++; } }"))
    assert len(ir("begin { unroll (100) { unroll (100) { @x++; } } }")) < 3 * flat


@pytest.mark.parametrize(
    "statement", ["@a[{0}] = {0};", 'printf("n %d\\n", {0});', "@c[{0}] = count();", "@v{0} = {0};"]
)
def test_code_grows_with_the_length(statement: str) -> None:
    def lines(count: int) -> tuple[int, int]:
        text = ir("begin { " + " ".join(statement.format(number) for number in range(count)) + " }")
        return text.count("\n"), target.longest(text)

    (some, _), (many, longest) = lines(1000), lines(2000)
    assert many < 2.1 * some
    assert longest < target.LARGE
