"""How agents are started on hosts, and what is said to them as time passes, whatever carries it
(:mod:`.clustershell`, :mod:`.kubernetes`).

With stages a script runs on a few hosts first, and on more of them after it did no harm there.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from pytrace.core.diagnostics import TraceError, counted
from pytrace.remote import messages
from pytrace.remote.controller import Controller
from pytrace.remote.hosts import OVER, Host, State
from pytrace.remote.messages import Stop

WORKERS = ("ssh", "rsh", "exec")
"""ClusterShell's workers with a process for each host and a way to write to it, which that of pdsh has not."""


TICK = 0.5
"""Seconds between two looks at the clock."""
LEAVE = 10.0
"""Seconds in which hosts that were told to stop send their results."""
LEVEL = 5.0
"""Seconds more for each level of gateways, which wait for their hosts."""

AGENT = "pytrace agent"


class Carriage(msgspec.Struct, frozen=True, kw_only=True):
    """How agents are started."""

    command: str = AGENT
    become: bool = False
    """Through sudo, without a password."""
    worker: str = "ssh"
    """One of :data:`WORKERS`."""
    fanout: int = 1000
    """Hosts at a time."""
    ssh_options: str = ""
    connect_timeout: float = 15.0

    def __post_init__(self) -> None:
        if self.worker not in WORKERS:
            raise TraceError(f"a worker is one of {', '.join(WORKERS)}, not {self.worker!r}")

    program: str = ""
    """Given to *command*, which is a Python then."""

    @property
    def started(self) -> str:
        """The command on a host."""
        command = f"{self.command} -c {shlex.quote(self.program)}" if self.program else self.command
        return f"sudo -n {command}" if self.become else command


class Stopping:
    """How often the end was asked for: after the second time, results are not waited for."""

    count = 0


class Connection(Protocol):
    """The way to an agent."""

    def write(self, data: bytes, /) -> None:
        """Have data written to its standard input."""


_ConnectionT = TypeVar("_ConnectionT", bound=Connection)


class Conversation(Generic[_ConnectionT]):
    """What all agents are told as time passes, and who is to be asked."""

    def __init__(
        self, heartbeat: float, controller: Controller, rollout: Rollout | Relayed, tell: Callable[[str], object],
        stopping: Stopping, noun: str,
    ) -> None:  # fmt: skip
        """*noun*: what is asked, ``host`` or ``node``."""
        self.connections: dict[str, _ConnectionT] = {}
        """Those that are open, by host."""
        self.leaving: float | None = None
        """When the runs were told to end."""
        self._heartbeat, self._controller, self._rollout = heartbeat, controller, rollout
        self._tell, self._stopping, self._noun = tell, stopping, noun
        self._beaten = 0.0

    def due(self) -> Sequence[str]:
        """The connections that are to be made now: to hosts that are to be asked, and to their gateways."""
        while self.leaving is None and (names := self._rollout.due(self._controller.hosts)):
            if wanted := self._controller.asking(names):
                return wanted
        return ()

    def step(self, now: float) -> set[str]:
        """Say that this controller is there, or that the runs end. Returns the hosts that are to be given up."""
        if now - self._beaten > self._heartbeat / 4:
            self._beaten = now
            for name, connection in self._asked_connections():
                connection.write(self._controller.beat(name))
        ended = set(self._controller.silent(now))
        if line := self._rollout.news(self._controller.attached, self._noun):
            self._tell(line)
        if self.leaving is None and (self._stopping.count or self._rollout.stopped):
            self.leaving = now
            ended |= self._controller.withdraw()
            for name, connection in self._asked_connections():
                if name not in ended:
                    connection.write(messages.encode(Stop()))
        return ended

    def late(self, now: float) -> bool:
        """Whether nobody waits for results any longer."""
        patience = LEAVE + LEVEL * self._controller.levels
        return self.leaving is not None and (self._stopping.count > 1 or now - self.leaving > patience)

    def _asked_connections(self) -> list[tuple[str, _ConnectionT]]:
        """The connections on which the request was sent."""
        peers = self._controller.peers
        return [(name, connection) for name, connection in self.connections.items() if peers[name].asked]


