"""Types of IR values, the values that are not registers, and the operands of expressions.

A value is its name in the IR text (``%v7``, ``42``, ``@events``). Its Python type is that of the register, so that mypy
distinguishes truth values from pointers. By convention every integer in a register is an ``i64`` that is already
extended as its type says, every branch condition an ``i1``, and every address in the program's own memory a ``ptr``:
narrower integers exist inside the builder only.

An *operand* is the value of an expression: where it is, and its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NewType

import msgspec

from pytrace.core.diagnostics import InternalError
from pytrace.core.types import AddressSpace, Type

I1 = NewType("I1", str)
"""A truth value."""

I64 = NewType("I64", str)
"""An integer in a register."""

Ptr = NewType("Ptr", str)
"""An address in the program's own memory."""

Number = I64 | int
"""An ``i64``: a register, or a constant as a Python integer."""

Scope = NewType("Scope", str)
"""The debug scope of a function's instructions."""

Location = NewType("Location", str)
"""The suffix of an instruction with its debug location."""

TRUE = I1("true")
NULL = Ptr("null")

Operation = Literal["add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "urem"]
"""Two-operand integer instructions that the v3 instruction set has."""

AtomicOperation = Literal["add", "or", "and", "xor"]
"""Atomic operations that return the old value."""

Predicate = Literal["eq", "ne", "ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge"]
Order = Literal["lt", "le", "gt", "ge"]

_SIGNED: dict[Order, Predicate] = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED: dict[Order, Predicate] = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}


def ordering(order: Order, *, signed: bool) -> Predicate:
    """The signed or unsigned form of an integer comparison."""
    return (_SIGNED if signed else _UNSIGNED)[order]


def signed_constant(number: int) -> int:
    """A constant of up to 64 bits as a signed number, as IR requires."""
    return number - (1 << 64) if number >= 1 << 63 else number


def global_pointer(name: str, offset: int | None = None) -> Ptr:
    """The address of a map, function or data section, or *offset* bytes into it."""
    return Ptr(f"@{name}" if offset is None else f"getelementptr (i8, ptr @{name}, i64 {offset})")


def pointer_parameter(name: str) -> Ptr:
    """A pointer parameter of the current function."""
    return Ptr(f"%{name}")


def number_parameter(name: str) -> I64:
    """An integer parameter of the current function."""
    return I64(f"%{name}")


CONTEXT = pointer_parameter("ctx")
"""The context that the kernel passes to an entry function."""

FRAME = pointer_parameter("frame")
"""The frame that an entry function passes to the program's other functions."""


class Late(msgspec.Struct, eq=False):
    """A constant that is known only after all code has been emitted: the size of a data section, or an offset in it."""

    name: str
    value: int | None = None

    def __str__(self) -> str:
        if self.value is None:
            raise InternalError(f"the late operand {self.name} has no value")
        return str(self.value)


class LateInstruction(msgspec.Struct, eq=False):
    """An instruction with a late operand, rendered with its function."""

    head: str
    operand: Late
    location: Location

    def __str__(self) -> str:
        return f"{self.head}{self.operand}{self.location}"


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
    """The address of a string that is read as a whole and may be in user memory."""


class Nothing(msgspec.Struct, frozen=True):
    """The result of a call without a value."""

    type: Type


Operand = Scalar | Memory | Remote | Parts | Made | Nothing
