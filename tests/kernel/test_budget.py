"""What tracing costs and may cost: measured, limited, and what was sampled is marked as an estimate everywhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import pytrace
from tests.support.machine import need
from tests.support.server import Result, Server

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
    done = run(server, config + COUNTS, "-f", "json", *words, "-c", f"{programs}/flood {calls} 2")
    (count,) = (item["data"]["@"] for item in lines(done, "map"))
    # A burst of a tenth of a second, and what the clocks of the program and of the kernel are apart.
    assert 0.95 * 2000 * elapsed(done) <= count <= 2000 * (elapsed(done) + 0.1) * 1.05 + 10
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
