"""Bounds of loops: what is refused, what is counted as it runs, and what is neither."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit import loops
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.codegen.running import messages
from tests.support.front import analyse

MOST = loops.MOST_ITERATIONS


def _most(text: str) -> int:
    checked: CheckedProgram = analyse(text).checked()
    return loops.most_iterations(checked, checked.units[-1].body)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("begin { @ = 1; }", 0),
        ("begin { for ($i : 0..10) { @ = $i; } }", 10),
        ("begin { for ($i : 10..0) { @ = $i; } }", 0),
        ("begin { for ($i : 0..10) { for ($j : 0..5) { @ = $j; } } for ($k : 0..3) { @ = $k; } }", 63),
        ("begin { for ($i : 0..pid) { @ = $i; } }", MOST),
        ("begin { while (@ < 3) { @++; } }", MOST),
        ("begin { unroll(4) { for ($i : 0..10) { @ = $i; } } }", 40),
        ("let @m = hash(8); begin { @m[1] = 1; for ($k : @m) { @ = $k.0; } }", 12),
        ("macro m(n) { for ($j : 0..n) { print($j); } } begin { for ($i : 0..10) { m(7); } }", 80),
        ("fn f() : void { for ($i : 0..7) { @ = $i; } } begin { for ($i : 0..10) { f(); } f(); }", 87),
        ("begin { if (pid) { for ($i : 0..7) { @ = $i; } } else { for ($i : 0..8) { @ = $i; } } }", 15),
    ],
)
def test_most(text: str, most: int) -> None:
    assert _most(text) == most


NEST = "for ($i : 0..1000000) {{ {0} for ($j : 0..100) {{ @ = $j; }} }}"


def test_a_nest_of_constants_is_refused() -> None:
    assert messages(f"begin {{ {NEST.format('')} }}") == [
        "these loops make 1,000,000 × 100 iterations; all loops together may make 8,388,608 when a probe fires"
    ]
    assert not messages(f"config = {{ max_loop_iterations = 200000000 }} begin {{ {NEST.format('')} }}")


@pytest.mark.parametrize("way", ["if (@a) { break; }", "if (@a) { continue; }", "if (@a) { return; }"])
def test_a_nest_that_may_end_early_is_not(way: str) -> None:
    assert not messages(f"begin {{ @a = 1; {NEST.format(way)} }}")
