"""How agents are started on hosts, whatever starts them (:mod:`.clustershell`, :mod:`.kubernetes_carrier`)."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from pytrace.core.diagnostics import TraceError

WORKERS = ("ssh", "rsh", "exec")
"""ClusterShell's workers with a process for each host and a way to write to it, which that of pdsh has not."""


TICK = 0.5
"""Seconds between two looks at the clock."""
LEAVE = 10.0
"""Seconds in which hosts that were told to stop send their results."""

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
def interruptions() -> Iterator[Stopping]:
    """Ctrl-C and SIGTERM ask for the end during the block: ClusterShell's loop must not be left by an exception."""
    interrupted = Stopping()

    def handle(_number: int, _frame: object) -> None:
        interrupted.count += 1

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
