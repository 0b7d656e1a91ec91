"""Typing rules of expressions: literals, names, variables, maps, conditionals, tuples, and ``comptime``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pytrace.core.builtins import builtin, builtin_names
from pytrace.core.diagnostics import did_you_mean
from pytrace.core.types import (
    BOOL,
    DOUBLE,
    INT64,
    UINT64,
    AddressSpace,
    Avg,
    Count,
    Max,
    Min,
    Pointer,
    Record,
    Stats,
    String,
    Sum,
    Tuple,
    Type,
)
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import (
    INT64_MIN,
    UINT64_MAX,
    UNKNOWN,
    Unknown,
    literal,
    nesting,
    parts,
    settle,
    unify,
)
from pytrace.frontend.check.inference.removed_code import NEVER_REACHED, look, undefined_map
from pytrace.frontend.check.inference.slots import MapState, put_map, unknown_variable
from pytrace.frontend.check.rules import calls
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import LoadTime

# ---------------------------------------------------------------------------------------------- literals and names


def integer(checker: Checker, node: nodes.IntLiteral) -> Type:
    """``5``."""
    if not INT64_MIN <= node.value <= UINT64_MAX:
        return checker.error("the number does not fit 64 bits", node.span)
    checker.set_constant(node, node.value)
    return literal(node.value)


def fraction(_checker: Checker, _node: nodes.FloatLiteral) -> Type:
    """``1.5``."""
    return DOUBLE


def boolean(checker: Checker, node: nodes.BoolLiteral) -> Type:
    """``true``."""
    checker.set_constant(node, node.value)
    return BOOL


def string(checker: Checker, node: nodes.StringLiteral) -> Type:
    """``"text"``."""
    return constant_text(checker, node, node.value)


def constant_text(checker: Checker, node: nodes.Expr, value: bytes) -> Type:
    """A string constant."""
    size = len(value) + 1
    # A literal may always be as long as a default string: a small max_strlen limits str(), not literals.
    limit = max(checker.config.max_strlen, 1024)
    if size > limit:
        hint = f"raise max_strlen in the config block to {size} or more"
        return checker.error(f"the string takes {size} bytes, the limit is {limit}", node.span, hints=[hint])
    checker.set_constant(node, value)
    return String(size)


def parameter(checker: Checker, node: nodes.OpenParameter) -> Type:
    """A parameter that is known only when the ahead-of-time file runs."""
    parts = (node.name, node.form, node.default, str(node.skip))
    checker.program.loaded[node] = LoadTime("parameter", parts)
    if node.form == "text":
        return String(checker.config.max_strlen)
    return BOOL if node.form == "flag" else INT64


def unreplaced_parameter(checker: Checker, node: nodes.Expr) -> Type:
    """``$1``, ``$#`` or ``getopt()`` from a C macro, which the parameters pass does not always see."""
    return checker.error(
        "a C macro that stands for a parameter of the script is not possible here",
        node.span,
        hints=["define it in the script, outside #if and without #undef, or use the parameter directly"],
    )


def identifier(checker: Checker, node: nodes.Identifier) -> Type:
    """A bare name: builtin or enum member."""
    row = builtin(node.name)
    if row is not None and row.bare:
        return calls.check_builtin(checker, node, row, ())
    member = checker.definitions.enumerator(node.name)
    if member is not None:
        kind, value = member
        checker.set_constant(node, value)
        return kind
    hints: Iterable[str]
    constant = checker.definitions.constant(node.name)
    if constant is not None:
        checker.set_constant(node, constant)
        return literal(constant)
    if row is not None:
        return checker.error(f"{row.name} is a function: {row.signature}", node.span)
    if (reason := checker.definitions.no_value(node.name)) is not None:
        notes = [("defined here", reason.span)]
        return checker.error(reason.message, node.span, hints=reason.hints, notes=notes)
    if node.name == "sargN" or (node.name.startswith("sarg") and node.name[4:].isdigit()):
        hints = ('read the stack: *(uint64 *)(reg("sp") + 8 * N)',)
    elif checker.scope.find(node.name) is not None:
        hints = (f"variables are written with '$': ${node.name}",)
    elif node in checker.word_hints:
        hints = (checker.word_hints[node],)
    else:
        hints = did_you_mean(node.name, [*builtin_names(), *checker.functions])
        hints = hints or did_you_mean(node.name, checker.definitions.names("constant"))
        hints = hints or checker.definitions.skipped("a macro of")
    return checker.error(f"unknown name {node.name!r}", node.span, hints=hints)


