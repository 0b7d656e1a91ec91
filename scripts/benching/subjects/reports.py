"""A report of very many stacks: the time to make it, its size, the time until Chromium shows it."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from benching.rows import Line, Measure, Plan, Row
from benching.runs import PYTRACE, RunError, run

ROOT = Path(__file__).resolve().parents[3]
STACKS, MOST = 50_000, 500_000
OPENED = 2.0
"""Seconds within which it is to be shown."""


def _samples(python: Path, *words: str) -> str:
    return run([str(python), "-m", "tests.support.report_samples", *words], {"PYTHONPATH": str(ROOT)}).stdout


def _report(row: Row, plan: Plan, stacks: int) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        saved, page, lines = (Path(folder) / name for name in ("x.pts", "x.html", "x.json"))
        _samples(Path(sys.executable), "save", str(saved), str(stacks))
        times = plan.of(3) if stacks < MOST else 1
        made = [PYTRACE.run("show", str(saved), "-o", str(page)).processor for _ in range(times)]
        PYTRACE.run("show", str(saved), "-o", str(lines))
        sizes = [path.stat().st_size / 1e6 for path in (page, lines)]
        # Only the environment of tests, which scripts/bench sets up for this row, has what drives a browser.
        python = Path(os.environ.get("PYTRACE_VENV", ROOT / ".venv")) / "bin" / "python"
        if not python.exists():
            raise RunError("what opens reports could not be set up")
        opened = float(_samples(python, "open", str(page)))
    return [
        Line(row.name, row.title, Measure("made", "s"), made),
        Line(row.name, "its size, at most that of the JSON", Measure("size", "MB"), [sizes[0]], limit=sizes[1]),
        Line(row.name, "opened in Chromium", Measure("opened", "s"), [opened], limit=OPENED),
    ]


ROWS = [
    Row("reports.stacks", f"an HTML report of {STACKS:,} stacks", partial(_report, stacks=STACKS)),
    Row("reports.most", f"an HTML report of {MOST:,} stacks", partial(_report, stacks=MOST)),
]
