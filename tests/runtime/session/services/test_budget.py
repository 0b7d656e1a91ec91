"""The budget: what is decided for which load, and what is written, detached and said."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, MapSpec, SampledUnit, Sampling
from pytrace.core.options.run_options import Budget
from pytrace.core.probes import kinds
from pytrace.runtime.output.run_state import RunState
from pytrace.runtime.session.services import budget as module
from pytrace.runtime.session.services.budget import MOST, BudgetKeeper, Decision, Load, decide, ease, linked
from pytrace.runtime.session.services.costs import Measured
from tests.support.fake_run import program

PROGRAMS = (
    program(kinds.RAWTRACEPOINT, "head"), program(kinds.RAWTRACEPOINT, "tail"), program(kinds.TRACEPOINT, "alone"),
    program(kinds.INTERVAL, "timer"),
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
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
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
            name=lambda index: PROGRAMS[index].symbol, measured=self._measured,
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
            self.now += module.PERIOD
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
    assert run.keeper.pause(10.0) == pytest.approx(module.PERIOD)
    assert run.keeper.pause(0.1) == 0.1
