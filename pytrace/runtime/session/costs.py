"""Costs of a run: of programs as the kernel times them, of reaching them, of the tracer itself; and ``--budget``, which
samples or detaches programs that cost too much.
"""

from __future__ import annotations

import math
import os
import resource
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property

import msgspec

from pytrace.core.costs import ProbeCost, RunCost, entry_costs
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import HITS, WEIGHT, Manifest, ProgramSpec, SampledUnit
from pytrace.core.options import SAMPLE, Budget
from pytrace.core.probe_kinds import INTERVAL, ITER, known_kind
from pytrace.core.types import SUMS, Type
from pytrace.render import json
from pytrace.results.formats.about import cost_line, cost_text
from pytrace.runtime.load import loaded_script
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.services import CounterReader, Service

PERIOD = 0.25
"""Seconds between two measurements of costs."""
WINDOW, _OWN_WINDOW = 1.0, 5.0
"""Seconds over which costs are averaged: of programs; of the tracer, which works in bursts."""
_SOON = 4.0
"""How often the budget must be exceeded to act after one :data:`PERIOD`, not two."""
TARGET = 0.7
"""Part of the budget that sampling aims at."""
_LITTLE, _CALM = 0.2, 5.0
"""Sampling is relaxed when costs were below this part of the budget for this number of seconds."""
MOST = 1 << 16
"""Maximum weight of a hit."""
_STATISTICS = 40
"""Nanoseconds that the kernel's timing adds to each run of a program, most of which it does not see itself.

Two reads of the clock and the update of the counters (``__bpf_prog_enter``, ``bpf_prog_run`` under
``bpf_stats_enabled_key``).
"""
_GATE = 30
"""Nanoseconds of a program that ends at its gate, as the hit is left out."""
_ASSUMED = 300
"""Nanoseconds of a program that the kernel does not time."""


class Measured(msgspec.Struct, frozen=True):
    """Costs since the start: time and processor time of pytrace, and (time, hits) of each program, in nanoseconds."""

    time: int
    own: int
    programs: Mapping[int, tuple[int, int]]


class Costs(Service):
    """Measures the costs of a run from when its probes are attached; reports them at its end.

    *tell* prints a notice on standard error; None: nothing is reported. *stack* ends the kernel's measurement.
    """

    def __init__(
        self, loaded: LoadedScript, output: Output, tell: Callable[[str], None] | None, stack: ExitStack
    ) -> None:
        self._loaded = loaded
        self._output = output
        self._tell = tell
        self._counters = CounterReader(loaded)
        self._start = self._own_start = 0
        self._end: tuple[int, int] | None = None
        self.refused = ""
        """Why the kernel does not time programs, if it does not: then hits are counted, as far as programs do."""
        try:
            stack.callback(os.close, bpf.enable_statistics())
        except OSError as error:
            self.refused = error.strerror or str(error)
        self.programs = _programs(loaded)
        """The units of each program that events run, by number."""
        self.weights: dict[int, int] = {}
        """With ``--budget``: the greatest weight of each program."""
        self.detached: set[int] = set()
        """With ``--budget``: programs that were detached."""

    @cached_property
    def entries(self) -> list[float]:
        """Nanoseconds that a hit of each program costs apart from it; known when one is told."""
        return entry_costs(self._loaded.manifest.programs)

    def keeper(
        self, budget: Budget, renderer: Renderer, detach: Callable[[int], None], warn: Callable[[str], None]
    ) -> BudgetKeeper:
        """The service that keeps the budget of ``--budget`` by these measurements; errors: :class:`BudgetKeeper`."""
        return BudgetKeeper(budget, self._loaded, self, renderer, detach, self._output, warn)

    def attached(self) -> None:
        """Costs count from here."""
        self._start, self._own_start = _now()

    def stop(self) -> None:
        """The end of what is measured."""
        self._end = _now()

    def read(self) -> RunCost:
        """Costs so far, or of the whole run after its end."""
        end, own_end = self._end or _now()
        costs = [self._cost(index, *numbers) for index, numbers in self._numbers().items()]
        return RunCost(
            duration=end - self._start,
            processors=os.cpu_count() or 1,
            probes=tuple(sorted(costs, key=lambda cost: (-cost.total, cost.probe))),
            own_time=own_end - self._own_start,
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            maps=sum(map(loaded_script.charged_bytes, self._loaded.map_fds)),
        )

    def measured(self) -> Measured:
        """Costs so far, for the budget."""
        moment, own = _now()
        return Measured(moment, own, self._numbers())

    def _numbers(self) -> dict[int, tuple[int, int]]:
        """Nanoseconds in each program, and its hits."""
        specs = self._loaded.manifest.programs
        if self.refused:
            counts = self._counters.totals()
            hits = {index: sum(counts.get((HITS, unit), 0) for unit in units) for index, units in self.programs.items()}
            return {index: (_ASSUMED * count, count) for index, count in hits.items()}
        return {
            index: bpf.run_statistics(self._loaded.program_fd(specs[index].symbol)) for index in self.programs
        }

    def _cost(self, index: int, run_time: int, hits: int) -> ProbeCost:
        return ProbeCost(
            self.name(index),
            hits,
            run_time,
            round(hits * self.entries[index]),
            self.weights.get(index, 1),
            index in self.detached,
        )

    def name(self, index: int) -> str:
        """The first probe of a program, and how many others run it."""
        return probe_name(self._loaded.manifest, self._loaded.manifest.programs[index])

    def report(self) -> None:
        """Report the costs, as a table on standard error, or as a line of JSON output."""
        if self._tell is None:
            return
        if self.refused:
            self._tell(f"the cost of tracing is not measured: {self.refused}\n")
            if self._loaded.manifest.sampling is None:
                return
            self._tell(f"hits after filters were counted, and {_ASSUMED} ns assumed for each\n")
        output, cost = self._output, self.read()
        if output.json:
            output.write(cost_line(cost))
            output.flush()
        else:
            self._tell(cost_text(cost))


