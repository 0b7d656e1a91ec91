"""Waiting for what other processes do, instead of sleeping for as long as they should need."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

from pytrace.runtime.machine import procfs
from tests.support.patience import PAUSE, patience

SERVED = f"sh {Path(__file__).resolve().parent}/served.sh"
"""Shell command: sends SIGUSR1 to the first of the processes that follow, and waits until all have served it."""


_Result = TypeVar("_Result")


def finished(steps: Generator[None, None, _Result]) -> _Result:
    """The result of work that is done in steps, after all of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Return when *condition* holds.

    Raises:
        AssertionError: it does not within *seconds* (as for :func:`patience`).
    """
    end = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < end, f"{condition} did not come true"
        time.sleep(PAUSE)


def runs(pid: int, program: str) -> bool:
    """Whether a process executes the file of that name: one that was just started may still be on its way there."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == program
    except OSError:
        return False


def sleeps(pid: int, program: str) -> bool:
    """Whether a process executes the file of that name and waits for somebody: it has all its libraries by then."""
    return runs(pid, program) and Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] == b"S"


def taken(pid: int) -> bool:
    """Whether a process has begun to handle all signals that were sent to it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return not any(int(mask, 16) for mask in re.findall(r"^S(?:ig|hd)Pnd:\s*(\w+)", status, re.MULTILINE))


def descendants(pid: int) -> list[int]:
    """A process and all that it and its threads forked, parents first."""
    found = [pid]
    for number in found:
        found += procfs.children(number)
    return found


def open_descriptors() -> list[str]:
    """Descriptors of this process. What earlier tests left to the collector, which may come at any time, is closed."""
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))
