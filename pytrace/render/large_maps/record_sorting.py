"""Sorts records that come in blocks: short ones in one piece of memory, long ones without the zeros at their ends."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.render.large_maps.record_form import Records

ROWS = 1024
"""Records of one block of the result."""
_SHORT = 32
"""Longer records sort faster as objects: only their references move."""


Sort = Callable[[bytearray, int], None]
"""Sorts records of a size in place, by their bytes."""


class RecordSorter(Protocol):
    """Sorts records."""

    whole: bool
    """Records must have their whole size."""

    def add(self, records: Records) -> None:
        """Take some records."""

    def blocks(self) -> Iterator[Records]:
        """All records in order, some at a time."""


def sorter(size: int, sort: Sort | None, *, top: int = 0, descending: bool = False) -> RecordSorter:
    """A sorter of records of *size* bytes; of all only the last *top* of the order are returned unless that is 0.

    *sort* sorts short ones in place, where the machine has such a function.
    """
    if top:
        return _LastRecords(top, descending)
    if size <= _SHORT and sort is not None:
        return _ShortRecords(size, sort, descending)
    return _LongRecords(descending)


class _ShortRecords:
    whole = True

    def __init__(self, size: int, sort: Sort, descending: bool) -> None:
        self._size = size
        self._sort = sort
        self._descending = descending
        self._all = bytearray()

    def add(self, records: Records) -> None:
        self._all += records[0]

    def blocks(self) -> Iterator[Records]:
        data, size = self._all, self._size
        self._sort(data, size)
        step = ROWS * size
        if not self._descending:
            for start in range(0, len(data), step):
                yield data[start : start + step], size
            return
        for end in range(len(data), 0, -step):
            yield bytearray().join(reversed(_split(data[max(0, end - step) : end], size))), size


class _LongRecords:
    whole = False

    def __init__(self, descending: bool) -> None:
        self._descending = descending
        self._all: list[bytes] = []

    def add(self, records: Records) -> None:
        # Without the zeros at their ends they compare as with them.
        self._all += [record.rstrip(b"\0") for record in _split(*records)]

    def blocks(self) -> Iterator[Records]:
        self._all.sort(reverse=self._descending)
        for start in range(0, len(self._all), ROWS):
            yield padded(self._all[start : start + ROWS])


class _LastRecords:
    whole = False

    def __init__(self, top: int, descending: bool) -> None:
        self._top = top
        self._descending = descending
        self._best: list[bytes] = []

    def add(self, records: Records) -> None:
        items = [record.rstrip(b"\0") for record in _split(*records)]
        if len(self._best) == self._top:
            bound = self._best[0]
            items = [item for item in items if (item < bound if self._descending else item > bound)]
        if items:
            self._best = sorted(self._best + items, reverse=self._descending)[-self._top :]

    def blocks(self) -> Iterator[Records]:
        for start in range(0, len(self._best), ROWS):
            yield padded(self._best[start : start + ROWS])


def _split(data: bytearray, size: int) -> list[bytes]:
    return [record for (record,) in struct.iter_unpack(f"{size}s", data)]


def padded(trimmed: list[bytes]) -> Records:
    """Records of different sizes with zeros at their ends."""
    size = (max(map(len, trimmed), default=1) + 7) & ~7 or 8
    return bytearray().join([record.ljust(size, b"\0") for record in trimmed]), size
