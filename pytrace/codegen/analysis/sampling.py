"""Which programs may leave hits out, and what their maps then hold (``--budget``).

Hits are left out at random, each with the same probability, so aggregations of those that ran are scaled. That is
wrong for what later hits rely on: a return whose entry left no time, a switch that was not seen to turn off. A map that
one hit writes and another one reads or deletes from *links* their programs:

- A program that deletes from a linked map, or reads a value of one that is stored by key, always runs: otherwise values
  would be left behind, and later hits would take them for their own. It counts with the weight with which the value
  was stored, which is kept beside it by key (``storing`` and ``reading``).
- A program that only stores values by key may be sampled: pairs are sampled as a whole. It is not if no program deletes
  them, as an older value would then pass for that of a hit which was left out.
- A program that writes a linked map without keys, or both reads and writes a linked map, keeps state: it always runs.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pytrace.codegen.analysis.shared_variables import called_functions
from pytrace.core.probes.kinds import INTERVAL, ITER
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import children
from pytrace.frontend.syntax.typed_program import CheckedProgram, MapAccess, ProbeUnit


class Uses(msgspec.Struct):
    """What a program does with maps, and the events that it sends."""

    reads: set[str] = msgspec.field(default_factory=set)
    writes: set[str] = msgspec.field(default_factory=set)
    deletes: set[str] = msgspec.field(default_factory=set)
    events: set[int] = msgspec.field(default_factory=set)


class Plan(msgspec.Struct, frozen=True):
    """The result for a script. Units are numbered in the order of :attr:`CheckedProgram.units`."""

    uses: tuple[Uses, ...]
    sampled: frozenset[int]
    """Units that may leave hits out."""
    weighted: frozenset[str]
    """Maps whose values have weights beside them."""
    linked: frozenset[str]
    """Maps that link programs."""

    def storing(self, number: int) -> frozenset[str]:
        """Maps for whose values a unit stores weights."""
        return self.weighted & self.uses[number].writes if number in self.sampled else frozenset()

    def reading(self, number: int) -> frozenset[str]:
        """Maps whose values give a unit its weight."""
        uses = self.uses[number]
        return frozenset() if number in self.sampled else self.weighted & (uses.reads | uses.deletes)


def gated(unit: ProbeUnit) -> bool:
    """Whether hits of a unit may be left out: not those of programs that the tracer runs, and of its timers."""
    return not unit.kind.special and unit.kind.name not in (INTERVAL, ITER)


def plan(checked: CheckedProgram) -> Plan:
    """Find the programs that may be sampled."""
    uses = tuple(_uses(checked, unit) for unit in checked.units)
    numbers = [number for number, unit in enumerate(checked.units) if gated(unit)]
    written = _all(uses[number].writes for number in numbers)
    deleted = _all(uses[number].deletes for number in numbers)
    plain = {name for name, info in checked.maps.items() if not info.value.aggregate}
    linked = written & (deleted | (plain & _all(uses[number].reads for number in numbers)))
    keyed = {name for name in linked if checked.maps[name].key is not None}

    def runs_always(use: Uses) -> bool:
        stateful = (use.writes & linked - keyed) | (use.writes & linked & (use.reads | use.deletes))
        return bool(stateful or use.deletes & linked or use.reads & keyed or use.writes & keyed - deleted)

    sampled = frozenset(number for number in numbers if not runs_always(uses[number]))
    weighted = keyed & plain & _all(uses[number].writes for number in sampled)
    return Plan(uses, sampled, frozenset(weighted), frozenset(linked))


def _all(sets: Iterable[set[str]]) -> set[str]:
    return {name for each in sets for name in each}


def _uses(checked: CheckedProgram, unit: ProbeUnit) -> Uses:
    uses = Uses()
    for body in (unit.body, *(function.body for function in called_functions(checked, unit.body))):
        _visit(checked, body, uses)
    return uses


_DELETE = "delete"
_EMPTYING = ("clear", "zero")
_PASSED = ("print", "clear", "zero", "quantiles")
"""Calls that pass the map itself to user space, which reads it there."""


def _visit(checked: CheckedProgram, node: nodes.Node, uses: Uses) -> None:
    if node in checked.events:
        uses.events.add(checked.events[node].id)
    if isinstance(node, nodes.Assign):
        target, rest = _name(node.target), node.value
        if target is not None:
            uses.writes.add(target)
            _keys(checked, node.target, uses)
            _visit(checked, rest, uses)
            return
    elif isinstance(node, nodes.Unary) and node.operator in ("++", "--"):
        target = _name(node.operand)
        if target is not None:
            uses.writes.add(target)
            _keys(checked, node.operand, uses)
            return
    elif isinstance(node, nodes.Unary) and node.operator == "&":
        target = _name(node.operand)
        if target is not None:
            uses.writes.add(target)
    elif isinstance(node, nodes.Call):
        _call(checked, node, uses)
        return
    elif isinstance(node, nodes.MapRef | nodes.MapIndex):
        uses.reads.add(_known(node))
        _keys(checked, node, uses)
        return
    for child in children(node):
        _visit(checked, child, uses)


def _call(checked: CheckedProgram, node: nodes.Call, uses: Uses) -> None:
    access = checked.find_fact(node, MapAccess)
    if access is not None:
        (uses.deletes if node.name == _DELETE else uses.reads).add(access.map)
        for key in access.keys:
            _visit(checked, key, uses)
    for argument in node.args:
        if isinstance(argument, nodes.MapRef) and (access is not None or node.name in _PASSED):
            if node.name in _EMPTYING:
                uses.deletes.add(argument.name)
        elif access is None:
            _visit(checked, argument, uses)


def _keys(checked: CheckedProgram, node: nodes.Node, uses: Uses) -> None:
    for key in node.keys if isinstance(node, nodes.MapIndex) else ():
        _visit(checked, key, uses)


def _name(node: nodes.Node) -> str | None:
    return _known(node) if isinstance(node, nodes.MapRef | nodes.MapIndex) else None


def _known(node: nodes.MapRef | nodes.MapIndex) -> str:
    return node.name if isinstance(node, nodes.MapRef) else node.map.name
