"""software and hardware: perf's counted events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.numbers import parse_integer
from pytrace.core.probes.targets import CountedEventTarget
from pytrace.frontend.attach.providers.base import MOST_PERIOD, Match, SampledProvider, Scope, nearest, number_of

if TYPE_CHECKING:
    from pytrace.core.probes.perf_events import PerfEvent
    from pytrace.frontend.attach.points.parts import Point


class Counter(SampledProvider):
    """``kind:EVENT[:COUNT]``: fires at every COUNT-th event."""

    shape = "{0}:EVENT or {0}:EVENT:COUNT"

    def __init__(self, events: tuple[PerfEvent, ...], feature: str = "") -> None:
        self.events = events
        self.feature = feature
        self.names = {name: row for row in events for name in (row.name, row.alias) if name}

    def fit(self, point: Point) -> bool:
        return 1 <= len(point.parts) <= 2

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if not 1 <= len(parts) <= 2 or not parts[0].text:
            return self.bad_shape(point, scope)
        if parts[0].wild:
            scope.error(f"{point.kind.name} events take no pattern", parts[0].span)
            return []
        event = self.names.get(parts[0].text.lower())
        if event is None:
            hints = nearest(parts[0].text.lower(), self.names) or [f"events are {', '.join(sorted(self.names))}"]
            scope.error(f"there is no {point.kind.name} event {parts[0].text!r}", parts[0].span, hints)
            return []
        return self._event(point, event, scope)

    def _event(self, point: Point, event: PerfEvent, scope: Scope) -> list[Match]:
        period, suffix = event.period, ""
        if len(point.parts) == 2 and point.parts[1].text:
            number = number_of(point.parts[1], scope, "the count", parse_integer)
            if number is None:
                return []
            if not 1 <= number <= MOST_PERIOD:
                scope.error("the count must be positive", point.parts[1].span)
                return []
            period, suffix = number, f":{number}"
        if self.feature and scope.attaching and not scope.feature(self.feature):
            hints = ["software:cpu-clock and profile probes work without counters"]
            scope.missing(f"this machine has no {point.kind.name} counters that perf can use", point.span, hints)
            return []
        if scope.options.mode == "list":
            # As bpftrace lists them, and as this kind's own listing does: the event, and the place of a count.
            suffix = ":"
        name = f"{point.kind.name}:{point.parts[0].text}{suffix}"
        return [Match(point.kind, name, _place(event, period), point.span)]


def _place(event: PerfEvent, period: int) -> CountedEventTarget:
    return CountedEventTarget(event.name, event.config, period)
