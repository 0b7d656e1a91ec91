"""Atomic writing of files."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.base.whole_files import check, create, replaceable, replacing
from pytrace.base.whole_files import write as write_file

ROOT = Path(__file__).resolve().parent.parent.parent


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replacing(str(path)) as file:
        file.write(b"half")
        assert not path.exists()
    assert path.read_text() == "half"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_fails_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def write() -> None:
        with replacing(str(path)) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_the_rights_are_those_of_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for mode, expected in ((0o666, 0o640), (0o777, 0o750)):
            with replacing(str(tmp_path / "out"), mode) as file:
                file.write(b"x")
            assert stat.S_IMODE(os.stat(tmp_path / "out").st_mode) == expected
    finally:
        os.umask(before)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/there")
    with replacing(str(tmp_path / "link")) as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/there").read_text() == "x"


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    assert not replaceable(os.devnull)
    with replacing(os.devnull) as file:
        assert file.name == os.devnull
    check(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    os.mkfifo(tmp_path / "pipe")
    check(str(tmp_path / "pipe"))
    with pytest.raises(IsADirectoryError):
        check(str(tmp_path))


def test_checking_leaves_nothing(tmp_path: Path) -> None:
    check(str(tmp_path / "out"))
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        check(str(tmp_path / "no/out"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("target", ["precious", "none"])
def test_links_of_other_users_in_shared_directories_are_not_followed(tmp_path: Path, target: str) -> None:
    """``/tmp/out.json -> /etc/cron.d/job``: root's output would be a file there."""
    (tmp_path / "precious").write_text("old")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "out").symlink_to(tmp_path / target)
    os.chown(shared / "out", 12345, 12345, follow_symlinks=False)
    (tmp_path / "mine").symlink_to("shared/out")
    for path in (shared / "out", tmp_path / "mine"):
        for write in (check, lambda place: write_file(place, b"new")):
            with pytest.raises(PermissionError, match="link of user 12345"):
                write(str(path))
    assert (tmp_path / "precious").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["mine", "precious", "shared"]
    os.chown(shared / "out", 0, 0, follow_symlinks=False)
    write_file(str(tmp_path / "mine"), b"new")
    assert (tmp_path / target).read_text() == "new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_other_users_in_shared_directories_are_not_written_to(tmp_path: Path) -> None:
    """Whoever made ``/tmp/out``, a file or a pipe, would read what root writes; a pipe would hold root up."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "file").write_text("theirs")
    os.mkfifo(shared / "pipe")
    for name in ("file", "pipe"):
        os.chown(shared / name, 12345, 12345)
        with pytest.raises(PermissionError, match="it belongs to user 12345"):
            create(str(shared / name))
    with pytest.raises(PermissionError, match="it belongs to user 12345"):
        write_file(str(shared / "pipe"), b"x")
    assert (shared / "file").read_text() == "theirs"
    write_file(str(shared / "file"), b"ours")
    assert (shared / "file").stat().st_uid == 0, "it is replaced, not written to"
    (tmp_path / "plain").write_text("theirs")
    os.chown(tmp_path / "plain", 12345, 12345)
    for path in (shared / "file", shared / "new", tmp_path / "plain", tmp_path / "other", Path("/dev/null")):
        os.close(create(str(path)))
    read, write = os.pipe()
    try:
        os.close(create(f"/proc/self/fd/{write}"))
    finally:
        os.close(read)
        os.close(write)


def test_links_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        write_file(str(tmp_path / "a"), b"x")


def test_files_of_killed_writers_are_removed_later(tmp_path: Path) -> None:
    kept = [".pytrace-new_new0", ".pytrace-notes", ".pytrace-other000x"]
    for name in (*kept, ".pytrace-abandon1"):
        (tmp_path / name).write_text("half")
        if name != kept[0]:
            os.utime(tmp_path / name, (1, 1))
    write_file(str(tmp_path / "out"), b"x")
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "out"])


KILLED = """
import os, signal, sys
from pytrace.base.whole_files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half" * 100000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_stays_of_a_killed_writer(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        pytest.skip("this file system has no files without a name")
    (tmp_path / "out").write_text("old")
    child = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "out"], check=False, cwd=ROOT)
    assert child.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "old"


@pytest.mark.parametrize("error", [None, OSError])
def test_file_systems_that_know_no_files_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError] | None
) -> None:
    monkeypatch.setattr("pytrace.base.whole_files._unnamed", lambda _folder: None)
    path = tmp_path / "out"
    path.write_text("old")
    with contextlib.suppress(OSError), replacing(str(path)) as file:
        assert os.path.dirname(os.readlink(f"/proc/self/fd/{file.fileno()}")) == str(tmp_path)
        file.write(b"new")
        if error is not None:
            raise error
    assert path.read_text() == ("new" if error is None else "old")
    assert os.listdir(tmp_path) == ["out"]
