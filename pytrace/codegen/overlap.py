"""Whether a value is computed from a place that something else changes before the value is used.

Large values are written where they are wanted, member by member: ``$t = ($t.1, $t.0)`` would read what it has just
changed, and in ``($s, { $s = "b"; 1 })`` the first member would be seen too late.
"""

from __future__ import annotations

from pytrace.codegen.regions import children
from pytrace.frontend import ast
from pytrace.frontend.checked import CheckedProgram, FunctionInfo
from pytrace.types import AddressSpace, Pointer


def overlaps(checked: CheckedProgram, value: ast.Expr, target: ast.Expr) -> bool:
    """Whether *value* reads the variable or unkeyed map *target*, by its name or, maybe, by its address."""
    return _reads(checked, value, _owner(checked, target))


def _reads(checked: CheckedProgram, node: ast.Node, owner: object) -> bool:
    if isinstance(node, ast.Expr):
        kind = checked.types.get(node)
        if _owner(checked, node) == owner or (isinstance(kind, Pointer) and kind.space is AddressSpace.BPF):
            return True
    return any(_reads(checked, child, owner) for child in children(node))


def _owner(checked: CheckedProgram, node: ast.Expr) -> object:
    """What a node names: a variable, a map, or (the node itself) nothing that can be stored in."""
    if isinstance(node, ast.Variable):
        return checked.variables.get(node, node)
    return node.name if isinstance(node, ast.MapRef) else node


def changes(checked: CheckedProgram, node: ast.Node) -> bool:
    """Whether evaluating *node* may assign to a variable or map of the script that is larger than a register."""
    if isinstance(node, ast.Assign):
        return True
    if isinstance(node, ast.Call) and (isinstance(checked.calls.get(node), FunctionInfo) or _CHANGING & {node.name}):
        return True
    return any(changes(checked, child) for child in children(node))


_CHANGING = frozenset({"find", "delete"})
"""Builtins that change what values may lie in."""
