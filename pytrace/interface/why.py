"""``pytrace.why``: where the time of a command's or a process's threads went."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Unpack

from pytrace.account import causes
from pytrace.account.account import Account
from pytrace.account.reading import Reading
from pytrace.account.requests import requests
from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.interface.compiled import command_text
from pytrace.interface.errors import ScriptError
from pytrace.interface.tracing import LONGEST, OpenArguments, Trace, check_duration
from pytrace.interface.tracing import open as open_trace
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.machine import privileges, procfs
from pytrace.runtime.session.child import words_of

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
SCRIPT = os.path.join(_PACKAGE, "account", "account.bt")
_REQUEST = os.path.join(_PACKAGE, "account", "request.bt")
_GOROUTINES = os.path.join(_PACKAGE, "account", "goroutines.bt")
LEAST = 0.001
"""Seconds of the shortest waits of chains."""
_SELECTING = ("pid", "pids", "command", "comm", "uid", "cgroup", "container", "netns")


def why(
    *, least: float | None = None, request: str = "", goroutines: bool = False, **arguments: Unpack[OpenArguments]
) -> Account:
    """Account for the time of all threads: on CPU, waiting for one, blocked by cause.

    ``pytrace.why(command=["./program"])``, ``pytrace.why(pid=1234, duration=10)``.

    Args:
        least: seconds of the shortest waits that chains, critical path and timeline have (0.001; 0.0001 with requests);
            the account has all.
        request: what stands for a request, a ``call:`` probe: ``./server:handle``, ``python:app.handle``,
            ``usdt:./server:start,end``. :attr:`Account.requests` is about the time from its entry to its return.
        goroutines: account for goroutines in place of the threads that run them: *command* or the processes are
            programs of Go. Each turn of a goroutine costs the program three probes.
        arguments: those of :func:`pytrace.open`, of which one has to select processes; without *duration* until the
            command or the processes end.

    Raises:
        TypeError: *parameters* are given: the script is pytrace's own.
        TraceError: this process may not trace, nothing selects processes, or the command cannot be run.
    """
    return traced(lambda _: None, least=least, request=request, goroutines=goroutines, **arguments)[0]


def traced(
    begun: Callable[[Trace], object], *, least: float | None = None, request: str = "", goroutines: bool = False,
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
    arguments["parameters"] = parameters()
    target = _request_target(request)
    for pid in _pids(arguments):
        procfs.check_traceable(pid)
    # With the names that processes have now: they may have ended when the trace does.
    told, options = _target(arguments)
    if target and goroutines:
        raise TraceError("--request and --goroutines exclude each other", hints=("requests are of threads",))
    if goroutines:
        privileges.check()  # whoever may not trace need not hear of the program
    added = _goroutines(arguments) if goroutines else ""
    with _opened(target, added, arguments) as trace:
        trace.maps["@least"][None] = round(least * 1e9)
        trace.maps["@complete"][None] = True
        stolen = _stolen()
        begun(trace)
        if duration is None:
            while not trace.wait(LONGEST):
                pass
        else:
            trace.wait(duration)
        # Detaching takes milliseconds, which are no part of the account. Programs stop before the moment is read.
        trace.maps["@over"][None] = 1
        trace.maps["@over"][None] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        trace.stop()
        stolen = _stolen() - stolen
        alive = {number: kernel_files.process_name(number) for number in _numbers(trace)}
        snapshot = trace.snapshot()
    attached = arguments.get("command") is None
    reading = Reading(snapshot.data, told, options, attached=attached, alive=alive, limit=round(least * 1e9))
    account = reading.account()
    account.stolen = stolen
    if target:
        account.requests = requests(reading, target)
    return account, reading


def _stolen() -> int:
    """Nanoseconds since boot that the hypervisor has run others while a CPU of this machine had work (proc_stat(5))."""
    with open("/proc/stat", "rb") as file:
        fields = file.readline().split()
    return int(fields[8]) * (1_000_000_000 // os.sysconf("SC_CLK_TCK")) if len(fields) > 8 else 0


def _request_target(text: str) -> str:
    """The attach point of requests; empty without any."""
    if not text:
        return ""
    if any(character in text for character in " \t\n{};\"'") or "/*" in text:
        raise TraceError(f"--request {text}: this is no target", hints=(_TARGETS,))
    return text if text.startswith(("call:", "syscall:")) else f"call:{text}"


_TARGETS = "targets: ./server:handle, python:app.handle, usdt:./server:start,end (docs/reference/calls.md)"


def _opened(target: str, added: str, arguments: OpenArguments) -> Trace:
    """The running script; with a target of requests with what is *added* for them and for goroutines.

    Raises:
        TraceError: there is no such target.
    """
    if not target and not added:
        return open_trace(SCRIPT, **arguments)
    text = _script() + added
    if not target:
        return open_trace(text, **arguments)
    # Many short waits are of interest here.
    text = text.replace("let @wait = hash(65536);", "let @wait = hash(262144);")
    text += _read(_REQUEST).replace("TARGET /", f"{target} /")
    try:
        return open_trace(text, **arguments)
    except ScriptError as error:
        messages = "; ".join(item.message for item in error.diagnostics)
        raise TraceError(f"--request {target}: {messages}", hints=(_TARGETS,)) from None


def for_hosts() -> str:
    """The script for hosts of a fleet, where no command is started: without timeline, which has most of the entries."""
    text = _script().replace("comptime has_cpid", "comptime false")
    return text.replace("task.tgid == cpid", "false").replace("@least = (uint64)0;", "@least = (uint64)1 << 62;")


def parameters() -> dict[str, str | int]:
    """The parameters of the script."""
    return {
        "descriptors": causes.numbers(causes.DESCRIPTORS), "polls": causes.numbers(causes.POLLS),
        "futexes": causes.numbers("futex"), "yields": causes.numbers("sched_yield"),
    }  # fmt: skip


def _script() -> str:
    """The text of the script, which imports files wherever it is compiled."""
    return _read(SCRIPT).replace('import "../', f'import "{_PACKAGE}/')


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


_POINTS = re.compile(r'uprobe:BINARY:"AT:(runtime\.\w+)"')
_PROLOGUE = bytes.fromhex("493b6610")
"""``cmp rsp, [r14+16]``: whether the stack has to grow; a jump follows, which the kernel emulates."""


def _goroutines(arguments: OpenArguments) -> str:
    """What is added for goroutines of the programs that are traced.

    Raises:
        TraceError: one of them is no program of Go, or of a version that is not known.
    """
    programs = _programs(arguments)
    binaries = UserBinaries()
    text = _read(_GOROUTINES)
    links = {_link(binaries, path) for path in programs}
    if len(links) != 1:
        raise TraceError("--goroutines: the programs are of versions of Go that differ", hints=("trace one of them",))

    def points(line: re.Match[str]) -> str:
        names: list[str] = _POINTS.findall(line[0])
        found = [point for name in names for path in programs for point in _point(binaries, path, name)]
        return f"{', '.join(found)} {{"

    return re.sub(r"^uprobe:BINARY.* \{$", points, text, flags=re.MULTILINE).replace("LINK", str(links.pop()))


def _programs(arguments: OpenArguments) -> list[str]:
    command = command_text(arguments.get("command"))
    if command is not None:
        folder = os.fspath(arguments.get("cwd") or ".")
        name = words_of(command)[0]
        path = os.path.join(folder, name) if "/" in name else shutil.which(name) or name
        return [os.path.abspath(path)]
    pids = _pids(arguments)
    if not pids:
        raise TraceError("--goroutines needs a command (-c) or processes (-p)")
    programs: dict[tuple[int, int], str] = {}
    for number in pids:
        path = f"/proc/{number}/exe"
        try:
            file = os.stat(path)
        except OSError as error:
            message = f"--goroutines: the program of process {number} is not readable: {error.strerror}"
            raise TraceError(message) from None
        # By its name where that is the file, so that the compiled script serves other processes, too.
        name = os.readlink(path)
        named = os.path.exists(name) and os.path.samestat(os.stat(name), file)
        programs[file.st_dev, file.st_ino] = name if named else path
    return list(programs.values())


def _link(binaries: UserBinaries, path: str) -> int:
    """Offset of ``schedlink`` in ``runtime.g``: the word after the number.

    Raises:
        TraceError: the program is none of Go.
    """
    if not os.path.exists(path):
        raise TraceError(f"--goroutines: there is no program {path}")
    functions = {symbol.name: symbol for symbol in binaries.symbols(path, "runtime.*")}
    park = functions.get("runtime.gopark")
    offset = None if park is None else binaries.goid(path, park.offset)
    if offset is None or not functions.keys() >= {"runtime.execute", "runtime.runqput"}:
        hint = "name the program itself: -c './app' (not a shell or go run), or -p PID; of Go 1.17 to 1.27"
        raise TraceError(f"--goroutines: {path} is no program of Go that is known", hints=(hint,))
    return offset + 8


def _point(binaries: UserBinaries, path: str, name: str) -> list[str]:
    for symbol in binaries.symbols(path, name):
        with open(path, "rb") as file:
            file.seek(symbol.offset)
            after = "+4" if file.read(4) == _PROLOGUE else ""
        return [f'uprobe:{json.dumps(path)}:"{name}"{after}']
    return []


def _numbers(trace: Trace) -> list[int]:
    return [number for number in trace.maps["@thread"] if isinstance(number, int)]


def _target(arguments: OpenArguments) -> tuple[str, str]:
    """What is traced, for people, and options that select the same."""
    command = command_text(arguments.get("command"))
    if command is not None:
        words_of(command)  # wrong quoting is refused before anything is compiled
        return command, f"-c {shlex.quote(command)}"
    if pids := _pids(arguments):
        return ", ".join(f"{_name(number)} ({number})" for number in pids), " ".join(f"-p {number}" for number in pids)
    for name in ("comm", "cgroup", "container", "uid", "netns"):
        value: object = arguments.get(name)
        if value:
            values = [value] if isinstance(value, str | int) else list(value) if isinstance(value, Sequence) else []
            options = " ".join(f"--{name} {shlex.quote(str(item))}" for item in values)
            return f"{name} {', '.join(map(str, values))}", options
    return "all", ""


def _pids(arguments: OpenArguments) -> list[int]:
    pid = arguments.get("pid")
    return [*([] if pid is None else [pid]), *arguments.get("pids", ())]


def _name(pid: int) -> str:
    return kernel_files.process_name(pid) or "process"
