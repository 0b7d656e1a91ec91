"""Splitting of long bodies into several functions.

Some LLVM passes are quadratic in a function's length, and BPF branches reach 32767 instructions. A body of more than
:data:`WHOLE` nodes is therefore split between statements into functions of about :data:`PART` nodes, a long chain of
``else if`` between its branches; and an ``unroll`` of more than :data:`UNROLLED` nodes in total becomes a loop.
Variables that several of these functions use are in scratch memory
(:mod:`pytrace.codegen.analysis.shared_variables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pytrace.core.types import VOID
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import children
from pytrace.frontend.syntax.typed_program import CheckedProgram

WHOLE = 3000
"""Nodes of a body that stays one function."""

PART = 1000
"""Nodes of a part, unless there would be too many of them."""

UNROLLED = 2000
"""Total nodes of all iterations of an ``unroll`` before it becomes a loop."""

MOST = 96
"""Maximum parts of a program, some of which may be half as long: the kernel allows 256 functions."""

DEEPEST = 3
"""Maximum nesting of unrolls that become loops: the kernel allows a call depth of eight functions."""


class Segment(msgspec.Struct, frozen=True):
    """Consecutive statements: in a function of their own (*apart*), or inline."""

    statements: tuple[nodes.Stmt, ...]
    apart: bool


class Arm(msgspec.Struct, frozen=True):
    """One branch of a chain of ``else if``."""

    condition: nodes.Expr
    then: nodes.Block


class Chain(msgspec.Struct, frozen=True):
    """A long ``if … else if …``: its branches in groups, each a function, and the final ``else``."""

    groups: tuple[tuple[Arm, ...], ...]
    other: nodes.Block | None


class Plan(msgspec.Struct, eq=False):
    """How the bodies of a program are split."""

    blocks: dict[nodes.Block, tuple[Segment, ...]] = msgspec.field(default_factory=dict)
    chains: dict[nodes.If, Chain] = msgspec.field(default_factory=dict)
    loops: set[nodes.Unroll] = msgspec.field(default_factory=set)

    @property
    def long(self) -> bool:
        """Whether anything is split."""
        return bool(self.blocks)

    def segments(self, block: nodes.Block) -> Iterable[Segment]:
        """The statements of a block, as segments."""
        split = self.blocks.get(block)
        return (Segment(block.statements, False),) if split is None else split


class _Size(msgspec.Struct, frozen=True):
    """The size of a node: *nodes* with unrolled iterations, depth of nested *loops*, and whether it leaves a loop."""

    nodes: int
    loops: int = 0
    jumps: bool = False


def plan(checked: CheckedProgram, bodies: Iterable[nodes.Block]) -> Plan:
    """How the *bodies* of a program and of the functions that it calls are split."""
    planner = _Planner(checked)
    all_bodies = list(bodies)
    count = sum(planner.size(body).nodes for body in all_bodies)
    if count > WHOLE:
        planner.part = max(PART, count // MOST)
        for body in all_bodies:
            planner.cut(body)
    return planner.plan


class _Planner:
    def __init__(self, checked: CheckedProgram) -> None:
        self.checked = checked
        self.plan = Plan()
        self.part = PART
        self.sizes: dict[nodes.Node, _Size] = {}

    # ---------------------------------------------------------------------------------------- sizes

    def size(self, node: nodes.Node) -> _Size:
        """The size of a node, cached for those that may be split."""
        below = [self.size(child) for child in children(node)]
        count = 1 + sum(item.nodes for item in below)
        loops = max((item.loops for item in below), default=0)
        jumps = isinstance(node, nodes.Break | nodes.Continue) or any(item.jumps for item in below)
        if isinstance(node, nodes.For | nodes.While):
            jumps = False
        elif isinstance(node, nodes.Unroll):
            jumps = False
            rounds = int(self.checked.constants.get(node.count, 1))
            if rounds * count <= UNROLLED or loops >= DEEPEST:
                count *= rounds
            else:
                self.plan.loops.add(node)
                loops += 1
        size = _Size(count, loops, jumps)
        if isinstance(node, nodes.Stmt | nodes.Block | nodes.If):
            self.sizes[node] = size
        return size

    # ---------------------------------------------------------------------------------------- splitting

    def cut(self, node: nodes.Node) -> None:
        """Split the blocks and chains of a node that are too long."""
        if node in self.sizes and self.sizes[node].nodes <= self.part:
            return
        if isinstance(node, nodes.Block):
            self.plan.blocks[node] = tuple(self._segments(node))
            if node.value is not None:
                self.cut(node.value)
        elif isinstance(node, nodes.If) and self.checked.types.get(node, VOID) == VOID and not self.sizes[node].jumps:
            self._chain(node)
        else:
            for child in children(node):
                self.cut(child)

    def _segments(self, block: nodes.Block) -> Iterator[Segment]:
        pending: list[nodes.Stmt] = []
        length = 0
        for statement in block.statements:
            size = self.sizes[statement]
            alone = size.nodes > self.part or size.jumps
            if pending and (alone or length + size.nodes > self.part):
                yield Segment(tuple(pending), 2 * length > self.part)
                pending, length = [], 0
            if alone:
                self.cut(statement)
                yield Segment((statement,), False)
            else:
                pending.append(statement)
                length += size.nodes
        if pending:
            yield Segment(tuple(pending), 2 * length > self.part)

    def _chain(self, node: nodes.If) -> None:
        groups: list[list[Arm]] = [[]]
        length = 0
        branch: nodes.Block | nodes.If | None = node
        while isinstance(branch, nodes.If):
            constant = self.checked.constants.get(branch.condition)
            if constant is not None:
                branch = branch.then if constant else branch.other
                continue
            size = self.sizes[branch.then].nodes + self._condition_nodes(branch)
            if groups[-1] and length + size > self.part:
                groups.append([])
                length = 0
            groups[-1].append(Arm(branch.condition, branch.then))
            length += size
            self.cut(branch.then)
            branch = branch.other
        if branch is not None:
            self.cut(branch)
        if len(groups) > 1:
            self.plan.chains[node] = Chain(tuple(tuple(group) for group in groups), branch)

    def _condition_nodes(self, node: nodes.If) -> int:
        other = self.sizes[node.other].nodes if node.other is not None else 0
        return self.sizes[node].nodes - self.sizes[node.then].nodes - other
