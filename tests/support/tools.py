"""Runs of shipped tools: their rows, maps and messages, with the checks that every case of a tool wants."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.expect import ATTACH_NOTICE, INTERRUPTED, Result
from tests.support.server import Running, Server
from tests.tools.columns import ALIASES, TOOLS, Output

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "pytrace" / "tools"


class Row(dict[str, Any]):
    """One row of a table: values by the titles of their columns, in whatever case.

    A member ``pid`` of a record is ``PID`` in a heading and ``pid`` in JSON.
    """

    def __missing__(self, name: str) -> Any:
        for own in self:
            if own.upper() == name.upper():
                return self[own]
        raise KeyError(f"no column {name}: {', '.join(self)}")

    def has(self, name: str, value: object) -> bool:
        """Whether the column has that value.

        Raises:
            KeyError: there is no such column: a slip in a case.
        """
        return bool(self[name] == value)


_TROUBLE = frozenset({"lost_events", "failures", "losses", "runtime_error", "helper_error", "errorf", "warnf"})
"""Messages of ``-f json`` that a run where everything is right does not print."""
_COMPLAINT = re.compile(r"^(?:ERROR|WARNING|BUG|Traceback)|\b[Ll]ost \d+|\bfailed\b", re.MULTILINE)


def cannot(reason: str) -> NoReturn:
    """This kernel or machine cannot serve the tool of this case: the table of ``scripts/test`` shows the reason."""
    pytest.skip(reason)


@dataclass(frozen=True)
class ToolRun:
    """What a tool printed."""

    name: str
    result: Result
    messages: tuple[Mapping[str, Any], ...] = ()
    """All lines of ``-f json``, in their order."""
    lines: tuple[str, ...] = field(default=())
    """Lines of text: standard output, without empty lines."""

    @property
    def status(self) -> int:
        return self.result.status

    @property
    def stdout(self) -> str:
        return self.result.stdout

    @property
    def stderr(self) -> str:
        """Standard error without the attach notice."""
        return ATTACH_NOTICE.sub("", self.result.stderr)

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of all tables."""
        return self.table()

    def table(self, number: int = 0) -> list[Row]:
        """Rows of the table with that number (from 1), or of all."""
        rows = [message for message in self.messages if message["type"] == "row"]
        return [Row(row["data"]) for row in rows if number in (0, row["table"])]

    def of(self, **values: object) -> list[Row]:
        """Rows that have these values: ``run.of(PID=pid)``; for other titles ``run.of(**{"LAT(ms)": 3})``."""
        return [row for row in self.rows if all(row.has(name, value) for name, value in values.items())]

    def starting(self, column: str, prefix: object) -> list[Row]:
        """Rows whose column begins with that text, as paths of a folder of the test do."""
        return [row for row in self.rows if str(row[column]).startswith(str(prefix))]

    @cached_property
    def maps(self) -> dict[str, Any]:
        """Maps by their names (``@bytes``) as they were printed last."""
        found: dict[str, Any] = {}
        for message in self.messages:
            if message["type"] in ("map", "stats", "hist", "tseries"):
                found.update(message["data"])
        return found

    @property
    def trouble(self) -> list[str]:
        """What a run without any trouble does not say: lost events, failures, warnings, errors, tracebacks."""
        found = [json.dumps(message) for message in self.messages if message["type"] in _TROUBLE]
        return found + [line for line in self.stderr.splitlines() if _COMPLAINT.search(line)]


