"""pytrace.runtime.machine.foreign_files: files that another user may have put there."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytrace.base.limited_process import LimitedProcess, Limits
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.machine import foreign_files
from pytrace.runtime.machine.foreign_files import ReadFile, open_contents, pieces
from tests.support import fuse_server
from tests.support.rows import each_row
from tests.support.waiting import open_descriptors

if TYPE_CHECKING:
    from pathlib import Path


def content(path: str, flags: int = 0) -> bytes:
    with foreign_files.open_regular(path, flags) as file:
        return file.read()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/null")])
def test_nothing_but_regular_files_is_opened(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "it")
    with pytest.raises(OSError, match="not a regular file"):
        foreign_files.open_regular(str(tmp_path / "it"))


def test_links_are_followed_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("file")
    assert content(str(tmp_path / "link")) == b"data"
    with pytest.raises(OSError, match="not a regular file"):
        content(str(tmp_path / "link"), os.O_NOFOLLOW)
    with pytest.raises(FileNotFoundError):
        content(str(tmp_path / "none"))


@pytest.mark.parametrize(
    "path", ["/proc/self/status", "/proc/kmsg", "/sys/kernel/notes", "/sys/kernel/tracing/trace_pipe", "/dev/pts/ptmx",
             "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/security/lsm", "/sys/kernel/debug/sleep_time"],
)  # fmt: skip
def test_files_of_the_kernel_are_not_opened(path: str, tmp_path: Path) -> None:
    """They are regular files by fstat; reading ``trace_pipe`` waits for ever."""
    if not os.path.exists(path):
        pytest.skip("this machine has no such file system")
    (tmp_path / "link").symlink_to(path)
    for reached in (path, str(tmp_path / "link"), f"/proc/self/root/{path}", f"/tmp/..{path}"):
        with pytest.raises(OSError, match=r"a file of the kernel|not a regular file"):
            foreign_files.open_regular(reached)


def test_no_more_is_read_than_the_size_says(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    with foreign_files.open_regular(str(path)) as file:
        with path.open("ab") as other:
            other.write(b"9" * 100_000)
        assert file.read(3) == b"123"
        assert file.read() == b"45678"
        assert (file.seek(50), file.read(), file.read(10)) == (50, b"", b"")
        assert (file.seek(2), file.read(1000)) == (2, b"345678")
    path.write_bytes(b"")
    with foreign_files.open_regular(str(path)) as file:
        path.write_bytes(b"late")
        assert file.read() == b"", "what has no size is empty"


def test_a_lease_holds_nobody_up(tmp_path: Path) -> None:
    """Opening would wait for as long as /proc/sys/fs/lease-break-time says, 45 seconds."""
    path = tmp_path / "file"
    path.write_bytes(b"text")
    ignored = signal.signal(signal.SIGIO, signal.SIG_IGN)
    owner = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(owner, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(OSError, match="lease"):
            foreign_files.open_regular(str(path))
    finally:
        os.close(owner)
        signal.signal(signal.SIGIO, ignored)
    assert content(str(path)) == b"text"


@pytest.fixture
def jailed(tmp_path: Path) -> Iterator[str]:
    """``/proc/PID/root`` of a process whose root directory is the test's."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.chroot(tmp_path)
            os.chdir("/")
            os.write(write, b"x")
            os.close(write)
            signal.pause()
        finally:
            os._exit(0)
    os.read(read, 1)
    yield f"/proc/{child}/root"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory")
