"""pytrace.runtime.abi.foreign_files: files that another user may have put there."""

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

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import foreign_files
from pytrace.runtime.abi.foreign_files import ReadFile, open_contents, pieces
from pytrace.runtime.elf.file import ElfFile
from tests.support.rows import each_row

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
    before = set(os.listdir("/proc/self/fd"))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("inside")
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    (tmp_path / "upwards").symlink_to("../../../../../../etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("etc/passwd", "absolute", "upwards", "folder/passwd", "/../etc/passwd", "./folder/../etc//passwd"):
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
    count = len(os.listdir("/proc/self/fd"))
    found = open_contents(str(path))
    assert len(os.listdir("/proc/self/fd")) == count + 1
    del found
    assert len(os.listdir("/proc/self/fd")) == count
