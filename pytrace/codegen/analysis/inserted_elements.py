"""Assignments to elements that are mostly not there: ``@start[tid] = nsecs``, where another probe takes the element.

An assignment looks the key up first and stores in place, which is cheaper than having the kernel replace an element.
Where the key is missing that look-up is for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.visitor import walk

if TYPE_CHECKING:
    from pytrace.frontend.ast.typed_program import CheckedProgram


def inserted_maps(checked: CheckedProgram, names: frozenset[str]) -> dict[nodes.Block, frozenset[str]]:
    """Of each probe's body the maps that it mostly inserts into when it assigns to an element.

    These are those of the maps *names* whose elements a probe reads and deletes, as at the end of what another one
    began, but not those that the probe itself reads.
    """
    if not names:
        return {}
    used = {unit.body: _used(unit.body) for unit in checked.units}
    taken = names & {name for read, deleted in used.values() for name in read & deleted}
    return {body: taken - read for body, (read, _) in used.items()}


def _used(body: nodes.Block) -> tuple[set[str], set[str]]:
    """Names of the maps of which *body* reads elements, and of those of which it deletes some."""
    read: set[str] = set()
    deleted: set[str] = set()
    targets: set[nodes.Expr] = set()
    for node in walk(body):
        if isinstance(node, nodes.Assign) and node.operator == "=":
            targets.add(node.target)
        elif isinstance(node, nodes.Call) and node.name == "delete" and node.args:
            first = node.args[0]
            if isinstance(first, nodes.MapIndex):
                targets.add(first)
                deleted.add(first.map.name)
            elif isinstance(first, nodes.MapRef):
                deleted.add(first.name)
        elif isinstance(node, nodes.MapIndex) and node not in targets:
            read.add(node.map.name)
    return read, deleted
