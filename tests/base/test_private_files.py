"""Tests of files that are cached between runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.base import private_files


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Path(private_files.directory("sort")) / "one"


def test_what_is_written_comes_back_and_is_private(path: Path, tmp_path: Path) -> None:
    assert path == tmp_path / "pytrace" / "sort" / "one"
    assert private_files.read(str(path)) is None
    assert private_files.write(str(path), b"some", b"thing")
    assert private_files.read(str(path)) == b"something"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert private_files.write(str(path), b"else")
    assert private_files.read(str(path)) == b"else"
    assert [item.name for item in path.parent.iterdir()] == ["one"]


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_others_may_write_to_is_not_believed(path: Path, which: str) -> None:
    private_files.write(str(path), b"data")
    (path if which == "file" else path.parent).chmod(0o722)
    assert private_files.read(str(path)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_belongs_to_others_is_not_believed(path: Path, which: str) -> None:
    private_files.write(str(path), b"data")
    os.chown(path if which == "file" else path.parent, 65534, 65534)
    assert private_files.read(str(path)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_nothing_is_written_to_folders_of_others(path: Path) -> None:
    path.parent.mkdir(parents=True)
    os.chown(path.parent, 65534, 65534)
    assert not private_files.write(str(path), b"data")
    assert list(path.parent.iterdir()) == []


def test_links_are_not_followed(path: Path, tmp_path: Path) -> None:
    private_files.write(str(path), b"data")
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    link = path.with_name("link")
    link.symlink_to(other)
    assert private_files.read(str(link)) is None
    path.with_name(f".one.{os.getpid()}").symlink_to(other)
    assert not private_files.write(str(path), b"more")
    assert other.read_bytes() == b"precious"
    assert private_files.write(str(path), b"more"), "the next try finds its place free"
    assert private_files.read(str(path)) == b"more"


def test_a_folder_that_cannot_be_made_only_costs_time(path: Path, tmp_path: Path) -> None:
    (tmp_path / "pytrace").write_text("in the way")
    assert not private_files.write(str(path), b"data")
    assert private_files.read(str(path)) is None


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    assert not private_files.write(os.path.join(private_files.directory("sort"), "one"), b"data")
    assert os.listdir(tmp_path) == []
    (tmp_path / "nonexistent").mkdir()
    assert private_files.write(os.path.join(private_files.directory("sort"), "one"), b"data")
