"""What a row of the table is, paired runs, and what is made of their numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from benching.runs import BPFTRACE, PYTRACE, RunError, Tracer, alone

Numbers = dict[str, float]


@dataclass(frozen=True)
class Measure:
    """One number of a row: its name, its unit, and the ratio that is to be reached (none: it is only shown)."""

    name: str
    unit: str
    goal: float | None = None
    less: bool = True
    """Whether smaller numbers are better; for others the ratio is the inverse."""


@dataclass
class Line:
    """The samples of one number: of pytrace, of the peer in the same runs, and of pytrace once more in each run."""

    row: str
    title: str
    measure: Measure
    ours: list[float]
    theirs: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    note: str = ""
    limit: float | None = None
    """For a number without a peer: what it may be at most (or at least)."""
    peer: str = "bpftrace"

    @property
    def ratios(self) -> list[float]:
        """One for each pair; under 1 pytrace is better. None where noise has hidden all of the peer's cost."""
        pairs = [(mine, other) for mine, other in zip(self.ours, self.theirs, strict=False) if other > 0]
        return [_ratio(mine, other, self.measure.less) for mine, other in pairs]

    @property
    def ratio(self) -> float | None:
        """The median of the ratios of the pairs."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def noise(self) -> float | None:
        """The median of the ratios of two runs of the same thing, the larger to the smaller, less 1."""
        pairs = [(abs(a), abs(b)) for a, b in zip(self.ours, self.again, strict=False) if a and b]
        return statistics.median(max(pair) / min(pair) - 1 for pair in pairs) if pairs else None

    @property
    def apart(self) -> float | None:
        """The median difference of two runs of the same thing, in the unit of the line."""
        pairs = list(zip(self.ours, self.again, strict=False))
        return statistics.median(abs(a - b) for a, b in pairs) if pairs else None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None without one, or without a peer."""
        if self.limit is not None:
            value = statistics.median(self.ours)
            return value <= self.limit if self.measure.less else value >= self.limit
        if self.measure.goal is None or self.ratio is None:
            return None
        return self.ratio <= self.measure.goal


LEAST = 0.1
"""What a number counts at least: a cost that is lost in noise may come out as nothing or less."""


def _ratio(ours: float, theirs: float, less: bool) -> float:
    ours, theirs = max(ours, LEAST), max(theirs, LEAST)
    return ours / theirs if less else theirs / ours


@dataclass(frozen=True)
class Plan:
    """How often things are run."""

    runs: int = 7
    quick: bool = False
    noise: bool = True

    def of(self, usual: int) -> int:
        """The runs of a row that takes long: *usual* when the plan says nothing else."""
        return max(1, min(self.runs, usual))


@dataclass(frozen=True)
class Row:
    """A row: its name (``subject.thing``), what it measures in words, and how."""

    name: str
    title: str
    measure: Callable[[Row, Plan], list[Line]]
    vm: bool = False
    """Measured in the test machine only."""
    slow: bool = False
    """Takes a minute and more; left out by ``--quick``."""

    def matches(self, wanted: str) -> bool:
        """Whether a word of the command line means this row: its name, or the first parts of it."""
        return self.name == wanted or self.name.startswith(f"{wanted.rstrip('.')}.")


def paired(
    row: Row,
    plan: Plan,
    measures: tuple[Measure, ...],
    once: Callable[[Tracer], Numbers],
    *,
    runs: int | None = None,
    prepare: Callable[[], None] | None = None,
    ahead: bool = True,
    other: Tracer | None = BPFTRACE,
) -> list[Line]:
    """Alternating runs of both tracers; every second pair begins with the peer.

    *once* measures one tracer and gives a number for each measure. *prepare* is called before each pair.
    *runs*: of rows that take long, which pytrace runs a second time in the first pair only. *ahead*: a first run of
    pytrace that does not count, so that its cache has the script. *other*: the peer, where it is not bpftrace.
    """
    lines = [Line(row.name, row.title, measure, [], peer=other.name if other else "") for measure in measures]
    peer = other
    if ahead:
        with alone():
            once(PYTRACE)
    for number in range(runs or plan.runs):
        with alone():
            if prepare:
                prepare()
            first_peer = number % 2 and peer
            theirs = _of_peer(peer, once, lines) if first_peer and peer else None
            mine = once(PYTRACE)
            if peer and not first_peer:
                theirs = _of_peer(peer, once, lines)
            again = once(PYTRACE) if plan.noise and (runs is None or not number) else None
        if theirs is None:
            peer = None  # it fails each time
        for line in lines:
            name = line.measure.name
            line.ours.append(mine[name])
            if theirs and name in theirs:
                line.theirs.append(theirs[name])
            if again:
                line.again.append(again[name])
    return lines


def _of_peer(peer: Tracer, once: Callable[[Tracer], Numbers], lines: list[Line]) -> Numbers | None:
    try:
        return once(peer)
    except RunError as error:
        for line in lines:
            line.note = f"the peer fails: {str(error)[:160]}"
        return None


def against_limit(
    row: Row, plan: Plan, measure: Measure, limit: float | None, once: Callable[[], float], runs: int | None = None
) -> Line:
    """A number that has no peer: how often asked for, and once more for the noise."""
    line = Line(row.name, row.title, measure, [], limit=limit)
    for _ in range(runs or plan.runs):
        with alone():
            line.ours.append(once())
            line.again.append(once())
    return line
