"""How agents are started on hosts, whatever starts them (:mod:`pytrace.remote.clustershell`)."""

from __future__ import annotations

import msgspec

from pytrace.core.diagnostics import TraceError

WORKERS = ("ssh", "rsh", "exec")
"""ClusterShell's workers with a process for each host and a way to write to it, which that of pdsh has not."""


class Carriage(msgspec.Struct, frozen=True, kw_only=True):
    """How agents are started."""

    command: str = "pytrace agent"
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

    @property
    def started(self) -> str:
        """The command on a host."""
        return f"sudo -n {self.command}" if self.become else self.command


class Stopping:
    """How often the end was asked for: after the second time, results are not waited for."""

    count = 0
