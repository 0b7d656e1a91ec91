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
    kind = operand_type(checker, node.operand)
    if isinstance(kind, Unknown):
        return UINT64
    if checker.options.ahead:
        if _of_kernel(kind, checker):
            checker.set_fact(node, kind.size, "size", kind.kind, kind.name)
            return UINT64
        checker.program.facts[node] = LayoutReliance(kind)
    checker.set_constant(node, kind.size)
    return literal(kind.size)


def _of_kernel(kind: Type, checker: Checker) -> TypeGuard[Struct]:
    return isinstance(kind, Struct) and bool(kind.name) and checker.kernel.struct(kind.kind, kind.name) == kind


def offset_of(checker: Checker, node: nodes.Offsetof) -> Type:
    """``offsetof(T or expression, a.b[2].c)``."""
    kind = operand_type(checker, node.operand)
    if isinstance(kind, Unknown):
        return UINT64
    if isinstance(kind, Pointer) and isinstance(node.operand, nodes.Expr):
        kind = kind.target
    offset = 0
    relied: list[tuple[Struct, Field]] = []
    for step in node.path:
        if step.isdigit():
            if not isinstance(kind, Array | String):
                return checker.error(f"{kind} cannot be indexed by {step}", node.span)
            # Arrays of characters are strings.
            kind = kind.element if isinstance(kind, Array) else INT8
            offset += int(step) * kind.size
            continue
        if not isinstance(kind, Struct):
            return checker.error(f"{kind} has no member {step!r}", node.span)
        found = kind.find(step)
        if found is None:
            hints = did_you_mean(step, kind.names())
            return checker.error(f"{kind} has no member {step!r}", node.span, hints=hints)
        if found.bit_size:
            return checker.error(f"{step!r} is a bitfield, which has no byte offset", node.span)
        relied.append((kind, found))
        offset, kind = offset + found.offset, found.type
    if checker.options.ahead:
        if len(node.path) == len(relied) == 1 and _of_kernel(relied[0][0], checker):
            struct, member = relied[0]
            checker.set_fact(node, offset, "member", struct.kind, struct.name, member.name, str(member.type))
            return UINT64
        checker.program.facts[node] = LayoutReliance(kind, tuple(relied))
    checker.set_constant(node, offset)
    return literal(offset)


def type_info(checker: Checker, node: nodes.TypeInfo) -> Type:
    """``typeinfo(x)``: a record of constants, described by a :class:`TypeDescription`."""
    if not unstable(checker, "typeinfo", node):
        return UNKNOWN
    kind = operand_type(checker, node.operand)
    if isinstance(kind, Unknown):
        return UNKNOWN
    base, full = type_names(kind)
    values = (_btf_id(checker, kind), base.encode(), full.encode())
    members = (
        nodes.IntLiteral(node.span, values[0]),
        nodes.StringLiteral(node.span, values[1]),
        nodes.StringLiteral(node.span, values[2]),
    )
    record = nodes.RecordLiteral(node.span, ("btf_id", "base_type", "full_type"), members)
    found = checker.value(record)
    checker.program.facts[node] = TypeDescription(*values, record)
    return found


def _btf_id(checker: Checker, kind: Type) -> int:
    """Id of a type in the kernel's BTF; 0 for one that the kernel proper does not define."""
    if isinstance(kind, Struct) and kind.name and kind.origin == "vmlinux":
        return checker.kernel.type_id(kind.kind, kind.name)
    if isinstance(kind, Enum) and kind == checker.kernel.enum(kind.name):
        return checker.kernel.type_id("enum", kind.name)
    return 0


def type_names(kind: Type) -> tuple[str, str]:
    """The kind of a type in one word, and its full name."""
    return kind.tag, str(kind)
