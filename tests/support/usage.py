"""Cases for the ways in which the scripts of ``docs/examples`` can be run: as their headers show, and as newcomers do.

A header's usage lines start with the script's name.  The commands that they trace are replaced by short ones of the
same name, and long times by a second; everything else is run as it stands, without arguments also with JSON output.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.support.cases import Case, Check

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "docs" / "examples"

_LINE = r"(?m)^ \*   {}(?P<words>(?: \S+)*)(?:  +\S.*)?$"
"""Words stand one blank apart; what follows more blanks says what they do."""

STAND_INS = {
    "server": "ls / >/dev/null",
    "program": "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done",
    "threaded-program": "exec {programs}/threads 3 5",
    "supervisor": "(sleep 5 & kill $!; wait); exit 0",
    "bin/make": "sh -c 'exit 3'; /nonexistent/program 2>/dev/null; ls / >/dev/null",
    "bin/curl": ": </dev/null",
    "bin/cp": "cat /etc/passwd >copy",
    "bin/ls": 'exec /bin/ls "$@" >/dev/null',
    "bin/sync": "/bin/sync .",
}
"""Scripts in the case's folder, of which ``bin`` is on PATH; other commands of usage lines are real."""

NEEDS = {
    "tracepoint:syscalls": "syscalls", "tracepoint": "tracepoint", "uprobe": "uprobe", "kprobe": "kprobe",
    "fexit": "fentry", "profile": "perf_events", "interval": "perf_events",
}  # fmt: skip

WARNINGS = (
    r"(?s)\A(((Attached|Attaching) [^\n]*|WARNING: (in total, )?(\d+ recursive probe hits? skipped|"
    r"\d+ strings? truncated|lost |source lines were read for )[^\n]*|"
    r"HINT: [^\n]*|processes that the command started [^\n]*|\{[^\n]*)?\n)*\Z"
)
"""What may be said while a busy machine is traced."""


def cases() -> list[Case]:
    """All cases; the names tell the example and the way."""
    return [case for path in sorted(EXAMPLES.glob("*.bt")) for case in _of_example(path)]


def usage_lines(path: Path) -> list[tuple[str, ...]]:
    """The arguments of each usage line of an example's header."""
    header = path.read_text().partition("*/")[0]
    found = re.finditer(_LINE.format(re.escape(path.name)), header)
    return [tuple(shlex.split(match["words"])) for match in found]


def _of_example(path: Path) -> Iterator[Case]:
    name = path.stem.replace("-", "_")
    plain = _case(path, name)
    yield replace(plain, name=f"{name}_dry_run", options=("--dry-run",))
    ways = [(f"{name}_alone", ()), *((f"{name}_{at}", line) for at, line in enumerate(usage_lines(path), 1))]
    for title, words in ways:
        case = replace(plain, name=title, command=(str(path), *map(_quick, words)))
        if "-c" not in words and not any(word.startswith("--seconds=") for word in words):
            case = replace(case, when_attached=("sleep 0.1", "signal INT"))
        yield case
        if not words:
            yield replace(case, name=f"{title}_json", options=("-f", "json"))


def _case(path: Path, name: str) -> Case:
    kinds = re.findall(r"(?m)^(\w+:syscalls|\w+)(?=:)", path.read_text())
    needs = tuple(dict.fromkeys(NEEDS[kind] for kind in NEEDS if kind in kinds))
    return Case(
        name=name,
        family="usage",
        command=(str(path),),
        files=tuple((file, f"#!/bin/sh\n{text}\n") for file, text in STAND_INS.items()),
        environment=(("PATH", "{tmp}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),),
        where=("host", "vm"),
        needs=needs,
        timeout=30.0,
        checks=(Check("stdout", "any", ""), Check("stderr", "regex", WARNINGS)),
    )


def _quick(word: str) -> str:
    return re.sub(r"^--seconds=\d+$", "--seconds=1", word)
