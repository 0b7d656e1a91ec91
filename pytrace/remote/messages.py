"""What a controller and ``pytrace agent`` say to each other: one JSON object a line, of a bounded length.

Lines, because what carries them (ClusterShell, ``kubectl exec``, ssh) reads and buffers by lines; so snapshots are in
base64. docs/develop/agent-protocol.md describes the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from pytrace.base import typed_json
from pytrace.core.costs import RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES, LARGEST_PACKED_FACTS, MOST_CPUS, Digest, Questions
from pytrace.core.options import SAMPLE, Budget, parse_memory

PROTOCOL = 1
"""Grows when an older side would misunderstand; members that a reader does not know are ignored."""

LONGEST_REQUEST = 16 << 20
"""Bytes of the longest request."""
LONGEST_LINE = LONGEST_REQUEST + (16 << 20)
"""Bytes of the longest line that an agent reads: of a gateway's, names of hosts are a part."""
LONGEST_MESSAGE = 32 << 20
"""Bytes of the longest line that a controller reads: a snapshot of 24 MiB, compressed."""

MOST_PARTS = 1 << 20
"""Members and elements of a line: of parsed JSON each takes up to 200 bytes."""

LARGEST_SNAPSHOT = LONGEST_MESSAGE // 4 * 3 - 1024
"""Bytes of a snapshot before base64."""

LONGEST_TIME = 30 * 86400.0
"""Seconds of the longest run."""
LONGEST_TEXT = 1024
"""Characters that are sent and kept of a warning or of the reason why a host did not answer."""
LARGEST_RATE = 1e9

Text: TypeAlias = Annotated[str, Meta(max_length=1 << 20)]
Name: TypeAlias = Annotated[str, Meta(max_length=4096)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=1024)]
Hosts: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=1 << 20)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Time: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
BuildId: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{8,64}$")]
Status: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=4 * LONGEST_TIME)]
Detail: TypeAlias = Annotated[int, Meta(ge=0, le=4)]
"""A value of :class:`pytrace.runtime.stacks.image_places.Detail`."""

MOST_PLACES = 1024
"""Places of one question about functions."""
MOST_INLINED = 256
"""Functions of a place."""
LONGEST_NAME = 1 << 14
"""Characters of a function's name, or of a source file's."""
LARGEST_OFFSET = 1 << 48
Small: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST_OFFSET)]
LongName: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
NAMING = 60.0
"""Seconds in which an agent is asked for names after the end of its run."""


# ---------------------------------------------------------------------------------------------- to the agent


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run, as those of the command and of :func:`pytrace.open`."""

    unsafe: bool = False
    comm: Names = ()
    uid: Names = ()
    cgroup: Names = ()
    container: Names = ()
    no_features: Names = ()
    max_rate: dict[Name, float] = {}
    """Hits per second by the pattern of a probe; empty: all."""
    measure: bool = False

    def __post_init__(self) -> None:
        if not all(0 < hits < LARGEST_RATE for hits in self.max_rate.values()):
            raise ValueError(f"max_rate is hits per second, more than 0 and less than {LARGEST_RATE:g}")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may take of the host. The run ends when it has used one of them up."""

    duration: float
    """Seconds since the probes were attached."""
    heartbeat: float = 15.0
    """Seconds without a line of the controller after which the run ends."""
    every: float = 5.0
    """Seconds between two snapshots."""
    budget: Name = ""
    """``--budget``; when all probes are detached because of it, the run ends."""
    over_budget: Name = SAMPLE
    max_memory: Name = ""
    bytes: Annotated[int, Meta(gt=0, le=(1 << 63) - 1)] = 256 << 20
    """Of messages."""
    events: Annotated[int, Meta(gt=0, le=(1 << 63) - 1)] = 10_000_000
    """What the script printed or sent with ``row()``."""

    def __post_init__(self) -> None:
        for name, least in (("duration", 0.001), ("heartbeat", 1.0), ("every", 0.1)):
            value = getattr(self, name)
            # NaN is neither.
            if not least <= value <= LONGEST_TIME:
                raise ValueError(f"{name} is {value}, not {least:g} to {LONGEST_TIME:g} seconds")
        Budget.chosen(self.budget, self.over_budget)
        if self.max_memory:
            parse_memory(self.max_memory, 1 << 40)


