"""Running scripts from Python: a trace gives its events as they come, and its maps when they are asked for."""

from __future__ import annotations

import shlex
import sys
import threading
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytrace.core.diagnostics import TraceError
from pytrace.core.run_options import RunOptions
from pytrace.interface.collector import Collector, table
from pytrace.interface.compiled import CompiledScript, Parameters, Script
from pytrace.interface.compiled import compile as compile_script
from pytrace.interface.errors import LossWarning, TraceWarning
from pytrace.interface.events import Event
from pytrace.interface.maps import Maps, ResultMap
from pytrace.interface.snapshots import Snapshot
from pytrace.results.snapshot import MapData
from pytrace.runtime.abi import privileges
from pytrace.runtime.session.embedding import Embedding, WakeUp
from pytrace.runtime.session.session import Session

if TYPE_CHECKING:
    import asyncio

LONGEST = 1.0
"""Seconds of one wait of a session; between two of them signals of Python programs are handled."""
QUIET, BUSY = 0.2, 0.002
"""Seconds between two looks of an asynchronous iteration, when nothing comes and when much does."""


class Trace:
    """A script that runs: :func:`open` starts it, and leaving the ``with`` block ends it.

    Events are taken out of the kernel while the trace is iterated over, or in :meth:`wait`; what a script does beside
    printing (``exit()``, ``clear()``) happens then, too. Methods may be called from any thread.
    """

    def __init__(self, script: CompiledScript, options: RunOptions) -> None:
        self._lock = threading.RLock()
        self._stack = ExitStack()
        # What the stack holds knows nothing of this object, so that garbage collection ends a forgotten trace.
        self._finalizer = weakref.finalize(self, _forgotten, self._stack, script.name)
        self._wake = WakeUp()
        self._stack.callback(self._wake.close)
        prepared = script.prepared(options)
        self.script = script
        """The script that runs."""
        self._collector = Collector(prepared.manifest.programs)
        self._over = self._finished = False
        self._exit_code = 0
        self._warned: dict[str, None] = {}
        self._losses: dict[str, dict[str, int]] = {}
        self.maps: Maps
        """The script's maps, read from the kernel whenever they are asked for something."""
        try:
            embedding = Embedding(self._collector, table(self._collector), self._wake)
            self._session = Session(prepared, options, self._stack, embedding)
            self._collector.symbols = self._session.symbols
            self.maps = Maps({spec.name: self._map(spec.name) for spec in prepared.manifest.maps})
            self._session.start()
        except BaseException:
            self._finalizer.detach()
            self._stack.close()
            raise
        self._tell()

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
        if self._finished:
            return
        if self._over or not self._session.step(longest):
            self._finish()
        self._tell()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events, as they come, for ``async for``."""
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            event = self._next(0)
            if event is not None:
                yield event
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
            await asyncio.wait_for(ready.wait(), BUSY if self._session.busy else QUIET)
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(self.fileno())

    def fileno(self) -> int:
        """A descriptor that becomes readable when there is something to handle (an epoll(7) instance)."""
        return self._session.fileno()

    def wait(self, seconds: float | None = None) -> bool:
        """Handle what happens for some time, or until the run ends; whether it has ended.

        Events wait to be iterated over; of more than 100,000 the oldest are dropped, which :attr:`losses` tells.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while not self._finished:
            left = LONGEST if end is None else end - time.monotonic()
            if left <= 0:
                break
            with self._lock:
                self._step(min(left, LONGEST))
        return self._finished

    def events(self) -> list[Event]:
        """The events that wait, without waiting for others."""
        with self._lock:
            self._step(0)
            return [self._collector.take() for _ in range(len(self._collector.events))]

    # ---- the end

    def stop(self) -> None:
        """End the run as ``exit()`` does: probes are detached, end probes run; maps and events are still there.

        From another thread it returns at once, and the iteration that goes on ends.
        """
        self._over = True
        self._wake.wake()
        if self._lock.acquire(blocking=False):
            try:
                self._step(0)
            finally:
                self._lock.release()

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
            found = self._losses if self.closed else self._session.losses()
        if self._collector.dropped:
            found = {**found, "unread": {"events": self._collector.dropped}}
        return {kind: {name: count for name, count in names.items() if count} for kind, names in found.items()}

    @property
    def lost(self) -> int:
        """Events that were lost so far."""
        return sum(self.losses.get("lost", {}).values()) + self._collector.dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the run so far, as the command prints them; each was also given to :mod:`warnings`."""
        return tuple(self._warned)

    def snapshot(self) -> Snapshot:
        """All that the run has at this moment.

        Raises:
            TraceError: the trace is closed.
        """
        with self._lock:
            self._check_open()
            return Snapshot(self._session.snapshot())

    def _map(self, name: str) -> ResultMap:
        def read() -> MapData:
            with self._lock:
                self._check_open()
                return self._session.map_data(name)

        return ResultMap(name, read)

    def _check_open(self) -> None:
        if self.closed:
            raise TraceError("the trace is closed", hints=("take a snapshot() before",))

    def _tell(self) -> None:
        """Hand over the session's warnings."""
        collector = self._collector
        while collector.messages:
            text = collector.messages.pop(0).rstrip("\n")
            if text.startswith(("Attached ", "HINT: ")):
                continue
            self._warned[text] = None
            lost = text.startswith("Lost ") or "lost" in text
            warnings.warn(text.removeprefix("WARNING: "), LossWarning if lost else TraceWarning, stacklevel=3)

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

        End probes run only before, in :meth:`stop` or when the run ends by itself.
        """
        with self._lock:
            if self._finalizer.detach() is not None:
                self._finished = self._over = True
                self._losses = self._session.losses()
                self._stack.close()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return not self._finalizer.alive


def _forgotten(stack: ExitStack, name: str) -> None:
    stack.close()
    if not sys.is_finalizing():
        warnings.warn(f"the trace of {name} was not closed", ResourceWarning, stacklevel=2)


def open(  # noqa: A001  (as io.open, tarfile.open and others)
    script: Script | CompiledScript,
    *,
    pid: int | None = None,
    command: str | Sequence[str] | None = None,
    parameters: Parameters = (),
    follow: bool = False,
    unsafe: bool = False,
    include_directories: Sequence[str] = (),
    includes: Sequence[str] = (),
    probe_filter: str | None = None,
    debuginfo: Sequence[str] = (),
    no_features: Sequence[str] = (),
    netns: str | None = None,
    cached: bool = True,
) -> Trace:
    """Compile and load a script, attach its probes, and start the command.

    Args:
        script: the text of a script, the path of a file, or what :func:`compile` gave (which has its own parameters
            and options of compilation).
        pid: trace only this process; the run ends when it does.
        command: run this (a list of words, or a text that is split as a shell would); the run ends when it does.
        parameters: positional parameters (a sequence), or named ones (a mapping).
        follow: trace processes that *pid* or *command* starts, too.
        unsafe: allow functions that change the system (``system``, ``signal`` …).
        include_directories: folders of C headers.
        includes: C headers that come before those of the script.
        probe_filter: a regular expression; probes whose name does not match it are left out.
        debuginfo: folders with debug information.
        no_features: features of the kernel that are not to be used.
        netns: network namespace of the command and of interface names: name or path.
        cached: use what an earlier compilation gave, and keep this one.

    Raises:
        ScriptError: the script has errors; its ``diagnostics`` tell where.
        TraceError: this process may not trace, the kernel refuses the script, or the command cannot be run.
    """
    if pid is not None and command is not None:
        raise TraceError("pid and command cannot be used together")
    for text in privileges.check():
        warnings.warn(text, TraceWarning, stacklevel=2)
    if not isinstance(script, CompiledScript):
        script = compile_script(
            script,
            parameters=parameters,
            pid=pid,
            command=command,
            follow=follow,
            unsafe=unsafe,
            include_directories=include_directories,
            includes=includes,
            probe_filter=probe_filter,
            debuginfo=debuginfo,
            no_features=no_features,
            cached=cached,
        )
    for text in script.warnings:
        warnings.warn(text.rstrip("\n"), TraceWarning, stacklevel=2)
    options = RunOptions(
        pid=pid,
        command=command if command is None or isinstance(command, str) else shlex.join(command),
        follow=follow,
        quiet=True,
        disabled=frozenset(no_features),
        debuginfo=tuple(debuginfo),
        netns=netns,
        script=script.name,
        text=script.source.text,
        parameters=script.options.positional,
    )
    return Trace(script, options)


def run(
    script: Script | CompiledScript,
    *,
    duration: float | None = None,
    until: Callable[[Trace], bool] | None = None,
    on_event: Callable[[Event], object] | None = None,
    **options: object,
) -> Snapshot:
    """Run a script to its end and give all that it has then.

    Args:
        script: as for :func:`open`, and so are *options*.
        duration: end the run after so many seconds.
        until: called about once a second and after each event; the run ends when it gives a true value.
        on_event: called with each event; without it events are dropped.

    Raises:
        ScriptError, TraceError: as for :func:`open`.
    """
    end = None if duration is None else time.monotonic() + duration
    # The same names and types as there.
    with open(script, **options) as trace:  # type: ignore[arg-type]
        while not trace.ended:
            left = LONGEST if end is None else end - time.monotonic()
            if left <= 0 or (until is not None and until(trace)):
                trace.stop()
                break
            trace.wait(min(left, 0.1 if until is not None else LONGEST))
            for event in trace.events():
                if on_event is not None:
                    on_event(event)
        for event in trace.events():
            if on_event is not None:
                on_event(event)
        return trace.snapshot()
