"""Which variables are used by more than one BPF function of a program.

Bodies of loops become functions of their own.  A variable that such a body shares with the code around it lives in
scratch memory; all others stay registers or stack bytes.
"""

from __future__ import annotations

from pytrace.frontend import ast
from pytrace.frontend.checked import CheckedProgram, FunctionInfo, VariableInfo
from pytrace.frontend.visitor import children, walk


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
    variables = (checked.variables.get(node) for node in walk(body) if isinstance(node, ast.Variable))
    return frozenset(info for info in variables if info is not None)


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
