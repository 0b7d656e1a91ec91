"""What bounds a run: time of probes, costs, memory."""

from __future__ import annotations

import json
import os
import struct
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.base import cgroups
from pytrace.base.cgroups import MemoryLimit
from pytrace.core import probe_kinds, types
from pytrace.core.costs import ENTRY, entry_costs
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec, SampledUnit, Sampling
from pytrace.core.options import Budget, Config
from pytrace.core.types import INT64, Type
from pytrace.runtime.output.renderer import RunState
from pytrace.runtime.session import costs, watches
from pytrace.runtime.session.costs import (
    ESTIMATE,
    MOST,
    ONLY_SAMPLED,
    BudgetKeeper,
    Costs,
    Decision,
    Load,
    Marks,
    Measured,
    decide,
    ease,
    linked,
    probe_name,
)
from pytrace.runtime.session.services import EndOfRun
from pytrace.runtime.session.watches import MemoryWatch
from tests.support.fake_run import program

# ---------------------------------------------------------------------------------------------- budget
# The budget: what is decided for which load, and what is written, detached and said.


PROGRAMS = (
    program(probe_kinds.RAWTRACEPOINT, "head"), program(probe_kinds.RAWTRACEPOINT, "tail"),
    program(probe_kinds.TRACEPOINT, "alone"),
    program(probe_kinds.INTERVAL, "timer"),
)  # fmt: skip
UNITS = (
    SampledUnit(True, False, (), ("@t",), (), ("@t",)),
    SampledUnit(False, True, ("@t",), (), (0,), ("@t",)),
    SampledUnit(True, False, (), (), (), ()),
    SampledUnit(False, False, (), (), (), ()),
)
START = MapSpec("@t", "map_t", "hash", types.INT64, types.INT64, 1)
MANIFEST = Manifest(PROGRAMS, (START,), (), (), Config(), sampling=Sampling("data", 16, UNITS))


