"""Rows of several columns as records that compare as bytes, and back.

Numbers are stored with the most significant byte first and signed ones with the sign inverted; text stays. What
compares by several parts has them one after another. Each part of a row is in exactly one place of its record, so
:meth:`RecordForm.rows` is the inverse of :meth:`RecordForm.records`, except for what memory has after the end of a
string.

All is done for many rows at once, by columns: slices with a step, which arrays and byte strings copy in C. Columns
that are zero in all rows are left out: the ends of short texts and stacks.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from pytrace.render.value_kind import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Literal



_CODES: Mapping[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_INVERT_SIGN = bytes(code ^ 0x80 for code in range(256))
_SWAPS = sys.byteorder == "little"

Records = tuple[bytearray, int]
"""Records one after another, and how many bytes each takes: a form's size, or less if the rest is zero in all."""


class _Unit(msgspec.Struct, frozen=True):
    """A part that is copied at once: *size* bytes of all rows.

    They are in column *source* from *start* on, at *place* of the record and at *row* of the row that comes back. In a
    string *after* is the index of the unit after it, otherwise 0.
    """

    source: int
    start: int
    size: int
    place: int
    row: int
    swap: bool
    invert: bool
    after: int = 0


class _Stack(msgspec.Struct, frozen=True):
    """A stack: at *place* process and error, then 16 bytes for each frame: 1 if there is one, and its address.

    So a stack comes before those that go on where it ends, and takes no room for frames that it does not have.
    """

    source: int
    start: int
    limit: int
    place: int
    row: int


