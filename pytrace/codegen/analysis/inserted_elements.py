"""Assignments that mostly insert a new element: ``@start[tid] = nsecs``, where another probe deletes the element.

An assignment looks the key up first and stores in place, which is cheaper than having the kernel replace an element.
Where the key is mostly missing, the look-up is wasted.
"""

from __future__ import annotations

from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import CheckedProgram
from pytrace.frontend.ast.visitor import walk


def inserted_maps(checked: CheckedProgram, names: frozenset[str]) -> dict[nodes.Block, frozenset[str]]:
    """For each probe body, the maps that it mostly inserts into when it assigns to an element.

    These are the maps in *names* whose elements some probe reads and deletes (the return of a pair of entry and return
    probes), except for those that the body itself reads.
    """
    if not names:
        return {}
    accesses = {unit.body: _used(unit.body) for unit in checked.units}
    names_taken = names & {name for read, deleted in accesses.values() for name in read & deleted}
    return {body: names_taken - read for body, (read, _) in accesses.items()}


def _used(body: nodes.Block) -> tuple[set[str], set[str]]:
    """Names of the maps whose elements *body* reads, and of those whose elements it deletes."""
    read: set[str] = set()
    deleted: set[str] = set()
    targets: set[nodes.Expr] = set()
    for node in walk(body):
        if isinstance(node, nodes.Assign) and node.operator == "=":
            targets.add(node.target)
        elif isinstance(node, nodes.Call) and node.name == "delete" and node.args:
            argument = node.args[0]
            if isinstance(argument, nodes.MapIndex):
                targets.add(argument)
                deleted.add(argument.map.name)
            elif isinstance(argument, nodes.MapRef):
                deleted.add(argument.name)
        elif isinstance(node, nodes.MapIndex) and node not in targets:
            read.add(node.map.name)
    return read, deleted
