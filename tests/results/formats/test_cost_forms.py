"""Costs of a run as text and as JSON."""

from __future__ import annotations

import json

from msgspec.structs import replace

from pytrace.core.costs import ProbeCost, RunCost
from pytrace.results.formats.cost_forms import cost_line, cost_text

COST = RunCost(
    duration=2_000_000_000,
    processors=2,
    probes=(
        ProbeCost("uprobe:/bin/x:f and 2 more", 1000, 300_000, 9_000_000),
        ProbeCost("profile:hz:99", 0, 0, 0),
    ),
    own_time=20_000_000,
    memory=40 << 20,
    maps=3 << 19,
)


def test_the_table_has_a_row_for_each_probe_and_one_for_the_tracer() -> None:
    assert cost_text(COST) == (
        "cost of tracing: 1.47% of one CPU in 2.0 s\n"
        "probe                       hits  ns/hit  entry    total  of a CPU\n"
        "uprobe:/bin/x:f and 2 more  1000     300   9000   9.3 ms     0.47%\n"
        "profile:hz:99                  0       0      0   0.0 ms     0.00%\n"
        "pytrace itself                                   20.0 ms     1.00%\n"
        "memory: 40.0 MiB of pytrace, 1.5 MiB of its maps in the kernel\n"
    )


def test_the_line_of_json_has_the_same_numbers() -> None:
    line = json.loads(cost_line(COST))
    assert line["type"] == "cost"
    data = line["data"]
    probes = data.pop("probes")
    assert data == {
        "duration": 2_000_000_000, "processors": 2, "total": 29_300_000, "own_time": 20_000_000,
        "memory": 40 << 20, "maps": 3 << 19,
    }  # fmt: skip
    assert probes[0] == {
        "probe": "uprobe:/bin/x:f and 2 more", "hits": 1000, "run_time": 300_000, "entry": 9_000_000,
        "total": 9_300_000, "weight": 1, "detached": False,
    }  # fmt: skip


def test_what_was_limited_is_told_below() -> None:
    first, second = COST.probes
    cost = replace(COST, probes=(replace(first, weight=8, detached=True), replace(second, weight=2)))
    assert cost_text(cost).splitlines()[5:7] == [
        "uprobe:/bin/x:f and 2 more: sampled, 1 in 8 hits, then detached",
        "profile:hz:99: sampled, 1 in 2 hits",
    ]


def test_a_run_without_duration_has_no_shares() -> None:
    assert cost_text(RunCost(0, 1, (), 0, 0, 0)).startswith("cost of tracing: 0.00% of one CPU in 0.0 s\n")
