"""Typing rules of members, tuple fields and elements, and of type queries: ``sizeof``, ``offsetof``, ``typeinfo``."""

from __future__ import annotations

from typing import TypeGuard

from msgspec.structs import replace

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.probes.targets import TracepointTarget
from pytrace.core.types import (
    INT8,
    UINT8,
    UINT64,
    AddressSpace,
    Array,
    Enum,
    Field,
    Pointer,
    Record,
    String,
    Struct,
    Tuple,
    Type,
)
from pytrace.frontend.check.inference.argument_checks import report_lost, require_args, unstable
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, is_integer, literal, settle
from pytrace.frontend.check.inference.type_names import operand_type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    BoundsCheck,
    FieldPath,
    LayoutReliance,
    ProbeArgument,
    TypeDescription,
    Unreadable,
)


def inherit(checker: Checker, type_: Type, base: Pointer) -> Type:
    """The type of a value reached through *base*: its pointers point into the address space of *base*.

    In user memory so do those of the kernel's structures (``struct iovec.iov_base``), whatever their type says.
    """
    if not isinstance(type_, Pointer):
        return type_
    user_probe = checker.unit is not None and checker.unit.kind.space is AddressSpace.USER
    if base.space is AddressSpace.USER or (base.space is AddressSpace.NONE and user_probe):
        return Pointer(type_.target, AddressSpace.USER)
    if type_.space is not AddressSpace.NONE:
        return type_
    space = AddressSpace.KERNEL if base.space is AddressSpace.BPF else base.space
    return Pointer(type_.target, space, base.trusted)


def reached_through(checker: Checker, node: nodes.Expr) -> Pointer | None:
    """The pointer that a member or element in memory is reached through, at any depth; None for values."""
    while True:
        if isinstance(node, nodes.FieldAccess | nodes.Index):
            base = node.base
        elif isinstance(node, nodes.Unary) and node.operator == "*":
            base = node.operand
        else:
            return None
        type_ = checker.program.types.get(base)
        if isinstance(type_, Pointer):
            return type_
        node = base


_MARKS = {"kptr": AddressSpace.KERNEL, "uptr": AddressSpace.USER}


def mark_of_number(checker: Checker, node: nodes.Expr) -> AddressSpace | None:
    """The address space of ``kptr(N)`` or ``uptr(N)``, whose type is that of the number."""
    space = _MARKS.get(node.name) if isinstance(node, nodes.Call) else None
    return space if space is not None and is_integer(checker.settled(node)) else None


def loaded(type_: Type) -> Type:
    """The type of a value read from memory: a character array becomes a string."""
    if isinstance(type_, Array) and type_.element == INT8 and type_.count > 0:
        return String(type_.count)
    return type_


# ---------------------------------------------------------------------------------------------- members


def field_access(checker: Checker, node: nodes.FieldAccess) -> Type:
    """``base.name``."""
    base = node.base
    if isinstance(base, nodes.Identifier) and base.name == "args":
        return _argument(checker, node, base)
    type_ = checker.value(base)
    if isinstance(type_, Unknown):
        return UNKNOWN
    if isinstance(type_, Record):
        return _record_field(checker, node, type_)
    if isinstance(type_, Pointer) and isinstance(type_.target, Struct):
        member_type = _struct_field(checker, node, type_.target, "pointer")
        if type_.trusted and checker.options.verbose:
            _say_space(checker, base)
        return inherit(checker, member_type, type_)
    if isinstance(type_, Struct):
        member_type = _struct_field(checker, node, type_, "memory")
        pointer = reached_through(checker, base)
        return member_type if pointer is None else inherit(checker, member_type, pointer)
    if isinstance(type_, Pointer) and isinstance(type_.target, Record):
        return checker.error("a pointer to a record has no members", node.span)
    hints = ["cast it to a pointer to a struct first"] if is_integer(type_) or isinstance(type_, Pointer) else []
    return checker.error(f"{settle(type_)} has no member {node.name!r}", node.span, hints=hints)


def _argument(checker: Checker, node: nodes.FieldAccess, base: nodes.Identifier) -> Type:
    if not require_args(checker, base) or checker.unit is None:
        return UNKNOWN
    argument = checker.unit.context.argument(node.name)
    if (argument is None or isinstance(argument.place, Unreadable)) and report_lost(checker, node):
        return UNKNOWN
    if argument is None:
        known = [item.name for item in checker.unit.context.arguments]
        hints = did_you_mean(node.name, known) or ((f"there are {', '.join(known)}",) if known else ())
        message = f"{checker.unit.targets[0].probe} has no argument {node.name!r}"
        return checker.error(message, node.span, hints=hints, kernel=not checker.unit.kind.user)
    type_ = argument_type(checker, argument)
    checker.program.fields[node] = FieldPath("argument", type_, argument=argument)
    return loaded(type_)


