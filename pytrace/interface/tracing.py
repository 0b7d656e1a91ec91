"""A running script: yields events as they arrive, and reads maps on request."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytrace.base.interruption import postponed
from pytrace.core.costs import RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.core.failures import FAILURES
from pytrace.core.options import RunOptions
from pytrace.interface.collector import Collector, EventSources, table
from pytrace.interface.compiled import CompiledScript
from pytrace.interface.errors import LossWarning, TraceWarning, warn
from pytrace.interface.events import Event
from pytrace.interface.maps import MapAccess, Maps, ResultMap
from pytrace.interface.snapshots import Snapshot
from pytrace.results.snapshot import MapData
from pytrace.runtime.session.opening import open_run
from pytrace.runtime.session.session import Embedding, Session
from pytrace.runtime.session.signals import WakeUp
from pytrace.runtime.stacks.image_places import MetBinaries

if TYPE_CHECKING:
    import asyncio

LONGEST = 1.0
"""Maximum seconds of one wait of a session; Python's signal handlers run between waits."""
QUIET, BUSY = 0.2, 0.002
"""Polling intervals of an asynchronous iteration in seconds: without events, and under load."""
GATHER = 0.005
"""Seconds that an iteration leaves for further events when events come faster than that."""
TOGETHER = 256
"""Maximum events that an asynchronous iteration yields before it lets other tasks run."""
MOST_WARNINGS = 1000
"""Maximum number of warnings in :attr:`Trace.warnings`, the newest ones."""


