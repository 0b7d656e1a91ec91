"""The question that a run answers, as its report's title; and what its counts are."""

from __future__ import annotations

import re
from collections.abc import Callable

from pytrace.results.snapshot import Run

_OF_TOOLS: dict[str, Callable[[str, str], str]] = {
    "profile": lambda target, host: (
        f"Where {target} spent its time" if target else f"Where the processors of {host} spent their time"
    ),
    "offcputime": lambda target, host: f"Where {target} waited" if target else f"Where the threads of {host} waited",
    "offwaketime": lambda target, host: (
        f"Who woke {target} from its waits" if target else f"Who woke the threads of {host} from their waits"
    ),
    "wakeuptime": lambda target, host: f"Who woke {target or f'the threads of {host}'}",
    "mallocs": lambda target, host: f"Who allocates memory in {target or f'the processes of {host}'}",
    "memleak": lambda target, host: f"Memory that {target or f'the kernel of {host}'} has not freed",
}
"""Titles of the tools whose pictures answer one question."""

_SUMMARY = re.compile(r"\A\s*/\*[\s*]*[\w-]+: *([^\n]+)")
"""The first line of a tool's comment: its name, and what it shows."""

_RATE = re.compile(r"\b(?:p(?:rofile)?:(hz|s|ms|us)|s(?:oftware)?:(?:cpu|task|cpu-clock|task-clock)):(\d+)\b")
"""A probe that samples: the unit of its number (none: nanoseconds of processor time), and the number."""
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "": 1e-9}

LONGEST = 90
"""Characters of a one-liner in a title."""


def question(run: Run, host: str) -> str:
    """What a run was asked, in words: by its tool, else by the first words of its script.

    Args:
        run: the run.
        host: the name of its machine, or how many machines there are.
    """
    target = _cut(run.target)
    of_tool = _OF_TOOLS.get(run.script)
    if of_tool is not None:
        return of_tool(target, host)
    if run.script == "stackcount" and (event := next((word for word in run.parameters if word[:2] != "--"), "")):
        return f"Who calls {event}" + (f" in {target}" if target else "")
    summary = _SUMMARY.match(run.text)
    if summary is not None:
        words = summary[1].rstrip(". ")
        return f"{words[0].upper()}{words[1:]}" + (f": {target}" if target else f", on {host}")
    name = run.script if run.script != "-e" else _cut(" ".join(run.text.split())) or "a one-liner"
    return f"{name}: {target}" if target else f"{name}, on {host}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def counted(run: Run) -> tuple[str, float]:
    """What the counts of a profile are, as a plural, and the seconds that one stands for (0: it is no time)."""
    if run.script == "profile":
        options = dict(word.removeprefix("--").partition("=")[::2] for word in run.parameters)
        every = options.get("count", "")
        if every.isdecimal() and int(every):
            return "samples", int(every) * 1e-9
        return "samples", _period("hz", options.get("frequency", "49"))
    rates = set(_RATE.findall(run.text))
    if len(rates) == 1:
        return "samples", _period(*rates.pop())
    return {"stackcount": "calls", "mallocs": "allocations"}.get(run.script, "events"), 0.0


def what_of(run: Run) -> str:
    """What the sum of a profile is, after its number: ``5.52 s on CPU``."""
    if counted(run)[1]:
        return "on CPU"
    return {"offcputime": "waited", "offwaketime": "waited", "wakeuptime": "waited", "mallocs": "allocated"}.get(
        run.script, ""
    )


def _period(unit: str, number: str) -> float:
    if not number.isdecimal() or not int(number):
        return 0.0
    return 1 / int(number) if unit == "hz" else int(number) * _SECONDS[unit]
