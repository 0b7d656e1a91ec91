"""The heartbeat: when the deadline moves on, and which gaps are noted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.manifest import SessionData
from pytrace.runtime.machine import clocks
from pytrace.runtime.session import heartbeat as module
from pytrace.runtime.session.heartbeat import Heartbeat
from tests.support.patience import patience

PLACES = SessionData("session", 0, 8, 16, 24, 32, 40, 44, 48, 56, 64)
TICK = 4_000_000


class Beating:
    """A heartbeat with a clock of the test: *now* is the tick."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stack: ExitStack, seconds: float, *, embedded: bool) -> None:
        self.now = 1000
        self.memory = bytearray(128)
        monkeypatch.setattr(clocks, "tick_length", lambda: TICK)
        monkeypatch.setattr(clocks, "tick_count", lambda _length: self.now)
        loaded = cast(Any, SimpleNamespace(section=lambda _name: memoryview(self.memory)))
        self.heart = Heartbeat(loaded, PLACES, seconds, stack, embedded=embedded)

    @property
    def deadline(self) -> int:
        return int.from_bytes(self.memory[48:56], "little")


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beating]:
    with ExitStack() as stack:
        yield Beating(monkeypatch, stack, 2.0, embedded=False)


def test_a_beat_moves_the_deadline_on_and_no_other_value(beating: Beating) -> None:
    beating.heart.beat()
    assert beating.deadline == 1000 + 502, "two seconds, and what the clock may be behind"
    assert beating.memory == bytes(48) + beating.deadline.to_bytes(8, "little") + bytes(72)
    assert beating.heart.gaps() == []


def test_attaching_may_take_longer(beating: Beating) -> None:
    beating.heart.attaching()
    assert beating.deadline == 1000 + 502 + int(module.ATTACHING * 250)


def test_a_late_beat_notes_the_gap_from_the_deadline_on(beating: Beating) -> None:
    beating.heart.beat()
    beating.now = beating.deadline
    beating.heart.beat()
    assert beating.heart.gaps() == [], "programs still run at the deadline"
    beating.now = beating.deadline + 250
    before = time.time_ns()
    beating.heart.beat()
    ((start, duration),) = beating.heart.gaps()
    assert duration == 1_000_000_000
    assert start == pytest.approx(before - duration, abs=500_000_000)
    assert beating.heart.gaps() == [], "each is told once"
    assert beating.deadline == beating.now + 502


def test_a_gap_that_nobody_has_noticed_is_over_when_it_is_asked_for(beating: Beating) -> None:
    beating.heart.beat()
    beating.now = beating.deadline + 250
    ((_, duration),) = beating.heart.gaps()
    assert duration == 1_000_000_000
    assert beating.deadline == beating.now + 502


def wait_for(condition: Any) -> bool:
    """Wait until *condition* holds; whether it does in time."""
    end = time.monotonic() + patience(5)
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def test_a_thread_beats_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        beating = Beating(monkeypatch, stack, 0.5, embedded=False)
        beating.heart.begin()
        first = beating.deadline
        beating.now += 1000
        assert wait_for(lambda: beating.deadline > first)
    beating.now += 1000
    last = beating.deadline
    time.sleep(0.3)
    assert beating.deadline == last


@pytest.mark.parametrize(("embedded", "beats"), [(False, False), (True, True)])
def test_a_run_whose_thread_does_not_return_is_stuck(
    embedded: bool, beats: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the run is another program's thread, that may wait for as long as it likes."""
    monkeypatch.setattr(module, "IDLE", 0.2)
    with ExitStack() as stack:
        beating = Beating(monkeypatch, stack, 0.5, embedded=embedded)
        monkeypatch.setattr(module.time, "clock_gettime_ns", lambda _clock: 7)
        beating.heart.begin()
        time.sleep(1.0)
        before = beating.deadline
        beating.now += 1000
        time.sleep(0.5)
        assert (beating.deadline > before) is beats
        monkeypatch.setattr(module.time, "clock_gettime_ns", lambda _clock: 8)
        assert wait_for(lambda: beating.deadline > before)


def test_a_run_that_ends_has_no_thread_and_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detaching may take long, and a map of calls that have begun would keep the one that the thread waits in."""
    with ExitStack() as stack:
        beating = Beating(monkeypatch, stack, 0.5, embedded=False)
        beating.heart.begin()
        beating.heart.stop()
        assert "pytrace-heartbeat" not in {thread.name for thread in threading.enumerate()}
        beating.now += 100_000
        beating.heart.beat()
        assert beating.deadline == module.NEVER
        assert beating.heart.gaps() == []


def test_a_thread_that_cannot_be_started_is_not_waited_for(beating: Beating, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", full)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        beating.heart.begin()
    beating.heart.close()
