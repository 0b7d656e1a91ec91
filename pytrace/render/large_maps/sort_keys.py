"""The order of values by their memory.

Which parts of a value's memory decide its order, by its type; :mod:`.record_form` makes records of them that compare
as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_FRAMES = 255
"""Frames of a stack that a byte can count."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a value's memory: *size* bytes from *start* on.

    *number*: a number, whose sign counts if it is *signed*; otherwise it is text or anything else. *frames* is the
    limit of a stack, whose whole memory the part is, and 0 for anything else. *ends*: a string, which has nothing but
    zeros after its first NUL.
    """

    start: int
    size: int
    number: bool = True
    signed: bool = False
    frames: int = 0
    ends: bool = False

    def moved(self, distance: int) -> Piece:
        """The same part where the value lies *distance* bytes further."""
        return Piece(self.start + distance, self.size, self.number, self.signed, self.frames, self.ends)


# ---------------------------------------------------------------------------------------------- types


def pieces(kind: types.Type) -> list[Piece] | None:
    """The parts of a value's memory in the order in which they compare; None for a type that has no such order.

    The order is that of decoded values (:mod:`pytrace.render.decoders`).
    """
    row = _ROWS.get(type(kind))
    return None if row is None else row(kind)


def _number(kind: types.Type) -> list[Piece]:
    signed = isinstance(kind, types.Int | types.Enum | types.Fixed | types.Sum) and kind.signed
    return [Piece(0, kind.size, True, signed)]


def _text(kind: types.Type) -> list[Piece]:
    return [Piece(0, kind.size, False, ends=True)]


def _bytes(kind: types.Type) -> list[Piece]:
    return [Piece(0, kind.size, False)]


def _stack(kind: types.Type) -> list[Piece] | None:
    assert isinstance(kind, types.Stack)
    if kind.mode is types.StackMode.BUILD_ID or kind.limit > MOST_FRAMES:
        return None
    return [Piece(0, kind.size, False, False, kind.limit)]


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
    types.Mac: _bytes,
    types.Timestamp: _parts(Piece(0, 8), Piece(8, 4), Piece(12, 4)),
    types.Username: _number,
    types.InterfaceName: _number,
    types.NetworkNamespace: _number,
    types.CgroupPath: _parts(Piece(0, 8), Piece(8, 4)),
    types.Fixed: _number,
    types.Count: _number,
    types.Sum: _number,
}