# ---------------------------------------------------------------------------------------------- stages of a roll-out


ALL = "all"
SOAK = 10.0
"""Seconds that a stage is watched."""


class Rollout:
    """Which hosts are to be asked, and when."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int], soak: float = SOAK, losses: int = 0) -> None:
        """*losses*: the most that a host may report without stopping it."""
        self._names, self._sizes, self._soak, self._losses = names, sizes, soak, losses
        self.stage = 0
        """Number of stages that were begun."""
        self.asked: Sequence[str] = ()
        """The hosts of all stages that were begun."""
        self.stopped = ""
        """Why no further stage is begun."""
        self._told = 0
        """Stages of which it was told that the script is attached."""

    @property
    def over(self) -> bool:
        """Whether no further host will be asked."""
        return bool(self.stopped) or self.stage == len(self._sizes)

    @property
    def title(self) -> str:
        """The stage in messages; empty if there is one only."""
        return f"stage {self.stage} of {len(self._sizes)}: " if len(self._sizes) > 1 else ""

    def news(self, attached: int | None, noun: str) -> str:
        """The line that the script is attached on all hosts of the stage on which it can be; empty if it was told.

        *attached* is :attr:`pytrace.remote.controller.Controller.attached`.
        """
        if attached is None or self._told == self.stage or self.stopped:
            return ""
        self._told = self.stage
        return f"{self.title}attached on {attached} of {counted(len(self.asked), noun)}"

    def due(self, hosts: Mapping[str, Host]) -> Sequence[str]:
        """The hosts to be asked now: those of the next stage, if the one before did no harm."""
        if self.over:
            return ()
        asked = [hosts[name] for name in self.asked]
        self.stopped = self._harm(asked)
        if self.stopped or not all(map(self._watched, asked)):
            return ()
        before, after = len(self.asked), self._sizes[self.stage]
        self.asked = self._names[:after]
        self.stage += 1
        return self._names[before:after]

    def _watched(self, host: Host) -> bool:
        return host.state in OVER or (host.watched is not None and host.watched >= self._soak)

    def _harm(self, asked: Sequence[Host]) -> str:
        """Why the roll-out stops; empty if it does not."""
        for host in asked:
            if harm := self._harm_of(host):
                return f"{host.name}: {harm}"
        before = self._sizes[self.stage - 2] if self.stage > 1 else 0
        if asked and all(host.state is State.FAILED for host in asked[before:]):
            return f"no host of stage {self.stage} could be asked"
        return ""

    def _harm_of(self, host: Host) -> str:
        if host.over_budget:
            return "tracing took more than --budget"
        if host.lost > self._losses:
            return f"it lost {counted(host.lost, 'event')}, more than {self._losses}"
        if host.state in (State.REFUSED, State.CUT_SHORT, State.LOST, State.SILENT):
            return host.text
        return f"its script ended with status {host.status}" if host.status else ""


class Relayed:
    """The hosts that the controller of a gateway has asked for; it decides about stages."""

    stopped = ""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: list[str] = []
        self.asked: list[str] = []
        """All that were asked for."""
        self.over = False
        """Whether no further host will be asked."""

    def add(self, names: Sequence[str]) -> None:
        """Hosts are to be asked."""
        with self._condition:
            self.asked += names
            self._waiting += names
            self._condition.notify()

    def close(self) -> None:
        """No others will be."""
        with self._condition:
            self.over = True
            self._condition.notify()

    def wait(self) -> bool:
        """Wait for hosts to be asked. Returns whether there are any."""
        with self._condition:
            self._condition.wait_for(lambda: self.over or self._waiting)
            return bool(self._waiting)

    def due(self, hosts: Mapping[str, Host]) -> Sequence[str]:  # noqa: ARG002
        """The hosts to be asked now."""
        with self._condition:
            names, self._waiting = self._waiting, []
            return names

    def news(self, attached: int | None, noun: str) -> str:  # noqa: ARG002
        """Nothing is told here."""
        return ""
