"""Which variables are used by more than one BPF function of a program.

Bodies of loops become functions of their own.  A variable that such a body shares with the code around it lives in
scratch memory; all others stay registers or stack bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytrace.frontend import ast
from pytrace.frontend.checked import CheckedProgram, FunctionInfo, VariableInfo

_SLOTS: dict[type, tuple[str, ...]] = {}
_SKIPPED = frozenset({"span", "head", "operator_span", "name_span", "key_span", "value_span"})


def _slots(kind: type) -> tuple[str, ...]:
    found = _SLOTS.get(kind)
    if found is None:
        names = [name for base in reversed(kind.__mro__) for name in getattr(base, "__slots__", ())]
        found = _SLOTS[kind] = tuple(name for name in names if name not in _SKIPPED)
    return found


def children(node: ast.Node) -> Iterator[ast.Node]:
    """The nodes directly below."""
    for name in _slots(type(node)):
        yield from _nodes(getattr(node, name))


def _nodes(value: Any) -> Iterator[ast.Node]:
    if isinstance(value, ast.Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)


def shared_variables(checked: CheckedProgram, body: ast.Block) -> frozenset[VariableInfo]:
    """Variables that the loops below *body* share with what is around them."""
    regions: dict[VariableInfo, int] = {}
    shared: set[VariableInfo] = set()
    counter = 0

    def visit(node: ast.Node, region: int) -> None:
        nonlocal counter
        if isinstance(node, ast.Variable):
            info = checked.variables.get(node)
            if info is not None and regions.setdefault(info, region) != region:
                shared.add(info)
        elif isinstance(node, ast.While | ast.For):
            counter += 1
            inner = counter
            if isinstance(node, ast.For):
                visit(node.source, region)
                visit(node.variable, inner)
            else:
                visit(node.condition, inner)
            visit(node.body, inner)
        else:
            for child in children(node):
                visit(child, region)

    visit(body, 0)
    return frozenset(shared)


def all_variables(checked: CheckedProgram, body: ast.Block) -> frozenset[VariableInfo]:
    """All variables of *body*."""
    found: set[VariableInfo] = set()

    def visit(node: ast.Node) -> None:
        if isinstance(node, ast.Variable) and node in checked.variables:
            found.add(checked.variables[node])
        for child in children(node):
            visit(child)

    visit(body)
    return frozenset(found)


def called_functions(checked: CheckedProgram, body: ast.Block) -> list[FunctionInfo]:
    """User functions that *body* calls, directly or not; each after those that it calls itself."""
    found: list[FunctionInfo] = []

    def visit(node: ast.Node) -> None:
        for child in children(node):
            visit(child)
        if isinstance(node, ast.Call):
            target = checked.calls.get(node)
            if isinstance(target, FunctionInfo) and target not in found:
                visit(target.body)
                found.append(target)

    visit(body)
    return found
