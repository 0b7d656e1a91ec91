"""What tracing costs and may cost: measured, limited, and what was sampled is marked as an estimate everywhere."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import pytrace
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.server import Result, Server

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLS = 20_000
COUNTS = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @ = count(); }"


def run(server: Server, script: str, *words: str, timeout: float = 60) -> Result:
    done = server.run(("-e", script, *words), timeout=timeout)
    assert done.status == 0, done.stderr
    return done


def lines(done: Result, kind: str) -> list[Any]:
    """The lines of a kind in JSON output."""
    items = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [item for item in items if item["type"] == kind]


# ---------------------------------------------------------------------------------------------- measured


def test_verbose_runs_tell_what_each_probe_cost(server: Server, programs: Path) -> None:
    need("tracepoint")
    done = run(server, COUNTS, "-v", "-f", "json", "-c", f"{programs}/flood {CALLS}")
    (cost,) = lines(done, "cost")
    (probe,) = cost["data"]["probes"]
    assert probe["probe"] == "tracepoint:syscalls:sys_enter_getppid"
    assert probe["hits"] >= CALLS
    assert 0 < probe["run_time"] < cost["data"]["duration"] * os.cpu_count()
    assert probe["total"] == probe["run_time"] + probe["entry"]
    assert cost["data"]["total"] == probe["total"] + cost["data"]["own_time"]
    assert cost["data"]["maps"] > 0


def test_costs_are_a_table_after_all_output(server: Server, programs: Path) -> None:
    need("tracepoint")
    script = f"{COUNTS} profile:hz:1 {{ @p = count(); }}"
    done = run(server, script, "-v", "-c", f"{programs}/flood {CALLS}")
    table = done.stderr[done.stderr.index("cost of tracing: ") :].splitlines()
    assert table[1].split() == ["probe", "hits", "ns/hit", "entry", "total", "of", "a", "CPU"]
    assert {line.split()[0] for line in table[2:4]} == {"tracepoint:syscalls:sys_enter_getppid", "profile:hz:1"}
    assert len({len(line) for line in table[1:5]}) == 1
    assert table[4].startswith("pytrace itself ")
    assert table[5].startswith("memory: ")
    for quiet in ("-q", "-v -q", "-v -q -f json"):
        done = run(server, COUNTS, *quiet.split(), "-c", f"{programs}/flood 10")
        assert "cost" not in done.stderr + done.stdout
    assert "cost" not in run(server, COUNTS, "-c", f"{programs}/flood 10").stderr


def test_python_and_snapshots_have_the_costs(programs: Path, tmp_path: Path) -> None:
    need("tracepoint")
    with pytrace.open(COUNTS, command=f"{programs}/flood {CALLS}", measure=True) as trace:
        trace.wait()
        cost = trace.cost
    assert cost is not None
    assert trace.cost is not None
    assert cost.probes[0].hits >= CALLS
    trace.snapshot().save(tmp_path / "x.pts")
    (saved,) = pytrace.Snapshot.load(tmp_path / "x.pts").costs.values()
    assert saved.probes == cost.probes
    with pytrace.open(COUNTS, command="true") as trace:
        trace.wait()
        assert trace.cost is None


# ---------------------------------------------------------------------------------------------- limited


def limited(done: Result) -> int:
    return sum(sum(item["data"].get("limited", {}).values()) for item in lines(done, "losses"))


def elapsed(done: Result) -> float:
    """Seconds of the program's loop."""
    numbers = next(line for line in done.stdout.splitlines() if line[:1].isdigit()).split()
    return int(numbers[1]) / 1e9


