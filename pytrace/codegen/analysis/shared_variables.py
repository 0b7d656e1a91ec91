"""Variables that more than one BPF function of a program uses.

Bodies of loops become functions of their own, and so do the parts of long blocks.  A variable that such a body shares
with the code around it lives in scratch memory; all others stay registers or stack bytes.
"""

from __future__ import annotations

from pytrace.codegen.analysis.body_splitting import Chain, Plan
from pytrace.core.types import Pointer
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import children, walk
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, VariableInfo


def shared_variables(checked: CheckedProgram, body: nodes.Block, plan: Plan) -> frozenset[VariableInfo]:
    """Variables that the loops and parts below *body* share with the code around them."""
    regions = _Regions(checked, plan)
    regions.visit(body, 0)
    return frozenset(regions.shared)


class _Regions:
    """The function that each part of a body belongs to, as a number."""

    def __init__(self, checked: CheckedProgram, plan: Plan) -> None:
        self.checked = checked
        self.plan = plan
        self.shared: set[VariableInfo] = set()
        self._first: dict[VariableInfo, int] = {}
        self._last = 0

    def visit(self, node: nodes.Node, region: int) -> None:
        """Record the variables of a node that belongs to *region*."""
        if isinstance(node, nodes.Variable):
            info = self.checked.variables.get(node)
            if info is not None and self._first.setdefault(info, region) != region:
                self.shared.add(info)
        elif isinstance(node, nodes.While | nodes.For):
            self._loop(node, region)
        elif isinstance(node, nodes.Unroll) and node in self.plan.loops:
            self.visit(node.body, self._apart())
        elif isinstance(node, nodes.Block):
            self._block(node, region)
        elif isinstance(node, nodes.If) and node in self.plan.chains:
            self._chain(self.plan.chains[node], region)
        else:
            if self.plan.long or self.plan.loops:
                self._pointed_to(node)
            for child in children(node):
                self.visit(child, region)

    def _apart(self) -> int:
        self._last += 1
        return self._last

    def _loop(self, node: nodes.While | nodes.For, region: int) -> None:
        inner = self._apart()
        if isinstance(node, nodes.For):
            self.visit(node.source, region)
            self.visit(node.variable, inner)
        else:
            self.visit(node.condition, inner)
        self.visit(node.body, inner)

    def _block(self, node: nodes.Block, region: int) -> None:
        for segment in self.plan.segments(node):
            inner = self._apart() if segment.apart else region
            for statement in segment.statements:
                self.visit(statement, inner)
        if node.value is not None:
            self.visit(node.value, region)

    def _chain(self, chain: Chain, region: int) -> None:
        for group in chain.groups:
            inner = self._apart()
            for arm in group:
                self.visit(arm.condition, inner)
                self.visit(arm.then, inner)
        if chain.other is not None:
            self.visit(chain.other, region)

    def _pointed_to(self, node: nodes.Node) -> None:
        """Variables whose address is taken, which must outlive the part that takes it."""
        if not (isinstance(node, nodes.Unary) and node.operator == "&") and not isinstance(node, nodes.Cast):
            return
        if not isinstance(self.checked.types.get(node), Pointer):
            return
        place: nodes.Node = node.operand
        while isinstance(place, nodes.FieldAccess | nodes.Index):
            place = place.base
        info = self.checked.variables.get(place) if isinstance(place, nodes.Variable) else None
        if info is not None and (isinstance(node, nodes.Unary) or not info.type.scalar):
            self.shared.add(info)


def all_variables(checked: CheckedProgram, body: nodes.Block, _plan: Plan) -> frozenset[VariableInfo]:
    """All variables of *body*."""
    variables = (checked.variables.get(node) for node in walk(body) if isinstance(node, nodes.Variable))
    return frozenset(info for info in variables if info is not None)


def called_functions(checked: CheckedProgram, body: nodes.Block) -> list[FunctionInfo]:
    """User functions that *body* calls, directly or not; each after those that it calls itself."""
    functions: list[FunctionInfo] = []

    def visit(node: nodes.Node) -> None:
        for child in children(node):
            visit(child)
        if isinstance(node, nodes.Call):
            target = checked.calls.get(node)
            if isinstance(target, FunctionInfo) and target not in functions:
                visit(target.body)
                functions.append(target)

    visit(body)
    return functions