def run_tool(
    server: Server,
    name: str,
    *arguments: object,
    command: str = "",
    work: Callable[[Running], object] | None = None,
    until: str = "",
    times: int = 1,
    interrupt: bool | None = None,
    form: str = "json",
    environment: dict[str, str] | None = None,
    timeout: float = 60.0,
    status: int = 0,
    troubles: Iterable[str] = (),
) -> ToolRun:
    """Run a tool; once everything is attached call *work*, wait for what it has to print, and interrupt it (Ctrl-C).

    Args:
        server: the fixture of that name.
        name: the tool; its script runs by path as long as no command has that name.
        arguments: of the tool.
        command: for ``--cmd`` (``-c``); such a run ends with the command and is not interrupted.
        work: gets the run (its pid, what it has printed) and makes the events.
        until: text that the output must have *times* times before the run is interrupted: for tools that print at
            intervals. Rows of events need none: it is interrupted after it has handled those of *work*.
        interrupt: whether it is interrupted; else it ends by itself (``--duration``, a count of outputs).
            By default when there is no *command*.
        form: ``json``, ``text`` or another of ``-f``.
        environment: variables.
        timeout: seconds, as for :func:`patience`.
        status: the expected exit status.
        troubles: regular expressions for messages that this case expects.

    Raises:
        AssertionError: another status, too late, a traceback, left processes, or an unexpected message.
    """
    argv = [*invocation(server, name), "--format", form] if form != "text" else invocation(server, name)
    argv += [str(item) for item in arguments]
    if command:
        argv += ["--cmd", command]
    assert "-q" not in argv, "-q hides the notice that everything is attached, which this waits for"
    if interrupt is None:
        interrupt = not command

    def attached(running: Running) -> None:
        if work is not None:
            work(running)
        if until:
            running.until_printed(until, times, timeout / 2)
        if interrupt:
            running.until_idle()

    result = server.run(
        tuple(argv), environment=environment, timeout=timeout, while_attached=attached if work or until else None,
        when_attached=("signal INT",) if interrupt else (),
    )  # fmt: skip
    messages: tuple[Mapping[str, Any], ...] = ()
    if form == "json":
        messages = tuple(json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"type"'))
    run = ToolRun(name, result, messages, tuple(line for line in result.stdout.splitlines() if line.strip()))
    _check(run, status, [re.compile(text) for text in troubles])
    return run


FALLBACK = re.compile(r"this kernel cannot probe \S")
"""Begins what a tool says that does its work by other events, as functions of the kernel cannot be probed."""

LATE = re.compile(r"source lines were read for \S+ s after the interrupt")
"""Said at Ctrl-C on a machine with much other work."""

def _check(run: ToolRun, status: int, expected: list[re.Pattern[str]]) -> None:
    result = run.result
    assert not result.timed_out, f"{run.name} {result}"
    assert "Traceback (most recent call last)" not in result.stderr, f"{run.name} {result}"
    assert result.status == status, f"{run.name} {result}"
    assert not result.left_behind, f"{run.name} left processes: {result.left_behind}"
    if status == 0:
        patterns = (FALLBACK, LATE, INTERRUPTED, *expected)
        unexpected = [text for text in run.trouble if not any(pattern.search(text) for pattern in patterns)]
        assert not unexpected, f"{run.name} had trouble: {unexpected}\n{result}"


def script(name: str) -> Path | None:
    """The file of a tool that is a script."""
    return next(iter(sorted(SCRIPTS.glob(f"*/{name}.bt"))), None)


_commands: set[str] | None = None


def invocation(server: Server, name: str) -> list[str]:
    """The words that start a tool: its name, or the path of its script where names are not known."""
    global _commands
    if _commands is None:
        listed = server.run(("--tools",))
        _commands = set(re.findall(r"^\s*([a-z][\w-]*)\b", listed.stdout, re.MULTILINE)) if not listed.status else set()
    if name in _commands or name in ALIASES:
        return [name]
    path = script(name)
    assert path is not None, f"there is no tool {name}"
    return [str(path)]


# ------------------------------------------------------------------------------------------------ columns


def expected(name: str) -> Output:
    """The row of a tool in the table of columns."""
    return TOOLS[ALIASES.get(name, name)]


def headings(text: str) -> list[str]:
    """Lines of text output with single blanks, as titles with blanks cannot be told from two titles."""
    return [" ".join(line.split()) for line in text.splitlines()]


def check_columns(run: ToolRun) -> None:
    """The heading, or the members of each row in JSON, are the columns of the tool in their order; more may follow.

    Raises:
        AssertionError: they are not; with what was printed.
    """
    wanted = " ".join(expected(run.name).columns)
    if run.messages:
        assert run.rows, f"{run.name} printed no row: {run.result}"
        for row in run.rows:
            assert _begins(" ".join(row).upper(), wanted.upper()), f"{run.name}: columns {list(row)}, expected {wanted}"
        return
    lines = headings(run.stdout)
    assert any(_begins(line, wanted) for line in lines), f"{run.name}: no heading {wanted!r} in {run.result}"


def _begins(line: str, wanted: str) -> bool:
    return f"{line} ".startswith(f"{wanted} ")
