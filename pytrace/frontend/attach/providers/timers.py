"""profile and interval: timers, by frequency or period."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.numbers import DURATIONS, parse_integer
from pytrace.core.probes.targets import TIMER_UNITS, TimerTarget
from pytrace.frontend.attach.providers.base import MOST_PERIOD, Match, SampledProvider, Scope, nearest, number_of

if TYPE_CHECKING:
    from pytrace.frontend.attach.points.parts import Part, Point

LEAST_PERIOD = 1000
"""Minimum period in nanoseconds; the handler of a shorter timer would take all CPU time."""


class Timer(SampledProvider):
    """``kind:UNIT:N``, or ``kind:T`` with T in nanoseconds or with a duration suffix."""

    shape = "{0}:hz:N, {0}:us:N, {0}:ms:N, {0}:s:N, or {0}:T with T in nanoseconds or with a unit (as {0}:100ms)"

    def fit(self, point: Point) -> bool:
        return 1 <= len(point.parts) <= 2

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if len(point.parts) == 1 and point.parts[0].text:
            return self._period(point, point.parts[0], scope)
        if len(point.parts) != 2:
            return self.bad_shape(point, scope)
        return self._unit(point, *point.parts, scope)

    def _period(self, point: Point, part: Part, scope: Scope) -> list[Match]:
        period = number_of(part, scope, "the period", parse_integer)
        if period is None:
            return []
        if period < LEAST_PERIOD:
            name, number = point.kind.name, part.text
            meant = f"{name}:hz:{number} is {number} times a second, {name}:s:{number} every {number} seconds"
            hints = [f"a number without a unit is nanoseconds; {meant}"]
            scope.error(f"the period must be at least {LEAST_PERIOD} ns", part.span, hints if period > 0 else ())
            return []
        if period > MOST_PERIOD:
            scope.error("the period is too long", part.span)
            return []
        micros = period // 1000
        return [Match(point.kind, f"{point.kind.name}:us:{micros}", TimerTarget(period_ns=micros * 1000), point.span)]

    def _unit(self, point: Point, unit: Part, count: Part, scope: Scope) -> list[Match]:
        name = unit.text.lower()
        if name not in TIMER_UNITS:
            hints = nearest(name, TIMER_UNITS) or [f"units are {', '.join(TIMER_UNITS)}"]
            scope.error(f"{point.kind.name} has no unit {unit.text!r}", unit.span, hints)
            return []
        number = number_of(count, scope, "the frequency" if name == "hz" else "the period", parse_integer)
        if number is None:
            return []
        if number < 1 or number * DURATIONS.get(name, 1) > MOST_PERIOD:
            scope.error(f"{count.text} {name} is out of range", count.span)
            return []
        place = TimerTarget(frequency=number) if name == "hz" else TimerTarget(period_ns=number * DURATIONS[name])
        return [Match(point.kind, f"{point.kind.name}:{name}:{number}", place, point.span)]
