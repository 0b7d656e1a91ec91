"""Reads case files (``tests/cases/*.case``); the format is described in ``tests/cases/README.md``."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parent.parent / "cases"

WAYS = ("compile", "host", "vm")


class CaseError(Exception):
    """A case file that cannot be read; the text says where and why."""


@dataclass(frozen=True)
class Check:
    """One expectation: *stream* (stdout, stderr) is compared with *text* in the manner of *form*."""

    stream: str
    form: str
    text: str


@dataclass(frozen=True)
class Case:
    """One run of the command line and what is expected of it."""

    name: str
    family: str
    line: int = 0
    program: str | None = None
    options: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    files: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    where: tuple[str, ...] = ("host",)
    needs: tuple[str, ...] = ()
    timeout: float = 30.0
    exit: int = 0
    checks: tuple[Check, ...] = ()
    when_attached: tuple[str, ...] = ()
    after: str | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line without the program's name."""
        if self.command is not None:
            return (*self.options, *self.command)
        assert self.program is not None
        return (*self.options, "-e", self.program, *self.args)

    @property
    def plain(self) -> bool:
        """Whether it asks about the language alone: a script without events, that no other process has a part in."""
        if self.program is None or any((self.files, self.stdin, self.environment, self.when_attached, self.after)):
            return False
        words = (*self.options, *self.args)
        return not (PLACES.search(" ".join((self.program, *words))) or "--max-memory" in words) and of_begin_and_end(
            self.program
        )

    def id(self, way: str) -> str:
        """The name of the test that runs the case in one of :data:`WAYS`."""
        return f"{way}-{self.family}-{self.name}"

    def expects(self, stream: str) -> bool:
        """Whether anything is said about a stream."""
        return any(check.stream == stream for check in self.checks)


FORMS = ("exact", "contains", "ordered", "lines", "regex", "lacks", "any")
_KEY = re.compile(r"(?P<indent>\s+)(?P<key>[a-z]+)(?:[ ](?P<argument>[^:]+))?:(?:[ ](?P<value>.*))?$")


PLACES = re.compile(r"\{(tmp|root|programs|cgroup2|pytrace)\}")
_OTHER_PROBES = re.compile(
    r"\b(tracepoint|uprobe|uretprobe|ur|usdt|kprobe|kretprobe|kr|fentry|fexit|interval|profile|iter|it|rawtracepoint|rt"
    r"|software|hardware|watchpoint|self|bench|test|[tuUkfipshw]):"
)


def of_begin_and_end(program: str) -> bool:
    """Whether a script has no probes but ``begin`` and ``end``."""
    return not _OTHER_PROBES.search(program)


def load(path: Path) -> list[Case]:
    """All cases of one file, in order.

    Raises:
        CaseError: a line that is not understood.
    """
    return _Reader(path).read()


def load_all(families: Iterable[str] | None = None) -> list[Case]:
    """All cases of all case files, or of some; names are unique within a family."""
    chosen = None if families is None else set(families)
    return [
        case for path in sorted(CASES.glob("*.case")) if chosen is None or path.stem in chosen for case in load(path)
    ]


@dataclass
class _Reader:
    path: Path
    cases: list[Case] = field(default_factory=list)
    number: int = 0

    def read(self) -> list[Case]:
        lines = self.path.read_text().splitlines()
        defaults = Case("defaults", self.path.stem)
        current: Case | None = None
        while self.number < len(lines):
            line = lines[self.number]
            self.number += 1
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not line[0].isspace():
                defaults = self._close(current, defaults)
                current = self._open(line, defaults)
                continue
            if current is None:
                raise self._error("a key before the first case")
            key = _KEY.match(line)
            if key is None:
                raise self._error(f"not a key: {line.strip()!r}")
            value = key["value"]
            if value is None or value == "":
                value = self._block(lines, len(key["indent"]))
            current = self._set(current, key["key"], (key["argument"] or "").strip(), value)
        self._close(current, defaults)
        return self.cases

    def _open(self, line: str, defaults: Case) -> Case:
        word, _, name = line.partition(" ")
        if word == "defaults":
            return replace(defaults, line=self.number)
        if word != "case" or not re.fullmatch(r"[\w-]+", name.strip()):
            raise self._error("expected `case NAME` or `defaults`")
        return replace(defaults, name=name.strip(), line=self.number)

    def _close(self, case: Case | None, defaults: Case) -> Case:
        if case is None:
            return defaults
        if case.name == "defaults":
            return case
        if case.program is None and case.command is None:
            raise self._error(f"case {case.name} has neither program nor command")
        if any(other.name == case.name for other in self.cases):
            raise self._error(f"a second case {case.name}")
        self.cases.append(case)
        return defaults

    def _block(self, lines: list[str], indent: int) -> str:
        block = []
        while self.number < len(lines):
            line = lines[self.number]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            block.append(line)
            self.number += 1
        while block and not block[-1].strip():
            block.pop()
        # Lines may start with `|` to keep leading blanks.
        text = textwrap.dedent("\n".join(block))
        return "\n".join(line.removeprefix("|") for line in text.split("\n"))

    def _set(self, case: Case, key: str, argument: str, value: str) -> Case:
        if key in ("stdout", "stderr"):
            return replace(case, checks=(*case.checks, self._check(key, argument, value)))
        if key == "file":
            return replace(case, files=(*case.files, (argument, value + "\n")))
        if key == "env":
            return replace(case, environment=(*case.environment, (argument, value)))
        if key == "when":
            return replace(case, when_attached=(*case.when_attached, value))
        setter = _SETTERS.get(key)
        if setter is None:
            raise self._error(f"unknown key {key!r}")
        try:
            return replace(case, **{key: setter(value)})
        except ValueError as error:
            raise self._error(f"{key}: {error}") from error

    def _check(self, stream: str, argument: str, value: str) -> Check:
        form = argument or "exact"
        if form not in FORMS:
            raise self._error(f"unknown form {form!r} (known: {', '.join(FORMS)})")
        return Check(stream, form, value)

    def _error(self, message: str) -> CaseError:
        return CaseError(f"{self.path.name}:{self.number}: {message}")


def _words(value: str) -> tuple[str, ...]:
    return tuple(shlex.split(value))


def _where(value: str) -> tuple[str, ...]:
    ways = tuple(value.split())
    wrong = set(ways) - set(WAYS)
    if wrong:
        raise ValueError(f"unknown way {wrong} (known: {WAYS})")
    return ways


_SETTERS: dict[str, Callable[[str], Any]] = {
    "program": str,
    "options": _words,
    "args": _words,
    "command": _words,
    "stdin": lambda value: value + "\n",
    "where": _where,
    "needs": lambda value: tuple(value.split()),
    "timeout": float,
    "exit": int,
    "after": str,
}
