"""Typing rules of type queries: ``sizeof``, ``offsetof``, ``typeinfo``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.types import INT8, UINT64, Array, Enum, Field, Pointer, String, Struct, Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.compile_time_facts import LayoutReliance, TypeDescription
from pytrace.frontend.check.inference.argument_checks import unstable
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, literal
from pytrace.frontend.check.inference.type_names import operand_type

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker


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
            return checker.error(f"{type_} has no member {step!r}", node.span, hints=hints)
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
