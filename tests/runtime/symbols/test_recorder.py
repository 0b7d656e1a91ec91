"""pytrace.runtime.symbols.recorder: what rings of several processors report is taken in the order of events."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest

from pytrace.runtime.abi import perf
from pytrace.runtime.symbols import recorder
from pytrace.runtime.symbols.recorder import MappingRecorder

PARENT, CHILD = 1 << 28, (1 << 28) + 1
"""Numbers that no process of this machine has."""
MMAP2, FORK, EXIT = 10, 7, 4
Record = tuple[int, int, int, bytes]


def mapped(when: int, pid: int, start: int) -> Record:
    body = struct.pack("=IIQQQIIQQII", pid, pid, start, 0x1000, 0, 8, 1, 99, 0, 5, 2) + b"/bin/program\0"
    return when, MMAP2, 0, body


def forked(when: int, pid: int, parent: int) -> Record:
    return when, FORK, 0, struct.pack("=IIII", pid, parent, pid, parent)


def exited(when: int, pid: int) -> Record:
    return when, EXIT, 0, struct.pack("=IIII", pid, 1, pid, 1)


class Rings:
    """What the rings of two processors hold at each reading, in place of those of the kernel, and the time of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.held: list[list[Record]] = [[], []]
        self._read = 0

        def records(_ring: mmap.mmap) -> Iterator[Record]:
            at, self._read = self._read % 2, self._read + 1
            taken, self.held[at] = self.held[at], []
            yield from taken

        monkeypatch.setattr(recorder, "_records", records)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now)


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> Rings:
    return Rings(monkeypatch)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[MappingRecorder]:
    if os.geteuid():
        pytest.skip("the mappings of all processes are for root")
    first = perf.online_cpus()[0]
    monkeypatch.setattr(perf, "online_cpus", lambda: [first, first])
    found = MappingRecorder([])
    yield found
    found.close()


def test_a_child_that_runs_before_its_fork_is_read(made: MappingRecorder, rings: Rings) -> None:
    """The first ring was read, then the process was forked there and ran and ended where the second one is read."""
    rings.now, rings.held = 10, [[mapped(5, PARENT, 0x1000)], []]
    made.drain()
    rings.now, rings.held = 20, [[], [mapped(22, CHILD, 0x8000), exited(23, CHILD)]]
    made.drain()
    assert CHILD not in made.spaces
    rings.now, rings.held = 30, [[forked(21, CHILD, PARENT)], []]
    made.drain()
    child = made.spaces[CHILD]
    assert child.ended, "else it would be kept for ever"
    assert [row.start for row in (child.find(0x1000), child.find(0x8000)) if row] == [0x1000, 0x8000]


def test_records_wait_once(made: MappingRecorder, rings: Rings) -> None:
    """In a time namespace our clock may be far behind that of the records."""
    rings.now, rings.held = 10, [[], [mapped(5000, PARENT, 0x1000)]]
    made.drain()
    rings.now = 20
    made.drain()
    assert PARENT in made.spaces


@pytest.mark.skipif(os.geteuid() != 0, reason="the mappings of all processes are for root")
def test_the_clock_of_records_is_ours() -> None:
    """No record is newer than the moment at which it is read."""
    made = MappingRecorder([])
    before = time.monotonic_ns()
    subprocess.run(["true"], check=True)
    times = [when for _, ring in made._rings for when, *_ in recorder._records(ring)]
    made.close()
    assert before <= max(times) <= time.monotonic_ns()
