"""A fleet whose agents are played: what they say goes through the real controller, and through its gateways.

Some of the hosts fail as real ones do. What the controller makes of them is checked: the state of each host, and that
the counts of its answer are those of the hosts whose results count. Only the controller's own work is measured.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.remote import answer, messages
from pytrace.remote.answer import Answer
from pytrace.remote.controller import Controller, Tree
from pytrace.remote.hosts import State
from pytrace.remote.messages import (
    Attached,
    Beat,
    Clock,
    End,
    FromAgent,
    Hello,
    Limits,
    Refused,
    Relay,
    Request,
    Route,
    Snapshot,
)
from pytrace.results import file_form
from pytrace.results.snapshot import MapData, Portable, Run, SnapshotData, Value

NAME = types.String(16)
REQUEST = Request(protocol=messages.PROTOCOL, script="x", limits=Limits(duration=5))

_T = TypeVar("_T")

# ---------------------------------------------------------------------------------------------- what hosts count

PRESENT = 0.75
"""Probability that a host has a key of the recorded snapshot."""


def made(chance: random.Random) -> dict[str, MapData]:
    """A map of 40 of 200 keys, and four histograms of 20 buckets."""
    counts: dict[Portable, Value] = {f"disk-{chance.randrange(200)}": chance.randrange(1, 10**6) for _ in range(40)}
    latencies: dict[Portable, Value] = {
        f"nvme{disk}": {bucket: chance.randrange(1, 10**5) for bucket in range(4, 24)} for disk in range(4)
    }
    maps = MapData("@c", NAME, types.Count(), counts), MapData("@usecs", NAME, types.Hist(), latencies)
    return {data.name: data for data in maps}


def varied(recorded: SnapshotData, chance: random.Random) -> dict[str, MapData]:
    """The maps of a run as another host may have them: three quarters of the keys, and half to twice the counts."""
    return {
        name: replace(data, entries={
            key: scaled(value, chance.uniform(0.5, 2)) if data.value.aggregate else value
            for key, value in data.entries.items() if chance.random() < PRESENT
        })
        for name, data in recorded.maps.items()
    }  # fmt: skip


def scaled(value: Any, factor: float) -> Any:
    """The value of an aggregation, with counts times *factor*."""
    if isinstance(value, int):
        return round(value * factor)
    if isinstance(value, dict):
        return {bucket: scaled(count, factor) for bucket, count in value.items()}
    return tuple(scaled(part, factor) for part in value) if isinstance(value, tuple) else value


def totals(maps: Mapping[str, MapData]) -> Counter[str]:
    """The sum of all counts of each map."""
    counted: Counter[str] = Counter()
    for name, data in maps.items():
        if isinstance(data.value, types.Count | types.Hist):
            counted[name] = sum(map(total, data.entries.values()))
    return counted


def total(value: Any) -> int:
    """A count, or all counts of a histogram."""
    return sum(value.values()) if isinstance(value, dict) else value


# ---------------------------------------------------------------------------------------------- how hosts fail


class Fault(Enum):
    """What happens to a host."""

    NONE = auto()
    FAILED = auto()
    REFUSED = auto()
    LOST = auto()
    """The connection ends after a snapshot."""
    SILENT = auto()
    """Nothing more comes after a snapshot."""
    CUT_SHORT = auto()
    LATE = auto()
    """It attaches when all others are over."""
    SLOW = auto()
    """Its messages come in small pieces, and three snapshots before the last."""


OF_HUNDRED = {
    Fault.FAILED: 1, Fault.REFUSED: 1, Fault.LOST: 1, Fault.SILENT: 1, Fault.CUT_SHORT: 1, Fault.LATE: 2, Fault.SLOW: 2
}  # fmt: skip
"""Hosts of a hundred that have each; the others have none."""
_WITHOUT = Fault.NONE, Fault.LATE, Fault.SLOW
_STATES = {fault: State.ANSWERED if fault in _WITHOUT else State[fault.name] for fault in Fault}
_COMPLAINTS = b"ssh: connect to host web port 22: Connection refused\n", b"root@web: Permission denied (publickey).\n"
PIECE = 1000
"""Bytes of a piece of a slow host's messages."""


