"""Which maps are double-buffered, so that the runtime can read and empty one copy while programs write to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.event_layout import EmptiedMap, PrintedMap
from pytrace.core.types import Avg, Count, Hist, LHist, Stats, Sum
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.visitor import children

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.frontend.ast.typed_program import CheckedProgram, MapInfo

_PASSED = frozenset({"print_map", "quantiles", "clear", "zero"})
"""Events that take the map itself, and read nothing in the kernel."""


def snapshots(checked: CheckedProgram) -> frozenset[str]:
    """Names of the double-buffered maps.

    These are keyed maps that are printed and cleared in one step, and unkeyed maps that are emptied in any way, except
    for sums that programs do not read: for these the runtime subtracts the previous value.
    """
    printed, emptied = set(), set()
    for spec in checked.event_list:
        static = spec.static
        if isinstance(static, PrintedMap) and static.clear:
            printed.add(static.map)
        elif isinstance(static, EmptiedMap) and not static.joined:
            emptied.add(static.map)
    unkeyed = {name for name in printed | emptied if checked.maps[name].key is None}
    seen = frozenset(_read(checked)) if unkeyed else frozenset()
    found = {name for name in unkeyed if name in seen or not _is_sum(checked.maps[name])}
    return frozenset(found | (printed - unkeyed))


def emptied(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps that the script empties, whether it prints them in the same step or not."""
    parts = (spec.static for spec in checked.event_list)
    return frozenset(
        part.map for part in parts if isinstance(part, EmptiedMap) or (isinstance(part, PrintedMap) and part.clear)
    )


def _is_sum(info: MapInfo) -> bool:
    return isinstance(info.value, Count | Sum | Avg | Stats | Hist | LHist)


def _read(checked: CheckedProgram) -> Iterator[str]:
    """Unkeyed maps that programs read."""
    waiting: list[nodes.Node] = [unit.body for unit in checked.units]
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.MapRef):
            yield node.name
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapRef) and node.operator == "=":
            waiting.append(node.value)
        elif not (isinstance(node, nodes.Call) and node in checked.events and checked.events[node].kind in _PASSED):
            waiting.extend(children(node))
