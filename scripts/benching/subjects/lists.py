"""``-l``: everything, and a large library; the first and the second time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PYTRACE, Tracer

EVERYTHING = 0.5
LIBRARY = 0.3


@cache
def library() -> str:
    """The largest library at hand: LLVM, with more than 100,000 functions."""
    import llvmlite

    return str(next(Path(llvmlite.__file__).parent.glob("binding/*.so")))


def _listing(pattern: Callable[[], list[str]], first: bool, goal: float) -> Callable[[Row, Plan], list[Line]]:
    measures = (
        Measure("wall a line", "us", goal),
        Measure("processor a line", "us", goal),
        Measure("wall", "ms"),
        Measure("lines", "lines", less=False),
    )

    def measure(row: Row, plan: Plan) -> list[Line]:
        with tempfile.TemporaryDirectory() as kept:

            def once(tracer: Tracer) -> Numbers:
                with tempfile.TemporaryDirectory() as fresh:
                    done = tracer.run("-l", *pattern(), environment={"XDG_CACHE_HOME": fresh if first else kept})
                lines = max(1, done.stdout.count("\n"))
                return {
                    "wall a line": done.wall / lines * 1e6,
                    "processor a line": done.processor / lines * 1e6,
                    "wall": done.wall * 1e3,
                    "lines": float(lines),
                }

            once(PYTRACE)
            return paired(row, plan, measures, once)

    return measure


def _library() -> list[str]:
    return [f"uprobe:{library()}:*"]


ROWS = [
    Row("lists.all.first", "-l of everything, first time", _listing(list, True, EVERYTHING)),
    Row("lists.all.second", "-l of everything, second time", _listing(list, False, EVERYTHING)),
    Row("lists.library.first", "-l of a library with 100,000 functions, first", _listing(_library, True, LIBRARY)),
    Row("lists.library.second", "-l of a library with 100,000 functions, second", _listing(_library, False, LIBRARY)),
]
