"""A gateway: carries the request of a controller on to hosts, and sends what they count as one merged snapshot.

A thread has ClusterShell's loop and the connections to the hosts; the main one hears and answers the controller.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue

from pytrace.core.diagnostics import TraceError, render_error
from pytrace.remote import clustershell, messages
from pytrace.remote.answer import Answer, fitting
from pytrace.remote.carriage import Carriage, Relayed, Stopping
from pytrace.remote.channels import Inbox, Outbox, Signals
from pytrace.remote.controller import Controller, Tree, folder
from pytrace.remote.hosts import OVER, State
from pytrace.remote.messages import (
    Archive,
    Ask,
    Attached,
    Beat,
    End,
    Inquiry,
    Misfit,
    NamedPlace,
    NamedPlaces,
    Need,
    Reason,
    Relay,
    Reports,
    Route,
    Snapshot,
    Stated,
    Stop,
    Variant,
)
from pytrace.remote.naming import Naming
from pytrace.remote.push import Archive as Pushed
from pytrace.remote.push import Pusher
from pytrace.remote.variants import Kind, Outcome

TURN, BUSY = 0.1, 0.005
"""Seconds of one wait for the controller, and of one while messages wait for room."""
AT_ONCE = frozenset({State.RUNNING, State.REFUSED, State.FAILED})
"""States that are told at once: those of hosts with results come with these."""
UNKNOWN = frozenset({State.NOT_ASKED, State.WAITING})
"""States of hosts of which nothing is to be told before the end."""


def _gateways(route: Route) -> Iterator[str]:
    """The gateways behind one."""
    for further in route.routes:
        yield further.gateway
        yield from _gateways(further)


class Gateway:
    """One request that is carried on."""

    def __init__(self, relay: Relay, inbox: Inbox, outbox: Outbox, signals: Signals) -> None:
        self._relay, self._inbox, self._outbox, self._signals = relay, inbox, outbox, signals
        self._carriage = Carriage(
            command=relay.command, program=relay.program, become=relay.become, worker=relay.worker,
            fanout=relay.fanout, ssh_options=relay.ssh_options,
        )  # fmt: skip
        self._names = relay.route.names
        clustershell.checked((*self._names, *_gateways(relay.route)))
        self._limits = relay.request.limits
        self._stages, self._stopping = Relayed(), Stopping()
        self._reason: Reason | None = None
        self._questions: SimpleQueue[Misfit | Need | Stated] = SimpleQueue()
        """Of the thread, for the controller."""
        self._named: SimpleQueue[NamedPlace] = SimpleQueue()
        """What hosts have said about functions."""
        self._variants: dict[Kind, Outcome | None] = {}
        self._archives: dict[tuple[str, str], Future[Pushed]] = {}
        self._told: dict[str, State] = {}
        self._number = self._seen = 0
        self._heard = self._next = time.monotonic()
        self._error: BaseException | None = None

    def serve(self) -> int:
        """Carry the request on until all hosts have answered. Returns the exit status."""
        relay = self._relay
        label = None if relay.labels is None else relay.labels.__getitem__
        pusher = Pusher(once=relay.push == "once", make=self._archive) if relay.push else None
        with folder() as private:
            answer = Answer(label, relay.by, most=relay.most_keys)
            controller = Controller(
                self._names, relay.request, answer, private, self._variant, pusher,
                tree=Tree(relay.route.routes, relay), naming=Naming(tell=self._named.put),
            )  # fmt: skip
            thread = threading.Thread(target=partial(self._ask, controller), name="pytrace-gateway", daemon=True)
            thread.start()
            self._outbox.put(Attached(probes=0, compiled_here=False))
            while thread.is_alive():
                self._turn(controller)
                if self._inbox.over:
                    thread.join(TURN)
            return self._end(controller)

    def _ask(self, controller: Controller) -> None:
        """The thread: ask hosts as they come, until no others will."""
        try:
            while self._stages.wait():
                clustershell.ask(
                    self._carriage, self._limits, controller, self._stages, lambda _: None, self._stopping
                )
        except BaseException as error:  # noqa: BLE001  (raised again in the main thread)
            self._error = error

    # ---- questions that only the controller answers, asked by the thread

    def _variant(self, kind: Kind, facts: bytes) -> Outcome | None:
        """A variant, None while the controller has not sent it."""
        outcome = self._variants.get(kind)
        if kind not in self._variants:
            self._variants[kind] = None
            self._questions.put(Misfit(lacks=tuple(sorted(kind.lacks)), cpus=kind.cpus, facts=kind.facts))
        elif outcome is not None and outcome.wanted and facts:
            self._variants[kind] = outcome = None
            self._questions.put(Stated(facts=kind.facts, data=facts))
        return outcome

    def _archive(self, python: str, machine: str) -> Future[Pushed]:
        """What is pushed, once the controller has sent it."""
        future: Future[Pushed] = Future()
        self._archives[python, machine] = future
        self._questions.put(Need(python=python, machine=machine))
        return future

    # ---- the controller

    def _turn(self, controller: Controller) -> None:
        """Hear and answer the controller, and tell it of the hosts."""
        now = time.monotonic()
        if self._inbox.read(BUSY if self._outbox.pending else TURN):
            self._heard = now
        lines, self._inbox.waiting = self._inbox.waiting, []
        for line in lines:
            self._message(messages.to_agent(line))
        try:
            while True:
                self._outbox.put(self._questions.get_nowait())
        except Empty:
            pass
        if self._reason is None and (reason := self._gone(now)) is not None:
            self._stop(reason)
        self._tell_names()
        self._report(controller, now)
        self._outbox.advance()

    def _message(self, message: messages.ToAgent) -> None:
        match message:
            case Beat():
                if (clock := self._inbox.clock(message)) is not None:
                    self._outbox.put(clock)
            case Ask(hosts):
                self._stages.add([name for name in hosts if name in self._names])
            case Stop():
                self._stop("stop")
            case Variant(compiled, lacks, cpus, facts, error):
                self._variants[Kind(frozenset(lacks), cpus, facts)] = Outcome(compiled, error)
            case Inquiry(facts=facts, questions=questions, whole=whole):
                self._variants[Kind(facts=facts)] = Outcome(questions=questions, wanted=whole)
            case Archive(python=python, machine=machine) if (python, machine) in self._archives:
                future = self._archives.pop((python, machine))
                if message.error:
                    future.set_exception(TraceError(message.error))
                else:
                    future.set_result(Pushed(message.data, hashlib.sha256(message.data).hexdigest()))
            case _:
                raise TraceError("a gateway carries one request, and another one came")

    def _gone(self, now: float) -> Reason | None:
        """Why the controller, or who stops this process, wants the end."""
        if self._signals.arrived:
            return "signal"
        if self._inbox.over or self._outbox.broken:
            return "input"
        return "heartbeat" if now - self._heard > self._limits.heartbeat else None

    def _stop(self, reason: Reason) -> None:
        """End the runs of all hosts, which :func:`clustershell.ask` waits for."""
        self._reason = reason
        self._stopping.count += 1
        self._stages.close()

    # ---- what is told

    def _report(self, controller: Controller, now: float) -> None:
        """Send news of hosts, and in turn all results."""
        states = {name: controller.hosts[name].state for name in list(self._stages.asked)}
        changed = {name for name, state in states.items() if state not in UNKNOWN and self._told.get(name) is not state}
        if at_once := [name for name in changed if states[name] in AT_ONCE]:
            reports = controller.reports(at_once, now).values()
            self._tell(Reports(tuple(report for report in reports if State(report.state) in AT_ONCE)))
        over = all(state in OVER - UNKNOWN for state in states.values())
        if over and len(states) == len(self._names):
            self._stages.close()
        elif (changed.difference(at_once) and over) or (controller.news != self._seen and now >= self._next):
            self._next = now + self._limits.every
            self._snapshot(controller, now, UNKNOWN, times=2)

    def _snapshot(self, controller: Controller, now: float, without: Collection[State], times: int = 1) -> None:
        """Queue a merged snapshot, unless that many *times* its size are more than is left."""
        self._seen = controller.news
        # Before the results: of hosts that are over by then, these have all.
        reports = controller.reports(list(self._stages.asked), now).values()
        data = fitting(controller.current(), messages.LARGEST_SNAPSHOT)
        self._number += 1
        if self._outbox.sent + times * (len(data) * 4 // 3) <= self._limits.bytes * len(self._names):
            told = tuple(report for report in reports if State(report.state) not in without)
            self._tell(Snapshot(number=self._number, data=data, reports=told))

    def _tell_names(self) -> None:
        """Queue what hosts have said about functions."""
        while names := [self._named.get() for _ in range(min(self._named.qsize(), messages.MOST_PLACES))]:
            self._outbox.put(NamedPlaces(tuple(names)))

    def _tell(self, message: Reports | Snapshot) -> None:
        self._told |= {report.name: State(report.state) for report in message.reports}
        self._outbox.put(message)

    def _end(self, controller: Controller) -> int:
        """The last results, and the end."""
        text = ""
        if isinstance(self._error, TraceError):
            text = render_error(self._error)
        elif self._error is not None:
            raise self._error
        self._tell_names()
        self._snapshot(controller, time.monotonic(), ())
        reason: Reason = "error" if text else self._reason or "exit"
        self._outbox.put(End(reason=reason, status=int(bool(text)), error=text))
        self._outbox.flush(self._limits.heartbeat)
        return int(bool(text))
