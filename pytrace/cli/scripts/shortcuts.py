"""``pytrace flame``: a flame graph by one of the tools that count stacks, written to a file.

The words of a shortcut become the command line of that tool, so all options of the tool and of pytrace are allowed.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import NoReturn

from pytrace.core.diagnostics import TraceError

FREQUENCY = 99
"""Samples a second on each processor: off the beat of timers."""

_TOOLS = {
    "off_cpu": ("offcputime", "time off the processor, by the stack that waited"),
    "wakeup": ("offwaketime", "the same, with the stack of who woke it"),
    "alloc": ("mallocs", "bytes asked of malloc"),
}
"""Options, with the tool that each stands for."""
_FAULTS = "software:page-faults:1 { @faults[comm, kstack, ustack] = count(); }"


class _Parser(ArgumentParser):
    """Reports errors in the form of the other commands."""

    def error(self, message: str) -> NoReturn:
        raise TraceError(f"{self.prog}: {message}", hints=(f"{self.prog} --help describes it",))


def _parser() -> _Parser:
    parser = _Parser(
        prog="pytrace flame", usage="pytrace flame [options] [SECONDS]", allow_abbrev=False,
        description="Write a flame graph of the whole machine, of a process or of a command.",
        epilog="Without SECONDS it ends by Ctrl-C, or with the command. Options of the tool and of pytrace follow:\n"
        "-p PID, -c COMMAND, -U (only the process's stacks), -K (only the kernel's).\n\n"
        "examples:\n  pytrace flame -p 1234 10\n  pytrace flame --off-cpu -c './program' -o waits.svg\n"
        "  pytrace flame -e t:block:block_rq_issue 5",
        formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-F", "--frequency", metavar="HZ", help=f"samples a second on each processor ({FREQUENCY})")
    kinds = parser.add_mutually_exclusive_group()
    for key, (tool, help_) in _TOOLS.items():
        option = f"--{key.replace('_', '-')}"
        kinds.add_argument(option, action="store_const", const=tool, dest="tool", help=f"{help_} (pytrace {tool})")
    kinds.add_argument("--faults", action="store_true", help="page faults")
    kinds.add_argument("-e", "--event", metavar="EVENT", help="a function or event (pytrace stackcount)")
    parser.add_argument("-o", "--output", metavar="FILE", help="a file of any format: x.html, x.svg …")
    return parser


def expand(words: Sequence[str]) -> list[str]:
    """The command line that ``pytrace flame`` stands for; *words* are those after ``flame``.

    Raises:
        TraceError: an option is invalid.
        SystemExit: after ``--help``.
    """
    known, rest = _parser().parse_known_args(list(words))
    if known.frequency is not None and (known.tool or known.event or known.faults):
        raise TraceError("pytrace flame: -F is for samples of the processor, and another kind was chosen")
    if known.event is not None:
        command = ["stackcount", known.event, *_with_duration(rest, "-D")]
    elif known.faults:
        command = ["-e", _FAULTS, *_with_duration(rest, "--duration")]
    elif known.tool == "mallocs":
        command = [known.tool, *_with_duration(rest, "--duration")]
    elif known.tool is not None:
        command = [known.tool, *rest]
    else:
        command = ["profile", "-F", known.frequency or str(FREQUENCY), *rest]
    if known.output is None and not {"-f", "--format", "--folded"} & set(rest):
        known.output = time.strftime("flame-%Y%m%d-%H%M%S.html")
        sys.stderr.write(f"The flame graph will be in {known.output}\n")
    return command if known.output is None else [*command, "-o", known.output]


def _with_duration(words: Sequence[str], option: str) -> list[str]:
    """*words* with the operand SECONDS, if the last word is one, after an option in its place."""
    seconds = words[-1:]
    named = len(words) > 1 and words[-2].startswith("-")
    if seconds and seconds[0].replace(".", "", 1).isdecimal() and not named:
        return [*words[:-1], option, *seconds]
    return list(words)
