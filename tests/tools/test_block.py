"""Tools that show I/O of disks: a loop device of the test's own, with direct I/O of known sizes and places."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_features import needs, needs_tracepoint
from tests.support.server import Running
from tests.support.tools import ToolRun, check_columns
from tests.support.waiting import until
from tests.support.workloads import block
from tests.support.workloads.block import perform, scattered, sequential
from tests.support.workloads.storage import Disk, loop_disk, software_raid
from tests.tools.conftest import Tool

READS = sequential(5, 8192)
WRITES = scattered(3, 4096, write=True)


@pytest.fixture(autouse=True)
def _features() -> None:
    needs("rawtracepoint", "btf")
    needs_tracepoint("block:block_rq_issue")


def reads_and_writes(disk: Disk) -> Callable[[Running], int]:
    """What cases do once the tool is attached: five reads one after the other, then three writes elsewhere."""
    return lambda running: perform(disk, READS) + perform(disk, WRITES)


def needs_request_starts() -> None:
    """Where neither is there, the task that asks for a flush is not known."""
    if not Path("/sys/kernel/tracing/events/block/block_io_start").exists():
        needs("kprobe")


def counted(histogram: list[dict[str, int]]) -> int:
    return sum(bucket["count"] for bucket in histogram)


def outputs(run: ToolRun, name: str) -> list[Any]:
    """Each time that a map was printed."""
    return [message["data"][name] for message in run.messages if name in message.get("data", {})]


# ------------------------------------------------------------------------------------------------ biosnoop


@pytest.mark.each_kernel
@pytest.mark.tool("biosnoop")
def test_biosnoop_shows_each_request(tool: Tool, disk: Disk) -> None:
    run = tool("biosnoop", "-d", disk.name, work=reads_and_writes(disk))
    check_columns(run)
    mine = run.of(PID=os.getpid())
    assert [(row["T"], row["SECTOR"], row["BYTES"]) for row in mine] == [
        *(("R", request.sector, 8192) for request in READS),
        *(("W", request.sector, 4096) for request in WRITES),
    ]
    assert {row["DISK"] for row in run.rows} == {disk.name}
    assert all(row["QUE(ms)"] >= 0 and row["LAT(ms)"] > 0 for row in mine)
    times = [row["TIME(s)"] for row in mine]
    assert times == sorted(times)


@pytest.mark.tool("biosnoop")
def test_biosnoop_pattern_and_a_process(tool: Tool, disk: Disk) -> None:
    def work(running: Running) -> None:
        perform(disk, sequential(1, 4096, start=1 << 20))
        reads_and_writes(disk)(running)

    run = tool("biosnoop", "-P", "-Q", "-d", disk.name, "-p", os.getpid(), work=work)
    check_columns(run)
    assert [row["PATTERN"] for row in run.rows][1:] == ["random", *["sequential"] * 4, *["random"] * 3]
    assert {row["PID"] for row in run.rows} == {os.getpid()}


@pytest.mark.tool("biosnoop")
def test_biosnoop_leaves_out_other_disks_and_processes(tool: Tool, disk: Disk) -> None:
    with loop_disk() as other:
        run = tool("biosnoop", "-d", f"/dev/{other.name},{other.name}", work=reads_and_writes(disk))
        assert not run.of(PID=os.getpid())
    run = tool("biosnoop", "-p", 1, "-d", disk.name, work=reads_and_writes(disk))
    assert not run.rows


@pytest.mark.tool("biosnoop", "biolatency", "biopattern", "biostacks")
@pytest.mark.parametrize("name", ["biosnoop", "biolatency", "biopattern", "biostacks"])
def test_disks_that_are_not_there_are_refused(tool: Tool, name: str) -> None:
    run = tool(name, "-d", "no-such-disk", form="text", status=1, interrupt=False)
    assert "option -d: there is no disk no-such-disk" in run.stderr


@pytest.mark.tool("biosnoop")
def test_biosnoop_as_text_with_a_flush(tool: Tool, disk: Disk) -> None:
    def work(running: Running) -> None:
        with open(disk.path, "r+b", buffering=0) as file:
            file.write(bytes(4096))
            os.fsync(file.fileno())
        running.until_printed(" F ")

    run = tool("biosnoop", "-d", disk.name, form="text", work=work)
    check_columns(run)
    words = [line.split() for line in run.lines[1:]]
    assert any(row[3:7] == [disk.name, "W", "0", "4096"] for row in words)
    assert any(row[3:7] == [disk.name, "F", "0", "0"] for row in words)


def flushes(disk: Disk, number: int) -> Callable[[Running], None]:
    """Writes that are each followed by a flush of the disk's cache, which the kernel issues in a thread of its own."""

    def work(_running: Running) -> None:
        with open(disk.path, "r+b", buffering=0) as file:
            for _ in range(number):
                file.write(bytes(4096))
                os.fsync(file.fileno())

    return work


