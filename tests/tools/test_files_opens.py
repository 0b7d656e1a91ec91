"""opensnoop and statsnoop: what is shown of calls that this process makes."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.server import Running
from tests.support.tools import check_columns
from tests.support.workloads import files
from tests.tools.conftest import Tool

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2 = 437
_AT_FDCWD = -100


@pytest.fixture(autouse=True)
def _syscalls() -> None:
    needs("syscalls")


@pytest.mark.tool("opensnoop")
def test_opens_and_failures(tool: Tool, folder: Path) -> None:
    made: list[tuple[list[tuple[str, int]], list[str]]] = []
    run = tool("opensnoop", "-p", os.getpid(), work=lambda _: made.append(files.open_some(folder, good=3, missing=2)))
    check_columns(run)
    opened, absent = made[0]
    good = [row for row in run.starting("PATH", folder / "good") if row["fd"] >= 0]
    # Each is created, then opened.
    assert [row["path"] for row in good] == [path for path, _ in opened] + [path for path, _ in opened]
    assert [row["fd"] for row in good[3:]] == [handle for _, handle in opened]
    assert {row["err"] for row in good} == {0}
    missing = run.starting("PATH", folder / "missing")
    assert [(row["path"], row["fd"], row["err"]) for row in missing] == [(path, -1, 2) for path in absent]
    assert {row["pid"] for row in run.rows} == {os.getpid()}


@pytest.mark.tool("opensnoop")
def test_text_of_failed_opens(tool: Tool, folder: Path) -> None:
    run = tool(
        "opensnoop", "-x", "-U", "-p", os.getpid(), form="text",
        work=lambda _: files.open_some(folder, good=2, missing=1), until="missing0",
    )  # fmt: skip
    assert run.lines[0].split() == ["TIME(s)", "UID", "PID", "COMM", "FD", "ERR", "PATH"]
    assert not [line for line in run.lines if "good" in line]
    row = next(line.split() for line in run.lines if "missing0" in line)
    assert row[1:3] == [str(os.getuid()), str(os.getpid())]
    assert row[-3:] == ["-1", "2", str(folder / "missing0")]


@pytest.mark.tool("opensnoop", "statsnoop")
@pytest.mark.parametrize("name", ["opensnoop", "statsnoop"])
def test_failures_are_counted_by_path_and_error(tool: Tool, folder: Path, name: str) -> None:
    def work(_: object) -> None:
        for times, path in ((3, "missing0"), (1, "missing1")):
            for _ in range(times):
                with contextlib.suppress(FileNotFoundError):
                    (open if name == "opensnoop" else os.stat)(folder / path)
        os.stat(folder)

    run = tool(name, "-x", "--count", "-p", os.getpid(), work=work)
    rows = [row for row in run.rows if row["path"].startswith(str(folder))]
    assert [(row["count"], row["err"], Path(row["path"]).name) for row in rows] == [
        (3, "ENOENT", "missing0"), (1, "ENOENT", "missing1")
    ]  # fmt: skip


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def _openat2(path: Path, flags: int, mode: int) -> None:
    how = _How(flags, mode, 0)
    handle = _libc.syscall(_OPENAT2, _AT_FDCWD, bytes(path), ctypes.byref(how), ctypes.sizeof(how))
    assert handle >= 0, os.strerror(ctypes.get_errno())
    os.close(handle)


@pytest.mark.tool("opensnoop")
def test_every_system_call_that_opens_with_flags_and_mode(tool: Tool, folder: Path) -> None:
    def work(_running: Running) -> None:
        os.close(os.open(folder / "by_openat", os.O_WRONLY | os.O_CREAT, 0o640))
        os.close(_libc.creat(bytes(folder / "by_creat"), 0o600))
        _openat2(folder / "by_openat2", os.O_RDWR | os.O_CREAT, 0o444)
        if os.uname().machine == "x86_64":
            os.close(_libc.syscall(2, bytes(folder / "by_openat"), os.O_RDONLY | os.O_APPEND, 0))

    run = tool("opensnoop", "--extended_fields", "-p", os.getpid(), work=work)
    shown = {
        row["path"].removeprefix(f"{folder}/by_"): (int(row["flags"], 8), int(row["mode"], 8))
        for row in run.starting("PATH", folder / "by_")
        if int(row["flags"], 8) & os.O_CREAT
    }
    assert shown["openat"] == (os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
    assert shown["creat"] == (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    assert shown["openat2"] == (os.O_RDWR | os.O_CREAT, 0o444)
    if os.uname().machine == "x86_64":
        assert [row["flags"] for row in run.starting("PATH", folder / "by_openat")][-1] == "02000"


@pytest.mark.tool("opensnoop")
def test_flags_that_are_asked_for(tool: Tool, folder: Path) -> None:
    def work(_running: Running) -> None:
        for name, flags in (
            ("r", os.O_RDONLY), ("w", os.O_WRONLY | os.O_CREAT), ("rw", os.O_RDWR), ("d", os.O_DIRECTORY),
            ("sync", os.O_SYNC | os.O_RDONLY),
        ):  # fmt: skip
            with suppress(OSError):
                os.close(os.open(folder / f"flag.{name}", flags))

    def names(*options: str) -> list[str]:
        run = tool("opensnoop", *options, "-p", os.getpid(), work=work)
        return [row["path"].rpartition("flag.")[2] for row in run.starting("PATH", folder / "flag.")]

    assert names("--flag_filter", "O_WRONLY", "--flag_filter", "O_RDWR") == ["w", "rw"]
    assert names("--flag_filter", "O_SYNC") == ["sync"]
    assert names("--flag_filter", "O_RDONLY") == ["r", "d", "sync"]
    assert names("--flag_filter", "O_DIRECTORY") == ["d"]


@pytest.mark.tool("opensnoop")
def test_relative_paths_with_their_directories(tool: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = folder / "relative" / "inner"
    inner.mkdir(parents=True)
    (inner / "there").touch()
    monkeypatch.chdir(inner.parent)

    def work(_running: Running) -> None:
        handle = os.open("inner", os.O_RDONLY)
        os.close(os.open("there", os.O_RDONLY, dir_fd=handle))
        os.close(handle)
        with suppress(FileNotFoundError):
            os.open("../absent", os.O_RDONLY)
        os.chdir("/proc/self")
        os.close(os.open("stat", os.O_RDONLY))
        os.chdir("/")
        os.close(os.open("proc", os.O_RDONLY))
        os.close(os.open("/etc/passwd", os.O_RDONLY))

    run = tool("opensnoop", "-F", "-T", "-p", os.getpid(), work=work)
    expected = [
        str(inner), str(inner / "there"), f"{inner.parent}/../absent", f"/proc/{os.getpid()}/stat", "/proc",
        "/etc/passwd",
    ]  # fmt: skip
    assert [row["path"] for row in run.rows if row["path"] in expected] == expected


@pytest.mark.tool("opensnoop")
def test_a_path_whose_page_is_not_in_memory_yet(tool: Tool, folder: Path) -> None:
    """Nothing but the kernel reads it: before the call it cannot be read without a page fault."""
    holder, target = folder / "holder", folder / "in_a_cold_page"
    target.touch()
    holder.write_bytes(bytes(target).ljust(mmap.PAGESIZE, b"\0"))

    def work(_running: Running) -> None:
        with (
            holder.open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as map_,
        ):
            address = _address(map_)
            os.close(_libc.open(ctypes.c_void_p(address), os.O_RDONLY))

    run = tool("opensnoop", "-p", os.getpid(), work=work)
    assert [row["err"] for row in run.of(PATH=str(target))] == [0]


def _address(map_: mmap.mmap) -> int:
    """Where a mapping is, without touching it."""
    found = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("/holder")]
    assert len(found) == 1
    assert map_
    return int(found[0].partition("-")[0], 16)


@pytest.mark.tool("opensnoop")
def test_threads_and_names(tool: Tool, folder: Path) -> None:
    def work(_running: Running) -> None:
        files.open_some(folder, good=1, missing=0)

    assert tool("opensnoop", "-t", os.getpid(), "-u", "0", work=work).starting("PATH", folder)
    assert not tool("opensnoop", "-t", 1, work=work).rows
    own = Path("/proc/self/comm").read_text().strip()
    assert tool("opensnoop", "-n", own[:3], "-p", os.getpid(), work=work).starting("PATH", folder)
    assert not tool("opensnoop", "-n", "no such name", work=work).rows
    program = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert tool("opensnoop", "--exec", program, "-p", os.getpid(), work=work).starting("PATH", folder)
    assert not tool("opensnoop", "--exec", "nosuch", work=work).rows


@pytest.mark.tool("opensnoop")
def test_options_that_end_or_are_refused(tool: Tool) -> None:
    assert tool("opensnoop", "-d", 1, "--comm", "nobody", interrupt=False).status == 0
    for option in ("--cgroupmap", "--mntnsmap"):
        run = tool("opensnoop", option, "/sys/fs/bpf/x", status=1, interrupt=False)
        assert "--container ID" in run.stderr
    run = tool("opensnoop", "--flag_filter", "O_WRITE", status=1, interrupt=False)
    assert "O_WRITE" in run.stderr


@pytest.mark.tool("statsnoop")
def test_stat_calls(tool: Tool, folder: Path) -> None:
    made: list[tuple[list[str], list[str]]] = []
    run = tool("statsnoop", "-p", os.getpid(), work=lambda _: made.append(files.stat(folder, good=3, missing=2)))
    check_columns(run)
    present, absent = made[0]
    assert [(row["path"], row["fd"], row["err"]) for row in run.starting("PATH", folder)] == [
        *((path, 0, 0) for path in present), *((path, -1, 2) for path in absent),
    ]  # fmt: skip


@pytest.mark.tool("statsnoop")
def test_names_of_calls_that_fail(tool: Tool, folder: Path) -> None:
    buffer = ctypes.create_string_buffer(4096)

    def work(_running: Running) -> None:
        files.stat(folder, good=1, missing=1)
        with suppress(FileNotFoundError):
            os.statvfs(folder / "no_fs")
        _libc.statx(_AT_FDCWD, bytes(folder / "no_statx"), 0, 0xFFF, buffer)
        os.fstat(0)
        _libc.statx(0, b"", 0x1000, 0xFFF, buffer)

    run = tool("statsnoop", "-x", "-s", "-t", "-p", os.getpid(), work=work)
    shown = {row["path"].rpartition("/")[2]: row["syscall"] for row in run.starting("PATH", folder)}
    assert shown == {"absent0": shown["absent0"], "no_fs": "statfs", "no_statx": "statx"}
    assert shown["absent0"] in ("newfstatat", "newstat", "statx")
    assert not [row for row in run.rows if row["fd"] == 0 or not row["path"]]


@pytest.mark.tool("statsnoop")
def test_text_of_stat_calls(tool: Tool, folder: Path) -> None:
    run = tool(
        "statsnoop",
        "-p",
        os.getpid(),
        form="text",
        work=lambda _: files.stat(folder, good=0, missing=1),
        until="absent0",
    )
    check_columns(run)