class RecordForm:
    """Conversion of rows of several columns to records.

    Args:
        sizes: bytes of a row in each column.
        order: the pieces (column, piece) that decide the order; those that are left out follow.
    """

    def __init__(self, sizes: Sequence[int], order: Sequence[tuple[int, Piece]]) -> None:
        self._sizes = list(sizes)
        self.starts: list[int] = []
        """Where each column starts in a row that comes back."""
        end = 0
        for size in sizes:
            self.starts.append(end)
            end += (size + 7) & ~7
        self.row_size = end
        self._units: list[_Unit] = []
        self._stacks: list[_Stack] = []
        self._place = 0
        for source, piece in [*order, *_rest(self._sizes, order)]:
            self._put(source, piece)
        self.size = (self._place + 7) & ~7
        """Bytes of a whole record."""

    def _put(self, source: int, piece: Piece) -> None:
        row = self.starts[source] + piece.start
        if piece.frames:
            place = (self._place + 7) & ~7
            self._stacks.append(_Stack(source, piece.start, piece.frames, place, row))
            self._place = place + 8 + 16 * (piece.frames + 1)
            return
        swap = piece.number and _SWAPS
        for size in (8, 4, 2, 1):
            if not (piece.start | self._sizes[source] | piece.size) & (size - 1) and (not swap or size == piece.size):
                break
        place = -(-self._place // size) * size
        self._place = place + piece.size
        whole = size == piece.size
        after = len(self._units) + piece.size // size if piece.ends else 0
        for offset in range(0, piece.size, size):
            # A number that is not aligned is copied byte by byte.
            goal = place + (piece.size - 1 - offset if swap and not whole else offset)
            first = goal == place and piece.signed
            unit = _Unit(source, piece.start + offset, size, goal, row + offset, swap and whole, first, after)
            self._units.append(unit)

    def records(self, columns: Sequence[bytes], count: int, *, whole: bool = False) -> Records:
        """The records of *count* rows; *columns* are the rows of each column. *whole* ones have the form's size."""
        units = self._unit_columns(columns)
        for stack in self._stacks:
            units += self._stack_columns(stack, columns[stack.source])
        size = self.size if whole else (max((place + size for place, size, _ in units), default=1) + 7) & ~7
        records = bytearray(count * size)
        for place, width, data in units:
            _write(records, size, place, width, data)
        return records, size

    def _unit_columns(self, columns: Sequence[bytes]) -> list[tuple[int, int, bytes]]:
        """Place, size and bytes of the units that are not zero in all rows."""
        used, index = [], 0
        while index < len(self._units):
            unit = self._units[index]
            data = self._column(unit, columns)
            if data:
                used.append((unit.place, unit.size, data))
            # Where all rows of a string have a zero, all of them have ended.
            index = unit.after if unit.after and not data else index + 1
        return used

    def _column(self, unit: _Unit, columns: Sequence[bytes]) -> bytes:
        """The bytes of a unit of all rows, as they are in records; empty where all are zero."""
        data = _read(columns[unit.source], self._sizes[unit.source], unit.start, unit.size)
        if unit.invert:
            return _inverted(_swapped(data, unit.size) if unit.swap else data, unit.size)
        if not any(data[:64]) and data == bytes(len(data)):
            return b""
        return _swapped(data, unit.size) if unit.swap else data

    def _stack_columns(self, stack: _Stack, data: bytes) -> list[tuple[int, int, bytes]]:
        step = self._sizes[stack.source]
        counts = array("i", _read(data, step, stack.start, 4))
        errors = array("i", [min(count, 0) for count in counts]).tobytes()
        units = [
            (stack.place, 4, _swapped(_read(data, step, stack.start + 4, 4), 4)),
            (stack.place + 4, 4, _inverted(_swapped(errors, 4), 4)),
        ]
        # A truncated stack has one frame more, of which there is no address.
        present = bytes([min(max(count, 0), stack.limit + 1) for count in counts])
        for index in range(max(present, default=0)):
            place = stack.place + 8 + 16 * index
            units.append((place, 1, present.translate(bytes(index + 1) + b"\1" * (255 - index))))
            if index == stack.limit:
                break
            units.append((place + 8, 8, _swapped(_read(data, step, stack.start + 8 + 8 * index, 8), 8)))
        return units

    def rows(self, records: Records) -> bytearray:
        """The inverse: rows of :attr:`row_size` bytes."""
        data, size = records
        rows = bytearray(len(data) // size * self.row_size)
        for unit in self._units:
            if unit.place >= size:
                continue
            column = _read(data, size, unit.place, unit.size)
            if unit.invert:
                column = _inverted(column, unit.size)
            _write(rows, self.row_size, unit.row, unit.size, _swapped(column, unit.size) if unit.swap else column)
        for stack in self._stacks:
            self._stack_rows(stack, data, size, rows)
        return rows

    def _stack_rows(self, stack: _Stack, data: bytearray, size: int, rows: bytearray) -> None:
        step, row = self.row_size, stack.row
        errors = _swapped(_inverted(_read(data, size, stack.place + 4, 4), 4), 4)
        _write(rows, step, row, 4, errors)
        _write(rows, step, row + 4, 4, _swapped(_read(data, size, stack.place, 4), 4))
        counts = 0
        for index in range(min(stack.limit + 1, (size - stack.place + 7) // 16)):
            place = stack.place + 8 + 16 * index
            present = int.from_bytes(data[place::size], "little")
            if not present:
                break
            # Each byte of the sum counts the frames of one stack.
            counts += present
            # What is behind the end of trimmed records is zero, as is the address of a last frame that has none.
            if index == stack.limit or place + 8 >= size:
                break
            _write(rows, step, row + 8 + 8 * index, 8, _swapped(_read(data, size, place + 8, 8), 8))
        numbers = array("i", list(counts.to_bytes(len(data) // size, "little")))
        if any(errors):
            numbers = array("i", map(_or_error, numbers, array("i", errors)))
        _write(rows, step, row, 4, numbers.tobytes())


def _or_error(count: int, error: int) -> int:
    return error or count


def _rest(sizes: Sequence[int], order: Sequence[tuple[int, Piece]]) -> list[tuple[int, Piece]]:
    """The parts that no piece of *order* covers."""
    pieces = []
    for source, size in enumerate(sizes):
        covered = sorted((piece.start, piece.start + piece.size) for index, piece in order if index == source)
        free = 0
        for start, end in [*covered, (size, size)]:
            if start > free:
                pieces.append((source, Piece(free, start - free, False)))
            free = max(free, end)
    return pieces


def _read(data: bytes | bytearray, step: int, start: int, size: int) -> bytes:
    """*size* bytes from *start* on of each of the rows, which take *step* bytes; both are multiples of *size*."""
    if size == 1:
        return bytes(data[start::step])
    with memoryview(data) as whole, _units(whole, size) as units:
        return units[start // size :: step // size].tobytes()


def _write(rows: bytearray, step: int, place: int, size: int, data: bytes) -> None:
    """The inverse of :func:`_read`."""
    if size == 1:
        rows[place::step] = data
        return
    with memoryview(rows) as whole, _units(whole, size) as units:
        units[place // size :: step // size] = _units(memoryview(data), size)


def _units(view: memoryview, size: int) -> memoryview:
    return view.cast(_CODES[size])


def _swapped(data: bytes, size: int) -> bytes:
    if not _SWAPS or size == 1:
        return data
    units = array(_CODES[size], data)
    units.byteswap()
    return units.tobytes()


def _inverted(data: bytes, size: int) -> bytes:
    """Numbers with the most significant byte first, their signs inverted."""
    inverted = bytearray(data)
    inverted[::size] = inverted[::size].translate(_INVERT_SIGN)
    return bytes(inverted)


# ---------------------------------------------------------------------------------------------- sorting


ROWS = 1024
"""Records of one block of the result."""
_SHORT = 32
"""Longer records sort faster as objects: only their references move."""


Sort = Callable[[bytearray, int], None]
"""Sorts records of a size in place, by their bytes."""


class RecordSorter(ABC):
    """Sorts records."""

    whole = False
    """Whether records must have their whole size."""

    @abstractmethod
    def add(self, records: Records) -> None:
        """Take some records."""

    @abstractmethod
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


class _ShortRecords(RecordSorter):
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


class _LongRecords(RecordSorter):
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


class _LastRecords(RecordSorter):
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