@pytest.mark.parametrize(
    ("words", "config"),
    [(["--max-rate", "2000/s"], ""), (["--max-rate", "t:*getppid=2000/s"], ""), ([], "config = { max_rate = 2000 } ")],
)
def test_hits_over_the_rate_are_dropped_and_counted(
    server: Server, programs: Path, words: list[str], config: str
) -> None:
    need("tracepoint")
    calls = 600_000
    script = COUNTS.replace(" }", " $now = nsecs; $idle = $now - @last; @last = $now; ") + (
        "if ($now != $idle && $idle > 100000000) { @idle = sum($idle - 100000000); } }"
    )
    done = run(server, config + script, "-f", "json", *words, "-c", f"{programs}/flood {calls} 2")
    found = {name: value for item in lines(done, "map") for name, value in item["data"].items()}
    count, ran = found["@"], elapsed(done) - found.get("@idle", 0) / 1e9
    # A burst of a tenth of a second, and what the clocks of the program and of the kernel are apart. While the program
    # gets no processor, which is longer than a burst on a busy machine, it makes no calls.
    assert 0.95 * 2000 * ran <= count <= 2000 * (elapsed(done) + 0.1) * 1.05 + 10
    assert ran > 0.2 * elapsed(done)
    assert count + limited(done) == 2 * calls


def test_hits_under_the_rate_are_untouched(server: Server, programs: Path) -> None:
    need("tracepoint")
    script = f"{COUNTS} interval:ms:1 {{ @i = count(); }} begin {{ @b = count(); }}"
    done = run(server, script, "--max-rate", "1000000000/s", "-c", f"{programs}/flood {CALLS}")
    assert f"@: {CALLS}\n" in done.stdout
    assert "WARNING" not in done.stderr


def test_user_probes_are_limited_by_block(server: Server, programs: Path) -> None:
    need("uprobe")
    times = 2000
    script = (
        f"uprobe:{programs}/calls:add {{ @few = count(); }} "
        f"uprobe:{programs}/calls:add,uprobe:{programs}/calls:leaf {{ @all = count(); }} end {{ @e = count(); }}"
    )
    words = ["--max-rate", "1000000/s", "--max-rate", "uprobe:*:leaf=20000/s", "--max-rate", "uprobe:*:leaf=10/s"]
    done = run(server, script, *words, "-f", "json", "-c", f"{programs}/calls {times}")
    found = {name: value for item in lines(done, "map") for name, value in item["data"].items()}
    assert (found["@e"], found["@few"]) == (1, times)
    assert 1 <= found["@all"] <= 100
    assert found["@all"] + limited(done) == 2 * times


def test_python_limits_rates(programs: Path) -> None:
    need("tracepoint")
    with pytrace.open(COUNTS, command=f"{programs}/flood {CALLS}", max_rate={"tracepoint:*": 10}) as trace:
        trace.wait()
    assert trace.maps["@"].value < 50
    assert sum(trace.losses["limited"].values()) > CALLS - 50


# ---------------------------------------------------------------------------------------------- within a budget

LOAD = "paced 2000 8000"
"""Hits at a pace and of kinds that no other test floods: what the way to a program costs is the same everywhere."""
CALLED = 8000
BUDGET = "6%"
"""More than the way to the programs costs, less than :data:`WORK` does."""
WORK = "for ($i : 0..40000) { @work = sum($i); }"
"""A body that is far more expensive than the way to it."""


def marked(done: Result, name: str) -> tuple[Any, str]:
    """The last value of a map in JSON output, and its mark."""
    items = [item for item in map(json.loads, _json_lines(done)) if name in item["data"]]
    return items[-1]["data"][name], items[-1].get("mark", "")


def _json_lines(done: Result) -> list[str]:
    kinds = ('{"type": "map"', '{"type": "hist"', '{"type": "stats"')
    return [line for line in done.stdout.splitlines() if line.startswith(kinds)]


def close(value: int, true: int, weight: int) -> bool:
    """Whether an estimate is within six standard deviations of the true number of hits, all sampled 1 in *weight*."""
    return abs(value - true) <= 6 * (true * (weight - 1)) ** 0.5


def weight(done: Result) -> int:
    """The greatest weight of a probe."""
    (cost,) = lines(done, "cost")
    return max(item["weight"] for item in cost["data"]["probes"])


