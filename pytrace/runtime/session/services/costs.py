"""Costs of a run: of programs as the kernel times them, of reaching them, of the tracer itself."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import msgspec

from pytrace.core.costs import ASSUMED, ProbeCost, RunCost, entry_cost
from pytrace.core.manifest import HITS, Manifest, ProgramSpec
from pytrace.core.probes.kinds import known_kind
from pytrace.results.formats.cost_forms import cost_line, cost_text
from pytrace.runtime.load import map_memory
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.services.losses import CounterReader
from pytrace.runtime.session.services.service import Service


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
            maps=sum(map(map_memory.charged, self._loaded.map_fds)),
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
            return {index: (ASSUMED * count, count) for index, count in hits.items()}
        return {
            index: bpf.run_statistics(self._loaded.program_fd(specs[index].symbol)) for index in self.programs
        }

    def _cost(self, index: int, run_time: int, hits: int) -> ProbeCost:
        return ProbeCost(
            self.name(index),
            hits,
            run_time,
            hits * entry_cost(self._loaded.manifest.programs[index]),
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
            self._tell(f"hits after filters were counted, and {ASSUMED} ns assumed for each\n")
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
