"""One workload traced by several tracers at the same time, whose lines are then compared."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.patience import patience


class Tracer:
    """One run of a script, with ``-v``; it is attached when this is made."""

    def __init__(self, output: Path, script: str, *options: str) -> None:
        self.output = output
        command = [sys.executable, "-m", "pytrace", "-v", "-o", str(output), *options, "-e", script]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.messages = ""
        """What it said until it was attached."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.messages += line
            if line.startswith("Attached"):
                return
        pytest.fail(self.messages)

    def lines(self) -> list[str]:
        """What was printed, when the run has ended; nothing may have been lost."""
        _, rest = self.process.communicate(timeout=patience(60))
        assert self.process.returncode == 0, rest
        # Those of other processes, which start while this one waits for a processor, are none of ours.
        assert "lost" not in rest, rest
        return [line for line in self.output.read_text().splitlines() if line]


def of_one_program(
    folder: Path, scripts: Mapping[str, str], command: Sequence[object]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Trace a program of ``tests/programs``, which waits for a byte, and what it forks, by each of *scripts*.

    Returns:
        the messages and the lines of each script, by its name.
    """
    traced = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE)
    tracers: dict[str, Tracer] = {}
    try:
        for name, script in scripts.items():
            tracers[name] = Tracer(folder / name, script, "-p", str(traced.pid), "--follow")
        traced.communicate(b"x", timeout=patience(30))
        assert traced.returncode == 0
        lines = {name: tracer.lines() for name, tracer in tracers.items()}
    finally:
        end([traced, *(tracer.process for tracer in tracers.values())])
    return {name: tracer.messages for name, tracer in tracers.items()}, lines


def end(processes: Iterable[subprocess.Popen[bytes] | subprocess.Popen[str]]) -> None:
    """Kill those that still run."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def grouped(lines: Iterable[str], words: int) -> dict[str, list[str]]:
    """Lines by their first *words* words, in order."""
    found = defaultdict(list)
    for line in lines:
        found[" ".join(line.split(maxsplit=words)[:words])].append(line)
    return found
