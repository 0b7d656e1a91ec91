"""Fuzzes targets one after the other, each in a process of its own, and sums up (``scripts/fuzz``)."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tests.fuzz import table
from tests.fuzz.corpus import CORPUS

ROOT = Path(__file__).resolve().parent.parent.parent
PLACE = ROOT / ".cache" / "fuzz"

MOST_KEPT = 12 << 10
"""Bytes of the kept corpus of one target, regressions not counted."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a run: *edges* of the control flow that inputs reached, *inputs* that together reach them."""

    name: str
    seconds: float
    executions: int
    edges: int
    inputs: int
    failures: tuple[Path, ...]

    @property
    def row(self) -> str:
        """Its line of the table."""
        failed = f"  {len(self.failures)} FAILED" if self.failures else ""
        return f"{self.name:20}{self.seconds:8.0f}{self.executions:14,}{self.edges:9,}{self.inputs:9,}{failed}"


HEADING = f"{'target':20}{'seconds':>8}{'executions':>14}{'edges':>9}{'inputs':>9}"


def command(name: str, *arguments: str) -> list[str]:
    """The command that runs a target."""
    return [sys.executable, "-m", "tests.fuzz.run", name, str(PLACE / name), *arguments]


def fuzz(name: str, seconds: int) -> Outcome:
    """Fuzz a target for some seconds, or until an input fails."""
    folder = PLACE / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in _failures(folder):
        old.unlink()
    began = time.monotonic()
    done = subprocess.run(command(name, str(seconds)), cwd=ROOT, capture_output=True, check=False)
    log = (done.stdout + done.stderr).decode(errors="replace")
    (folder / "log").write_text(log)
    failures = _failures(folder)
    if done.returncode and not failures:
        raise SystemExit(f"{name}: the fuzzer itself failed\n{log[-3000:]}")
    executions = _last(log, r"stat::number_of_executed_units:\s*(\d+)")
    inputs = len(list((folder / "corpus").iterdir()))
    return Outcome(name, time.monotonic() - began, executions, _last(log, r" cov: (\d+)"), inputs, failures)


def _failures(folder: Path) -> tuple[Path, ...]:
    kinds = ("crash-*", "timeout-*", "oom-*", "leak-*")
    return tuple(sorted(path for kind in kinds for path in folder.glob(kind)))


def _last(log: str, pattern: str) -> int:
    found = re.findall(pattern, log)
    return int(found[-1]) if found else 0


def keep(name: str) -> int:
    """Add collected inputs to the kept corpus, as small ones as reach something new. Returns how many."""
    kept, merged = CORPUS / name, PLACE / name / "merged"
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    kept.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command(name, "merge"), str(kept)], cwd=ROOT, capture_output=True, check=False)
    sizes = sorted((path.stat().st_size, path) for path in merged.iterdir())
    known = {path.read_bytes() for path in kept.iterdir()}
    room = MOST_KEPT - sum(map(len, known))
    added = 0
    for size, path in sizes:
        if size <= room and path.read_bytes() not in known:
            shutil.copy(path, kept / path.name[:12])
            room -= size
            added += 1
    if not any(kept.iterdir()):
        kept.rmdir()
    return added


def main() -> int:
    """Run the targets that the command line names."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, metavar="N")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("".join(f"{name:20}{table.find(name).subject}\n" for name in table.NAMES), end="")
        return 0
    unknown = [name for name in options.targets if name not in table.NAMES]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; --list names them")
    print(HEADING, flush=True)
    failed = []
    for name in options.targets or table.NAMES:
        outcome = fuzz(name, options.seconds)
        print(outcome.row, flush=True)
        failed += [(name, path) for path in outcome.failures]
        if options.keep:
            print(f"{'':20}{keep(name)} inputs added to the kept corpus", flush=True)
    for name, path in failed:
        print(f"\n{name} fails: {shlex.join([sys.executable, '-m', 'tests.fuzz.show', name, str(path)])}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