def variable(checker: Checker, node: nodes.Variable) -> Type:
    """A read of ``$x``."""
    state = checker.scope.find(node.name)
    if state is None:
        unknown_variable(checker, node)
        return UNKNOWN
    state.read = True
    if not state.assigned and not state.offered and not state.loop:
        checker.warn(f"${node.name} is used before it is assigned; it is zero here", node.span)
    checker.bind(node, state)
    if not checker.relies_on(state.slot):
        return UNKNOWN
    type_ = state.slot.type
    if isinstance(type_, Unknown) and checker.final and not state.assigned and not state.loop:
        # Declared and never assigned: zero.
        return INT64
    return type_


# ---------------------------------------------------------------------------------------------- maps


def read_type(type_: Type) -> Type | None:
    """The type of an expression that reads a map with values of type *type_*; None for unreadable aggregates."""
    if isinstance(type_, Count):
        return INT64
    if isinstance(type_, Sum | Avg | Min | Max):
        return INT64 if type_.signed else UINT64
    if isinstance(type_, Stats):
        return type_
    return None if type_.aggregate else type_


def read_map(checker: Checker, node: nodes.MapRef | nodes.MapIndex, state: MapState) -> Type:
    """Type of a map's value when it is read."""
    if not checker.relies_on(state.value):
        return UNKNOWN
    type_ = state.value.type
    if isinstance(type_, Unknown):
        if checker.final:
            return undefined_map(checker, state, node.span)
        return UNKNOWN
    value_type = read_type(type_)
    if value_type is None:
        return checker.error(
            f"a value of {type_} cannot be read by the script", node.span, hints=[f"print({state.name}) prints the map"]
        )
    shared = not type_.aggregate or (state.declaration is not None and state.declaration.kind == "hash")
    if isinstance(node, nodes.MapIndex) and not shared and not checker.kernel.feature("lookup_percpu_elem"):
        hints = ["Linux 5.19 can (bpf_map_lookup_percpu_elem); print() shows the value"]
        message = "this kernel cannot read a key of an aggregation in programs"
        return checker.error(message, node.span, hints=hints, kernel=True)
    return value_type


def use_scalar(checker: Checker, node: nodes.MapRef) -> MapState | None:
    """A map used without key; None after an error."""
    state = checker.map(node)
    return state if _same_shape(checker, state, keyed=False, node=node) else None


def use_keyed(checker: Checker, node: nodes.MapIndex) -> MapState | None:
    """A map used with a key, which is checked; None after an error."""
    state = checker.map(node.map)
    if not _same_shape(checker, state, keyed=True, node=node):
        for key in node.keys:
            checker.value(key)
        return None
    put_key(checker, state, node.keys, node)
    return state


def put_key(checker: Checker, state: MapState, keys: tuple[nodes.Expr, ...], node: nodes.Expr) -> None:
    """Check that *keys* may be the key of a map."""
    key_types = tuple(checker.value(key) for key in keys)
    for key, key_type in zip(keys, key_types, strict=True):
        if isinstance(key_type, Stats) or key_type.aggregate:
            checker.error(f"{key_type} cannot be a key", key.span)
            return
        if _is_context(checker, key_type):
            checker.error("the context cannot be a key: it is gone after the probe", key.span)
            return
    key_type = key_types[0] if len(key_types) == 1 else Tuple(key_types)
    if checker.known(key_type):
        put_map(checker, state.name, state.key, key_type, node.span, "key")


def _is_context(checker: Checker, type_: Type) -> bool:
    context = checker.unit.context.ctx_type if checker.unit is not None else None
    if not isinstance(type_, Pointer) or not isinstance(context, Pointer):
        return False
    return type_.space is AddressSpace.BPF and type_.target == context.target


def _same_shape(checker: Checker, state: MapState, *, keyed: bool, node: nodes.Expr) -> bool:
    if state.keyed is None or (state.keyed_offered and checker.removed is None):
        state.keyed, state.keyed_at, state.keyed_offered = keyed, node.span, checker.removed is not None
    if state.keyed == keyed:
        return True
    place = state.keyed_at or node.span
    if keyed:
        message, first = f"{state.name} has no key, so it cannot be indexed", "used without key here"
    else:
        message, first = f"{state.name} has keys, so it needs one here", "used with a key here"
    checker.error(message, node.span, notes=[(first, place)])
    return False


def map_value(checker: Checker, node: nodes.MapRef) -> Type:
    """A read of ``@x``."""
    state = use_scalar(checker, node)
    return UNKNOWN if state is None else read_map(checker, node, state)


