"""``pytrace top``: the questions that are asked most, in one live view. The script is made of what this kernel has."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import msgspec

from pytrace.cli.scripts.command_parser import CommandParser
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine import tracefs

_HEAD = "// top\nconfig = { print_maps_on_exit = 0 }\n"
"""The title; the view shows the maps; nobody reads thousands of lines after it."""
_KEYS = 4096
"""Entries of each map. The kernel evicts those that were not updated for longest: what is busy stays."""


class Question(msgspec.Struct, frozen=True):
    """One panel: the ways to fill it, the best first, each with the tracepoints that it takes."""

    subject: str
    answers: tuple[tuple[tuple[str, ...], str], ...]


QUESTIONS = (
    Question("processes", (
        ((), ("// samples of the processor, 99 a second on each\n"
             "profile:hz:99 / pid != 0 / { @cpu[pid, comm] = count(); }\n")),
    )),
    Question("system calls", (
        (("raw_syscalls:sys_enter",), ("// system calls\n"
         "tracepoint:raw_syscalls:sys_enter { @calls[comm, syscall_name(args.id)] = count(); }\n")),
    )),
    Question("files", (
        (("syscalls:sys_enter_openat",), ("// files that are opened\n"
         "tracepoint:syscalls:sys_enter_openat { @files[comm, str(args.filename)] = count(); }\n")),
    )),
    Question("block I/O", (
        (("block:block_rq_issue",), ("// bytes read from and written to disks, by who sends the request\n"
         "tracepoint:block:block_rq_issue { @disk[pid, comm] = sum(args.bytes); }\n")),
    )),
    Question("TCP", (
        (("sock:sock_send_length", "sock:sock_recv_length"), ("// bytes sent and received by TCP\n"
         'tracepoint:sock:sock_send_length / args.protocol == 6 && args.ret > 0 / '
         '{ @tcp[pid, comm, "sent"] = sum(args.ret); }\n'
         'tracepoint:sock:sock_recv_length / args.protocol == 6 && args.ret > 0 / '
         '{ @tcp[pid, comm, "received"] = sum(args.ret); }\n')),
        (("sock:inet_sock_set_state",), ("// TCP connections that were opened, by what is known of who opens them\n"
         "tracepoint:sock:inet_sock_set_state / args.protocol == 6 && args.newstate == 1 / "
         "{ @tcp[comm, args.dport] = count(); }\n")),
    )),
)  # fmt: skip


def script(has: Callable[[str], bool]) -> tuple[str, list[str]]:
    """The script, and the subjects that this kernel has no tracepoints for; *has* says whether it has one."""
    parts, missing = [_HEAD], []
    for question in QUESTIONS:
        found = next((text for events, text in question.answers if all(map(has, events))), None)
        if found is None:
            missing.append(question.subject)
        else:
            name = found.partition("@")[2].partition("[")[0]
            parts.append(f"let @{name} = percpulruhash({_KEYS});\n{found}")
    return "".join(parts), missing


def _parser() -> CommandParser:
    return CommandParser(
        "top", "Show processes by samples of the processor, system calls, files, block I/O and TCP in a live view.",
        "Arrow keys choose a panel, enter gives it the whole screen, ? lists the keys. Options of pytrace follow:\n"
        "-p PID, -c COMMAND, --comm NAME, --container ID, --duration SECONDS.\n\n"
        "examples:\n  pytrace top\n  pytrace top -p 1234",
        usage="pytrace top [options of pytrace]",
    )  # fmt: skip


def expand(words: Sequence[str]) -> list[str]:
    """The command line of ``pytrace top``; what this kernel lacks is told.

    Raises:
        TraceError: there is something other than options, or tracefs cannot be read.
        SystemExit: after ``--help``.
    """
    _, rest = _parser().parse_known_args(list(words))
    if rest and not rest[0].startswith("-"):
        raise TraceError(f"pytrace top takes options only, not {rest[0]!r}", hints=("pytrace top --help",))
    root = tracefs.root()
    text, missing = script(lambda event: os.path.exists(f"{root}/events/{event.replace(':', '/')}/format"))
    if missing:
        sys.stderr.write(f"Not shown, as this kernel has no tracepoints for it: {', '.join(missing)}\n")
    return ["--live", *(() if "--self" in rest else ("--no-self",)), "-e", text, *rest]
