"""The table: on the terminal, as a file of ``docs/develop/performance``, as JSON."""

from __future__ import annotations

import datetime
import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benching.rows import Line, Measure
from benching.runs import PYTRACE, ROOT, Tracer

FOLDER = ROOT / "docs" / "develop" / "performance"
HEADINGS = (
    "row", "measured", "unit", "pytrace", "peer", "floor", "ratio, min", "median", "to floor", "noise", "runs", "goal",
    "reached",
)  # fmt: skip
_TEXT = 2
"""Columns of text; the others are numbers."""


def rows_of(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """The cells of the table."""
    return [_cells(line) for line in [*lines, *_means(lines)]]


def _cells(line: Line) -> tuple[str, ...]:
    ratios = line.ratios
    return (
        line.row,
        f"{line.title}: {line.measure.name}{f' (peer: {line.peer})' if line.peer not in ('', 'bpftrace') else ''}",
        line.measure.unit,
        _number(statistics.median(line.ours)),
        _number(statistics.median(line.theirs)) if line.theirs else "",
        _number(statistics.median(line.floors)) if line.floors else "",
        f"{min(ratios):.2f}" if ratios else "",
        f"{statistics.median(ratios):.2f}" if ratios else "",
        f"{line.to_floor:.2f}" if line.to_floor is not None else "",
        _noise(line),
        str(len(line.ours)),
        _goal(line),
        {True: "yes", False: "**no**", None: ""}[line.reached],
    )


def _noise(line: Line) -> str:
    """Of costs of an event the difference, as they may be next to nothing; of others the ratio."""
    if line.measure.unit == "ns":
        return f"{line.apart:.0f} ns" if line.apart is not None else ""
    return f"{line.noise * 100:.0f} %" if line.noise is not None else ""


def _goal(line: Line) -> str:
    if line.limit is not None:
        return f"{'≤' if line.measure.less else '≥'} {_number(line.limit)} {line.measure.unit}"
    goals = [f"≤ {line.measure.goal:g}"] if line.measure.goal is not None else []
    if line.floors and line.measure.floor_goal is not None:
        goals.append(f"floor ≤ {line.measure.floor_goal:g}")
    return ", ".join(goals)


def _number(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 1 else f"{value:.2g}"


def _means(lines: Sequence[Line]) -> list[Line]:
    """The geometric mean of what events add."""
    ratios = [line.ratio for line in lines if line.row.startswith("events.") and line.measure.name == "added"]
    present = [max(ratio, 0.01) for ratio in ratios if ratio is not None]
    if len(present) < 10:
        return []
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in present))
    measure = Measure("ratio", "1", 0.5)
    return [Line("events", "geometric mean of all", measure, [mean], [1.0])]


def table(lines: Sequence[Line]) -> str:
    """The table for a terminal."""
    cells = [HEADINGS, *rows_of(lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < _TEXT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def columns(lines: Sequence[Line], machine: str, notes: Sequence[str]) -> str:
    """The table with tabs between its cells; below it, in rows of one cell, what it was measured on and what failed."""
    known = [f"{line.row}: {line.note}" for line in _first_of_each(lines) if line.note]
    below = [(text.replace("\n", " "), *[""] * (len(HEADINGS) - 1)) for text in (machine, *known, *notes)]
    return "".join("\t".join(row) + "\n" for row in (HEADINGS, *rows_of(lines), *below))


def _first_of_each(lines: Sequence[Line]) -> list[Line]:
    return list({line.row: line for line in reversed(lines)}.values())[::-1]


def machine(peer: Tracer | None) -> str:
    """Date, machine, kernel and versions, in a sentence."""
    models = [line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    model = models[0] if models else os.uname().machine
    versions = f"{PYTRACE.version()} of this source"
    beside = peer.version() if peer else "nothing (there is no other bpftrace)"
    emulated = ", emulated by QEMU" if os.environ.get("PYTRACE_TEST_VM") else ""
    return (
        f"{datetime.date.today():%d %B %Y}, {model}{emulated}, {os.cpu_count()} processors, "
        f"load {os.getloadavg()[0]:.1f}, Linux {os.uname().release}; {versions} beside {beside}."
    ).replace("  ", " ")


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def document(name: str, text: str) -> None:
    """Write a table of the documents."""
    (FOLDER / f"{name}.tsv").write_text(text)


_COMPUTED = ("ratio", "to_floor", "noise", "reached")


def as_json(lines: Sequence[Line], machine_text: str) -> str:
    """All samples."""
    items = [{**asdict(line), **{name: getattr(line, name) for name in _COMPUTED}} for line in lines]
    return json.dumps({"machine": machine_text, "lines": items}, indent=1)


def read(files: Sequence[Path]) -> tuple[list[Line], str]:
    """The lines of files that :func:`as_json` wrote, of a row those of the last file that has it; the last machine."""
    rows: dict[str, list[Line]] = {}
    text = ""
    for file in files:
        data = json.loads(file.read_text())
        text = data["machine"]
        found: dict[str, list[Line]] = {}
        for item in data["lines"]:
            for computed in _COMPUTED:
                del item[computed]
            found.setdefault(item["row"], []).append(Line(**{**item, "measure": Measure(**item["measure"])}))
        rows |= found
    return [line for lines in rows.values() for line in lines], text
