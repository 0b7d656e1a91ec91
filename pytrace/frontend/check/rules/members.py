"""Typing rules of members, tuple fields and elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.base.fast_dataclass import replace
from pytrace.core.diagnostics import did_you_mean
from pytrace.core.probes.targets import TracepointTarget
from pytrace.core.types import INT8, UINT8, AddressSpace, Array, Pointer, Record, String, Struct, Tuple, Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.compile_time_facts import BoundsCheck, TypeDescription
from pytrace.frontend.ast.typed_program import FieldPath
from pytrace.frontend.check.inference.argument_checks import require_args
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, is_integer, settle

if TYPE_CHECKING:
    from pytrace.frontend.ast.typed_program import ProbeArgument
    from pytrace.frontend.check.inference.checker import Checker


def inherit(kind: Type, base: Pointer) -> Type:
    """The type of a value reached through *base*: its pointers are in the same address space unless they have one."""
    if not isinstance(kind, Pointer) or kind.space is not AddressSpace.NONE:
        return kind
    space = AddressSpace.KERNEL if base.space is AddressSpace.BPF else base.space
    return Pointer(kind.target, space, base.trusted)


def loaded(kind: Type) -> Type:
    """The type of a value once it is read from memory: character arrays are strings."""
    if isinstance(kind, Array) and kind.element == INT8 and kind.count > 0:
        return String(kind.count)
    return kind


# ---------------------------------------------------------------------------------------------- members


def field_access(checker: Checker, node: nodes.FieldAccess) -> Type:
    """``base.name``."""
    base = node.base
    if isinstance(base, nodes.Identifier) and base.name == "args":
        return _argument(checker, node, base)
    kind = checker.value(base)
    if isinstance(kind, Unknown):
        return UNKNOWN
    if isinstance(kind, Record):
        return _record_field(checker, node, kind)
    if isinstance(kind, Pointer) and isinstance(kind.target, Struct):
        found = _struct_field(checker, node, kind.target, "pointer")
        return inherit(found, kind)
    if isinstance(kind, Struct):
        return _struct_field(checker, node, kind, "memory")
    if isinstance(kind, Pointer) and isinstance(kind.target, Record):
        return checker.error("a pointer to a record has no members", node.span)
    hints = ["cast it to a pointer to a struct first"] if is_integer(kind) or isinstance(kind, Pointer) else []
    return checker.error(f"{settle(kind)} has no member {node.name!r}", node.span, hints=hints)


def _argument(checker: Checker, node: nodes.FieldAccess, base: nodes.Identifier) -> Type:
    if not require_args(checker, base) or checker.unit is None:
        return UNKNOWN
    found = checker.unit.context.argument(node.name)
    if found is None:
        known = [item.name for item in checker.unit.context.arguments]
        hints = did_you_mean(node.name, known) or ((f"there are {', '.join(known)}",) if known else ())
        return checker.error(f"the probe has no argument {node.name!r}", node.span, hints=hints)
    kind = argument_type(checker, found)
    checker.program.fields[node] = FieldPath("argument", kind, argument=found)
    return loaded(kind)


def argument_type(checker: Checker, found: ProbeArgument) -> Type:
    """Type of a member of ``args``; the pointers of system call tracepoints are the caller's."""
    kind = found.type
    unit = checker.unit
    if isinstance(kind, Pointer) and kind.space is AddressSpace.NONE and unit is not None and unit.targets:
        place = unit.targets[0].place
        if isinstance(place, TracepointTarget) and place.category == "syscalls":
            return replace(kind, space=AddressSpace.USER)
    return kind


def _record_field(checker: Checker, node: nodes.FieldAccess, kind: Record) -> Type:
    if node.name not in kind.names:
        hints = did_you_mean(node.name, kind.names)
        return checker.error(f"the record has no field {node.name!r}", node.span, hints=hints)
    index = kind.names.index(node.name)
    settled = settle(kind)
    assert isinstance(settled, Record)
    checker.program.fields[node] = FieldPath("record", settle(kind.members[index]), settled.offsets[index], index=index)
    description = checker.program.find_fact(node.base, TypeDescription)
    if description is not None:
        checker.set_constant(node, description.values[index])
    return kind.members[index]


def _struct_field(checker: Checker, node: nodes.FieldAccess, kind: Struct, how: str) -> Type:
    found = kind.find(node.name)
    if found is None:
        hints = did_you_mean(node.name, kind.names())
        if not kind.fields and kind.size == 0:
            hints = (f"{kind} is an incomplete type here: its members are not known",)
        return checker.error(f"{kind} has no member {node.name!r}", node.span, hints=hints)
    checker.program.fields[node] = FieldPath(how, found.type, found.offset, found.bit_offset, found.bit_size)
    return loaded(found.type)


# ---------------------------------------------------------------------------------------------- tuples, elements


def tuple_access(checker: Checker, node: nodes.TupleAccess) -> Type:
    """``base.0``."""
    kind = checker.value(node.base)
    if isinstance(kind, Unknown):
        return UNKNOWN
    if not isinstance(kind, Tuple):
        return checker.error(f"{settle(kind)} is not a tuple", node.span)
    return _tuple_member(checker, node, kind, node.index)


def _tuple_member(checker: Checker, node: nodes.Expr, kind: Tuple, index: int) -> Type:
    if not 0 <= index < len(kind.members):
        return checker.error(f"the tuple has {len(kind.members)} fields, so there is no field {index}", node.span)
    return kind.members[index]


def index(checker: Checker, node: nodes.Index) -> Type:
    """``base[index]``."""
    kind = checker.value(node.base)
    at = checker.integer(node.index, "the index")
    if isinstance(kind, Unknown) or isinstance(at, Unknown):
        return UNKNOWN
    number = checker.constant(node.index)
    fixed = number if isinstance(number, int) else None
    if isinstance(kind, Tuple):
        if fixed is None:
            return checker.error("the index of a tuple must be a constant", node.index.span)
        return _tuple_member(checker, node, kind, fixed)
    if isinstance(kind, Pointer):
        return _pointed(checker, node, kind)
    if isinstance(kind, Array | String):
        return _element(checker, node, kind, fixed)
    return checker.error(f"{settle(kind)} cannot be indexed", node.span)


def _pointed(checker: Checker, node: nodes.Index, kind: Pointer) -> Type:
    if kind.target.size == 0 and not isinstance(kind.target, Array):
        return checker.error(f"{kind} cannot be indexed: the size of {kind.target} is not known", node.span)
    return loaded(inherit(kind.target, kind))


def _element(checker: Checker, node: nodes.Index, kind: Array | String, fixed: int | None) -> Type:
    count = kind.count if isinstance(kind, Array) else kind.capacity
    if fixed is not None and (fixed < 0 or (fixed >= count and count > 0)):
        return checker.error(f"index {fixed} is outside of {kind}, which has {count} elements", node.span)
    checker.program.facts[node] = BoundsCheck(fixed is None and count > 0)
    if isinstance(kind, String):
        return UINT8
    element = loaded(kind.element)
    base = checker.program.types.get(node.base)
    return inherit(element, base) if isinstance(base, Pointer) else element