def map_index(checker: Checker, node: nodes.MapIndex) -> Type:
    """A read of ``@x[k]``."""
    state = use_keyed(checker, node)
    return UNKNOWN if state is None else read_map(checker, node, state)


# ---------------------------------------------------------------------------------------------- conditionals


def ternary(checker: Checker, node: nodes.Ternary) -> Type:
    """``c ? a : b`` and ``a ?: b``."""
    decided = checker.condition(node.condition)
    if decided is not None:
        return _decided_ternary(checker, node, decided=decided)
    then = checker.value(node.then) if node.then is not None else checker.program.types[node.condition]
    other = checker.value(node.other)
    return common_type(checker, node, (node.then or node.condition, then), (node.other, other))


def _decided_ternary(checker: Checker, node: nodes.Ternary, *, decided: bool) -> Type:
    chosen = (node.then or node.condition) if decided else node.other
    type_ = checker.program.types[chosen] if chosen is node.condition else checker.value(chosen)
    left = node.other if decided else node.then
    if left is not None:
        look(checker, NEVER_REACHED, partial(checker.value, left))
    value = checker.constant(chosen)
    if value is not None:
        checker.set_constant(node, value)
    return type_


def common_type(
    checker: Checker, node: nodes.Expr, first: tuple[nodes.Node, Type], second: tuple[nodes.Node, Type]
) -> Type:
    """One type for the two branches of a conditional."""
    type_ = unify(first[1], second[1])
    if type_ is None:
        return checker.error(
            f"the branches have different types, {settle(first[1])} and {settle(second[1])}",
            node.span,
            notes=[(f"this is {settle(first[1])}", first[0].span), (f"this is {settle(second[1])}", second[0].span)],
        )
    return type_


def if_value(checker: Checker, node: nodes.If) -> Type:
    """``if`` as a value."""
    return checker.rules.check_if(checker, node, wanted=True)


def block_value(checker: Checker, node: nodes.BlockExpr) -> Type:
    """``{ …; value }``."""
    type_ = checker.rules.check_block(checker, node.block, wanted=True)
    known = checker.constant(node.block.value) if node.block.value is not None else None
    if known is not None and not node.block.statements:
        checker.set_constant(node, known)
    return type_


# ---------------------------------------------------------------------------------------------- tuples and records

MOST_NESTED = 64
"""Maximum nesting of tuples and records that the other passes, the manifest and the output support."""

MOST_PARTS = 1024
"""Maximum number of values in a tuple or record: ``$b = ($a, $a); $c = ($b, $b);`` doubles it in each step."""


def tuple_literal(checker: Checker, node: nodes.TupleLiteral) -> Type:
    """``(a, b)``."""
    return _shallow(checker, node, Tuple(tuple(_member(checker, member) for member in node.members)))


def _shallow(checker: Checker, node: nodes.Expr, type_: Tuple | Record) -> Type:
    """*type_*, or an error if it is nested too deeply or has too many values; a refused type grows no further."""
    count = parts(type_)
    if count > MOST_PARTS:
        return checker.error(f"a value of {count} parts is too large, the limit is {MOST_PARTS}", node.span)
    depth = nesting(type_)
    if depth == MOST_NESTED + 1:
        checker.error(f"values cannot be nested more than {MOST_NESTED} levels deep", node.span)
    return type_ if depth <= MOST_NESTED + 1 else max(type_.members, key=nesting)


def _member(checker: Checker, node: nodes.Expr) -> Type:
    type_ = checker.value(node)
    return checker.error(f"{type_} cannot be part of a value", node.span) if type_.aggregate else type_


def record_literal(checker: Checker, node: nodes.RecordLiteral) -> Type:
    """``(x=a, y=b)``."""
    members = tuple(_member(checker, member) for member in node.members)
    for index, name in enumerate(node.names):
        if name in node.names[:index]:
            return checker.error(f"the field {name!r} appears twice", node.members[index].span)
    return _shallow(checker, node, Record(node.names, members))


# ---------------------------------------------------------------------------------------------- compile time


def comptime(checker: Checker, node: nodes.Comptime) -> Type:
    """``comptime e``."""
    type_ = checker.value(node.operand)
    value = checker.constant(node.operand)
    if value is None:
        if isinstance(type_, Unknown):
            return UNKNOWN
        hints = checker.constant_hints(node.operand)
        return checker.error("this cannot be computed at compile time", node.operand.span, hints=hints)
    checker.set_constant(node, value)
    return type_
