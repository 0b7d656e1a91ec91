"""Cases of ``functime``, ``funclatency`` and ``funcslower``: functions with known sleeps, nested and recursive."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tools import Row, ToolRun, check_columns
from tests.tools.conftest import Tool

ROUNDS = 5


def by_name(run: ToolRun) -> dict[str, Row]:
    return {row["FUNC"]: row for row in run.rows}


def measured(run: ToolRun) -> dict[str, float]:
    """Milliseconds that the program measured itself."""
    words = re.search(r"upper (\S+) lower (\S+) again (\S+)", run.stdout)
    assert words is not None, run.stdout
    return dict(zip(("upper", "lower", "again"), map(float, words.groups()), strict=True))


@pytest.mark.tool("functime", kernel="uprobe")
def test_times_of_functions(tool: Tool, programs: Path) -> None:
    run = tool("functime", f"{programs}/nested:work_*", command=f"{programs}/nested {ROUNDS}")
    check_columns(run)
    rows, own = by_name(run), measured(run)
    assert {name: row["COUNT"] for name, row in rows.items()} == {
        "work_upper": ROUNDS, "work_lower": 2 * ROUNDS, "work_again": 4 * ROUNDS, "work_catch": ROUNDS,
    }  # fmt: skip
    assert rows["work_upper"]["TOTAL(ms)"] >= own["upper"] - 0.01
    assert rows["work_lower"]["TOTAL(ms)"] >= own["lower"] - 0.01
    # Each call with what it called: 5 + 10 + 15 + 20 ms.
    assert rows["work_again"]["TOTAL(ms)"] >= 50 * ROUNDS
    for row in rows.values():
        assert row["AVG(us)"] <= row["MAX(us)"]
        assert row["P99(us)"] <= row["MAX(us)"]
        assert row["P99(us)"] >= row["AVG(us)"] * 0.9
        assert row["AVG(us)"] == pytest.approx(row["TOTAL(ms)"] * 1000 / row["COUNT"], abs=1)
    assert [row["TOTAL(ms)"] for row in run.rows] == sorted((row["TOTAL(ms)"] for row in run.rows), reverse=True)


@pytest.mark.tool("functime", kernel="uprobe")
def test_time_without_callees(tool: Tool, programs: Path) -> None:
    run = tool("functime", "--self", f"{programs}/nested:work_*", command=f"{programs}/nested {ROUNDS}")
    rows, own = by_name(run), measured(run)
    assert 10 * ROUNDS <= rows["work_upper"]["TOTAL(ms)"] < own["upper"] - own["lower"] / 2
    assert rows["work_lower"]["TOTAL(ms)"] >= own["lower"] - 0.01
    # Recursion: each call counts its own 5 ms only; counted with callees it would be 2.5 times of that.
    assert 20 * ROUNDS <= rows["work_again"]["TOTAL(ms)"] < 1.5 * own["again"]
    assert rows["work_catch"]["COUNT"] == ROUNDS
    assert rows["work_catch"]["TOTAL(ms)"] >= 3 * ROUNDS


@pytest.mark.tool("functime", kernel="uprobe")
def test_intervals_add_up(tool: Tool, programs: Path) -> None:
    run = tool("functime", "-i", "1", f"{programs}/nested:work_lower", command=f"{programs}/nested 30")
    assert len(run.rows) > 1
    assert sum(row["COUNT"] for row in run.rows) == 60
    assert sum(row["TOTAL(ms)"] for row in run.rows) >= measured(run)["lower"] - 0.1


@pytest.mark.each_kernel
@pytest.mark.tool("functime", kernel="kprobe")
def test_kernel_functions(tool: Tool, programs: Path) -> None:
    run = tool("functime", "do_nanoslee*", command=f"{programs}/nested 2")
    rows = by_name(run)
    assert rows["do_nanosleep"]["COUNT"] == 16
    assert rows["do_nanosleep"]["TOTAL(ms)"] >= 2 * (10 + 40 + 20 + 3)


@pytest.mark.tool("funclatency", kernel="uprobe")
def test_histogram(tool: Tool, programs: Path) -> None:
    run = tool("funclatency", "-m", f"{programs}/nested:work_lower", command=f"{programs}/nested {ROUNDS}")
    buckets = run.maps["@msecs"]
    assert sum(bucket["count"] for bucket in buckets) == 2 * ROUNDS
    assert all(bucket["min"] >= 16 for bucket in buckets if bucket["count"])
    assert f"count: {2 * ROUNDS}" in run.stdout


@pytest.mark.tool("funclatency", kernel="uprobe")
def test_a_histogram_for_each_function(tool: Tool, programs: Path) -> None:
    run = tool("funclatency", "-F", "-u", f"{programs}/nested:work_*", command=f"{programs}/nested {ROUNDS}")
    found = {name: sum(bucket["count"] for bucket in buckets) for name, buckets in run.maps["@usecs"].items()}
    assert found == {"work_upper": 5, "work_lower": 10, "work_again": 20, "work_catch": 5}


@pytest.mark.tool("funclatency", kernel="uprobe")
def test_nanoseconds_at_intervals(tool: Tool, programs: Path) -> None:
    run = tool("funclatency", "-T", "-i", "1", f"{programs}/nested:work_lower", command=f"{programs}/nested 30",
               form="text")  # fmt: skip
    assert run.stdout.count("avg = ") > 1
    assert sum(map(int, re.findall(r"nsecs, count: (\d+)", run.stdout))) == 60


@pytest.mark.each_kernel
@pytest.mark.tool("funclatency", kernel="kprobe")
def test_latency_of_kernel_functions(tool: Tool, programs: Path) -> None:
    run = tool("funclatency", "-m", "do_nanosleep", command=f"{programs}/nested 2")
    assert sum(bucket["count"] for bucket in run.maps["@msecs"]) == 16


@pytest.mark.tool("funcslower", kernel="uprobe")
def test_slow_calls(tool: Tool, programs: Path) -> None:
    run = tool("funcslower", "-m", "15", "-a", "1", f"{programs}/nested:work_lower", f"{programs}/nested:work_upper",
               command=f"{programs}/nested 3")  # fmt: skip
    check_columns(run)
    assert sorted(row["FUNC"] for row in run.rows) == ["work_lower"] * 6 + ["work_upper"] * 3
    assert {(row["COMM"], row["LAT(ms)"] >= 15) for row in run.rows} == {("nested", True)}
    lower = [row for row in run.rows if row["FUNC"] == "work_lower"]
    assert [(row["ARGS"], int(row["RVAL"])) for row in lower] == [
        ("0x0", 0), ("0x1", 1), ("0x1", 1), ("0x2", 2), ("0x2", 2), ("0x3", 3),
    ]  # fmt: skip


@pytest.mark.tool("funcslower", kernel="uprobe")
def test_quick_calls_are_not_shown(tool: Tool, programs: Path) -> None:
    run = tool("funcslower", "-m", "3600000", f"{programs}/nested:work_*", command=f"{programs}/nested 1")
    assert not run.rows


@pytest.mark.each_kernel
@pytest.mark.tool("funcslower", kernel="kprobe")
def test_slow_kernel_functions(tool: Tool, programs: Path) -> None:
    run = tool("funcslower", "-m", "9", "do_nanosleep", command=f"{programs}/nested 1")
    assert len(run.rows) >= 3
    assert {row["FUNC"] for row in run.rows} == {"do_nanosleep"}
