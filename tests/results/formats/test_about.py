"""What is known of the runs of a snapshot."""

from __future__ import annotations

import json

from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.results.formats import about
from pytrace.results.snapshot import MapData
from tests.support.snapshots import run, snapshot


def test_a_paragraph_names_runs_and_losses() -> None:
    found = snapshot(of=run(host="web1"))
    found.losses = {"lost": {"begin": 3}, "map_full": {"": 2}}
    assert about.text(found).splitlines() == [
        "# x.bt (SHA-256 abababababab) on web1, Linux 6.1.0 x86_64",
        "# 1970-01-01 00:01:40.000 UTC to 1970-01-01 00:01:50.000 UTC (10.000 s), run run-1, pytrace 0.1",
        "# lost: 3 (begin)",
        "# map_full: 2",
        "",
    ]


def test_maps_that_were_full_say_what_is_missing() -> None:
    counts = MapData("@calls", types.INT64, types.Count(), {1: 60, 2: 15})
    sums = MapData("@bytes", types.INT64, types.Sum(signed=False), {1: 4096})
    found = replace(snapshot(), maps={"@calls": counts, "@bytes": sums})
    found.losses = {"map_full": {"@calls": 25, "@bytes": 7}}
    assert list(about.losses(found)) == [
        "@bytes is incomplete: 7 updates found no room for their keys",
        "@calls is incomplete: 25 of 100 (25%) found no room for their keys",
    ]


def test_runs_of_one_script_on_one_host_are_told_together() -> None:
    runs = (run("run-1"), run("run-2", host="web2"), replace(run("run-3"), start=10**9))
    found = about.text(replace(snapshot(), runs=runs)).splitlines()
    assert [[*line.split()[1:6:4], line[-18:]] for line in found[:-1]] == [
        ["x.bt", "here,", "Linux 6.1.0 x86_64"], ["1970-01-01", "1970-01-01", "run-1, pytrace 0.1"],
        ["1970-01-01", "1970-01-01", "run-3, pytrace 0.1"],
        ["x.bt", "web2,", "Linux 6.1.0 x86_64"], ["1970-01-01", "1970-01-01", "run-2, pytrace 0.1"],
    ]  # fmt: skip


def test_a_line_of_json_has_the_same() -> None:
    found = snapshot(of=run(host="web\udcff"))
    found.losses = {"lost": {"begin": 3}}
    line = json.loads(about.json_line(found))
    (one,) = line["data"]["runs"]
    assert (line["type"], one["script"], one["parameters"], one["end"]) == ("snapshot", "x.bt", [], 110 * 10**9)
    assert one["end_time"] == "1970-01-01 00:01:50.000 UTC"
    assert line["data"]["losses"] == {"lost": {"begin": 3}}


def test_the_cost_of_a_run_follows_its_times() -> None:
    found = snapshot(of=run())
    found.costs = {"run-1": RunCost(10**9, 2, (ProbeCost("k:f", 10, 1000, 4000),), 10**7, 1 << 20, 1 << 19)}
    assert about.text(found).splitlines()[2:6] == [
        "# cost of tracing: 1.00% of one CPU in 1.0 s",
        "# probe           hits  ns/hit  entry    total  of a CPU",
        "# k:f               10     100    400   0.0 ms     0.00%",
        "# pytrace itself                       10.0 ms     1.00%",
    ]
    assert json.loads(about.json_line(found))["data"]["costs"]["run-1"]["own_time"] == 10**7


def test_gaps_of_a_run_follow_its_times() -> None:
    found = snapshot(of=replace(run(), gaps=((105 * 10**9, 1_500_000_000),)))
    assert about.text(found).splitlines()[2] == "# hits were skipped for 1.500 s from 1970-01-01 00:01:45.000 UTC"
    (one,) = json.loads(about.json_line(found))["data"]["runs"]
    assert one["gaps"] == [[105_000_000_000, 1_500_000_000]]
    assert "clock" not in one


def test_the_clock_of_a_host_of_a_fleet() -> None:
    found = snapshot(of=replace(run(), clock=(-2_500_123_000, 400_000)))
    assert about.text(found).splitlines()[1].endswith(", clock 2500.123 ms behind (± 0.400 ms)")
    (one,) = json.loads(about.json_line(found))["data"]["runs"]
    assert one["clock"] == [-2_500_123_000, 400_000]


def test_moments_are_in_utc_to_the_millisecond() -> None:
    assert about.moment(1_999_999_999) == "1970-01-01 00:00:01.999 UTC"
