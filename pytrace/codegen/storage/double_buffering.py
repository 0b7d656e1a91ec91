"""Choice of double-buffered maps, whose one buffer the runtime reads and clears while programs write to the other."""

from __future__ import annotations

from collections.abc import Iterator

from pytrace.core.event_layout import EmptiedMap, PrintedMap
from pytrace.core.types import Avg, Count, Hist, LHist, Stats, Sum
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import CheckedProgram, MapInfo
from pytrace.frontend.ast.visitor import children

_PASSED = frozenset({"print_map", "quantiles", "clear", "zero"})
"""Calls that pass the map itself to user space, and do not read it in the kernel."""


def snapshots(checked: CheckedProgram) -> frozenset[str]:
    """Names of the double-buffered maps.

    These are keyed maps that are printed and cleared in one step, and unkeyed maps that are cleared in any way, except
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
    read = frozenset(_read(checked)) if unkeyed else frozenset()
    buffered = {name for name in unkeyed if name in read or not _is_sum(checked.maps[name])}
    return frozenset(buffered | (printed - unkeyed))


def emptied(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps that the script clears or zeroes, whether it prints them in the same step or not."""
    parts = (spec.static for spec in checked.event_list)
    return frozenset(
        part.map for part in parts if isinstance(part, EmptiedMap) or (isinstance(part, PrintedMap) and part.clear)
    )


def _is_sum(info: MapInfo) -> bool:
    return isinstance(info.value, Count | Sum | Avg | Stats | Hist | LHist)


def _read(checked: CheckedProgram) -> Iterator[str]:
    """Unkeyed maps that programs read."""
    pending: list[nodes.Node] = [unit.body for unit in checked.units]
    while pending:
        node = pending.pop()
        if isinstance(node, nodes.MapRef):
            yield node.name
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapRef) and node.operator == "=":
            pending.append(node.value)
        elif not (isinstance(node, nodes.Call) and node in checked.events and checked.events[node].kind in _PASSED):
            pending.extend(children(node))
