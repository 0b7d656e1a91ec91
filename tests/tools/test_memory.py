"""Tools about memory: page faults, reclaim, shared memory, allocations."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.kernel_features import TRACING, Where, needs, needs_tracepoint
from tests.support.server import Running
from tests.support.tools import Row, ToolRun, cannot, check_columns
from tests.support.workloads import memory, processes
from tests.support.workloads.storage import file_system
from tests.tools.conftest import Tool

# ------------------------------------------------------------------------------------------------ pagefaults


@pytest.mark.tool("pagefaults", kernel="perf_events")
def test_faults_of_a_process(tool: Tool, programs: Path) -> None:
    pids: list[int] = []
    run = tool("pagefaults", "--comm", "touches", work=lambda _: pids.append(memory.touched(programs, 5000)))
    check_columns(run)
    rows = run.of(PID=pids[0])
    assert len(rows) == 1
    assert 5000 <= rows[0]["minor"] < 5500


@pytest.mark.tool("pagefaults", kernel="perf_events")
def test_faults_as_the_kernel_accounts_them(tool: Tool) -> None:
    """Of this process, by its own numbers before and after."""
    faults: list[int] = []

    def work(_running: Running) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        assert len(bytearray(64 << 20)) == 64 << 20
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

    run = tool("pagefaults", "-p", os.getpid(), work=work)
    assert sum(row["minor"] for row in run.rows) >= faults[0] > 0


@pytest.mark.tool("pagefaults", kernel="perf_events")
def test_faults_by_stack(tool: Tool, programs: Path) -> None:
    # At exec a page of the stack may not be there yet: that stack is cut, and said to be.
    run = tool(
        "pagefaults", "-s", 3600, "--comm", "touches", work=lambda _: memory.touched(programs, 3000),
        troubles=['"truncated": {"ustack of @'],
    )  # fmt: skip
    # Until the unwind tables of the new process are read, callers are found by frame pointers.
    touching = [row for row in run.rows if str(row["stack"][0]).startswith("touch+")]
    assert 1 <= len(touching) <= 3
    assert sum(row["minor"] for row in touching) == 3000


@pytest.mark.tool("pagefaults", kernel="perf_events")
def test_faults_at_intervals(tool: Tool, programs: Path) -> None:
    run = tool(
        "pagefaults", "-T", 1, 2, "--comm", "touches", form="text", interrupt=False,
        work=lambda _: memory.touched(programs, 1000),
    )  # fmt: skip
    check_columns(run)
    assert len([line for line in run.lines if re.fullmatch(r"\d\d:\d\d:\d\d", line)]) == 2


# ------------------------------------------------------------------------------------------------ swapin


@pytest.mark.each_kernel
@pytest.mark.tool("swapin", kernel="btf")
def test_pages_that_are_read_from_swap(tool: Tool) -> None:
    read: list[int] = []

    def work(_running: Running) -> None:
        with memory.swap():
            read.append(memory.swapped_in(200))

    run = tool("swapin", "-T", 3600, work=work)
    if not read[0]:
        cannot("the kernel wrote no page of the process to swap")
    check_columns(run)
    assert sum(row["count"] for row in run.of(PID=os.getpid())) == read[0]


@pytest.mark.tool("swapin", kernel="btf")
def test_time_of_each_output(tool: Tool) -> None:
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


@pytest.mark.tool("shmsnoop", kernel="syscalls")
def test_calls_for_shared_memory(tool: Tool) -> None:
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


@pytest.mark.tool("shmsnoop", kernel="syscalls")
def test_failed_calls_and_filters(tool: Tool) -> None:
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


# ---------------------------------------------------------------------------------------------- memory allocations
# Tools about allocations: memleak, mallocs.


def of(run: ToolRun, map_name: str, function: str) -> dict[str, int]:
    """Entries of a map whose stack has that function innermost."""
    found = run.maps.get(map_name, {})
    return {key: value for key, value in found.items() if re.match(rf"\s*{function}\+", key)}


def outstanding(run: ToolRun, what: str, *functions: str) -> tuple[int, int]:
    """Number and bytes of all entries of that kind whose stack has one of the functions."""
    number = size = 0
    for key, value in run.maps.get("@outstanding", {}).items():
        label = re.search(rf",(\d+) {what}, bytes:$", key)
        if label and re.search(rf"^\s*(?:{'|'.join(functions)})\+", key, re.MULTILINE):
            number, size = number + int(label[1]), size + value
    return number, size


def account(run: ToolRun) -> list[int]:
    """What the program ``accounts`` has printed about itself."""
    return next([int(word) for word in line.split()] for line in run.lines if re.fullmatch(r"[\d ]+", line))


def leaks(programs: Path, kept: int = 10, freed: int = 20, size: int = 1001) -> str:
    return f"{programs}/leaks {kept} {freed} {size}"


@pytest.mark.tool("memleak", kernel="uprobe")
def test_a_known_leak(tool: Tool, programs: Path) -> None:
    run = tool("memleak", "--older", 0, command=leaks(programs))
    [(key, value)] = of(run, "@outstanding", "keep").items()
    assert value == 10 * 1001
    assert "10 allocations" in key
    assert "main+" in key
    assert not of(run, "@outstanding", "use")
    some = tool("memleak", "--combined-only", "--sort", "count", "-T", 1, "-s", 10, command=leaks(programs, 4000))
    [(key, value)] = of(some, "@outstanding", "keep").items()
    assert 0 < value < 2000, "a sample of one in ten"
    assert f",{value * 1001} bytes in allocations:" in key
    assert len(some.maps["@outstanding"]) == 1


@pytest.mark.tool("memleak", kernel="uprobe")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_all_calls_of_threads_by_the_programs_own_account(tool: Tool, programs: Path, seed: int) -> None:
    threads, steps = (4, 1000) if seed == 1 else (8, 10_000)
    command = f"{programs}/accounts {threads} {steps} {seed}"
    run = tool("memleak", "--older", 0, "-T", 0, "--duration", 50, 60, command=command)
    number, size, ranges, mapped, by_allocator = account(run)
    assert outstanding(run, "allocations", "block", "work") == (number, size)
    assert outstanding(run, "mappings", "range", "range_for_all") == (ranges, mapped)
    assert run.maps["@mapped_by_allocator"] == by_allocator
    assert outstanding(run, "stacks of threads", "main")[0] == threads


@pytest.mark.tool("memleak", kernel="uprobe")
def test_memory_ends_with_exec(tool: Tool, programs: Path) -> None:
    script = f"exec {programs}/leaks 3 0 1001"
    run = tool("memleak", "--older", 0, command=f"sh -c '{script}'")
    assert outstanding(run, "allocations", "keep") == (3, 3003)
    assert outstanding(run, "allocations", ".*")[0] == 3 + 2  # two buffers for input and output, and nothing of sh


@pytest.mark.tool("memleak")
def test_an_allocator_that_nothing_calls_is_told(tool: Tool, programs: Path, tmp_path: Path) -> None:
    """As that of the C library in programs that have another one."""
    (library,) = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line}
    copy = shutil.copy(library, tmp_path / "unused.so")
    run = tool("memleak", "-O", copy, command=leaks(programs), troubles=("no allocation by",))
    (said,) = (message["msg"] for message in run.messages if message["type"] == "warnf")
    assert said == f"no allocation by {copy} was seen: if the program has another allocator, give its file by -O"


@pytest.mark.tool("memleak", "mallocs", kernel="uprobe")
def test_what_finds_no_room_is_told_with_its_share(tool: Tool, programs: Path) -> None:
    full = tool("memleak", "--older", 0, "--max-blocks", 1000, command=leaks(programs, 4000, 0), form="text")
    told = re.search(r"(\d+) of (\d+) allocations \((\d+)%\) found no room", full.stdout)
    assert told
    lost, every, share = map(int, told.groups())
    assert 3000 < lost < every < 4100
    assert share == lost * 100 // every
    words = ("--older", 0, "-z", 1001, "-Z", 1001, "-T", 1)
    stacks = tool("memleak", *words, command=f"{programs}/chains_of_calls 17000", form="text")
    assert f"{1000 * 1001} bytes more are outstanding" in stacks.stdout
    folded = tool("memleak", *words, command=leaks(programs), form="folded")
    assert [line.rsplit(";", 1)[1] for line in folded.lines if line.endswith("keep 10010")] == ["keep 10010"]
    many = f"{programs}/chains_of_calls 33000"
    asked = tool("mallocs", "-z", 1001, "-Z", 1001, command=many, form="text")
    assert f"{1000 * 1001} of {33_000 * 1001} bytes (3%) were asked for by stacks beyond" in asked.stdout
    assert f"[other stacks]]: {1000 * 1001}" in asked.stdout


@pytest.mark.tool("memleak", kernel="uprobe")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--older", 0, "-z", 1001, "-Z", 1001, "--wa-missing-free", "-O", "libc.so.6"), 10),
        (("--older", 3_600_000), 0),
    ],
)
def test_only_some_allocations(tool: Tool, programs: Path, options: tuple[object, ...], found: int) -> None:
    run = tool("memleak", *options, command=f"{leaks(programs)} around")
    assert sum(of(run, "@outstanding", "keep").values()) == found * 1001


@pytest.mark.tool("memleak", kernel="uprobe")
def test_each_allocation(tool: Tool, programs: Path) -> None:
    each = tool("memleak", "--older", 0, "-a", "-t", "-z", 1001, "-Z", 1001, command=leaks(programs, 3, 2))
    calls = [row["CALL"] for row in each.rows if "CALL" in row]
    assert calls == ["alloc"] * 3 + ["alloc", "free"] * 2
    assert [row["SIZE"] for row in each.rows if "STACK" in row] == [1001] * 3


@pytest.mark.tool("memleak", kernel="uprobe")
def test_a_process_at_intervals(tool: Tool, programs: Path) -> None:
    with memory.leaking(programs) as process:
        run = tool(
            "memleak", "-p", process.pid, 1, 2, form="text", interrupt=False, troubles=("no allocation by libc",)
        )
    assert len(re.findall(r"^\[\d\d:\d\d:\d\d\]$", run.stdout, re.MULTILINE)) == 2
    assert "keep+" not in run.stdout  # it was allocated before


@pytest.mark.tool("memleak", kernel="uprobe")
def test_other_allocators_and_mistakes(tool: Tool) -> None:
    for words, message in (
        (("-O", "/bin/true"), "no function malloc in /bin/true"),
        (("--symbols-prefix", "je_"), "no function je_malloc in libc"),
        (("--percpu",), "--percpu is for allocations of the kernel"),
        (("--command", "ls"), "pytrace memleak -c 'ls'"),
    ):
        failed = tool("memleak", *words, command="true", interrupt=False, status=1)
        assert message in failed.stderr


@pytest.mark.tool("memleak")
def test_allocations_of_the_kernel(tool: Tool) -> None:
    needs_tracepoint("kmem:kmalloc")
    with memory.many_names(1):
        run = tool("memleak", "-T", 3, "--older", 0, 1, 1, interrupt=False)
    assert 0 < len(run.maps["@outstanding"]) <= 3
    assert all("+" in key for key in run.maps["@outstanding"])
    if not (TRACING / "events/percpu/percpu_alloc_percpu").exists():
        cannot("this kernel has no tracepoint percpu:percpu_alloc_percpu")
    tool("memleak", "--percpu", 1, 1, interrupt=False)


@pytest.mark.tool("mallocs", kernel="uprobe")
def test_bytes_asked_of_malloc(tool: Tool, programs: Path) -> None:
    run = tool("mallocs", "-z", 1001, "-Z", 1001, command=leaks(programs))
    assert list(of(run, "@bytes", "keep").values()) == [10 * 1001]
    assert list(of(run, "@bytes", "use").values()) == [20 * 1001]
    assert [(bucket["min"], bucket["count"]) for bucket in run.maps["@size_bytes"]] == [(512, 30)]
    all_sizes = tool("mallocs", "-O", "libc.so.6", command=leaks(programs))
    assert sum(all_sizes.maps["@bytes"].values()) > 30 * 1001


@pytest.mark.tool("mallocs", kernel="uprobe")
def test_all_functions_of_the_allocator_and_no_failures(tool: Tool, programs: Path) -> None:
    run = tool("mallocs", "-Z", 1 << 40, command=f"{programs}/accounts 2 400")
    lines = {int(place[1]) for key in run.maps["@bytes"] if (place := re.match(r"\s*block\+.*accounts\.c:(\d+)", key))}
    text = (Path(__file__).parents[1] / "programs/accounts.c").read_text().splitlines()
    called = " ".join(text[line - 1] for line in lines)
    for function in ("malloc(", "calloc(", "realloc(NULL", "realloc(item", "aligned_alloc(", "memalign(", "valloc(",
                     "pvalloc(", "posix_memalign("):  # fmt: skip
        assert function in called
    assert not any("too_much" in text[line - 1] for line in lines)


@pytest.mark.tool("mallocs", kernel="uprobe")
def test_lines_for_flame_graphs(tool: Tool, programs: Path) -> None:
    run = tool("mallocs", "--folded", "-z", 1001, "-Z", 1001, command=leaks(programs), form="text")
    lines = dict(line.rsplit(" ", 1) for line in run.stdout.splitlines() if line.startswith("leaks;"))
    assert {key.rsplit(";", 1)[1]: int(value) for key, value in lines.items()} == {"keep": 10010, "use": 20020}
