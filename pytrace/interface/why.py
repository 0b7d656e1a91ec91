"""``pytrace.why``: where the time of a command's or a process's threads went."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Unpack

from pytrace.account import causes
from pytrace.account.account import Account, Reading, proc_threads
from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.interface.compiled import Arguments
from pytrace.interface.tracing import LONGEST, Trace, check_duration
from pytrace.interface.tracing import open as open_trace

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "account", "account.bt")
LEAST = 0.001
"""Seconds of the shortest waits of chains."""
_SELECTING = ("pid", "pids", "command", "comm", "uid", "cgroup", "container", "netns")


def why(*, duration: float | None = None, least: float = LEAST, **arguments: Unpack[Arguments]) -> Account:
    """Account for the time of all threads: on CPU, waiting for one, blocked by cause.

    ``pytrace.why(command=["./program"])``, ``pytrace.why(pid=1234, duration=10)``.

    Args:
        duration: seconds; None: until the command or the processes end.
        least: seconds of the shortest waits that chains, critical path and timeline have; the account has all.
        arguments: those of :func:`pytrace.open`, of which one has to select processes.

    Raises:
        TypeError: *parameters* are given: the script is pytrace's own.
        TraceError: this process may not trace, nothing selects processes, or the command cannot be run.
    """
    return traced(lambda _: None, duration=duration, least=least, **arguments).account()


def traced(
    begun: Callable[[Trace], object], *, duration: float | None = None, least: float = LEAST,
    **arguments: Unpack[Arguments],
) -> Reading:
    """As :func:`why`, with all that it is made of; *begun* is called with the trace once it runs."""
    check_duration(duration)
    if not 0 <= least < 1000:
        raise ValueError("least: seconds, 0 to 1000")
    if "parameters" in arguments:
        raise TypeError("parameters are for scripts, not for why()")
    if not any(arguments.get(name) for name in _SELECTING):
        hint = "pytrace why -c './program', pytrace why -p PID --for 10"
        raise TraceError("why needs a command or processes", hints=(hint,))
    if arguments.get("command") is not None:
        arguments.setdefault("follow", True)
    arguments["parameters"] = {
        "descriptors": causes.numbers(causes.DESCRIPTORS), "polls": causes.numbers(causes.POLLS),
        "futex": causes.number("futex"), "min": round(least * 1e6),
    }  # fmt: skip
    with open_trace(SCRIPT, **arguments) as trace:
        trace.maps["@complete"][None] = True
        begun(trace)
        if duration is None:
            while not trace.wait(LONGEST):
                pass
        else:
            trace.wait(duration)
        trace.stop()
        alive = proc_threads(_numbers(trace))
        snapshot = trace.snapshot()
    attached = arguments.get("command") is None
    return Reading(snapshot.data, *_target(arguments), attached=attached, alive=alive, limit=round(least * 1e9))


def _numbers(trace: Trace) -> list[int]:
    return [number for number in trace.maps["@thread"] if isinstance(number, int)]


def _target(arguments: Arguments) -> tuple[str, str]:
    """What is traced, for people, and options that select the same."""
    command = arguments.get("command")
    if command is not None:
        words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
        text = command if isinstance(command, str) else shlex.join(words)
        return text, f"-c {shlex.quote(text)}"
    pids = [*arguments.get("pids", ())]
    if (pid := arguments.get("pid")) is not None:
        pids.insert(0, pid)
    if pids:
        return ", ".join(f"{_name(number)} ({number})" for number in pids), " ".join(f"-p {number}" for number in pids)
    for name in ("comm", "cgroup", "container", "uid", "netns"):
        value: object = arguments.get(name)
        if value:
            values = [value] if isinstance(value, str | int) else list(value) if isinstance(value, Sequence) else []
            options = " ".join(f"--{name} {shlex.quote(str(item))}" for item in values)
            return f"{name} {', '.join(map(str, values))}", options
    return "all", ""


def _name(pid: int) -> str:
    return kernel_files.process_name(pid) or "process"
