"""Processes of a run as services: the traced ones, and the tracer's own.

Of traced processes mappings are followed, for names of addresses, and unwind tables, for ``dw_ustack``. The own process
notifies systemd and test benches, starts the garbage collector, and imports what the end of a long run needs.
"""

from __future__ import annotations

import gc
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.render.events import each
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.output.batches import Handlers
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.session.services.service import Service
from pytrace.runtime.symbols.lazy import LazySymbols

if TYPE_CHECKING:
    import socket


_REQUEST = struct.Struct("=8xQQ")
"""Process and address space after the head of an event (``codegen.walkers.unwinding``)."""


class Unwinding(Protocol):
    """Keeps the unwind tables of processes (:class:`pytrace.runtime.unwind.unwinder.Unwinder`)."""

    def add(self, pid: int) -> None:
        """Read what a process has mapped."""

    def update(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Apply changes of processes."""

    def request(self, pid: int, space: int) -> None:
        """A program has met a process whose tables it lacks."""

    @property
    def waiting(self) -> bool:
        """Whether requested tables wait to be read."""

    def work(self, until: float) -> None:
        """Read requested tables until a moment of the monotonic clock."""


class Interpreters(Protocol):
    """Keeps where processes have interpreters of Python (:class:`pytrace.runtime.python.processes.Walker`)."""

    def add(self, pid: int) -> None:
        """Look for an interpreter in what a process has mapped."""

    def update(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Apply changes of processes."""


class NoUnwinding:
    """For scripts that do not unwind by tables."""

    waiting = False

    def add(self, pid: int) -> None:
        """Do nothing."""

    def request(self, pid: int, space: int) -> None:
        """Do nothing."""

    def work(self, until: float) -> None:
        """Do nothing."""

    def update(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Do nothing."""


class NothingUnwound:
    """A script that does not unwind by tables."""

    def entries(self) -> dict[str, int]:
        """Sizes of maps that differ from those of the manifest: none."""
        return {}

    def start(
        self,
        _loaded: LoadedScript,
        _stack: ExitStack,
        _message: Callable[[str], None],
        _tell: Callable[[str], None],
    ) -> NoUnwinding:
        """Read nothing."""
        return NoUnwinding()


_TABLES_TURN = 0.005
"""Seconds in which unwind tables are read before events are handled again."""


class Processes(Service):
    """Follows mappings and unwind tables of traced processes, and the interpreters of Python in them.

    *requests* is the ring through which programs ask for unwind tables.
    """

    def __init__(
        self,
        symbols: LazySymbols,
        unwinding: Unwinding,
        requests: RingReader | None,
        python: Interpreters | None = None,
    ) -> None:
        self._symbols = symbols
        self._unwinding = unwinding
        self._requests = requests
        self._python = python

        def request(data: bytes, offset: int) -> None:
            unwinding.request(*_REQUEST.unpack_from(data, offset))

        self._handlers = Handlers((each(request),))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of the kernel's records of mappings, and of the ring of requests."""
        return (*self._symbols.descriptors, *(() if self._requests is None else (self._requests.fileno(),)))

    def add(self, pid: int) -> None:
        """Read the unwind tables of a process, if the script unwinds stacks; again when its mappings have changed."""
        self._unwinding.add(pid)
        if self._python is not None:
            self._python.add(pid)

    def attached(self) -> None:
        """From now on programs report what processes execute and unmap."""
        self._symbols.attached()

    def woken(self, _ready: list[int]) -> None:
        """Read changes of processes before waiting events, which have addresses of theirs."""
        self._symbols.poll()
        changes = self._symbols.changes()
        if self._python is not None:
            self._python.update(changes)  # first: tables may take seconds
        self._unwinding.update(changes)
        if self._requests is not None:
            self._requests.drain(self._handlers)

    def pause(self, longest: float) -> float:
        """Do not wait while tables wait to be read."""
        return 0.0 if self._unwinding.waiting else self._symbols.pause(longest)

    def work(self, _handled: int) -> None:
        """Read some of the tables that programs asked for."""
        if self._unwinding.waiting:
            self._unwinding.work(time.monotonic() + _TABLES_TURN)


ATTACHED_HOOKS = ("__PYTRACE_NOTIFY_PROBES_ATTACHED", "__BPFTRACE_NOTIFY_PROBES_ATTACHED")
"""Environment variables that make the tracer print the variable's own name once everything is attached."""


class OwnProcess(Service):
    """Notices and garbage collection of the command; programs that embed a session see to their own."""

    def __init__(self) -> None:
        self._manager: socket.socket | None = None

    def attached(self) -> None:
        """Notify test benches and the service manager that tracing has begun."""
        attached_hooks()
        self._manager = service_manager()
        notify(self._manager, "READY=1")

    def begin(self) -> None:
        """Enable the garbage collector, which is off during a start. Objects allocated so far are long-lived."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()

    def stop(self) -> None:
        """Notify the service manager that tracing ends."""
        notify(self._manager, "STOPPING=1")
        if self._manager is not None:
            self._manager.close()
            self._manager = None


MODULES_AFTER = 1.0
"""Seconds after which a run imports ahead: what ends earlier is not delayed by that."""
_REST = 0.002
"""Seconds between two imports, which take some milliseconds each: events are handled meanwhile."""


class OwnModules(Service):
    """Imports what the run may need until its end (:mod:`pytrace.runtime.session.services.module_loading`)."""

    def __init__(self, manifest: Manifest, options: RunOptions, *, embedded: bool) -> None:
        self._run = (manifest, options, embedded)
        self._next = float("inf")
        self._steps: Iterator[None] | None = None

    def begin(self) -> None:
        """The time of the run begins."""
        self._next = time.monotonic() + MODULES_AFTER

    def pause(self, longest: float) -> float:
        """Seconds until the next import, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Import one module, if its time has come."""
        if time.monotonic() < self._next:
            return
        self._steps = self._steps or self._begin()
        over = next(self._steps, True)
        self._next = float("inf") if over else time.monotonic() + _REST

    def _begin(self) -> Iterator[None]:
        try:
            from pytrace.runtime.session.services import module_loading  # most runs end before
        except ImportError:
            # The files are gone already. What is needed of them may have been imported.
            return iter(())
        return module_loading.steps(module_loading.names(*self._run))


def service_manager() -> socket.socket | None:
    """A socket to the service manager, if one waits for notices; open during the run, which may open none later.

    The protocol is one datagram for each to the socket that ``NOTIFY_SOCKET`` names; a leading ``@`` means the abstract
    name space (sd_notify(3)).
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    if address.startswith("@"):
        address = "\0" + address[1:]
    import socket  # milliseconds, and only for services

    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        sender.connect(address)
    except OSError as error:
        sender.close()
        sys.stderr.write(f"WARNING: cannot notify systemd: {error.strerror}\n")
        return None
    return sender


def notify(manager: socket.socket | None, state: str) -> None:
    """Send *state* (``READY=1``, ``STOPPING=1``) to the service manager, if there is one."""
    if manager is None:
        return
    try:
        manager.send(state.encode())
    except OSError as error:
        sys.stderr.write(f"WARNING: cannot notify systemd: {error.strerror}\n")


def attached_hooks() -> None:
    """Print the names of the test hooks that are set."""
    for name in ATTACHED_HOOKS:
        if name in os.environ:
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
