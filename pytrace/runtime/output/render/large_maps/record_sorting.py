"""Sorts records that come in blocks: short ones in one piece of memory, long ones without the zeros at their ends."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pytrace.base.fast_typing import Protocol
from pytrace.runtime.abi import sorting

ROWS = 1024
"""Records of one block of the result."""
_SHORT = 32
"""Longer records sort faster as objects: only their references move."""


class RecordSorter(Protocol):
    """Takes records, and gives them back in order."""

    def add(self, records: bytearray) -> None:
        """Take records that lie one after another."""

    def blocks(self) -> Iterator[bytearray]:
        """All records in order, some at a time, one after another."""


def sorter(size: int, *, top: int = 0, descending: bool = False) -> RecordSorter:
    """What sorts records of *size* bytes; of all only the last *top* of the order are wanted unless that is 0."""
    if top:
        return _LastRecords(size, top, descending)
    if size <= _SHORT and sorting.available():
        return _ShortRecords(size, descending)
    return _LongRecords(size, descending)


class _ShortRecords:
    def __init__(self, size: int, descending: bool) -> None:
        self._size = size
        self._descending = descending
        self._all = bytearray()

    def add(self, records: bytearray) -> None:
        self._all += records

    def blocks(self) -> Iterator[bytearray]:
        data, size = self._all, self._size
        sorting.sort_records(data, size)
        step = ROWS * size
        if not self._descending:
            for start in range(0, len(data), step):
                yield data[start : start + step]
            return
        for end in range(len(data), 0, -step):
            split = struct.iter_unpack(f"{size}s", data[max(0, end - step) : end])
            yield bytearray().join([record for (record,) in reversed(list(split))])


class _LongRecords:
    def __init__(self, size: int, descending: bool) -> None:
        self._size = size
        self._split = struct.Struct(f"{size}s").iter_unpack
        self._descending = descending
        self._all: list[bytes] = []

    def add(self, records: bytearray) -> None:
        # Without the zeros at their ends they compare as with them.
        self._all += [record.rstrip(b"\0") for (record,) in self._split(records)]

    def blocks(self) -> Iterator[bytearray]:
        self._all.sort(reverse=self._descending)
        for start in range(0, len(self._all), ROWS):
            yield whole(self._all[start : start + ROWS], self._size)


class _LastRecords:
    def __init__(self, size: int, top: int, descending: bool) -> None:
        self._size = size
        self._split = struct.Struct(f"{size}s").iter_unpack
        self._top = top
        self._descending = descending
        self._best: list[bytes] = []

    def add(self, records: bytearray) -> None:
        split = self._split(records)
        if len(self._best) < self._top:
            found = [record for (record,) in split]
        elif self._descending:
            bound = self._best[0]
            found = [record for (record,) in split if record < bound]
        else:
            bound = self._best[0]
            found = [record for (record,) in split if record > bound]
        if found:
            self._best = sorted(self._best + found, reverse=self._descending)[-self._top :]

    def blocks(self) -> Iterator[bytearray]:
        for start in range(0, len(self._best), ROWS):
            yield bytearray().join(self._best[start : start + ROWS])


def whole(trimmed: list[bytes], size: int) -> bytearray:
    """Records of *size* bytes again, one after another."""
    return bytearray().join([record.ljust(size, b"\0") for record in trimmed])