def _say_space(checker: Checker, base: nodes.Expr) -> None:
    """Type information of kernels that GCC has built does not say which arguments of functions are ``__user``."""
    place = checker.program.fields.get(base) if isinstance(base, nodes.FieldAccess) else None
    if place is not None and place.argument is not None:
        text = base.span.text
        message = f"members of {text} are read in kernel memory; if it points to user memory, write uptr({text})"
        if all(note.message != message for note in checker.diagnostics.notes):
            checker.diagnostics.note(message, base.span)


def argument_type(checker: Checker, argument: ProbeArgument) -> Type:
    """Type of a member of ``args``; pointers in system call tracepoints are user pointers."""
    type_ = argument.type
    unit = checker.unit
    if isinstance(type_, Pointer) and type_.space is AddressSpace.NONE and unit is not None and unit.targets:
        place = unit.targets[0].place
        if isinstance(place, TracepointTarget) and place.category == "syscalls":
            return replace(type_, space=AddressSpace.USER)
    return type_


def _record_field(checker: Checker, node: nodes.FieldAccess, type_: Record) -> Type:
    if node.name not in type_.names:
        hints = did_you_mean(node.name, type_.names)
        if f'"{node.name}"' in type_.names:
            hints = ("a field whose name is in quotes can be printed only; without quotes it can be read, too",)
        return checker.error(f"the record has no field {node.name!r}", node.span, hints=hints)
    index = type_.names.index(node.name)
    settled = settle(type_)
    assert isinstance(settled, Record)
    member = settle(type_.members[index])
    checker.program.fields[node] = FieldPath("record", member, settled.offsets[index], index=index)
    description = checker.program.find_fact(node.base, TypeDescription)
    if description is not None:
        checker.set_constant(node, description.values[index])
    return type_.members[index]


def _struct_field(checker: Checker, node: nodes.FieldAccess, type_: Struct, how: str) -> Type:
    field = type_.find(node.name)
    if field is None and report_lost(checker, node):
        return UNKNOWN
    if field is None:
        hints = did_you_mean(node.name, type_.names())
        if not type_.fields and type_.size == 0:
            hints = (f"{type_} is an incomplete type here: its members are not known",)
        message = f"{type_} has no member {node.name!r}"
        return checker.error(message, node.span, hints=hints, kernel=_of_kernel(type_, checker))
    checker.program.fields[node] = FieldPath(how, field.type, field.offset, field.bit_offset, field.bit_size)
    return loaded(field.type)


# ---------------------------------------------------------------------------------------------- tuples, elements


def tuple_access(checker: Checker, node: nodes.TupleAccess) -> Type:
    """``base.0``."""
    type_ = checker.value(node.base)
    if isinstance(type_, Unknown):
        return UNKNOWN
    if not isinstance(type_, Tuple):
        return checker.error(f"{settle(type_)} is not a tuple", node.span)
    return _tuple_member(checker, node, type_, node.index)


def _tuple_member(checker: Checker, node: nodes.Expr, type_: Tuple, index: int) -> Type:
    if not 0 <= index < len(type_.members):
        return checker.error(f"the tuple has {len(type_.members)} fields, so there is no field {index}", node.span)
    return type_.members[index]


def index(checker: Checker, node: nodes.Index) -> Type:
    """``base[index]``."""
    type_ = checker.value(node.base)
    position = checker.integer(node.index, "the index")
    if isinstance(type_, Unknown) or isinstance(position, Unknown):
        return UNKNOWN
    number = checker.constant(node.index)
    fixed = number if isinstance(number, int) else None
    if isinstance(type_, Tuple):
        if fixed is None:
            return checker.error("the index of a tuple must be a constant", node.index.span)
        return _tuple_member(checker, node, type_, fixed)
    if isinstance(type_, Pointer):
        return _pointed(checker, node, type_)
    if isinstance(type_, Array | String):
        return _element(checker, node, type_, fixed)
    return checker.error(f"{settle(type_)} cannot be indexed", node.span)


def _pointed(checker: Checker, node: nodes.Index, type_: Pointer) -> Type:
    if type_.target.size == 0 and not isinstance(type_.target, Array):
        return checker.error(f"{type_} cannot be indexed: the size of {type_.target} is not known", node.span)
    return loaded(inherit(checker, type_.target, type_))


