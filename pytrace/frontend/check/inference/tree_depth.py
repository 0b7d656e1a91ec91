"""The recursion limit for deep trees: the depth of a long ``a + b + c + …`` is its number of terms."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.core.diagnostics import Diagnostics
    from pytrace.core.source import Span

T = TypeVar("T")

LIMIT = 60_000
"""Python frames that a pass may take; frames of Python functions live on the heap (CPython 3.11)."""


def run_deep(run: Callable[[], T], otherwise: T, diagnostics: Diagnostics, span: Span) -> T:
    """Run a recursive pass and return its result; if the tree is too deep, record an error and return *otherwise*."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, LIMIT))
    try:
        return run()
    except RecursionError:
        diagnostics.error("the script is nested too deeply", span)
        return otherwise
    finally:
        sys.setrecursionlimit(before)
