"""begin, end, self, test and bench: probes that the tracer itself runs."""

from __future__ import annotations

from pytrace.core.diagnostics import Note
from pytrace.core.probes.targets import NamedRunTarget, NoTarget, SignalTarget
from pytrace.frontend.attach.points.body_uses import Uses
from pytrace.frontend.attach.points.parts import Point
from pytrace.frontend.attach.providers.base import Match, Provider, Scope
from pytrace.frontend.syntax.typed_program import ProbeContext

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
