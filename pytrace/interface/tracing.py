"""A running script: yields events as they arrive, and reads maps on request."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self, TypeAlias, Unpack

from msgspec.structs import replace

from pytrace.base.interruption import postponed
from pytrace.core.costs import RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.core.failures import FAILURES, CallTotals
from pytrace.core.options import (
    CompileOptions,
    ProcessFilters,
    RunOptions,
    Surroundings,
    parse_memory,
    watchdog_seconds,
)
from pytrace.interface.compiled import (
    FIXED,
    Arguments,
    Command,
    CompiledScript,
    Script,
    check_names,
    command_text,
    converted,
    process_filters,
    refuse,
)
from pytrace.interface.compiled import compile as compile_script
from pytrace.interface.errors import LossWarning, TraceWarning, warn
from pytrace.interface.events import Collector, Event, EventSources, event_handlers
from pytrace.interface.snapshots import MapAccess, Maps, ResultMap, Snapshot
from pytrace.results.snapshot import MapData
from pytrace.runtime.machine import privileges
from pytrace.runtime.session.opening import open_run
from pytrace.runtime.session.session import Embedding, Session
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


class WakeUp:
    """Takes the place of signals: :meth:`wake` interrupts a wait from any thread."""

    def __init__(self) -> None:
        # Another thread must not write to a descriptor that is somebody else's by then; a handler of signals may call
        # while this thread holds the lock.
        self._lock = RLock()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def begin(self) -> None:
        """Nothing is taken over."""

    def fileno(self) -> int:
        """Readable after :meth:`wake`."""
        return self._descriptor

    def take(self) -> list[int]:
        """No signal is handed on."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        return []

    def wake(self) -> None:
        """Have a wait that is going on, or the next one, return at once."""
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


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
                collector, lambda symbols: event_handlers(collector, EventSources(programs, symbols)), self._wake,
                confined,
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

    @property
    def child_had_children(self) -> bool:
        """Whether the command has ended, and had waited for processes that it started."""
        return self._session.child_had_children

    # ---- results

    @property
    def calls(self) -> tuple[CallTotals, ...]:
        """What each ``call:`` probe has seen, once the run has ended: entered, returned, under way, left, lost."""
        return self._session.calls

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


# -------------------------------------------------------------------------------------------------------------- running

# Running scripts from Python.


Stream: TypeAlias = IO[str] | IO[bytes] | int
"""A file with a descriptor, a descriptor, or ``subprocess.DEVNULL``."""


def of_compiled(selected: ProcessFilters, options: CompileOptions) -> ProcessFilters:
    """The process filters of a run of a script that was compiled with *options*.

    Raises:
        TraceError: the script was compiled with other filters.
    """
    if not selected.pids:
        selected = replace(selected, pids=options.filters.pids)
    if selected.shape != options.shape:
        raise TraceError(
            "the script is compiled already, with other filters of processes",
            hints=("give compile() the same arguments as open(): pid, pids, comm, uid, cgroup, container, netns",),
        )
    return selected


def open(  # noqa: A001  (as io.open, tarfile.open and others)
    script: Script | CompiledScript,
    *,
    duration: float | None = None,
    measure: bool = False,
    watchdog: float | None = None,
    max_memory: str = "",
    confined: bool = False,
    places: bool = False,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Stream | None = None,
    stderr: Stream | None = None,
    **arguments: Unpack[Arguments],
) -> Trace:
    """Compile and load a script, attach its probes, and start the command.

    Args:
        script: the text of a script, the path of a file, or a result of :func:`compile` (which has its own parameters
            and compile options).
        duration: end the run this number of seconds after the probes were attached.
        measure: measure what tracing costs (:attr:`Trace.cost`).
        watchdog: seconds after which the probes do nothing when this process does not run (stopped, swapped out);
            0: never. How often the program takes events plays no part. Without it the script's config decides (10).
        max_memory: what maps and events that wait may take: ``"512M"``, ``"2G"``, or ``"10%"`` (the default) of the
            machine's memory; a run that takes more ends with an error.
        confined: once everything is attached, give up for good what the rest of the run does not need, as the command
            does: capabilities, access to files, system calls (docs/operate/privileges.md). For processes that do
            nothing else from then on, and have one thread.
        places: leave user stacks in snapshots as places in binaries, by build id and address, for those who name their
            functions elsewhere, and read no symbols for them.
        cwd: the working directory of the command. Its program is looked for before, from that of this process.
        env: all of the environment of the command; without it that of this process.
        stdout: where the command writes, a file with a descriptor or a descriptor; without it where this process does.
            ``subprocess.DEVNULL`` is nowhere. The caller closes what it opened, once this function has returned.
        stderr: the same for its messages.
        arguments: those of :class:`pytrace.interface.compiled.Arguments`.

    Raises:
        ScriptError: the script has errors; its ``diagnostics`` have their locations.
        TraceError: this process may not trace, the kernel rejects the script, or the command cannot be run.
    """
    check_names(arguments)
    check_duration(duration)
    if cwd is not None and not os.path.isdir(cwd):
        raise TraceError(f"the command has no working directory: {os.fspath(cwd)!r} is not one")
    if watchdog is not None:
        watchdog_seconds(watchdog)
    if max_memory:
        parse_memory(max_memory, 1 << 40)
    filters, follow = process_filters(arguments), arguments.get("follow", False)
    command = _checked(bool(filters.pids), arguments.get("command"), follow)
    values = converted(arguments, RunOptions)
    for text in privileges.check():
        warn(text, TraceWarning)
    if isinstance(script, CompiledScript):
        fixed = (*FIXED, "parameters", *(() if script.options.follow else ("follow",)))
        refuse(arguments, fixed, "the script is compiled already; give {} to compile()")
        if not script.ahead:
            filters = of_compiled(filters, script.options)
    else:
        script = compile_script(script, **(arguments | {"command": command}))
    for text in script.warnings:
        warn(text.rstrip("\n").removeprefix("WARNING: "), TraceWarning)
    opened = ExitStack()
    output, errors = (_descriptor(stream, opened) for stream in (stdout, stderr))
    values |= {
        "filters": filters,
        "surroundings": Surroundings(
            "" if cwd is None else os.fspath(cwd), None if env is None else tuple(env.items()), output, errors
        ),
        "duration": duration,
        "quiet": True,
        "script": script.name,
        "text": script.source.text,
        "parameters": script.parameters,
        "measure": measure,
        "max_memory": max_memory,
        "watchdog": watchdog,
        "places": places,
    }
    with opened:
        return Trace(script, replace(RunOptions(), **values), confined=confined)


