"""What ends a run: all processes have ended, the program of --exec-wait has, or the time is over."""

from __future__ import annotations

import os
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import SessionData
from pytrace.core.options.process_filters import NOT_YET, ProcessFilters
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.session.services import run_end
from pytrace.runtime.session.services.run_end import LOOK_EVERY, RunEnd

PLACES = SessionData("session", 0, 8, 16, 24, 32, 40, 44, 48, 56, 64)


class Loop:
    """The descriptors that are watched."""

    def __init__(self) -> None:
        self.watched: list[int] = []
        self.watch, self.unwatch = self.watched.append, self.watched.remove


@contextmanager
def ending(options: RunOptions, memory: bytearray | None = None) -> Iterator[tuple[RunEnd, Loop]]:
    loaded = SimpleNamespace(manifest=SimpleNamespace(session=PLACES), section=lambda _: memory)
    with ExitStack() as stack:
        loop = Loop()
        made = RunEnd(options, (), cast(Any, loaded), cast(Any, loop), stack)
        made.begin()
        for descriptor in made.descriptors:
            loop.watch(descriptor)
        yield made, loop


def reached(made: RunEnd, *ready: int) -> bool:
    """Whether the run is over when *ready* descriptors can be read."""
    made.woken(list(ready))
    return made.over


def test_the_last_process_ends_the_run() -> None:
    options = RunOptions(filters=ProcessFilters((os.getpid(), os.getppid())))
    with ending(options) as (made, loop):
        first, second = loop.watched
        assert not reached(made)
        assert not reached(made, first)
        assert loop.watched == [second]
        assert reached(made, second)


def test_there_is_no_such_process() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    options = RunOptions(filters=ProcessFilters((process.pid,)))
    with pytest.raises(TraceError, match=f"there is no process {process.pid}"), ending(options):
        pass


def test_a_thread_is_no_process() -> None:
    numbers: list[int] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: (numbers.append(threading.get_native_id()), stop.wait(60)))
    thread.start()
    try:
        while not numbers:
            time.sleep(0.001)
        message = f"{numbers[0]} is a thread of process {os.getpid()}, and -p takes a process"
        options = RunOptions(filters=ProcessFilters((numbers[0],)))
        with pytest.raises(TraceError, match=message) as found, ending(options):
            pass
    finally:
        stop.set()
        thread.join()
    assert found.value.hints[0].startswith(f"-p {os.getpid()} traces its process")


def test_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(run_end.time, "monotonic", lambda: now)
    with ending(RunOptions(duration=2.5)) as (made, _):
        assert (made.pause(1.0), reached(made)) == (1.0, False)
        now = 102.0
        assert (made.pause(1.0), reached(made)) == (0.5, False)
        now = 102.5
        assert (made.pause(1.0), reached(made)) == (0.0, True)


def test_the_program_that_is_awaited() -> None:
    memory = bytearray(128)
    struct.pack_into("=Q", memory, PLACES.root, NOT_YET)
    with ending(RunOptions(filters=ProcessFilters(exec_wait="x")), memory) as (made, loop):
        assert (made.pause(1.0), reached(made), loop.watched) == (LOOK_EVERY, False, [])
        struct.pack_into("=Q", memory, PLACES.root, os.getpid())
        assert not reached(made)
        assert made.pause(1.0) == 1.0
        (descriptor,) = loop.watched
        assert reached(made, descriptor)


def test_the_program_that_is_awaited_has_ended_already() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    memory = bytearray(128)
    struct.pack_into("=Q", memory, PLACES.root, process.pid)
    with ending(RunOptions(filters=ProcessFilters(exec_wait="true")), memory) as (made, _):
        assert reached(made)