@pytest.mark.tool("biosnoop", "biotop", "biolatency", "biostacks")
def test_flushes_are_those_of_the_process_that_asks(tool: Tool, disk: Disk) -> None:
    needs_request_starts()
    options: tuple[object, ...]
    for options in (("-p", os.getpid()), ()):
        run = tool("biosnoop", "-d", disk.name, *options, work=flushes(disk, 6))
        kinds = [(row["T"], row["PID"]) for row in run.rows]
        assert kinds == [("W", os.getpid()), ("F", os.getpid())] * 6
        assert all(row["QUE(ms)"] >= 0 for row in run.rows)
    assert not tool("biosnoop", "-d", disk.name, "-p", 1, work=flushes(disk, 2)).rows
    top = tool("biotop", "-C", 3600, "-p", os.getpid(), work=flushes(disk, 6))
    assert [row["I/O"] for row in top.of(D="F", DISK=disk.name)] == [6]
    run = tool("biolatency", "-F", "-d", disk.name, "-p", os.getpid(), work=flushes(disk, 6))
    assert [counted(histogram) for key, histogram in run.maps["@usecs"].items() if key.endswith("Flush")] == [6]
    stacks = tool("biostacks", "-d", disk.name, "-p", os.getpid(), work=flushes(disk, 6))
    assert sum(counted(histogram) for histogram in stacks.maps["@usecs"].values()) == 12


@pytest.mark.tool("biosnoop")
def test_biosnoop_agrees_with_the_counters_of_the_disk(tool: Tool, disk: Disk) -> None:
    """Pages that are written back are merged: few requests, and their bytes are those that the disk counted."""
    stat = Path(f"/sys/block/{disk.name}/stat")  # Documentation/block/stat.rst
    sectors: list[int] = []

    def work(running: Running) -> None:
        sectors.append(int(stat.read_text().split()[6]))
        with open(disk.path, "r+b", buffering=0) as file:
            file.writelines(bytes(3000) for _ in range(700))
            os.fsync(file.fileno())
        sectors.append(int(stat.read_text().split()[6]))
        running.until_printed('"T": "F"')

    run = tool("biosnoop", "-d", disk.name, work=work)
    writes = run.of(T="W")
    assert sum(row["BYTES"] for row in writes) == (sectors[1] - sectors[0]) * 512 >= 700 * 3000
    assert len(writes) < 700 * 3000 / 4096 / 4


# ------------------------------------------------------------------------------------------------ biolatency


@pytest.mark.tool("biolatency")
def test_biolatency_counts_each_request_once(tool: Tool, disk: Disk) -> None:
    run = tool("biolatency", "-d", disk.name, "-p", os.getpid(), work=reads_and_writes(disk))
    assert counted(run.maps["@usecs"]) == 8


@pytest.mark.tool("biolatency")
def test_biolatency_by_disk_and_flags_with_totals(tool: Tool, disk: Disk) -> None:
    run = tool("biolatency", "-DFQ", "--extension", "-d", disk.name, "-p", os.getpid(), work=reads_and_writes(disk))
    counts = {key: counted(histogram) for key, histogram in run.maps["@usecs"].items()}
    reads, writes = (key for name in ("Read", "Write") for key in counts if key.endswith(name))
    assert counts == {reads: 5, writes: 3}
    assert reads == f"{disk.name},Sync-Read"
    assert "Sync-" in writes
    totals = run.maps["@total_us"]
    assert totals[reads]["count"] == 5
    assert totals[reads]["total"] >= totals[reads]["average"] >= 0


@pytest.mark.tool("biolatency")
@pytest.mark.parametrize(("option", "key"), [("-D", ""), ("-F", "Sync-Read")])
def test_biolatency_by_one_thing(tool: Tool, disk: Disk, option: str, key: str) -> None:
    run = tool("biolatency", option, "-m", "-d", disk.name, "-p", os.getpid(), work=reads_and_writes(disk))
    assert counted(run.maps["@msecs"][key or disk.name]) == (5 if key else 8)


@pytest.mark.tool("biolatency")
def test_biolatency_at_intervals(tool: Tool, disk: Disk) -> None:
    """Each request is in one output; the tool ends after the last one."""
    run = tool(
        "biolatency", "-T", "--extension", "-d", disk.name, "-p", os.getpid(), "1", "3", work=reads_and_writes(disk),
        interrupt=False,
    )  # fmt: skip
    assert len([message for message in run.messages if message["type"] == "time"]) == 3
    histograms = outputs(run, "@usecs")
    assert sum(map(counted, histograms)) == 8
    assert sum(total["count"] for total in outputs(run, "@total_us")) == 8


@pytest.mark.tool("biolatency")
def test_biolatency_names_the_way_to_json(tool: Tool) -> None:
    assert "-f json" in tool("biolatency", "-j", form="text", status=1, interrupt=False).stderr


# ------------------------------------------------------------------------------------------------ biostacks


