"""Whether a value is computed from the place that it is stored in.

Large values are written where they are wanted, member by member: ``$t = ($t.1, $t.0)`` would read what it has just
changed.
"""

from __future__ import annotations

from pytrace.codegen.regions import children
from pytrace.frontend import ast
from pytrace.frontend.checked import CheckedProgram
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