def _descriptor(stream: Stream | None, opened: ExitStack) -> int:
    """The descriptor of a stream of the command; -1 for that of this process."""
    if stream is None:
        return -1
    if isinstance(stream, int) and stream < 0:
        if stream != subprocess.DEVNULL:
            raise ValueError("a stream of the command is a file, a descriptor or subprocess.DEVNULL; a pipe: os.pipe()")
        stream = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        opened.callback(os.close, stream)
    return stream if isinstance(stream, int) else stream.fileno()


class Opening:
    """A trace that another thread opens, for event loops: ``await`` it, or ``async with`` it."""

    def __init__(self, start: Callable[[], Trace]) -> None:
        self._start = start
        self._trace: Trace | None = None

    def __await__(self) -> Generator[object, None, Trace]:
        return self._opened().__await__()

    async def _opened(self) -> Trace:
        import asyncio

        opening = asyncio.get_running_loop().run_in_executor(None, self._start)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Nobody will get the trace: what it attaches is detached as soon as it is open.
            opening.add_done_callback(_close_unwanted)
            raise

    async def __aenter__(self) -> Trace:
        self._trace = await self
        return self._trace

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._trace is not None:
            await self._trace.__aexit__(kind, error, trace)


def _close_unwanted(opening: asyncio.Future[Trace]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class OpenArguments(Arguments, total=False):
    """Keyword arguments of :func:`open_async`: those of :func:`open`."""

    duration: float | None
    measure: bool
    watchdog: float | None
    max_memory: str
    confined: bool
    places: bool
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    stdout: Stream | None
    stderr: Stream | None


def open_async(script: Script | CompiledScript, **arguments: Unpack[OpenArguments]) -> Opening:
    """As :func:`open`, without blocking an event loop while the script is compiled, loaded and attached (0.4 s).

    ``async with pytrace.open_async(…) as trace:``, or ``trace = await pytrace.open_async(…)``. A thread opens it; see
    *command* of :class:`pytrace.interface.compiled.Arguments` for commands that a thread starts.

    Args:
        script: as for :func:`open`.
        arguments: those of :func:`open`.

    Raises:
        ScriptError, TraceError: when it is awaited, as :func:`open`.
    """
    return Opening(lambda: open(script, **arguments))


def check_duration(duration: object) -> None:
    """Reject what is no time.

    Raises:
        TypeError: it is no number.
        ValueError: it is not more than 0.
    """
    if duration is None:
        return
    if not isinstance(duration, int | float) or isinstance(duration, bool):
        raise TypeError(f"duration must be a number of seconds, not {type(duration).__name__}")
    if not 0 < duration < float("inf"):
        raise ValueError(f"duration must be more than 0 seconds, not {duration}")


def _checked(pids: bool, command: Command | None, follow: bool) -> str | None:
    """Check combinations of arguments. Returns the command as a string that is split again."""
    if pids and command is not None:
        raise TraceError("pid and command cannot be used together")
    if follow and not pids and command is None:
        raise TraceError("follow needs pid or command")
    text = command_text(command)
    if text is not None and not text.strip():
        raise TraceError("the command is empty")
    return text


def run(
    script: Script | CompiledScript,
    *,
    duration: float | None = None,
    measure: bool = False,
    until: Callable[[Trace], object] | None = None,
    on_event: Callable[[Event], object] | None = None,
    watchdog: float | None = None,
    max_memory: str = "",
    **arguments: Unpack[Arguments],
) -> Snapshot:
    """Run a script to its end. Returns its final snapshot.

    Args:
        script: as for :func:`open`, like *arguments*.
        duration: end the run this number of seconds after the probes were attached.
        measure: measure what tracing costs (:attr:`Snapshot.costs`).
        until: called about once a second and after each event; the run ends when it returns a true value.
        on_event: called with each event; without it events are dropped.
        watchdog, max_memory: as for :func:`open`.
        arguments: those of :class:`pytrace.interface.compiled.Arguments`.

    Raises:
        ScriptError, TraceError: as for :func:`open`.
    """
    check_duration(duration)
    with open(script, measure=measure, watchdog=watchdog, max_memory=max_memory, **arguments) as trace:
        _watch(trace, duration, until, on_event)
    return trace.snapshot()


def _watch(
    trace: Trace,
    duration: float | None,
    until: Callable[[Trace], object] | None,
    on_event: Callable[[Event], object] | None,
) -> None:
    """Wait for the end of *trace*, and hand over its events."""
    end = None if duration is None else time.monotonic() + duration

    def handle(events: Sequence[Event]) -> None:
        for event in events:
            if on_event is not None:
                on_event(event)
            if until is not None and not trace.ended and until(trace):
                trace.request_end()

    while not trace.ended:
        left = LONGEST if end is None else max(0.0, end - time.monotonic())
        if not left or (until is not None and until(trace)):
            trace.request_end()
        handle(trace.batch(min(left, LONGEST)))
    handle(trace.events())
