"""``pytrace why``: where the time of a command's or a process's threads went."""

from __future__ import annotations

import sys
import warnings
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence

from pytrace.account import account as accounts
from pytrace.account.account import Account
from pytrace.account.screen import screen
from pytrace.base import terminal, whole_files
from pytrace.base.control_characters import printable_lines
from pytrace.base.interruption import interruptions
from pytrace.cli.shortcuts import CommandParser
from pytrace.core.diagnostics import TraceError
from pytrace.interface import why
from pytrace.interface.compiled import Arguments
from pytrace.interface.snapshots import Snapshot
from pytrace.interface.tracing import Trace

_FORMATS = ("text", "json")


def parser() -> CommandParser:
    """The parser of ``pytrace why``."""
    made = CommandParser(
        "why", "Tell where the time of all threads went: on CPU, waiting for a CPU, blocked and by what.",
        "examples:\n  pytrace why -c './program --option'\n  pytrace why -p 1234 --for 10\n"
        "  pytrace why --cgroup /system.slice/app.service --for 10 -f json",
        usage="pytrace why -c COMMAND|-p PID|--comm NAME|--cgroup PATH|--container ID [options]",
    )  # fmt: skip
    made.add_argument("-c", "--cmd", metavar="COMMAND", help="run this, and account for it and all that it starts")
    made.add_argument("-p", "--pid", type=_pid, action="append", metavar="PID", help="this process (or several)")
    made.add_argument("--comm", action="append", metavar="NAME", help="threads of this name")
    made.add_argument("--cgroup", action="append", metavar="PATH", help="processes in this cgroup and below")
    made.add_argument("--container", action="append", metavar="ID", help="processes of this container")
    made.add_argument("-u", "--uid", action="append", metavar="USER", help="processes of this user")
    made.add_argument("--follow", action="store_true", help="with -p: what the process starts, too (always with -c)")
    made.add_argument("--for", type=_seconds, dest="duration", metavar="SECONDS",
                      help="end after so many seconds; without it with the command or process")  # fmt: skip
    made.add_argument("--all", action="store_true", help="all causes, and each thread that waits for work")
    made.add_argument("-f", "--format", choices=_FORMATS, default="text", help=", ".join(_FORMATS))
    made.add_argument("-o", "--output", metavar="FILE", help="write to FILE, whole or not at all")
    made.add_argument("--html", metavar="FILE", help="write a report, too: flame graphs of all time by cause")
    made.add_argument("--save", metavar="FILE", help="write a snapshot by stack, which pytrace diff compares")
    return made


def run(words: Sequence[str]) -> int:
    """Run ``pytrace why`` with the *words* after it. Returns the exit status.

    Raises:
        TraceError: an option is invalid, or nothing can be traced.
    """
    if not words:
        sys.stderr.write(parser().format_help())
        return 1
    options = parser().parse_args(list(words))
    arguments = _arguments(options)
    terminal.show_on(2)
    running: list[Trace] = []

    def end() -> None:
        if not running:
            raise KeyboardInterrupt
        running[0].request_end()

    # Ctrl-C ends the trace, and the account of what was seen is printed.
    with interruptions(end), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, snapshot = why.traced(running.append, duration=options.duration, **arguments)
    for text in dict.fromkeys(str(item.message) for item in told if not issubclass(item.category, ResourceWarning)):
        sys.stderr.write(f"WARNING: {text}\n")
    _write(found, snapshot, options)
    return 0


def _arguments(options: Namespace) -> Arguments:
    arguments = Arguments()
    if options.cmd is not None and options.pid:
        raise TraceError("pytrace why: -c and -p exclude each other")
    if options.cmd is not None:
        arguments["command"] = options.cmd
    if options.pid:
        arguments["pids"] = options.pid
    if options.follow:
        arguments["follow"] = True
    if options.comm:
        arguments["comm"] = options.comm
    if options.cgroup:
        arguments["cgroup"] = options.cgroup
    if options.container:
        arguments["container"] = options.container
    if options.uid:
        arguments["uid"] = options.uid
    return arguments


def _write(found: Account, snapshot: Snapshot, options: Namespace) -> None:
    if options.save is not None:
        snapshot.save(options.save)
    if options.html is not None:
        _write_file(options.html, snapshot.format("html"))
    if options.format == "json":
        data = accounts.json_text(found)
    else:
        data = "".join(f"{line}\n" for line in screen(found, everything=options.all)).encode("utf-8", "surrogateescape")
    if options.output in (None, "-"):
        sys.stdout.flush()
        sys.stdout.buffer.write(printable_lines(data))
        sys.stdout.buffer.flush()
        return
    _write_file(options.output, data)


def _write_file(path: str, data: bytes) -> None:
    try:
        whole_files.write(path, data)
    except OSError as error:
        raise TraceError(f"cannot write {path!r}: {error.strerror}") from error


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 22):
        raise ArgumentTypeError(f"{text!r} is no process id")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"{text!r} is no number of seconds")
    return value
