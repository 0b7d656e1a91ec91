"""Measurement of a run's costs, with a kernel of numbers."""

from __future__ import annotations

import os
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core.config import Config
from pytrace.core.costs import ENTRY
from pytrace.core.manifest import Manifest, ProgramSpec
from pytrace.core.probes import kinds
from pytrace.runtime.session.services import costs as module
from pytrace.runtime.session.services.costs import Costs, probe_name
from tests.support.fake_run import program

UPROBE = program(kinds.UPROBE, "u", targets=3)
CALL = replace(program(kinds.TRACEPOINT, "first"), multi="system_calls")
SECOND = replace(program(kinds.TRACEPOINT, "second", targets=2), multi="system_calls", part_of="first")


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
    monkeypatch.setattr(module.bpf, "enable_statistics", lambda: os.open("/dev/null", os.O_RDONLY))
    monkeypatch.setattr(module.bpf, "run_statistics", numbers.__getitem__)
    times = iter([(1_000, 10), (501_000, 60)])
    monkeypatch.setattr(module, "_now", lambda: next(times))
    return numbers


@pytest.mark.usefixtures("measured")
def test_costs_are_those_of_probes_the_tracer_and_its_maps() -> None:
    with ExitStack() as stack:
        costs = _costs(stack, Said(), UPROBE, CALL, SECOND, program(kinds.BEGIN))
        costs.attached()
        costs.stop()
        cost = costs.read()
    assert (cost.duration, cost.own_time, cost.maps) == (500_000, 50, 0)
    assert cost.memory > 1 << 20
    assert [(item.probe, item.hits, item.run_time, item.entry) for item in cost.probes] == [
        ("uprobe:0 and 2 more", 10, 3000, 10 * ENTRY[kinds.UPROBE]),
        ("tracepoint:0 and 2 more", 20, 500, 20 * ENTRY[kinds.RAWTRACEPOINT]),
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

    monkeypatch.setattr(module.bpf, "enable_statistics", refuse)
    said = Said()
    with ExitStack() as stack:
        _costs(stack, said, UPROBE).report()
    assert said.texts == ["the cost of tracing is not measured: Operation not permitted\n"]


def test_a_program_is_named_by_its_first_probe() -> None:
    manifest = Manifest((UPROBE, CALL, SECOND), (), (), (), Config())
    assert probe_name(manifest, program(kinds.UPROBE, "one")) == "uprobe:0"
    assert probe_name(manifest, UPROBE) == "uprobe:0 and 2 more"
    assert probe_name(manifest, CALL) == "tracepoint:0 and 2 more"
    assert probe_name(manifest, program(kinds.UPROBE, "none", targets=0)) == kinds.UPROBE
