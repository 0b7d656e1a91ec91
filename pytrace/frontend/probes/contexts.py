"""Probe contexts: ``args``, ``retval`` and ``ctx``, from tracepoint formats and BTF prototypes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from pytrace.core.kernel_info import (
    COMMON_FIELDS_END,
    DefinedEvent,
    FunctionPrototype,
    KernelInfo,
    TracepointField,
    UserParameter,
)
from pytrace.core.probe_kinds import ENTER, TracepointTarget
from pytrace.core.system_calls import Abi
from pytrace.core.types import (
    INT8,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Bool,
    Enum,
    Field,
    Float,
    Int,
    Pointer,
    String,
    Struct,
    Type,
    Void,
)
from pytrace.frontend.syntax.typed_program import (
    Argument,
    ArgumentLocation,
    CallRegister,
    CallResult,
    ContextField,
    CountedText,
    DataLoc,
    ProbeArgument,
    ProbeContext,
    RegisterLocation,
    RegisterParts,
    ReturnValue,
    Slot,
    Unreadable,
)

SLOT = 8
"""Bytes of one element of a :class:`Slot` context."""


def tracepoint(
    target: TracepointTarget,
    fields: Iterable[TracepointField],
    max_strlen: int,
    places: Mapping[str, ArgumentLocation | None] | None = None,
) -> ProbeContext:
    """The context of a tracepoint, from the fields of its format.

    *places* are the locations of the fields in a raw tracepoint program, which has only those fields.
    """
    own = [item for item in fields if item.offset >= COMMON_FIELDS_END]
    known = places if places is not None else {item.name: _field_place(item) for item in own}
    arguments = tuple(
        ProbeArgument(item.name, _field_type(item, max_strlen), place)
        for item in own
        if (place := known.get(item.name)) is not None
    )
    return ProbeContext(arguments, _args_struct(f"tracepoint:{target.category}:{target.event}", arguments))


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


def _field_place(item: TracepointField) -> ArgumentLocation:
    return DataLoc(item.offset, item.relative) if item.data_loc else ContextField(item.offset)


def _field_type(item: TracepointField, max_strlen: int) -> Type:
    if not item.data_loc:
        return _kernel_strings(item.type)
    element = item.type
    while isinstance(element, Array | Pointer):
        element = element.element if isinstance(element, Array) else element.target
    if isinstance(element, String) or (isinstance(element, Int) and element.width == 1 and element.signed):
        return String(max_strlen)
    # The number of elements is known at run time only, so the field is a pointer to the first one.
    return Pointer(element, AddressSpace.KERNEL)


def _kernel_strings(type_: Type) -> Type:
    """*type_*, or a string of the same size for an array of ``char``."""
    element = type_.element if isinstance(type_, Array) else None
    if isinstance(type_, Array) and isinstance(element, Int) and element.width == 1 and element.signed:
        return String(type_.count)
    return type_


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
    return ProbeContext(tuple(arguments), _args_struct(name, arguments), result, ctx_type=words, slots=slot)


def entry(name: str, prototype: FunctionPrototype | None, kernel: KernelInfo) -> ProbeContext:
    """The context of a kprobe at a function's first instruction; without *prototype* there is no ``args``.

    Struct arguments end the list: their location depends on the calling convention.
    """
    arguments: list[ProbeArgument] = []
    for index, (parameter, kind) in enumerate(prototype.parameters if prototype is not None else ()):
        if not kind.scalar:
            break
        arguments.append(ProbeArgument(parameter or f"arg{index}", in_space(kind), Argument(index)))
    members = _args_struct(name, arguments) if arguments else None
    return ProbeContext(tuple(arguments), members, ctx_type=registers(kernel))


_UNREADABLE = Unreadable("in a floating-point register")
_IN_VECTOR = String(len(_UNREADABLE.text) + 1)
"""The type of what ``args`` shows in place of a value in a floating-point register."""


def user_entry(
    name: str,
    parameters: Sequence[UserParameter] | None,
    kernel: KernelInfo,
    max_strlen: int,
    missing: Iterable[str] = (),
) -> ProbeContext:
    """The context of a uprobe; *parameters* from DWARF, None when there is none for the reasons *missing*."""
    arguments = tuple(
        _user_argument(item, max_strlen) if item.readable else ProbeArgument(item.name, _IN_VECTOR, _UNREADABLE)
        for item in parameters or ()
    )
    members = None if parameters is None else _args_struct(name, arguments)
    lost = tuple(f"args.{item.name}{_dotted(part)}" for item in parameters or () for part in item.lost)
    return ProbeContext(arguments, members, ctx_type=registers(kernel), missing=tuple(missing), lost=lost)


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
    members = _args_struct(probe, tuple(arguments)) if arguments else None
    return ProbeContext(tuple(arguments), members, ctx_type=registers(kernel), missing=tuple(missing))


def _dotted(member: str) -> str:
    """A member's name as it stands after that of its struct; nothing for the struct itself."""
    return f".{member}" if member else ""


