"""Loops of strstr() and strcontains()."""

from __future__ import annotations

import pytest

from pytrace.codegen.lower.string_family import NEEDLE_FOLLOWED
from tests.codegen.emit.test_program import compiled, functions


@pytest.mark.parametrize(
    ("needle", "loops"),
    [
        ('"sh"', 1),
        ("comm", 1),
        ('"' + "x" * (NEEDLE_FOLLOWED - 1) + '"', 1),
        ('"' + "x" * NEEDLE_FOLLOWED + '"', 2),
        ("str(nsecs)", 2),
    ],
)
def test_long_needles_have_a_loop_of_their_own(needle: str, loops: int) -> None:
    found = functions(compiled(f"begin {{ $hay = str(pid); print(strstr($hay, {needle})); }}"))
    assert len(found) == 1 + loops


@pytest.mark.parametrize("builtin", ["strstr", "strcontains"])
def test_both_builtins_search(builtin: str) -> None:
    assert len(functions(compiled(f'begin {{ print({builtin}(comm, "sh")); }}'))) == 2
