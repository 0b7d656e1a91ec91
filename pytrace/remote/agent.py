"""``pytrace agent``: runs one script for a controller, and sends it what the script counts.

A request comes on standard input, messages go to standard output (:mod:`pytrace.remote.messages`). The run ends when
its time is over, when one of its limits is used up, and when the controller is gone: its input ends, or it is silent.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType

from msgspec.structs import replace

import pytrace
from pytrace.base import extras
from pytrace.core import kernel_info
from pytrace.core.costs import RunCost
from pytrace.core.diagnostics import Error, MisfitError, TraceError, render_error
from pytrace.core.kernel_info import MOST_CPUS, Question
from pytrace.core.manifest import CompiledScript as CompiledFile
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.interface.compiled import Arguments, CompiledScript, build, compile_options
from pytrace.interface.errors import TraceWarning
from pytrace.interface.tracing import Trace
from pytrace.interface.tracing import open as open_trace
from pytrace.remote import messages
from pytrace.remote.agent_policy import ALL, Policy
from pytrace.remote.answer import fitting
from pytrace.remote.channels import Inbox, Outbox, Signals
from pytrace.remote.messages import (
    Attached,
    Beat,
    End,
    Function,
    Hello,
    Inquiry,
    Limits,
    Misfit,
    NamedPlace,
    NamedPlaces,
    NamePlaces,
    Place,
    Reason,
    Refused,
    Relay,
    Request,
    Snapshot,
    Stated,
    Stop,
    Variant,
    Warned,
)
from pytrace.remote.variants import packed
from pytrace.runtime.load import remote_kernel
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine.clocks import read_both
from pytrace.runtime.output.streams import Channel
from pytrace.runtime.stacks.image_places import MetBinaries
from pytrace.runtime.stacks.images import SymbolFrame

PATIENCE = 60.0
"""Seconds until the request must have come."""
REQUEST = "request"
_OTHERS_MATCH = "patterns of the script match other probes here"
TURN, BUSY = 0.1, 0.005
"""Seconds of one wait for events, and of one while messages wait for room."""
SLICE = 0.5
"""Seconds of naming for one message."""
MOST_WARNINGS = 1000
MOST_ASKED = 64 * messages.MOST_PLACES
"""Places whose functions are still to be named: a controller waits for an answer before it asks again."""
GONE = ("input", "heartbeat", "signal", "bytes")
"""Reasons after which the controller is not waited for, or nothing more is sent to it."""


class HostFacts:
    """The facts about this host that its controller compiles with, collected when they are needed."""

    def __init__(self, questions: tuple[Question, ...]) -> None:
        """*questions*: what they answer."""
        self._questions = questions
        self._encoded = b""

    def digest(self) -> str:
        """What they are known by; empty if this host does not say, so that it is of no kind."""
        try:
            return kernel_info.facts_digest(self._facts())
        except TraceError:
            return ""

    def matches(self) -> str:
        """Which probes the patterns of the script match (:func:`pytrace.runtime.load.remote_kernel.probe_digest`)."""
        return remote_kernel.probe_digest(LiveKernel(), self._questions)

    def answer(self, inquiry: Inquiry) -> Stated:
        """What the controller wants of them.

        Raises:
            TraceError: this host does not say.
        """
        if new := set(inquiry.questions).difference(self._questions):
            self._questions += tuple(sorted(new))
            self._encoded = b""
        encoded = self._facts()
        data = packed(encoded) if inquiry.whole else b""
        return Stated(facts=kernel_info.facts_digest(encoded), data=data)

    def _facts(self) -> bytes:
        if not self._encoded:
            self._encoded = remote_kernel.answer_questions(LiveKernel(), self._questions).encoded()
        return self._encoded


class Naming:
    """Answers questions about places in binaries that were in stacks of the run, and in no others."""

    def __init__(
        self, met: MetBinaries, details: dict[str, int], inbox: Inbox, outbox: Outbox, signals: Signals
    ) -> None:
        self._met, self._details = met, details
        self._inbox, self._outbox, self._signals = inbox, outbox, signals

    def serve(self, limits: Limits) -> None:
        """Answer until the input ends, the controller is silent or does not read, or the time for it is over."""
        begun = heard = time.monotonic()
        asked: deque[Place] = deque()
        while (now := time.monotonic()) - begun < messages.NAMING and now - heard < limits.heartbeat:
            if self._over or self._outbox.sent > limits.bytes:
                return
            self._outbox.advance()
            if self._inbox.read(BUSY if asked or self._outbox.pending else TURN):
                heard = now
            for question in self._questions():
                asked += question.places
            if len(asked) > MOST_ASKED:
                raise TraceError("the controller asks for more functions than it reads")
            if asked and not self._outbox.pending:
                self._outbox.put(NamedPlaces(tuple(self._some(asked))))

    def _some(self, asked: deque[Place]) -> Iterator[NamedPlace]:
        """Names of places for some time, after which the controller is to hear of this host."""
        end = time.monotonic() + SLICE
        for _ in range(min(len(asked), messages.MOST_PLACES)):
            yield self._named(asked.popleft())
            if time.monotonic() > end:
                return

    @property
    def _over(self) -> bool:
        return self._inbox.over or self._signals.arrived or self._outbox.broken

    def _questions(self) -> list[NamePlaces]:
        """The questions that have come; beats are answered.

        Raises:
            TraceError: something else has come.
        """
        questions = []
        lines, self._inbox.waiting = self._inbox.waiting, []
        for message in map(messages.to_agent, lines):
            if isinstance(message, NamePlaces):
                questions.append(message)
            elif not isinstance(message, (Beat, Stop)):
                raise TraceError("an agent runs one request, and another one came")
            elif (clock := self._inbox.clock(message)) is not None:
                self._outbox.put(clock)
        return questions

    def _named(self, place: Place) -> NamedPlace:
        frames = self._met.functions(place.build_id, place.address)
        functions = tuple(map(_function, frames[-messages.MOST_INLINED :]))
        return NamedPlace(place, self._details.get(place.build_id, 0), functions)


def _function(frame: SymbolFrame) -> Function:
    most = messages.LONGEST_NAME
    offset = min(frame.offset, messages.LARGEST_OFFSET)
    return Function(frame.name[:most], offset, frame.file[:most], frame.line, frame.inlined)


@contextmanager
def end_requests() -> Iterator[Signals]:
    """Signals that end processes end the run in order, during the block."""
    signals = Signals()

    def handle(_number: int, _frame: FrameType | None) -> None:
        signals.arrived = True

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield signals
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def run(*, pushed: bool = False) -> int:
    """Serve one request, from standard input to standard output. Returns the exit status.

    *pushed*: this is the code of the controller.
    """
    # Nothing but messages goes to standard output, whatever else this process writes there.
    output = os.dup(1)
    os.dup2(2, 1)
    channel = Channel(output)
    channel.prepare()
    with end_requests() as signals, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return Agent(Inbox(0), Outbox(channel), signals, caught, pushed=pushed).serve()


class Agent:
    """One run for a controller."""

    def __init__(
        self, source: Inbox, outbox: Outbox, signals: Signals, caught: list[warnings.WarningMessage], *,
        pushed: bool = False,
    ) -> None:  # fmt: skip
        self._pushed = pushed
        self._policy = Policy("", ALL)
        """Until that of the host was read."""
        self._input, self._outbox, self._signals, self._caught = source, outbox, signals, caught
        self._warned = self._events = self._number = self._prepared = 0
        """The last: bytes of messages before the run."""
        self._stated = False
        """Whether facts about this host were stated."""
        self._reason: Reason | None = None
        self._heard = self._next = 0.0
        """When the controller was last heard; when the next snapshot is due."""

    def serve(self) -> int:
        """Say hello, read the request, run it. Returns the exit status."""
        wall, monotonic = read_both(time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)
        self._outbox.put(Hello(
            protocol=messages.PROTOCOL, version=pytrace.__version__, host=socket.gethostname(),
            kernel=platform.release(), machine=platform.machine(), wall=wall, monotonic=monotonic,
        ))  # fmt: skip
        try:
            self._policy = Policy.of_process(pushed=self._pushed)
            request = self._request()
            if request is None:
                return 0
            if isinstance(request, Relay):
                self._policy.check_relay()
                return self._relay(request)
            request = self._policy.applied(request)
            trace, here = self._opened(request)
        except TraceError as error:
            return self._refuse(render_error(error), error.status)
        except Error as error:
            return self._refuse(f"{error}\n", 1)
        return self._run(trace, request.limits, here)

    def _refuse(self, text: str, status: int) -> int:
        self._policy.refused(text.partition("\n")[0])
        self._outbox.put(Refused(text=text, status=status))
        self._outbox.flush(PATIENCE)
        return status

    def _relay(self, relay: Relay) -> int:
        """Carry a request on to other hosts.

        Raises:
            TraceError: what that needs is not installed.
        """
        try:
            from pytrace.remote import gateway  # needs an extra
        except ImportError as error:
            hints = (extras.hint("fleet"),)
            raise TraceError(f"a gateway needs ClusterShell: {error}", hints=hints) from None
        return gateway.Gateway(relay, self._input, self._outbox, self._signals).serve()

    def _request(self) -> Request | Relay | None:
        """The request; None if the input ends before it is there.

        Raises:
            TraceError: it is none, or does not come.
        """
        request = self._awaited(REQUEST)
        if request is None:
            return None
        if not isinstance(request, (Request, Relay)):
            raise TraceError("the first line is no request")
        if request.protocol != messages.PROTOCOL:
            raise TraceError(
                f"the controller speaks version {request.protocol} of the protocol, this pytrace "
                f"({pytrace.__version__}) version {messages.PROTOCOL}",
                hints=("install the same version of pytrace on both",),
            )
        return request

    def _awaited(self, name: str) -> messages.ToAgent | None:
        """The next message but for beats; None if the input ends before it.

        A request must come in time. Other messages may take longer, as long as the controller is there.

        Raises:
            TraceError: it does not come: *name* is what the error calls it.
        """
        end = time.monotonic() + PATIENCE
        message: messages.ToAgent = Beat()
        while isinstance(message, Beat):
            end = end if name == REQUEST else time.monotonic() + PATIENCE
            while not self._input.waiting:
                self._outbox.advance()
                if self._input.over or self._signals.arrived or self._outbox.broken:
                    return None
                if time.monotonic() > end:
                    raise TraceError(f"no {name} came within {PATIENCE:g} seconds")
                self._input.read(BUSY if self._outbox.pending else 1.0)
            message = messages.to_agent(self._input.waiting.pop(0))
            self._answer(message)
        return message

    def _answer(self, message: messages.ToAgent) -> None:
        """Answer a beat that asks for the clock."""
        if (clock := self._input.clock(message)) is not None:
            self._outbox.put(clock)

    # ---- the script

    def _opened(self, request: Request) -> tuple[Trace, bool]:
        """The running trace, and whether its script was compiled here.

        Raises:
            Error: the script does not run here.
        """
        selected, facts = _arguments(request), HostFacts(request.questions)
        variant = Variant(request.compiled)
        if request.variants and not request.compiled:
            variant = self._variant(MisfitError("no file was sent", kernel=True), facts)
        elif request.variants and request.matches and request.matches != facts.matches():
            other = self._variant(MisfitError(_OTHERS_MATCH, kernel=True), facts)
            variant = other if other.compiled else variant
            if not other.compiled:
                self._outbox.put(Warned(f"{_OTHERS_MATCH}: those of the controller's kernel are traced"))
        while variant.compiled:
            try:
                source = Source(request.script, request.text)
                script = CompiledFile.from_bytes(variant.compiled)
                return self._open(script, source, CompileOptions(), request, selected), False
            except MisfitError as error:
                if not request.text:
                    raise
                variant = self._variant(error, facts) if request.variants else Variant()
                if not variant.compiled:
                    self._outbox.put(Warned(f"{error.message}: the script is compiled here"))
        options = replace(
            compile_options(selected), positional=request.parameters, named=request.named, files=self._policy.files
        )
        source = Source(request.script, request.text)
        return self._open(_compiled(source, options, variant.error), source, options, request, selected), True

    def _variant(self, error: MisfitError, facts: HostFacts) -> Variant:
        """What the controller has instead of a file that does not fit.

        Raises:
            TraceError: it does not answer.
        """
        # What was compiled for the facts about this host, and does not fit, is about other things.
        digest = facts.digest() if error.kernel and not self._stated else ""
        if not (digest or error.lacks or error.cpus):
            return Variant()
        self._outbox.put(Misfit(lacks=error.lacks, cpus=min(error.cpus, MOST_CPUS), facts=digest))
        while isinstance(answer := self._awaited("variant"), Inquiry):
            self._outbox.put(facts.answer(answer))
        if not isinstance(answer, Variant):
            raise TraceError("the controller ended the run before it began")
        self._stated |= bool(digest)
        return answer

    def _open(
        self, script: CompiledFile, source: Source, options: CompileOptions, request: Request, selected: Arguments
    ) -> Trace:
        limits = request.limits
        self._policy.check(script.manifest)
        given = Arguments(**selected)
        given.pop("unsafe", None)
        compiled = CompiledScript(script, source, options)
        return open_trace(
            compiled, duration=limits.duration, measure=request.options.measure, max_memory=limits.max_memory,
            confined=True, places=request.places, **given,
        )  # fmt: skip

    # ---- the run

    def _run(self, trace: Trace, limits: messages.Limits, here: bool) -> int:
        error: TraceError | None = None
        began = time.monotonic()
        with trace:
            try:
                self._prepared = self._outbox.sent
                self._outbox.put(Attached(probes=len(trace.script.probes), compiled_here=here))
                self._heard = self._next = time.monotonic()
                while self._reason is None:
                    self._turn(trace, limits)
                trace.request_end()
                while not trace.ended:
                    trace.batch(0)
                    self._outbox.advance()
            except TraceError as raised:
                error, self._reason = raised, "error"
        self._tell()
        losses, cost, status = trace.losses, trace.cost, trace.exit_code
        if not self._snapshot(trace, limits.bytes) and error is None:
            error, self._reason = TraceError(f"the results take more than the {limits.bytes} bytes allowed"), "bytes"
        status = error.status if error is not None else status
        text = "" if error is None else render_error(error)
        assert self._reason is not None
        self._policy.ended(time.monotonic() - began, self._reason)
        met = trace.met_binaries if self._reason not in GONE else None
        details = {} if met is None else met.details()
        self._outbox.put(
            End(reason=self._reason, status=status, error=text, losses=losses, cost=cost, details=details)
        )
        self._outbox.flush(limits.heartbeat)
        if met is not None and details:
            Naming(met, details, self._input, self._outbox, self._signals).serve(limits)
        return status

    def _turn(self, trace: Trace, limits: messages.Limits) -> None:
        """Take events, read and write messages, and look at the limits."""
        self._events += len(trace.batch(BUSY if self._outbox.pending else TURN))
        self._tell()
        now = time.monotonic()
        reason = self._controller(now, limits)
        if trace.ended:
            reason = "duration" if _passed(trace) >= limits.duration else "exit"
        elif self._events > limits.events:
            reason = "events"
        elif reason is None and now >= self._next:
            self._next = now + limits.every
            # The last one needs room as well.
            if not self._snapshot(trace, limits.bytes, times=2):
                reason = "bytes"
            elif _detached(trace.cost):
                reason = "budget"
        self._outbox.advance()
        self._reason = reason

    def _controller(self, now: float, limits: messages.Limits) -> Reason | None:
        """Why the controller, or who stops this process, wants the end."""
        while self._input.read(0):
            self._heard = now
        lines, self._input.waiting = self._input.waiting, []
        for message in map(messages.to_agent, lines):
            if isinstance(message, Stop):
                return "stop"
            if not isinstance(message, Beat):
                raise TraceError("an agent runs one request, and another one came")
            self._answer(message)
        if self._signals.arrived:
            return "signal"
        if self._input.over or self._outbox.broken:
            return "input"
        return "heartbeat" if now - self._heard > limits.heartbeat else None

    def _snapshot(self, trace: Trace, most: int, times: int = 1) -> bool:
        """Queue a snapshot, unless that many *times* its size are more than is left. Returns whether it was."""
        self._number += 1
        data = fitting(trace.snapshot().data, messages.LARGEST_SNAPSHOT)
        if self._outbox.sent - self._prepared + times * (len(data) * 4 // 3) > most:
            return False
        self._outbox.put(Snapshot(
            number=self._number, data=data, lost=messages.total(trace.losses),
            over_budget=messages.over_budget(trace.cost),
        ))  # fmt: skip
        return True

    def _tell(self) -> None:
        """Send new warnings."""
        caught, self._caught[:] = list(self._caught), []
        for item in caught:
            if issubclass(item.category, TraceWarning) and self._warned < MOST_WARNINGS:
                self._warned += 1
                self._outbox.put(Warned(messages.shortened(str(item.message))))
            elif not issubclass(item.category, TraceWarning):
                sys.stderr.write(f"{item.message}\n")


def _passed(trace: Trace) -> float:
    """Seconds since the probes were attached."""
    run = trace.snapshot().runs[0]
    return (run.end_monotonic - run.start_monotonic) / 1e9


def _detached(cost: RunCost | None) -> bool:
    """Whether the budget has detached all probes."""
    return cost is not None and bool(cost.probes) and all(probe.detached for probe in cost.probes)


def _arguments(request: Request) -> Arguments:
    """The arguments of the Python interface for the options and limits of a request."""
    options, limits = request.options, request.limits
    arguments = Arguments(
        comm=options.comm, uid=options.uid, cgroup=options.cgroup, container=options.container,
        no_features=options.no_features, unsafe=options.unsafe,
    )  # fmt: skip
    if options.max_rate:
        arguments["max_rate"] = dict(options.max_rate)
    if limits.budget:
        arguments |= Arguments(budget=limits.budget, over_budget=limits.over_budget)
    return arguments


def _compiled(source: Source, options: CompileOptions, error: str) -> CompiledFile:
    """The script, compiled from its text. *error*: why the controller could not for this host.

    Raises:
        ScriptError, TraceError: it has errors, or this machine cannot compile.
    """
    if find_spec("llvmlite") is None:
        if error:
            raise TraceError(f"the script cannot be compiled for this host:\n{error.rstrip()}")
        hints = ("install pytrace there, with its compiler",)
        raise TraceError("the script must be compiled here, and this host has no compiler", hints=hints)
    # What others may not import is not kept for those who may.
    return build(source, options, cached=options.files)
