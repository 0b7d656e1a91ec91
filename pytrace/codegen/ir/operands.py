"""Operands: results of evaluating expressions.

Values that do not fit a register are not materialised until their destination is known, so that a string is read
directly into its event or map key.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.codegen.ir.ir_values import Number, Ptr
from pytrace.core.types import AddressSpace, Type


class Scalar(msgspec.Struct, frozen=True):
    """An integer, bool, enum or pointer in an ``i64``, extended as its type says."""

    value: Number
    type: Type
    direct: bool = False
    """A pointer that plain loads may follow (BTF-typed, or into the program's own memory)."""
    pointer: Ptr | None = None
    """For ``ctx``: the same address as a pointer, for loads from the context."""


class Memory(msgspec.Struct, frozen=True):
    """A value in the program's own memory (stack, scratch, map value, constant)."""

    pointer: Ptr
    type: Type
    align: int = 8
    context: bool = False
    """Whether this is the probe's context, whose pointers are typed (BTF) for the verifier."""


class Remote(msgspec.Struct, frozen=True):
    """A value in kernel or user memory that has not been read yet; *direct*: plain loads at constant offsets may."""

    address: Number
    type: Type
    space: AddressSpace
    direct: bool = False


class Parts(msgspec.Struct, frozen=True):
    """A tuple or record whose members have been evaluated one by one."""

    type: Type
    members: tuple[Operand, ...]


class Made(msgspec.Struct, frozen=True):
    """A value that is written directly to its destination.

    *write(pointer, align)* fills all ``type.size`` bytes. *tail(pointer, limit)*, for strings and buffers, writes at
    most *limit* bytes of text (and possibly a NUL after them) and returns their number, an ``i64`` in 0 … *limit*.
    *only(pointer, cleared)*, for strings, writes the text and *cleared* zero bytes after it, and leaves the rest of
    the value unwritten. *reads*: it is read from foreign memory when it is written.
    """

    type: Type
    write: Callable[[Ptr, int], None]
    tail: Callable[[Ptr, int], Number] | None = None
    only: Callable[[Ptr, int], None] | None = None
    reads: bool = False
    source: Number | None = None
    """The address in user memory of a string that is read as a whole."""


class Nothing(msgspec.Struct, frozen=True):
    """The result of a call without a value."""

    type: Type


Operand = Scalar | Memory | Remote | Parts | Made | Nothing
