"""Memory of values in the order of the values: records that compare as bytes, and back.

Numbers are stored with the most significant byte first and signed ones with the sign inverted; text stays. What
compares by several parts has them one after another. Each part of the source is in exactly one place of the record, so
that a record has all of its row: :meth:`RecordForm.rows` is the inverse of :meth:`RecordForm.records`.

All is done for many rows at once, by columns: slices with a step, which arrays and byte strings copy in C.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence

from pytrace.base.fast_dataclass import dataclass
from pytrace.core import types

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_INVERT_SIGN = bytes(code ^ 0x80 for code in range(256))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a value's memory: *count* units of *size* bytes from *start* on.

    *number*: each unit is a number, and its sign counts if it is *signed*; otherwise it is text or anything else.
    """

    start: int
    size: int
    number: bool = True
    signed: bool = False

    def moved(self, distance: int) -> Piece:
        """The same part where the value lies *distance* bytes further."""
        return Piece(self.start + distance, self.size, self.number, self.signed)


# ---------------------------------------------------------------------------------------------- types


def pieces(kind: types.Type) -> list[Piece] | None:
    """The parts of a value's memory in the order in which they compare; None for a type that has no such order.

    The order is that of decoded values (:mod:`pytrace.runtime.output.render.decoders`).
    """
    row = _ROWS.get(type(kind))
    return None if row is None else row(kind)


def _number(kind: types.Type) -> list[Piece]:
    signed = isinstance(kind, types.Int | types.Enum | types.Fixed | types.Sum) and kind.signed
    return [Piece(0, kind.size, True, signed)]


def _text(kind: types.Type) -> list[Piece]:
    return [Piece(0, kind.size, False)]


def _stack(kind: types.Type) -> list[Piece] | None:
    assert isinstance(kind, types.Stack)
    if kind.mode is types.StackMode.BUILD_ID:
        return None
    # Frames that are not there are zero, so the shorter of two stacks that begin alike comes first by its count.
    frames = [Piece(types.Stack.header + 8 * index, 8) for index in range(kind.limit)]
    return [Piece(4, 4), *frames, Piece(0, 4, True, True)]


def _buffer(kind: types.Type) -> list[Piece]:
    header = types.Buffer.header
    return [Piece(header, kind.size - header, False), Piece(0, header)]


def _array(kind: types.Type) -> list[Piece] | None:
    assert isinstance(kind, types.Array)
    return _all((kind.element,) * kind.count, [kind.element.size * index for index in range(kind.count)])


def _members(kind: types.Type) -> list[Piece] | None:
    assert isinstance(kind, types.Members)
    return _all(kind.members, kind.offsets)


def _all(kinds: Sequence[types.Type], offsets: Sequence[int]) -> list[Piece] | None:
    found: list[Piece] = []
    for kind, offset in zip(kinds, offsets, strict=True):
        inner = pieces(kind)
        if inner is None:
            return None
        found += [piece.moved(offset) for piece in inner]
    return found


def _parts(*parts: Piece) -> Callable[[types.Type], list[Piece]]:
    return lambda _kind: list(parts)


_ROWS: dict[type[types.Type], Callable[[types.Type], list[Piece] | None]] = {
    types.Bool: _number,
    types.Int: _number,
    types.Enum: _number,
    types.Pointer: _number,
    types.String: _text,
    types.Buffer: _buffer,
    types.Array: _array,
    types.Tuple: _members,
    types.Record: _members,
    types.Joined: _members,
    types.Stack: _stack,
    types.KSym: _number,
    types.USym: _parts(Piece(8, 4), Piece(0, 8)),
    types.Inet: _parts(Piece(0, 4), Piece(4, 16, False)),
    types.Mac: _text,
    types.Timestamp: _parts(Piece(0, 8), Piece(8, 4), Piece(12, 4)),
    types.Username: _number,
    types.InterfaceName: _number,
    types.NetworkNamespace: _number,
    types.CgroupPath: _parts(Piece(0, 8), Piece(8, 4)),
    types.Fixed: _number,
    types.Count: _number,
    types.Sum: _number,
}


