"""``pytrace why``: where the time of a command's or a process's threads went."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from pytrace.account import account as accounts
from pytrace.account.account import Account
from pytrace.account.page import page
from pytrace.account.reading import Reading, stacks
from pytrace.account.screen import screen
from pytrace.base import terminal
from pytrace.base.interruption import interruptions
from pytrace.cli import messages
from pytrace.cli.commands import COMMANDS
from pytrace.cli.options import CommandLine
from pytrace.core.diagnostics import TraceError
from pytrace.interface import why
from pytrace.interface.compiled import Arguments
from pytrace.interface.errors import LossWarning
from pytrace.interface.snapshots import Snapshot
from pytrace.interface.tracing import Trace


def run(words: Sequence[str]) -> int:
    """Run ``pytrace why`` with the *words* after it. Returns the exit status.

    Raises:
        TraceError: an option is invalid, or nothing can be traced.
    """
    if not words:
        sys.stderr.write(COMMANDS["why"].help_text())
        return 1
    line = COMMANDS["why"].read(words)
    arguments, format_ = _arguments(line), line.argument("format", str) or "text"
    terminal.show_on(2)
    running: list[Trace] = []

    def end() -> None:
        if not running:
            raise KeyboardInterrupt
        running[0].request_end()

    # Ctrl-C ends the trace, and the account of what was seen is printed.
    with interruptions(end), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, reading = why.traced(
            running.append, duration=line.argument("duration", float), request=line.text("request") or "",
            goroutines=line.flag("goroutines"),
            least=(line.argument("least", int) or 0) / 1e9 if "least" in line.values else None, **arguments,
        )  # fmt: skip
    # What was lost is part of the account.
    shown = (item for item in told if not issubclass(item.category, (ResourceWarning, LossWarning)))
    for text in dict.fromkeys(str(item.message) for item in shown):
        sys.stderr.write(f"WARNING: {text}\n")
    _write(found, reading, format_, line)
    return 0


def _arguments(line: CommandLine) -> Arguments:
    arguments = Arguments()
    command, pids = line.text("command"), line.arguments("pid", tuple)
    if command is not None and pids:
        raise TraceError("pytrace why: -c and -p exclude each other")
    if command is not None:
        arguments["command"] = command
    if pids:
        arguments["pids"] = [pid for part in pids for pid in part]
    if line.flag("follow"):
        arguments["follow"] = True
    if names := line.many("comm"):
        arguments["comm"] = names
    if groups := line.many("cgroup"):
        arguments["cgroup"] = groups
    if containers := line.many("container"):
        arguments["container"] = containers
    if users := line.many("uid"):
        arguments["uid"] = users
    return arguments


def _write(found: Account, reading: Reading, format_: str, line: CommandLine) -> None:
    if (path := line.text("save")) is not None:
        Snapshot(stacks(reading)).save(path)
    if (path := line.text("html")) is not None:
        messages.write_file(path, page(found, reading))
    if format_ == "json":
        data = accounts.json_text(found)
    else:
        data = messages.lines(screen(found, everything=line.flag("all")))
    messages.write_report(data, line.text("output"))
