"""Resolves type expressions to value types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytrace.base.dispatch import by_class, on
from pytrace.core import types
from pytrace.core.builtins import bare_builtin
from pytrace.core.diagnostics import did_you_mean, similar
from pytrace.core.source import Span
from pytrace.core.types import Array, Buffer, Inet, Pointer, String, Tuple, Type
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, settle
from pytrace.frontend.syntax import nodes

NAMED: dict[str, Type] = {
    "void": types.VOID,
    "bool": types.BOOL,
    "int8": types.INT8,
    "int16": types.INT16,
    "int32": types.INT32,
    "int64": types.INT64,
    "uint8": types.UINT8,
    "uint16": types.UINT16,
    "uint32": types.UINT32,
    "uint64": types.UINT64,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "inet": Inet(),
    "macaddr_t": types.Mac(),
    "timestamp": types.Timestamp(),
    "username": types.Username(),
    "ifname_t": types.InterfaceName(),
    "netns_t": types.NetworkNamespace(),
    "cgroup_path_t": types.CgroupPath(),
    "ksym_t": types.KSym(),
    "usym_t": types.USym(),
    "kstack_t": types.Stack(user=False),
    "ustack_t": types.Stack(user=True),
    "count_t": types.Count(),
    "sum_t": types.Sum(),
    "usum_t": types.Sum(signed=False),
    "avg_t": types.Avg(),
    "uavg_t": types.Avg(signed=False),
    "min_t": types.Min(),
    "umin_t": types.Min(signed=False),
    "max_t": types.Max(),
    "umax_t": types.Max(signed=False),
    "stats_t": types.Stats(),
    "ustats_t": types.Stats(signed=False),
    "hist_t": types.Hist(),
    "lhist_t": types.LHist(),
    "tseries_t": types.TSeries(),
}
"""Types by their names in the language; strings and buffers are in :func:`_named`."""

C_NAMES: dict[str, Type] = {
    "char": types.INT8,
    "short": types.INT16,
    "int": types.INT32,
    "long": types.INT64,
    "unsigned": types.UINT32,
    "u8": types.UINT8,
    "u16": types.UINT16,
    "u32": types.UINT32,
    "u64": types.UINT64,
    "s8": types.INT8,
    "s16": types.INT16,
    "s32": types.INT32,
    "s64": types.INT64,
    "int8_t": types.INT8,
    "int16_t": types.INT16,
    "int32_t": types.INT32,
    "int64_t": types.INT64,
    "uint8_t": types.UINT8,
    "uint16_t": types.UINT16,
    "uint32_t": types.UINT32,
    "uint64_t": types.UINT64,
    "size_t": types.UINT64,
    "ssize_t": types.INT64,
    "uintptr_t": types.UINT64,
}
"""C types that are the same everywhere, for kernels without BTF."""

_SIZED: dict[str, Callable[[int], Type]] = {"string": String, "buffer": Buffer, "inet": lambda _size: Inet()}


def resolve(checker: Checker, node: nodes.TypeExpr) -> Type:
    """The value type that *node* denotes; UNKNOWN after an error.

    A ``string`` without capacity is ``String(0)``, an array without count ``Array(element, 0)``: the user of the
    type fills them in.
    """
    return _RULES[type(node)](checker, node)


def _named(checker: Checker, node: nodes.NamedType) -> Type:
    sized = _SIZED.get(node.name)
    if sized is not None and (node.capacity is not None or node.name != "inet"):
        return sized(node.capacity or 0)
    type_ = NAMED.get(node.name) or checker.definitions.typedef(node.name) or C_NAMES.get(node.name)
    if type_ is None:
        type_ = _untagged(checker, node)
    if type_ is None:
        hints = _type_hints(node.name) or checker.definitions.skipped("defined in")
        return checker.error(f"there is no type {node.name!r}", node.span, hints=hints)
    if isinstance(type_, types.Stack) and checker.config.max_stack_depth > type_.limit:
        return types.Stack(type_.user, checker.config.max_stack_depth, chunked=True)
    return type_


def _type_hints(name: str) -> tuple[str, ...]:
    """Types with similar names; a common suffix ``_t`` does not count."""
    ending = name.endswith("_t")
    known = sorted((*NAMED, *_SIZED, *C_NAMES), key=lambda item: item.endswith("_t") == ending)
    stems = {item.removesuffix("_t"): item for item in known}
    suggestions = [stems[stem] for stem in similar(name.removesuffix("_t"), stems)]
    return (f"did you mean {' or '.join(repr(item) for item in suggestions)}?",) if suggestions else ()


def _untagged(checker: Checker, node: nodes.NamedType) -> Type | None:
    """``task_struct`` without ``struct``, as in scripts for early versions of bpftrace."""
    for kind in ("struct", "union"):
        struct = checker.definitions.struct(kind, node.name)
        if struct is not None:
            checker.warn(f"{node.name!r} is the name of a {kind}", node.span, hints=[f"write {kind} {node.name}"])
            return struct
    return None


def _struct(checker: Checker, node: nodes.StructTypeExpr) -> Type:
    return _tagged(checker, node, node.span)


def _tagged(checker: Checker, node: nodes.StructTypeExpr, place: Span) -> Type:
    """``struct X``, ``union X`` or ``enum X``, or the target of a pointer; *place* is the whole type, for messages."""
    definitions = checker.definitions
    type_ = definitions.enum(node.name) if node.kind == "enum" else definitions.struct(node.kind, node.name)
    if type_ is None:
        # Suggestions need all type names of the kernel, which are slow to read, so they are collected on errors only.
        hints = did_you_mean(node.name, definitions.names(node.kind)) or definitions.skipped("defined in")
        return checker.error(f"unknown {node.kind} {node.name!r}", place, hints=hints, kernel=True)
    return type_


def _pointer(checker: Checker, node: nodes.PointerTypeExpr) -> Type:
    target = node.target
    if isinstance(target, nodes.StructTypeExpr):
        pointee = _tagged(checker, target, target.span if target.kind == "enum" else node.span)
    else:
        pointee = resolve(checker, target)
    return UNKNOWN if isinstance(pointee, Unknown) else Pointer(pointee)


def _array(checker: Checker, node: nodes.ArrayTypeExpr) -> Type:
    element = resolve(checker, node.element)
    if isinstance(element, Unknown):
        return UNKNOWN
    if node.count is None:
        return Array(element, 0)
    count = checker.constant_integer(node.count, "the number of elements")
    if count is None:
        return UNKNOWN
    if count < 1:
        return checker.error(f"an array cannot have {count} elements", node.count.span)
    return Array(element, count)


def _tuple(checker: Checker, node: nodes.TupleTypeExpr) -> Type:
    members = tuple(_sized(checker, resolve(checker, member)) for member in node.members)
    return UNKNOWN if any(isinstance(member, Unknown) for member in members) else Tuple(members)


def _sized(checker: Checker, type_: Type) -> Type:
    """Set the capacity of a ``string`` inside another type, which no value determines."""
    return String(checker.config.max_strlen) if isinstance(type_, String) and not type_.capacity else type_


def _typeof(checker: Checker, node: nodes.TypeofExpr) -> Type:
    return operand_type(checker, node.operand)


def operand_type(checker: Checker, operand: nodes.Expr | nodes.TypeExpr) -> Type:
    """The operand type of ``typeof``, ``sizeof`` and the like; the types that it depends on are locked."""
    if isinstance(operand, nodes.TypeExpr):
        return resolve(checker, operand)
    if isinstance(operand, nodes.Identifier):
        type_ = _bare(checker, operand.name)
        if type_ is not None:
            return type_
    if isinstance(operand, nodes.MapRef) and checker.map(operand).keyed is not False:
        return _key_type(checker, operand)
    return settle(checker.unevaluated(operand))


def _key_type(checker: Checker, operand: nodes.MapRef) -> Type:
    """The type of a bare map name: a keyed map stands for its key. A later statement may decide whether it is keyed."""
    state = checker.map(operand)
    if state.keyed is None:
        return checker.unevaluated(operand) if checker.final else UNKNOWN
    with checker.lock(operand.span):
        return settle(state.key.type) if checker.relies_on(state.key) else UNKNOWN


def _bare(checker: Checker, name: str) -> Type | None:
    """The C type that a bare name denotes in ``sizeof(pid_t)``, unless it is the name of a value."""
    if bare_builtin(name) or checker.definitions.enumerator(name) is not None:
        return None
    return checker.definitions.typedef(name) or C_NAMES.get(name)


_RULES: Mapping[type[nodes.TypeExpr], Callable[[Checker, nodes.TypeExpr], Type]] = by_class(
    on(nodes.NamedType, _named),
    on(nodes.StructTypeExpr, _struct),
    on(nodes.PointerTypeExpr, _pointer),
    on(nodes.ArrayTypeExpr, _array),
    on(nodes.TupleTypeExpr, _tuple),
    on(nodes.TypeofExpr, _typeof),
)
