"""Work for processors: hogs, sleepers, threads that wait for each other. Programs are those of ``tests/programs``."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import LONGEST, patience
from tests.support.waiting import until

MANY = 40
"""Sleeps of which a tool has to find 95 %.

A kernel may hide threads of its host from tracing: where one of these gives its processor to a traced thread, no
``sched_switch`` tells that the sleep is over. Of a few sleeps one such would be too many.
"""


@dataclass(frozen=True)
class Measured:
    """A program that has ended: its number, and what it measured itself."""

    pid: int
    nanoseconds: int = 0
    times: int = 0
    address: int = 0


def run(program: Path, *arguments: object) -> tuple[int, list[str]]:
    """Run a program to its end; its number and the words it printed."""
    words = [str(program), *map(str, arguments)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate(timeout=patience(60))
    assert process.returncode == 0, f"{words} ended with {process.returncode}"
    return process.pid, out.split()


def naps(programs: Path, times: int = 5, milliseconds: int = 20) -> Measured:
    """A process that sleeps in ``nap``; ``nanoseconds`` is how long it was away, measured around each sleep."""
    pid, (passed,) = run(programs / "naps", times, milliseconds)
    return Measured(pid, int(passed), times)


def contention(programs: Path, times: int = 5, milliseconds: int = 20) -> Measured:
    """A thread that waits for a mutex in ``contend``; ``nanoseconds`` is how long it waited, ``address`` the mutex."""
    pid, (address, waited) = run(programs / "contends", times, milliseconds)
    return Measured(pid, int(waited), times, int(address, 16))


@dataclass(frozen=True)
class Woken:
    """Two threads, one of which woke the other."""

    waker: int
    sleeper: int
    times: int


def wakes(programs: Path, times: int = 10) -> Woken:
    """Thread ``waker`` of program ``wakes`` wakes thread ``sleeper``, and is woken by its answer."""
    _, (waker, sleeper) = run(programs / "wakes", times)
    return Woken(int(waker), int(sleeper), times)


@contextmanager
def hogs(programs: Path, count: int, processor: int | None = None) -> Iterator[list[int]]:
    """Processes that compute while :func:`computing` lets them, all on one processor (the last that may be used).

    With two or more each has to wait for the others. Yields their numbers.
    """
    place = max(os.sched_getaffinity(0)) if processor is None else processor
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            # Its own limit of processor time ends it should the test be killed.
            process = subprocess.Popen(
                ["sh", "-c", f'ulimit -t {int(LONGEST)}; exec "$0" 2000000000', str(programs / "busy")],
                stdout=subprocess.DEVNULL,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {place})
            started.append(process.pid)
        until(lambda: all(_processor_time(pid) > 0 for pid in started))
        with computing(started):
            pass
        yield started


@contextmanager
def computing(pids: list[int]) -> Iterator[None]:
    """Let processes of :func:`hogs` compute meanwhile: not as well while a tool is compiled for them."""
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)


def _processor_time(pid: int) -> int:
    """Ticks in user mode, once the program runs."""
    if not os.readlink(f"/proc/{pid}/exe").endswith("/busy"):
        return 0
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])
