"""Times of the kernel's clocks as wall time."""

from __future__ import annotations

import os
import time

BOOT, TAI, SOFTWARE_TAI = 0, 1, 2
"""Clocks of a :class:`pytrace.core.types.Timestamp`."""

_SECOND = 1_000_000_000

_MONOTONIC_COARSE = 6
"""``CLOCK_MONOTONIC_COARSE`` (include/uapi/linux/time.h), which goes on with each tick."""
_TIMES = os.sysconf("SC_CLK_TCK")
"""Units of times(2) in a second, ``USER_HZ``."""
RESOLUTION = 1 / _TIMES
"""Seconds by which :func:`tick_count` may be behind."""


class Clock:
    """Turns clock readings into wall time.

    The distance between the clocks is measured once, so that times of one run never go back against each other.
    """

    def __init__(self) -> None:
        wall, boot = read_both(time.CLOCK_REALTIME, time.CLOCK_BOOTTIME)
        self.boot_offset = wall - boot
        """Nanoseconds to add to the boot clock for wall time."""
        wall, tai = read_both(time.CLOCK_REALTIME, time.CLOCK_TAI)
        # Two readings differ by less than a microsecond; the distance of TAI is whole seconds.
        self.tai_offset = round((wall - tai) / _SECOND) * _SECOND
        """Nanoseconds to add to atomic time for wall time: minus the leap seconds, if the kernel knows them."""

    def wall(self, nanoseconds: int, clock: int = BOOT) -> int:
        """Wall time (nanoseconds since 1970) of a reading of *clock*."""
        return nanoseconds + (self.boot_offset if clock == BOOT else self.tai_offset)


def read_both(first: int, second: int) -> tuple[int, int]:
    """Two clocks read at the same moment: of several tries the one that took least time."""
    best: tuple[int, int, int] | None = None
    for _ in range(5):
        before = time.clock_gettime_ns(second)
        at = time.clock_gettime_ns(first)
        after = time.clock_gettime_ns(second)
        if best is None or after - before < best[0]:
            best = (after - before, at, (before + after) // 2)
    assert best is not None
    return best[1], best[2]


def tick_length() -> int:
    """Nanoseconds between two ticks of the kernel's timer: 1,000,000,000 divided by ``HZ``."""
    return round(time.clock_getres(_MONOTONIC_COARSE) * _SECOND)


def tick_count(length: int) -> int:
    """The kernel's counter of ticks (``jiffies_64``), each *length* nanoseconds; it stands still in suspend.

    times(2) returns the counter itself, in other units (``jiffies_64_to_clock_t``).
    """
    return round(os.times().elapsed * _TIMES) * (_SECOND // _TIMES) // length