# ---------------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("loads", "weights", "expected"),
    [
        ([Load(0, 0.001, 0.008)], {0: 1}, None),
        # 0.07 for both, of which 0.01 is the way there: the body of 0.5 is to be 0.06 at most.
        ([Load(0, 0.01, 0.5)], {0: 1}, Decision(0, 16)),
        ([Load(0, 0.01, 0.5)], {0: 4}, Decision(0, 64)),
        ([Load(0, 0.01, 0.1), Load(1, 0.01, 0.5)], {0: 1, 1: 1}, Decision(1, 64)),
        ([Load(0, 0.01, 0.1), Load(1, 0.01, 0.5)], {0: 1}, Decision(0, 16)),
        ([Load(0, 0.01, 0.5)], {0: MOST // 2}, Decision(0, MOST)),
        # Sampling cannot lower it: the way there is too expensive, or it is never sampled, or can be no more.
        ([Load(0, 0.2, 0.5), Load(1, 0.3, 0.0)], {0: 1}, Decision(1, 0)),
        ([Load(0, 0.01, 0.5)], {}, Decision(0, 0)),
        ([Load(0, 0.01, 0.5)], {0: MOST}, Decision(0, 0)),
        ([], {}, None),
    ],
)
def test_decisions(loads: list[Load], weights: dict[int, int], expected: Decision | None) -> None:
    assert decide(loads, weights, 0.1, "sample") == expected


def test_detaching_takes_the_most_expensive() -> None:
    loads = [Load(0, 0.01, 0.2), Load(1, 0.25, 0.0)]
    assert decide(loads, {0: 1}, 0.1, "detach") == Decision(1, 0)
    assert decide(loads, {0: 1}, 0.5, "detach") is None


@pytest.mark.parametrize(
    ("loads", "weights", "expected"),
    [
        ([Load(0, 0.001, 0.001)], {0: 8}, Decision(0, 4)),
        ([Load(0, 0.001, 0.001)], {0: 1}, None),
        ([Load(0, 0.001, 0.05)], {0: 8}, None),
        ([Load(0, 0.001, 0.002), Load(1, 0.001, 0.001)], {0: 8, 1: 2}, Decision(1, 1)),
    ],
)
def test_room_in_the_budget_is_used_again(
    loads: list[Load], weights: dict[int, int], expected: Decision | None
) -> None:
    assert ease(loads, weights, 0.1) == expected


def test_programs_are_linked_by_maps() -> None:
    assert [linked(MANIFEST, index) for index in range(4)] == [{0, 1}, {0, 1}, {2}, {3}]


# ---------------------------------------------------------------------------------------------- a run


class Run:
    """A keeper, whose costs are numbers of the test: nanoseconds of each program in each quarter of a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, budget: Budget, manifest: Manifest = MANIFEST) -> None:
        self.now = 100.0
        monkeypatch.setattr(costs.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(costs.os, "cpu_count", lambda: 4)
        self.memory = memoryview(bytearray(64))
        self.spent = {0: 0, 1: 0, 2: 0, 3: 0}
        self.hits = dict.fromkeys(self.spent, 0)
        self.own = 0
        self.detached: list[int] = []
        self.said: list[str] = []
        self.lines: list[Any] = []
        self.marked = 0
        self.costs = SimpleNamespace(
            programs={index: (index,) for index in self.spent}, refused="", weights={}, detached=set(),
            name=lambda index: PROGRAMS[index].symbol, measured=self._measured, entries=entry_costs(PROGRAMS),
        )  # fmt: skip
        self.state = RunState()
        renderer = SimpleNamespace(state=self.state, mark_events=self._mark)
        loaded = SimpleNamespace(manifest=manifest, section=lambda _: self.memory)
        output = SimpleNamespace(json=True, write=lambda line: self.lines.append(json.loads(line)))
        self.keeper = BudgetKeeper(
            budget, cast(Any, loaded), cast(Any, self.costs), cast(Any, renderer), self.detached.append,
            cast(Any, output), self.said.append,
        )  # fmt: skip
        self.keeper.begin()

    def _mark(self) -> None:
        self.marked += 1

    def _measured(self) -> Measured:
        numbers = {index: (self.spent[index], self.hits[index]) for index in self.spent}
        return Measured(int(self.now * 1e9), self.own, numbers)

    def passes(self, *, quarters: int = 4, own: int = 0, hits: int = 1000, **milliseconds: int) -> None:
        """Let time pass, in which programs spend so much in each quarter of a second."""
        for _ in range(quarters):
            self.now += costs.PERIOD
            self.own += own * 1_000_000
            for name, spent in milliseconds.items():
                index = [item.symbol for item in PROGRAMS].index(name)
                self.spent[index] += spent * 1_000_000
                self.hits[index] += hits
            self.keeper.woken([])

    @property
    def weights(self) -> tuple[int, ...]:
        return struct.unpack_from("=5Q", self.memory, 16)


def test_under_the_budget_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.passes(quarters=40, alone=20)
    assert (run.weights, run.said, run.detached, run.marked) == ((0, 1, 1, 1, 1), [], [], 0)


def test_an_expensive_program_is_sampled_and_this_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.passes(quarters=3, alone=40)
    assert run.weights == (1, 1, 1, 4, 1)
    assert run.said == [
        ("tracing takes 16% of a CPU, more than --budget 10%: alone is sampled, 1 in 4 hits; what it counts is scaled, "
        "and marked as an estimate")
    ]
    (line,) = run.lines
    assert line["type"] == "budget"
    assert (line["data"]["probe"], line["data"]["action"], line["data"]["weight"]) == ("alone", "sample", 4)
    assert (run.costs.weights[2], run.marked) == (4, 1)


def test_a_pair_is_sampled_by_its_first_program(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.passes(quarters=3, tail=200)
    assert run.weights[1] > 1
    assert run.weights[2] == 1
    assert run.said[0].startswith("tracing takes 80% of a CPU, more than --budget 10%: head is sampled")


def test_a_pair_is_detached_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    # So many hits that reaching the programs is too expensive.
    run.passes(quarters=3, tail=100, hits=1_000_000)
    assert run.detached == [0, 1]
    assert run.costs.detached == {0, 1}
    assert run.said[-1].endswith("head, tail are detached; sampling does not lower what it costs to reach it")
    run.passes(quarters=10, tail=100, hits=1_000_000)
    assert run.detached == [0, 1]


def test_detaching_is_the_other_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = replace(MANIFEST, sampling=None)
    run = Run(monkeypatch, Budget(0.1, action="detach"), manifest)
    run.passes(quarters=3, alone=40)
    assert (run.detached, bytes(run.memory)) == ([2], bytes(64))
    assert run.said[0].endswith("more than --budget 10%: alone is detached")


def test_timers_are_neither_sampled_nor_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.passes(quarters=10, timer=200)
    assert (run.detached, run.said) == ([], [])


def test_a_burst_of_a_quarter_of_a_second_is_let_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.passes(quarters=1, alone=45)
    run.passes(quarters=10)
    assert run.said == []


def test_time_of_pytrace_is_that_of_programs_that_send_events(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.passes(quarters=20, own=100, alone=1)
    assert run.said == []
    run.passes(quarters=12, own=100, tail=1)
    assert "head is sampled" in run.said[0]


def test_what_is_left_of_the_budget_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.passes(quarters=3, alone=40)
    run.passes(quarters=100, hits=10)
    assert run.weights[3] == 1
    assert run.said[1:] == [
        "tracing is within --budget 10%: alone is sampled, 1 in 2 hits",
        "tracing is within --budget 10%: alone is sampled, 1 in 1 hits",
    ]
    assert run.costs.weights[2] == 4


def test_a_budget_may_be_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1, machine=True))
    run.passes(quarters=8, alone=80)
    assert run.said == []
    assert Budget(0.1, machine=True).text == "10%machine"


def test_a_script_without_gates_cannot_be_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="compiled without --budget"):
        Run(monkeypatch, Budget(0.1), replace(MANIFEST, sampling=None))


def test_costs_that_are_not_measured_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    run.costs.refused = "Operation not permitted"
    run.keeper.begin()
    assert run.said == [
        (
            "the kernel does not time programs (Operation not permitted): --budget counts hits, and assumes 300 ns "
            "in the program for each"
        )
    ]


def test_waits_end_with_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Budget(0.1))
    assert run.keeper.pause(10.0) == pytest.approx(costs.PERIOD)
    assert run.keeper.pause(0.1) == 0.1


# ---------------------------------------------------------------------------------------------- costs
# Measurement of a run's costs, with a kernel of numbers.


UPROBE = program(probe_kinds.UPROBE, "u", targets=3)
CALL = replace(program(probe_kinds.TRACEPOINT, "first"), multi="system_calls")
SECOND = replace(program(probe_kinds.TRACEPOINT, "second", targets=2), multi="system_calls", part_of="first")


class Said:
    """Notices, and output that is text or JSON."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        self.texts: list[str] = []
        self.lines: list[bytes] = []

    def tell(self, text: str) -> None:
        self.texts.append(text)

    def write(self, data: bytes) -> None:
        self.lines.append(data)

    def flush(self) -> None: ...


def _costs(stack: ExitStack, said: Said, *programs: ProgramSpec, maps: tuple[int, ...] = ()) -> Costs:
    loaded = SimpleNamespace(
        manifest=Manifest(programs, (), (), (), Config()),
        symbols=[spec.symbol for spec in programs if not spec.part_of],
        program_fd=lambda symbol: {"u": 101, "first": 102, "begin_0": 103}[symbol],
        map_fds=maps,
    )
    return Costs(cast(Any, loaded), cast(Any, said), said.tell, stack)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """What the kernel measured, by descriptor."""
    numbers = {101: (3000, 10), 102: (500, 20), 103: (99, 1)}
    monkeypatch.setattr(costs.bpf, "enable_statistics", lambda: os.open("/dev/null", os.O_RDONLY))
    monkeypatch.setattr(costs.bpf, "run_statistics", numbers.__getitem__)
    times = iter([(1_000, 10), (501_000, 60)])
    monkeypatch.setattr(costs, "_now", lambda: next(times))
    return numbers


@pytest.mark.usefixtures("measured")
def test_costs_are_those_of_probes_the_tracer_and_its_maps() -> None:
    with ExitStack() as stack:
        costs = _costs(stack, Said(), UPROBE, CALL, SECOND, program(probe_kinds.BEGIN))
        costs.attached()
        costs.stop()
        cost = costs.read()
    assert (cost.duration, cost.own_time, cost.maps) == (500_000, 50, 0)
    assert cost.memory > 1 << 20
    assert [(item.probe, item.hits, item.run_time, item.entry) for item in cost.probes] == [
        ("uprobe:0 and 2 more", 10, 3000, 10 * ENTRY[probe_kinds.UPROBE]),
        ("tracepoint:0 and 2 more", 20, 500, 20 * ENTRY[probe_kinds.RAWTRACEPOINT]),
    ]


@pytest.mark.usefixtures("measured")
def test_the_end_of_the_run_ends_the_measurement() -> None:
    with ExitStack() as stack:
        costs = _costs(stack, Said(), UPROBE)
        costs.attached()
        costs.stop()
        assert costs.read() == costs.read()


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.usefixtures("measured")
def test_costs_are_reported_as_the_output_is(json: bool) -> None:
    said = Said(json=json)
    with ExitStack() as stack:
        costs = _costs(stack, said, UPROBE)
        costs.attached()
        costs.stop()
        costs.report()
    assert [text.partition(":")[0] for text in said.texts] == ([] if json else ["cost of tracing"])
    assert [line[:15] for line in said.lines] == ([b'{"type": "cost"'] if json else [])


def test_a_refusal_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(costs.bpf, "enable_statistics", refuse)
    said = Said()
    with ExitStack() as stack:
        _costs(stack, said, UPROBE).report()
    assert said.texts == ["the cost of tracing is not measured: Operation not permitted\n"]


def test_a_program_is_named_by_its_first_probe() -> None:
    manifest = Manifest((UPROBE, CALL, SECOND), (), (), (), Config())
    assert probe_name(manifest, program(probe_kinds.UPROBE, "one")) == "uprobe:0"
    assert probe_name(manifest, UPROBE) == "uprobe:0 and 2 more"
    assert probe_name(manifest, CALL) == "tracepoint:0 and 2 more"
    assert probe_name(manifest, program(probe_kinds.UPROBE, "none", targets=0)) == probe_kinds.UPROBE


# ---------------------------------------------------------------------------------------------- memory watch
# The memory of a run: whether its maps fit, and when it ends because of its limit.


M = 1 << 20
MAPS = (
    MapSpec("@a", "map_a", "hash", INT64, INT64, 1000),
    MapSpec("@large", "map_large", "hash", INT64, INT64, 2000, keys="keys_large"),
    MapSpec("@n", "", "hash", None, INT64, 1),
)


class Machine:
    """A machine with so much memory, and a run on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: str = "100M", *, embedded: bool = False) -> None:
        self.own, self.backlog, self.charged, self.now = 10 * M, 0, dict[str, int](), 100.0
        self.said: list[str] = []
        monkeypatch.setattr(watches, "machine_memory", lambda: (1000 * M, "this machine"))
        monkeypatch.setattr(watches, "own_memory", lambda: self.own)
        monkeypatch.setattr(watches, "charged_by_symbol", lambda _fds: self.charged)
        monkeypatch.setattr(watches.time, "monotonic", lambda: self.now)
        self.watch = MemoryWatch(wanted, Manifest((), MAPS, (), (), Config()), embedded=embedded)

    def load(self, **planned: int) -> None:
        self.watch.admit(planned)
        script = SimpleNamespace(fds_by_symbol=dict)
        self.watch.loaded(cast(Any, script), cast(Any, self), self.said.append, self.said.append)

    def look(self) -> bool:
        self.now += watches.MEMORY_EVERY
        self.watch.woken([])
        return self.watch.over


@pytest.mark.parametrize(
    ("wanted", "total", "limit", "origin"),
    [
        ("", 8000 * M, 800 * M, "the default is a tenth of the memory of this machine"),
        ("", 1000 * M, 256 * M, "the default is a tenth of the memory of this machine"),
        ("", 100 * M, 50 * M, "the default is a tenth of the memory of this machine"),
        ("30M", 1000 * M, 30 * M, "max_memory is 30M"),
        ("50%", 1000 * M, 500 * M, "max_memory is 50%"),
        ("2G", 1000 * M, 1000 * M, "max_memory is 2G, but this machine has 1000 MiB"),
    ],
)
def test_limits(wanted: str, total: int, limit: int, origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "machine_memory", lambda: (total, "this machine"))
    assert watches.limit(wanted) == (limit, origin)


def test_the_least_of_machine_and_cgroup_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, whole in ((None, "this machine"), (1 << 60, "this machine"), (7 * M, "this memory cgroup")):
        limit = None if allowed is None else MemoryLimit(allowed, "/a")
        monkeypatch.setattr(cgroups, "memory_limit", lambda limit=limit: limit)
        total, name = watches.machine_memory()
        assert name == whole
        assert (total == 7 * M) is (allowed == 7 * M)


def test_maps_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    with pytest.raises(TraceError) as found:
        machine.watch.admit({"map_a": 5 * M, "map_large": 60 * M, "keys_large": 30 * M, "events": 16 * M, ".data": M})
    assert found.value.message == (
        "the script needs 122 MiB of memory, more than 100 MiB (max_memory is 100M): @large 90.0 MiB, "
        "the event ring 16.0 MiB, pytrace itself with its symbol caches 10.0 MiB, others 6.0 MiB"
    )
    (hint,) = found.value.hints
    assert hint.startswith("@large has room for 2000 keys: lower max_map_keys, declare it with fewer, or allow more")


def test_a_ring_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError) as found:
        Machine(monkeypatch).watch.admit({"events": 128 * M})
    assert found.value.hints[0].startswith("lower perf_rb_pages, or allow more")


@pytest.mark.parametrize(("size", "told"), [(200, False), (300, True)])
def test_much_memory_of_maps_is_told_before_attaching(
    size: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, "900M")
    machine.charged = {"map_a": size * M + M}
    machine.load(map_a=size * M)
    assert bool(machine.said) is told
    if told:
        assert machine.said == ["Maps take 301 MiB of kernel memory: @a 301 MiB\n"]


def test_a_run_that_passes_its_limit_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.load(map_a=50 * M)
    assert not machine.look()
    machine.own, machine.backlog = 70 * M, 30 * M
    assert machine.look()
    (said,) = machine.said
    assert said == (
        "the run ends, as it takes 120 MiB of memory, more than 100 MiB (max_memory is 100M): @a 50.0 MiB, "
        "pytrace itself with its symbol caches 40.0 MiB, events that wait to be printed 30.0 MiB"
    )
    machine.look()
    assert len(machine.said) == 1
    end = EndOfRun(print_maps=True)
    machine.watch.finish(end)
    assert end.print_maps
    assert end.errors == ["the run was ended at its memory limit of 100 MiB (--max-memory)"]


def test_memory_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.load()
    machine.look()
    machine.own = 200 * M
    machine.watch.woken([])
    assert not machine.watch.over
    assert machine.look()


def test_a_run_below_its_limit_has_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.load(map_a=M)
    machine.look()
    end = EndOfRun(print_maps=True)
    machine.watch.finish(end)
    assert end.errors == []


def test_memory_of_a_program_that_embeds_the_run_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, embedded=True)
    machine.own = 500 * M
    machine.load(map_a=50 * M)
    assert not machine.look()
    machine.backlog = 60 * M
    assert machine.look()


def test_own_memory_is_what_this_process_has_allocated() -> None:
    before = watches.own_memory()
    data = bytearray(64 * M)
    data[::4096] = b"x" * (len(data) // 4096)
    assert 60 * M < watches.own_memory() - before < 80 * M


# ---------------------------------------------------------------------------------------------- marks
# Marks of what was counted while hits were left out.


def marked_map(name: str, value: Type) -> MapSpec:
    return MapSpec(name, "", "global", None, value, 1)


MARKED_MAPS = (
    marked_map("@count", types.Count()), marked_map("@max", types.Max(signed=True)), marked_map("@last", types.INT64),
    marked_map("@start", types.INT64), marked_map("@times", types.Hist(0)), marked_map("@rate", types.INT64),
    marked_map("@rates", types.Sum(signed=True)),
    marked_map("@other", types.Count()),
)  # fmt: skip
MARKED_UNITS = (
    SampledUnit(True, False, (), ("@count", "@last", "@max", "@start"), (0,), ("@start",)),
    SampledUnit(False, True, ("@start",), ("@times",), (1,), ("@start",)),
    SampledUnit(False, False, ("@count",), ("@rate",), (2,), ()),
    SampledUnit(False, False, ("@rate",), ("@rates",), (), ()),
    SampledUnit(True, False, (), ("@other",), (3,), ()),
)


def marked(*units: int) -> tuple[dict[str, str], dict[int, str]]:
    maps: dict[str, str] = {}
    events: dict[int, str] = {}
    manifest = Manifest((), MARKED_MAPS, (), (), Config(), sampling=Sampling("s", 0, MARKED_UNITS))
    Marks(manifest, maps, events).add(units)
    return maps, events


def test_what_is_scaled_is_an_estimate_and_the_rest_a_sample() -> None:
    maps, events = marked(0)
    assert {name: maps.get(name) for name in ("@count", "@max", "@last", "@start", "@other")} == {
        "@count": ESTIMATE, "@max": ONLY_SAMPLED, "@last": ONLY_SAMPLED, "@start": ONLY_SAMPLED, "@other": None,
    }  # fmt: skip
    assert events[0] == ONLY_SAMPLED


def test_what_is_made_of_it_is_marked_as_well() -> None:
    maps, events = marked(0)
    # The return counts with the weights of the entries; what a timer computes of an estimate is one.
    assert (maps["@times"], maps["@rate"], maps["@rates"]) == (ESTIMATE, ESTIMATE, ESTIMATE)
    assert events == {0: ONLY_SAMPLED, 1: ONLY_SAMPLED, 2: ESTIMATE}


def test_other_programs_are_exact() -> None:
    assert marked(4) == ({"@other": ESTIMATE}, {3: ONLY_SAMPLED})
    assert marked() == ({}, {})
