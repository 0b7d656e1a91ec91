"""Probes without a place in code: begin, end, self, test and bench, which the tracer runs itself; perf events."""

from __future__ import annotations

from pytrace.core.diagnostics import Note
from pytrace.core.probe_kinds import (
    TIMER_UNITS,
    CountedEventTarget,
    NamedRunTarget,
    NoTarget,
    PerfEvent,
    SignalTarget,
    TimerTarget,
    WatchpointTarget,
)
from pytrace.core.text import DURATIONS
from pytrace.frontend.probes.providers import Match, Part, Point, Provider, Scope, Uses, nearest, number_of, perf_event
from pytrace.frontend.syntax.typed_program import ProbeContext

_MOST_PERIOD = 2**63 - 1
"""Nanoseconds or events between two hits (``sample_period`` of ``struct perf_event_attr``, checked for its sign)."""


# ---------------------------------------------------------------------------------------------------- run by the tracer

# begin, end, self, test and bench: probes that the tracer itself runs.


SIGNALS = ("SIGUSR1",)
"""Signals that ``self:signal`` accepts."""


class _Special(Provider):
    single = True  # Nothing is attached, so there is no cookie to distinguish targets: each gets a program of its own.

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del match, uses, scope
        return ProbeContext()


class Plain(_Special):
    """begin and end."""

    shape = "{}, without anything after it"
    counts = range(1)

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if not self.fit(point):
            return self.bad_shape(point, scope)
        return [Match(point.kind, point.kind.name, NoTarget(), point.span)]


class Self(_Special):
    """``self:signal:SIGUSR1``."""

    shape = "{}:signal:SIGUSR1"
    counts = range(2, 3)

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if len(point.parts) != 2 or point.parts[0].text.lower() != "signal":
            return self.bad_shape(point, scope)
        signal = point.parts[1]
        if signal.text.upper() not in SIGNALS:
            return scope.error(
                f"self:signal cannot wait for {signal.text!r}", signal.span, [f"it takes {' or '.join(SIGNALS)}"]
            )
        name = signal.text.upper()
        return [Match(point.kind, f"self:signal:{name}", SignalTarget(name), point.span)]


class Named(_Special):
    """``test:NAME`` and ``bench:NAME``; a name may be used once."""

    shape = "{}:NAME"
    counts = range(1, 2)

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if len(point.parts) != 1 or not point.parts[0].text:
            return self.bad_shape(point, scope)
        name = point.parts[0].text
        first = scope.names.setdefault((point.kind.name, name), point.parts[0].span)
        if first != point.parts[0].span:
            note = Note("the first one is here", first)
            scope.diagnostics.error(
                f"there already is a {point.kind.name} named {name!r}", point.parts[0].span, notes=[note]
            )
            return []
        return [Match(point.kind, point.name, NamedRunTarget(name), point.span)]


# ----------------------------------------------------------------------------------------- software and hardware events


class SampledProvider(Provider):
    """A provider of perf events, whose context is that of a sample and has no arguments."""

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del match
        return ProbeContext(ctx_type=perf_event(scope.kernel) if "ctx" in uses else None)


class Counter(SampledProvider):
    """``kind:EVENT[:COUNT]``: fires at every COUNT-th event."""

    shape = "{0}:EVENT or {0}:EVENT:COUNT"

    def __init__(self, events: tuple[PerfEvent, ...], feature: str = "") -> None:
        self.events = events
        self.feature = feature
        self.names = {name: row for row in events for name in (row.name, row.alias) if name}

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if not self.fit(point) or not parts[0].text:
            return self.bad_shape(point, scope)
        if parts[0].wild:
            return scope.error(f"{point.kind.name} events take no pattern", parts[0].span)
        event = self.names.get(parts[0].text.lower())
        if event is None:
            hints = nearest(parts[0].text.lower(), self.names) or [f"events are {', '.join(sorted(self.names))}"]
            return scope.error(f"there is no {point.kind.name} event {parts[0].text!r}", parts[0].span, hints)
        return self._event(point, event, scope)

    def _event(self, point: Point, event: PerfEvent, scope: Scope) -> list[Match]:
        period, suffix = event.period, ""
        if len(point.parts) == 2 and point.parts[1].text:
            number = number_of(point.parts[1], scope, "the count")
            if number is None:
                return []
            if not 1 <= number <= _MOST_PERIOD:
                return scope.error("the count must be positive", point.parts[1].span)
            period, suffix = number, f":{number}"
        if self.feature and scope.attaching and not scope.feature(self.feature):
            hints = ["software:cpu-clock and profile probes work without counters"]
            return scope.missing(f"this machine has no {point.kind.name} counters that perf can use", point.span, hints)
        if scope.options.mode == "list":
            # As bpftrace lists them, and as this kind's own listing does: the event, and the place of a count.
            suffix = ":"
        name = f"{point.kind.name}:{point.parts[0].text}{suffix}"
        place = CountedEventTarget(event.name, event.config, period)
        return [Match(point.kind, name, place, point.span)]


