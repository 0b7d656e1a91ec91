"""Rules of declarations and assignments: values that are stored in variables and maps."""

from __future__ import annotations

from msgspec.structs import replace

from pytrace.core.source import Span
from pytrace.core.types import Bool, Int, Stats, String, Void
from pytrace.frontend.check.inference import type_names
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import Flexible, Unknown, is_integer, settle
from pytrace.frontend.check.inference.slots import MapState, declare_new, flexible_string, put, put_map
from pytrace.frontend.check.rules import calls, expressions, operators
from pytrace.frontend.syntax import nodes

# ---------------------------------------------------------------------------------------------- variables


def let(checker: Checker, node: nodes.Let) -> None:
    """``let $x: T = value``."""
    type_ = type_names.resolve(checker, node.type) if node.type is not None else None
    value_type = checker.value(node.value) if node.value is not None else None
    state = declare_new(checker, node.variable, _let_head(node), declared=True)
    if type_ is not None and (type_.aggregate or isinstance(type_, Void | Stats)):
        checker.error(f"a variable cannot be {type_}", node.span)
        return
    if isinstance(type_, Unknown):
        state.assigned = True
        return
    if type_ is not None and flexible_string(type_):
        # The values that are assigned determine its capacity; until then it is an empty string.
        state.slot.takes(String(1), node.span)
    elif type_ is not None:
        state.slot.fixed = type_
    if value_type is None:
        return
    if value_type.aggregate or isinstance(value_type, Stats):
        checker.error(f"{settle(value_type)} cannot be stored in a variable", node.span)
        return
    if type_ is not None and flexible_string(type_) and not isinstance(value_type, String | Unknown):
        checker.error(f"${state.name} is a string, this is {settle(value_type)}", node.span)
        return
    put(checker, state, value_type, node.span, known=_known(checker, node.value))


def _known(checker: Checker, value: nodes.Expr | None) -> bool:
    return value is not None and checker.constant(value) is not None


def _let_head(node: nodes.Let) -> Span:
    """The ``let $x`` of a declaration; the whole declaration if the variable is the argument of a macro."""
    inner = node.variable.span
    if inner.source is not node.span.source or not node.span.start <= inner.start < inner.end <= node.span.end:
        return node.span
    return replace(node.span, end=inner.end)


def assign(checker: Checker, node: nodes.Assign) -> None:
    """``target op value``."""
    target = node.target
    if isinstance(target, nodes.Variable):
        _assign_variable(checker, node, target)
    elif isinstance(target, nodes.MapRef | nodes.MapIndex):
        _assign_map(checker, node, target)
    else:
        checker.value(node.value)
        checker.error("only variables and maps can be assigned to", target.span)


def _assign_variable(checker: Checker, node: nodes.Assign, target: nodes.Variable) -> None:
    value_type = checker.value(node.value)
    state = checker.scope.find(target.name)
    if value_type.aggregate or isinstance(value_type, Stats):
        checker.error(f"{settle(value_type)} cannot be stored in a variable", node.value.span)
        return
    if node.operator != "=":
        current = checker.value(target)
        if state is None:
            return
        stored = operators.compound(checker, node, current, value_type)
        fixed = state.slot.fixed
        if isinstance(fixed, Int) and is_integer(stored):
            # ``$x += 1`` on a declared variable wraps around as in C.
            stored = fixed
        put(checker, state, stored, node.span)
        return
    if state is None:
        state = checker.declare(target, node.span)
    put(checker, state, value_type, node.span, known=_known(checker, node.value))
    checker.bind(target, state)


# ---------------------------------------------------------------------------------------------- maps


def _assign_map(checker: Checker, node: nodes.Assign, target: nodes.MapRef | nodes.MapIndex) -> None:
    if isinstance(target, nodes.MapRef):
        state = expressions.use_scalar(checker, target)
    else:
        state = expressions.use_keyed(checker, target)
    call = calls.aggregate_call(node.value)
    if call is not None:
        _assign_aggregate(checker, node, call, target, state)
        return
    value_type = checker.value(node.value)
    if state is None:
        return
    if node.operator != "=":
        current = state.value.type
        if current.aggregate:
            checker.error(f"{state.name} is {current}, which only its function updates", node.span)
            return
        value_type = operators.compound(checker, node, current, value_type)
    elif _copies_aggregate(checker, node, state):
        return
    if isinstance(value_type, Stats):
        checker.error(f"{value_type} cannot be stored", node.span)
        return
    put_map(checker, state.name, state.value, value_type, node.span, "value")
    checker.program.types[target] = state.value.type


def _assign_aggregate(
    checker: Checker,
    node: nodes.Assign,
    call: nodes.Expr,
    target: nodes.MapRef | nodes.MapIndex,
    state: MapState | None,
) -> None:
    around, checker.aggregate = checker.aggregate, call
    type_ = checker.value(node.value)
    checker.aggregate = around
    if state is None:
        return
    if node.operator != "=":
        checker.error(f"{settle(type_)} can only be assigned with =", node.span)
        return
    put_map(checker, state.name, state.value, type_, node.value.span, "value")
    checker.program.types[target] = state.value.type


def _copies_aggregate(checker: Checker, node: nodes.Assign, state: MapState) -> bool:
    """Refuse ``@a = @b`` when @b is an aggregate and @a does not hold integers anyway."""
    value = node.value
    if not isinstance(value, nodes.MapRef | nodes.MapIndex):
        return False
    name = value.name if isinstance(value, nodes.MapRef) else value.map.name
    source = checker.maps[name].value.type
    if not source.aggregate or isinstance(state.value.type, Int | Flexible | Bool):
        return False
    if checker.final or not isinstance(state.value.type, Unknown):
        signed = expressions.read_type(source)
        checker.error(
            f"{name} is {source}, which cannot be copied",
            node.span,
            hints=[f"store its present value: ({signed}){value.span.text}"] if isinstance(signed, Int) else [],
        )
    return True