KINDS = {
    "tracepoint": "tracepoint:task:task_rename /pid == cpid/",
    "rawtracepoint": "rawtracepoint:task_rename /pid == cpid/",
    "uprobe": "uprobe:{programs}/paced:step",
    "usdt": "usdt:{programs}/paced:paced:step",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_over_the_budget_is_sampled_and_its_counts_scaled(server: Server, programs: Path, kind: str) -> None:
    need("uprobe" if kind in ("uprobe", "usdt") else "tracepoint")
    probe, true = KINDS[kind].format(programs=programs), CALLED
    script = (
        f"{probe} {{ {WORK} @ = count(); "
        "@sum = sum(3); @avg = avg(7); @hist = hist(5); @keyed[pid] = count(); @max = max(4); @last = 9; } "
        "interval:ms:100 { @timer = count(); } end { @end = count(); }"
    )
    done = run(server, script, "--budget", BUDGET, "-v", "-f", "json", "-c", f"{programs}/{LOAD}", timeout=120)
    assert "is sampled, 1 in " in done.stderr, done.stderr
    most = weight(done)
    assert most > 1
    count, mark = marked(done, "@")
    assert mark == "estimate"
    assert close(count, true, most), (count, true, most)
    assert marked(done, "@sum") == (3 * count, "estimate")
    assert marked(done, "@avg") == (7, "estimate")
    assert marked(done, "@hist") == ([{"min": 4, "max": 7, "count": count}], "estimate")
    assert sum(marked(done, "@keyed")[0].values()) == count
    assert (marked(done, "@max"), marked(done, "@last")) == ((4, "sample"), (9, "sample"))
    assert marked(done, "@end") == (1, "")
    assert marked(done, "@timer")[1] == ""


def test_pairs_are_sampled_as_a_whole(server: Server, programs: Path) -> None:
    need("uprobe")
    script = (
        f"uretprobe:{programs}/paced:step /@start[tid]/ {{ @us = hist((nsecs - @start[tid]) / 1000); "
        f"{WORK} @ = count(); delete(@start, tid); }} "
        f"uprobe:{programs}/paced:step {{ @start[tid] = nsecs; @entries = count(); }}"
    )
    done = run(server, script, "--budget", "10%", "-v", "-f", "json", "-c", f"{programs}/{LOAD}", timeout=120)
    most = weight(done)
    assert most > 1, done.stderr
    returns, entries = marked(done, "@"), marked(done, "@entries")
    assert returns == entries
    assert returns[1] == "estimate"
    assert close(returns[0], CALLED, most), (returns, most)
    # Nothing is left behind, and no return has found the time of an earlier call.
    assert not any('"@start"' in line for line in _json_lines(done))
    assert sum(bucket["count"] for bucket in marked(done, "@us")[0]) == returns[0]


def test_a_probe_that_is_too_expensive_to_reach_is_detached(server: Server, programs: Path) -> None:
    need("uprobe")
    script = f"uprobe:{programs}/paced:step {{ @ = count(); }} uprobe:{programs}/paced:main {{ @main = count(); }}"
    done = run(server, script, "--budget", "1%", "-v", "-f", "json", "-c", f"{programs}/paced 20000 60000", timeout=120)
    assert "paced:step is detached; sampling does not lower what it costs to reach it" in done.stderr
    assert lines(done, "budget")[-1]["data"]["action"] == "detach"
    assert marked(done, "@") != (60_000, "")
    (cost,) = lines(done, "cost")
    assert {item["probe"].rpartition(":")[2]: item["detached"] for item in cost["data"]["probes"]} == {
        "step": True, "main": False,
    }  # fmt: skip


def test_detaching_is_a_choice(server: Server, programs: Path) -> None:
    need("tracepoint")
    script = f"tracepoint:task:task_rename /pid == cpid/ {{ {WORK} @ = count(); }}"
    words = ("--budget", BUDGET, "--over-budget", "detach", "-c", f"{programs}/{LOAD}")
    done = run(server, script, *words, timeout=120)
    assert "is detached\n" in done.stderr
    assert "estimate" not in done.stdout + done.stderr


STORM = """
import os, sys, time
(a, b), (c, d) = os.pipe(), os.pipe()
if not os.fork():
    while os.read(a, 1): os.write(d, b"x")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end: os.write(b, b"x"); os.read(c, 1)
"""
"""Two processes that wait for each other: each write is two switches."""


def test_a_storm_of_switches_detaches_soon(server: Server) -> None:
    """What asks to detach is not sampled in place of it, and the storm is over for the tracer within some looks at it:
    the time from the first to the last hit is that of the kernel, however late the tracer says so.
    """
    need("tracepoint")
    script = (
        "tracepoint:sched:sched_switch /args.prev_pid == cpid || args.next_pid == cpid/ { @ = count(); "
        "@first = min(nsecs); @last = max(nsecs); }"
    )
    command = shlex.join([sys.executable, "-c", STORM, "2"])
    done = run(server, script, "--budget", "0.1%", "--over-budget", "detach", "-f", "json", "-c", command, timeout=120)
    assert "sched:sched_switch is detached" in done.stderr, done.stderr
    assert "is sampled" not in done.stderr
    first, last = marked(done, "@first")[0], marked(done, "@last")[0]
    assert last - first < 1e9 * patience(0.5), "of a storm of two seconds"


def test_under_the_budget_everything_is_exact(server: Server, programs: Path) -> None:
    need("tracepoint")
    done = run(server, COUNTS, "--budget", "99999%", "-v", "-f", "json", "-c", f"{programs}/flood {CALLS}")
    assert marked(done, "@") == (CALLS, "")
    assert weight(done) == 1


def test_estimates_are_marked_in_every_output(server: Server, programs: Path, tmp_path: Path) -> None:
    need("tracepoint")
    script = (
        f"tracepoint:task:task_rename /pid == cpid/ {{ {WORK} @c = count(); @k[kstack, comm] = count(); "
        '@t = tseries(1, 1s, 5); if (rand % 4 == 0) { printf("p"); print((1, 2)); row((a=1)); } } '
        "config = { unstable_tseries = enable; } end { printf(\"total %d\", @c); }"
    )  # fmt: skip
    script = "config = { unstable_tseries = enable; } " + script.replace("config = { unstable_tseries = enable; } ", "")
    saved = tmp_path / "x.pts"
    flood = ("--budget", BUDGET, "-c", f"{programs}/{LOAD}")
    done = run(server, script, "-f", "json", "--save", str(saved), *flood, timeout=120)
    events = [item for kind in ("printf", "value", "row") for item in lines(done, kind)]
    assert {item["mark"] for item in events[-3:]} <= {"sample", "estimate"}
    assert marked(done, "@c")[1] == "estimate"
    for kind, expected in MARKED.items():
        shown = server.run(("show", str(saved), "-f", kind))
        assert shown.status == 0, shown.stderr
        assert expected in shown.stdout, (kind, shown.stdout[:500])
    snapshot = pytrace.Snapshot.load(saved)
    assert {name: snapshot.maps[name].mark for name in ("@c", "@k", "@t")} == {
        "@c": "estimate", "@k": "estimate", "@t": "sample",
    }  # fmt: skip
    assert "estimate @c" in snapshot._repr_html_()
    text = run(server, script, *flood, timeout=120).stdout
    assert "\nestimate @c: " in text
    assert "\nestimate @k[" in text
    assert "\nsample @t" in text
    assert "\nestimate @c\n" in run(server, script, *flood, "-f", "csv", timeout=120).stdout.replace("\r", "")


MARKED = {
    "text": "estimate @c: ",
    "csv": "estimate @c",
    "folded": "estimate @k;",
    "speedscope": "estimate @k",
    "openmetrics": 'pytrace_map_estimate{map="@c",mark="estimate"} 1',
    "json": '"mark": "estimate"',
}


def test_python_samples_within_a_budget(programs: Path) -> None:
    need("tracepoint")
    script = f"tracepoint:task:task_rename /pid == cpid/ {{ {WORK} @ = count(); }}"
    with pytest.warns(pytrace.TraceWarning, match="is sampled"):
        snapshot = pytrace.run(script, command=f"{programs}/{LOAD}", budget=BUDGET)
    assert snapshot.maps["@"].mark == "estimate"
    (cost,) = snapshot.costs.values()
    assert close(snapshot.maps["@"].value, CALLED, cost.probes[0].weight)
