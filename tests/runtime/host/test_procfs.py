"""pytrace.runtime.host.procfs: rows of ``maps``, and processes that are gone, hidden or elsewhere."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.host import procfs
from pytrace.runtime.host.procfs import Mapping
from tests.support.waiting import until

MAPS = b"""\
559de0000000-559de0001000 r--p 00000000 fe:01 1234                       /usr/bin/thing
559de0001000-559de0003000 r-xp 00001000 fe:01 1234                       /usr/bin/thing
559de0003000-559de0004000 rw-p 00003000 fe:01 1234                       /usr/bin/thing
559de0004000-559de0005000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 r-xp 00000000 103:02 77                        /tmp/a b.so (deleted)
7f0000001000-7f0000002000 rwxp 00000000 00:00 0\x20
7fff00000000-7fff00001000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
not a row
"""
NOBODY = 1 << 22 | 1
"""No process has that number: it is above the largest ``pid_max``."""


def test_executable_rows() -> None:
    rows = procfs.executable_mappings(MAPS)
    assert [row.path for row in rows] == ["/usr/bin/thing", "/tmp/a b.so", "", "[vdso]", "[vsyscall]"]
    assert rows[0] == Mapping(
        0x559DE0001000, 0x559DE0003000, 0x1000, os.makedev(0xFE, 1), 1234, "/usr/bin/thing"
    )
    assert (rows[1].device, rows[1].inode) == (os.makedev(0x103, 2), 77)
    assert rows[-1].end == 0xFFFFFFFFFF601000


def test_writable_rows() -> None:
    assert [row.path for row in procfs.writable_mappings(MAPS)] == ["/usr/bin/thing", "[heap]", ""]
    assert procfs.writable_mappings(b"") == []


def test_paths_in_any_encoding() -> None:
    (row,) = procfs.executable_mappings(b"1000-2000 r-xp 00000000 00:01 5 /tmp/\xff\n")
    assert os.fsencode(row.path) == b"/tmp/\xff"


def test_numbers_larger_than_those_of_the_kernel_are_no_mapping() -> None:
    row = b"1000-2000 r-xp 00000000 00:%s 5 /tmp/x\n"
    assert procfs.executable_mappings(row % b"fffff")[0].device == os.makedev(0, 0xFFFFF)
    assert procfs.executable_mappings(row % (b"f" * 40)) == []
    assert procfs.executable_mappings(b"f" * 17 + row % b"1") == []


def test_this_process() -> None:
    me = os.getpid()
    assert me in procfs.process_ids()
    pids = procfs.process_ids()
    assert pids == sorted(pids)
    assert procfs.root_prefix(me) == ""
    assert os.path.samefile(procfs.executable(me), sys.executable)
    assert not procfs.hidden(me)
    procfs.check_visible(me)
    files = procfs.mapped_files(me)
    assert any(os.path.samefile(path, sys.executable) for path in files if os.path.exists(path))
    assert len(files) == len(set(files))
    assert not any(path.startswith("[") for path in files)


def test_only_files_are_mapped_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some drivers map what has an inode and no path."""
    maps = MAPS + b"2000-3000 r-xp 00000000 00:0f 9 anon_inode:[perf_event]\n" + MAPS
    monkeypatch.setattr(procfs, "read_maps", lambda _pid: maps)
    monkeypatch.setattr(procfs, "root_prefix", lambda _pid: "/proc/7/root")
    assert procfs.mapped_files(7) == ["/proc/7/root/usr/bin/thing", "/proc/7/root/tmp/a b.so"]


