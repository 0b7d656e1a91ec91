"""Hits and misses of the page cache: cachestat, cachetop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.machine import kernel_version, missing
from tests.support.server import Running
from tests.support.tools import Row, ToolRun, cannot, check_columns
from tests.support.waiting import until
from tests.support.workloads import files
from tests.support.workloads.storage import FileSystem
from tests.tools.conftest import Tool

PAGES = 3000
FEW = 1200
"""Pages that the program of the workload and the libraries that it loads use beside."""
BLOCKS = pytest.mark.parametrize("block", [pytest.param("4k", marks=pytest.mark.each_kernel), "1M"])


@pytest.fixture(autouse=True)
def page_cache_can_be_traced() -> None:
    if kernel_version() < (6, 13):
        lack = missing("kprobe")
        if lack:
            cannot(lack)


def copying(source: object, target: object, block: str, *more: str) -> str:
    """A command that copies, and does nothing for two more outputs."""
    words = " ".join((f"if={source}", f"of={target}", f"bs={block}", "status=none", *more))
    return f"sh -c 'dd {words}; sleep 2.5'"


def total(run: ToolRun, column: str, rows: list[Row] | None = None) -> int:
    return sum(row[column] for row in (run.rows if rows is None else rows))


def near(number: int, expected: int) -> bool:
    return expected <= number <= expected + FEW


@pytest.mark.tool("cachestat")
@BLOCKS
@pytest.mark.needs("ext4")
def test_reads_that_miss_and_hit(tool: Tool, ext4: FileSystem, block: str) -> None:
    path = ext4.folder / f"cached{block}"
    files.pages(path, PAGES)
    cold = tool("cachestat", command=copying(path, "/dev/null", block))
    check_columns(cold)
    assert near(total(cold, "MISSES"), PAGES), cold.rows
    assert total(cold, "HITS") <= FEW
    warm = tool("cachestat", "-T", command=copying(path, "/dev/null", block))
    # Pages that others read for the first time meanwhile are misses of the machine, and no hits.
    hits, misses = total(warm, "HITS"), total(warm, "MISSES")
    assert near(hits + misses, PAGES), warm.rows
    assert misses <= 100
    assert all(row["TIME"].count(":") == 2 for row in warm.rows)
    busy = max(warm.rows, key=lambda row: int(row["HITS"]))
    assert 95 <= busy["HITRATIO"] <= 100


@pytest.mark.tool("cachestat")
@pytest.mark.needs("ext4")
def test_writes_are_dirty_pages_and_no_misses(tool: Tool, ext4: FileSystem) -> None:
    run = tool("cachestat", command=copying("/dev/zero", ext4.folder / "written", "4k", f"count={PAGES}"))
    assert near(total(run, "DIRTIES"), PAGES), run.rows
    assert total(run, "MISSES") <= FEW


def meminfo() -> dict[str, int]:
    """Lines of ``/proc/meminfo`` in megabytes."""
    words = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    return {word[0]: int(word[1]) // 1024 for word in words}


@pytest.mark.tool("cachestat")
def test_memory_is_that_of_meminfo(tool: Tool) -> None:
    """Other tests fill and empty the cache meanwhile: what it has before and after are the limits."""
    before = meminfo()
    run = tool("cachestat", 1, 1, interrupt=False)
    row, after = run.rows[0], meminfo()
    for column, name, slack in (("BUFFERS_MB", "Buffers:", 16), ("CACHED_MB", "Cached:", 256)):
        low, high = sorted((before[name], after[name]))
        assert low - slack <= row[column] <= high + slack, (column, low, high, row)
    assert row["CACHED_MB"] > 0
    text = tool("cachestat", 1, 1, interrupt=False, form="text")
    check_columns(text)


@pytest.mark.tool("cachetop")
@pytest.mark.needs("xfs")
def test_by_process(tool: Tool, xfs: FileSystem) -> None:
    path = xfs.folder / "top"
    files.pages(path, PAGES)
    for expected in (0, 100):
        run = tool("cachetop", 1, command=copying(path, "/dev/null", "4k"))
        check_columns(run)
        rows = run.of(CMD="dd", UID=os.getuid())
        assert near(total(run, "HITS" if expected else "MISSES", rows), PAGES), run.rows
        busy = max(rows, key=lambda row: int(row["HITS"]) + int(row["MISSES"]))
        assert abs(busy["READ_HIT%"] - expected) <= 25
    run = tool("cachetop", 1, command=copying("/dev/zero", xfs.folder / "new", "4k", f"count={PAGES}"))
    rows = run.of(CMD="dd")
    assert near(total(run, "DIRTIES", rows), PAGES)
    assert max(rows, key=lambda row: int(row["DIRTIES"]))["WRITE_HIT%"] <= 10


@pytest.mark.tool("cachetop")
@pytest.mark.needs("ext4")
def test_outputs_and_lines(tool: Tool, ext4: FileSystem) -> None:
    path = ext4.folder / "lines"
    files.pages(path, 10)

    def work(running: Running) -> None:
        until(lambda: files.read_pages(path) and "Buffers MB:" in running.stdout())

    run = tool("cachetop", "-C", "-r", 1, 1, 2, interrupt=False, form="text", work=work)
    check_columns(run)
    assert len([line for line in run.lines if "Buffers MB:" in line]) == 2
    assert len([line for line in run.lines if line.split()[0].isdigit()]) <= 2
