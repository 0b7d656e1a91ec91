"""Probe contexts: the locations of ``args``, ``argN``, ``retval`` and ``ctx``."""

from __future__ import annotations

import msgspec

from pytrace.core.types import Struct, Type


class ContextField(msgspec.Struct, frozen=True):
    """An argument at a byte offset of the context (tracepoint records, iterator contexts)."""

    offset: int


class DataLoc(msgspec.Struct, frozen=True):
    """A ``__data_loc`` (or, *relative*, ``__rel_loc``) field: offset and length of the data, at a byte offset."""

    offset: int
    relative: bool = False


class Slot(msgspec.Struct, frozen=True):
    """Element *index* of the ``u64`` array that is the context (fentry, fexit, raw tracepoints)."""

    index: int


class Argument(msgspec.Struct, frozen=True):
    """Function argument *index* by the calling convention, from ``pt_regs``."""

    index: int


class ReturnValue(msgspec.Struct, frozen=True):
    """The function's result, from ``pt_regs``."""


class RegisterLocation(msgspec.Struct, frozen=True):
    """A value in a register (*dereference* False) or in memory at register + offset; from DWARF or a USDT note.

    *size* and *signed* describe the value at that location. *register* is a ``pt_regs`` name (``ax``, ``r12`` …),
    *index* a second register times *scale*; register empty with dereference False means the constant *offset*.
    *fraction*: the value is a floating-point number.
    """

    register: str
    offset: int = 0
    dereference: bool = False
    size: int = 8
    signed: bool = False
    index: str = ""
    scale: int = 1
    fraction: bool = False


class RegisterParts(msgspec.Struct, frozen=True):
    """A value in several registers: offset and size in bytes of each part, and its register."""

    parts: tuple[tuple[int, int, str], ...]


class CountedText(msgspec.Struct, frozen=True):
    """A string without a NUL in user memory, by its address and length."""

    address: RegisterLocation
    length: RegisterLocation


class Unreadable(msgspec.Struct, frozen=True):
    """A value that programs cannot read, and that ``args`` as a whole shows as this text."""

    text: str


class CallRegister(msgspec.Struct, frozen=True):
    """A signed or unsigned value of *size* bytes from the registers of a system call: an argument, or its number.

    *offset* is in ``struct pt_regs``.
    """

    offset: int
    size: int = 8
    signed: bool = False


class CallResult(msgspec.Struct, frozen=True):
    """The result of a system call."""


class RawRead(msgspec.Struct, frozen=True):
    """*size* bytes of a raw tracepoint's argument, or of memory reached through it.

    *slot* is the argument's index, None for the current task. *offsets* are member offsets: all but the last are of
    pointers to follow; without any, the value is the argument itself. *direct*: the verifier accepts plain loads of
    the first member.
    """

    slot: int | None
    offsets: tuple[int, ...]
    size: int
    signed: bool = False
    direct: bool = False


class RawField(msgspec.Struct, frozen=True):
    """A tracepoint field that a raw tracepoint program computes in the same way as the kernel's tracepoint.

    *formula* names one of ``codegen.emit.raw_tracepoints``; *reads* and *numbers* are its operands.
    """

    formula: str
    reads: tuple[RawRead, ...]
    numbers: tuple[int, ...] = ()


class PythonValue(msgspec.Struct, frozen=True):
    """A Python object: one of those that the program finds when it begins."""

    index: int


ArgumentLocation = (
    ContextField
    | DataLoc
    | Slot
    | Argument
    | ReturnValue
    | RegisterLocation
    | RegisterParts
    | CountedText
    | Unreadable
    | CallRegister
    | CallResult
    | RawField
    | PythonValue
)


class ProbeArgument(msgspec.Struct, frozen=True):
    """One member of ``args``."""

    name: str
    type: Type
    place: ArgumentLocation


class ProbeContext(msgspec.Struct, frozen=True):
    """The locations of ``args``, ``argN``, ``retval`` and ``ctx`` in a unit.

    *args_type* is the struct that ``args`` prints as (None without ``args``); its fields have the names of
    *arguments*. *positional* are the locations of ``arg0`` … for USDT probes (else derived from the kind).
    """

    arguments: tuple[ProbeArgument, ...] = ()
    args_type: Struct | None = None
    result: ProbeArgument | None = None
    positional: tuple[RegisterLocation, ...] = ()
    ctx_type: Type | None = None
    slots: int = 0
    """Number of ``u64`` arguments in a :class:`Slot` context."""
    missing: tuple[str, ...] = ()
    """Hints that say why ``args`` is missing."""
    lost: tuple[str, ...] = ()
    """Arguments (``args.rate``), members of these and ``retval`` that are in floating-point registers, which programs
    cannot read."""

    reads_result: bool = False
    """Whether the body of a uretprobe reads ``retval``."""

    def argument(self, name: str) -> ProbeArgument | None:
        """The member of ``args`` of that name."""
        return next((item for item in self.arguments if item.name == name), None)