class Trace:
    """A running script: :func:`open` starts it, and leaving the ``with`` block ends it.

    Events are read from the kernel while the trace is iterated over, or in :meth:`wait`; other asynchronous actions of
    the script (``exit()``, ``clear()``) are performed then as well. Methods may be called from any thread. A trace is
    also closed when the last reference to it is dropped (with a ``ResourceWarning``).
    """

    def __init__(self, script: CompiledScript, options: RunOptions, *, confined: bool = False) -> None:
        self._lock = threading.RLock()
        self._asking = threading.Condition(threading.Lock())
        self._asked = 0
        """Calls of other threads that wait for one that polls to let go of the session."""
        self._stack = ExitStack()
        self._process = os.getpid()
        # Nothing on the exit stack refers to this object, so that a trace without references is closed.
        self._finalizer = weakref.finalize(self, _forgotten, self._stack, script.name, self._process)
        self._wake = WakeUp()
        self._stack.callback(self._wake.close)
        self.script = script
        """The running script."""
        self._over = self._finished = self._closed = self._stepping = False
        self._exit_code = 0
        self._hides = options.filters.without_own_threads
        self._taken = 0.0
        """When events were taken last (``time.monotonic``)."""
        self._warned: deque[str] = deque(maxlen=MOST_WARNINGS)
        self._told_dropped = False
        self._losses: dict[str, dict[str, int]] = {}
        self._cost: RunCost | None = None
        self._last: Snapshot | None = None
        """The snapshot from when the trace was closed."""
        try:
            prepared = script.prepared(options)
            programs = prepared.manifest.programs
            self._collector = collector = Collector(programs)
            embedding = Embedding(
                collector, lambda symbols: table(collector, EventSources(programs, symbols)), self._wake, confined
            )
            # What the kernel has just opened has no owner yet: Ctrl-C is handled between two probes, or at the end.
            with postponed():
                self._session = Session(open_run(prepared, options, self._stack, embedding))
                self._specs = {spec.name: spec for spec in prepared.manifest.maps}
                with self._unseen():
                    self._session.start()
            self._tell()
        except BaseException:
            self._closed = True
            _close(self._stack)
            self._finalizer.detach()
            raise

    # ---- turns of threads

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """The session, for a call that must not wait until a poll of another thread is over: it is woken."""
        if not self._lock.acquire(blocking=False):
            with self._asking:
                self._asked += 1
            self._wake.wake()
            try:
                self._lock.acquire()
            finally:
                with self._asking:
                    self._asked -= 1
                    self._asking.notify_all()
        try:
            with self._unseen():
                yield
        finally:
            self._lock.release()

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """With ``own_threads=False`` programs leave this thread out; called with the lock."""
        if not self._hides or self._closed:
            yield
            return
        self._session.leave_out(threading.get_native_id())
        try:
            yield
        finally:
            if not self._closed:
                self._session.leave_out(0)

    @contextmanager
    def _polling(self) -> Iterator[None]:
        """The session, for a call that may hold it for a whole wait: those that ask for it come first."""
        with self._asking:
            # A thread that is ended while it asks must not stop this one for ever.
            self._asking.wait_for(lambda: not self._asked, timeout=LONGEST)
        with self._lock, self._unseen():
            yield

    # ---- events

    def __iter__(self) -> Iterator[Event]:
        """Events as they arrive, until the run ends or :meth:`stop` is called."""
        while True:
            events = self.batch(LONGEST)
            yield from events
            if not events and self._finished:
                return

    def batch(self, longest: float) -> list[Event]:
        """The queued events; if there are none, those that arrive in one wait of at most *longest* seconds.

        Where the wait before this one brought events at once, some time is left for more of them: handling one event
        costs 40 µs of Python in a wait of its own, and a few in a batch.
        """
        if longest and not self._collector.events and time.monotonic() - self._taken < GATHER:
            time.sleep(GATHER)
        with self._polling():
            if not self._collector.events:
                self._step(longest)
            events = self._take_all()
        if events:
            self._taken = time.monotonic()
        return events

    def _step(self, longest: float) -> None:
        """Wait at most *longest* seconds for activity, and handle it; finish the run if it is over."""
        if self._closed:
            self._finished = True
        # A signal handler may call stop() while this same thread is inside the session.
        if self._finished or self._stepping:
            return
        self._stepping = True
        try:
            if self._over or not self._session.step(longest):
                self._over = True
                # Queued events are handed out in further steps, so that an iteration gets all of them.
                if not self._session.run_dry():
                    self._finish()
        finally:
            self._stepping = False
        self._tell()

    def _take_all(self) -> list[Event]:
        return [self._collector.take() for _ in range(len(self._collector.events))]

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events as they arrive, for ``async for``."""
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            events = self.batch(0)
            for number, event in enumerate(events, 1):
                yield event
                if number % TOGETHER == 0:
                    await asyncio.sleep(0)
            if not events and self._finished:
                return
            if not events:
                await self._readable(loop)

    async def _readable(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until there may be something to handle."""
        import asyncio

        ready = asyncio.Event()
        descriptor = self._session.fileno()
        loop.add_reader(descriptor, ready.set)
        try:
            # Not wait_for(): that of Python 3.11 loses a cancellation that coincides with the awaited result.
            async with asyncio.timeout(BUSY if self._session.busy else QUIET):
                await ready.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)

    def fileno(self) -> int:
        """A descriptor that becomes readable on activity (an epoll(7) instance).

        Raises:
            TraceError: the trace is closed.
        """
        self._check_open()
        return self._session.fileno()

    def wait(self, seconds: float | None = None) -> bool:
        """Handle activity for some time, or until the run ends. Returns whether it has ended.

        Events are queued for iteration; beyond 100,000 (or 256 MiB) the oldest are dropped and counted in
        :attr:`losses`.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONGEST if end is None else max(0.0, end - time.monotonic())
            with self._polling():
                self._step(min(left, LONGEST))
            if self._finished or not left:
                return self._finished

    def events(self) -> list[Event]:
        """The events that were sent and not taken yet, without waiting for more."""
        with self._at_once():
            self._step(0)
            if not self._finished and not self._stepping:
                self._session.drain()
            return self._take_all()

    # ---- the end

    def stop(self) -> None:
        """End the run as ``exit()`` does: probes are detached, end probes run; maps and events remain available.

        If there are more events than :meth:`wait` queues, the oldest are dropped.

        May be called from any thread, even while another one iterates: its iteration ends after the last event. From a
        signal handler it requests the end and returns.
        """
        self.request_end()
        with self._at_once():
            while not self._finished and not self._stepping:
                self._step(0)

    def request_end(self) -> None:
        """Request that the run ends in the next steps."""
        self._over = True
        self._wake.wake()

    def _finish(self) -> None:
        self._over = self._finished = True
        self._exit_code = self._session.finish()

    @property
    def ended(self) -> bool:
        """True if the run is over: the probes are detached."""
        return self._finished

    @property
    def exit_code(self) -> int:
        """The argument of the script's ``exit()``; 0 without one."""
        return self._exit_code

    @property
    def child_pid(self) -> int | None:
        """Process id of the command."""
        return self._session.child_pid

    @property
    def child_status(self) -> int | None:
        """Exit status of the command, or the negated number of the signal that killed it; None while it runs."""
        return self._session.child_status

    # ---- results

    @property
    def losses(self) -> dict[str, dict[str, int]]:
        """Losses and failures so far: counts by kind, then by probe, map or location.

        Empty if there were none.
        """
        with self._at_once():
            losses = self._losses if self._closed else self._session.losses()
        if self._collector.dropped:
            losses = {**losses, "unread": {"events": self._collector.dropped}}
        return {kind: {name: count for name, count in names.items() if count} for kind, names in losses.items()}

    @property
    def cost(self) -> RunCost | None:
        """What the run has cost so far, by probe; None unless it is measured (``measure=True``)."""
        with self._at_once():
            return self._cost if self._closed else self._session.cost()

    @property
    def lost(self) -> int:
        """Number of events that were lost so far."""
        return sum(self.losses.get("lost", {}).values()) + self._collector.dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the run so far (the newest 1000), as the command prints them.

        Each was also issued through :mod:`warnings`.
        """
        return tuple(self._warned)

    @property
    def maps(self) -> Maps:
        """The script's maps by name, read from the kernel on each access.

        After the trace was closed, they have the contents from that moment.
        """
        # Created each time: storing them would create a reference cycle, which only the garbage collector frees.
        return Maps({name: self._map(name) for name in self._specs})

    def snapshot(self) -> Snapshot:
        """The state of the run at this moment, or when the trace was closed.

        Raises:
            TraceError: it was closed in a process that was forked from the one that opened it, or closing failed.
        """
        with self._at_once():
            if self._last is not None:
                return self._last
            self._check_open()
            return Snapshot(self._session.snapshot())

    @property
    def met_binaries(self) -> MetBinaries | None:
        """Binaries in stacks of snapshots so far, if :func:`open` was given *places*; also after it was closed."""
        return self._session.met_binaries

    def _map(self, name: str) -> ResultMap:
        spec = self._specs[name]

        def read() -> MapData:
            with self._at_once():
                if self._last is not None:
                    return self._last.data.maps[name]
                self._check_open()
                return self._session.map_data(name)

        def element(key: bytes) -> MapData | None:
            with self._at_once():
                if self._last is not None:
                    return self._last.data.maps[name]
                self._check_open()
                return self._session.element(name, key)

        def change(key: bytes | None, value: bytes | None) -> bool:
            with self._at_once():
                self._check_open()
                return self._session.change(name, key, value)

        return ResultMap(name, read, MapAccess(spec, element, change))

    def _check_open(self) -> None:
        if self._closed:
            raise TraceError("the trace is closed")

    def _tell(self) -> None:
        """Issue the session's warnings."""
        collector = self._collector
        while collector.messages:
            text = collector.messages.pop(0).rstrip("\n").removeprefix("WARNING: ")
            self._warned.append(text)
            warn(text, LossWarning if _is_loss(text) else TraceWarning)
        if collector.dropped and not self._told_dropped:
            self._told_dropped = True
            text = "events are dropped because the program does not take them"
            self._warned.append(text)
            warn(text, LossWarning)

    # ---- opening and closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Detach all probes, end the command if it still runs, and release all kernel resources.

        :attr:`maps` and :meth:`snapshot` then have the contents from when the probes were detached.

        End probes do not run here, but in :meth:`stop` or when the run ends by itself. In a process that was forked
        from the one that opened the trace, nothing is ended.
        """
        was_closed, self._closed = self._closed, True
        self._wake.wake()
        with self._lock:
            self._finished = self._over = True
            try:
                if not was_closed:
                    self._losses = self._session.losses()
                    self._cost = self._session.cost()
                    if os.getpid() == self._process:
                        self._last = Snapshot(self._session.last_snapshot())
            finally:
                if os.getpid() == self._process:
                    _close(self._stack)
                self._finalizer.detach()

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._closed

    def __repr__(self) -> str:
        state = "closed" if self._closed else "ended" if self._finished else "running"
        return f"<Trace of {self.script.name!r}: {state}>"


def _is_loss(text: str) -> bool:
    """True for a warning about incomplete results."""
    rows = FAILURES.values()
    return text.startswith("Lost ") or " is full" in text or any(row.one in text or row.many in text for row in rows)


def _close(stack: ExitStack) -> None:
    """Close all resources. Ctrl-C is handled when that is done."""
    with postponed():
        stack.close()


def _forgotten(stack: ExitStack, name: str, process: int) -> None:
    if os.getpid() != process:
        return  # The process that opened it still owns it.
    _close(stack)
    if not sys.is_finalizing():
        warnings.warn(f"the trace of {name} was not closed", ResourceWarning, stacklevel=2)
