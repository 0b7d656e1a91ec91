"""Which variables are used by more than one BPF function of a program.

Bodies of loops become functions of their own, and so do the parts of long blocks.  A variable that such a body shares
with the code around it lives in scratch memory; all others stay registers or stack bytes.
"""

from __future__ import annotations

from pytrace.codegen.parts import Plan
from pytrace.frontend import ast
from pytrace.frontend.checked import CheckedProgram, FunctionInfo, VariableInfo
from pytrace.frontend.visitor import children, walk


def shared_variables(checked: CheckedProgram, body: ast.Block, plan: Plan) -> frozenset[VariableInfo]:
    """Variables that the loops and parts below *body* share with what is around them."""
    regions: dict[VariableInfo, int] = {}
    shared: set[VariableInfo] = set()
    counter = 0

    def apart() -> int:
        nonlocal counter
        counter += 1
        return counter

    def visit(node: ast.Node, region: int) -> None:
        if isinstance(node, ast.Variable):
            info = checked.variables.get(node)
            if info is not None and regions.setdefault(info, region) != region:
                shared.add(info)
        elif isinstance(node, ast.While | ast.For):
            inner = apart()
            if isinstance(node, ast.For):
                visit(node.source, region)
                visit(node.variable, inner)
            else:
                visit(node.condition, inner)
            visit(node.body, inner)
        elif isinstance(node, ast.Unroll) and node in plan.loops:
            visit(node.body, apart())
        elif isinstance(node, ast.Block):
            for piece in plan.pieces(node):
                inner = apart() if piece.apart else region
                for statement in piece.statements:
                    visit(statement, inner)
            if node.value is not None:
                visit(node.value, region)
        elif isinstance(node, ast.If) and node in plan.chains:
            chain = plan.chains[node]
            for group in chain.groups:
                inner = apart()
                for arm in group:
                    visit(arm.condition, inner)
                    visit(arm.then, inner)
            if chain.other is not None:
                visit(chain.other, region)
        else:
            for child in children(node):
                visit(child, region)

    visit(body, 0)
    return frozenset(shared)


def all_variables(checked: CheckedProgram, body: ast.Block, _plan: Plan) -> frozenset[VariableInfo]:
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
