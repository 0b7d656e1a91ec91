"""``pytrace calls``: the options of the command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from pytrace.cli.shortcuts import CommandParser
from pytrace.core.diagnostics import TraceError

FORMATS = ("text", "json")


def parser() -> CommandParser:
    """The parser of the options."""
    made = CommandParser(
        "calls", "Print the system calls of processes, with arguments, results and durations, without stopping them.",
        "A TARGET is a pattern of names: 'syscall:open*' (all system calls without one).\n\n"
        "examples:\n  pytrace calls -p 1234\n  pytrace calls -c 'ls /'\n  pytrace calls -p 1234 'syscall:open*' "
        "--failed\n  pytrace calls -p 1234 --slow 10ms\n  pytrace calls -c 'make' --follow --summary",
        usage="pytrace calls [options] -p PID | -c COMMAND [TARGET ...]",
    )  # fmt: skip
    made.add_argument("targets", nargs="*", metavar="TARGET", help="the calls: 'syscall:open*', 'syscall:*' (all)")
    made.add_argument("-p", "--pid", metavar="PID[,PID]", help="trace these processes, exit when they have exited")
    made.add_argument("-c", "--cmd", metavar="COMMAND", help="run COMMAND and trace it, exit when it exits")
    made.add_argument("--follow", action="store_true", help="also trace child processes")
    made.add_argument("--failed", action="store_true", help="only calls that failed")
    made.add_argument("--slow", metavar="TIME", help="only calls that took so long: 10ms, 250us, 1.5s")
    made.add_argument("--summary", action="store_true", help="a table at the end: time, calls, errors, p99 by call")
    made.add_argument("-s", "--string-size", metavar="N", default="32", help="show N bytes of strings and buffers (32)")
    made.add_argument("-t", "--time", action="store_true", help="begin lines with the time of the day")
    made.add_argument("-r", "--relative", action="store_true", help="begin lines with the seconds since the first one")
    made.add_argument("--no-names", action="store_true", help="file descriptors as numbers alone")
    made.add_argument("-f", "--format", metavar="FORMAT", choices=FORMATS, default="text", help="text or json")
    made.add_argument("-o", "--output", metavar="FILE", help="write to FILE, whole or not at all")
    made.add_argument("--duration", metavar="SECONDS", help="end the run after SECONDS")
    return made


def run(words: Sequence[str]) -> int:
    """Run ``pytrace calls`` with the *words* after it. Returns the exit status.

    Raises:
        TraceError: an option is invalid, or a process or call does not exist.
    """
    made = parser()
    if not words:
        sys.stderr.write(made.format_help())
        return 1
    arguments = made.parse_intermixed_args(list(words))
    from pytrace.calls.run import Options, read_duration, run_calls  # with it the Python interface and the runtime

    try:
        slow = 0 if arguments.slow is None else read_duration(arguments.slow)
    except ValueError:
        raise TraceError(f"--slow takes a time such as 10ms, not {arguments.slow!r}") from None
    if arguments.pid is not None and arguments.cmd is not None:
        raise TraceError("pytrace calls takes -p or -c, not both")
    options = Options(
        targets=tuple(arguments.targets) or ("syscall:*",),
        pids=() if arguments.pid is None else tuple(_number("-p", part) for part in arguments.pid.split(",")),
        command=() if arguments.cmd is None else _command(arguments.cmd),
        follow=arguments.follow, failed=arguments.failed, slow=slow, summary=arguments.summary,
        longest=min(_number("-s", arguments.string_size), 65536),
        stamp="time" if arguments.time else "relative" if arguments.relative else "",
        names=not arguments.no_names, format=arguments.format, output=arguments.output,
        duration=None if arguments.duration is None else _seconds(arguments.duration),
    )  # fmt: skip
    return run_calls(options)


def _number(option: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise TraceError(f"{option} takes a number, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise TraceError(f"--duration takes a number of seconds, not {text!r}")
    return value


def _command(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise TraceError(f"-c {text!r}: {error}") from None
    if not words:
        raise TraceError("-c needs a command")
    return words
