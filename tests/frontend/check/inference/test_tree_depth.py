"""Room for the recursion over deep trees."""

from __future__ import annotations

import sys

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source, Span
from pytrace.frontend.check.inference.tree_depth import LIMIT, run_deep

SPAN = Span(Source("stdin", "begin"), 0, 5)


def depth(levels: int) -> int:
    return 0 if levels == 0 else 1 + depth(levels - 1)


def test_passes_have_room_while_they_run() -> None:
    before, found = sys.getrecursionlimit(), Diagnostics()
    assert run_deep(lambda: depth(5 * before), -1, found, SPAN) == 5 * before
    assert sys.getrecursionlimit() == before
    assert not found.failed


def test_what_is_too_deep_even_so_is_an_error() -> None:
    before, found = sys.getrecursionlimit(), Diagnostics()
    assert run_deep(lambda: depth(2 * LIMIT), -1, found, SPAN) == -1
    assert [(item.message, item.span) for item in found.errors] == [("the script is nested too deeply", SPAN)]
    assert sys.getrecursionlimit() == before
