"""pytrace.base.private_files: directories are used only where nobody but root and the user can change them."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrace.base import private_files
from pytrace.base.private_files import NOTES, UnusableError, cache_folder, open_below

OTHER = 12345
"""A user that is not this one."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory that other users can get to, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="pytrace-test-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(private_files, "SYSTEM_BASE", str(tmp_path / "system"))
    (tmp_path / "system").mkdir(mode=0o755)
    NOTES.clear()
    yield
    NOTES.clear()


def as_user(uid: int, check: Callable[[], object]) -> None:
    """Call a function in a process of another user; its errors fail the test."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            check()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None = None) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o755)
    if owner is not None:
        os.chown(made, owner, owner)
    monkeypatch.setenv("HOME", str(made))
    return made


def made_in(*below: str) -> str:
    with cache_folder(*below, create=True) as folder:
        assert os.path.samestat(os.fstat(folder.descriptor), os.stat(folder.path))
        return folder.path


# ---------------------------------------------------------------------------------------------- where caches are


def test_the_base_and_what_is_below_it_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home(tmp_path, monkeypatch)
    with pytest.raises(FileNotFoundError):
        cache_folder("facts")
    assert os.listdir(own) == []
    assert made_in("facts") == f"{own}/.cache/pytrace/facts"
    assert {os.stat(f"{own}/.cache{path}").st_mode & 0o777 for path in ("", "/pytrace", "/pytrace/facts")} == {0o700}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert made_in("facts") == f"{tmp_path}/xdg/pytrace/facts"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/path")
    assert made_in("facts") == f"{own}/.cache/pytrace/facts"
    assert not NOTES


@needs_root
@pytest.mark.parametrize("name", ["", "/", "//", "relative", "/nonexistent"])
def test_a_home_that_is_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", name)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    assert made_in("facts") == f"{tmp_path}/system/pytrace/facts"
    assert not os.path.exists("/.cache")
    assert not os.path.exists("/nonexistent")


def test_an_empty_home_is_that_of_the_user_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home(tmp_path, monkeypatch)

    class Entry:
        pw_dir = str(own)

    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: Entry)
    assert made_in("facts") == f"{own}/.cache/pytrace/facts"


@needs_root
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_root_makes_nothing_in_a_home_of_another_user(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = home(tmp_path, monkeypatch, OTHER)
    monkeypatch.setenv(variable, f"{other}/.cache" if variable == "XDG_CACHE_HOME" else str(other))
    assert made_in("facts") == f"{tmp_path}/system/pytrace/facts"
    assert os.listdir(other) == []
    (note,) = NOTES
    assert note == f"cache directory {other}/.cache is not used: {other} belongs to user {OTHER}"
    as_user(OTHER, lambda: made_in("facts").removeprefix(str(other)).index("/.cache/pytrace/facts"))
    assert os.stat(other / ".cache/pytrace/facts").st_uid == OTHER
    assert made_in("facts") == f"{tmp_path}/system/pytrace/facts"


@needs_root
def test_without_a_directory_of_the_system_root_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home(tmp_path, monkeypatch, OTHER)
    (tmp_path / "system").rmdir()
    monkeypatch.setattr(private_files, "SYSTEM_BASE", f"{tmp_path}/none/cache")
    with pytest.raises(OSError, match="No such file"):
        cache_folder("facts", create=True)
    assert len(NOTES) == 2


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("level", [".cache", ".cache/pytrace", ".cache/pytrace/facts"])
def test_links_at_any_level_are_refused(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home(tmp_path, monkeypatch)
    target = tmp_path / "sudoers.d"
    (target / "pytrace/facts").mkdir(parents=True)
    (own / level).parent.mkdir(parents=True, exist_ok=True)
    (own / level).symlink_to(target / ("pytrace" if level.endswith("pytrace") else "."))
    with pytest.raises(UnusableError, match="is a link or no directory"):
        open_below(str(own / ".cache"), "pytrace", "facts", create=True)
    assert [path.name for path in target.rglob("*")] == ["pytrace", "facts"]


@pytest.mark.parametrize("level", [".cache", ".cache/pytrace", ".cache/pytrace/facts"])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_directories_that_others_can_write_to_are_refused(
    level: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = home(tmp_path, monkeypatch)
    made_in("facts")
    (own / level).chmod(mode)
    with pytest.raises(UnusableError, match="other users can write to"):
        open_below(str(own / ".cache"), "pytrace", "facts")


@needs_root
@pytest.mark.parametrize("level", [".cache", ".cache/pytrace", ".cache/pytrace/facts"])
def test_directories_of_others_are_refused(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home(tmp_path, monkeypatch)
    made_in("facts")
    os.chown(own / level, OTHER, OTHER)
    with pytest.raises(UnusableError, match=f"belongs to user {OTHER}"):
        open_below(str(own / ".cache"), "pytrace", "facts")


@pytest.mark.parametrize("level", [".cache", ".cache/pytrace", ".cache/pytrace/facts"])
def test_files_in_the_place_of_directories_are_refused(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = home(tmp_path, monkeypatch)
    (own / level).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    (own / level).write_text("in the way")
    with pytest.raises(UnusableError):
        open_below(str(own / ".cache"), "pytrace", "facts", create=True)
    assert (own / level).read_text() == "in the way"


def test_parents_that_others_can_write_to_must_be_sticky(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "cache").mkdir(parents=True, mode=0o700)
    shared.chmod(0o777)
    with pytest.raises(UnusableError, match=rf"other users can write to {shared} \(mode 777\)"):
        open_below(str(shared / "cache"))
    shared.chmod(0o1777)
    open_below(str(shared / "cache")).__exit__(None, None, None)


# ---------------------------------------------------------------------------------------------- links of parents


def test_a_home_behind_a_link_of_root_is_used(tmp_path: Path) -> None:
    (tmp_path / "export/home/me").mkdir(parents=True)
    (tmp_path / "home").symlink_to("export/../export/home")
    (tmp_path / "export/home/you").symlink_to(tmp_path / "home/me")
    with open_below(f"{tmp_path}/home/you/.cache", "pytrace", create=True) as folder:
        assert os.path.samestat(os.fstat(folder.descriptor), os.stat(tmp_path / "export/home/me/.cache/pytrace"))


@needs_root
def test_links_of_other_users_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "export/me").mkdir(parents=True)
    (tmp_path / "home").symlink_to("export")
    os.chown(tmp_path / "home", OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(UnusableError, match=f"is a link of user {OTHER}"):
        open_below(f"{tmp_path}/home/me/.cache", create=True)
    assert os.listdir(tmp_path / "export/me") == []


def test_links_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UnusableError, match="Too many levels"):
        open_below(f"{tmp_path}/a/.cache")


@needs_root
def test_a_user_has_no_trouble_with_directories_that_only_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "homes").mkdir(mode=0o711)
    (tmp_path / "homes/me").mkdir(mode=0o700)
    os.chown(tmp_path / "homes/me", OTHER, OTHER)
    monkeypatch.setenv("HOME", f"{tmp_path}/homes/me")
    as_user(OTHER, lambda: made_in("facts"))
    assert os.stat(tmp_path / "homes/me/.cache/pytrace/facts").st_uid == OTHER


# ---------------------------------------------------------------------------------------------- races


@needs_root
def test_a_directory_that_turns_into_a_link_and_back_is_never_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who owns the place swaps each level for a link; root's files never get there."""
    monkeypatch.setenv("HOME", f"{tmp_path}/home")
    target = tmp_path / "target"
    (target / "pytrace/facts").mkdir(parents=True)
    ended = threading.Event()

    def swap() -> None:
        number = 0
        while not ended.is_set():
            place = tmp_path / ("home", "home/.cache", "home/.cache/pytrace")[number % 3]
            number += 1
            spare, link = tmp_path / f"spare{number}", tmp_path / "link"
            link.symlink_to(target if number % 2 else target / "pytrace")
            os.chown(link, OTHER, OTHER, follow_symlinks=False)
            try:
                place.rename(spare)
                link.rename(place)
                place.unlink()
                spare.rename(place)
            except OSError:
                link.unlink(missing_ok=True)

    (tmp_path / "home").mkdir()
    made_in("facts")
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until = time.monotonic() + 2
        tries = 0
        while time.monotonic() < until or tries < 100:
            tries += 1
            try:
                with cache_folder("facts", create=True) as folder:
                    os.close(os.open(f"file{tries}", os.O_CREAT | os.O_WRONLY, dir_fd=folder.descriptor))
            except OSError:
                continue
    finally:
        ended.set()
        thread.join()
    assert [path.name for path in target.rglob("*")] == ["pytrace", "facts"]
