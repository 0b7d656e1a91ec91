"""Provenance of pointers, for helpers that require typed (BTF) pointers.

The verifier loses the type of a pointer that a script stores in a variable. Probe arguments do not change while the
program runs, and usually neither do members reached from them, so the expression that was assigned to the variable is
evaluated again.
"""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.core.types import Pointer
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import CheckedProgram, VariableInfo
from pytrace.frontend.ast.visitor import walk

_ARGUMENTS = frozenset({"args", "ctx"})


def origin(e: Emitter, node: nodes.Expr) -> nodes.Expr:
    """*node* without pointer-to-pointer casts, and with variables replaced by the expressions assigned to them."""
    if e.program.origins is None:
        e.program.origins = _of_variables(e.checked, e.program.unit.body)
    while True:
        if isinstance(node, nodes.Cast) and _is_pointer(e, node) and _is_pointer(e, node.operand):
            node = node.operand
        elif isinstance(node, nodes.Variable) and e.checked.variables[node] in e.program.origins:
            node = e.program.origins[e.checked.variables[node]]
        else:
            return node


def _is_pointer(e: Emitter, node: nodes.Expr) -> bool:
    return isinstance(e.type(node), Pointer)


def _of_variables(checked: CheckedProgram, body: nodes.Block) -> dict[VariableInfo, nodes.Expr]:
    """The assigned expressions of variables that are reached from a probe argument and not changed later."""
    origins: dict[VariableInfo, nodes.Expr] = {}
    changed: set[VariableInfo] = set()
    for node in walk(body):
        if isinstance(node, nodes.Let) and node.value is not None:
            origins[checked.variables[node.variable]] = node.value
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Variable):
            info = checked.variables[node.target]
            if node.operator == "=" and info.span == node.target.span and info not in origins:
                origins[info] = node.value
            else:
                changed.add(info)
        else:
            changed.update(checked.variables[item] for item in _written(node) if item in checked.variables)
    return {info: value for info, value in origins.items() if info not in changed and _lasting(value)}


def _written(node: nodes.Node) -> list[nodes.Variable]:
    """Variables that a node other than an assignment may change."""
    if isinstance(node, nodes.Unary):
        places: tuple[nodes.Node, ...] = (node.operand,) if node.operator in ("++", "--", "&") else ()
    elif isinstance(node, nodes.For):
        places = (node.variable,)
    else:
        places = node.args if isinstance(node, nodes.Call) and node.name == "find" else ()
    return [place for place in places if isinstance(place, nodes.Variable)]


def _lasting(value: nodes.Expr) -> bool:
    """Whether *value* is an argument, a variable, or a member reached from one."""
    while isinstance(value, nodes.Cast | nodes.FieldAccess):
        value = value.operand if isinstance(value, nodes.Cast) else value.base
    return isinstance(value, nodes.Variable) or (isinstance(value, nodes.Identifier) and value.name in _ARGUMENTS)
