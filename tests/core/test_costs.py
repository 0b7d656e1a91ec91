"""What tracing costs: the table of entry costs, sums."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytrace.core import probe_kinds
from pytrace.core.costs import ENTRY, ProbeCost, RunCost, entry_costs
from pytrace.core.manifest import Target
from pytrace.core.probe_kinds import UserTarget
from tests.support.fake_run import program


def test_each_kind_that_events_run_has_an_entry_cost() -> None:
    # An iterator runs when the tracer reads it.
    assert {row.name for row in probe_kinds.PROBE_KINDS if not row.special} - {probe_kinds.ITER} == set(ENTRY)


@pytest.mark.parametrize(
    ("kind", "multi", "expected"),
    [
        (probe_kinds.UPROBE, "", ENTRY[probe_kinds.UPROBE]),
        (probe_kinds.TRACEPOINT, "system_calls", ENTRY[probe_kinds.RAWTRACEPOINT]),
        (probe_kinds.TRACEPOINT, "raw_tracepoint", ENTRY[probe_kinds.RAWTRACEPOINT]),
        (probe_kinds.BEGIN, "", 0),
        (probe_kinds.ITER, "", 0),
    ],
)
def test_the_entry_cost_is_that_of_how_a_program_is_attached(kind: str, multi: str, expected: int) -> None:
    spec = program(kind)
    assert entry_costs([type(spec)(spec.symbol, kind, 0, spec.targets, spec.location, multi)]) == [expected]


def test_programs_at_one_instruction_share_its_trap() -> None:
    """realloc of the C library ends in malloc: a return there is one of both, and one trap."""
    first, second = program(probe_kinds.URETPROBE), program(probe_kinds.URETPROBE)
    malloc, realloc, free = (
        Target(name, 0, UserTarget("/libc", offset, symbol=name))
        for name, offset in (("malloc", 8), ("realloc", 8), ("free", 16))
    )
    costs = entry_costs([replace(first, targets=(malloc, realloc)), replace(second, targets=(malloc, free))])
    assert costs == [ENTRY[probe_kinds.URETPROBE] * share for share in (1 / 3, (1 / 3 + 1) / 2)]


def test_the_share_is_of_one_processor() -> None:
    probes = (ProbeCost("k:a", 10, 400, 600), ProbeCost("k:b", 1, 500, 0))
    cost = RunCost(10_000, 4, probes, 500, 0, 0)
    assert (probes[0].total, cost.total, cost.share) == (1000, 2000, 0.2)
    assert RunCost(0, 1, (), 0, 0, 0).share == 0
