"""Agents on many hosts, started and read through ClusterShell: node sets, groups, fan-out, ssh.

Of ClusterShell's clients two methods are overridden: ``_handle_read``, which each kind of client has of its own, as
theirs collects a line of any length, and a host must not fill this machine's memory; and ``_exec_nonblock``, as theirs
starts processes in the group of this one.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from configparser import Error as ConfigError
from typing import Any

from ClusterShell.Defaults import config_paths
from ClusterShell.Event import EventHandler
from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError
from ClusterShell.Propagation import PropagationTreeRouter, RouteResolvingError
from ClusterShell.Task import Task, task_self
from ClusterShell.Topology import TopologyError, TopologyParser
from ClusterShell.Worker.EngineClient import E_READ, E_WRITE
from ClusterShell.Worker.fastsubprocess import PIPE, Popen
from ClusterShell.Worker.Worker import Worker
from msgspec.structs import replace

from pytrace.base.control_characters import printable_text
from pytrace.core.diagnostics import TraceError
from pytrace.remote.carriage import LEAVE, TICK, Carriage, Conversation, Relayed, Rollout, Stopping
from pytrace.remote.controller import Controller
from pytrace.remote.hosts import State
from pytrace.remote.messages import Limits, Route

_SPOKEN = frozenset({State.ANSWERED, State.CUT_SHORT, State.REFUSED})
"""States of hosts whose agents end by themselves."""
DESCRIPTORS = 8
"""Open files for each host: three pipes, and what starting a process needs."""


def names(text: str) -> list[str]:
    """The hosts of a node set, groups resolved.

    Raises:
        TraceError: it is none, or empty.
    """
    try:
        found = [str(node) for node in NodeSet(text)]
    except (NodeSetException, GroupResolverError) as error:
        hints = ("for example --hosts 'web[001-400]' or --hosts @web",)
        raise TraceError(f"--hosts {text!r}: {error}", hints=hints) from None
    if not found:
        raise TraceError(f"--hosts {text!r} names no host")
    return checked(found)


def checked(hosts: Iterable[str]) -> list[str]:
    """Names of hosts that no command takes for something else.

    Raises:
        TraceError: one is an option (``-oProxyCommand=…`` of ssh), or has characters that no name has.
    """
    found = list(hosts)
    for name in found:
        if not _NAME.fullmatch(name):
            raise TraceError(f"{printable_text(name)!r} is no name of a host, but an option or a command")
    return found


_NAME = re.compile(r"(?:[\w.+]+@)?[\w.:%\[\]][\w.:%\[\]/+-]*")


def fold(hosts: Iterable[str]) -> str:
    """Names as a node set: ``web[001-003]``."""
    return str(NodeSet.fromlist(list(hosts)))


def labels(hosts: Iterable[str], source: str) -> dict[str, str]:
    """The group of each host in a source of groups of ClusterShell's configuration; ``-`` for hosts in none.

    Raises:
        TraceError: there is no such source, or a host is in several of its groups.
    """
    found = {}
    for host in hosts:
        try:
            groups = sorted(NodeSet(host).groups(groupsource=source))
        except (GroupSourceError, GroupResolverError) as error:
            hints = ("--by host, or a source of groups of ClusterShell (nodeset --groupsources lists them)",)
            raise TraceError(f"--by {source}: {error}", hints=hints) from None
        own = [group.removeprefix(f"@{source}:").removeprefix("@") for group in groups]
        if len(own) > 1:
            raise TraceError(f"--by {source}: {host} is in the groups {', '.join(own)}")
        found[host] = own[0] if own else "-"
    return found


def label(by: str | None, hosts: Sequence[str]) -> Callable[[str], str] | None:
    """The label of each host for ``--by``; None: answers are merged.

    Raises:
        TraceError: as :func:`labels`.
    """
    if by is None:
        return None
    return labels(hosts, by).__getitem__ if by != "host" else str


_NO_TOPOLOGY = "none"


def routes(hosts: Sequence[str], topology: str = "") -> tuple[Route, ...]:
    """The gateways of hosts, by a file of ClusterShell's form; without a name, that of its configuration, if any.

    Hosts that are in no route are reached directly, and all are if *topology* is ``none``.

    Raises:
        TraceError: the file cannot be read, or this machine is the root of no route in it.
    """
    if topology == _NO_TOPOLOGY:
        return ()
    path = topology or next(filter(os.path.exists, reversed(config_paths("topology.conf"))), "")
    if not path:
        return ()
    root = socket.gethostname().partition(".")[0]
    try:
        with open(path, encoding="utf-8"):
            tree = TopologyParser(path).tree(root)
        return _routes(root, tree, NodeSet.fromlist(list(hosts)))[1]
    except OSError as error:
        raise TraceError(f"cannot read the topology {path!r}: {error.strerror}") from None
    except (TopologyError, RouteResolvingError, NodeSetException, GroupResolverError, ConfigError) as error:
        hints = (f"--topology {_NO_TOPOLOGY} asks all hosts directly",)
        raise TraceError(f"the topology {path!r}: {error}", hints=hints) from None


def _routes(machine: str, tree: object, hosts: NodeSet) -> tuple[list[str], tuple[Route, ...]]:
    """The hosts that a machine reaches directly, and its routes to others."""
    direct: list[str] = []
    through: dict[str, NodeSet] = {}
    for hop, targets in PropagationTreeRouter(machine, tree).dispatch(hosts):
        if str(hop) == str(targets):
            direct += map(str, targets)
        else:
            through.setdefault(str(hop), NodeSet()).add(targets)
    found = []
    for gateway, targets in sorted(through.items()):
        # In a topology a gateway may be a host of the machines before it.
        own, further = _routes(gateway, tree, targets)
        found.append(Route(gateway=gateway, hosts=tuple(own), routes=further))
    return direct, tuple(found)


def ask(
    carriage: Carriage, limits: Limits, controller: Controller, rollout: Rollout | Relayed,
    tell: Callable[[str], object], stopping: Stopping,
) -> None:  # fmt: skip
    """Ask the hosts of *controller*, until each has answered or is given up.

    When *stopping* asks for it, the runs that were started end, and their results count; also when *rollout* stops.

    *tell* is called with a line once the script is attached on all hosts of a stage on which it can be.
    """
    # A process that has just ended is reported by its status, not by a warning about its pipe.
    logging.getLogger("ClusterShell").addHandler(logging.NullHandler())
    task = task_self()
    task.set_default("stdout_msgtree", False)
    task.set_default("stderr_msgtree", False)
    task.set_info("fanout", carriage.fanout)
    task.set_info("ssh_options", carriage.ssh_options)
    # Of an option that is given twice ssh takes the first, which would be ClusterShell's.
    own_timeout = "connecttimeout" in carriage.ssh_options.lower()
    task.set_info("connect_timeout", 0 if own_timeout else round(carriage.connect_timeout))
    _raise_limit(len(controller.hosts))
    task.set_default("distant_workername", carriage.worker)
    worker = _reading_worker(task.default("distant_worker"))
    task.set_default("distant_worker", worker)
    conversation: Conversation[Worker] = Conversation(limits.heartbeat, controller, rollout, tell, stopping, "host")
    carrier = _Carrier(controller, conversation, carriage, task)
    # The loop ends, and its timer, as soon as no host is left.
    while carrier.begin_stage():
        task.timer(TICK, carrier, interval=TICK, autoclose=True)
        task.resume()
        controller.settle(wait=True)
    if rollout.over or stopping.count:
        controller.finish(time.monotonic(), rollout.stopped)


_RSH_STATUS = re.compile(rb"XXRETCODE: (\d+)\s*\Z")
"""What ClusterShell has each command print at its end, as rsh does not return its status."""


def _reading_worker(worker: Any) -> Any:
    """A class of workers whose clients hand on what they read, as it comes."""

    # Which class it is is known when it runs only.
    class Client(worker.SHELL_CLASS):  # type: ignore[misc]
        def _exec_nonblock(self, commandlist: object, shell: bool = False, env: dict[str, str] | None = None) -> object:
            """Start the process in a session of its own: Ctrl-C at a terminal is for the controller, which then waits
            for the results of the hosts.
            """
            process = Popen(
                commandlist, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=PIPE, shell=shell, preexec_fn=os.setsid,
                env={**os.environ, **env} if env else None,
            )  # fmt: skip
            self.streams.set_stream(self.worker.SNAME_STDERR, process.stderr, E_READ)
            self.streams.set_stream(self.worker.SNAME_STDOUT, process.stdout, E_READ)
            self.streams.set_stream(self.worker.SNAME_STDIN, process.stdin, E_WRITE, retain=False)
            return process

        def _handle_read(self, sname: str) -> None:
            data = self._read(sname)
            if hasattr(self, "rsh_rc") and (status := _RSH_STATUS.search(data)):
                self.rsh_rc, data = int(status[1]), data[: status.start()]
            self.worker.eh.data(self.worker, str(self.key), sname, data)

        def _flush_read(self, sname: str) -> None:
            """Nothing is kept."""

    # As above.
    class ReadingWorker(worker):  # type: ignore[misc]
        SHELL_CLASS = Client

    return ReadingWorker


def _raise_limit(hosts: int) -> None:
    """Let this process open as many files as the hosts need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hosts * DESCRIPTORS + 256
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard >= 0 else wanted, hard))


