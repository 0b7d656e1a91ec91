"""Times of the kernel's clocks as wall time, and their text."""

from __future__ import annotations

import re
import time
from functools import lru_cache

BOOT, TAI, SOFTWARE_TAI = 0, 1, 2
"""Clocks of a :class:`pytrace.core.types.Timestamp`."""

_SECOND = 1_000_000_000
_FRACTIONS = {"f": (6, 1_000), "k": (9, 1), "l": (3, 1_000_000)}
"""Conversions that ``strftime`` of the C library lacks or means otherwise: digits, and nanoseconds of the last one."""

_CONVERSION = re.compile(r"(?s)%(?:%|[-_0^#+]*[0-9]*[EO]?.)")


class Clock:
    """Turns clock readings into wall time.

    The distance between the clocks is measured once, so that times of one run never go back against each other.
    """

    def __init__(self) -> None:
        wall, boot = together(time.CLOCK_REALTIME, time.CLOCK_BOOTTIME)
        self.boot_offset = wall - boot
        """Nanoseconds to add to the boot clock for wall time."""
        wall, tai = together(time.CLOCK_REALTIME, time.CLOCK_TAI)
        # Two readings differ by less than a microsecond; the distance of TAI is whole seconds.
        self.tai_offset = round((wall - tai) / _SECOND) * _SECOND
        """Nanoseconds to add to atomic time for wall time: minus the leap seconds, if the kernel knows them."""

    def wall(self, nanoseconds: int, clock: int = BOOT) -> int:
        """Wall time (nanoseconds since 1970) of a reading of *clock*."""
        return nanoseconds + (self.boot_offset if clock == BOOT else self.tai_offset)

    def text(self, layout: str, nanoseconds: int, clock: int = BOOT) -> bytes:
        """A clock reading as :func:`strftime` text."""
        return strftime(layout, self.wall(nanoseconds, clock))

    def now(self, layout: str) -> bytes:
        """The time of day as :func:`strftime` text."""
        return strftime(layout, time.time_ns())


def together(first: int, second: int) -> tuple[int, int]:
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


def strftime(layout: str, wall: int) -> bytes:
    """*wall* (nanoseconds since 1970) in local time, by the C library's conversions and three more.

    ``%f`` gives microseconds (6 digits), ``%k`` nanoseconds (9 digits), ``%l`` milliseconds (3 digits).
    """
    second, rest = divmod(wall, _SECOND)
    parts = []
    for text, fraction in _split(layout):
        if fraction:
            digits, unit = _FRACTIONS[fraction]
            parts.append(b"%0*d" % (digits, rest // unit))
        else:
            parts.append(_calendar(text, second))
    return b"".join(parts)


@lru_cache(maxsize=256)
def _split(layout: str) -> tuple[tuple[str, str], ...]:
    """The layout as pieces for the C library and conversions of our own between them."""
    pieces: list[tuple[str, str]] = []
    start = 0
    for found in _CONVERSION.finditer(layout):
        letter = found.group()[1:]
        if letter in _FRACTIONS:
            if found.start() > start:
                pieces.append((layout[start : found.start()], ""))
            pieces.append(("", letter))
            start = found.end()
    if start < len(layout):
        pieces.append((layout[start:], ""))
    return tuple(pieces)


@lru_cache(maxsize=1024)
def _calendar(layout: str, second: int) -> bytes:
    return time.strftime(layout, time.localtime(second)).encode("utf-8", "surrogateescape")
