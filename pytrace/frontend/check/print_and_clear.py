"""Merges ``print(@m); clear(@m);`` into one atomic step, so that updates between the two are not lost.

Both are asynchronous, so programs on other CPUs could update the map between printing and clearing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.core.event_layout import EmptiedMap, EventSpec, OfMap, PrintedMap
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.visitor import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.frontend.ast.typed_program import CheckedProgram

_HARMLESS = frozenset(
    (
        *("print_map", "print_value", "row", "print_rows", "quantiles", "clear", "zero"),
        *("printf", "heading", "time", "cat", "join", "system", "warnf"),
    )
)
"""Events of statements that are allowed between the two."""


def join_prints(checked: CheckedProgram) -> None:
    """Merge all such pairs in the script."""
    bodies = [unit.body for unit in checked.units]
    for node in (node for body in bodies for node in walk(body)):
        if isinstance(node, nodes.Block):
            _join_block(checked, node)


def _join_block(checked: CheckedProgram, block: nodes.Block) -> None:
    items: list[nodes.Stmt | nodes.Expr] = [*block.statements, *([] if block.value is None else [block.value])]
    for index, item in enumerate(items):
        spec = _event(checked, item)
        if spec is None or not isinstance(spec.static, PrintedMap) or spec.static.clear:
            continue
        for later, other in _following(checked, items[index + 1 :], spec.static.map):
            if other.kind == "clear":
                checked.amend(_sender(item), replace(spec.static, clear=True))
                checked.amend(_sender(later), replace(other.static_part(EmptiedMap), joined=True))
                checked.dead.add(later)
                break


def _following(
    checked: CheckedProgram, items: list[nodes.Stmt | nodes.Expr], name: str
) -> Iterator[tuple[nodes.Node, EventSpec]]:
    """The following events on the map *name*, up to the first statement that could use the map."""
    for item in items:
        if item in checked.dead:
            continue
        spec = _event(checked, item)
        if spec is None or spec.kind not in _HARMLESS:
            return
        if isinstance(spec.static, OfMap) and spec.static.map == name:
            yield item, spec
            if spec.kind != "clear":
                return
        elif any(isinstance(node, nodes.MapRef) and node.name == name for node in walk(item)):
            return


def _sender(item: nodes.Node) -> nodes.Node:
    """The expression of a statement that may send an event."""
    return item.value if isinstance(item, nodes.ExprStmt) else item


def _event(checked: CheckedProgram, item: nodes.Stmt | nodes.Expr) -> EventSpec | None:
    """The event of a statement that only sends an event."""
    node = _sender(item)
    if item in checked.dead or not isinstance(node, nodes.Call):
        return None
    return checked.events.get(node)
