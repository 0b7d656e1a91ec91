"""Wall time of the kernel's clocks."""

from __future__ import annotations

import os
import time

import pytest

from pytrace.runtime.host import clocks
from pytrace.runtime.host.clocks import Clock


def test_boot_clock_becomes_wall_time() -> None:
    now = Clock().wall(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert abs(now - time.time_ns()) < 50_000_000


@pytest.mark.parametrize("kind", [clocks.TAI, clocks.SOFTWARE_TAI])
def test_atomic_time_becomes_wall_time(kind: int) -> None:
    now = Clock().wall(time.clock_gettime_ns(time.CLOCK_TAI), kind)
    assert abs(now - time.time_ns()) < 50_000_000


def test_ticks_go_on_as_the_monotonic_clock_does() -> None:
    length = clocks.tick()
    assert 900_000 < length < 11_000_000, "HZ is 100 to 1000"
    first, began = clocks.ticks(length), time.monotonic_ns()
    time.sleep(0.3)
    passed = (clocks.ticks(length) - first) * length
    assert abs(passed - (time.monotonic_ns() - began)) < 2 * 10_000_000 + 2 * length


@pytest.mark.parametrize(
    ("hz", "jiffies"), [(100, 30_123), (250, 75_309), (300, 90_370), (1000, 301_239), (1024, 308_468)]
)
def test_units_of_times_become_ticks(hz: int, jiffies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's own arithmetic (jiffies_64_to_clock_t), for each HZ that kernels are built with."""
    length = round(1_000_000_000 / hz)
    units = jiffies * length // 10_000_000
    elapsed = os.times_result((0.0, 0.0, 0.0, 0.0, units / 100))
    monkeypatch.setattr(clocks.os, "times", lambda: elapsed)
    assert 0 <= jiffies - clocks.ticks(length) <= 10_000_000 // length + 1
