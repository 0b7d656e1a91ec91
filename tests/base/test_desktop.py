"""The desktop's viewer: which program, as whom, with what environment, and that it waits for the file."""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.base import desktop
from pytrace.base.desktop import Viewer
from tests.support.patience import patience

PROGRAM = """#!/bin/sh
PATH=/usr/bin:/bin
{ id -u; id -G; echo "$1"; env; } > "$1.part"
mv "$1.part" "$1.shown"
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a viewer that root has written, where everybody may look; below it one for files."""
    root = Path("/run") / f"pytrace-desktop-{os.getpid()}"
    if os.geteuid():
        pytest.skip("needs root, to be somebody else")
    root.mkdir(mode=0o755)
    (root / "files").mkdir()
    (root / "files").chmod(0o777)
    (root / "xdg-open").write_text(PROGRAM)
    (root / "xdg-open").chmod(0o755)
    monkeypatch.setattr(desktop, "FOLDERS", (str(root),))
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    try:
        yield root
    finally:
        for path in (*root.glob("files/*"), root / "xdg-open"):
            path.unlink()
        (root / "files").rmdir()
        root.rmdir()


def nothing() -> None:
    """Gives up nothing."""


def shown(path: Path) -> list[str]:
    """What the viewer wrote."""
    result, deadline = Path(f"{path}.shown"), time.monotonic() + patience(10)
    while not result.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return result.read_text().splitlines()


def test_the_user_who_called_sudo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(user.pw_uid))
    monkeypatch.setenv("SECRET", "of root")
    report = folder / "files" / "a 'report'; x.html"
    viewer = Viewer(str(report), nothing)
    assert not viewer.problem
    time.sleep(0.05)
    assert not Path(f"{report}.shown").exists(), "it is not written yet"
    viewer.open()
    viewer.open()
    uid, groups, path, *environment = shown(report)
    assert (int(uid), path) == (user.pw_uid, str(report))
    assert set(map(int, groups.split())) == set(os.getgrouplist(user.pw_name, user.pw_gid))
    assert {f"HOME={user.pw_dir}", "USER=nobody", "DISPLAY=:7"} <= set(environment)
    assert not any(line.startswith(("SECRET", "SUDO")) for line in environment)


@pytest.mark.parametrize("caller", ["", "0", "4294967294", "x"])
def test_root_itself_trusts_nothing_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caller: str
) -> None:
    if caller:
        monkeypatch.setenv("SUDO_UID", caller)
    others = folder / "files" / "xdg-open"
    others.write_text("#!/bin/sh\nexit 1\n")
    others.chmod(0o755)
    monkeypatch.setenv("PATH", str(others.parent))
    monkeypatch.setenv("BROWSER", str(others))
    report = folder / "files" / "r.html"
    Viewer(str(report), nothing).open()
    uid, _, path, *environment = shown(report)
    assert (int(uid), path) == (0, str(report))
    assert "BROWSER" not in "".join(environment)
    assert f"HOME={pwd.getpwuid(0).pw_dir}" in environment


def test_others_get_what_their_path_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwnam("nobody")
    monkeypatch.setattr(desktop, "FOLDERS", ())
    monkeypatch.setattr(desktop.os, "geteuid", lambda: user.pw_uid)
    monkeypatch.setenv("SUDO_UID", "0")
    monkeypatch.setenv("PATH", f".:/nowhere:{folder}:/usr/bin")
    monkeypatch.setenv("MINE", "yes")
    report = folder / "files" / "r.html"
    Viewer(str(report), lambda: os.setuid(user.pw_uid)).open()
    uid, _, path, *environment = shown(report)
    assert (int(uid), path) == (user.pw_uid, str(report)), "what it may not have is given up in the viewer's process"
    assert "MINE=yes" in environment
    monkeypatch.setenv("PATH", f"{folder}/files")
    assert Viewer(str(report), nothing).problem == "there is no xdg-open in PATH that nobody else could have written"


def test_a_run_that_failed_opens_nothing(folder: Path) -> None:
    viewer = Viewer(str(folder / "files" / "r.html"), nothing)
    assert viewer._process is not None
    assert viewer._process.stdin is not None
    viewer._process.stdin.close()
    assert viewer._process.wait(patience(10))
    assert not list(folder.glob("files/*"))


def test_a_program_that_others_can_write_is_not_run(folder: Path) -> None:
    program = folder / "xdg-open"
    program.chmod(program.stat().st_mode | stat.S_IWOTH)
    viewer = Viewer(str(folder / "files" / "r.html"), nothing)
    assert viewer.problem == f"there is no xdg-open in {folder} that nobody else could have written"
    viewer.open()


def test_no_desktop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY")
    assert "neither DISPLAY nor WAYLAND_DISPLAY" in Viewer(str(folder / "x.html"), nothing).problem


def test_the_session_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bus").touch()
    (tmp_path / "wayland-0").touch()
    user = pwd.getpwnam("nobody")
    real = os.path.isdir, os.path.exists
    place = f"/run/user/{user.pw_uid}"
    monkeypatch.setattr(desktop.os.path, "isdir", lambda path: real[0](path.replace(place, str(tmp_path))))
    monkeypatch.setattr(desktop.os.path, "exists", lambda path: real[1](path.replace(place, str(tmp_path))))
    environment = desktop._session(user, {"LANG": "C.UTF-8", "PATH": "/root/bin"})
    assert environment["DBUS_SESSION_BUS_ADDRESS"] == f"unix:path={place}/bus"
    assert environment["WAYLAND_DISPLAY"] == "wayland-0"
    assert "/root" not in environment["PATH"]
