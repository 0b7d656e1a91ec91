"""Histograms as lines of a heat map: buckets from left to right, a colour or sign for each count."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.render.histogram import Shape

LEVELS = 9
_SIGNS = " .:-=+*#%@"
"""Signs of the levels, for terminals without colour, files and pipes."""
_COLOURS = (0, 53, 54, 90, 126, 161, 197, 203, 209, 220)
"""Colours of the levels, of the palette of 256: from dark to bright."""
_WIDEST = 4
"""Columns of a bucket, at most."""
_TIME, _TOTAL = 9, 11
"""Columns before and after the cells."""


def level(count: int) -> int:
    """0 for no value, 1 for 1 to 3, 2 for 4 to 15, and so on by powers of four up to :data:`LEVELS`."""
    return min(LEVELS, (count.bit_length() + 1) // 2)


class Scale(msgspec.Struct, frozen=True):
    """The cells of a line: *group* buckets from *first* on in each of the *cells*, which are *width* columns wide."""

    first: int
    group: int
    cells: int
    width: int

    def covers(self, low: int, high: int) -> bool:
        """Whether the buckets *low* to *high* have cells."""
        return self.first <= low and high < self.end

    @property
    def end(self) -> int:
        """The bucket after the last one."""
        return self.first + self.group * self.cells

    def sums(self, counts: Sequence[int]) -> list[int]:
        """The values in each cell."""
        return [sum(counts[start : start + self.group]) for start in range(self.first, self.end, self.group)]


def scale(low: int, high: int, columns: int) -> Scale:
    """The scale of the buckets *low* to *high* on a terminal of *columns*."""
    room = max(8, columns - _TIME - _TOTAL)
    buckets = high - low + 1
    group = -(-buckets // room)
    cells = -(-buckets // group)
    return Scale(low, group, cells, min(_WIDEST, room // cells))


def heading(title: bytes, shape: Shape, scale: Scale, *, colour: bool) -> bytes:
    """Two lines: what the colours mean, and the lower bounds of cells, each where its cell begins."""
    meanings = [_cell(number, 1, colour=colour) + _least(number) for number in range(1, LEVELS + 1)]
    bounds = b""
    for cell in range(scale.cells):
        bucket, column = scale.first + cell * scale.group, cell * scale.width
        label = f"|{shape.label(bucket - 1)}" if bucket else f"|<{shape.label(0)}"
        if column >= len(bounds) + bool(bounds):
            bounds = bounds.ljust(column) + label.encode()
    end = _TIME + scale.cells * scale.width + _TOTAL
    ruler = b"TIME".ljust(_TIME) + bounds
    total = b" TOTAL".rjust(end - len(ruler))
    return b"%s: %s\n%s%s\n" % (title, b" ".join(meanings), ruler, total)


def _least(number: int) -> bytes:
    """The least count of a level."""
    least = 4 ** (number - 1)
    return b"%dK" % (least >> 10) if least >= 1 << 10 else b"%d" % least


def line(time: bytes, scale: Scale, counts: Sequence[int], *, colour: bool) -> bytes:
    """The line of an interval: its time, the cells, and how many values it has."""
    cells = b"".join([_cell(level(count), scale.width, colour=colour) for count in scale.sums(counts)])
    return b"%s%s%s\n" % (time.ljust(_TIME), cells, str(sum(counts)).encode().rjust(_TOTAL))


def _cell(number: int, width: int, *, colour: bool) -> bytes:
    if not colour:
        return _SIGNS[number].encode() * width
    return b"\x1b[48;5;%dm%s\x1b[0m" % (_COLOURS[number], b" " * width) if number else b" " * width
