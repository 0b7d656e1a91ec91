"""Gateways as the controller sees them: each carries a request to hosts behind it, and returns their merged results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from pytrace.base.control_characters import printable_text
from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.clocks import Offset
from pytrace.remote.hosts import OVER, Host, State, said
from pytrace.remote.messages import Ask, HostReport, Misfit, NamedPlace, Need, Relay, Route
from pytrace.remote.push import Pusher
from pytrace.remote.variants import Variants

MOST_QUESTIONS = 1024
"""Kinds of hosts about which a gateway may ask at a time."""
MOST_NAMED = 1 << 20
"""Places of which a gateway may say the functions."""


class Tree(msgspec.Struct, frozen=True):
    """Which hosts are reached through which gateways, and what these are told."""

    routes: tuple[Route, ...]
    relay: Relay
    """For all of them."""

    def of(self, route: Route) -> Relay:
        """The first line to a gateway."""
        every = self.relay.labels
        labels = None if every is None else {name: every[name] for name in route.names}
        return replace(self.relay, route=route, labels=labels)


def depth(routes: Iterable[Route]) -> int:
    """The number of gateways on the longest way."""
    return max((1 + depth(route.routes) for route in routes), default=0)


class Gateway(Host):
    """An agent that carries the request on. Its state is that of its own connection."""

    route: Route = Route(gateway="")
    ask: list[str] = msgspec.field(default_factory=list)
    """Hosts that it is still to be told to ask."""
    needs: list[Need] = msgspec.field(default_factory=list)
    misfits: list[Misfit] = msgspec.field(default_factory=list)
    """Questions of its hosts, one for each kind, to be answered."""
    named: list[NamedPlace] = msgspec.field(default_factory=list)
    """Functions that it has asked its hosts for."""

    def ask_for(self, question: Misfit | Need) -> None:
        """Note what it asks for its hosts.

        Raises:
            TraceError: it asks too much.
        """
        if len(self.misfits) + len(self.needs) >= MOST_QUESTIONS:
            raise TraceError("it asks too much")
        if isinstance(question, Misfit):
            self.misfits.append(question)
        else:
            self.needs.append(question)

    def take(self, named: Iterable[NamedPlace]) -> None:
        """Take functions that its hosts have named, up to a limit."""
        self.named += named
        del self.named[MOST_NAMED:]

    @property
    def owed(self) -> bool:
        """Whether something is to be said to it."""
        return self.state is State.RUNNING and bool(self.ask or self.needs or self.misfits)

    def said(self, hosts: Mapping[str, Host], variants: Variants, pusher: Pusher | None) -> bytes:
        """What it must hear now, once it carries the request."""
        lines = []
        if self.ask:
            lines.append(messages.encode(Ask(tuple(self.ask))))
            for name in self.ask:
                hosts[name].asked = True
            self.ask.clear()
        for misfit in list(self.misfits):
            line, last = variants.of_kind(misfit, self)
            lines.append(line)
            if last:
                self.misfits.remove(misfit)
        for need in list(self.needs):
            answer = pusher.forwarded(need) if pusher is not None else None
            if answer is not None:
                self.needs.remove(need)
                lines.append(messages.encode(answer))
        return b"".join(lines)

    def update(self, hosts: Mapping[str, Host], reports: Iterable[HostReport], now: float) -> None:
        """Take what it says of its hosts; it says nothing of others."""
        behind = frozenset(self.route.names)
        for report in reports:
            host = hosts.get(report.name)
            if host is not None and report.name in behind and host.asked:
                _update(host, report, self.clock, now)

    def lose(self, hosts: Mapping[str, Host]) -> None:
        """It has nothing more to say: hosts that still ran are silent, others were not reached."""
        own = printable_text(self.route.gateway)
        why = self.text or "it ended before they did"
        for name in self.route.names:
            host = hosts[name]
            if host.state not in OVER:
                reached = self.asked and host.asked
                host.state, host.text = State.SILENT if reached else State.FAILED, f"its gateway {own}: {why}"
                host.heard = self.heard
        self.ask.clear()

    def spoil(self, hosts: Mapping[str, Host]) -> None:
        """Its results cannot be used."""
        for name in self.route.names:
            if hosts[name].state in (State.ANSWERED, State.CUT_SHORT):
                hosts[name].state, hosts[name].text = State.LOST, f"its gateway: {self.text}"


def _update(host: Host, report: HostReport, gateway: Offset | None, now: float) -> None:
    host.state, host.text, host.status = State(report.state), said(report.text), report.status
    host.warnings, host.unkept = [], 0
    for text in report.warnings:
        host.warn(text)
    host.hello, host.watched, host.lost = report.hello, report.watched, report.lost
    host.over_budget, host.heard = report.over_budget, now - report.unheard
    if report.clock is not None:
        clock = Offset(*report.clock)
        host.clock = clock if gateway is None else clock.after(gateway)


def reported(host: Host, now: float) -> HostReport:
    """What a gateway says of a host."""
    return HostReport(
        name=host.name, state=host.state.value, text=host.text, status=host.status, warnings=host.told,
        hello=host.hello, clock=None if host.clock is None else (host.clock.ahead, host.clock.error),
        watched=host.watched, lost=host.lost, over_budget=host.over_budget,
        unheard=max(now - host.heard, 0.0) if host.heard else 0.0,
    )  # fmt: skip
