"""``pytrace.why``: where the time of a command's or a process's threads went."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Unpack

from pytrace.account import causes
from pytrace.account.account import Account
from pytrace.account.reading import Reading
from pytrace.account.requests import requests
from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.interface.errors import ScriptError
from pytrace.interface.tracing import LONGEST, OpenArguments, Trace, check_duration
from pytrace.interface.tracing import open as open_trace

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
SCRIPT = os.path.join(_PACKAGE, "account", "account.bt")
_REQUEST = os.path.join(_PACKAGE, "account", "request.bt")
LEAST = 0.001
"""Seconds of the shortest waits of chains."""
_SELECTING = ("pid", "pids", "command", "comm", "uid", "cgroup", "container", "netns")


def why(*, least: float | None = None, request: str = "", **arguments: Unpack[OpenArguments]) -> Account:
    """Account for the time of all threads: on CPU, waiting for one, blocked by cause.

    ``pytrace.why(command=["./program"])``, ``pytrace.why(pid=1234, duration=10)``.

    Args:
        least: seconds of the shortest waits that chains, critical path and timeline have (0.001; 0.0001 with requests);
            the account has all.
        request: what stands for a request, a ``call:`` probe: ``./server:handle``, ``python:app.handle``,
            ``usdt:./server:start,end``. :attr:`Account.requests` is about the time from its entry to its return.
        arguments: those of :func:`pytrace.open`, of which one has to select processes; without *duration* until the
            command or the processes end.

    Raises:
        TypeError: *parameters* are given: the script is pytrace's own.
        TraceError: this process may not trace, nothing selects processes, or the command cannot be run.
    """
    return traced(lambda _: None, least=least, request=request, **arguments)[0]


def traced(
    begun: Callable[[Trace], object], *, least: float | None = None, request: str = "",
    **arguments: Unpack[OpenArguments],
) -> tuple[Account, Reading]:
    """As :func:`why`, with what it was made of; *begun* is called with the trace once it runs."""
    duration = arguments.pop("duration", None)
    check_duration(duration)
    if least is None:
        least = LEAST / 10 if request else LEAST
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
        "futex": causes.number("futex"),
    }  # fmt: skip
    target = _request_target(request)
    with _opened(target, arguments) as trace:
        trace.maps["@least"][None] = round(least * 1e9)
        trace.maps["@complete"][None] = True
        begun(trace)
        if duration is None:
            while not trace.wait(LONGEST):
                pass
        else:
            trace.wait(duration)
        trace.stop()
        alive = {number: kernel_files.process_name(number) for number in _numbers(trace)}
        snapshot = trace.snapshot()
    attached = arguments.get("command") is None
    reading = Reading(snapshot.data, *_target(arguments), attached=attached, alive=alive, limit=round(least * 1e9))
    account = reading.account()
    if target:
        account.requests = requests(reading, target)
    return account, reading


def _request_target(text: str) -> str:
    """The attach point of requests; empty without any."""
    if not text:
        return ""
    if any(character in text for character in " \t\n{};\"'") or "/*" in text:
        raise TraceError(f"--request {text}: this is no target", hints=(_TARGETS,))
    return text if text.startswith(("call:", "syscall:")) else f"call:{text}"


_TARGETS = "targets: ./server:handle, python:app.handle, usdt:./server:start,end (docs/reference/calls.md)"


def _opened(target: str, arguments: OpenArguments) -> Trace:
    """The running script; with a target of requests with what is added for them.

    Raises:
        TraceError: there is no such target.
    """
    if not target:
        return open_trace(SCRIPT, **arguments)
    with open(SCRIPT, encoding="utf-8") as script, open(_REQUEST, encoding="utf-8") as addition:
        text = script.read().replace('import "../', f'import "{_PACKAGE}/') + addition.read()
    # Many short waits are of interest here.
    text = text.replace("let @wait = hash(65536);", "let @wait = hash(262144);").replace("TARGET /", f"{target} /")
    try:
        return open_trace(text, **arguments)
    except ScriptError as error:
        messages = "; ".join(item.message for item in error.diagnostics)
        raise TraceError(f"--request {target}: {messages}", hints=(_TARGETS,)) from None


def _numbers(trace: Trace) -> list[int]:
    return [number for number in trace.maps["@thread"] if isinstance(number, int)]


def _target(arguments: OpenArguments) -> tuple[str, str]:
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
