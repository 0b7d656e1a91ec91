"""How agents are started on hosts, and what is said to them as time passes, whatever carries it
(:mod:`.clustershell`, :mod:`.kubernetes.kubernetes_carrier`).
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.controller import Controller
from pytrace.remote.messages import Stop
from pytrace.remote.rollout import Relayed, Rollout

WORKERS = ("ssh", "rsh", "exec")
"""ClusterShell's workers with a process for each host and a way to write to it, which that of pdsh has not."""


TICK = 0.5
"""Seconds between two looks at the clock."""
LEAVE = 10.0
"""Seconds in which hosts that were told to stop send their results."""
LEVEL = 5.0
"""Seconds more for each level of gateways, which wait for their hosts."""

AGENT = "pytrace agent"
PYTHON = "python3"
"""The command on the hosts, and that with ``--push``."""


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


@contextmanager
def interruptions(stop: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call *stop* during the block, each time."""

    def handle(_number: int, _frame: object) -> None:
        stop()

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class Connection(Protocol):
    """The way to an agent."""

    def write(self, data: bytes, /) -> None:
        """Have data written to its standard input."""


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class Conversation(Generic[ConnectionT]):
    """What all agents are told as time passes, and who is to be asked."""

    def __init__(
        self, heartbeat: float, controller: Controller, rollout: Rollout | Relayed, tell: Callable[[str], object],
        stopping: Stopping, noun: str,
    ) -> None:  # fmt: skip
        """*noun*: what is asked, ``host`` or ``node``."""
        self.connections: dict[str, ConnectionT] = {}
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
            for name, connection in self._asked():
                connection.write(self._controller.beat(name))
        ended = set(self._controller.silent(now))
        if line := self._rollout.news(self._controller.attached, self._noun):
            self._tell(line)
        if self.leaving is None and (self._stopping.count or self._rollout.stopped):
            self.leaving = now
            ended |= self._controller.withdraw()
            for name, connection in self._asked():
                if name not in ended:
                    connection.write(messages.encode(Stop()))
        return ended

    def late(self, now: float) -> bool:
        """Whether nobody waits for results any longer."""
        patience = LEAVE + LEVEL * self._controller.levels
        return self.leaving is not None and (self._stopping.count > 1 or now - self.leaving > patience)

    def _asked(self) -> list[tuple[str, ConnectionT]]:
        """The connections on which the request was sent."""
        peers = self._controller.peers
        return [(name, connection) for name, connection in self.connections.items() if peers[name].asked]
