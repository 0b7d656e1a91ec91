"""Typing rules of explicit casts."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.source import expansion_chain
from pytrace.core.types import (
    AddressSpace,
    Array,
    Bool,
    Buffer,
    Enum,
    Float,
    Int,
    InterfaceName,
    KSym,
    NetworkNamespace,
    Pointer,
    String,
    Struct,
    Type,
    Username,
    USym,
    Void,
)
from pytrace.frontend.check.inference import constant_folding
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import Flexible, Unknown, is_integer, settle
from pytrace.frontend.check.inference.type_names import resolve
from pytrace.frontend.check.rules import members
from pytrace.frontend.check.rules.operators import cast_span
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import SCRIPT_ORIGIN

_SCALARS = Int | Flexible | Enum | Bool | Pointer


def cast(checker: Checker, node: nodes.Cast) -> Type:
    """``(T)operand``."""
    target = resolve(checker, node.type)
    source = checker.value(node.operand)
    if isinstance(target, Unknown) or isinstance(source, Unknown):
        return target
    rule = next((rule for kind, rule in _TARGETS if isinstance(target, kind)), None)
    result = None if rule is None else rule(checker, node, target, source)
    if result is None:
        if source == target:
            return target
        return checker.error(f"cannot cast {settle(source)} to {target}", node.span)
    _warn_same(checker, node, result, source)
    return result


def _warn_same(checker: Checker, node: nodes.Cast, target: Type, source: Type) -> None:
    operand = node.operand
    read = isinstance(operand, nodes.MapRef | nodes.MapIndex)
    # A cast in a macro serves arguments of all types; literals take the type that is needed.
    unknown = isinstance(source, Flexible) or bool(expansion_chain(node.span)) or _of_machine(checker, operand)
    if source != target or unknown or isinstance(node.type, nodes.TypeofExpr) or read:
        return
    checker.warn(f"the value already has type {target}", cast_span(node), hints=["leave the cast out"])


_MACHINE_TYPED = frozenset({"retval", "ctx"})
"""Builtins whose type comes from BTF or DWARF; that of ``curtask`` is the same everywhere, and bpftrace warns, too."""


def _of_machine(checker: Checker, node: nodes.Expr) -> bool:
    """Whether the type of a value comes from BTF or DWARF: on another machine it may differ, so scripts cast it."""
    while isinstance(node, nodes.FieldAccess | nodes.Index) or (isinstance(node, nodes.Unary) and node.operator == "*"):
        base = node.operand if isinstance(node, nodes.Unary) else node.base
        if isinstance(node, nodes.FieldAccess):
            type_ = checker.program.types.get(base)
            struct = type_.target if isinstance(type_, Pointer) else type_
            of_script = isinstance(struct, Struct) and struct.origin.startswith(SCRIPT_ORIGIN)
            if checker.program.fields[node].how != "record" and not of_script:
                return True
        node = base
    return isinstance(node, nodes.Identifier | nodes.Call) and node.name in _MACHINE_TYPED


def _to_integer(checker: Checker, node: nodes.Cast, target: Type, source: Type) -> Type | None:
    assert isinstance(target, Int)
    if isinstance(source, Float):
        return target
    if isinstance(source, _SCALARS):
        value = checker.constant(node.operand)
        if isinstance(value, int):
            checker.set_constant(node, constant_folding.wrap(int(value), target))
        return target
    if isinstance(source, Array) and source.size == target.width:
        return target
    if isinstance(source, KSym | USym | Username | InterfaceName | NetworkNamespace):
        return target
    if isinstance(source, String) and checker.constant(node.operand) is None and source.capacity == target.width:
        # Character arrays in structs are strings, but a script may need their bytes as a number.
        return target
    return None


def _to_bool(checker: Checker, node: nodes.Cast, target: Type, source: Type) -> Type | None:
    if not isinstance(source, _SCALARS | String):
        return None
    value = checker.constant(node.operand)
    if isinstance(value, int | bytes):
        checker.set_constant(node, bool(value.partition(b"\0")[0] if isinstance(value, bytes) else value))
    return target


def _to_fraction(checker: Checker, node: nodes.Cast, target: Type, source: Type) -> Type | None:
    """A ``float`` as a ``double``; bytes as a number."""
    if isinstance(source, Float) and source.size <= target.size:
        return target
    if isinstance(source, Array) and source.size == target.size:
        return target
    if is_integer(source):
        hints = [f"*({target} *)ADDRESS reads one"]
        return checker.error(f"an integer cannot be cast to {target}", node.span, hints=hints)
    return None


def _to_enum(checker: Checker, node: nodes.Cast, target: Type, source: Type) -> Type | None:
    assert isinstance(target, Enum)
    if not isinstance(source, Int | Flexible | Enum | Bool):
        return None
    value = checker.constant(node.operand)
    if isinstance(value, int):
        if all(value != number for _name, number in target.members):
            return checker.error(f"{value} is not a member of {target}", node.span)
        checker.set_constant(node, int(value))
    return target


def _to_pointer(checker: Checker, node: nodes.Cast, target: Type, source: Type) -> Type | None:
    assert isinstance(target, Pointer)
    if isinstance(source, Pointer):
        trusted = source.trusted and source.target == target.target
        return Pointer(target.target, source.space if target.space is AddressSpace.NONE else target.space, trusted)
    if isinstance(source, Array | String):
        space = _space(checker, node.operand)
        if space is None:
            return None
        return Pointer(target.target, space if target.space is AddressSpace.NONE else target.space)
    if not isinstance(source, Int | Flexible | Enum):
        return None
    mark = members.mark_of_number(checker, node.operand)
    if mark is not None and target.space is AddressSpace.NONE:
        return Pointer(target.target, mark)
    value = checker.constant(node.operand)
    if isinstance(value, int):
        # As in bpftrace: numbers are zero-extended to addresses, also negative ones.
        checker.set_constant(node, constant_folding.wrap(int(value), Int(settle(source).size, signed=False)))
    return target


def _space(checker: Checker, node: nodes.Expr) -> AddressSpace | None:
    """The address space of an array that decays to a pointer; None when it has no address."""
    while isinstance(node, nodes.FieldAccess | nodes.Index):
        base = checker.program.types.get(node.base)
        if isinstance(base, Pointer):
            return base.space
        path = checker.program.fields.get(node) if isinstance(node, nodes.FieldAccess) else None
        if path is not None and path.how == "argument":
            return AddressSpace.KERNEL
        node = node.base
    if isinstance(node, nodes.Variable | nodes.MapRef | nodes.MapIndex):
        return AddressSpace.BPF
    if isinstance(node, nodes.Unary) and node.operator == "*":
        followed = checker.program.types.get(node.operand)
        return followed.space if isinstance(followed, Pointer) else None
    return None


def _to_array(checker: Checker, node: nodes.Cast, target: Type, source: Type) -> Type | None:
    assert isinstance(target, Array)
    size = settle(source).size
    if isinstance(source, Int | Flexible | Enum | Bool):
        return _integer_to_array(checker, node, target, source)
    if isinstance(source, String | Array | Buffer):
        if target.count == 0:
            target = Array(target.element, max(1, size // max(1, target.element.size)))
        if isinstance(source, Array) and source.size != target.size:
            return None
        return target
    return None


def _integer_to_array(checker: Checker, node: nodes.Cast, target: Array, source: Type) -> Type | None:
    if not isinstance(target.element, Int | Bool):
        return None
    value = checker.constant(node.operand)
    size = settle(source).size
    if target.count == 0:
        count = size // target.element.size
        return Array(target.element, count) if count else None
    if target.size == size:
        return target
    if isinstance(value, int) and isinstance(source, Flexible) and target.size in (1, 2, 4, 8):
        # A literal has no width of its own: it takes the array's when it fits.
        carrier = Int(target.size, signed=value < 0)
        if carrier.low <= value <= carrier.high:
            checker.program.types[node.operand] = carrier
            return target
    message = f"{settle(source)} has {size} bytes, {target} has {target.size}"
    return checker.error(message, node.span, hints=[_fitting(target)])


def _fitting(target: Array) -> str:
    if target.size in (1, 2, 4, 8):
        return f"cast the value to int{8 * target.size} first"
    return "only arrays of 1, 2, 4 or 8 bytes can be made from an integer"


def _to_string(_checker: Checker, _node: nodes.Cast, target: Type, source: Type) -> Type | None:
    assert isinstance(target, String)
    if not isinstance(source, String | Array):
        return None
    return target if target.capacity else String(source.size)


def _to_struct(checker: Checker, node: nodes.Cast, target: Type, _source: Type) -> Type | None:
    return checker.error(f"nothing can be cast to {target}", node.span, hints=[f"cast a pointer: ({target} *)…"])


def _to_void(checker: Checker, node: nodes.Cast, _target: Type, _source: Type) -> Type | None:
    return checker.error("nothing can be cast to void", node.span)


_TARGETS: tuple[tuple[type[Type], Callable[[Checker, nodes.Cast, Type, Type], Type | None]], ...] = (
    (Int, _to_integer),
    (Float, _to_fraction),
    (Bool, _to_bool),
    (Enum, _to_enum),
    (Pointer, _to_pointer),
    (Array, _to_array),
    (String, _to_string),
    (Struct, _to_struct),
    (Void, _to_void),
)