# ClusterShell has no annotations.
class _Connection(EventHandler):  # type: ignore[misc]
    """What one worker says, by the name that the controller has for its connection."""

    def __init__(self, name: str, carrier: _Carrier) -> None:
        self._name, self._carrier = name, carrier

    def ev_pickup(self, worker: Worker, node: object) -> None:  # noqa: ARG002
        """The process has been started."""
        self._carrier.begun(self._name, worker)

    def data(self, worker: Worker, node: str, stream: str, data: bytes) -> None:  # noqa: ARG002
        """The process has written something."""
        self._carrier.data(self._name, worker, stream, data)

    def ev_hup(self, worker: Worker, node: object, rc: int | None) -> None:  # noqa: ARG002
        """The process has ended."""
        self._carrier.ended(self._name, rc)


# As above.
class _Carrier(EventHandler):  # type: ignore[misc]
    """Carries messages between the workers and the controller; there is one worker for each connection."""

    def __init__(
        self, controller: Controller, conversation: Conversation[Worker], carriage: Carriage, task: Task
    ) -> None:
        self._controller, self._conversation, self._carriage, self._task = controller, conversation, carriage, task
        self._workers = conversation.connections
        self._closing: dict[str, float] = {}
        """When connections are ended from which nothing more is wanted."""

    def begin_stage(self) -> bool:
        """Ask the hosts that are due. Returns whether there are any."""
        names = self._conversation.due()
        for name in names:
            node = self._controller.node(name)
            # A gateway does not trace.
            carriage = self._carriage if node == name else replace(self._carriage, become=False)
            handler = _Connection(name, self)
            self._task.shell(carriage.started, nodes=node, handler=handler, stderr=True, tree=False)
        return bool(names)

    def begun(self, name: str, worker: Worker) -> None:
        """The process for a connection has been started."""
        self._workers[name] = worker
        if self._conversation.leaving is None:
            self._controller.connecting(name, time.monotonic())
        else:
            worker.set_write_eof()

    def data(self, name: str, worker: Worker, stream: str, data: bytes) -> None:
        """A process has written something."""
        if stream == worker.SNAME_STDERR:
            self._controller.complaint(name, data)
            return
        self._say(name, worker, self._controller.output(name, data, time.monotonic()))

    def _say(self, name: str, worker: Worker, said: bytes | None) -> None:
        """Hand on what the controller says, or end a connection of which it wants nothing more."""
        if said is None:
            # A worker must not be aborted while its client reads.
            worker.set_write_eof()
            time_left = LEAVE if self._controller.peers[name].state in _SPOKEN else 0.0
            self._closing.setdefault(name, time.monotonic() + time_left)
        elif said:
            worker.write(said)

    def ended(self, name: str, status: int | None) -> None:
        """A process has ended."""
        self._workers.pop(name, None)
        self._controller.closed(name, status)

    def ev_timer(self, timer: object) -> None:  # noqa: ARG002
        """Say what the time asks for, and give up hosts that say nothing."""
        now = time.monotonic()
        self._abort({name for name, end in self._closing.items() if now >= end})
        for name in self._controller.owed():
            if name in self._workers:
                self._say(name, self._workers[name], self._controller.due(name, now))
        self._abort(self._conversation.step(now))
        self.begin_stage()
        if self._conversation.late(now):
            self._task.abort()

    def _abort(self, names: set[str]) -> None:
        for name in names & self._workers.keys():
            self._workers.pop(name).abort()
