"""Probe contexts: ``args``, ``retval`` and ``ctx``, from tracepoint formats and BTF prototypes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytrace.core.kernel_info import (
    COMMON_FIELDS_END,
    DefinedEvent,
    FunctionPrototype,
    KernelInfo,
    TracepointField,
    UserParameter,
)
from pytrace.core.probe_kinds import ENTER
from pytrace.core.system_calls import Abi
from pytrace.core.types import (
    INT8,
    UINT64,
    VOID,
    AddressSpace,
    Bool,
    Enum,
    Field,
    Float,
    Int,
    Pointer,
    Struct,
    Type,
    Void,
)
from pytrace.frontend.syntax.typed_program import (
    ArgumentLocation,
    CallRegister,
    CallResult,
    ProbeArgument,
    ProbeContext,
    RegisterLocation,
    ReturnValue,
    Slot,
)

SLOT = 8
"""Bytes of one element of a :class:`Slot` context."""


_CALL_NUMBER, _CALL_ARGUMENTS = COMMON_FIELDS_END, 16
"""Offsets of the fields that BPF programs receive (``struct syscall_tp_t`` of kernel/trace/trace_syscalls.c)."""


def system_call_places(fields: Iterable[TracepointField], raw: str, abi: Abi) -> dict[str, ArgumentLocation | None]:
    """Locations of the fields of a system call tracepoint at the raw tracepoint *raw*; None for unavailable ones."""
    places: dict[tuple[int, int], ArgumentLocation] = {(_CALL_NUMBER, 4): CallRegister(abi.number, 4, True)}
    if raw == ENTER:
        for index, register in enumerate(abi.arguments):
            places[_CALL_ARGUMENTS + SLOT * index, SLOT] = CallRegister(register)
    else:
        places[_CALL_ARGUMENTS, SLOT] = CallResult()
    return {
        item.name: None if item.data_loc else places.get((item.offset, item.size))
        for item in fields
        if item.offset >= COMMON_FIELDS_END
    }


def slots(name: str, prototype: FunctionPrototype, *, returns: bool, known: bool = True) -> ProbeContext:
    """The context of a fentry, fexit or raw tracepoint program: a ``u64`` (more for a struct) for each argument.

    *known* says that the verifier lets a program follow pointer arguments without a check for null.
    """
    arguments: list[ProbeArgument] = []
    slot = 0
    for index, (parameter, kind) in enumerate(prototype.parameters):
        arguments.append(
            ProbeArgument(parameter or f"arg{index}", trusted(kind) if known else in_space(kind), Slot(slot))
        )
        slot += max(1, (kind.size + SLOT - 1) // SLOT)
    result = None
    if returns and not isinstance(prototype.result, Void):
        result = ProbeArgument("retval", trusted(prototype.result), Slot(slot))
    words = Pointer(UINT64, AddressSpace.BPF)
    return ProbeContext(tuple(arguments), args_struct(name, arguments), result, ctx_type=words, slots=slot)


_FETCHED = (
    r"(?P<name>\w+)=(?:(?P<memory>[+-]u?\d+|[+-]u?0x[0-9a-f]+)\(%(?P<base>\w+)\)|%(?P<register>\w+))"
    r"(?::(?:(?P<sign>[usx])(?P<bits>8|16|32|64)|(?P<text>u?string)))?$"
)
"""A field of an event that somebody defined: a register, or memory at one (Documentation/trace/kprobetrace.rst)."""


def defined_event(probe: str, event: DefinedEvent, kernel: KernelInfo) -> ProbeContext:
    """The context at the place of an event that somebody defined: ``args`` has the fields that are in registers.

    Or in memory at one; of a string it has the address.
    """
    arguments: list[ProbeArgument] = []
    missing: list[str] = []
    for text in event.fetches:
        name, _, expression = text.partition("=")
        if expression == "$retval" and event.letter == "r":
            arguments.append(ProbeArgument(name, UINT64, ReturnValue()))
            continue
        match = re.match(_FETCHED, text)
        if match is None:
            missing.append(f"programs do not have this field of the event: {text}")
            continue
        offset = int((match["memory"] or "0").replace("u", ""), 0)
        register = match["base"] or match["register"]
        memory = match["base"] is not None and match["text"] is None
        size, signed = int(match["bits"] or 64) // 8, match["sign"] == "s"
        space = AddressSpace.USER if event.path or match["text"] == "ustring" else AddressSpace.KERNEL
        type_ = Pointer(INT8, space) if match["text"] else Int(size, signed)
        place = RegisterLocation(register, offset, memory, size, signed)
        arguments.append(ProbeArgument(match["name"], type_, place))
    members = args_struct(probe, tuple(arguments)) if arguments else None
    return ProbeContext(tuple(arguments), members, ctx_type=registers(kernel), missing=tuple(missing))


def returning(result: Type | None, kernel: KernelInfo) -> ProbeContext:
    """The context of a kretprobe or uretprobe.

    ``retval`` has the function's type, from BTF or DWARF, if that is a number. Pointers stay plain numbers, as scripts
    compare and store them together with ``argN``.
    """
    argument = ProbeArgument("retval", result, ReturnValue()) if isinstance(result, Int | Bool | Enum) else None
    lost = ("retval",) if isinstance(result, Float) else ()
    return ProbeContext(result=argument, ctx_type=registers(kernel), lost=lost)


def location(parameter: UserParameter) -> RegisterLocation:
    """The location of a DWARF parameter: ``di``, ``sp+16`` for memory, or ``=5`` for a constant."""
    text = parameter.location
    if text.startswith("="):
        return RegisterLocation("", int(text[1:]), False, *_register_width(parameter.type))
    for sign in "+-":
        register, separator, offset = text.partition(sign)
        if separator:
            return RegisterLocation(register, int(f"{sign}{offset}", 0), True, *_register_width(parameter.type))
    return RegisterLocation(text, 0, False, *_register_width(parameter.type))


def _register_width(type_: Type) -> tuple[int, bool]:
    """Size and sign of a parameter in its register; a struct is read through its address."""
    return (type_.size if type_.scalar else 8, isinstance(type_, Int | Enum) and type_.signed)


def registers(kernel: KernelInfo) -> Type:
    """The type of ``ctx`` for contexts that are ``struct pt_regs``."""
    struct = kernel.struct("struct", "pt_regs")
    return Pointer(struct if struct is not None else VOID, AddressSpace.BPF)


def trusted(type_: Type) -> Type:
    """*type_* as an argument that the verifier tracks by BTF: plain loads may follow a pointer to a kernel object."""
    if not isinstance(type_, Pointer):
        return type_
    if type_.space is AddressSpace.USER or not isinstance(type_.target, Struct):
        return in_space(type_)
    return Pointer(type_.target, AddressSpace.KERNEL, trusted=True)


def in_space(type_: Type, space: AddressSpace = AddressSpace.KERNEL) -> Type:
    """*type_*; a pointer without an address space gets *space*."""
    if isinstance(type_, Pointer) and type_.space is AddressSpace.NONE:
        return Pointer(type_.target, space, type_.trusted)
    return type_


def args_struct(name: str, arguments: Sequence[ProbeArgument]) -> Struct:
    """The struct type of ``args`` as a whole: its members in order, naturally aligned."""
    fields: list[Field] = []
    offset, align = 0, 1
    for item in arguments:
        step = max(1, item.type.align)
        offset = (offset + step - 1) // step * step
        fields.append(Field(item.name, item.type, offset))
        offset += item.type.size
        align = max(align, step)
    size = (offset + align - 1) // align * align
    return Struct("struct", f"args({name})", size, tuple(fields), origin=f"args:{name}", alignment=align)
