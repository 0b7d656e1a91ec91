"""Wall time of the kernel's clocks."""

from __future__ import annotations

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
