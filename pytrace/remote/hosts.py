"""What a controller knows of each host, and the report about those that did not answer.

Offsets of hosts' clocks are measured by round trips as NTP does (RFC 5905, section 8).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from enum import Enum

import msgspec

from pytrace.base.control_characters import printable_text
from pytrace.core.diagnostics import counted
from pytrace.remote.messages import Clock, Hello, Need, Send, shortened

SHOWN, _MOST_KERNELS = 80, 5
"""Characters of a kernel's release, and number of releases that are shown: hosts send them."""

NOTABLE = 100_000_000
"""Nanoseconds by which a clock must be wrong to be reported."""

Folded = Callable[[Iterable[str]], str]
"""Names of hosts as a node set: ``web[003,017]``."""

MOST_WARNINGS = 20
"""Warnings that are kept of a host."""


def said(text: str) -> str:
    """What a host says, as it is kept and shown."""
    return printable_text(shortened(text))


LATEST = (1 << 63) - 1
"""The latest time that snapshots hold; hosts may send any."""


class Offset(msgspec.Struct, frozen=True):
    """How far the wall clock of a host is ahead of the controller's, in nanoseconds."""

    ahead: int
    error: int
    """The true value is at most so far from *ahead*."""

    @classmethod
    def measured(cls, clock: Clock, back: int) -> Offset | None:
        """The offset by an answer that came at *back* by the clock of the controller; None if it cannot be true."""
        trip = (back - clock.sent) - (clock.answered - clock.received)
        if clock.answered < clock.received or trip < 0:
            return None
        ahead = ((clock.received - clock.sent) + (clock.answered - back)) // 2
        return cls(ahead, trip // 2 + 1)

    @property
    def correction(self) -> int:
        """What is subtracted from times of the host: nothing if the clocks may well be equal."""
        return self.ahead if abs(self.ahead) > self.error else 0

    def after(self, other: Offset) -> Offset:
        """The offset by two steps: this one was measured by a clock that has the *other*."""
        ahead = min(max(self.ahead + other.ahead, -LATEST), LATEST)
        return Offset(ahead, min(self.error + other.error, LATEST))


_MOST_COMPLAINT = 4096
"""Characters kept of a line of standard error output."""

_LOGIN = re.compile(r"^\S+@\S+: (?=\S)")
_CONNECT = re.compile(r"^ssh: connect to host \S+ port (\d+): (.*)$")
_RESOLVE = re.compile(r"^ssh: (Could not resolve hostname) \S+?:")
_PEER = re.compile(r" (?:by|from|to|with) \S+ port (\d+)")
_CHANGED = re.compile(r"^(?:\w+ )?[Hh]ost key for \S+ has changed.*")
_VAGUE = re.compile(r"Host key verification failed|stdio forwarding failed|Connection closed by \S+ port \d|"
                    r"kex_exchange_identification: Connection closed")  # fmt: skip
"""What ssh says after the reason, as a last line."""


class State(Enum):
    """How far a host is; the value is the word of the report."""

    NOT_ASKED = "not asked"
    """Not yet, or no more, as the roll-out stopped or the user did."""
    WAITING = "waiting"
    """Not connected yet, or its script is not attached."""
    RUNNING = "running"
    ANSWERED = "answered"
    CUT_SHORT = "cut short"
    """A limit or an error ended its run, which counts up to then."""
    REFUSED = "refused"
    FAILED = "failed"
    """No agent came to be: the connection, or the command."""
    LOST = "lost"
    """The connection ended before the run; what it had sent by then counts."""
    SILENT = "silent"
    """As lost, but the connection did not end."""


OVER = frozenset(State) - {State.WAITING, State.RUNNING}


class Host(msgspec.Struct):
    """One host."""

    name: str
    state: State = State.NOT_ASKED
    hello: Hello | None = None
    heard: float = 0.0
    """When it was last heard, or the connection began."""
    text: str = ""
    """Why it did not answer: one line."""
    status: int = 0
    """Of its run."""
    complaint: str = ""
    """The last line of its standard error output."""
    noise: bytes = b""
    """The last line of what a login printed before the agent said anything."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """The first ones."""
    unkept: int = 0
    """Further warnings."""
    beat: int = 0
    """When it was last asked for its clock, by the controller's wall clock."""
    measured: int = 0
    """How often it answered."""
    clock: Offset | None = None
    need: Need | None = None
    """What it has instead of pytrace."""
    send: Send | None = None
    pushing: bool = False
    """Whether something is to be pushed to it."""
    pushed: int = 0
    """Bytes that it was sent of that."""
    misfit: bool = False
    """Whether a variant is to be sent to it."""
    lacks: frozenset[str] = frozenset()
    """Features that it does not have, as far as it was asked."""
    cpus: int = 0
    """CPUs that the script must be compiled for; 0 if that does not matter."""
    facts: str = ""
    """Digest of the facts that the script must be compiled for; empty if it need not."""
    inquired: bool = False
    """Whether it is to state them."""
    variants: int = 0
    """Variants that it has asked for."""
    asked: bool = False
    """Whether the request was sent."""
    reading: bool = False
    """Whether its results are being read, after the end of its run."""
    attached: float = 0.0
    """When its script was attached."""
    watched: float | None = None
    """Seconds from then to the last snapshot, which said how it is doing."""
    lost: int = 0
    """Losses that it reported."""
    over_budget: bool = False
    """Whether probes were sampled or detached because of the budget."""

    def take_clock(self, clock: Clock, back: int) -> None:
        """Keep the offset by an answer that came at *back*, if its error is less than of those before."""
        offset = Offset.measured(clock, back)
        if offset is not None and (self.clock is None or offset.error < self.clock.error):
            self.clock = offset

    def complain(self, data: bytes) -> None:
        """Keep the last line of its standard error output that says something; *data* are the next bytes."""
        text = self.complaint + data.decode("utf-8", "replace")
        lines = [line for line in text.splitlines(keepends=True) if line.strip() and not line.startswith("HINT:")]
        while len(lines) > 1 and _VAGUE.match(lines[-1]):
            lines.pop()
        self.complaint = lines[-1][-_MOST_COMPLAINT:] if lines else ""

    def reason(self, status: int | None) -> str:
        """Why no agent came to be, without the name of the host, so that hosts with one reason are told together.

        *status* is that of the command, if it has ended.
        """
        complaint = printable_text(self.complaint.rstrip())
        text = _CHANGED.sub("its host key has changed", _LOGIN.sub("", complaint.strip()))
        text = _RESOLVE.sub(r"\1:", _CONNECT.sub(r"\2 (port \1)", text))
        text = _PEER.sub(r" (port \1)", text).rstrip(".")
        return text or ("the connection ended" if status is None else f"the command ended with status {status}")

    def warn(self, text: str) -> None:
        """Keep a warning, if it is one of the first."""
        if len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(said(text))
        else:
            self.unkept += 1

    @property
    def told(self) -> tuple[str, ...]:
        """The warnings, each once, and how many were not kept."""
        more = (f"{counted(self.unkept, 'more warning')}",) if self.unkept else ()
        return (*dict.fromkeys(self.warnings), *more)

    @property
    def printed(self) -> str:
        """What came in place of an agent, if that is all there is to say."""
        if self.hello is not None or self.complaint or not self.noise:
            return ""
        return f"; it printed: {printable_text(self.noise.decode('utf-8', 'replace'))[:SHOWN]}"


class Hosts(msgspec.Struct, frozen=True):
    """The hosts of a run, for its report; *fold* writes the names of several."""

    hosts: Collection[Host]
    fold: Folded

    def summary(self, now: float) -> str:
        """``398 of 400 answered; 1 refused (kernel 4.19), 1 silent since 12 s``."""
        by_state: dict[State, list[Host]] = {}
        for host in self.hosts:
            by_state.setdefault(host.state, []).append(host)
        parts = []
        for state in State:
            those = by_state.get(state, [])
            if those and state is not State.ANSWERED:
                parts.append(f"{len(those)} {state.value}{_detail(state, those, now)}")
        head = f"{len(by_state.get(State.ANSWERED, []))} of {counted(len(self.hosts), 'host')} answered"
        return "; ".join(filter(None, (head, ", ".join(parts))))

    def without_answer(self, label: Callable[[str], str] | None) -> dict[str, int]:
        """The numbers of hosts that did not answer by their state, or by label and state."""
        counts = Counter[str]()
        for host in self.hosts:
            if host.state in OVER and host.state is not State.ANSWERED:
                counts[host.state.value if label is None else f"{label(host.name)}: {host.state.value}"] += 1
        return counts

    def complaints(self) -> list[str]:
        """A line for each reason not to answer, with the hosts that have it."""
        return self._lines((host.text, host) for host in self.hosts if host.text)

    def warnings(self) -> list[str]:
        """A line for each warning, with the hosts that have it."""
        return self._lines((text, host) for host in self.hosts for text in host.told)

    def clocks(self) -> list[str]:
        """A line for each notable difference of a clock, with the hosts that have it."""
        wrong = [
            (f"{abs(clock.ahead) / 1e9:.1f} s {'ahead of' if clock.ahead > 0 else 'behind'}", host)
            for host in self.hosts if (clock := host.clock) is not None and abs(clock.correction) >= NOTABLE
        ]  # fmt: skip
        return self._lines((f"its clock is {text} this machine's; times were corrected", host) for text, host in wrong)

    def _lines(self, texts: Iterable[tuple[str, Host]]) -> list[str]:
        by_text: dict[str, list[str]] = {}
        for text, host in texts:
            by_text.setdefault(text, []).append(host.name)
        return [f"{self.fold(names)}: {text}" for text, names in by_text.items()]


def _detail(state: State, hosts: list[Host], now: float) -> str:
    if state is State.SILENT:
        times = sorted({round(now - host.heard) for host in hosts})
        return f" since {times[0]} s" if len(times) == 1 else f" since {times[0]} to {times[-1]} s"
    if state is State.REFUSED:
        kernels = sorted({printable_text(host.hello.kernel)[:SHOWN] for host in hosts if host.hello is not None})
        more = ", …" if len(kernels) > _MOST_KERNELS else ""
        return f" (kernel {', '.join(kernels[:_MOST_KERNELS])}{more})" if kernels else ""
    return ""