@pytest.mark.tool("biostacks")
def test_biostacks_has_the_stack_that_asked(tool: Tool, disk: Disk) -> None:
    run = tool("biostacks", "-d", disk.name, "-p", os.getpid(), work=reads_and_writes(disk))
    stacks = run.maps["@usecs"]
    assert sum(map(counted, stacks.values())) == 8
    by_call = {name: [key for key in stacks if name in key] for name in ("preadv", "pwritev")}
    assert [sum(counted(stacks[key]) for key in keys) for keys in by_call.values()] == [5, 3]


@pytest.mark.tool("biostacks")
def test_biostacks_at_intervals(tool: Tool, disk: Disk) -> None:
    run = tool("biostacks", "-p", os.getpid(), "-d", disk.name, "1", "2", work=reads_and_writes(disk), interrupt=False)
    assert sum(counted(each) for output in outputs(run, "@usecs") for each in output.values()) == 8


# ------------------------------------------------------------------------------------------------ biotop


@pytest.mark.tool("biotop")
def test_biotop_adds_up(tool: Tool, disk: Disk) -> None:
    run = tool("biotop", "-r", "0", "-p", os.getpid(), work=reads_and_writes(disk))
    check_columns(run)
    rows = run.of(DISK=disk.name)
    major, minor = disk.number
    assert {(row["PID"], row["MAJ"], row["MIN"]) for row in rows} == {(os.getpid(), major, minor)}
    for letter, requests in (("R", READS), ("W", WRITES)):
        mine = [row for row in rows if row["D"] == letter]
        assert sum(row["I/O"] for row in mine) == len(requests)
        assert sum(row["KBYTES"] for row in mine) == sum(request.size for request in requests) / 1024
        assert all(row["AVG(ms)"] >= 0 for row in mine)


@pytest.mark.tool("biotop")
def test_biotop_as_text_with_a_limit(tool: Tool, disk: Disk) -> None:
    """Two outputs; at most one row each, the one with most bytes."""
    run = tool(
        "biotop", "-C", "-r", "1", "-p", os.getpid(), "1", "2", form="text", work=reads_and_writes(disk),
        interrupt=False,
    )  # fmt: skip
    check_columns(run)
    assert sum("loadavg" in line for line in run.lines) == 2
    assert 1 <= sum(disk.name in line.split() for line in run.lines) <= 2


# ------------------------------------------------------------------------------------------------ biopattern


@pytest.mark.tool("biopattern")
def test_biopattern_shares(tool: Tool, disk: Disk) -> None:
    def work(running: Running) -> None:
        perform(disk, sequential(10, 8192))
        perform(disk, scattered(6, 4096))  # begins at byte 49152

    run = tool("biopattern", "-d", disk.name, "-p", os.getpid(), work=work)
    check_columns(run)
    (row,) = run.rows
    assert (row["DISK"], row["COUNT"], row["KBYTES"]) == (disk.name, 15, 104)
    assert (row["%SEQ"], row["%RND"]) == (60, 40)


@pytest.mark.tool("biopattern")
def test_biopattern_at_intervals(tool: Tool, disk: Disk) -> None:
    def work(running: Running) -> None:
        perform(disk, sequential(4, 4096))
        until(lambda: running.stdout().count(disk.name) == 1)
        perform(disk, sequential(4, 4096))

    run = tool("biopattern", "-d", disk.name, "-p", os.getpid(), "1", form="text", work=work)
    check_columns(run)
    rows = [line.split() for line in run.lines if disk.name in line]
    assert sum(int(row[4]) for row in rows) == 7
    assert sum(int(row[5]) for row in rows) == 32


# ------------------------------------------------------------------------------------------------ bitesize


@pytest.mark.tool("bitesize")
def test_bitesize_has_sizes_by_command(tool: Tool, disk: Disk) -> None:
    run = tool("bitesize", "-p", os.getpid(), work=reads_and_writes(disk))
    with open("/proc/self/comm") as file:
        name = file.read().rstrip("\n")
    assert run.maps["@kb"][name] == [{"min": 4, "max": 7, "count": 3}, {"min": 8, "max": 15, "count": 5}]


@pytest.mark.tool("bitesize")
def test_bitesize_at_intervals(tool: Tool, disk: Disk) -> None:
    run = tool("bitesize", "-p", os.getpid(), "1", "2", work=reads_and_writes(disk), interrupt=False)
    assert sum(counted(each) for output in outputs(run, "@kb") for each in output.values()) == 8


# ------------------------------------------------------------------------------------------------ mdflush


@pytest.mark.tool("mdflush")
def test_mdflush_shows_flushes_of_arrays_only(tool: Tool, disk: Disk) -> None:
    with software_raid(disk) as array:

        def work(running: Running) -> None:
            for path in (disk.path, array.path, array.path):
                block.synchronize(path)
            running.until_printed(array.name, 2)

        run = tool("mdflush", "-p", os.getpid(), work=work)
        check_columns(run)
        assert [row["DEVICE"] for row in run.rows] == [array.name] * 2
        assert {row["PID"] for row in run.rows} == {os.getpid()}
        assert check_columns(tool("mdflush", form="text", work=work)) is None
