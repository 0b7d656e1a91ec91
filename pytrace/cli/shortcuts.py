"""``pytrace flame``, ``heatmap`` and ``top``: pictures and a live view in one command.

The words of a shortcut become those of a tool's command line, so all options of the tool and of pytrace are allowed.
"""

from __future__ import annotations

import glob
import os
import secrets
import stat
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine import fingerprints


class CommandParser(ArgumentParser):
    """The parser of ``pytrace NAME``: of shortcuts and subcommands. Errors have the form of the other commands."""

    def __init__(self, name: str, description: str, epilog: str, usage: str | None = None) -> None:
        super().__init__(
            prog=f"pytrace {name}", usage=usage, description=description, epilog=epilog,
            formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False,
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        """Raise the error *message*, with where to read about the command."""
        raise TraceError(f"{self.prog}: {message}", hints=(f"{self.prog} --help describes it",))


FREQUENCY = 99
"""Samples a second on each processor: off the beat of timers."""

_TOOLS = {
    "off_cpu": ("offcputime", "time off the processor, by the stack that waited"),
    "wakeup": ("offwaketime", "the same, with the stack of who woke it"),
    "alloc": ("mallocs", "bytes asked of malloc"),
}
"""Options, with the tool that each stands for."""
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


def _flame_parser() -> CommandParser:
    parser = CommandParser(
        "flame", "Write a flame graph of the whole machine, of a process or of a command.",
        "Without SECONDS it ends by Ctrl-C, or with the command. Options of the tool and of pytrace follow:\n"
        "-p PID, -c COMMAND, -U (only the process's stacks), -K (only the kernel's), --open (on the desktop),\n"
        "--python (functions of Python alone as the process's stack; not with --alloc and --faults).\n\n"
        "examples:\n  pytrace flame -p 1234 10\n  pytrace flame --off-cpu -c './program' -o waits.svg\n"
        "  pytrace flame -e t:block:block_rq_issue 5",
        usage="pytrace flame [options] [SECONDS]",
    )  # fmt: skip
    parser.add_argument("-F", "--frequency", metavar="HZ", help=f"samples a second on each processor ({FREQUENCY})")
    kinds = parser.add_mutually_exclusive_group()
    for key, (tool, help_) in _TOOLS.items():
        option = f"--{key.replace('_', '-')}"
        kinds.add_argument(option, action="store_const", const=tool, dest="tool", help=f"{help_} (pytrace {tool})")
    parser.add_argument(
        "--over-time",
        metavar="SECONDS",
        help="for so many seconds, with the time of samples: the report shows a chosen range",
    )
    kinds.add_argument("--faults", action="store_true", help="page faults")
    kinds.add_argument("-e", "--event", metavar="EVENT", help="a function or event (pytrace stackcount)")
    parser.add_argument("-o", "--output", metavar="FILE", help="a file of any format: x.html, x.svg …")
    return parser


def _flame(words: Sequence[str]) -> list[str]:
    known, rest = _flame_parser().parse_known_args(list(words))
    for key, value in _WHOLE_STACKS.items():
        os.environ.setdefault(key, value)
    if known.frequency is not None and (known.tool or known.event or known.faults):
        raise TraceError("pytrace flame: -F is for samples of the processor, and another kind was chosen")
    if known.over_time is not None and (known.tool or known.event or known.faults):
        raise TraceError("pytrace flame: --over-time is for samples of the processor, and another kind was chosen")
    if known.output is None and not any(word.startswith(("-f", "--format", "--folded")) for word in rest):
        known.output = _new_file("flame")
    # Before the words of the user: an option at their end that lacks its value must not take it.
    output = [] if known.output is None else ["-o", known.output]
    if known.event is not None:
        command = ["stackcount", *output, known.event, *_with_duration(rest, "-D")]
    elif known.faults:
        command = [*output, "-e", _FAULTS, *_with_duration(rest, "--duration")]
        # Tools do so by themselves: a command means its processes, not the machine.
        command += ["--follow"] if any(word.startswith(("-c", "--cmd")) for word in rest) else []
    elif known.tool == "mallocs":
        command = [known.tool, *output, *_with_duration(rest, "--duration")]
    elif known.tool is not None:
        command = [known.tool, *output, *rest]
    else:
        over_time = [] if known.over_time is None else ["--over-time", known.over_time]
        command = ["profile", *output, "-F", known.frequency or str(FREQUENCY), *over_time, *rest]
    return command


def _with_duration(words: Sequence[str], option: str) -> list[str]:
    """*words* with the operand SECONDS, if the last word is one, after an option in its place."""
    seconds = words[-1:]
    named = len(words) > 1 and words[-2].startswith("-")
    if seconds and seconds[0].replace(".", "", 1).isdecimal() and not named:
        return [*words[:-1], option, *seconds]
    return list(words)


# ---------------------------------------------------------------------------------------------- heatmap


def _heatmap_parser() -> CommandParser:
    parser = CommandParser(
        "heatmap", "Run a tool or script with histograms, and write them over time: heat maps of time and bucket.",
        "Each interval is a snapshot in a directory beside FILE, which pytrace show reads again.\n"
        "Options of the tool and of pytrace follow it; --open shows the report on the desktop.\n\n"
        "examples:\n  pytrace heatmap biolatency --duration 60\n"
        "  pytrace heatmap --every 0.5 -o reads.html fsdist -p 1234 30",
        usage="pytrace heatmap [--every SECONDS] [-o FILE] TOOL|SCRIPT|-e PROGRAM …",
    )  # fmt: skip
    parser.add_argument("--every", default="1", metavar="SECONDS", help="the interval (1)")
    parser.add_argument("-o", "--output", metavar="FILE", help="a report FILE.html, or a picture FILE.svg")
    return parser


def _heatmap(words: Sequence[str]) -> list[str]:
    known, rest = _heatmap_parser().parse_known_args(list(words))
    if not rest:
        raise TraceError("pytrace heatmap needs a tool, a script or -e PROGRAM", hints=("pytrace heatmap --help",))
    path = known.output or _new_file("heatmap")
    if not path.lower().endswith((".html", ".htm", ".svg")):
        raise TraceError(f"pytrace heatmap writes a report, FILE.html, or a picture, FILE.svg, not {path!r}")
    folder = f"{os.path.splitext(path)[0]}.snapshots"
    # Before the options of the user: one at their end that lacks its value must not take it.
    program = [] if rest[0].startswith("-") else rest[:1]
    return [*program, "--save-every", known.every, folder, "-o", path, *rest[len(program) :]]


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
             "profile:hz:99 / pid != 0 / { @cpu[pid, comm] = count(); }\n")),
    )),
    _Panel("system calls", (
        (("raw_syscalls:sys_enter",), ("// Who makes which system calls?\n"
         "tracepoint:raw_syscalls:sys_enter { $call = syscall_name(args.id); @calls[pid, comm, $call] = count(); }\n")),
    )),
    _Panel("files", (
        (("syscalls:sys_enter_openat",), ("// Who opens which files?\n"
         "tracepoint:syscalls:sys_enter_openat { @files[pid, comm, str(args.filename)] = count(); }\n")),
    )),
    _Panel("block I/O", (
        (("block:block_rq_issue",), ("// Who reads from and writes to disks?\n"
         "tracepoint:block:block_rq_issue { @disk_bytes[pid, comm] = sum(args.bytes); }\n")),
    )),
    _Panel("TCP", (
        (("sock:sock_send_length", "sock:sock_recv_length"), ("// Who sends and receives by TCP?\n"
         'tracepoint:sock:sock_send_length / args.protocol == 6 && args.ret > 0 / '
         '{ $direction = "sent"; @tcp_bytes[pid, comm, $direction] = sum(args.ret); }\n'
         'tracepoint:sock:sock_recv_length / args.protocol == 6 && args.ret > 0 / '
         '{ $direction = "received"; @tcp_bytes[pid, comm, $direction] = sum(args.ret); }\n')),
        (("sock:inet_sock_set_state",), ("// Who opens TCP connections, to which port?\n"
         "tracepoint:sock:inet_sock_set_state / args.protocol == 6 && args.newstate == 1 / "
         "{ @tcp[pid, comm, args.dport] = count(); }\n")),
    )),
)  # fmt: skip