def _programs(loaded: LoadedScript) -> dict[int, tuple[int, ...]]:
    """The programs that events run, by number, and the blocks' code in each."""
    specs = loaded.manifest.programs
    return {
        index: (index, *(unit for unit, part in enumerate(specs) if part.part_of == spec.symbol))
        for index, spec in enumerate(specs)
        if spec.symbol in loaded.symbols and not known_kind(spec.kind).special
    }


def _now() -> tuple[int, int]:
    """Monotonic time, and processor time of this process, in nanoseconds."""
    return time.monotonic_ns(), time.process_time_ns()


def probe_name(manifest: Manifest, program: ProgramSpec) -> str:
    """The first probe of a program, and how many others run it."""
    probes = [target.probe for target in program.targets]
    probes += [target.probe for part in manifest.programs if part.part_of == program.symbol for target in part.targets]
    if not probes:
        return program.kind
    return probes[0] if len(probes) == 1 else f"{probes[0]} and {len(probes) - 1} more"


# ---------------------------------------------------------------------------------------------- --budget


class Load(msgspec.Struct, frozen=True):
    """The cost of one program, in seconds of processor time per second."""

    index: int
    """Number of the program in the manifest."""
    floor: float
    """The cost of its hits that remains when all are left out."""
    body: float
    """The cost that sampling lowers: of the program, and of pytrace for its events."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.floor + self.body


class Decision(msgspec.Struct, frozen=True):
    """A change that keeps the budget: *weight* 0 detaches the program *index*."""

    index: int
    weight: int


def decide(loads: Sequence[Load], weights: Mapping[int, int], allowed: float, action: str) -> Decision | None:
    """The change that brings the sum of *loads* below *allowed*; None where it is below.

    Args:
        loads: the programs that are attached.
        weights: current weights of those that sampling may lower.
        allowed: the budget, in processors.
        action: as in :attr:`Budget.action`.
    """
    total = sum(load.total for load in loads)
    if total <= allowed or not loads:
        return None
    floors = sum(load.floor for load in loads)
    able = [load for load in loads if 1 <= weights.get(load.index, MOST) < MOST]
    if action != SAMPLE:
        return Decision(max(loads, key=lambda load: load.total).index, 0)
    if floors > allowed or not able:
        # No sampling keeps the budget: reaching the programs is too expensive already.
        return Decision(max(loads, key=lambda load: load.floor if floors > allowed else load.total).index, 0)
    worst = max(able, key=lambda load: load.body)
    others = sum(load.body for load in loads if load is not worst)
    room = max(TARGET * allowed - floors - others, 0.1 * allowed)
    factor = max(2, 1 << math.ceil(math.log2(max(worst.body / room, 1.0))))
    return Decision(worst.index, min(MOST, weights[worst.index] * factor))


def ease(loads: Sequence[Load], weights: Mapping[int, int], allowed: float) -> Decision | None:
    """The change after costs were low for some time: half the weight for one sampled program; None without one."""
    sampled = [load for load in loads if weights.get(load.index, 1) > 1]
    if sum(load.total for load in loads) > _LITTLE * allowed or not sampled:
        return None
    least = min(sampled, key=lambda load: load.body)
    return Decision(least.index, weights[least.index] // 2)


class BudgetKeeper(Service):
    """Measures the costs of a run every :data:`PERIOD`, and samples or detaches programs to keep its budget.

    *renderer* marks what is sampled; *detach* detaches a program by its number; *output* and *warn* are told
    of each change.

    Raises:
        TraceError: the script was compiled without a budget, so that it cannot be sampled.
    """

    def __init__(
        self,
        budget: Budget,
        loaded: LoadedScript,
        costs: Costs,
        renderer: Renderer,
        detach: Callable[[int], None],
        output: Output,
        warn: Callable[[str], None],
    ) -> None:
        self._budget = budget
        self._manifest = loaded.manifest
        _check(budget, loaded.manifest)
        self._costs, self._detach, self._output, self._warn = costs, detach, output, warn
        self._marks = Marks(loaded.manifest, renderer.state.marks, renderer.state.event_marks)
        self._marked = renderer.mark_events
        self._allowed = budget.share * ((os.cpu_count() or 1) if budget.machine else 1)
        self._memory = None if loaded.manifest.sampling is None else loaded.section(loaded.manifest.sampling.section)
        self._unit_weights: dict[int, int] = {}
        self._linked = {index: linked(loaded.manifest, index) for index in costs.programs}
        self._groups = {index: self._sampled(units) for index, units in self._linked.items()}
        self._attached = {index for index in costs.programs if _may_act(loaded.manifest.programs[index])}
        """Programs that may be sampled or detached, and are attached."""
        if budget.action == SAMPLE:
            self._write(range(len(self._units)), 1)
        self._measured: deque[Measured] = deque()
        self._next = self._changed = 0.0

    @property
    def _units(self) -> Sequence[SampledUnit]:
        return () if self._manifest.sampling is None else self._manifest.sampling.units

    def _sampled(self, units: Iterable[int]) -> tuple[int, ...]:
        """Those of *units* that may be sampled."""
        return tuple(sorted(at for at in units if at < len(self._units) and self._units[at].sampled))

    # ---- phases of the run

    def begin(self) -> None:
        """Costs count from here."""
        if self._costs.refused:
            self._warn(
                f"the kernel does not time programs ({self._costs.refused}): --budget counts hits, and assumes "
                f"{_ASSUMED} ns in the program for each"
            )
        self._measured.append(self._costs.measured())
        self._next = time.monotonic() + PERIOD

    def pause(self, longest: float) -> float:
        """Seconds until the next look, at most *longest*."""
        return min(longest, max(0.0, self._next - time.monotonic()))

    def woken(self, _ready: list[int]) -> None:
        """Look at the costs, once in :data:`PERIOD` seconds."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PERIOD
        self._measured.append(self._costs.measured())
        while self._measured[-1].time - self._measured[0].time > _OWN_WINDOW * 1e9:
            self._measured.popleft()
        self._look()

    def _look(self) -> None:
        last = self._measured[-1]
        since = max(last.time - WINDOW * 1e9, self._changed)
        first = next((item for item in self._measured if item.time >= since), last)
        seconds = (last.time - first.time) / 1e9
        if seconds < PERIOD / 2:
            return
        loads = self._loads(first, last)
        total = sum(load.total for load in loads)
        if total > self._allowed and (seconds > 1.5 * PERIOD or total > _SOON * self._allowed):
            decision = decide(loads, self._weights(), self._allowed, self._budget.action)
        elif last.time - self._changed > _CALM * 1e9:
            decision = ease(loads, self._weights(), self._allowed)
        else:
            decision = None
        if decision is not None:
            self._apply(decision, loads)
            self._changed = float(last.time)

    def _loads(self, first: Measured, last: Measured) -> list[Load]:
        span = last.time - first.time
        hits = {index: last.programs[index][1] - first.programs[index][1] for index in self._attached}
        own = self._own_shares(hits)
        loads = []
        for index in sorted(self._attached):
            ran = last.programs[index][0] - first.programs[index][0]
            gate = min(hits[index] * _GATE, ran)
            entry = self._costs.entries[index] + (0 if self._costs.refused else _STATISTICS)
            loads.append(Load(index, (hits[index] * entry + gate) / span, (ran - gate) / span + own.get(index, 0.0)))
        return loads

    def _own_shares(self, hits: Mapping[int, int]) -> dict[int, float]:
        """Processor time of pytrace by program that sends events, as many as ran in it."""
        first, last = self._measured[0], self._measured[-1]
        sending = {index: hits[index] / self._weight(index) for index in hits if self._sends(index)}
        total = sum(sending.values())
        if last.time - first.time < 2e9 or not total:
            return {}
        own = (last.own - first.own) / (last.time - first.time)
        return {index: own * part / total for index, part in sending.items()}

    def _sends(self, index: int) -> bool:
        sampling = self._manifest.sampling
        if sampling is None:
            return bool(self._manifest.events)
        return any(sampling.units[unit].events for unit in self._costs.programs[index])

    # ---- changes

    def _weight(self, index: int) -> int:
        return max((self._unit_weights.get(unit, 1) for unit in self._groups.get(index, ())), default=1)

    def _weights(self) -> dict[int, int]:
        """Weights of the programs that can be sampled."""
        return {index: self._weight(index) for index in self._attached if self._groups.get(index)}

    def _apply(self, decision: Decision, loads: Sequence[Load]) -> None:
        total = sum(load.total for load in loads)
        takes = f"tracing takes {100 * total:.2g}% of a CPU, more than --budget {self._budget.text}"
        if not decision.weight:
            # What depends on hits of it would go on with what is left of them.
            gone = sorted(at for at in self._attached if self._linked[decision.index].intersection(self._linked[at]))
            name = ", ".join(map(self._costs.name, gone))
            for index in gone:
                self._attached.discard(index)
                self._detach(index)
                self._costs.detached.add(index)
            why = "; sampling does not lower what it costs to reach it" if self._budget.action == SAMPLE else ""
            text = f"{takes}: {name} {'is' if len(gone) == 1 else 'are'} detached{why}"
        else:
            units = self._groups[decision.index]
            eased = decision.weight < self._weight(decision.index)
            self._write(units, decision.weight)
            self._marks.add(units)
            self._marked()
            programs = self._costs.programs
            name = ", ".join(self._costs.name(at) for at in programs if set(units).intersection(programs[at]))
            what = f"{name} is sampled, 1 in {decision.weight} hits"
            text = f"tracing is within --budget {self._budget.text}: {what}" if eased else (
                f"{takes}: {what}; what it counts is scaled, and marked as an estimate"
            )  # fmt: skip
        if self._output.json:
            self._output.write(json.line("budget", self._data(decision, name, total)))
        self._warn(text)

    def _data(self, decision: Decision, name: str, total: float) -> bytes:
        return json.mapping([
            (b"probe", json.quoted(name.encode("utf-8", "surrogateescape"))),
            (b"action", b'"sample"' if decision.weight else b'"detach"'),
            (b"weight", b"%d" % decision.weight),
            (b"share", b"%.4f" % total),
            (b"budget", b"%.4f" % self._allowed),
        ])  # fmt: skip

    def _write(self, units: Iterable[int], weight: int) -> None:
        sampling = self._manifest.sampling
        if sampling is None or self._memory is None:
            return
        for unit in units:
            # Before the weight, as values that are stored with one have it beside them from then on.
            if weight != 1:
                struct.pack_into("=Q", self._memory, sampling.offset, 1)
                self._unit_weights[unit] = weight
            struct.pack_into("=Q", self._memory, sampling.offset + WEIGHT * (1 + unit), weight)
            if weight == 1:
                self._unit_weights.pop(unit, None)
        for index, own in self._costs.programs.items():
            most = max((self._unit_weights.get(unit, 1) for unit in own), default=1)
            self._costs.weights[index] = max(self._costs.weights.get(index, 1), most)