def _element(checker: Checker, node: nodes.Index, type_: Array | String, fixed: int | None) -> Type:
    count = type_.count if isinstance(type_, Array) else type_.capacity
    if fixed is not None and (fixed < 0 or (fixed >= count and count > 0)):
        return checker.error(f"index {fixed} is outside of {type_}, which has {count} elements", node.span)
    checker.program.facts[node] = BoundsCheck(fixed is None and count > 0)
    if isinstance(type_, String):
        return UINT8
    element = loaded(type_.element)
    pointer = reached_through(checker, node.base)
    return element if pointer is None else inherit(checker, element, pointer)


# ---------------------------------------------------------------------------------------------- type queries


def size_of(checker: Checker, node: nodes.Sizeof) -> Type:
    """``sizeof(T or expression)``."""
    type_ = operand_type(checker, node.operand)
    if isinstance(type_, Unknown):
        return UINT64
    if checker.options.ahead:
        if _of_kernel(type_, checker):
            checker.set_fact(node, type_.size, "size", type_.kind, type_.name)
            return UINT64
        checker.program.facts[node] = LayoutReliance(type_)
    checker.set_constant(node, type_.size)
    return literal(type_.size)


def _of_kernel(type_: Type, checker: Checker) -> TypeGuard[Struct]:
    return isinstance(type_, Struct) and bool(type_.name) and checker.kernel.struct(type_.kind, type_.name) == type_


def offset_of(checker: Checker, node: nodes.Offsetof) -> Type:
    """``offsetof(T or expression, a.b[2].c)``."""
    type_ = operand_type(checker, node.operand)
    if isinstance(type_, Unknown):
        return UINT64
    if isinstance(type_, Pointer) and isinstance(node.operand, nodes.Expr):
        type_ = type_.target
    offset = 0
    relied: list[tuple[Struct, Field]] = []
    for step in node.path:
        if step.isdigit():
            if not isinstance(type_, Array | String):
                return checker.error(f"{type_} cannot be indexed by {step}", node.span)
            # Arrays of characters are strings.
            type_ = type_.element if isinstance(type_, Array) else INT8
            offset += int(step) * type_.size
            continue
        if not isinstance(type_, Struct):
            return checker.error(f"{type_} has no member {step!r}", node.span)
        field = type_.find(step)
        if field is None:
            hints = did_you_mean(step, type_.names())
            message = f"{type_} has no member {step!r}"
            return checker.error(message, node.span, hints=hints, kernel=_of_kernel(type_, checker))
        if field.bit_size:
            return checker.error(f"{step!r} is a bitfield, which has no byte offset", node.span)
        relied.append((type_, field))
        offset, type_ = offset + field.offset, field.type
    if checker.options.ahead:
        if len(node.path) == len(relied) == 1 and _of_kernel(relied[0][0], checker):
            struct, member = relied[0]
            checker.set_fact(node, offset, "member", struct.kind, struct.name, member.name, str(member.type))
            return UINT64
        checker.program.facts[node] = LayoutReliance(type_, tuple(relied))
    checker.set_constant(node, offset)
    return literal(offset)


def type_info(checker: Checker, node: nodes.TypeInfo) -> Type:
    """``typeinfo(x)``: a record of constants, described by a :class:`TypeDescription`."""
    if not unstable(checker, "typeinfo", node):
        return UNKNOWN
    type_ = operand_type(checker, node.operand)
    if isinstance(type_, Unknown):
        return UNKNOWN
    base, full = type_names(type_)
    values = (_btf_id(checker, type_), base.encode(errors="surrogateescape"), full.encode(errors="surrogateescape"))
    members = (
        nodes.IntLiteral(node.span, values[0]),
        nodes.StringLiteral(node.span, values[1]),
        nodes.StringLiteral(node.span, values[2]),
    )
    record = nodes.RecordLiteral(node.span, ("btf_id", "base_type", "full_type"), members)
    record_type = checker.value(record)
    checker.program.facts[node] = TypeDescription(*values, record)
    return record_type


def _btf_id(checker: Checker, type_: Type) -> int:
    """Id of a type in the kernel's BTF; 0 for one that the kernel proper does not define."""
    if isinstance(type_, Struct) and type_.name and type_.origin == "vmlinux":
        return checker.kernel.type_id(type_.kind, type_.name)
    if isinstance(type_, Enum) and type_ == checker.kernel.enum(type_.name):
        return checker.kernel.type_id("enum", type_.name)
    return 0


def type_names(type_: Type) -> tuple[str, str]:
    """The kind of a type in one word, and its full name."""
    return type_.tag, str(type_)
