"""Running scripts from Python."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import IO, TYPE_CHECKING, TypeAlias, Unpack

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.core.options import ACTIONS, SAMPLE, Budget, Rate, RunOptions, Surroundings, parse_memory, watchdog_seconds
from pytrace.interface.compiled import (
    FIXED,
    Arguments,
    Command,
    CompiledScript,
    Script,
    check_names,
    command_text,
    folders,
    of_compiled,
    process_filters,
    refuse,
)
from pytrace.interface.compiled import compile as compile_script
from pytrace.interface.errors import TraceWarning, warn
from pytrace.interface.events import Event
from pytrace.interface.snapshots import Snapshot
from pytrace.interface.tracing import LONGEST, Trace
from pytrace.runtime.machine import privileges

if TYPE_CHECKING:
    import asyncio


Stream: TypeAlias = IO[str] | IO[bytes] | int
"""A file with a descriptor, a descriptor, or ``subprocess.DEVNULL``."""


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
    no_features = arguments.get("no_features", ())
    command = _checked(bool(filters.pids), arguments.get("command"), follow, no_features)
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
    options = RunOptions(
        filters=filters,
        surroundings=Surroundings(
            "" if cwd is None else os.fspath(cwd), None if env is None else tuple(env.items()), output, errors
        ),
        duration=duration,
        command=command,
        follow=follow,
        quiet=True,
        disabled=frozenset(no_features),
        debuginfo=folders(arguments.get("debuginfo", ())),
        netns=arguments.get("netns"),
        script=script.name,
        text=script.source.text,
        parameters=script.parameters,
        budget=_budget(arguments.get("budget"), arguments.get("over_budget", SAMPLE)),
        rates=_rates(arguments.get("max_rate", {})),
        measure=measure,
        max_memory=max_memory,
        watchdog=watchdog,
        places=places,
    )
    with opened:
        return Trace(script, options, confined=confined)


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


def _budget(text: str | None, action: str) -> Budget | None:
    if action not in ACTIONS:
        raise ValueError(f"over_budget is one of {', '.join(ACTIONS)}, not {action!r}")
    budget = None if text is None else Budget.parsed(text, action)
    if text is not None and budget is None:
        raise ValueError(f"budget is a percentage, as '1%' or '1%machine', not {text!r}")
    return budget


def _rates(limits: float | Mapping[str, float]) -> tuple[Rate, ...]:
    by_probe = limits if isinstance(limits, Mapping) else {"": limits}
    if any(hits <= 0 for hits in by_probe.values()):
        raise ValueError("max_rate must be more than 0 hits per second")
    return tuple(Rate(hits, pattern) for pattern, hits in by_probe.items())


def _checked(pids: bool, command: Command | None, follow: bool, no_features: Sequence[str]) -> str | None:
    """Check combinations of arguments. Returns the command as a string that is split again."""
    if pids and command is not None:
        raise TraceError("pid and command cannot be used together")
    if follow and not pids and command is None:
        raise TraceError("follow needs pid or command")
    if isinstance(no_features, str):
        raise TypeError("no_features must be a sequence of names, not a string")
    unknown = sorted(set(no_features) - set(FEATURES))
    if unknown:
        raise TraceError(f"unknown feature {unknown[0]!r}", hints=("features are " + ", ".join(FEATURES),))
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
