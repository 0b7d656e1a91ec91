"""Bounds of the total number of iterations of a program's loops.

The kernel limits one loop to :data:`MOST` iterations, but not nested loops: these can occupy a CPU, and stall the
traced program, for days. Programs whose loops may exceed ``max_loop_iterations`` count iterations as they run
(``codegen.emit.loops``); those that certainly exceed it are rejected.
"""

from __future__ import annotations

from pytrace.core.diagnostics import PlacedError
from pytrace.core.source import Span
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, MapInfo

MOST = 1 << 23
"""``BPF_MAX_LOOPS`` of the kernel."""


def most(checked: CheckedProgram, block: nodes.Block) -> int:
    """The maximum number of iterations in one run of *block*, functions that it calls included."""
    totals: dict[FunctionInfo, int] = {}

    def of_node(node: nodes.Node) -> int:
        inside = sum(map(of_node, nodes.children(node)))
        if isinstance(node, nodes.For):
            return _most_turns(checked, node) * (1 + inside) + of_map(checked, node)
        if isinstance(node, nodes.While):
            return MOST * (1 + inside)
        if isinstance(node, nodes.Unroll):
            return _constant(checked, node.count) * inside
        target = checked.calls.get(node) if isinstance(node, nodes.Call) else None
        if isinstance(target, FunctionInfo):
            if target not in totals:
                totals[target] = of_node(target.body)
            return inside + totals[target]
        return inside

    return of_node(block)


def of_map(checked: CheckedProgram, node: nodes.For) -> int:
    """Fixed cost of a loop over a map, in iterations: the kernel visits each bucket, used or not."""
    info = _map(checked, node)
    return info.max_entries // 2 if info is not None else 0


def refuse(checked: CheckedProgram, block: nodes.Block, limit: int) -> None:
    """Reject loops that make more than *limit* iterations in each run of *block*.

    Raises:
        PlacedError: a loop exceeds the limit.
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
    counts = max((nest for _, nest in inside), key=len, default=())
    return turns * (1 + sum(total for total, _ in inside)), (turns, *counts)


def _certain(block: nodes.Block) -> tuple[nodes.Stmt, ...]:
    """The statements of a block that run unconditionally, those of nested blocks included."""
    statements: list[nodes.Stmt] = []
    for statement in block.statements:
        expression = statement.value if isinstance(statement, nodes.ExprStmt) else None
        statements.extend(_certain(expression.block) if isinstance(expression, nodes.BlockExpr) else (statement,))
    return tuple(statements)


def _may_leave(block: nodes.Block) -> bool:
    """Whether a loop with this body may end early or skip the end of the body."""
    return any(isinstance(node, nodes.Break | nodes.Continue | nodes.Return) for node in nodes.walk(block))
