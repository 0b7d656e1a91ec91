from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from pytrace.cli import messages
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import RunOptions


def test_warnings_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    messages.warn(["odd"], RunOptions())
    messages.warn(["hidden"], RunOptions(warnings=False))
    assert capsys.readouterr().err == "WARNING: odd\n"


def test_errors_have_hints(capsys: pytest.CaptureFixture[str]) -> None:
    messages.show_error(TraceError("wrong", hints=("do this",)))
    assert capsys.readouterr().err == "ERROR: wrong\nHINT: do this\n"


def test_files_are_written_whole_with_the_right_mode(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        messages.write_file(str(tmp_path / "plain"), b"data")
        messages.write_file(str(tmp_path / "tool"), b"data", executable=True)
    finally:
        os.umask(before)
    assert (tmp_path / "plain").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "tool").stat().st_mode) == 0o755
    assert sorted(os.listdir(tmp_path)) == ["plain", "tool"]


def test_what_is_no_regular_file_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    messages.write_file(str(pipe), b"data")
    reader.join(5)
    assert got == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    messages.write_file(str(tmp_path / "link"), b"data")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"data"


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "file", tmp_path):
        with pytest.raises(TraceError, match="cannot write"):
            messages.write_file(str(path), b"data")
    assert os.listdir(tmp_path) == []