ENDED = """
import ctypes, os, threading, time
def later():
    print(os.getpid(), threading.get_native_id(), flush=True)
    time.sleep(60)
threading.Thread(target=later).start()
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="exit(2) has another number elsewhere")
def test_a_process_whose_first_thread_has_ended() -> None:
    """``/proc/PID/maps`` is empty then; the memory is that of the threads that go on."""
    child = subprocess.Popen([sys.executable, "-c", ENDED], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        _, thread = map(int, child.stdout.readline().split())
        until(lambda: procfs.live_thread(child.pid) == thread)
        assert not Path(f"/proc/{child.pid}/maps").read_bytes()
        assert b"r-xp" in procfs.read_maps(child.pid)
    finally:
        child.kill()
        child.communicate()
    assert procfs.live_thread(child.pid) == 0
    assert procfs.live_thread(os.getpid()) == os.getpid()


def test_children_and_ancestors() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in procfs.children(os.getpid())
        assert procfs.ancestors(child.pid)[0] == os.getpid()
        assert procfs.ancestors(child.pid)[1] == os.getppid()
    finally:
        child.kill()
        child.communicate()
    assert procfs.children(NOBODY) == procfs.ancestors(NOBODY) == []


def test_a_process_that_is_gone() -> None:
    assert procfs.read_maps(NOBODY) == b""
    assert procfs.root_prefix(NOBODY) == ""
    assert procfs.executable(NOBODY) == ""
    assert procfs.mapped_files(NOBODY) == []
    assert not procfs.hidden(NOBODY)
    for check in (procfs.check_exists, procfs.check_visible):
        with pytest.raises(TraceError, match=f"there is no process {NOBODY}$"):
            check(NOBODY)


@pytest.mark.parametrize(
    ("links", "prefix"),
    [
        ({"/proc/7/ns/mnt": "mnt:[1]", "/proc/self/ns/mnt": "mnt:[1]", "/proc/7/root": "/"}, ""),
        ({"/proc/7/ns/mnt": "mnt:[1]", "/proc/self/ns/mnt": "mnt:[1]", "/proc/7/root": "/jail"}, "/proc/7/root"),
        ({"/proc/7/ns/mnt": "mnt:[2]", "/proc/self/ns/mnt": "mnt:[1]"}, "/proc/7/root"),
        ({}, ""),
    ],
    ids=["same", "chroot", "container", "gone"],
)
def test_how_files_of_a_process_are_reached(
    links: dict[str, str], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "readlink", _links({**links, "/proc/7/exe": "/bin/thing (deleted)"}))
    assert procfs.root_prefix(7) == prefix
    assert procfs.executable(7) == f"{prefix}/bin/thing"


def _links(known: dict[str, str]) -> Callable[[str], str]:
    def readlink(path: str) -> str:
        if path not in known:
            raise FileNotFoundError(path)
        return known[path]

    return readlink


def test_a_process_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "readlink", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    assert procfs.hidden(os.getpid())
    assert procfs.read_maps(os.getpid()) == b""
    with pytest.raises(TraceError, match="belongs to another user") as raised:
        procfs.check_visible(os.getpid())
    assert raised.value.hints == ("that needs CAP_SYS_PTRACE, or root",)


@pytest.fixture
def ended() -> Iterator[int]:
    """A process that has ended and is not yet collected: like a kernel thread it has no program."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


def test_a_process_without_a_program(ended: int) -> None:
    procfs.check_visible(ended)
    assert procfs.executable(ended) == ""
    assert procfs.mapped_files(ended) == []


# ---------------------------------------------------------------------------------------------- links


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """``real/tool``, and links to it: relative, absolute, through a folder, through others, in a circle, to nothing."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/tool").touch()
    links = {
        "relative": "real/tool", "absolute": f"{tmp_path}/real/tool", "folder": "./real/", "up": "real/../folder/tool",
        "twice": "up", "circle": "circle", "dangling": "nowhere/tool",
    }  # fmt: skip
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    ["real/tool", "relative", "absolute", "folder/tool", "up", "twice", "real/..//./folder/tool", "dangling", "gone"],
)
def test_links_of_a_process_stay_below_its_root(tree: Path, path: str) -> None:
    root = f"/proc/{os.getpid()}/root"
    assert procfs.resolved(f"{root}{tree}/{path}") == (root, os.path.realpath(tree / path))
    assert procfs.resolved(f"{tree}/{path}") == ("", os.path.realpath(tree / path))


def test_nothing_is_above_the_root_of_a_process(tree: Path) -> None:
    root = f"/proc/{os.getpid()}/root"
    assert procfs.resolved(f"{root}/../../{tree}/real/tool") == (root, f"{tree}/real/tool")
    assert procfs.resolved("/proc/1/rooted")[0] == ""


def test_paths_as_text_stay_below_the_root_of_a_process() -> None:
    root = "/proc/12/root"
    for path in (f"{root}/../../../etc/x", f"{root}/a/../../b/../etc/./x", f"{root}//etc/x"):
        assert procfs.normalized(path) == f"{root}/etc/x"
    assert procfs.normalized("/usr/../etc/x") == "/etc/x"


def test_a_circle_of_links_ends(tree: Path) -> None:
    root = f"/proc/{os.getpid()}/root"
    assert procfs.resolved(f"{root}{tree}/circle") == (root, f"{tree}/circle")