def test_links_of_a_container_stay_inside(jailed: str, tmp_path: Path) -> None:
    before = set(open_descriptors())
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("inside")
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    (tmp_path / "upwards").symlink_to("../../../../../../etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "two\nlines").symlink_to("/etc/passwd")
    (tmp_path / "\n").symlink_to("../../etc")
    for name in (
        "etc/passwd", "absolute", "upwards", "folder/passwd", "/../etc/passwd", "./folder/../etc//passwd", "two\nlines",
        "\n/passwd",
    ):  # fmt: skip
        assert content(f"{jailed}/{name}") == b"inside"
    with pytest.raises(FileNotFoundError) as error:
        content(f"{jailed}/etc/shadow")
    assert error.value.filename == f"{jailed}/etc/shadow"
    for name, text in (("circle", "Too many levels"), ("etc/passwd/x", "Not a directory"), ("etc", "not a regular")):
        with pytest.raises(OSError, match=text):
            content(f"{jailed}/{name}")
    with pytest.raises(OSError, match="not a regular file"):
        content(f"{jailed}/absolute", os.O_NOFOLLOW)
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory")
def test_root_of_a_container_is_not_trusted(jailed: str, tmp_path: Path) -> None:
    """It could truncate what this process has mapped, which would end it. What we have ourselves is trusted."""
    path = tmp_path / "a\nfile"
    path.write_bytes(b"12345678")
    pid = jailed.split("/")[2]
    for name in (f"{jailed}/a\nfile", f"{jailed}//a\nfile", f"/proc/{pid}/map_files/1-2", f"/proc/{pid}/exe"):
        assert not foreign_files.trusted(name, foreign_files.look(str(path)))
        with foreign_files.open_regular(str(path)) as file:
            assert isinstance(foreign_files.contents_of(file, name), foreign_files.ReadFile)
    own = os.path.realpath(sys.executable)
    status = foreign_files.look(own)
    assert status.st_uid == 0
    for name in (own, f"/proc/self{own}", f"/proc/{os.getpid()}/root{own}", f"/proc/{os.getpid()}/exe"):
        assert foreign_files.trusted(name, status)
    os.chmod(path, 0o666)
    assert not foreign_files.trusted(str(path), foreign_files.look(str(path)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory")
def test_the_kernel_is_given_the_file_inside(jailed: str, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("inside")
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    with foreign_files.kernel_path(f"{jailed}/absolute") as path:
        assert Path(path).read_text() == "inside"
    with pytest.raises(FileNotFoundError), foreign_files.kernel_path(f"{jailed}/none"):
        pass
    with foreign_files.kernel_path("/etc/passwd") as path:
        assert path == "/etc/passwd"


# ---------------------------------------------------------------------------------------------- contents


TEXT = bytes(range(256)) * 20


@each_row("mode", [0o600, 0o666, 0o660], ids=["mapped", "of everybody", "of a group"])
@each_row(("start", "size"), [(0, None), (0, 100), (300, 1000), (5000, 1000), (9000, 10)])
def test_slices(tmp_path: Path, mode: int, start: int, size: int | None) -> None:
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    path.chmod(mode)
    wanted = TEXT[start:] if size is None else TEXT[start : start + size]
    found = open_contents(str(path), start, size)
    assert isinstance(found, ReadFile) == (mode != 0o600)
    assert len(found) == len(wanted)
    for part in (slice(0, 16), slice(90, 300), slice(500, 1 << 70), slice(7, 3), slice(None)):
        assert bytes(found[part]) == wanted[part]
    assert b"".join(pieces(found)) == wanted
    found.release()


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="is empty"):
        open_contents(str(tmp_path / "file"))


def test_a_file_that_its_owner_truncates(tmp_path: Path) -> None:
    """A mapping would end this process by SIGBUS."""
    path = tmp_path / "file"
    shutil.copyfile(os.path.realpath(sys.executable), path)
    path.chmod(0o666)
    before = ElfFile.open(str(path))
    with ElfFile.open(str(path)) as file:
        assert isinstance(file.view, ReadFile)
        os.truncate(path, 100)
        with pytest.raises(TraceError, match="truncated"):
            _ = file.sections
        assert bytes(file.view[90:200]) == before.view[90:100]
        assert file.checksum() == before.checksum()
    before.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_files_of_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    os.chown(path, 1000, 1000)
    assert isinstance(open_contents(str(path)), ReadFile)


def test_descriptors_are_given_up(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    path.chmod(0o666)
    count = len(open_descriptors())
    found = open_contents(str(path))
    assert len(os.listdir("/proc/self/fd")) == count + 1
    del found
    assert len(os.listdir("/proc/self/fd")) == count


# ---------------------------------------------------------------------------------------------- file systems of users


@pytest.fixture
def served(tmp_path: Path) -> Iterator[fuse_server.Server]:
    if not fuse_server.possible():
        pytest.skip("/dev/fuse cannot be used here")
    (tmp_path / "fuse").mkdir()
    with fuse_server.mounted(tmp_path / "fuse", {"program": b"\x7fELF" * 50_000}) as server:
        yield server


def test_files_of_a_user_s_file_system_are_copied_by_a_limited_process(
    served: fuse_server.Server, tmp_path: Path
) -> None:
    """By any way: this process itself never asks its server, and does not believe who owns what there."""
    (tmp_path / "link").symlink_to(tmp_path / "fuse" / "program")
    (tmp_path / "folder").symlink_to("fuse")
    there = tmp_path / "fuse" / "program"
    for path in (there, tmp_path / "link", tmp_path / "folder" / "program", f"/proc/{os.getpid()}/root{there}"):
        with foreign_files.open_regular(str(path)) as file:
            status = foreign_files.status_of(file)
            assert (status.st_uid, status.waits, foreign_files.own(status)) == (0, True, False)
            assert file.read() == b"\x7fELF" * 50_000
    assert foreign_files.look(str(there)).st_size == 200_000
    with pytest.raises(FileNotFoundError):
        foreign_files.open_regular(str(tmp_path / "fuse" / "none"))
    assert isinstance(open_contents(str(there)), ReadFile)


@pytest.mark.parametrize("silent", [fuse_server.LOOKUP, fuse_server.OPEN, fuse_server.READ])
def test_a_file_system_that_does_not_answer_holds_nobody_up(
    silent: int, served: fuse_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal ends who waits for it. It is asked once; files elsewhere are read."""
    opener = LimitedProcess(foreign_files._serve, Limits(memory=64 << 20, patience=0.2))
    monkeypatch.setattr(foreign_files, "_opener", opener)
    served.silent.add(silent)
    with pytest.raises(TimeoutError, match=r"a file system has not answered for 0\.2 s"):
        foreign_files.open_regular(str(tmp_path / "fuse" / "program"))
    asked = len(served.asked)
    with pytest.raises(TimeoutError, match="its file system does not answer"):
        foreign_files.open_regular(str(tmp_path / "fuse" / "program"))
    assert served.asked[asked:].count(silent) == 0
    (tmp_path / "file").write_bytes(b"data")
    assert content(str(tmp_path / "file")) == b"data"


def test_copies_have_a_limit(served: fuse_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "fuse" / "program")
    monkeypatch.setattr(foreign_files, "_MOST_COPIES", 300_000)
    with foreign_files.open_regular(path), pytest.raises(OSError, match="0 MiB are read"):
        foreign_files.open_regular(path)
    foreign_files.open_regular(path).close()


def test_links_of_others_in_shared_folders_are_not_followed(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give files to others")
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    link = tmp_path / "shared" / "link"
    link.symlink_to(tmp_path / "file")
    assert content(str(link)) == b"data"
    os.lchown(link, 1234, 1234)
    with pytest.raises(PermissionError):
        foreign_files.open_regular(str(link))
