"""How many iterations the loops of a program may make, all together.

The kernel limits one loop to :data:`MOST` iterations, but not loops in loops: these can keep a CPU, and the traced
program, for days. Programs whose loops may make more than ``max_loop_iterations`` count them as they run
(``codegen.emit.loops``); those that certainly do so are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.diagnostics import PlacedError
from pytrace.core.source import Span
from pytrace.frontend.ast import nodes, visitor
from pytrace.frontend.ast.typed_program import FunctionInfo

if TYPE_CHECKING:
    from pytrace.frontend.ast.typed_program import CheckedProgram, MapInfo

MOST = 1 << 23
"""``BPF_MAX_LOOPS`` of the kernel."""


def most(checked: CheckedProgram, block: nodes.Block) -> int:
    """The maximum number of iterations in one run of *block*, functions that it calls included."""
    known: dict[FunctionInfo, int] = {}

    def of_node(node: nodes.Node) -> int:
        inside = sum(map(of_node, visitor.children(node)))
        if isinstance(node, nodes.For):
            return _most_turns(checked, node) * (1 + inside) + of_map(checked, node)
        if isinstance(node, nodes.While):
            return MOST * (1 + inside)
        if isinstance(node, nodes.Unroll):
            return _constant(checked, node.count) * inside
        target = checked.calls.get(node) if isinstance(node, nodes.Call) else None
        if isinstance(target, FunctionInfo):
            if target not in known:
                known[target] = of_node(target.body)
            return inside + known[target]
        return inside

    return of_node(block)


def of_map(checked: CheckedProgram, node: nodes.For) -> int:
    """What a loop over a map costs however few keys it has, in iterations: the kernel looks into each bucket."""
    info = _map(checked, node)
    return info.max_entries // 2 if info is not None else 0


def refuse(checked: CheckedProgram, block: nodes.Block, limit: int) -> None:
    """Report loops that make more than *limit* iterations in each run of *block*.

    Raises:
        PlacedError: there are some.
    """
    for statement in _certain(block):
        if isinstance(statement, nodes.For):
            total, counts = _least(checked, statement)
            if total > limit and len(counts) > 1:
                product = " × ".join(f"{count:,}" for count in counts)
                raise PlacedError(
                    f"these loops make {product} iterations; all loops together may make {limit:,} when a probe fires",
                    Span(statement.span.source, statement.span.start, statement.body.span.start),
                    hints=(raise_hint(total),),
                )


def raise_hint(total: int | None = None) -> str:
    """How to raise the limit."""
    value = "N" if total is None else str(total)
    return f"raise it with config = {{ max_loop_iterations = {value} }}; the traced program waits while loops run"


def _most_turns(checked: CheckedProgram, node: nodes.For) -> int:
    """The maximum number of iterations of one ``for``."""
    if isinstance(node.source, nodes.Range):
        turns = _turns(checked, node.source)
        return MOST if turns is None else min(turns, MOST)
    info = _map(checked, node)
    return info.max_entries if info is not None else MOST


def _map(checked: CheckedProgram, node: nodes.For) -> MapInfo | None:
    return checked.maps.get(node.source.name) if isinstance(node.source, nodes.MapRef) else None


def _turns(checked: CheckedProgram, span: nodes.Range) -> int | None:
    """The number of iterations over a range of constants."""
    start, stop = (checked.constants.get(item) for item in (span.start, span.stop))
    return max(0, stop - start) if isinstance(start, int) and isinstance(stop, int) else None


def _constant(checked: CheckedProgram, node: nodes.Expr) -> int:
    value = checked.constants.get(node)
    return value if isinstance(value, int) else 1


def _least(checked: CheckedProgram, node: nodes.For) -> tuple[int, tuple[int, ...]]:
    """The minimum number of iterations of a ``for`` and the loops in it, and the counts of the longest nest."""
    turns = _turns(checked, node.source) if isinstance(node.source, nodes.Range) else None
    if turns is None or turns > MOST or _may_leave(node.body):
        return 0, ()
    inside = [_least(checked, item) for item in _certain(node.body) if isinstance(item, nodes.For)]
    counts = max((found for _, found in inside), key=len, default=())
    return turns * (1 + sum(total for total, _ in inside)), (turns, *counts)


def _certain(block: nodes.Block) -> tuple[nodes.Stmt, ...]:
    """The statements of a block, and of blocks that are among them."""
    found: list[nodes.Stmt] = []
    for statement in block.statements:
        expression = statement.value if isinstance(statement, nodes.ExprStmt) else None
        found.extend(_certain(expression.block) if isinstance(expression, nodes.BlockExpr) else (statement,))
    return tuple(found)


def _may_leave(block: nodes.Block) -> bool:
    """Whether a loop with this body may end early, or skip what is at the end of the body."""
    return any(isinstance(node, nodes.Break | nodes.Continue | nodes.Return) for node in visitor.walk(block))