def linked(manifest: Manifest, index: int) -> set[int]:
    """The units of a program, and those that depend on hits of them, or they on theirs, by maps."""
    found = {index} | {
        at for at, part in enumerate(manifest.programs) if part.part_of == manifest.programs[index].symbol
    }
    units = () if manifest.sampling is None else manifest.sampling.units
    maps: set[str] = set()
    while not maps >= (more := {name for at in found if at < len(units) for name in units[at].linked}):
        maps |= more
        found |= {at for at, unit in enumerate(units) if maps.intersection(unit.linked)}
    return found


def _may_act(program: ProgramSpec) -> bool:
    return not program.service and program.kind not in (INTERVAL, ITER)


def _check(budget: Budget, manifest: Manifest) -> None:
    samples = any(_may_act(program) and not known_kind(program.kind).special for program in manifest.programs)
    if budget.action == SAMPLE and manifest.sampling is None and samples:
        raise TraceError(
            "the script was compiled without --budget, and cannot be sampled",
            hints=("compile it with --budget, or run it with --over-budget detach",),
        )


# ---------------------------------------------------------------------------------------------- marks

ESTIMATE = "estimate"
"""The mark of what is scaled: each hit counted for those that were left out."""
ONLY_SAMPLED = "sample"
"""The mark of what is of some of the hits only: values that cannot be scaled, as the greatest, the last one, a text."""


