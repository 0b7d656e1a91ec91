"""Tools that show mounts, sync calls and writeback."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kernel_features import needs, needs_tracepoint
from tests.support.server import Running
from tests.support.tools import check_columns
from tests.support.workloads import files, mounts
from tests.support.workloads.processes import child
from tests.support.workloads.storage import FileSystem
from tests.tools.conftest import Tool


def number_of(system: FileSystem) -> str:
    """Its device as the kernel shows it: ``7:3``."""
    return ":".join(map(str, system.disk.number))


def kept(work: Callable[[], mounts.Mounts], found: list[mounts.Mounts]) -> Callable[[Running], None]:
    return lambda running: found.append(work())


# ------------------------------------------------------------------------------------------------ mountsnoop


@pytest.mark.tool("mountsnoop")
def test_mountsnoop_shows_calls_and_results(tool: Tool) -> None:
    needs("syscalls")
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


@pytest.mark.tool("mountsnoop")
def test_mountsnoop_with_the_parent_as_text(tool: Tool) -> None:
    needs("syscalls")
    found: list[mounts.Mounts] = []
    run = tool("mountsnoop", "-P", form="text", work=kept(lambda: mounts.mounts(1), found))
    assert run.lines[0].split() == ["COMM", "PID", "TID", "PCOMM", "PPID", "MNT_NS", "CALL"]
    mine = [line.split() for line in run.lines if str(found[0].pid) in line.split()]
    assert len(mine) == 4
    assert {words[4] for words in mine} == {str(os.getpid())}


@pytest.mark.tool("mountsnoop")
def test_mountsnoop_of_one_process_only(tool: Tool) -> None:
    needs("syscalls")
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


@pytest.mark.tool("syncsnoop")
def test_syncsnoop_shows_each_call(tool: Tool, tmp_path: Path) -> None:
    needs("syscalls")
    path = tmp_path / "synced"
    run = tool("syncsnoop", "-p", os.getpid(), work=lambda running: files.sync_calls(path))
    check_columns(run)
    assert [(row["CALL"], row["FILE"]) for row in run.rows] == [
        ("sync", ""), ("fsync", "synced"), ("fdatasync", "synced"), ("syncfs", "synced"),
    ]  # fmt: skip
    assert {row["PID"] for row in run.rows} == {os.getpid()}


@pytest.mark.tool("syncsnoop")
def test_syncsnoop_of_other_calls_and_bad_files(tool: Tool, tmp_path: Path) -> None:
    needs("syscalls")

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
