"""The state of a question to many hosts, whatever carries the messages (:mod:`pytrace.remote.clustershell`).

A gateway carries the request to hosts behind it, and returns their merged results.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from math import inf

import msgspec
from msgspec.structs import replace

from pytrace.base.control_characters import printable_text
from pytrace.core.diagnostics import TraceError
from pytrace.remote import host_results, messages
from pytrace.remote.answer import Answer
from pytrace.remote.hosts import OVER, Host, Offset, State, said
from pytrace.remote.messages import (
    Ask,
    Attached,
    Beat,
    Clock,
    End,
    FromAgent,
    Hello,
    HostReport,
    Lines,
    Misfit,
    NamedPlace,
    NamedPlaces,
    Need,
    Refused,
    Relay,
    Reports,
    Request,
    Route,
    Send,
    Snapshot,
    Stated,
    Warned,
    over_budget,
)
from pytrace.remote.naming import Naming
from pytrace.remote.push import Pusher
from pytrace.remote.variants import Compile, Kind, Variants, kind_of
from pytrace.results.snapshot import SnapshotData

PREPARING = 120.0
"""Seconds in which a host must connect, compile and attach."""
_FIRST, _PUSHED = re.compile(rb'\{"type":"hello"'), re.compile(rb'\{"type":"(hello|need|send)"')
_MOST_NOISE = 1 << 16
"""Bytes that a login may print before the agent says hello."""
MEASUREMENTS = 4
"""Round trips by which a clock is measured before the script is sent."""
SHOWN = 80
"""Characters of a version that are shown."""

_HEAD = 64
"""Bytes at the beginning of results that say how large they are."""


class Controller:
    """Follows all hosts, and merges what they count."""

    def __init__(
        self, names: Sequence[str], request: Request, answer: Answer, folder: str,
        compile_: Compile | None = None, pusher: Pusher | None = None, clock: Callable[[], int] = time.time_ns,
        tree: Tree | None = None, naming: Naming | None = None,
    ) -> None:  # fmt: skip
        """*folder* is for the newest snapshot of each host, so that memory does not grow with their number.

        *compile_* compiles the script for hosts that its form does not fit; None: they compile for themselves.
        *pusher* has what hosts without pytrace need. *tree*: which of the hosts are reached through gateways.
        *naming* asks hosts for functions.
        """
        self.hosts = {name: Host(name) for name in names}
        gateways = [Gateway(f"gateway {route.gateway}", route=route) for route in tree.routes] if tree else []
        self._gateways = {gateway.name: gateway for gateway in gateways}
        self._through = {name: gateway for gateway in gateways for name in gateway.route.names}
        """The gateway of each host that has one."""
        self.peers: dict[str, Host] = {
            **{name: host for name, host in self.hosts.items() if name not in self._through}, **self._gateways
        }  # fmt: skip
        """All to which there are connections, by name."""
        self.levels = depth(tree.routes) if tree else 0
        self.variants = Variants(compile_)
        self.naming = naming or Naming()
        self._pusher = pusher
        self.news = 0
        """Grows with each snapshot of a host."""
        self._lock = threading.Lock()
        """Held while the answer changes, as :meth:`current` may be called in another thread."""
        self._script = host_results.Script.of(request)
        self._reader: ThreadPoolExecutor | None = None
        """A thread that reads and merges what takes long, so that hosts are heard meanwhile."""
        self._reading: list[_Reading] = []
        self._read: list[str] = []
        """Hosts whose results were read, of which something may have to be said."""
        self._checked: dict[str, bytes] = {}
        """Digests of the snapshots that a limited process has read, by host."""
        self._spoilt: dict[str, str] = {}
        """What is wrong with snapshots of hosts that still run."""
        self._outvoted: dict[str, tuple[State, str]] = {}
        """State and text of hosts before it was found that their results do not fit those of most others."""
        self._folder = folder
        self._request, self._limits, self._answer, self._clock = messages.encode(request), request.limits, answer, clock
        self._tree = tree
        self._lines: dict[str, Lines] = {}
        self._bytes = dict.fromkeys(self.peers, 0)
        self._files = {name: os.path.join(folder, str(number)) for number, name in enumerate(self.peers)}

    # ---- what is heard

    def asking(self, names: Iterable[str]) -> list[str]:
        """Hosts are asked as soon as the fan-out allows it. Returns the connections to be made: hosts and gateways."""
        wanted = []
        for name in names:
            self.hosts[name].state = State.WAITING
            gateway = self._through.get(name)
            if gateway is None:
                wanted.append(name)
                continue
            gateway.ask.append(name)
            if gateway.state is State.NOT_ASKED:
                gateway.state = State.WAITING
                wanted.append(gateway.name)
            elif gateway.state in OVER:
                gateway.lose(self.hosts)
        return wanted

    def node(self, name: str) -> str:
        """The machine to which a connection is made."""
        gateway = self._gateways.get(name)
        return name if gateway is None else gateway.route.gateway

    def connecting(self, name: str, now: float) -> None:
        """The connection to a host or a gateway begins."""
        host = self.peers[name]
        host.state, host.heard = State.WAITING, now
        self._lines[name] = Lines(messages.LONGEST_MESSAGE)

    def output(self, name: str, data: bytes, now: float) -> bytes | None:
        """Data of an agent. Returns what to say to it; None ends the connection."""
        host = self.peers[name]
        if host.state in OVER and not self.naming.waits(name) and not host.reading:
            return None
        self._bytes[name] += len(data)
        try:
            allowed = self._limits.bytes * (len(host.route.names) if isinstance(host, Gateway) else 1)
            if self._bytes[name] > allowed + messages.LONGEST_MESSAGE:
                raise TraceError(f"it has sent more than the {allowed} bytes allowed")
            for line in self._lines[name].add(data):
                self._take_line(host, line, now)
            if host.hello is None and self._bytes[name] > _MOST_NOISE:
                raise TraceError("what it prints is no message of pytrace agent")
        except Exception as error:  # noqa: BLE001  (whatever a host says is its own fault)
            if host.state in OVER:
                host.warn(f"what it said after its end is not used: {_failure_text(error)}")
                self.naming.gone(name)
            else:
                self._finish_host(host, State.LOST if host.hello else State.FAILED, _failure_text(error))
        return self.due(name, now)

    def due(self, name: str, now: float) -> bytes | None:
        """What an agent must hear now; None: nothing any more."""
        host = self.peers[name]
        if self.naming.waits(name):
            line = self.naming.said(name, now)
        elif host.reading:
            line = b""
        else:
            try:
                line = None if host.state in OVER else self._next_line(host)
            except Exception as error:  # noqa: BLE001  (what is said depends on what it has said)
                self._finish_host(host, State.FAILED, _failure_text(error))
                line = None
        if line is None:
            self._lines.pop(name, None)
        return line

    def owed(self) -> list[str]:
        """Connections on which something may have to be said that was not there before."""
        owed = [
            name for name, host in self.peers.items() if host.state not in OVER
            and (host.pushing or host.misfit or (isinstance(host, Gateway) and host.owed))
        ]  # fmt: skip
        read, self._read = self._read, []
        return owed + self.naming.waiting + read

    def _next_line(self, host: Host) -> bytes:
        """Parts of what is pushed; beats until the clock was measured, then the request; then answers."""
        if host.pushing and host.need is not None and self._pusher is not None:
            said = self._pusher.answer(host.need, host.send)
            host.pushing = not said
            if host.send is not None:
                host.pushed += len(said)
            return said
        if isinstance(host, Gateway) and host.state is State.RUNNING:
            return host.said(self.hosts, self.variants, self._pusher)
        if host.misfit:
            return self.variants.line(host)
        if host.asked or host.hello is None or host.beat:
            return b""
        if host.measured < MEASUREMENTS:
            return self.beat(host.name)
        host.asked = True
        if isinstance(host, Gateway) and self._tree is not None:
            return messages.encode(self._tree.of(host.route))
        return self._request

    def beat(self, name: str) -> bytes:
        """A line that says that this controller is there, and asks for the clock."""
        self.peers[name].beat = now = self._clock()
        return messages.encode(Beat(now))

    def complaint(self, name: str, data: bytes) -> None:
        """Data of a host's standard error output, of which the last line is kept."""
        self.peers[name].complain(data)

    def closed(self, name: str, status: int | None) -> None:
        """A connection has ended."""
        host = self.peers[name]
        self.naming.gone(name)
        for reading in self._reading:
            if reading.host is host:
                # It cannot be asked for names any more.
                reading.details = None
        if host.state in OVER:
            return
        text = host.reason(status)
        if host.hello is None:
            self._finish_host(host, State.FAILED, text + host.printed)
        else:
            self._finish_host(host, State.LOST, f"the connection ended before the run did ({text})")

    def _take_line(self, host: Host, line: bytes, now: float) -> None:
        if host.hello is None:
            # What a login prints may be before it, even without the end of a line.
            first = (_FIRST if self._pusher is None else _PUSHED).search(line)
            if first is None:
                host.noise = line.strip() or host.noise
                return
            line = line[first.start() :]
        host.heard = now
        message = messages.from_agent(line)
        if isinstance(message, Stated):
            # Facts that were asked for are no results.
            self._bytes[host.name] -= len(line)
        self._take_message(host, message, now)

    def _take_message(self, host: Host, message: FromAgent, now: float) -> None:
        if host.state in OVER and not isinstance(message, (NamedPlaces, Clock)):
            raise TraceError("its run was over")
        match message:
            case NamedPlaces():
                self._take_functions(host, message.places, now)
            case Need() | Send() | Hello() | Clock() | Misfit() | Stated():
                self._take_preparation(host, message)
            case Attached():
                # What a login said is no reason for what comes now.
                host.state, host.attached, host.complaint = State.RUNNING, now, ""
            case Warned(text):
                host.warn(text)
            case Reports():
                if not isinstance(host, Gateway):
                    raise TraceError("what it prints is for a gateway to say")
                host.update(self.hosts, message.reports, now)
            case Snapshot():
                self._take_results(host, message, now)
            case Refused():
                host.status = message.status or 1
                self._finish_host(host, State.REFUSED, _first_line(message.text) or "it does not say why")
            case End():
                self._take_end(host, message)

    def _take_functions(self, host: Host, named: Iterable[NamedPlace], now: float) -> None:
        """Take names of functions: answers to questions, or what the hosts of a gateway have answered."""
        if isinstance(host, Gateway):
            host.take(named)
        else:
            self.naming.answered(host.name, named, now)

    def _take_results(self, host: Host, message: Snapshot, now: float) -> None:
        """Keep the newest snapshot."""
        if isinstance(host, Gateway):
            host.update(self.hosts, message.reports, now)
        host.watched, host.lost, host.over_budget = now - host.attached, message.lost, message.over_budget
        self._keep_snapshot(host.name, message.data)

    def _take_end(self, host: Host, message: End) -> None:
        """Take the end of a run."""
        host.status, host.lost = message.status, message.lost
        host.over_budget |= over_budget(message.cost)
        early = message.reason not in ("duration", "exit", "stop")
        text = _first_line(message.error) or f"the run ended early ({message.reason})" if early else ""
        self._finish_host(host, State.CUT_SHORT if early else State.ANSWERED, text, message.details)

    def _take_preparation(self, host: Host, message: Need | Send | Hello | Clock | Misfit | Stated) -> None:
        """Take a message of a host that does not run yet."""
        match message:
            case Need() if isinstance(host, Gateway) and host.state is State.RUNNING:
                host.ask_for(message)
            case Misfit() if isinstance(host, Gateway):
                host.ask_for(message)
            case Stated() if isinstance(host, Gateway):
                self.variants.given(host, message)
            case Need() if host.need is None:
                host.need, host.pushing = message, True
            case Send() if message.start == host.pushed and not host.pushing:
                host.send, host.pushing = message, True
            case Need() | Send():
                # What waits for a host that does not read would be without bounds.
                raise TraceError("it asks twice for what is pushed to it")
            case Hello():
                _check_protocol(message)
                host.hello = message
            case Misfit():
                self.variants.wanted(host, message)
            case Stated():
                self.variants.stated(host, message)
            case Clock():
                # Another one is the answer to a beat before the last one.
                if host.beat and message.sent == host.beat:
                    host.measured, host.beat = host.measured + 1, 0
                    host.take_clock(message, self._clock())

    def _finish_host(self, host: Host, state: State, text: str, details: Mapping[str, int] | None = None) -> None:
        """A host has nothing more to say but names of functions: its newest snapshot becomes part of the answer."""
        host.state, host.text = state, said(text)
        if isinstance(host, Gateway):
            host.lose(self.hosts)
        path = self._files[host.name]
        if not os.path.exists(path):
            self._lines.pop(host.name, None)
            if state is State.ANSWERED and not isinstance(host, Gateway):
                host.state, host.text = State.LOST, "it sent no results"
            return
        with open(path, "rb") as file:
            head = file.read(_HEAD)
        if not self._reading and host_results.is_small(head):
            self._settle(host, details, partial(self._merge, host, path))
            return
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, "pytrace-fleet-results")
        host.reading = True
        self._reading.append(_Reading(host, details, self._reader.submit(self._merge, host, path)))

    def _merge(self, host: Host, path: str) -> SnapshotData:
        """Add the newest snapshot of a host to the answer. Returns it, as the host has sent it."""
        try:
            snapshot = self._read_snapshot(host, path)
            with self._lock:
                self._answer.add(host.name, snapshot, merged=isinstance(host, Gateway))
                # Before :meth:`current` would add it once more.
                os.unlink(path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
        return snapshot

    def _settle(self, host: Host, details: Mapping[str, int] | None, merged: Callable[[], SnapshotData]) -> None:
        """The results of a host were read, or could not be."""
        host.reading = False
        try:
            snapshot = merged()
            if isinstance(host, Gateway):
                self.naming.learn(snapshot, host.named)
            elif details:
                self.naming.begin(host.name, snapshot, details, host.heard)
        except Exception as error:  # noqa: BLE001  (whatever a host sends is its own fault)
            host.state, host.text = State.LOST, said(f"its results do not fit: {_failure_text(error)}")
            if isinstance(host, Gateway):
                host.spoil(self.hosts)
        finally:
            if not self.naming.waits(host.name):
                self._lines.pop(host.name, None)
        self._vote()

    def _vote(self) -> None:
        """Hosts whose results do not fit those of most others are lost, as long as that is so."""
        outvoted = self._answer.outvoted()
        for name in self._outvoted.keys() - outvoted.keys():
            self.peers[name].state, self.peers[name].text = self._outvoted.pop(name)
        for name, text in outvoted.items():
            host = self.peers[name]
            self._outvoted.setdefault(name, (host.state, host.text))
            host.state, host.text = State.LOST, said(text)

    def settle(self, *, wait: bool = False) -> None:
        """Take the results that were read meanwhile. *wait*: until all were."""
        while self._reading and (wait or self._reading[0].future.done()):
            done = self._reading[0]
            with suppress(Exception):  # raised again below
                done.future.result()
            self._settle(done.host, done.details, done.future.result)
            self._read.append(done.host.name)
            del self._reading[0]
        if wait and self._reader is not None:
            self._reader.shutdown()
            self._reader = None

    def _read_snapshot(self, host: Host, path: str) -> SnapshotData:
        """The snapshot of a host, as part of the answer.

        Raises:
            TraceError: it is damaged, too large, or not of this script.
        """
        with open(path, "rb") as file:
            data = file.read()
        if not host_results.is_small(data) and self._checked.get(host.name) != (digest := sha256(data).digest()):
            host_results.check(data, host.name)
            self._checked[host.name] = digest
        snapshot = host_results.read(data, host.name)
        if isinstance(host, Gateway):
            names, label = host.route.names, self._answer.label
            labels = None if label is None else frozenset(map(label, names))
            snapshot = self._script.fitted_of_gateway(snapshot, len(names), self._answer.name, labels)
        else:
            snapshot = self._script.fitted(snapshot)
        return host_results.aligned(snapshot, host.clock) if host.clock is not None else snapshot

    def _keep_snapshot(self, name: str, data: bytes) -> None:
        path = self._files[name]
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.replace(path + ".new", path)
        self.news += 1

    # ---- time

    def silent(self, now: float) -> list[str]:
        """Hosts that say nothing any more; their connections are to be ended."""
        patience = {State.WAITING: PREPARING, State.RUNNING: 3 * self._limits.every + 10}
        self.settle()
        found = self.naming.late(now)
        for name, why in list(self._spoilt.items()):
            del self._spoilt[name]
            if self.peers[name].state not in OVER:
                os.unlink(self._files[name])
                self._finish_host(self.peers[name], State.LOST, f"its results do not fit: {why}")
                found.append(name)
        for name in list(self._lines):
            host = self.peers[name]
            if host.reading:
                continue
            if now - host.heard > patience.get(host.state, inf):
                what = "the agent" if host.hello else "the connection"
                text = f"nothing was heard of {what} for {now - host.heard:.0f} s{host.printed}"
                self._finish_host(host, State.SILENT, text)
                found.append(name)
        return found

    def finish(self, now: float, stopped: str = "") -> None:
        """Nobody waits any longer. *stopped*: why some hosts were not asked."""
        self.settle(wait=True)
        for host in (*self.peers.values(), *self.hosts.values()):
            if host.state not in OVER and (host.asked or host.state is State.RUNNING):
                self._finish_host(host, State.SILENT, f"nothing was heard for {now - host.heard:.0f} s")
            elif host.state in (State.NOT_ASKED, State.WAITING):
                why = f"the roll-out stopped ({stopped})" if stopped else "interrupted"
                host.state, host.text = State.NOT_ASKED, f"not asked: {why}"

    def withdraw(self) -> set[str]:
        """Nobody else is asked. Returns the connections on which nothing was asked yet."""
        waiting = {name for name, host in self.peers.items() if host.state is State.WAITING and not host.asked}
        for host in (*self.peers.values(), *self.hosts.values()):
            if host.state is State.WAITING and not host.asked:
                host.state = State.NOT_ASKED
        for gateway in self._gateways.values():
            gateway.ask.clear()
        for name in waiting:
            self._lines.pop(name, None)
        return waiting

    def result(self) -> SnapshotData:
        """The answer of the hosts that have nothing more to say."""
        with self._lock:
            answer = self._answer.copy()
        return answer.result()

    def current(self) -> SnapshotData:
        """The answer so far, with the newest snapshots of all hosts; also called in other threads than the rest."""
        with tempfile.TemporaryDirectory(dir=self._folder) as links:
            with self._lock:
                answer = self._answer.copy()
                # What is linked stays as it is, while newer ones replace it.
                for path in self._files.values():
                    with suppress(FileNotFoundError):
                        os.link(path, os.path.join(links, os.path.basename(path)))
            for name, path in self._files.items():
                link = os.path.join(links, os.path.basename(path))
                if not os.path.exists(link):
                    continue
                host = self.peers[name]
                try:
                    answer.add(name, self._read_snapshot(host, link), merged=isinstance(host, Gateway))
                except Exception as error:  # noqa: BLE001  (whatever a host sends is its own fault)
                    # It would be read in vain each time.
                    self._spoilt[name] = _failure_text(error)
        return answer.result()

    def reports(self, names: Iterable[str], now: float) -> dict[str, HostReport]:
        """What is known of hosts, for the controller of a gateway."""
        return {name: reported(self.hosts[name], now) for name in names}

    @property
    def attached(self) -> int | None:
        """Number of hosts on which the script was attached; None while it may become more."""
        states = [host.state for host in self.hosts.values()]
        without = sum(map(states.count, (State.NOT_ASKED, State.FAILED, State.REFUSED)))
        return None if State.WAITING in states else len(states) - without

    @property
    def status(self) -> int:
        """The exit status: 0 if all hosts answered, and their scripts ended with 0."""
        return int(any(host.state is not State.ANSWERED or host.status for host in self.hosts.values()))


class _Reading(msgspec.Struct):
    """Results that are being read."""

    host: Host
    details: Mapping[str, int] | None
    future: Future[SnapshotData]


def folder() -> tempfile.TemporaryDirectory[str]:
    """A private folder for snapshots that are not final."""
    return tempfile.TemporaryDirectory(prefix="pytrace-fleet-")


def _first_line(text: str) -> str:
    return text.partition("\n")[0].removeprefix("ERROR: ")


def _check_protocol(hello: Hello) -> None:
    if hello.protocol != messages.PROTOCOL:
        raise TraceError(
            f"its pytrace ({hello.version[:SHOWN]}) speaks version {hello.protocol} of the protocol, this one "
            f"version {messages.PROTOCOL}: install the same version on both"
        )


def _failure_text(error: BaseException) -> str:
    """An error that what a host has sent leads to, as a reason."""
    if isinstance(error, TraceError):
        return error.message
    return f"what it sent cannot be used ({type(error).__name__}: {error})"


# ---------------------------------------------------------------------------------------------- gateways


MOST_QUESTIONS = 1024
"""Kinds of hosts about which a gateway may ask."""
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
    questions: set[Kind | Need] = msgspec.field(default_factory=set)
    """All that it has asked about."""
    named: list[NamedPlace] = msgspec.field(default_factory=list)
    """Functions that it has asked its hosts for."""

    def ask_for(self, question: Misfit | Need) -> None:
        """Note what it asks for its hosts.

        Raises:
            TraceError: it asks too much, or twice: answers are large, and wait until it reads them.
        """
        subject = kind_of(question) if isinstance(question, Misfit) else question
        if len(self.questions) >= MOST_QUESTIONS or subject in self.questions:
            raise TraceError("it asks too much")
        self.questions.add(subject)
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
