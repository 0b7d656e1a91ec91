"""The command line of ``scripts/bench``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benching import report
from benching.rows import Line, Plan, Row
from benching.runs import RunError, bpftrace
from benching.subjects import (
    attach,
    compiling,
    events,
    flood,
    kinds,
    lists,
    live,
    maps,
    others,
    reports,
    scale,
    stacks,
    starts,
    symbols,
)

SUBJECTS = (events, stacks, kinds, starts, flood, maps, attach, lists, symbols, compiling, reports, live, scale, others)
ROWS: list[Row] = [row for subject in SUBJECTS for row in subject.ROWS]


def arguments() -> argparse.Namespace:
    """What the command line says."""
    options = argparse.ArgumentParser(prog="scripts/bench", description="Measure pytrace beside bpftrace.")
    options.add_argument("--only", nargs="+", metavar="ROW", default=[], help="rows, or the first parts of their names")
    options.add_argument("--runs", type=int, metavar="N", help="pairs of runs of each row (7); long rows take fewer")
    options.add_argument("--quick", action="store_true", help="two runs of each, without the rows that take minutes")
    options.add_argument("--no-noise", action="store_true", help="do not run pytrace a second time in each pair")
    options.add_argument("--peer", metavar="COMMAND", help="another bpftrace than that of scripts/peer")
    options.add_argument("--list", action="store_true", help="names and titles of the rows")
    options.add_argument("-o", "--output", type=Path, metavar="FILE", help="write all samples to FILE as JSON")
    options.add_argument("--document", metavar="NAME", help="write the table to docs/develop/performance/NAME.tsv")
    options.add_argument(
        "--from", dest="files", nargs="+", type=Path, metavar="FILE", help="do not measure: report what -o wrote"
    )
    options.add_argument("--plots", type=Path, metavar="FOLDER", help="write the plots of the rows scale.* to FOLDER")
    options.add_argument("--in-vm", action="store_true", help=argparse.SUPPRESS)
    return options.parse_args()


def chosen(options: argparse.Namespace) -> list[Row]:
    """The rows that are asked for; without a choice, all that this machine can."""
    rows = [row for row in ROWS if row.vm == options.in_vm]
    if options.only:
        unknown = [word for word in options.only if not any(row.matches(word) for row in ROWS)]
        if unknown:
            subjects = sorted({row.name.partition(".")[0] for row in ROWS})
            raise SystemExit(f"no row named {', '.join(unknown)}; there are {', '.join(subjects)} (--list shows all)")
        return [row for row in rows if any(row.matches(word) for word in options.only)]
    return [row for row in rows if not (options.quick and row.slow)]


def measured(rows: list[Row], plan: Plan, keep: Callable[[list[Line]], object]) -> tuple[list[Line], list[str]]:
    """The lines of all rows, and what failed; *keep* is called with what there is after each row."""
    lines: list[Line] = []
    failures: list[str] = []
    for number, row in enumerate(rows, 1):
        start = time.monotonic()
        try:
            taken = row.measure(row, plan)
        except RunError as error:
            failures.append(f"{row.name} failed: {error}")
            print(failures[-1], file=sys.stderr)
            continue
        lines += taken
        keep(lines)
        ratios = ", ".join(f"{line.measure.name} {line.ratio:.2f}" for line in taken if line.ratio is not None)
        print(f"{number}/{len(rows)} {row.name}: {ratios} ({time.monotonic() - start:.0f} s)", file=sys.stderr)
    return lines, failures


def main() -> int:
    """Measure, print the table."""
    options = arguments()
    if options.list:
        for row in ROWS:
            print(f"{row.name:28} {row.title}{' (in the test machine)' if row.vm else ''}")
        return 0
    if options.files:
        lines, text = report.read(options.files)
        order = {row.name: number for number, row in enumerate(ROWS)}
        lines.sort(key=lambda line: order.get(line.row, len(order)))
        return told(options, lines, text, [])
    plan = Plan(
        runs=options.runs or (2 if options.quick else 7),
        peer=bpftrace(options.peer) if options.peer else None,
        quick=options.quick,
        noise=not options.no_noise,
    )
    rows = chosen(options)
    text = report.machine(plan.peer)
    print(text)

    def keep(lines: list[Line]) -> None:
        if options.output:
            options.output.write_text(report.as_json(lines, text))

    lines, failures = measured(rows, plan, keep)
    return told(options, lines, text, failures)


def told(options: argparse.Namespace, lines: list[Line], text: str, failures: list[str]) -> int:
    """Print the table, and write what the options ask for."""
    print(report.table(lines))
    print("ratio: pytrace / peer, of pairs of runs; to floor: pytrace / floor, median; noise: two runs of pytrace")
    for failure in failures:
        print(failure)
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
        for plot in scale.KEPT.values():
            plot.write(options.plots)
    if options.document:
        report.document(options.document, report.columns(lines, text, failures))
    return 1 if failures else 0


sys.exit(main())
