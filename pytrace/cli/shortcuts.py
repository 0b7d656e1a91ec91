"""``pytrace flame``, ``heatmap`` and ``top``: pictures and a live view in one command.

The words of a shortcut become those of a tool's command line, so all options of the tool and of pytrace are allowed.
"""

from __future__ import annotations

import glob
import os
import secrets
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from pytrace.cli.commands import COMMANDS
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine import fingerprints

_FREQUENCY = 99
"""Samples a second on each processor: off the beat of timers."""

_KINDS = ("offcputime", "offwaketime", "mallocs", "faults", "event")
"""Options that exclude each other; the first three are named after their tools."""
_FAULTS = """/*
 * faults: who causes page faults
 */
config = { max_map_keys = 16384 }
software:page-faults:1 { @faults[comm, kstack, ustack] = count(); }"""
_WHOLE_STACKS = {"PYTRACE_STACK_UNWINDING": "auto", "PYTRACE_PYTHON_FRAMES": "true"}
"""Config keys by which user stacks are whole in programs without frame pointers, too, as most packages, and show
the functions of Python."""


def expand(words: Sequence[str]) -> list[str]:
    """The command line that *words* stand for; the first is the name of the shortcut.

    Raises:
        TraceError: an option is invalid.
        SystemExit: after ``--help``.
    """
    return _EXPANSIONS[words[0]](words[1:])


def _new_file(name: str) -> str:
    """A name for a file that nobody named, reported when it is written; there is no such file, nor its snapshots.

    In a directory where others can make files (``/tmp``) nobody can know the name before.
    """
    stem = time.strftime(f"{name}-%Y%m%d-%H%M%S")
    if os.stat(".").st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        stem += f"-{secrets.token_hex(4)}"
    stems = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    free = next(item for item in stems if not glob.glob(f"{glob.escape(item)}.*"))
    return f"{free}.html"


# ---------------------------------------------------------------------------------------------- flame


def _flame(words: Sequence[str]) -> list[str]:
    line, rest = COMMANDS["flame"].read_own(words)
    for key, value in _WHOLE_STACKS.items():
        os.environ.setdefault(key, value)
    kinds = [key for key in _KINDS if key in line.values]
    if len(kinds) > 1:
        first, second = (line.table.by_key[key].spelling for key in kinds[:2])
        raise TraceError(f"pytrace flame: {first} and {second} exclude each other")
    kind = kinds[0] if kinds else ""
    for option, key in (("-F", "frequency"), ("--over-time", "over_time")):
        if kind and key in line.values:
            raise TraceError(f"pytrace flame: {option} is for samples of the processor, and another kind was chosen")
    file = line.text("output")
    if file is None and not any(word.startswith(("-f", "--format", "--folded")) for word in rest):
        file = _new_file("flame")
    # Before the words of the user: an option at their end that lacks its value must not take it.
    output = [] if file is None else ["-o", file]
    event, over_time = line.text("event"), line.text("over_time")
    if event is not None:
        command = ["stackcount", *output, event, *_with_duration(rest, "-D")]
    elif kind == "faults":
        command = [*output, "-e", _FAULTS, *_with_duration(rest, "--duration")]
        # Tools do so by themselves: a command means its processes, not the machine.
        command += ["--follow"] if any(word.startswith(("-c", "--cmd")) for word in rest) else []
    elif kind == "mallocs":
        command = [kind, *output, *_go_program(rest), *_with_duration(rest, "--duration")]
    elif kind:
        command = [kind, *output, *rest]
    else:
        sampling = ["-F", line.text("frequency") or str(_FREQUENCY)]
        sampling += [] if over_time is None else ["--over-time", over_time]
        command = ["profile", *output, *sampling, *rest]
    return command


def _go_program(words: Sequence[str]) -> list[str]:
    """The option of mallocs for a program of Go, which has an allocator of its own; none for others and with ``-O``."""
    values: dict[str, str] = {}
    for word, after in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in ("-c", "--cmd", "-p", "--pid", "-O", "--obj"):
            values[name.lstrip("-")[0]] = value if equals else after
        elif word.startswith("-O"):
            values["O"] = word
    if "O" in values or "o" in values:
        return []
    try:
        command = shlex.split(values.get("c", ""))
    except ValueError:
        return []  # the command is refused later
    path = shutil.which(command[0]) if command else None
    if path is None and values.get("p", "").isdecimal():
        path = f"/proc/{values['p']}/exe"
    if path is None:
        return []
    from pytrace.runtime.binaries import go_binaries  # of this kind of picture alone

    try:
        return ["-O", path] if go_binaries.is_program(path) else []
    except (OSError, TraceError):
        return []


def _with_duration(words: Sequence[str], option: str) -> list[str]:
    """*words* with the operand SECONDS, if the last word is one, after an option in its place."""
    seconds = words[-1:]
    named = len(words) > 1 and words[-2].startswith("-")
    if seconds and seconds[0].replace(".", "", 1).isdecimal() and not named:
        return [*words[:-1], option, *seconds]
    return list(words)


# ---------------------------------------------------------------------------------------------- heatmap