class Marks:
    """The marks of what was counted while hits were left out: of maps, and of events that print something.

    They only become more, as values keep what was added while hits were left out.

    Args:
        manifest: that of the script.
        maps: filled with the marks of maps by name.
        events: filled with those of events by id.
    """

    def __init__(self, manifest: Manifest, maps: dict[str, str], events: dict[int, str]) -> None:
        self._units: tuple[SampledUnit, ...] = manifest.sampling.units if manifest.sampling is not None else ()
        self._values: Mapping[str, Type] = {item.name: item.value for item in manifest.maps}
        self._maps, self._events = maps, events

    def add(self, units: Iterable[int]) -> None:
        """Hits of the programs *units* are left out from now on: mark what they write, and what is made of that."""
        for number in units:
            self._mark(self._units[number], ONLY_SAMPLED, counts=True)
        before: dict[str, str] | None = None
        while before != self._maps:
            before = dict(self._maps)
            for unit in self._units:
                read = {self._maps[name] for name in unit.reads if name in self._maps}
                if read:
                    self._mark(unit, ONLY_SAMPLED if ONLY_SAMPLED in read else ESTIMATE, counts=unit.inherits)

    def _mark(self, unit: SampledUnit, mark: str, *, counts: bool) -> None:
        """Mark what a program writes and sends; *counts*: its aggregations are scaled."""
        for name in unit.writes:
            scaled = counts and isinstance(self._values[name], SUMS)
            # Of two marks that of a sample stays, which promises less.
            if self._maps.get(name) != ONLY_SAMPLED:
                self._maps[name] = ESTIMATE if scaled else mark
        for event in unit.events:
            if self._events.get(event) != ONLY_SAMPLED:
                self._events[event] = mark
