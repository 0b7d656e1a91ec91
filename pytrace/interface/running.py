"""Running scripts from Python."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.core.options.run_options import RunOptions
from pytrace.interface import selection
from pytrace.interface.compiled import CompiledScript, Parameters, Script, folders, refuse
from pytrace.interface.compiled import compile as compile_script
from pytrace.interface.errors import TraceWarning, warn
from pytrace.interface.events import Event
from pytrace.interface.selection import Names, Users
from pytrace.interface.snapshots import Snapshot
from pytrace.interface.tracing import LONGEST, Trace
from pytrace.runtime.abi import privileges

Command: TypeAlias = "str | Sequence[str | os.PathLike[str]]"
"""A list of words, or a string that is split as by a shell (without expansions)."""


def open(  # noqa: A001  (as io.open, tarfile.open and others)
    script: Script | CompiledScript,
    *,
    pid: int | None = None,
    pids: Sequence[int] = (),
    comm: Names = (),
    uid: Users = (),
    cgroup: Names = (),
    container: Names = (),
    command: Command | None = None,
    parameters: Parameters = (),
    follow: bool = False,
    unsafe: bool = False,
    include_directories: Sequence[str] = (),
    includes: Sequence[str] = (),
    probe_filter: str | None = None,
    debuginfo: Sequence[str] = (),
    no_features: Sequence[str] = (),
    netns: str | None = None,
    duration: float | None = None,
    cached: bool = True,
) -> Trace:
    """Compile and load a script, attach its probes, and start the command.

    Args:
        script: the text of a script, the path of a file, or a result of :func:`compile` (which has its own parameters
            and compile options).
        pid: trace only this process; the run ends when it does.
        pids: trace only these processes; the run ends when all have ended.
        comm: trace only threads with this name (or these).
        uid: trace only processes of this user (or these): names or numbers.
        cgroup: trace only processes in this cgroup of version 2 (or these), and those below it.
        container: trace only processes of this container (or these): id, UID of a pod, or name.
        command: run this (a list of words, or a string that is split as by a shell); the run ends when it does, and
            it is ended when the trace is closed. A command that was started by a thread other than the main thread
            survives if this process is killed (SIGKILL).
        parameters: positional parameters (a sequence), or named ones (a mapping).
        follow: also trace processes that *pid* or *command* starts.
        unsafe: allow functions that change the system (``system``, ``signal`` …).
        include_directories: folders of C headers.
        includes: C headers that come before those of the script.
        probe_filter: a regular expression; probes whose name does not match it are left out.
        debuginfo: folders with debug information.
        no_features: kernel features that must not be used.
        netns: trace only processes of this network namespace (name or path); also that of the command and of
            interface names.
        duration: end the run this number of seconds after the probes were attached.
        cached: use the cached result of an earlier compilation, and cache this one.

    Raises:
        ScriptError: the script has errors; its ``diagnostics`` have their locations.
        TraceError: this process may not trace, the kernel rejects the script, or the command cannot be run.
    """
    filters = selection.filters(pid, pids, comm=comm, uid=uid, cgroup=cgroup, container=container, netns=netns)
    words = _checked(bool(filters.pids), command, follow, no_features)
    for text in privileges.check():
        warn(text, TraceWarning)
    if isinstance(script, CompiledScript):
        fixed = {
            "parameters": parameters, "unsafe": unsafe, "include_directories": include_directories,
            "includes": includes, "probe_filter": probe_filter, "follow": follow and not script.options.follow,
        }  # fmt: skip
        refuse(fixed, "the script is compiled already; give {} to compile()")
        if not script.ahead:
            filters = selection.of_compiled(filters, script.options)
    else:
        script = compile_script(
            script,
            parameters=parameters,
            pid=pid,
            pids=pids,
            comm=comm,
            uid=uid,
            cgroup=cgroup,
            container=container,
            command=words,
            follow=follow,
            unsafe=unsafe,
            include_directories=include_directories,
            includes=includes,
            probe_filter=probe_filter,
            debuginfo=debuginfo,
            no_features=no_features,
            netns=netns,
            cached=cached,
        )
    for text in script.warnings:
        warn(text.rstrip("\n").removeprefix("WARNING: "), TraceWarning)
    options = RunOptions(
        filters=filters,
        duration=duration,
        command=words,
        follow=follow,
        quiet=True,
        disabled=frozenset(no_features),
        debuginfo=folders(debuginfo),
        netns=netns,
        script=script.name,
        text=script.source.text,
        parameters=script.parameters,
    )
    return Trace(script, options)


def _checked(
    pids: bool, command: Command | None, follow: bool, no_features: Sequence[str]
) -> str | None:
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
    if command is None:
        return None
    words = command if isinstance(command, str) else shlex.join(os.fspath(word) for word in command)
    if not words.strip():
        raise TraceError("the command is empty")
    return words


def run(
    script: Script | CompiledScript,
    *,
    duration: float | None = None,
    until: Callable[[Trace], object] | None = None,
    on_event: Callable[[Event], object] | None = None,
    pid: int | None = None,
    pids: Sequence[int] = (),
    comm: Names = (),
    uid: Users = (),
    cgroup: Names = (),
    container: Names = (),
    command: Command | None = None,
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
) -> Snapshot:
    """Run a script to its end. Returns its final snapshot.

    Args:
        script: as for :func:`open`, like the other arguments that are not listed here.
        duration: end the run this number of seconds after the probes were attached.
        until: called about once a second and after each event; the run ends when it returns a true value.
        on_event: called with each event; without it events are dropped.

    Raises:
        ScriptError, TraceError: as for :func:`open`.
    """
    with open(
        script,
        pid=pid,
        pids=pids,
        comm=comm,
        uid=uid,
        cgroup=cgroup,
        container=container,
        command=command,
        parameters=parameters,
        follow=follow,
        unsafe=unsafe,
        include_directories=include_directories,
        includes=includes,
        probe_filter=probe_filter,
        debuginfo=debuginfo,
        no_features=no_features,
        netns=netns,
        cached=cached,
    ) as trace:
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