def _heatmap(words: Sequence[str]) -> list[str]:
    line, rest = COMMANDS["heatmap"].read_own(words)
    if not rest:
        raise TraceError("pytrace heatmap needs a tool, a script or -e PROGRAM", hints=("pytrace heatmap --help",))
    path = line.text("output") or _new_file("heatmap")
    if not path.lower().endswith((".html", ".htm", ".svg")):
        raise TraceError(f"pytrace heatmap writes a report, FILE.html, or a picture, FILE.svg, not {path!r}")
    folder = f"{os.path.splitext(path)[0]}.snapshots"
    # Before the options of the user: one at their end that lacks its value must not take it.
    program = [] if rest[0].startswith("-") else rest[:1]
    return [*program, "--save-every", line.text("every") or "1", folder, "-o", path, *rest[len(program) :]]


# ---------------------------------------------------------------------------------------------- top


_HEAD = "// What is busy now?\nconfig = { print_maps_on_exit = 0 }\n"
"""The title; the view shows the maps, and its summary the first rows of each."""
_KEYS = 4096
"""Entries of each map. The kernel evicts those that were not updated for longest: what is busy stays."""


class _Panel(msgspec.Struct, frozen=True):
    """A panel of the view: the ways to fill it, the best first, each with the tracepoints that it takes."""

    subject: str
    answers: tuple[tuple[tuple[str, ...], str], ...]


_PANELS = (
    _Panel("processes", (
        ((), ("// Which processes use the CPUs?\n"
             "profile:hz:99 / pid != 0 / { @cpu[pid, leader_comm] = count(); }\n")),
    )),
    _Panel("system calls", (
        (("raw_syscalls:sys_enter",), ("// Who makes which system calls?\n"
         "tracepoint:raw_syscalls:sys_enter "
         "{ $call = syscall_name(args.id); @calls[pid, leader_comm, $call] = count(); }\n")),
    )),
    _Panel("files", (
        # Read at the call's return, when the kernel has read the path: its memory is there.
        (("syscalls:sys_enter_openat", "syscalls:sys_exit_openat"), ("// Who opens which files?\n"
         "syscall:openat { $filename = str(args.filename); @files[pid, leader_comm, $filename] = count(); }\n")),
    )),
    _Panel("block I/O", (
        (("block:block_rq_issue",), ("// Who reads from and writes to disks?\n"
         "tracepoint:block:block_rq_issue { @disk_bytes[pid, leader_comm] = sum(args.bytes); }\n")),
    )),
    _Panel("TCP", (
        (("sock:sock_send_length", "sock:sock_recv_length"), ("// Who sends and receives by TCP?\n"
         'tracepoint:sock:sock_send_length / args.protocol == 6 && args.ret > 0 / '
         '{ $direction = "sent"; @tcp_bytes[pid, leader_comm, $direction] = sum(args.ret); }\n'
         'tracepoint:sock:sock_recv_length / args.protocol == 6 && args.ret > 0 / '
         '{ $direction = "received"; @tcp_bytes[pid, leader_comm, $direction] = sum(args.ret); }\n')),
        (("sock:inet_sock_set_state",), ("// Who opens TCP connections, to which port?\n"
         "tracepoint:sock:inet_sock_set_state / args.protocol == 6 && args.newstate == 1 / "
         "{ @tcp[pid, leader_comm, args.dport] = count(); }\n")),
    )),
)  # fmt: skip


def top_script(has: Callable[[str], bool], *, typed: bool = True) -> tuple[str, list[str]]:
    """The script, and the subjects that this kernel has no tracepoints for; *has* says whether it has one, *typed*
    whether it describes its types.
    """
    parts, missing = [_HEAD], []
    for panel in _PANELS:
        answer = next((text for events, text in panel.answers if all(map(has, events))), None)
        if answer is None:
            missing.append(panel.subject)
        else:
            name = answer.partition("@")[2].partition("[")[0]
            parts.append(f"let @{name} = percpulruhash({_KEYS});\n{answer}")
    text = "".join(parts)
    # A process is one row, whatever its threads call themselves; without type information their names have to do.
    return (text if typed else text.replace("leader_comm", "comm")), missing


def _top(words: Sequence[str]) -> list[str]:
    """The command line of ``pytrace top``; reports what this kernel lacks.

    Raises:
        TraceError: there is something other than options, or tracefs cannot be read.
        SystemExit: after ``--help``.
    """
    _, rest = COMMANDS["top"].read_own(words)
    if rest and not rest[0].startswith("-"):
        raise TraceError(f"pytrace top takes options only, not {rest[0]!r}", hints=("pytrace top --help",))
    if not (os.isatty(0) and os.isatty(1)):
        hints = ("pytrace profile, syscount and opensnoop print to files and pipes",)
        raise TraceError("pytrace top needs a terminal for its input and its output", hints=hints)
    from pytrace.runtime.load import features  # after all that may be refused

    events = f"{fingerprints.tracefs_root()}/events"
    text, missing = top_script(
        lambda event: os.path.exists(f"{events}/{event.replace(':', '/')}/format"), typed=features.has("btf")
    )
    if missing:
        sys.stderr.write(f"Not shown, as this kernel has no tracepoints for it: {', '.join(missing)}\n")
    # What it traces is known to be cheap, and the user has asked for it: there is no question before it.
    own = [word for word, without in (("--no-self", "--self"), ("--yes", "--yes")) if without not in rest]
    return ["--live", *own, "-e", text, *rest]


_EXPANSIONS = {"flame": _flame, "heatmap": _heatmap, "top": _top}
"""The function of each shortcut of :data:`pytrace.cli.options.SHORTCUTS`."""
