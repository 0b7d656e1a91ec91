"""Tools about file systems: operations of files, mounts, sync calls and writeback."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_features import needs_tracepoint
from tests.support.server import Running
from tests.support.tools import ToolRun, check_columns
from tests.support.workloads import files, mounts, storage
from tests.support.workloads.processes import child
from tests.support.workloads.storage import FileSystem
from tests.tools.conftest import Tool

EXT4 = pytest.param("ext4", marks=pytest.mark.needs("ext4"))
XFS = pytest.param("xfs", marks=[pytest.mark.needs("xfs"), pytest.mark.each_kernel])
BTRFS = pytest.param("btrfs", marks=pytest.mark.needs("btrfs"))


@pytest.fixture(scope="module", params=[EXT4, "xfs", BTRFS])
def system(request: pytest.FixtureRequest) -> Iterator[FileSystem]:
    with storage.file_system(request.param) as made:
        yield made


def work(system: FileSystem, prefix: str) -> None:
    """Three opens for each file (one creates), with writes and reads of 5000 and 8192 bytes; two appends with fsync."""
    made = files.create(system.folder, [0, 5000, 8192], prefix)
    files.read(files.read(made))
    files.synchronize(made.files[1], 2)


def shown(run: ToolRun, name: str) -> list[tuple[str, int, int]]:
    return [(row["T"], row["BYTES"], row["OFF_KB"]) for row in run.of(FILENAME=name, PID=os.getpid())]


EACH_EXT4 = pytest.param("ext4", marks=[pytest.mark.needs("ext4"), pytest.mark.each_kernel])


@pytest.mark.tool("fsslower", "ext4slower", "xfsslower", "btrfsslower", kernel="syscalls")
@pytest.mark.parametrize("system", [EACH_EXT4, "xfs", BTRFS], indirect=True)
def test_operations_of_files(tool: Tool, system: FileSystem) -> None:
    run = tool(f"{system.kind}slower", "-m", 0, "-p", os.getpid(), work=lambda _: work(system, "op"))
    check_columns(run)
    assert shown(run, "op0") == [("O", 0, 0)] * 3
    whole = [("O", 0, 0), ("R", 8192, 0)]
    assert shown(run, "op2") == [("O", 0, 0), ("W", 8192, 0), *whole, *whole]
    synchronized = [row for row in shown(run, "op1")[6:] if row[0] in "WS"]
    assert synchronized == [("W", 1, 4), ("S", 0, 0), ("W", 1, 4), ("S", 0, 0)]
    assert all(row["LAT(ms)"] >= 0 for row in run.rows)
    syncs = [row["LAT(ms)"] for row in run.of(FILENAME="op1", T="S")]
    assert max(syncs) > min(row["LAT(ms)"] for row in run.of(FILENAME="op1", T="R"))


@pytest.mark.tool("fsslower", "ext4slower", "xfsslower", "btrfsslower", kernel="syscalls")
def test_fast_operations_are_not_shown(tool: Tool, system: FileSystem) -> None:
    for arguments in ((f"{system.kind}slower", 3600_000), ("fsslower", "-t", system.kind, "--min", 3600_000)):
        name, *rest = arguments
        assert not tool(str(name), *rest, "-p", os.getpid(), work=lambda _: work(system, "fast")).rows


@pytest.mark.tool("fsslower", kernel="syscalls")
@pytest.mark.needs("ext4", "xfs")
def test_other_file_systems_are_not_shown(tool: Tool, ext4: FileSystem, xfs: FileSystem) -> None:

    def both(_running: object) -> None:
        work(ext4, "other")
        work(xfs, "mine")

    run = tool("fsslower", "-t", "xfs", "-m", 0, "-p", os.getpid(), work=both)
    assert shown(run, "mine0")
    assert not shown(run, "other0")
    run = tool("fsslower", "0", "-p", os.getpid(), work=both, form="text")
    check_columns(run)
    assert "mine0" in run.stdout
    assert "other0" in run.stdout


@pytest.mark.tool("fsslower", kernel="syscalls")
def test_it_ends_by_itself(tool: Tool) -> None:
    tool("fsslower", "-d", 1, interrupt=False)


def totals(run: ToolRun, name: str = "@usecs") -> dict[str, int]:
    """Operations by kind, of the histograms printed last."""
    histograms: dict[str, list[dict[str, Any]]] = run.maps[name]
    return {kind: sum(bucket["count"] for bucket in buckets) for kind, buckets in histograms.items()}


@pytest.mark.tool("fsdist", "xfsdist", "btrfsdist", kernel="syscalls")
@pytest.mark.parametrize("kind", [XFS, BTRFS])
def test_latency_of_operations(tool: Tool, kind: str, request: pytest.FixtureRequest) -> None:
    """Of all that this process does on such a file system; on ext4 it does more than its work."""
    system = request.getfixturevalue(kind)
    run = tool(f"{kind}dist", "-p", os.getpid(), work=lambda _: work(system, "dist"))
    counted = totals(run)
    expected = {"open": 10, "read": 4, "write": 4, "fsync": 2}
    assert {name: counted[name] for name in expected} == expected
    assert counted.keys() - expected.keys() <= {"getattr"}


@pytest.mark.tool("fsdist", kernel="fentry")
@pytest.mark.needs("xfs")
def test_getattr_is_measured_in_the_file_system(tool: Tool, xfs: FileSystem) -> None:
    made = files.create(xfs.folder, [0] * 5, "attributes")
    run = tool("fsdist", "-t", "xfs", "-p", os.getpid(), work=lambda _: [os.stat(path) for path in made.files])
    assert totals(run) == {"getattr": 5}


@pytest.mark.tool("fsdist", "ext4dist", kernel="syscalls")
@pytest.mark.needs("ext4")
def test_intervals_and_milliseconds(tool: Tool, ext4: FileSystem) -> None:
    run = tool("ext4dist", "-m", "-T", 1, 2, work=lambda _: work(ext4, "interval"), interrupt=False)
    assert not [name for name in run.maps if name != "@msecs"]
    assert [message["type"] for message in run.messages].count("time") == 2


# ---------------------------------------------------------------------------------------------- files mounts and sync
# Tools that show mounts, sync calls and writeback.


def number_of(system: FileSystem) -> str:
    """Its device as the kernel shows it: ``7:3``."""
    return ":".join(map(str, system.disk.number))


def kept(work: Callable[[], mounts.Mounts], found: list[mounts.Mounts]) -> Callable[[Running], None]:
    return lambda running: found.append(work())


# ------------------------------------------------------------------------------------------------ mountsnoop


@pytest.mark.tool("mountsnoop", kernel="syscalls")
def test_mountsnoop_shows_calls_and_results(tool: Tool) -> None:
    found: list[mounts.Mounts] = []
    run = tool("mountsnoop", work=kept(lambda: mounts.mounts(2), found))
    check_columns(run)
    (made,) = found
    rows = run.of(PID=made.pid)
    pair = [
        f'mount("pytrace", "{made.folder}", "tmpfs", 0, "size=64k") = 0',
        f'umount("{made.folder}", 0) = 0',
    ]
    assert [row["CALL"] for row in rows] == [
        'mount("none", "/", "", MS_REC|MS_PRIVATE, "") = 0',
        *pair,
        *pair,
        f'mount("pytrace", "{made.folder}/nowhere", "tmpfs", 0, "") = -2 (No such file or directory)',
    ]
    assert {row["TID"] for row in rows} == {made.pid}
    assert len({row["MNT_NS"] for row in rows}) == 1
    assert rows[0]["MNT_NS"] != os.stat("/proc/self/ns/mnt").st_ino


@pytest.mark.tool("mountsnoop", kernel="syscalls")
def test_mountsnoop_with_the_parent_as_text(tool: Tool) -> None:
    found: list[mounts.Mounts] = []
    run = tool("mountsnoop", "-P", form="text", work=kept(lambda: mounts.mounts(1), found))
    assert run.lines[0].split() == ["COMM", "PID", "TID", "PCOMM", "PPID", "MNT_NS", "CALL"]
    mine = [line.split() for line in run.lines if str(found[0].pid) in line.split()]
    assert len(mine) == 4
    assert {words[4] for words in mine} == {str(os.getpid())}


@pytest.mark.tool("mountsnoop", kernel="syscalls")
def test_mountsnoop_of_one_process_only(tool: Tool) -> None:
    run = tool("mountsnoop", "-p", 1, work=lambda running: mounts.mounts(1))
    assert not run.rows


@pytest.mark.tool("mountsnoop")
def test_mountsnoop_of_the_newer_interface(tool: Tool) -> None:
    needs_tracepoint("syscalls:sys_enter_fsopen")

    def calls() -> int:
        syscall = ctypes.CDLL(None).syscall
        handle = syscall(430, b"tmpfs", 0)
        done = syscall(431, handle, 1, b"size", b"64k", 0), syscall(431, handle, 6, None, None, 0)
        return int(any(done) or syscall(432, -1, 0, 0) != -1)

    pids: list[int] = []

    def work(running: Running) -> None:
        ended = child(calls)
        assert ended.code == 0
        pids.append(ended.pid)

    run = tool("mountsnoop", work=work)
    calls_seen = [row["CALL"] for row in run.of(PID=pids[0])]
    number = calls_seen[0].rpartition(" = ")[2]
    assert calls_seen == [
        f'fsopen("tmpfs", 0) = {number}',
        f'fsconfig({number}, FSCONFIG_SET_STRING, "size", "64k", 0) = 0',
        f'fsconfig({number}, FSCONFIG_CMD_CREATE, "", "", 0) = 0',
        "fsmount(-1, 0, 0) = -9 (Bad file number)",
    ]


@pytest.mark.tool("mountsnoop")
@pytest.mark.parametrize("option", ["--cgroupmap", "--mntnsmap"])
def test_mountsnoop_names_the_way_for_pinned_maps(tool: Tool, option: str) -> None:
    assert "--container" in tool("mountsnoop", option, "/sys/fs/bpf/x", form="text", status=1, interrupt=False).stderr


# ------------------------------------------------------------------------------------------------ syncsnoop


@pytest.mark.tool("syncsnoop", kernel="syscalls")
def test_syncsnoop_shows_each_call(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "synced"
    run = tool("syncsnoop", "-p", os.getpid(), work=lambda running: files.sync_calls(path))
    check_columns(run)
    assert [(row["CALL"], row["FILE"]) for row in run.rows] == [
        ("sync", ""), ("fsync", "synced"), ("fdatasync", "synced"), ("syncfs", "synced"),
    ]  # fmt: skip
    assert {row["PID"] for row in run.rows} == {os.getpid()}


@pytest.mark.tool("syncsnoop", kernel="syscalls")
def test_syncsnoop_of_other_calls_and_bad_files(tool: Tool, tmp_path: Path) -> None:

    def work(running: Running) -> None:
        libc = ctypes.CDLL(None)
        with (tmp_path / "ranged").open("wb") as file:
            libc.sync_file_range(file.fileno(), ctypes.c_int64(0), ctypes.c_int64(0), 2)
        libc.fsync(1_000_000)
        libc.fsync(-1)
        libc.msync(ctypes.c_void_p(4096), 4096, 4)

    run = tool("syncsnoop", "-p", os.getpid(), form="text", work=work)
    check_columns(run)
    shown = [" ".join(line.split()[2:]).replace(f" {os.getpid()}", "") for line in run.lines[1:]]
    assert shown == ["sync_file_range ranged", "fsync", "fsync", "msync"]


# ------------------------------------------------------------------------------------------------ writeback


@pytest.mark.tool("writeback")
@pytest.mark.needs("ext4")
def test_writeback_counts_pages(tool: Tool, ext4: FileSystem) -> None:
    needs_tracepoint("writeback:writeback_start")
    device = number_of(ext4)
    os.sync()

    def work(running: Running) -> None:
        files.dirty_pages(ext4.folder / "dirty", 64)
        os.sync()
        running.until_printed(f'"DEVICE": "{device}"')

    run = tool("writeback", work=work)
    check_columns(run)
    rows = run.of(DEVICE=device)
    assert any(row["REASON"] == "sync" for row in rows)
    assert 64 <= sum(row["PAGES"] for row in rows) < 512
    assert all(row["ms"] >= 0 and row["PAGES"] >= 0 for row in rows)


@pytest.mark.tool("writeback")
@pytest.mark.needs("ext4")
def test_writeback_during_a_command_as_text(tool: Tool, ext4: FileSystem) -> None:
    """The kernel's threads write for all processes, so the command restricts nothing."""
    needs_tracepoint("writeback:writeback_start")
    run = tool("writeback", form="text", command=f"sh -c 'echo text > {ext4.folder}/note; sync'")
    check_columns(run)
    assert any(line.split()[1] == number_of(ext4) for line in run.lines[1:])