class Request(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """The first line: a script to run.

    With both *compiled* and *text* the text is compiled where the compiled form does not fit. With *variants* and
    without *compiled*, the agent asks for one (:class:`Misfit`).
    """

    protocol: int
    script: Name
    """The name of the script, for messages and snapshots."""
    text: Text = ""
    compiled: bytes = b""
    """An ahead-of-time file; parameters are in it."""
    parameters: Names = ()
    named: Annotated[tuple[tuple[Name, Name | None], ...], Meta(max_length=1024)] = ()
    options: Options = Options()
    limits: Limits
    variants: bool = False
    """Whether :class:`Misfit` is answered."""
    questions: Questions = ()
    """What its facts answer."""
    matches: Digest = ""
    """Which probes its patterns match where it was compiled (``runtime.load.remote_kernel.probe_digest``)."""
    places: bool = False
    """Whether user stacks have places in place of functions, which are named when asked for (:class:`NamePlaces`)."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that are reached through a gateway."""

    gateway: Name
    hosts: Hosts = ()
    """Which it reaches itself."""
    routes: tuple[Route, ...] = ()
    """Of those that it reaches through other gateways."""

    @property
    def names(self) -> tuple[str, ...]:
        """All hosts that are reached through it."""
        return (*self.hosts, *(name for route in self.routes for name in route.names))


class Relay(msgspec.Struct, frozen=True, kw_only=True, tag="relay"):
    """The first line to a gateway: a request that it carries on to its hosts, as they are asked for (:class:`Ask`)."""

    protocol: int
    request: Request
    route: Route
    command: Name
    """How it starts agents, as :class:`pytrace.remote.carriage.Carriage` says; so do the next five."""
    program: Text = ""
    become: bool = False
    worker: Name = "ssh"
    fanout: Annotated[int, Meta(gt=0)] = 1000
    ssh_options: Name = ""
    push: Name = ""
    """``keep`` or ``once``: as ``--push``."""
    by: Name = ""
    labels: dict[Name, Name] | None = None
    """Of the hosts, which keys begin with: ``--by``."""
    most_keys: Count
    """Entries of a map of the merged snapshot."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Hosts to which a gateway carries the request now."""

    hosts: Hosts


class Archive(msgspec.Struct, frozen=True, kw_only=True, tag="archive"):
    """The answer to :class:`Need` of a gateway: what is pushed to its hosts of that kind, or why nothing can be."""

    python: Name
    machine: Name
    data: bytes = b""
    error: Text = ""


class Code(msgspec.Struct, frozen=True, kw_only=True, tag="code"):
    """The answer to :class:`Need`: the archive that is pushed."""

    digest: str
    """SHA-256, in hex."""
    size: int
    once: bool
    """Whether it is removed at the end."""


class Variant(msgspec.Struct, frozen=True, tag="variant"):
    """The answer to :class:`Misfit`: an ahead-of-time file, or nothing, so that the text is compiled there."""

    compiled: bytes = b""
    lacks: Names = ()
    """As in the question; so are *cpus* and *facts*. Gateways ask for several kinds of hosts."""
    cpus: int = 0
    facts: Digest = ""
    error: Text = ""
    """Why there is no file, as the command prints it."""


class Inquiry(msgspec.Struct, frozen=True, kw_only=True, tag="inquiry"):
    """An answer to :class:`Misfit`, before another one: the agent states its facts (:class:`Stated`)."""

    facts: Digest
    """Their digest in the question. Gateways ask for several kinds of hosts."""
    questions: Questions = ()
    """What facts must answer, too."""
    whole: bool = False
    """Whether they are sent; otherwise their new digest is."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A place in a binary, as it was linked."""

    build_id: BuildId
    address: Count


class NamePlaces(msgspec.Struct, frozen=True, tag="name"):
    """After :class:`End`: places of the last snapshot whose functions the agent is to name."""

    places: Annotated[tuple[Place, ...], Meta(max_length=MOST_PLACES)]


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The controller is there. Also before the request."""

    sent: Time = 0
    """The controller's wall clock, nanoseconds: the agent answers with :class:`Clock`, unless it is 0."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the run as ``exit()`` does."""


ToAgent: TypeAlias = Request | Relay | Ask | Archive | Code | Variant | Inquiry | NamePlaces | Beat | Stop


# ---------------------------------------------------------------------------------------------- from the agent


class Need(msgspec.Struct, frozen=True, kw_only=True, tag="need"):
    """The host has this Python, and no pytrace. Said by the program of ``--push``, and by gateways of their hosts."""

    python: Name
    machine: Name


class Send(msgspec.Struct, frozen=True, kw_only=True, tag="send"):
    """Of the program of ``--push``: the next part of the archive, as it is (no line)."""

    start: Count


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message, before the request is read."""

    protocol: int
    version: Name
    """Of pytrace."""
    host: Name
    kernel: Name
    machine: Name
    wall: Time
    """Clocks in nanoseconds, read together: ``CLOCK_REALTIME`` and ``CLOCK_MONOTONIC``."""
    monotonic: Time


class Clock(msgspec.Struct, frozen=True, tag="clock"):
    """The answer to :class:`Beat`: wall clocks, nanoseconds."""

    sent: Time
    """Of the beat."""
    received: Time
    answered: Time


class Misfit(msgspec.Struct, frozen=True, kw_only=True, tag="misfit"):
    """The compiled form does not fit this host, but one without these features and for as many CPUs does; or one that
    is compiled for the facts about this host.
    """

    lacks: Annotated[tuple[Name, ...], Meta(max_length=len(FEATURES))] = ()
    cpus: Annotated[int, Meta(ge=0, le=MOST_CPUS)] = 0
    facts: Digest = ""
    """Digest of the facts that answer the questions of the request."""


class Stated(msgspec.Struct, frozen=True, kw_only=True, tag="facts"):
    """The answer to :class:`Inquiry`."""

    facts: Digest
    data: Annotated[bytes, Meta(max_length=LARGEST_PACKED_FACTS)] = b""
    """The facts (:mod:`pytrace.core.kernel_info`), compressed, if they were asked for."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The script does not run here. Nothing is attached, and no other message follows."""

    text: Text
    """The error with its hints, as the command prints it."""
    status: Status
    """The exit status that the command has."""


class Attached(msgspec.Struct, frozen=True, kw_only=True, tag="attached"):
    """The probes are attached."""

    probes: Count
    compiled_here: bool
    """Whether the text was compiled on this host."""


State: TypeAlias = Literal[
    "not asked", "waiting", "running", "answered", "cut short", "refused", "failed", "lost", "silent"
]


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway knows of a host: the members of :class:`pytrace.remote.hosts.Host`."""

    name: Name
    state: State
    text: Text = ""
    status: Status = 0
    warnings: Annotated[tuple[Text, ...], Meta(max_length=1024)] = ()
    hello: Hello | None = None
    clock: tuple[Time, Count] | None = None
    """By which it is ahead of the gateway's, and the error of that: nanoseconds."""
    watched: Seconds | None = None
    lost: Count = 0
    over_budget: bool = False
    unheard: Seconds = 0.0
    """Seconds since it was heard."""


class Reports(msgspec.Struct, frozen=True, tag="hosts"):
    """News of hosts of a gateway that have no results, or whose scripts were attached."""

    reports: Annotated[tuple[HostReport, ...], Meta(max_length=1 << 20)]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """All that the run has so far; a later one replaces it."""

    number: Count
    data: bytes
    """The file form (:mod:`pytrace.results.file_form`)."""
    lost: Count = 0
    """All losses and failures so far."""
    over_budget: bool = False
    """Whether probes are sampled or were detached because of the budget."""
    reports: Annotated[tuple[HostReport, ...], Meta(max_length=1 << 20)] = ()
    """Of a gateway: its hosts, of whose results *data* is merged."""


class Warned(msgspec.Struct, frozen=True, tag="warning"):
    """A warning of the run, as the command prints it."""

    text: Text


Reason: TypeAlias = Literal[
    "duration", "exit", "stop", "input", "heartbeat", "signal", "budget", "bytes", "events", "error"
]


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """The last message: the probes are detached."""

    reason: Reason
    status: Status
    """Of the script's ``exit()``; 1 after an error."""
    error: Text = ""
    """As the command prints it."""
    losses: dict[Name, dict[Name, Count]] = {}
    cost: RunCost | None = None
    details: Annotated[dict[BuildId, Detail], Meta(max_length=4096)] = {}
    """How much the host knows of the binaries in its stacks. With any, it waits for :class:`NamePlaces` until its input
    ends.
    """

    @property
    def lost(self) -> int:
        """All losses and failures."""
        return total(self.losses)


class Function(msgspec.Struct, frozen=True, array_like=True):
    """A function at a place, as :class:`pytrace.results.snapshot.Frame` has it."""

    name: LongName
    offset: Small = 0
    file: LongName = ""
    line: Small = 0
    inlined: bool = False


class NamedPlace(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a place: the functions, inlined ones first; none if it is in none that is known."""

    place: Place
    detail: Detail
    """How much the host knows of its binary."""
    functions: Annotated[tuple[Function, ...], Meta(max_length=MOST_INLINED)]


class NamedPlaces(msgspec.Struct, frozen=True, tag="named"):
    """The answer to :class:`NamePlaces`; of gateways what their hosts have named."""

    places: Annotated[tuple[NamedPlace, ...], Meta(max_length=MOST_PLACES)]


def total(losses: Mapping[str, Mapping[str, int]]) -> int:
    """The number of all losses and failures."""
    return sum(sum(counts.values()) for counts in losses.values())


def over_budget(cost: RunCost | None) -> bool:
    """Whether probes are sampled or were detached because of the budget."""
    return cost is not None and any(probe.detached or probe.weight > 1 for probe in cost.probes)


FromAgent: TypeAlias = (
    Need | Send | Hello | Clock | Misfit | Stated | Refused | Attached | Reports | Snapshot | Warned | End
    | NamedPlaces
)


def shortened(text: str) -> str:
    """At most :data:`LONGEST_TEXT` characters of a text."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


# ---------------------------------------------------------------------------------------------- lines


def encode(message: ToAgent | FromAgent) -> bytes:
    """The line of a message."""
    return typed_json.encode(message) + b"\n"


def to_agent(line: bytes) -> ToAgent:
    """The message of a controller.

    Raises:
        TraceError: it is none.
    """
    message: ToAgent = _decoded(line, ToAgent, LONGEST_LINE, "a request")
    return message


def from_agent(line: bytes) -> FromAgent:
    """The message of an agent.

    Raises:
        TraceError: it is none.
    """
    message: FromAgent = _decoded(line, FromAgent, LONGEST_MESSAGE, "a message of pytrace agent")
    return message


def _decoded(line: bytes, union: Any, longest: int, name: str) -> Any:
    if len(line) > longest:
        raise TraceError(f"{name} has at most {longest} bytes")
    if sum(map(line.count, (b",", b"[", b"{"))) > MOST_PARTS:
        raise TraceError(f"{name} has at most {MOST_PARTS} parts")
    try:
        return typed_json.decode(line, union)
    except msgspec.ValidationError as error:
        raise TraceError(f"not {name}: {error}") from None


class Lines:
    """Splits what arrives into lines of a bounded length."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> list[bytes]:
        """The lines that *data* completes, without their ends.

        Raises:
            TraceError: a line is too long.
        """
        *ended, rest = data.split(b"\n")
        lines = []
        for part in ended:
            self._add(part)
            lines.append(b"".join(self._parts))
            self._parts, self._size = [], 0
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._longest:
            raise TraceError(f"a line has more than {self._longest} bytes")
        if part:
            self._parts.append(part)
