"""A script that runs: it gives its events as they come, and its maps when they are asked for."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import RunOptions
from pytrace.interface.collector import Collector, Places, table
from pytrace.interface.compiled import CompiledScript
from pytrace.interface.errors import LossWarning, TraceWarning, warn
from pytrace.interface.events import Event
from pytrace.interface.maps import Maps, ResultMap
from pytrace.interface.snapshots import Snapshot
from pytrace.results.snapshot import MapData
from pytrace.runtime.output.messages import FAILURES
from pytrace.runtime.session.embedding import Embedding, WakeUp
from pytrace.runtime.session.session import Session

if TYPE_CHECKING:
    import asyncio

LONGEST = 1.0
"""Seconds of one wait of a session; between two of them signals of Python programs are handled."""
QUIET, BUSY = 0.2, 0.002
"""Seconds between two looks of an asynchronous iteration, when nothing comes and when much does."""
TOGETHER = 256
"""Events that an asynchronous iteration gives one after another before it lets other tasks run."""
MOST_WARNINGS = 1000
"""Warnings that :attr:`Trace.warnings` remembers: the newest."""


class Trace:
    """A script that runs: :func:`open` starts it, and leaving the ``with`` block ends it.

    Events are taken out of the kernel while the trace is iterated over, or in :meth:`wait`; what a script does beside
    printing (``exit()``, ``clear()``) happens then, too. Methods may be called from any thread. A trace is closed when
    the last reference to it goes, too (with a ``ResourceWarning``).
    """

    def __init__(self, script: CompiledScript, options: RunOptions) -> None:
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self._process = os.getpid()
        # What the stack holds knows nothing of this object, so that a trace that nobody holds any more is closed.
        self._finalizer = weakref.finalize(self, _forgotten, self._stack, script.name, self._process)
        self._wake = WakeUp()
        self._stack.callback(self._wake.close)
        self.script = script
        """The script that runs."""
        self._over = self._finished = self._closed = self._stepping = False
        self._exit_code = 0
        self._warned: deque[str] = deque(maxlen=MOST_WARNINGS)
        self._told_dropped = False
        self._losses: dict[str, dict[str, int]] = {}
        self._last: Snapshot | None = None
        """What there was when the trace was closed."""
        try:
            prepared = script.prepared(options)
            programs = prepared.manifest.programs
            self._collector = collector = Collector(programs)
            embedding = Embedding(collector, lambda symbols: table(collector, Places(programs, symbols)), self._wake)
            self._session = Session(prepared, options, self._stack, embedding)
            self._names = tuple(spec.name for spec in prepared.manifest.maps)
            self._session.start()
            self._tell()
        except BaseException:
            self._closed = True
            _close(self._stack)
            self._finalizer.detach()
            raise

    # ---- events

    def __iter__(self) -> Iterator[Event]:
        """Events, as they come, until the run ends or :meth:`stop` is called."""
        while True:
            event = self._next(LONGEST)
            if event is not None:
                yield event
            elif self._finished:
                return

    def _next(self, longest: float) -> Event | None:
        """The next event; None when none came within *longest* seconds, or none will come any more."""
        with self._lock:
            if not self._collector.events:
                self._step(longest)
            return self._collector.take() if self._collector.events else None

    def _step(self, longest: float) -> None:
        """Wait at most *longest* seconds for something, and handle it; ends the run when it is over."""
        if self._closed:
            self._finished = True
        # A handler of signals may call stop() while this very thread is within the session.
        if self._finished or self._stepping:
            return
        self._stepping = True
        try:
            if self._over or not self._session.step(longest):
                self._over = True
                # What still waits is given out turn by turn, so that who iterates gets all of it.
                if not self._session.run_dry():
                    self._finish()
        finally:
            self._stepping = False
        self._tell()

    def batch(self, longest: float) -> list[Event]:
        """The events that wait; when there are none, those that one wait of at most *longest* seconds brings."""
        with self._lock:
            if not self._collector.events:
                self._step(longest)
            return self._take_all()

    def _take_all(self) -> list[Event]:
        return [self._collector.take() for _ in range(len(self._collector.events))]

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events, as they come, for ``async for``."""
        import asyncio

        loop = asyncio.get_running_loop()
        given = 0
        while True:
            event = self._next(0)
            if event is not None:
                yield event
                given += 1
                if given % TOGETHER == 0:
                    await asyncio.sleep(0)
            elif self._finished:
                return
            else:
                await self._readable(loop)

    async def _readable(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until there may be something to handle."""
        import asyncio

        ready = asyncio.Event()
        loop.add_reader(self.fileno(), ready.set)
        try:
            # Not wait_for(): that of Python 3.11 loses a cancellation that comes together with what it waits for.
            async with asyncio.timeout(BUSY if self._session.busy else QUIET):
                await ready.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(self.fileno())

    def fileno(self) -> int:
        """A descriptor that becomes readable when there is something to handle (an epoll(7) instance).

        Raises:
            TraceError: the trace is closed.
        """
        self._check_open()
        return self._session.fileno()

    def wait(self, seconds: float | None = None) -> bool:
        """Handle what happens for some time, or until the run ends; whether it has ended.

        Events wait to be iterated over; of more than 100,000 (or 256 MiB) the oldest are dropped, which
        :attr:`losses` tells.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONGEST if end is None else max(0.0, end - time.monotonic())
            with self._lock:
                self._step(min(left, LONGEST))
            if self._finished or not left:
                return self._finished

    def events(self) -> list[Event]:
        """The events that were sent so far and not taken yet, without waiting for others."""
        with self._lock:
            self._step(0)
            if not self._finished and not self._stepping:
                self._session.drain()
            return self._take_all()

    # ---- the end

    def stop(self) -> None:
        """End the run as ``exit()`` does: probes are detached, end probes run; maps and events are still there.

        Of more events than :meth:`wait` keeps the oldest are dropped.

        May be called from any thread, while another one iterates, too: its iteration ends after the last event. From a
        handler of signals it asks for the end and returns.
        """
        self.request_end()
        with self._lock:
            while not self._finished and not self._stepping:
                self._step(0)

    def request_end(self) -> None:
        """Have the run end in the next steps."""
        self._over = True
        self._wake.wake()

    def _finish(self) -> None:
        self._over = self._finished = True
        self._exit_code = self._session.finish()

    @property
    def ended(self) -> bool:
        """Whether the run is over: the probes are detached."""
        return self._finished

    @property
    def exit_code(self) -> int:
        """What the script's ``exit()`` said; 0 without one."""
        return self._exit_code

    @property
    def child_pid(self) -> int | None:
        """Process id of the command."""
        return self._session.child_pid

    @property
    def child_status(self) -> int | None:
        """How the command ended: its exit status, or minus the number of a signal; None while it runs."""
        return self._session.child_status

    # ---- results

    @property
    def losses(self) -> dict[str, dict[str, int]]:
        """What was lost or failed so far: kind, then the probe, map or place that it concerns, and how often.

        Empty when everything went well.
        """
        with self._lock:
            found = self._losses if self._closed else self._session.losses()
        if self._collector.dropped:
            found = {**found, "unread": {"events": self._collector.dropped}}
        return {kind: {name: count for name, count in names.items() if count} for kind, names in found.items()}

    @property
    def lost(self) -> int:
        """Events that were lost so far."""
        return sum(self.losses.get("lost", {}).values()) + self._collector.dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the run so far (the newest 1000), as the command prints them.

        Each was also given to :mod:`warnings`.
        """
        return tuple(self._warned)

    @property
    def maps(self) -> Maps:
        """The script's maps by name, read from the kernel whenever they are asked for something.

        When the trace is closed, they have what they had then.
        """
        # Made anew each time: a trace that held them would hold itself, and wait for the garbage collector.
        return Maps({name: self._map(name) for name in self._names})

    def snapshot(self) -> Snapshot:
        """All that the run has at this moment, or had when the trace was closed.

        Raises:
            TraceError: it was closed in a process that was forked from the one that opened it, or closing failed.
        """
        with self._lock:
            if self._last is not None:
                return self._last
            self._check_open()
            return Snapshot(self._session.snapshot())

    def _map(self, name: str) -> ResultMap:
        def read() -> MapData:
            with self._lock:
                if self._last is not None:
                    return self._last.data.maps[name]
                self._check_open()
                return self._session.map_data(name)

        return ResultMap(name, read)

    def _check_open(self) -> None:
        if self._closed:
            raise TraceError("the trace is closed")

    def _tell(self) -> None:
        """Hand over the session's warnings."""
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
        """Detach all probes, end the command if it still runs, and give everything back to the kernel.

        :attr:`maps` and :meth:`snapshot` then have what there was when the probes were detached.

        End probes run only before, in :meth:`stop` or when the run ends by itself. In a process that was forked from
        the one that opened the trace nothing is ended.
        """
        was_closed, self._closed = self._closed, True
        self._wake.wake()
        with self._lock:
            self._finished = self._over = True
            try:
                if not was_closed:
                    self._losses = self._session.losses()
                    if os.getpid() == self._process:
                        self._last = Snapshot(self._session.last_snapshot())
            finally:
                if os.getpid() == self._process:
                    _close(self._stack)
                self._finalizer.detach()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def __repr__(self) -> str:
        state = "closed" if self._closed else "ended" if self._finished else "running"
        return f"<Trace of {self.script.name!r}: {state}>"


def _is_loss(text: str) -> bool:
    """Whether a warning says that results are not complete."""
    rows = FAILURES.values()
    return text.startswith("Lost ") or " is full" in text or any(row.one in text or row.many in text for row in rows)


def _close(stack: ExitStack) -> None:
    """Close all; a Ctrl-C between two of its parts leaves the others for the second round."""
    try:
        stack.close()
    finally:
        stack.close()


def _forgotten(stack: ExitStack, name: str, process: int) -> None:
    if os.getpid() != process:
        return  # The process that opened it has it still.
    _close(stack)
    if not sys.is_finalizing():
        warnings.warn(f"the trace of {name} was not closed", ResourceWarning, stacklevel=2)
