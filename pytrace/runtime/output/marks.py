"""Marks of what was counted while hits were left out (``--budget``): maps, and events that print something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytrace.core.manifest import Manifest, SampledUnit
from pytrace.core.types import Avg, Count, Hist, LHist, Stats, Sum, Type

ESTIMATE = "estimate"
"""Scaled: each hit counted for those that were left out."""
SAMPLE = "sample"
"""Of some of the hits only: values that cannot be scaled, as the greatest, the last one, a text."""

_SCALED = (Count, Sum, Avg, Stats, Hist, LHist)


class Marks:
    """The marks of a run. They only become more, as values keep what was added while hits were left out.

    Args:
        manifest: that of the script.
        maps: filled with the marks of maps by name.
        events: filled with those of events by id.
    """

    def __init__(self, manifest: Manifest, maps: dict[str, str], events: dict[int, str]) -> None:
        self._units: tuple[SampledUnit, ...] = manifest.sampling.units if manifest.sampling is not None else ()
        self._values: Mapping[str, Type] = {item.name: item.value for item in manifest.maps}
        self._maps, self._events = maps, events

    def add(self, units: Iterable[int]) -> None:
        """Hits of the programs *units* are left out from now on: mark what they write, and what is made of that."""
        for number in units:
            self._mark(self._units[number], SAMPLE, counts=True)
        before: dict[str, str] | None = None
        while before != self._maps:
            before = dict(self._maps)
            for unit in self._units:
                read = {self._maps[name] for name in unit.reads if name in self._maps}
                if read:
                    self._mark(unit, SAMPLE if SAMPLE in read else ESTIMATE, counts=unit.inherits)

    def _mark(self, unit: SampledUnit, mark: str, *, counts: bool) -> None:
        """Mark what a program writes and sends; *counts*: its aggregations are scaled."""
        for name in unit.writes:
            scaled = counts and isinstance(self._values[name], _SCALED)
            # Of two marks that of a sample stays, which promises less.
            if self._maps.get(name) != SAMPLE:
                self._maps[name] = ESTIMATE if scaled else mark
        for event in unit.events:
            if self._events.get(event) != SAMPLE:
                self._events[event] = mark
