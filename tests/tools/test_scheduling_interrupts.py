"""Tools about interrupts and work that the kernel puts off: hardirqs, softirqs, wqlat."""

from __future__ import annotations

import os
import re
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.patience import patience
from tests.support.server import Running
from tests.support.tools import cannot, check_columns
from tests.support.waiting import until
from tests.tools.conftest import Tool
from tests.tools.test_scheduling_queues import total

Counts = dict[str, int]


def hard_interrupts() -> Counts:
    """Numbers by handler, of all processors (``/proc/interrupts``): those of devices, which have a number."""
    counts: Counts = {}
    lines = Path("/proc/interrupts").read_text().splitlines()
    processors = len(lines[0].split())
    for line in lines[1:]:
        words = line.split()
        if not words[0].rstrip(":").isdigit():
            continue
        # The chip, the number there, and the names of all handlers that share the line.
        for name in line.split(None, 1 + processors)[-1].split(","):
            own = name.split()[-1]
            counts[own] = counts.get(own, 0) + sum(map(int, words[1 : 1 + processors]))
    return counts


def soft_interrupts() -> Counts:
    """Numbers by kind, of all processors."""
    rows = [line.split() for line in Path("/proc/softirqs").read_text().splitlines()[1:]]
    return {row[0].rstrip(":").lower(): sum(map(int, row[1:])) for row in rows}


def enough(read: Callable[[], Counts], folder: Path) -> Callable[[Running], None]:
    """Write to a file until there were twenty more."""

    def work(_running: Running) -> None:
        before = sum(read().values())

        def more() -> bool:
            with open(folder / "written", "wb", 0) as file:
                file.write(bytes(4096))
                os.fsync(file.fileno())
            return sum(read().values()) >= before + 20

        until(more)

    return work


def has_interrupts(folder: Path) -> None:
    """Skip where no device interrupts."""
    try:
        enough(hard_interrupts, folder)(Running.__new__(Running))
    except AssertionError:
        cannot(f"no device of this machine interrupted in {patience(10):.0f} s")


@pytest.mark.tool("hardirqs")
def test_hard_interrupts_are_those_that_the_kernel_counts(tool: Tool, folder: Path) -> None:
    needs("rawtracepoint")
    has_interrupts(folder)
    before = hard_interrupts()
    run = tool("hardirqs", work=enough(hard_interrupts, folder))
    after = hard_interrupts()
    check_columns(run)
    assert run.rows
    for row in run.rows:
        assert 0 < row["COUNT"] <= after[row["HARDIRQ"].split()[-1]] - before[row["HARDIRQ"].split()[-1]]
    assert [row["TOTAL(us)"] for row in run.rows] == sorted((row["TOTAL(us)"] for row in run.rows), reverse=True)
    assert sum(row["COUNT"] for row in run.rows) >= 10


@pytest.mark.tool("hardirqs")
def test_forms_of_hard_interrupts(tool: Tool, folder: Path) -> None:
    needs("rawtracepoint")
    has_interrupts(folder)
    work = enough(hard_interrupts, folder)
    counts = tool("hardirqs", "-C", work=work)
    assert all(list(row) == ["HARDIRQ", "COUNT"] and row["COUNT"] > 0 for row in counts.rows)
    precise = tool("hardirqs", "-N", work=work)
    # A handler takes tens of nanoseconds at least.
    assert all(row["TOTAL(ns)"] >= 10 * row["COUNT"] for row in precise.rows)
    histograms = tool("hardirqs", "-d", "-N", work=work)
    assert sum(total(buckets) for buckets in histograms.maps["@nsecs"].values()) >= 10
    each = [tool("hardirqs", "--cpu", number, work=work).rows for number in range(os.cpu_count() or 1)]
    assert sum(row["COUNT"] for rows in each for row in rows) >= 1


@pytest.mark.tool("softirqs")
def test_soft_interrupts_are_those_that_the_kernel_counts(tool: Tool, folder: Path) -> None:
    needs("rawtracepoint")
    before = soft_interrupts()
    run = tool("softirqs", work=enough(soft_interrupts, folder))
    after = soft_interrupts()
    check_columns(run)
    assert {"timer", "sched", "rcu"} & {row["SOFTIRQ"] for row in run.rows}
    for row in run.rows:
        assert 0 < row["COUNT"] <= after[row["SOFTIRQ"]] - before[row["SOFTIRQ"]]
    assert sum(row["COUNT"] for row in run.rows) >= 10


@pytest.mark.tool("softirqs")
def test_forms_of_soft_interrupts(tool: Tool, folder: Path) -> None:
    needs("rawtracepoint")
    work = enough(soft_interrupts, folder)
    assert all(list(row) == ["SOFTIRQ", "COUNT"] for row in tool("softirqs", "-C", work=work).rows)
    assert sum(map(total, tool("softirqs", "-d", work=work).maps["@usecs"].values())) >= 10
    run = tool("softirqs", "-NT", 1, 2, form="text", interrupt=False)
    assert sum(bool(re.fullmatch(r"\d\d:\d\d:\d\d", line)) for line in run.lines) == 2
    assert sum(line.split() == ["SOFTIRQ", "TOTAL(ns)", "COUNT"] for line in run.lines) == 2


def typing(lines: int) -> Callable[[Running], None]:
    """Each line that is typed into a terminal is passed on by a work item, ``flush_to_ldisc``."""

    def work(_running: Running) -> None:
        master, slave = os.openpty()
        try:
            tty.setraw(slave)
            for _ in range(lines):
                os.write(master, b"x")
                assert os.read(slave, 1) == b"x"
        finally:
            os.close(master)
            os.close(slave)

    return work


@pytest.mark.tool("wqlat")
def test_work_items_of_a_process(tool: Tool) -> None:
    needs("rawtracepoint")
    run = tool("wqlat", "-p", os.getpid(), work=typing(25))
    assert total(run.maps["@usecs"]["flush_to_ldisc"]) == 25
    precise = tool("wqlat", "-N", "-p", os.getpid(), work=typing(25))
    assert total(precise.maps["@nsecs"]["flush_to_ldisc"], 100) == 25


@pytest.mark.tool("wqlat")
def test_work_items_by_queue(tool: Tool) -> None:
    needs("rawtracepoint")
    run = tool("wqlat", "-W", "-p", os.getpid(), work=typing(10))
    queue = next(name for name, buckets in run.maps["@usecs"].items() if total(buckets) >= 10)
    assert queue.startswith("events_unbound")
    one = tool("wqlat", "-w", queue, work=typing(10))
    assert total(one.maps["@usecs"]["flush_to_ldisc"]) >= 10
    assert "flush_to_ldisc" not in tool("wqlat", "-w", "no_such", work=typing(10)).maps.get("@usecs", {})
