"""Options that select processes, and ``--duration``."""

from __future__ import annotations

from pytrace.cli.options import CommandLine
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.process_filters import COMM, MOST_PIDS, ProcessFilters

PID_MAX = 0x400000
"""PID_MAX_LIMIT of 64-bit kernels (``include/linux/threads.h``)."""

_BY_NAME = ("comm", "uid", "cgroup", "container", "netns", "exec_wait")


def filters(line: CommandLine) -> ProcessFilters:
    """The process filters of the command line; names are resolved.

    Raises:
        TraceError: a value is invalid or names something that does not exist, or two options exclude each other.
    """
    pids = _pids(line)
    _check_together(line, bool(pids))
    if not any(key in line.values for key in _BY_NAME):
        return ProcessFilters(pids)
    from pytrace.runtime.machine import selected_processes as selected  # most runs select nothing by name

    awaited = line.text("exec_wait")
    netns = line.text("netns")
    return ProcessFilters(
        pids,
        selected.uids(line.many("uid")),
        selected.comms(line.many("comm")),
        selected.cgroups(line.many("cgroup"), line.many("container")),
        () if netns is None else (selected.namespace(netns),),
        "" if awaited is None else _program(awaited),
    )


def _pids(line: CommandLine) -> tuple[int, ...]:
    words = [word for text in line.many("pid") for word in text.split(",")]
    pids = tuple(dict.fromkeys(pid(word.strip(), "-p") for word in words))
    if len(pids) > MOST_PIDS:
        raise TraceError(f"-p takes {MOST_PIDS} processes at most, not {len(pids)}")
    return pids


def _check_together(line: CommandLine, pids: bool) -> None:
    command, awaited = line.text("command"), line.text("exec_wait")
    if command is not None and pids:
        raise TraceError("-c and -p cannot be used together", hints=("-p traces a running process, -c starts one",))
    if awaited is not None and pids:
        raise TraceError(
            "--exec-wait and -p cannot be used together",
            hints=("--exec-wait traces the next process that executes the program",),
        )
    if line.flag("follow") and command is None and not pids and awaited is None:
        raise TraceError("--follow needs -p or -c")
    if line.flag("exit_status") and command is None:
        raise TraceError("--exit-status needs -c", hints=("it hands on the status of the command",))


def _program(name: str) -> str:
    """The comm of a process after it executed the program *name*: at most 15 bytes of its base name."""
    last = name.rstrip("/").rpartition("/")[2]
    if not last:
        raise TraceError(f"--exec-wait needs the name of a program, not {name!r}")
    return last.encode("utf-8", "surrogateescape")[: COMM - 1].decode("utf-8", "surrogateescape")


def pid(text: str, option: str) -> int:
    """The process id *text*, an argument of *option*.

    Raises:
        TraceError: it is not a process id.
    """
    if not text.isascii() or not text.isdigit():
        raise TraceError(f"{option} needs a process id, not {text!r}")
    value = int(text)
    if not 0 < value <= PID_MAX:
        raise TraceError(f"process id {value} is out of range (1 to {PID_MAX})")
    return value


def duration(line: CommandLine) -> float | None:
    """The seconds of ``--duration``.

    Raises:
        TraceError: it is not a valid time.
    """
    text = line.text("duration")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise TraceError(f"--duration needs a number of seconds, not {text!r}", hints=("for example --duration 2.5",))
    return seconds