def top_script(has: Callable[[str], bool]) -> tuple[str, list[str]]:
    """The script, and the subjects that this kernel has no tracepoints for; *has* says whether it has one."""
    parts, missing = [_HEAD], []
    for panel in _PANELS:
        answer = next((text for events, text in panel.answers if all(map(has, events))), None)
        if answer is None:
            missing.append(panel.subject)
        else:
            name = answer.partition("@")[2].partition("[")[0]
            parts.append(f"let @{name} = percpulruhash({_KEYS});\n{answer}")
    return "".join(parts), missing


def _top_parser() -> CommandParser:
    return CommandParser(
        "top", "Show what is busy now in a live view: processes, system calls, files, block I/O and TCP.",
        "Enter shows the process of a row: threads, files, sockets, system calls, a flame graph; ? lists the keys. At\n"
        "the end a summary stays: the first rows of each panel. Options of pytrace follow:\n"
        "-p PID, -c COMMAND, --comm NAME, --container ID, --duration SECONDS.\n\n"
        "examples:\n  pytrace top\n  pytrace top -p 1234",
        usage="pytrace top [options of pytrace]",
    )  # fmt: skip


def _top(words: Sequence[str]) -> list[str]:
    """The command line of ``pytrace top``; reports what this kernel lacks.

    Raises:
        TraceError: there is something other than options, or tracefs cannot be read.
        SystemExit: after ``--help``.
    """
    _, rest = _top_parser().parse_known_args(list(words))
    if rest and not rest[0].startswith("-"):
        raise TraceError(f"pytrace top takes options only, not {rest[0]!r}", hints=("pytrace top --help",))
    if not (os.isatty(0) and os.isatty(1)):
        hints = ("pytrace profile, syscount and opensnoop print to files and pipes",)
        raise TraceError("pytrace top needs a terminal for its input and its output", hints=hints)
    root = fingerprints.tracefs_root()
    text, missing = top_script(lambda event: os.path.exists(f"{root}/events/{event.replace(':', '/')}/format"))
    if missing:
        sys.stderr.write(f"Not shown, as this kernel has no tracepoints for it: {', '.join(missing)}\n")
    return ["--live", *(() if "--self" in rest else ("--no-self",)), "-e", text, *rest]


_EXPANSIONS = {"flame": _flame, "heatmap": _heatmap, "top": _top}
"""The function of each shortcut of :data:`pytrace.cli.options.SHORTCUTS`."""
