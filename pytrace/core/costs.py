"""Costs of tracing: of the programs of a run by probe, and of the tracer itself.

The kernel times programs (``run_time_ns``), but not the path that leads to them: the trap of a uprobe, the interrupt of
a timer. :data:`ENTRY` has that path's cost for each probe kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import msgspec

from pytrace.core import probe_kinds
from pytrace.core.manifest import ProgramSpec
from pytrace.core.probe_kinds import RAW_TRACEPOINT, SYSTEM_CALLS, FileTarget

ENTRY: dict[str, int] = {
    probe_kinds.TRACEPOINT: 75,
    probe_kinds.RAWTRACEPOINT: 75,
    probe_kinds.UPROBE: 9250,
    probe_kinds.URETPROBE: 9830,
    probe_kinds.USDT: 620,
    probe_kinds.PYTHON: 9250,
    probe_kinds.PYTHONRET: 9250,
    probe_kinds.PROFILE: 12400,
    probe_kinds.INTERVAL: 12400,
    probe_kinds.SOFTWARE: 12400,
    probe_kinds.HARDWARE: 12400,
    probe_kinds.WATCHPOINT: 12400,
    probe_kinds.KPROBE: 480,
    probe_kinds.KRETPROBE: 790,
    probe_kinds.FENTRY: 400,
    probe_kinds.FEXIT: 400,
}
"""Nanoseconds that a hit costs apart from its program, by probe kind.

The rows ``kinds.*.empty`` of ``scripts/bench`` (what an empty program adds) of docs/develop/performance.md: of
23 November 2026 on an AMD EPYC in a virtual machine, Linux 6.18; kprobes and trampolines in an emulated machine. Kinds
that were not measured have the cost of ``profile``, which is a perf event as well (and fentry that of fexit, whose
trampoline it shares). ``python`` and ``pythonret`` are uprobes; where the kernel emulates the instruction, as for
``pythonret`` since 3.12, a hit costs a tenth. A trap is several times cheaper where the kernel runs on the hardware
itself.
"""


class ProbeCost(msgspec.Struct, frozen=True):
    """The cost of the program of a probe. All times are nanoseconds."""

    probe: str
    """Its name; of a program with several targets or blocks the first one, and the number of others."""
    hits: int
    """Runs of the program, those that a filter or a condition ended included."""
    run_time: int
    """Time inside the program, as the kernel measured it."""
    entry: int
    """Cost of reaching the program, of all hits: :data:`ENTRY`."""
    weight: int = 1
    """With ``--budget``: one of how many hits ran it, the most at any time; 1: all ran."""
    detached: bool = False
    """With ``--budget``: it was detached, as it was too expensive."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.run_time + self.entry


class RunCost(msgspec.Struct, frozen=True):
    """The costs of a run. Times are nanoseconds, sizes bytes."""

    duration: int
    """Time since the probes were attached, until they were detached."""
    processors: int
    """Processors of the machine that are online."""
    probes: tuple[ProbeCost, ...]
    """Most expensive first."""
    own_time: int
    """Processor time of pytrace itself, in that time."""
    memory: int
    """Most memory that pytrace itself had at a time (its resident set)."""
    maps: int
    """Memory of the maps in the kernel."""

    @property
    def total(self) -> int:
        """Processor time of everything."""
        return self.own_time + sum(cost.total for cost in self.probes)

    @property
    def share(self) -> float:
        """Part of one processor's time."""
        return self.total / self.duration if self.duration else 0.0


def entry_costs(programs: Sequence[ProgramSpec]) -> list[float]:
    """Nanoseconds that a hit of each program costs apart from the program; 0 if the tracer itself runs it.

    Programs on one instruction share its trap, as do functions that one ends in: ``malloc`` returns for ``realloc``,
    too. A program that is on several places is taken to be hit at each as often.
    """
    # Instructions of user programs, which only these share.
    places = [
        [(program.kind, place.path, place.offset) for place in (target.place for target in program.targets)
         if isinstance(place, FileTarget)]
        for program in programs
    ]  # fmt: skip
    at = Counter(chain.from_iterable(places))
    costs = []
    for program, own in zip(programs, places, strict=True):
        # Tracepoints that were compiled for the raw tracepoint; an iterator runs when the tracer reads it.
        kind = probe_kinds.RAWTRACEPOINT if program.multi in (SYSTEM_CALLS, RAW_TRACEPOINT) else program.kind
        shares = [1 / at[place] for place in own]
        costs.append(ENTRY.get(kind, 0) * (sum(shares) / len(shares) if shares else 1))
    return costs
