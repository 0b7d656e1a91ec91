"""The parts of a value's memory that decide its order; their records compare as bytes (:mod:`.large_maps.record_form`).

:func:`pytrace.render.value_types.pieces` has the parts of any type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_FRAMES = 254
"""Frames of a stack that a byte can count, and one more: a truncated stack has a mark after its last frame."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a value's memory: *size* bytes from *start* on.

    *number*: a number, whose sign counts if it is *signed*; otherwise it is text or anything else. *frames* is the
    limit of a stack, whose whole memory the part is, and 0 for anything else. *ends*: a string, which has only zeros
    after its first NUL.
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


def number(type_: types.Type) -> list[Piece]:
    """An unsigned number."""
    return [Piece(0, type_.size)]


def signed_number(type_: types.Int | types.Enum | types.Fixed | types.Sum) -> list[Piece]:
    """A number of a type that says whether it is signed."""
    return [Piece(0, type_.size, True, type_.signed)]


def text(type_: types.String) -> list[Piece]:
    """A string."""
    return [Piece(0, type_.size, False, ends=True)]


def data(type_: types.Type) -> list[Piece]:
    """Bytes."""
    return [Piece(0, type_.size, False)]


def stack(type_: types.Stack) -> list[Piece] | None:
    """A stack of addresses."""
    if type_.chunked or type_.mode is types.StackMode.BUILD_ID or type_.limit > MOST_FRAMES:
        return None
    return [Piece(0, type_.size, False, False, type_.limit)]


def buffer(type_: types.Buffer) -> list[Piece]:
    """A buffer: its length comes last."""
    header = types.Buffer.header
    return [Piece(header, type_.size - header, False), Piece(0, header)]


def parts(*pieces: Piece) -> Callable[[types.Type], list[Piece]]:
    """A type of a fixed layout."""
    return lambda _type: list(pieces)
