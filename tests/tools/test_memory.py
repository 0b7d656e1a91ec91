"""pagefaults, swapin, slabratetop, drsnoop, compactsnoop and shmsnoop."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.kernel_features import Where, needs, needs_tracepoint
from tests.support.server import Running
from tests.support.tools import Row, cannot, check_columns
from tests.support.workloads import memory, processes
from tests.support.workloads.storage import file_system
from tests.tools.conftest import Tool

# ------------------------------------------------------------------------------------------------ pagefaults


@pytest.mark.tool("pagefaults")
def test_faults_of_a_process(tool: Tool, programs: Path) -> None:
    needs("perf_events")
    pids: list[int] = []
    run = tool("pagefaults", "--comm", "touches", work=lambda _: pids.append(memory.touched(programs, 5000)))
    check_columns(run)
    rows = run.of(PID=pids[0])
    assert len(rows) == 1
    assert 5000 <= rows[0]["minor"] < 5500


@pytest.mark.tool("pagefaults")
def test_faults_as_the_kernel_accounts_them(tool: Tool) -> None:
    """Of this process, by its own numbers before and after."""
    needs("perf_events")
    faults: list[int] = []

    def work(_running: Running) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        assert len(bytearray(64 << 20)) == 64 << 20
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

    run = tool("pagefaults", "-p", os.getpid(), work=work)
    assert sum(row["minor"] for row in run.rows) >= faults[0] > 0


@pytest.mark.tool("pagefaults")
def test_faults_by_stack(tool: Tool, programs: Path) -> None:
    needs("perf_events")
    run = tool("pagefaults", "-s", 3600, "--comm", "touches", work=lambda _: memory.touched(programs, 3000))
    # Until the unwind tables of the new process are read, callers are found by frame pointers.
    touching = [row for row in run.rows if str(row["stack"][0]).startswith("touch+")]
    assert 1 <= len(touching) <= 3
    assert sum(row["minor"] for row in touching) == 3000


@pytest.mark.tool("pagefaults")
def test_faults_at_intervals(tool: Tool, programs: Path) -> None:
    needs("perf_events")
    run = tool(
        "pagefaults", "-T", 1, 2, "--comm", "touches", form="text", interrupt=False,
        work=lambda _: memory.touched(programs, 1000),
    )  # fmt: skip
    check_columns(run)
    assert len([line for line in run.lines if re.fullmatch(r"\d\d:\d\d:\d\d", line)]) == 2


# ------------------------------------------------------------------------------------------------ swapin


@pytest.mark.each_kernel
@pytest.mark.tool("swapin")
def test_pages_that_are_read_from_swap(tool: Tool) -> None:
    needs("btf")
    read: list[int] = []

    def work(_running: Running) -> None:
        with memory.swap():
            read.append(memory.swapped_in(200))

    run = tool("swapin", "-T", 3600, work=work)
    if not read[0]:
        cannot("the kernel wrote no page of the process to swap")
    check_columns(run)
    assert sum(row["count"] for row in run.of(PID=os.getpid())) == read[0]


@pytest.mark.tool("swapin")
def test_time_of_each_output(tool: Tool) -> None:
    needs("btf")
    run = tool("swapin", 1, 2, "--comm", "nobody", form="text", interrupt=False)
    assert [len(line) for line in run.lines] == [8, 8]
    assert not tool("swapin", "-T", 1, 1, "--comm", "nobody", form="text", interrupt=False).lines


# ------------------------------------------------------------------------------------------------ slabratetop


@pytest.mark.each_kernel
@pytest.mark.tool("slabratetop")
def test_objects_of_kernel_caches(tool: Tool) -> None:
    needs_tracepoint("kmem:kmem_cache_alloc")

    def work(_running: Running) -> None:
        with memory.many_names(500):
            pass

    run = tool("slabratetop", "-r", 0, 3600, "-p", os.getpid(), work=work)
    check_columns(run)
    names = {row["cache"]: row for row in run.rows}
    assert names["dentry"]["allocs"] >= 500
    assert names["dentry"]["bytes"] == names["dentry"]["allocs"] * _object_size("dentry")
    assert [row["allocs"] for row in run.rows] == sorted((row["allocs"] for row in run.rows), reverse=True)
    assert len(tool("slabratetop", "-r", 3, 3600, "-p", os.getpid(), work=work).rows) == 3


def _object_size(cache: str) -> int:
    """Bytes that an object of it takes, with what the kernel puts around it."""
    return int(Path(f"/sys/kernel/slab/{cache}/slab_size").read_text())


@pytest.mark.tool("slabratetop")
def test_tables_at_intervals(tool: Tool) -> None:
    needs_tracepoint("kmem:kmem_cache_alloc")
    run = tool("slabratetop", "-C", 1, 2, form="text", interrupt=False)
    check_columns(run)
    assert len([line for line in run.lines if line.split() == ["CACHE", "ALLOCS", "BYTES"]]) == 2


# ------------------------------------------------------------------------------------------------ reclaim


def _reclaims(disk: Path, group: Path) -> int:
    """A process that reads more of a file than its group may have: pages that can be freed."""
    memory.limit(group, 16 << 20)
    code = "d = open(sys.argv[1], 'rb', 0)\nwhile d.read(1 << 20): pass"
    words = f"import os, sys\nopen('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n{code}"
    file = disk / "much"
    file.write_bytes(b"x" * (48 << 20))
    try:
        os.sync()
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with subprocess.Popen([sys.executable, "-c", words, str(file)]) as process:
            pass
    finally:
        file.unlink()
    assert process.returncode == 0
    return process.pid


@pytest.mark.tool("drsnoop")
def test_reclaim_for_the_limit_of_a_cgroup(tool: Tool) -> None:
    needs_tracepoint("vmscan:mm_vmscan_memcg_reclaim_begin", Where(options=("MEMCG",)))
    pids: list[int] = []
    with memory.cgroup() as group, file_system("ext4", 96 << 20) as disk:  # its own, which nobody else fills
        run = tool("drsnoop", "--memcg", "-U", work=lambda _: pids.append(_reclaims(disk.folder, group)))
        other = tool("drsnoop", "--memcg", "-n", "no such name", work=lambda _: _reclaims(disk.folder, group))
    assert not other.rows
    rows = run.of(PID=pids[0])
    assert rows
    assert {(row["reason"], row["uid"]) for row in rows} == {("cgroup", os.getuid())}
    assert sum(row["pages"] for row in rows) >= (24 << 20) // resource.getpagesize()
    assert all(row["LAT(ms)"] > 0 for row in rows)


@pytest.mark.tool("drsnoop")
def test_columns_of_direct_reclaim(tool: Tool) -> None:
    """No memory is short here: the programs are loaded, and their filters."""
    needs_tracepoint("vmscan:mm_vmscan_direct_reclaim_begin")
    run = tool("drsnoop", "-T", "-t", 1, "-d", 1, "--uid", "nobody", interrupt=False)
    assert not run.rows


# ------------------------------------------------------------------------------------------------ compaction


def _compact(_running: Running) -> None:
    path = Path("/proc/sys/vm/compact_memory")
    if not path.exists():
        cannot("this kernel has no /proc/sys/vm/compact_memory")
    path.write_text("1")


@pytest.mark.tool("compactsnoop")
def test_compaction_of_all_zones(tool: Tool) -> None:
    needs_tracepoint("compaction:mm_compaction_begin", Where(options=("COMPACTION",)))
    needs("btf")
    run = tool("compactsnoop", "--extended_fields", "-K", "-p", os.getpid(), work=_compact)
    check_compaction(run.rows)
    for row in run.rows:
        assert 0 < row["min"] <= row["low"] <= row["high"]
        assert "compact" in str(row["stack"])
        assert row["fragidx"] == -1
    zones = Path("/proc/zoneinfo").read_text()
    assert {row["zone"] for row in run.rows} <= {line.split()[-1] for line in zones.splitlines() if " zone " in line}


def check_compaction(rows: Sequence[Row]) -> None:
    """What compaction that was asked for by hand looks like."""
    assert rows
    for row in rows:
        assert (row["node"], row["order"], row["mode"]) == (0, -1, "SYNC")
        assert row["LAT(ms)"] > 0
        assert row["status"] in ("complete", "partial_skipped", "contended", "skipped", "success")


@pytest.mark.tool("compactsnoop")
def test_text_of_compaction(tool: Tool) -> None:
    needs_tracepoint("compaction:mm_compaction_begin", Where(options=("COMPACTION",)))
    needs("btf")
    run = tool("compactsnoop", "-T", "-p", os.getpid(), form="text", work=_compact, until="SYNC")
    check_columns(run)
    assert tool("compactsnoop", "-d", 1, "--comm", "nobody", interrupt=False).status == 0


# ------------------------------------------------------------------------------------------------ shared memory


@pytest.mark.tool("shmsnoop")
def test_calls_for_shared_memory(tool: Tool) -> None:
    needs("syscalls")
    segments: list[int] = []
    run = tool("shmsnoop", "-p", os.getpid(), work=lambda _: segments.append(memory.shared_segment(12345)))
    check_columns(run)
    segment = segments[0]
    assert [row["sys"] for row in run.rows] == ["SHMGET", "SHMAT", "SHMDT", "SHMCTL"]
    get, attach, detach, control = run.rows
    assert (get["ret"], get["args"]) == (str(segment), "key: 0x0, size: 12345, shmflg: IPC_CREAT|0600")
    assert attach["args"] == f"shmid: {segment}, shmaddr: 0x0, shmflg: 0"
    assert attach["ret"].startswith("0x")
    assert (detach["ret"], detach["args"]) == ("0", f"shmaddr: {attach['ret']}")
    assert (control["ret"], control["args"]) == ("0", f"shmid: {segment}, cmd: IPC_RMID, buf: 0x0")


@pytest.mark.tool("shmsnoop")
def test_failed_calls_and_filters(tool: Tool) -> None:
    needs("syscalls")
    libc = ctypes.CDLL(None)

    def work(_running: Running) -> None:
        assert libc.shmget(0x5A5A5A5A, 100, 0) == -1
        assert libc.shmctl(-1, 2, None) == -1

    run = tool("shmsnoop", "-T", "-t", os.getpid(), work=work, form="text", until="IPC_STAT")
    check_columns(run)
    assert run.lines[1].split()[3:6] == ["SHMGET", "-1", "ENOENT"]
    assert "key: 0x5a5a5a5a, size: 100, shmflg: 0 " in run.lines[1] + " "
    assert run.lines[2].split()[3:6] == ["SHMCTL", "-1", "EINVAL"]
    assert not tool("shmsnoop", "-t", 1, work=work).rows
    assert "no process or thread" in tool("shmsnoop", "-t", processes.no_process(), status=1, interrupt=False).stderr
    assert not tool("shmsnoop", "-n", "no such name", work=work).rows
    assert tool("shmsnoop", "-d", 1, "--comm", "nobody", interrupt=False).status == 0
