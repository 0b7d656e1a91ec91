"""Evaluation of several expressions in source order, and aliasing of a value with memory that changes before its use.

Large values are written to their destination member by member: ``$t = ($t.1, $t.0)`` would read what it has just
written, and in ``($s, { $s = "b"; 1 })`` the first member would be read too late.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import Operand, Scalar
from pytrace.core.types import AddressSpace, Pointer
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo


def in_order(e: Emitter, expressions: Sequence[nodes.Expr]) -> list[Operand]:
    """The values of several expressions, each unaffected by evaluating the next ones."""
    operands = []
    for index, node in enumerate(expressions):
        operand = e.value(node)
        if operand.type.scalar:
            operand = Scalar(memory.number(e, operand), operand.type)
        elif any(_changes(e.checked, later) for later in expressions[index + 1 :]):
            operand = memory.copied(e, operand)
        operands.append(operand)
    return operands


def overlaps(checked: CheckedProgram, value: nodes.Expr, target: nodes.Expr) -> bool:
    """Whether *value* reads the variable or unkeyed map *target*, by name or possibly by address."""
    owner = _owner(checked, target)
    expressions = (node for node in walk(value) if isinstance(node, nodes.Expr))
    return any(_owner(checked, node) == owner or _is_script_pointer(checked, node) for node in expressions)


def _is_script_pointer(checked: CheckedProgram, node: nodes.Expr) -> bool:
    """Whether a node is the address of a variable or map."""
    type_ = checked.types.get(node)
    return isinstance(type_, Pointer) and type_.space is AddressSpace.BPF


def _owner(checked: CheckedProgram, node: nodes.Expr) -> object:
    """The variable or map that a node refers to, or the node itself when it is not assignable."""
    if isinstance(node, nodes.Variable):
        return checked.variables.get(node, node)
    return node.name if isinstance(node, nodes.MapRef) else node


def _changes(checked: CheckedProgram, node: nodes.Node) -> bool:
    """Whether evaluating *node* may assign to a variable or map of the script that is larger than a register."""
    return any(_assigns(checked, inner) for inner in walk(node))


def _assigns(checked: CheckedProgram, node: nodes.Node) -> bool:
    if isinstance(node, nodes.Call):
        return isinstance(checked.calls.get(node), FunctionInfo) or node.name in _CHANGING
    return isinstance(node, nodes.Assign)


_CHANGING = frozenset({"find", "delete"})
"""Builtins that modify memory from which a value may be read."""
