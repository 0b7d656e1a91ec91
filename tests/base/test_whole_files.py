"""Atomic writing of files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytrace.base.whole_files import check, replaceable, replacing


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replacing(str(path)) as place:
        Path(place).write_text("half")
        assert not path.exists()
    assert path.read_text() == "half"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_fails_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def write() -> None:
        with replacing(str(path)) as place:
            Path(place).write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_the_rights_are_those_of_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for mode, expected in ((0o666, 0o640), (0o777, 0o750)):
            with replacing(str(tmp_path / "out"), mode) as place:
                Path(place).write_text("x")
            assert stat.S_IMODE(os.stat(tmp_path / "out").st_mode) == expected
    finally:
        os.umask(before)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/there")
    with replacing(str(tmp_path / "link")) as place:
        Path(place).write_text("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/there").read_text() == "x"


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    assert not replaceable(os.devnull)
    with replacing(os.devnull) as place:
        assert place == os.devnull
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
