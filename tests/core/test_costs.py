"""What tracing costs: the table of entry costs, sums."""

from __future__ import annotations

import pytest

from pytrace.core import probe_kinds
from pytrace.core.costs import ENTRY, ProbeCost, RunCost, entry_cost
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
    assert entry_cost(type(spec)(spec.symbol, kind, 0, spec.targets, spec.location, multi)) == expected


def test_the_share_is_of_one_processor() -> None:
    probes = (ProbeCost("k:a", 10, 400, 600), ProbeCost("k:b", 1, 500, 0))
    cost = RunCost(10_000, 4, probes, 500, 0, 0)
    assert (probes[0].total, cost.total, cost.share) == (1000, 2000, 0.2)
    assert RunCost(0, 1, (), 0, 0, 0).share == 0
