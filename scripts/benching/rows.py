"""Rows of the table, runs of tracers in pairs, and the ratios of their numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from benching.runs import PYTRACE, RunError, Tracer, alone

Numbers = dict[str, float]


@dataclass(frozen=True)
class Measure:
    """One number of a row: its name, its unit, and the ratio that is to be reached (none: it is only shown)."""

    name: str
    unit: str
    goal: float | None = None
    less: bool = True
    """Whether smaller numbers are better; for others the ratio is the inverse."""
    floor_goal: float | None = None
    """The ratio to the floor that is to be reached."""


FLOOR = Tracer("floor", ())
"""The same work without pytrace, whose command a row decides.

For events it is written by hand in C (``programs/floor.bpf.c``), for starts it is Python with the packages alone.
"""


@dataclass
class Line:
    """Samples of one number, an item a round: of pytrace, of the peer, of the floor, of pytrace once more."""

    row: str
    title: str
    measure: Measure
    ours: list[float]
    theirs: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    note: str = ""
    limit: float | None = None
    """For a number without a peer: what it may be at most (or at least)."""
    peer: str = "bpftrace"

    @property
    def ratios(self) -> list[float]:
        """One for each pair; under 1 pytrace is better. None where noise has hidden all of the peer's cost."""
        return self._beside(self.theirs)

    def _beside(self, others: list[float]) -> list[float]:
        pairs = [(mine, other) for mine, other in zip(self.ours, others, strict=False) if other > 0]
        return [_ratio(mine, other, self.measure.less) for mine, other in pairs]

    @property
    def ratio(self) -> float | None:
        """The median of the ratios of the pairs."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def to_floor(self) -> float | None:
        """The median of the ratios to the floor."""
        ratios = self._beside(self.floors)
        return statistics.median(ratios) if ratios else None

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
        """Whether each goal is reached, beside the peer and beside the floor; None without one to compare with."""
        if self.limit is not None:
            value = statistics.median(self.ours)
            return value <= self.limit if self.measure.less else value >= self.limit
        goals = ((self.ratio, self.measure.goal), (self.to_floor, self.measure.floor_goal))
        reached = [ratio <= goal for ratio, goal in goals if ratio is not None and goal is not None]
        return all(reached) if reached else None

    def add(self, samples: dict[str, Numbers], again: Numbers | None) -> None:
        """Add what one round of runs measured, by the names of the tracers; *again*: pytrace's second run."""
        name = self.measure.name
        for tracer, values in ((PYTRACE.name, self.ours), (self.peer, self.theirs), (FLOOR.name, self.floors)):
            if name in samples.get(tracer, {}):
                values.append(samples[tracer][name])
        if again:
            self.again.append(again[name])


LEAST = 0.1
"""What a number counts at least: a cost that is lost in noise may come out as nothing or less."""


def _ratio(ours: float, theirs: float, less: bool) -> float:
    ours, theirs = max(ours, LEAST), max(theirs, LEAST)
    return ours / theirs if less else theirs / ours


@dataclass(frozen=True)
class Plan:
    """How often things are run, and which bpftrace they are compared with."""

    runs: int = 7
    peer: Tracer | None = None
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
    floor: bool = False,
) -> list[Line]:
    """Alternating runs of all tracers; every second round is in the other order.

    *once* measures one tracer and returns a number for each measure; of the floor those that it has. *prepare* is
    called before each round. *runs*: of rows that take long, which pytrace runs a second time in the first round only.
    *ahead*: a first run of pytrace that does not count, so that its cache has the script. *floor*: with :data:`FLOOR`.
    """
    peer = plan.peer.name if plan.peer else ""
    lines = [Line(row.name, row.title, measure, [], peer=peer) for measure in measures]
    tracers = [PYTRACE, *(tracer for tracer in (plan.peer, FLOOR if floor else None) if tracer)]
    if ahead:
        with alone():
            once(PYTRACE)
    for number in range(runs or plan.runs):
        with alone():
            if prepare:
                prepare()
            order = tracers[::-1] if number % 2 else tracers
            samples = {tracer.name: _sample(tracer, once, lines) for tracer in order}
            again = once(PYTRACE) if plan.noise and (runs is None or not number) else None
        tracers = [tracer for tracer in tracers if samples[tracer.name]]  # the others fail each time
        for line in lines:
            line.add(samples, again)
    return lines


def _sample(tracer: Tracer, once: Callable[[Tracer], Numbers], lines: list[Line]) -> Numbers:
    """What the tracer's run measured; nothing where another than pytrace fails, which the lines then note."""
    try:
        return once(tracer)
    except RunError as error:
        if tracer is PYTRACE:
            raise
        who = "floor" if tracer is FLOOR else "peer"
        for line in lines:
            line.note = f"the {who} fails: {str(error)[:160]}"
        return {}


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
