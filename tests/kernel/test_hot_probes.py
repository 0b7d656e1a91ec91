"""The question before probes that are hit very often, at a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import patience

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLS = 100
SCRIPT = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ { @ = count(); }"
"""Number 110 is getppid on x86-64; the trial counts the calls of all processes."""
QUESTION = re.compile(r"1 probe \(all system calls\): [\d,]+ hits per second in a trial of .*, which cost about \d+%")


@pytest.fixture
def busy(no_leaks: None) -> Iterator[None]:
    """A process that makes very many system calls."""
    process = subprocess.Popen(
        ["timeout", "60", "dd", "if=/dev/zero", "of=/dev/null", "bs=1"], stderr=subprocess.DEVNULL
    )
    yield
    process.terminate()
    process.wait()


def at_terminal(programs: Path, answer: str, *words: str) -> tuple[int, str, str]:
    """Run pytrace with a terminal as standard input and error. Returns status, output, and what the terminal shows."""
    leader, follower = pty.openpty()
    argv = [sys.executable, "-m", "pytrace", *words, "-e", SCRIPT, "-c", f"{programs}/flood {CALLS}"]
    tracer = subprocess.Popen(argv, stdin=follower, stdout=subprocess.PIPE, stderr=follower, text=True)
    os.close(follower)
    shown, end = b"", time.monotonic() + patience(60)
    while time.monotonic() < end:
        try:
            data = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        shown += data
        if b"[y/N] " in shown and answer:
            os.write(leader, answer.encode())
            answer = ""
    output, _ = tracer.communicate(timeout=patience(20))
    os.close(leader)
    return tracer.returncode, output, shown.decode()


@pytest.mark.usefixtures("busy")
def test_yes_traces_and_nothing_of_the_trial_is_in_the_results(programs: Path) -> None:
    status, output, shown = at_terminal(programs, "y\n")
    assert QUESTION.search(shown), shown
    assert (status, output.splitlines()[-1]) == (0, f"@: {CALLS}")


@pytest.mark.usefixtures("busy")
def test_no_traces_nothing(programs: Path) -> None:
    status, output, shown = at_terminal(programs, "n\n")
    assert QUESTION.search(shown), shown
    assert (status, output) == (1, "")
    assert "nothing was traced" in shown
    assert "Attached" not in shown


@pytest.mark.usefixtures("busy")
def test_yes_on_the_command_line(programs: Path) -> None:
    status, output, shown = at_terminal(programs, "", "--yes")
    assert "Trace them" not in shown
    assert (status, output.splitlines()[-1]) == (0, f"@: {CALLS}")


@pytest.mark.usefixtures("busy")
def test_without_a_terminal_there_is_no_question(programs: Path) -> None:
    """Scripts and services run as they do with bpftrace."""
    argv = [sys.executable, "-m", "pytrace", "-e", SCRIPT, "-c", f"{programs}/flood {CALLS}"]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(60), check=True
    )
    assert done.stdout.splitlines()[-1] == f"@: {CALLS}"
    assert done.stderr == "Attached 1 probe\n"
