"""Compares what a run printed with what its case expects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.cases import Case, Check

ATTACH_NOTICE = re.compile(r"^Attached \d+ probes?\n", re.MULTILINE)
INTERRUPTED = re.compile(
    r'^(?:WARNING: (?:in total, )?\d+ recursive probe hits? skipped.*'
    r'|\{"type": "(?:failures|losses)", "data": \{"recursion": \{[^{}]*\}\}\})\n?', re.MULTILINE,
)
"""Says, as text and as JSON, that hits were skipped, and of no other loss.

A probe of the whole machine sees events of interrupts and of other processes. One that comes while the program runs on
that processor, for another event or for another tracer, is skipped by the kernel: so on any machine where something
else goes on. Whether events of the test are missing is seen by what it counts.
"""


@dataclass(frozen=True)
class Result:
    """What a run did. Bytes that are not UTF-8 are kept as surrogates."""

    status: int
    stdout: str
    stderr: str
    timed_out: bool = False
    left_behind: tuple[str, ...] = ()
    """Processes that outlived the run."""

    def __str__(self) -> str:
        ended = "did not end in time" if self.timed_out else f"ended with status {self.status}"
        return f"{ended}\n--- stdout\n{self.stdout}--- stderr\n{self.stderr}---"


def problems(case: Case, result: Result) -> list[str]:
    """What differs; empty when all is as expected."""
    found = []
    if result.timed_out:
        found.append(f"did not end within {case.timeout:g} s")
    elif result.status != case.exit:
        found.append(f"exit status {result.status}, expected {case.exit}")
    if "Traceback (most recent call last)" in result.stderr or re.search(r"^BUG: ", result.stderr, re.MULTILINE):
        found.append("a bug in pytrace was reported")
    if result.left_behind:
        found.append(f"processes left behind: {', '.join(result.left_behind)}")
    streams = {"stdout": result.stdout, "stderr": ATTACH_NOTICE.sub("", result.stderr)}
    if not case.plain:
        streams = {name: INTERRUPTED.sub("", text) for name, text in streams.items()}
    for check in case.checks:
        text = result.stderr if "Attached" in check.text else streams[check.stream]
        complaint = _FORMS[check.form](check, text)
        if complaint:
            found.append(f"{check.stream} {check.form}: {complaint}")
    if not case.expects("stderr") and streams["stderr"].strip():
        found.append("stderr was expected to be empty")
    if _json_wanted(case):
        found += _bad_json(result.stdout)
    return found


def _json_wanted(case: Case) -> bool:
    words = case.argv
    return any(word == "-fjson" or (word == "-f" and words[index + 1 : index + 2] == ("json",))
               for index, word in enumerate(words))  # fmt: skip


def _bad_json(text: str) -> list[str]:
    found = []
    for line in text.splitlines():
        try:
            json.loads(line)
        except ValueError as error:
            found.append(f"not JSON ({error}): {line[:200]!r}")
    return found


def _trim(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def _exact(check: Check, text: str) -> str:
    wanted, found = _trim(check.text), _trim(text)
    if wanted == found:
        return ""
    for number, (left, right) in enumerate(zip(wanted.split("\n"), found.split("\n"), strict=False), 1):
        if left != right:
            return f"line {number} is {right!r}, expected {left!r}"
    return f"{len(found.splitlines())} lines, expected {len(wanted.splitlines())}"


def _contains(check: Check, text: str) -> str:
    absent = [line for line in check.text.splitlines() if line.strip() not in text]
    return f"not found: {absent}" if absent else ""


def _lacks(check: Check, text: str) -> str:
    present = [line for line in check.text.splitlines() if line.strip() and line.strip() in text]
    return f"found: {present}" if present else ""


def _ordered(check: Check, text: str) -> str:
    rest = iter(text.splitlines())
    for wanted in check.text.splitlines():
        if not any(wanted.strip() in line for line in rest):
            return f"not found in this order: {wanted.strip()!r}"
    return ""


def _lines(check: Check, text: str) -> str:
    wanted = sorted(line.rstrip() for line in check.text.splitlines() if line.strip())
    found = sorted(line.rstrip() for line in text.splitlines() if line.strip())
    if wanted == found:
        return ""
    missing = [line for line in wanted if line not in found]
    extra = [line for line in found if line not in wanted]
    return f"missing {missing}, unexpected {extra}"


def _regex(check: Check, text: str) -> str:
    missing = [line for line in check.text.splitlines() if line and not re.search(line, text, re.MULTILINE)]
    return f"no match for {missing}" if missing else ""


_FORMS: dict[str, Callable[[Check, str], str]] = {
    "exact": _exact,
    "contains": _contains,
    "lacks": _lacks,
    "ordered": _ordered,
    "lines": _lines,
    "regex": _regex,
    "any": lambda check, text: "",
}
