"""pytrace.base.private_files: what is cached comes back whole or not at all, and is nobody else's."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrace.base import private_files
from pytrace.base.private_files import NOTES, cache_folder
from tests.support.file_damage import DAMAGE

OTHER = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(private_files, "SYSTEM_BASE", str(tmp_path / "none" / "cache"))
    NOTES.clear()
    yield tmp_path / "pytrace" / "sort"
    NOTES.clear()


def read() -> bytes | None:
    return private_files.read("sort", "one")


def write(*parts: bytes) -> bool:
    return private_files.write("sort", "one", *parts)


def test_what_is_written_comes_back_and_is_private(folder: Path) -> None:
    assert read() is None
    assert not folder.exists()
    assert write(b"some", b"thing")
    assert read() == b"something"
    assert private_files.directory("sort") == str(folder)
    assert (folder / "one").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert write(b"else")
    assert read() == b"else"
    assert write()
    assert read() == b""
    assert os.listdir(folder) == ["one"]
    assert not NOTES


# ---------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_detected_and_removed(kind: str, folder: Path) -> None:
    for seed in range(50):
        chance = random.Random(seed)
        body = chance.randbytes(chance.randrange(1, 5000))
        write(body)
        data = (folder / "one").read_bytes()
        damaged = DAMAGE[kind](data, chance)
        if damaged == data:
            continue
        (folder / "one").write_bytes(damaged)
        assert read() is None
        assert os.listdir(folder) == []
        assert list(NOTES) == [f"cached file {folder}/one was removed: it is damaged"]
        assert write(body)
        assert read() == body


def test_another_file_is_no_content_of_this_name(folder: Path) -> None:
    write(b"data")
    private_files.write("sort", "two", b"other")
    (folder / "two").rename(folder / "one")
    assert read() is None


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _hard_link_of_another_user(path: Path) -> None:
    (path.parent.parent / "theirs").write_bytes(b"theirs")
    os.chown(path.parent.parent / "theirs", OTHER, OTHER)
    os.link(path.parent.parent / "theirs", path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _directory(path: Path) -> None:
    (path / "with" / "more").mkdir(parents=True)
    (path / "with" / "link").symlink_to("/etc")


@pytest.mark.parametrize(
    "make",
    [_link, lambda path: path.symlink_to("gone"), os.mkfifo, _socket, _directory, _hard_link_of_another_user],
    ids=["link", "link to nothing", "pipe", "socket", "directory", "file of another user"],
)
def test_what_is_no_file_of_this_user_is_replaced(make: Callable[[Path], None], folder: Path) -> None:
    if make is _hard_link_of_another_user and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    write(b"data")
    (folder / "one").unlink()
    make(folder / "one")
    assert read() is None
    assert os.listdir(folder) == []
    (note,) = NOTES
    assert note.startswith(f"cached file {folder}/one was removed: ")
    assert write(b"data")
    assert read() == b"data"
    assert os.path.exists("/etc/passwd")


def test_a_file_that_others_may_write_to_is_not_believed(folder: Path) -> None:
    write(b"data")
    (folder / "one").chmod(0o622)
    assert read() is None
    assert list(NOTES) == [f"cached file {folder}/one was removed: it is not a regular file of this user alone"]


@pytest.mark.parametrize("mode", [0o722, 0o770])
def test_a_directory_that_others_may_write_to_is_not_believed(folder: Path, mode: int) -> None:
    write(b"data")
    folder.chmod(mode)
    assert read() is None
    assert not write(b"more")
    (note,) = {text for text in NOTES if "other users can write" in text}
    assert str(folder) in note
    folder.chmod(0o700)
    assert read() == b"data", "it was not touched"


@needs_root
def test_nothing_is_written_to_directories_of_others(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.chown(folder, OTHER, OTHER)
    assert not write(b"data")
    assert list(folder.iterdir()) == []


def test_a_directory_that_cannot_be_made_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "pytrace").write_text("in the way")
    assert not write(b"data")
    assert read() is None


# ---------------------------------------------------------------------------------------------- attacks


def test_nothing_is_read_written_or_removed_through_links(folder: Path, tmp_path: Path) -> None:
    """`facts -> /etc/sudoers.d`, and `scripts -> a directory of 300 files`, which trimming emptied."""
    target = tmp_path / "target"
    target.mkdir()
    for number in range(300):
        (target / f"file{number}").write_bytes(b"precious")
    folder.parent.mkdir()
    folder.symlink_to(target)
    assert not write(b"user ALL=(ALL:ALL) NOPASSWD: ALL\n")
    assert private_files.read("sort", "file1") is None
    private_files.trim("sort", 7)
    assert len(os.listdir(target)) == 300
    folder.parent.rename(tmp_path / "moved")
    folder.parent.symlink_to("moved")
    assert not write(b"more")
    private_files.trim("sort", 7)
    assert len(os.listdir(target)) == 300


def test_a_copy_of_bytes_of_somebody_else_is_not_believed(folder: Path) -> None:
    """A directory of root with a user's file, as a restored backup has it."""
    write(b"data")
    with cache_folder("sort") as opened:
        opened.replace("one", [b"code of the user"])
    assert read() is None


# ---------------------------------------------------------------------------------------------- writing


def test_a_full_disk_leaves_the_former_file(folder: Path) -> None:
    write(b"data")

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with cache_folder("sort") as opened, pytest.raises(OSError, match="No space"):
        opened.replace("one", parts())
    assert os.listdir(folder) == ["one"]
    assert read() == b"data"


def test_temporary_files_of_killed_writers_go_after_some_time(folder: Path) -> None:
    write(b"data")
    old, new = folder / private_files.temporary_name(), folder / private_files.temporary_name()
    for path in (old, new):
        path.write_bytes(b"half")
    tree = folder / private_files.temporary_name()
    (tree / "include").mkdir(parents=True)
    for path in (old, tree):
        os.utime(path, (1, 1))
    assert write(b"data")
    assert sorted(os.listdir(folder)) == sorted([new.name, "one"])


def test_trimming_keeps_the_newest_of_a_prefix(folder: Path) -> None:
    for number in range(6):
        for prefix in ("a-", "b-"):
            private_files.write("sort", f"{prefix}{number}", b"data")
            os.utime(folder / f"{prefix}{number}", ns=(number, number))
    private_files.trim("sort", 2, "a-")
    assert sorted(os.listdir(folder)) == ["a-4", "a-5", *(f"b-{number}" for number in range(6))]
    private_files.trim("sort", 1)
    assert os.listdir(folder) in (["a-5"], ["b-5"])
    private_files.trim("none", 1)
