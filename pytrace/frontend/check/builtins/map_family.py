"""Builtins that work on maps."""

from __future__ import annotations

from pytrace.core.event_layout import EmptiedMap
from pytrace.core.types import BOOL, INT64, VOID, Stack, Stats, Type
from pytrace.frontend.check.builtins.output_family import require_map
from pytrace.frontend.check.inference.argument_checks import expression
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, settle
from pytrace.frontend.check.inference.resources import send
from pytrace.frontend.check.inference.slots import MapState, put
from pytrace.frontend.check.rules.expressions import put_key, read_type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapAccess


def _map_argument(
    checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr
) -> tuple[nodes.MapRef, MapState] | None:
    if not isinstance(arg, nodes.MapRef):
        checker.error(f"{node.name}() takes a map", node.span)
        return None
    return arg, checker.map(arg)


def emptied(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``clear(@m)`` and ``zero(@m)``."""
    argument = _map_argument(checker, node, arguments[0])
    if argument is not None:
        target, state = argument
        checker.program.types[target] = require_map(checker, target, state)
        send(checker, node, node.name, EmptiedMap(target.name))
    return VOID


def delete(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``delete(@m, key)``, ``delete(@scalar)`` and the old ``delete(@m[key])``."""
    first = expression(checker, arguments[0])
    if isinstance(first, nodes.MapIndex) and len(arguments) == 1:
        return _with_keys(checker, node, first.map, first.keys)
    argument = _map_argument(checker, node, first)
    if argument is None:
        return BOOL
    target, state = argument
    if len(arguments) > 1:
        return _with_keys(checker, node, target, (expression(checker, arguments[1]),))
    require_map(checker, target, state)
    if state.keyed:
        hints = ["clear() removes all"]
        checker.error(f"{target.name} has keys: delete() needs the one to remove", node.span, hints=hints)
    checker.program.facts[node] = MapAccess(target.name)
    return BOOL


def has_key(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``has_key(@m, key)``."""
    argument = _map_argument(checker, node, arguments[0])
    if argument is None:
        return BOOL
    return _with_keys(checker, node, argument[0], (expression(checker, arguments[1]),))


def _with_keys(checker: Checker, node: Node, target: nodes.MapRef, keys: tuple[nodes.Expr, ...]) -> Type:
    state = checker.map(target)
    if state.keyed is False:
        notes = [("used without key here", state.keyed_at)] if state.keyed_at is not None else []
        checker.error(f"{target.name} has no keys", node.span, notes=notes)
        return BOOL
    put_key(checker, state, keys, node)
    require_map(checker, target, state)
    checker.program.facts[node] = MapAccess(target.name, keys)
    return BOOL


def find(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``find(@m, key, $v)``."""
    argument = _map_argument(checker, node, arguments[0])
    if argument is None:
        return BOOL
    target, state = argument
    _with_keys(checker, node, target, (expression(checker, arguments[1]),))
    variable = arguments[2]
    if not isinstance(variable, nodes.Variable):
        checker.error("the third argument of find() is a variable", node.span)
        return BOOL
    type_ = read_type(state.value.type)
    if type_ is None or isinstance(type_, Stats):
        checker.error(f"find() cannot read {state.value.type}", node.span)
        return BOOL
    held = checker.scope.find(variable.name)
    if held is None:
        held = checker.declare(variable, variable.span)
    put(checker, held, type_, node.span)
    checker.bind(variable, held)
    return BOOL


def length(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``len(@m)`` and ``len(stack)``."""
    first = expression(checker, arguments[0])
    state = checker.map(first) if isinstance(first, nodes.MapRef) else None
    if state is not None and state.keyed is False and isinstance(state.value.type, Stack):
        state = None  # the frames of the stack that it holds
    if isinstance(first, nodes.MapRef) and state is not None:
        require_map(checker, first, state)
        if state.keyed is False:
            checker.error(f"{first.name} has no keys to count", node.span)
        elif not checker.kernel.feature("for_each_map_elem"):
            hints = ["Linux 5.13 can (bpf_for_each_map_elem)"]
            checker.error("this kernel cannot count the keys of maps in programs", node.span, hints=hints, kernel=True)
        checker.program.facts[node] = MapAccess(first.name)
        return INT64
    type_ = checker.value(first)
    if not isinstance(type_, Stack | Unknown):
        checker.error(f"len() takes a map or a stack, not {settle(type_)}", node.span)
    return INT64


def is_scalar(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``is_scalar(@m)``."""
    argument = _map_argument(checker, node, arguments[0])
    if argument is None:
        return BOOL
    keyed = argument[1].keyed
    if keyed is None and not checker.final:
        return UNKNOWN
    checker.set_constant(node, not keyed)
    return BOOL