# ---------------------------------------------------------------------------------------------- timers

_LEAST_PERIOD = 1000
"""Minimum period in nanoseconds; the handler of a shorter timer would take all CPU time."""


class Timer(SampledProvider):
    """``kind:UNIT:N``, or ``kind:T`` with T in nanoseconds or with a duration suffix."""

    shape = "{0}:hz:N, {0}:us:N, {0}:ms:N, {0}:s:N, or {0}:T with T in nanoseconds or with a unit (as {0}:100ms)"

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if len(point.parts) == 1 and point.parts[0].text:
            return self._period(point, point.parts[0], scope)
        if len(point.parts) != 2:
            return self.bad_shape(point, scope)
        return self._unit(point, *point.parts, scope)

    def _period(self, point: Point, part: Part, scope: Scope) -> list[Match]:
        period = number_of(part, scope, "the period")
        if period is None:
            return []
        if period < _LEAST_PERIOD:
            name, number = point.kind.name, part.text
            meant = f"{name}:hz:{number} is {number} times a second, {name}:s:{number} every {number} seconds"
            hints = [f"a number without a unit is nanoseconds; {meant}"]
            message = f"the period must be at least {_LEAST_PERIOD} ns"
            return scope.error(message, part.span, hints if period > 0 else ())
        if period > _MOST_PERIOD:
            return scope.error("the period is too long", part.span)
        micros = period // 1000
        return [Match(point.kind, f"{point.kind.name}:us:{micros}", TimerTarget(period_ns=micros * 1000), point.span)]

    def _unit(self, point: Point, unit: Part, count: Part, scope: Scope) -> list[Match]:
        name = unit.text.lower()
        if name not in TIMER_UNITS:
            hints = nearest(name, TIMER_UNITS) or [f"units are {', '.join(TIMER_UNITS)}"]
            return scope.error(f"{point.kind.name} has no unit {unit.text!r}", unit.span, hints)
        number = number_of(count, scope, "the frequency" if name == "hz" else "the period")
        if number is None:
            return []
        if number < 1 or number * DURATIONS.get(name, 1) > _MOST_PERIOD:
            return scope.error(f"{count.text} {name} is out of range", count.span)
        place = TimerTarget(frequency=number) if name == "hz" else TimerTarget(period_ns=number * DURATIONS[name])
        return [Match(point.kind, f"{point.kind.name}:{name}:{number}", place, point.span)]


# ---------------------------------------------------------------------------------------------- watchpoints

LENGTHS = (1, 2, 4, 8)
MODES = {"x86_64": ("w", "rw", "x")}
"""Modes by machine; other machines accept all sensible combinations of ``r``, ``w`` and ``x``."""
_ANY_MODES = ("r", "w", "rw", "x")


class Watchpoint(SampledProvider):
    """``watchpoint:ADDRESS:LENGTH:MODE``."""

    shape = "{0}:ADDRESS:LENGTH:MODE"
    counts = range(3, 4)

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if len(parts) != 3 or not all(part.text for part in parts):
            return self.bad_shape(point, scope)
        if not parts[0].number:
            hints = (
                ["a uprobe on the function can read the address that its argument holds"]
                if "+" in parts[0].text
                else []
            )
            return scope.error(f"a watchpoint needs an address, not {parts[0].text!r}", parts[0].span, hints)
        address = number_of(parts[0], scope, "the address")
        length = number_of(parts[1], scope, "the length")
        mode = self._mode(parts[2], scope)
        if address is None or length is None or mode is None:
            return []
        if not 0 < address < 2**64:
            return scope.error("the address must not be 0 and must fit 64 bits", parts[0].span)
        if length not in LENGTHS:
            return scope.error(f"a watchpoint has a length of 1, 2, 4 or 8 bytes, not {length}", parts[1].span)
        if scope.attaching and not scope.feature("watchpoint"):
            message = "watchpoint is not possible: this machine has no hardware breakpoints for perf"
            return scope.missing(message, point.span)
        place = WatchpointTarget(address, length, mode)
        return [Match(point.kind, f"{point.kind.name}:{address}:{length}:{mode}", place, point.span)]

    def _mode(self, part: Part, scope: Scope) -> str | None:
        letters = part.text
        strange = sorted(set(letters) - set("rwx"))
        if strange:
            scope.error(f"a watchpoint mode is made of r, w and x, not {strange[0]!r}", part.span)
            return None
        if len(set(letters)) < len(letters):
            scope.error(f"a letter is repeated in watchpoint mode {letters!r}", part.span)
            return None
        mode = "".join(sorted(letters))
        allowed = MODES.get(scope.kernel.arch, _ANY_MODES)
        if mode not in allowed:
            hints = ["the CPU cannot watch reads only; rw watches both"] if mode == "r" else []
            scope.error(
                f"watchpoint mode {letters!r} is not possible on {scope.kernel.arch}; {', '.join(allowed)} are",
                part.span,
                hints,
            )
            return None
        return mode