# ---------------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class _Move:
    """A piece of column *source*, from *start*, is at *place* of the record and at *row* of the row that comes back."""

    source: int
    piece: Piece
    place: int
    row: int


class RecordForm:
    """How rows of several columns become records.

    Args:
        sizes: bytes of a row in each column.
        order: the pieces (column, piece) that decide the order; those that are left out follow.
    """

    def __init__(self, sizes: Sequence[int], order: Sequence[tuple[int, Piece]]) -> None:
        self._sizes = list(sizes)
        self.starts: list[int] = []
        """Where each column starts in a row that comes back."""
        at = 0
        for size in sizes:
            self.starts.append(at)
            at += (size + 7) & ~7
        self.row_size = at
        self._moves: list[_Move] = []
        place = 0
        for source, piece in [*order, *_rest(self._sizes, order)]:
            step = piece.size if piece.size in _CODES else 8 if piece.size > 8 else 1
            place = -(-place // step) * step
            self._moves.append(_Move(source, piece, place, self.starts[source] + piece.start))
            place += piece.size
        self.size = (place + 7) & ~7
        """Bytes of a record."""

    def records(self, columns: Sequence[bytes], count: int) -> bytearray:
        """The records of *count* rows, one after another; *columns* are the rows of each column."""
        made = bytearray(count * self.size)
        for move in self._moves:
            size, piece = self._sizes[move.source], move.piece
            _copy(columns[move.source], size, piece.start, made, self.size, move.place, piece)
            if piece.signed:
                made[move.place :: self.size] = made[move.place :: self.size].translate(_INVERT_SIGN)
        return made

    def rows(self, records: bytearray) -> bytearray:
        """The inverse: rows of :attr:`row_size` bytes."""
        made = bytearray(len(records) // self.size * self.row_size)
        for move in self._moves:
            _copy(records, self.size, move.place, made, self.row_size, move.row, move.piece)
            if move.piece.signed:
                top = move.row + (move.piece.size - 1 if sys.byteorder == "little" else 0)
                made[top :: self.row_size] = made[top :: self.row_size].translate(_INVERT_SIGN)
        return made


def _rest(sizes: Sequence[int], order: Sequence[tuple[int, Piece]]) -> list[tuple[int, Piece]]:
    """What no piece of *order* covers."""
    found = []
    for source, size in enumerate(sizes):
        covered = sorted((piece.start, piece.start + piece.size) for index, piece in order if index == source)
        at = 0
        for start, end in [*covered, (size, size)]:
            if start > at:
                found.append((source, Piece(at, start - at, False)))
            at = max(at, end)
    return found


def _copy(
    source: bytes | bytearray, step: int, start: int, target: bytearray, target_step: int, place: int, piece: Piece
) -> None:
    """Copy one piece of all rows; the bytes of a number change their order."""
    swap = piece.number and sys.byteorder == "little"
    size = piece.size
    for unit in (8, 4, 2, 1):
        aligned = not (start % unit or step % unit or place % unit or target_step % unit or size % unit)
        if aligned and (unit == size or not swap):
            _copy_units(source, step, start, target, target_step, place, size, unit, swap)
            return
    for index in range(size):
        target[place + (size - 1 - index) :: target_step] = source[start + index :: step]


def _copy_units(
    source: bytes | bytearray, step: int, start: int, target: bytearray, target_step: int, place: int,
    size: int, unit: int, swap: bool,
) -> None:  # fmt: skip
    if unit == 1:
        for index in range(size):
            target[place + index :: target_step] = source[start + index :: step]
        return
    code = _CODES[unit]
    # Many rows have many units that are zero in all of them: the ends of short texts and stacks.
    with memoryview(source) as whole, whole.cast(code) as units, memoryview(target) as all_, all_.cast(code) as wanted:
        nothing = bytes(len(source) // step * unit)
        for index in range(size // unit):
            column = units[(start // unit) + index :: step // unit].tobytes()
            if column == nothing:
                continue
            if swap:
                swapped = array(code, column)
                swapped.byteswap()
                column = swapped.tobytes()
            wanted[place // unit + index :: target_step // unit] = memoryview(column).cast(code)
