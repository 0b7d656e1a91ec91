"""What a run found, in a few lines: what its picture shows on the first screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from pytrace.core import types
from pytrace.render import histogram
from pytrace.results.snapshot import MapData, Portable, Run, SnapshotData, Value
from pytrace.results.stack_samples import INTERPRETED, KERNEL, Path, frame_name, is_profile, members_of, numbers, paths

SHOWN = 5
"""Functions that are named."""
MOST_ENTRIES = 100_000
"""Of more stacks only the innermost functions are looked at."""

JIT = "[JIT]"
_SOURCES = {
    "node": "node --perf-basic-prof", "java": "java -XX:+PreserveFramePointer and jcmd PID Compiler.perfmap",
    "dotnet": "DOTNET_PerfMapEnabled=1", "ruby": "ruby --yjit-perf", "php": "php -d opcache.jit_debug=16",
}  # fmt: skip
"""Programs that compile while they run, and what makes them name the result."""


def findings(snapshot: SnapshotData) -> list[str]:
    """Of stacks the functions that took most, with share and unit; of histograms count and quantiles."""
    run = snapshot.runs[-1] if snapshot.runs else None
    lines: list[str] = []
    for data in snapshot.shown.values():
        if not data.entries or run is None:
            continue
        if is_profile(data):
            lines += _profile(data, run)
        elif isinstance(data.value, types.Hist | types.LHist):
            lines += _histogram(data)
    return lines


def unnamed_code(snapshot: SnapshotData) -> str:
    """A sentence on compiled code without names and what gives it names; empty where there is little of it."""
    whole = without = 0
    texts: set[str] = {run.target for run in snapshot.runs}
    for data in snapshot.shown.values():
        if data.entries and is_profile(data):
            for path, names, amount in _stacks(data):
                whole += amount
                if any(frame_name(frame) == JIT for frame, _ in path):
                    without += amount
                    texts |= names
    if not whole or without * 10 < whole:
        return ""
    share = f"{100 * without / whole:.0f} % of the stacks hold compiled code without names ({JIT})"
    words = {word.rpartition("/")[2] for text in texts for word in text.split()}
    known = [option for name, option in _SOURCES.items() if name in words]
    return f"{share}: {' or '.join(known)} gives names" if known else f"{share}: an option of its runtime may give them"


def _stacks(data: MapData) -> Iterator[tuple[Path, set[str], int]]:
    """Of each entry the frames from the root, the texts of its key, and its number."""
    key = data.key
    assert key is not None
    path, value = paths([column.type for column in data.key_columns]), numbers(data.value)
    for entry, item in data.entries.items():
        members = list(members_of(key, entry))
        texts = {member.decode("utf-8", "replace") for member in members if isinstance(member, bytes)}
        yield path(members), texts | {member for member in members if isinstance(member, str)}, value(item)[-1]


def _profile(data: MapData, run: Run) -> Iterator[str]:
    counts, period = counted(run) if isinstance(data.value, types.Count) else ("", 0.0)
    what = what_of(run)
    own: dict[str, int] = {}
    interpreted: dict[str, int] = {}
    calls: dict[tuple[str, str], int] = {}
    whole = 0
    for path, _, amount in _stacks(data):
        whole += amount
        inner = _waiting(path) if what == "waited" else frame_name(path[-1][0])
        own[inner] = own.get(inner, 0) + amount
        if len(data.entries) <= MOST_ENTRIES:
            scripts = [frame_name(frame) for frame, kind in path if kind == INTERPRETED]
            for name in set(scripts):
                interpreted[name] = interpreted.get(name, 0) + amount
            for pair in set(pairwise(scripts)):
                calls[pair] = calls.get(pair, 0) + amount
    if whole <= 0 or min(own.values()) < 0:
        return

    def text(number: int) -> str:
        return readable(number * period, "s") if period else readable(number, data.unit)

    total = f"{text(whole)} {what}".rstrip()
    if counts:
        total += f" ({whole:,} {counts})" if period else f" {counts}"
    yield f"{total}, most in{' the function' if what == 'waited' else ''}:"
    yield from _largest(own, whole, text)
    if interpreted and max(interpreted.values()) * 20 > whole:
        yield "interpreted functions with what they call:"
        # A function that does nothing but call another says it for both.
        passed_on = {
            name
            for (caller, name), amount in calls.items()
            if caller[:1] != "<" and caller != name and amount * 1.05 > max(interpreted[caller], interpreted[name])
        }
        outer = {name: one for name, one in interpreted.items() if name[:1] != "<" and name not in passed_on}
        yield from _largest(outer, whole, text)


def _waiting(path: Path) -> str:
    """The innermost function of the program, or the outermost of the kernel in its own threads."""
    users = [frame for frame, kind in path if kind != KERNEL]
    return frame_name(users[-1] if users else path[0][0])


def _largest(found: Mapping[str, int], whole: int, text: Callable[[int], str]) -> Iterator[str]:
    for name, number in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        yield f"  {100 * number / whole:5.1f} %  {text(number):>9}  {name}"


def _histogram(data: MapData) -> Iterator[str]:
    """Of the key with most values how many there are, and the buckets of quantiles."""
    type_ = data.value
    assert isinstance(type_, types.Hist | types.LHist)
    form = histogram.shape(type_)
    sums = {key: sum(_counts(value).values()) for key, value in data.entries.items()}
    whole = sum(sums.values())
    every: dict[int, int] = {}
    for value in data.entries.values():
        for number, count in _counts(value).items():
            every[number] = every.get(number, 0) + count
    if not whole:
        return
    items = histogram.quantiles(form, histogram.all_buckets(type_, every), ("50", "99", "100"))
    unit = f" {data.unit}" if data.unit else ""
    places = [histogram.quantile_text(item).decode().strip() for item in items]
    yield f"{data.title}: {whole:,} values, {', '.join(places)}{unit}"


def _counts(value: Value | Portable) -> dict[int, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {number: count for number, count in items if isinstance(count, int)}


_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_SECONDS = dict(_TIMES)
_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
_BYTES = {"bytes": 1, "KB": 1 << 10, "MB": 1 << 20}


def readable(number: float, unit: str) -> str:
    """A number for people, to three digits: times and sizes in the unit that fits (``5.52 s``, ``4.1 kB``)."""
    if unit in _SECONDS or unit in _BYTES:
        steps, size = (_TIMES, number * _SECONDS[unit]) if unit in _SECONDS else (_SIZES, number * _BYTES[unit])
        name, one = next((step for step in steps if abs(size) >= step[1]), steps[-1])
        scaled = size / one
        return f"{scaled:,.0f} {name}" if abs(scaled) >= 1000 else f"{float(f'{scaled:.3g}'):g} {name}"
    return f"{number:,} {unit}".rstrip()


# ---------------------------------------------------------------------------------------------- question


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
_PERIODS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "": 1e-9}

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
    return 1 / int(number) if unit == "hz" else int(number) * _PERIODS[unit]