def _user_argument(item: UserParameter, max_strlen: int) -> ProbeArgument:
    """A parameter or result from DWARF."""
    if item.text:
        return ProbeArgument(item.name, String(max_strlen), _counted_text(item))
    type_ = in_space(item.type, AddressSpace.USER)
    if item.parts:
        parts = tuple((part.offset, part.size, part.register) for part in item.parts)
        return ProbeArgument(item.name, type_, RegisterParts(parts))
    return ProbeArgument(item.name, type_, location(item))


def _counted_text(item: UserParameter) -> CountedText:
    """Address and length of a string are in two registers, or one after the other in memory."""
    if item.parts:
        address, length = (RegisterLocation(part.register) for part in item.parts)
        return CountedText(address, length)
    register, _, offset = item.location.partition("+")
    return CountedText(*(RegisterLocation(register, int(offset) + at, True) for at in (0, SLOT)))


def go_returning(result: UserParameter | None, kernel: KernelInfo, max_strlen: int) -> ProbeContext:
    """The context at a return instruction of Go: ``retval`` is the first result, pointers as plain numbers."""
    context = returning(result.type if result is not None and not result.parts else None, kernel)
    if result is None or isinstance(result.type, Pointer):
        return context
    context = replace(context, lost=tuple(f"retval{_dotted(member)}" for member in result.lost))
    if not result.readable:
        return context
    argument = _user_argument(result, max_strlen)
    return replace(context, result=ProbeArgument("retval", argument.type, argument.place))


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


def iterator(context: Struct) -> ProbeContext:
    """The context of an iterator: ``ctx`` points to ``struct bpf_iter__TYPE``."""
    return ProbeContext(ctx_type=Pointer(context, AddressSpace.BPF))


def registers(kernel: KernelInfo) -> Type:
    """The type of ``ctx`` for contexts that are ``struct pt_regs``."""
    struct = kernel.struct("struct", "pt_regs")
    return Pointer(struct if struct is not None else VOID, AddressSpace.BPF)


def perf_event(kernel: KernelInfo) -> Type:
    """The type of ``ctx`` in perf event programs: ``struct bpf_perf_event_data`` (uapi/linux/bpf_perf_event.h)."""
    struct = kernel.struct("struct", "bpf_perf_event_data")
    regs = kernel.struct("struct", "pt_regs")
    if struct is None and regs is not None:
        # Missing in the kernel's BTF if no kernel code uses it; its layout is part of the ABI.
        members = (
            Field("regs", regs, 0),
            Field("sample_period", UINT64, regs.size),
            Field("addr", UINT64, regs.size + 8),
        )
        struct = Struct("struct", "bpf_perf_event_data", regs.size + 16, members, origin="vmlinux", alignment=8)
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


def _args_struct(name: str, arguments: Sequence[ProbeArgument]) -> Struct:
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