def faults(hosts: Sequence[int], whole: bool = True) -> dict[int, Fault]:
    """That of each host. Not *whole*: while the runs go on, so that those that answer later are silent as yet."""
    some = [fault for fault, number in OF_HUNDRED.items() for _ in range(number)]
    every = some + [Fault.NONE] * (100 - len(some))
    random.Random(0).shuffle(every)
    of = {number: every[number % 100] for number in hosts}
    begun = Fault.FAILED, Fault.REFUSED
    return of if whole else {number: fault if fault in begun else Fault.SILENT for number, fault in of.items()}


class Fleet:
    """Hosts that are played to a controller, which is measured."""

    def __init__(self, controller: Controller, chance: random.Random, recorded: SnapshotData | None) -> None:
        self.controller, self._chance, self._recorded = controller, chance, recorded
        self.spent = 0.0
        """Seconds of processor time of the controller."""
        self.sent = 0
        """Bytes of all messages to it."""
        self.expected: Counter[str] = Counter()
        """Counts of the hosts whose results count."""

    def play(self, kinds: Mapping[int, Fault]) -> None:
        """Hosts with what happens to each, until nothing more is to be heard of any."""
        for number in kinds:
            self.timed(partial(self.controller.connecting, name_of(number), 0))
        for late in (False, True):
            for number, fault in kinds.items():
                if (fault is Fault.LATE) == late:
                    self._host(number, fault)

    def fall_silent(self) -> None:
        """Nothing is heard of the hosts that still run, until they are given up."""
        self.timed(partial(self.controller.silent, 1000))

    def check(self, kinds: Mapping[int, Fault]) -> None:
        """The states of hosts are those to be expected."""
        states = {number: self.controller.hosts[name_of(number)].state for number in kinds}
        assert states == {number: _STATES[fault] for number, fault in kinds.items()}

    def timed(self, call: Callable[[], _T]) -> _T:
        """The result of something that the controller does."""
        start = time.process_time()
        result = call()
        self.spent += time.process_time() - start
        return result

    def say(self, name: str, *said: FromAgent, piece: int = 1 << 16) -> None:
        """Messages of an agent, which answers when it is asked for its clock."""
        data = b"".join(map(messages.encode, said))
        self.sent += len(data)
        answer = None
        for start in range(0, len(data), piece):
            answer = self.timed(partial(self.controller.output, name, data[start : start + piece], 1))
        if answer and isinstance(beat := messages.to_agent(answer.splitlines(keepends=True)[0]), Beat):
            self.say(name, Clock(beat.sent, beat.sent, beat.sent))

    def close(self, name: str, complaint: bytes = b"") -> None:
        """The connection ends."""
        if complaint:
            self.timed(partial(self.controller.complaint, name, complaint))
        self.timed(partial(self.controller.closed, name, 255))

    def _host(self, number: int, fault: Fault) -> None:
        name = name_of(number)
        if fault is Fault.FAILED:
            self.close(name, _COMPLAINTS[number // 100 % 2])
            return
        self.say(name, hello(name, "4.19" if fault is Fault.REFUSED else "6.1"))
        if fault is Fault.REFUSED:
            self.say(name, Refused(text="ERROR: there is no tracepoint x:y", status=1))
            self.close(name)
            return
        maps = made(self._chance) if self._recorded is None else varied(self._recorded, self._chance)
        self.expected += totals(maps)
        data = file_form.to_bytes(SnapshotData((run(number),), maps))
        piece, snapshots = (PIECE, 4) if fault is Fault.SLOW else (1 << 16, 1)
        said = [Snapshot(number=of, data=data) for of in range(1, snapshots + 1)]
        self.say(name, Attached(probes=3, compiled_here=False), *said, piece=piece)
        if fault is Fault.SILENT:
            return
        if fault is not Fault.LOST:
            self.say(name, End(reason="bytes" if fault is Fault.CUT_SHORT else "duration", status=0))
        self.close(name)

    def answer(self) -> SnapshotData:
        """The merged answer."""
        result = self.timed(self.controller.result)
        assert totals(result.maps) == self.expected
        return result


def name_of(number: int) -> str:
    """Of a host."""
    return f"web{number:05}"


def hello(name: str, kernel: str) -> Hello:
    """The first message of an agent."""
    return Hello(protocol=1, version="0.1", host=name, kernel=kernel, machine="x86_64", wall=0, monotonic=0)


def run(number: int) -> Run:
    """The run on a host."""
    identity, name = f"run-{number}", name_of(number)
    return Run(identity, name, "6.1", "x86_64", "x.bt", "", (), number, number + 1, 0, 1, text="x" * 2000)


# ---------------------------------------------------------------------------------------------- figures


class Figures(msgspec.Struct):
    """What a simulation took."""

    seconds: float
    """Processor time of the controller."""
    sent: float
    """Megabytes of messages to it."""
    memory: float
    """Megabytes by which the most memory of the process grew."""
    gateway: float | None = None
    """Most processor time of a gateway, in seconds."""
    elapsed: float = 0.0
    """Seconds, with the time to play the agents."""


def peak() -> int:
    """Most memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def measure(hosts: int, recorded: SnapshotData | None = None) -> Figures:
    """So many hosts, asked directly."""
    kinds, begun = faults(range(hosts)), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        before = peak()
        controller = Controller([*map(name_of, kinds)], REQUEST, Answer(None), folder)
        fleet = Fleet(controller, random.Random(1), recorded)
        fleet.play(kinds)
        fleet.fall_silent()
        fleet.check(kinds)
        fleet.answer()
    return Figures(fleet.spent, fleet.sent / 1e6, (peak() - before) / 1e6, elapsed=time.monotonic() - begun)


LOST_GATEWAY = 50
"""Of a hundred gateways that with this number is lost."""


def measure_tree(hosts: int, recorded: SnapshotData | None = None, width: int = 100) -> Figures:
    """As :func:`measure`, through gateways of *width* hosts each; one of a hundred is lost while its hosts run."""
    chance, begun, before, slowest = random.Random(1), time.monotonic(), peak(), 0.0
    parts = [range(first, min(first + width, hosts)) for first in range(0, hosts, width)]
    routes = tuple(Route(gateway=f"gw{number}", hosts=tuple(map(name_of, part))) for number, part in enumerate(parts))
    names = [name for route in routes for name in route.hosts]
    relay = Relay(protocol=messages.PROTOCOL, request=REQUEST, route=Route(gateway=""), command="", most_keys=10**6)
    with tempfile.TemporaryDirectory() as folder:
        root = Fleet(Controller(names, REQUEST, Answer(None), folder, tree=Tree(routes, relay)), chance, recorded)
        for number, (gateway, part) in enumerate(zip(root.controller.asking(names), parts, strict=True)):
            kinds = faults(part, whole := number % 100 != LOST_GATEWAY)
            root.controller.connecting(gateway, 0)
            root.say(gateway, hello(gateway, "6.1"))
            root.say(gateway, Attached(probes=0, compiled_here=False))
            fleet, said = carried(kinds, whole, chance, recorded)
            root.say(gateway, said, *([End(reason="exit", status=0)] if whole else []))
            root.close(gateway)
            root.check(kinds)
            root.expected, slowest = root.expected + fleet.expected, max(slowest, fleet.spent)
        root.answer()
    return Figures(root.spent, root.sent / 1e6, (peak() - before) / 1e6, slowest, time.monotonic() - begun)


def carried(
    kinds: Mapping[int, Fault], whole: bool, chance: random.Random, recorded: SnapshotData | None
) -> tuple[Fleet, Snapshot]:
    """The hosts of a gateway, and what it sends of them: when all are over, or (not *whole*) while they run."""
    names = [*map(name_of, kinds)]
    with tempfile.TemporaryDirectory() as folder:
        controller = Controller(names, REQUEST, Answer(None), folder)
        fleet = Fleet(controller, chance, recorded)
        fleet.play(kinds)
        if whole:
            fleet.fall_silent()
        data = fleet.timed(lambda: answer.fitting(controller.current(), messages.LARGEST_SNAPSHOT))
        return fleet, Snapshot(number=1, data=data, reports=tuple(controller.reports(names, 2).values()))
