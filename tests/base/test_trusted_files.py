"""Who could have written or replaced a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.base.trusted_files import distrust

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

EVE = 12345


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that only root can have written, as far as the folder of the tests is one."""
    path = tmp_path / "a" / "b" / "file"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    return path


def reason(path: Path, *owners: int) -> str:
    found = distrust(str(path), owners)
    return "" if found is None else found[0]


def test_what_belongs_to_root(file: Path) -> None:
    assert not reason(file)
    assert not reason(file.parent)


def test_files_and_directories_of_others(file: Path) -> None:
    os.chown(file, EVE, EVE)
    assert reason(file) == f"it belongs to user {EVE}"
    assert not reason(file, EVE)
    os.chown(file, 0, 0)
    above = file.parent.parent
    os.chown(above, EVE, EVE)
    assert reason(file) == f"user {EVE} can replace it: {above} belongs to that user"
    assert not reason(file, EVE)


@pytest.mark.parametrize("place", ["", "..", "../.."])
@pytest.mark.parametrize(("mode", "word"), [(0o777, "world"), (0o775, "group")])
def test_what_others_can_write(file: Path, place: str, mode: int, word: str) -> None:
    path = (file / place).resolve()
    os.chown(path, 0, EVE)
    path.chmod(mode)
    assert f"is {word}-writable" in reason(file)
    assert f"is {word}-writable" in reason(file, EVE)


def test_a_group_of_root_may_write(file: Path) -> None:
    file.chmod(0o664)
    assert not reason(file)


def test_the_own_group_of_a_user_may_write(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd

    os.chown(file, EVE, EVE)
    file.chmod(0o664)
    user = pwd.struct_passwd(("eve", "", EVE, EVE, "", "", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: user)
    groups = (("eve", [], True), ("eve", ["eve"], True), ("eve", ["bob"], False), ("all", [], False))
    for name, members, trusted in groups:
        group = grp.struct_group((name, "", EVE, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _gid, group=group: group)
        assert (reason(file, EVE) == "") is trusted


def test_a_sticky_directory_is_like_tmp(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert not reason(file)
    os.chown(file, EVE, EVE)
    assert reason(file) == f"it belongs to user {EVE}"
    link = file.parent / "link"
    link.symlink_to("/etc/passwd")
    assert not reason(link)
    os.lchown(link, EVE, EVE)
    assert reason(link) == f"{link} is a link of user {EVE}"


def test_links_lead_where_others_can_write(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("a")
    assert not reason(link / "b" / "file")
    file.parent.parent.chmod(0o777)
    assert "everybody can replace it" in reason(link / "b" / "file")
    assert "everybody can replace it" in reason(tmp_path / "a" / ".." / "link" / "b")


def test_circles_and_absent_files(file: Path, tmp_path: Path) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to("circle")
    with pytest.raises(OSError):
        distrust(str(circle), ())
    with pytest.raises(FileNotFoundError):
        distrust(f"{file}x", ())
