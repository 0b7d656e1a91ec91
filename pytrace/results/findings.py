"""What a run found, in a few lines: what its picture shows on the first screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pytrace.core import types
from pytrace.core.types import JIT
from pytrace.render import histogram
from pytrace.results.snapshot import Frame, MapData, Portable, Run, SnapshotData, Value
from pytrace.results.stack_samples import INTERPRETED, KERNEL, Path, frame_name, is_profile, members_of, numbers, paths

SHOWN = 5
"""Functions that are named."""
MOST_ENTRIES = 100_000
"""Of more stacks only the innermost functions are looked at."""

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
        if run is not None:
            lines += findings_of(data, run)
    if not any(data.entries for data in snapshot.maps.values()) and not snapshot.tables:
        return ["nothing was counted"]
    return lines


def findings_of(data: MapData, run: Run) -> list[str]:
    """As :func:`findings`, of one map."""
    if data.entries and is_profile(data):
        return list(_profile(data, run))
    return list(_histogram(data)) if data.entries and isinstance(data.value, types.Hist | types.LHist) else []


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


class Amounts(NamedTuple):
    """Numbers of a profile as texts: of samples the time that they stand for."""

    unit: str
    counts: str = ""
    """What is counted, as a plural; empty where *unit* says what the number is."""
    period: float = 0.0
    """Seconds that one stands for; 0: it is no time."""

    def short(self, number: int) -> str:
        """``101 ms``, ``5.52 s``, ``1,234``."""
        return readable(number * self.period, "s") if self.period else readable(number, self.unit)

    def full(self, number: int) -> str:
        """With what was counted: ``101 ms (10 samples)``, ``16 events``."""
        if not self.counts:
            return self.short(number)
        counted = f"{number:,} {self.counts if abs(number) != 1 else self.counts.removesuffix('s')}"
        return f"{self.short(number)} ({counted})" if self.period else counted


def amounts_of(data: MapData, run: Run) -> Amounts:
    """Of the numbers of a map."""
    return Amounts("", *counted(run)) if isinstance(data.value, types.Count) else Amounts(data.unit)


def _profile(data: MapData, run: Run) -> Iterator[str]:
    amounts = amounts_of(data, run)
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

    total = amounts.full(whole)
    if what:
        first, space, rest = total.partition(" (")
        total = f"{first} {what}{space}{rest}"
    yield f"{total}, most in{' the function' if what == 'waited' else ''}:"
    yield from _largest(own, whole, amounts.short)
    if interpreted and max(interpreted.values()) * 20 > whole:
        yield "interpreted functions with what they call:"
        # A function that does nothing but call another says it for both.
        passed_on = {
            name
            for (caller, name), amount in calls.items()
            if caller[:1] != "<" and caller != name and amount * 1.05 > max(interpreted[caller], interpreted[name])
        }
        outer = {name: one for name, one in interpreted.items() if name[:1] != "<" and name not in passed_on}
        yield from _largest(outer, whole, amounts.short)


def changes(before: MapData, after: MapData, amounts: Amounts) -> list[str]:
    """Of two states of a map of stacks the totals, and the functions that grew and shrank most themselves."""
    owns: list[dict[tuple[str, str], int]] = []
    for data in (before, after):
        own: dict[tuple[str, str], int] = {}
        for path, _, amount in _stacks(data):
            function = same_function(path[-1][0])
            own[function] = own.get(function, 0) + amount
        owns.append(own)
    old, new = owns
    was, now = sum(old.values()), sum(new.values())
    percent = f" ({100 * (now - was) / was:+.1f} %)" if was else ""
    lines = [f"{amounts.full(was)} before, {amounts.full(now)} after: {_signed(now - was, amounts)}{percent}"]
    deltas = {key: new.get(key, 0) - old.get(key, 0) for key in {**old, **new}}
    for word, sign in (("grew most:", 1), ("shrank most:", -1)):
        found = sorted((key for key, delta in deltas.items() if delta * sign > 0), key=lambda key: -deltas[key] * sign)
        lines += [word] if found else []
        for key in found[:SHOWN]:
            values = f"{amounts.short(old.get(key, 0))} before, {amounts.short(new.get(key, 0))} after"
            lines.append(f"  {_signed(deltas[key], amounts):>10}  {key[0]} ({values})")
    return lines


def _signed(number: int, amounts: Amounts) -> str:
    return f"+{amounts.short(number)}" if number > 0 else amounts.short(number)


_VERSION = re.compile(r"\d+(?:\.\d+)*")


def same_function(frame: Frame) -> tuple[str, str]:
    """Name of the function and of its module or file: equal for installations of one program in different places.

    Folders (virtual environments, build directories) and versions in names of files are left out.
    """
    return frame_name(frame), _VERSION.sub("#", (frame.module or frame.file).rpartition("/")[2])


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
    yield f"{data.title}: {quantiles_text(form, histogram.all_buckets(type_, every), data.unit)}"


def quantiles_text(form: histogram.Shape, counts: Sequence[int], unit: str) -> str:
    """How many values were counted, and the upper ends of the buckets of quantiles: ``p99 <= 4.1 ms``."""
    whole = sum(counts)
    places = []
    for item in histogram.quantiles(form, counts, ("50", "90", "99", "100")):
        if item.high is not None:
            end = f"<= {readable(item.high, unit)}"
        else:
            end = "" if item.low is None else f">= {readable(item.low, unit)}"
        places.append(f"{'largest' if item.percent == '100' else f'p{item.percent}'} {end}".rstrip())
    return f"{whole:,} value{'' if whole == 1 else 's'}: {', '.join(places)}"


def _counts(value: Value | Portable) -> dict[int, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {number: count for number, count in items if isinstance(count, int)}


_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
SECONDS = dict(_TIMES)
"""Units of time, in seconds."""
_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
BYTES = {"bytes": 1, "KB": 1 << 10, "MB": 1 << 20}
"""Units of sizes, in bytes."""


def readable(number: float, unit: str) -> str:
    """A number for people, to three digits: times and sizes in the unit that fits (``5.52 s``, ``4.1 kB``)."""
    if unit in SECONDS or unit in BYTES:
        steps, size = (_TIMES, number * SECONDS[unit]) if unit in SECONDS else (_SIZES, number * BYTES[unit])
        name, one = next((step for step in steps if abs(size) >= step[1]), steps[-1])
        if not number:
            return f"0 {unit}"
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

_PROBE = re.compile(r"^([a-z]+:[^\s{/,]+)", re.MULTILINE)
"""The first probe of a script."""

LONGEST = 90
"""Characters of a one-liner in a title."""


_NAMED = 4
"""Runs that a title names."""


def title_of(snapshot: SnapshotData) -> str:
    """The question of the runs; of many that differ only how many there are."""
    hosts = dict.fromkeys(run.host for run in snapshot.runs)
    host = f"{len(hosts)} machines" if len(hosts) > 1 else "".join(hosts)
    names = dict.fromkeys(question(run, host) for run in snapshot.runs)
    return f"{len(snapshot.runs)} runs" if len(names) > _NAMED else "; ".join(names) or "An empty snapshot"


def title_of_difference(before: SnapshotData, after: SnapshotData) -> str:
    """The question that a comparison answers."""
    targets = [", ".join(dict.fromkeys(run.target for run in side.runs)) for side in (before, after)]
    named = all(targets) and targets[0] != targets[1]
    names = list(dict.fromkeys(targets if named else map(title_of, (before, after))))
    return f"What changed: {names[0]}" if len(names) == 1 else f"What changed from {names[0]} to {names[1]}"


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
    if run.script == "stackcount":
        event = next((word for word in run.parameters if word[:2] != "--"), "")
        probe = _PROBE.search(run.text)
        event = event or (probe[1] if probe is not None else "")
        if event:
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
