"""Flush policies, order with messages, readers that go away, files."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.output.streams import Flush, Output, create
from tests.support.end_requests import asked


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    for descriptor in (read, write):
        try:
            os.close(descriptor)
        except OSError:
            continue


def waiting(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""


def test_line_policy_shows_a_batch_when_it_ends(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], flush=Flush.LINE)
    output.write(b"a\n")
    output.extend([b"b\n", b"part"])
    assert waiting(pipe[0]) == b""
    output.end_batch()
    assert waiting(pipe[0]) == b"a\nb\npart"


def test_none_policy_writes_each_piece(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], flush=Flush.NONE)
    output.write(b"a")
    assert waiting(pipe[0]) == b"a"
    output.extend([b"b", b"c"])
    assert waiting(pipe[0]) == b"bc"


def test_full_policy_waits_for_a_block(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], flush=Flush.FULL)
    output.write(b"x" * 1000)
    output.end_batch()
    assert waiting(pipe[0]) == b""
    output.write(b"y" * 65000)
    fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 1 << 20)
    output.end_batch()
    assert len(waiting(pipe[0])) == 66000
    output.write(b"z")
    output.close()
    assert waiting(pipe[0]) == b"z"


def test_what_waits_for_a_block_is_counted_once(pipe: tuple[int, int]) -> None:
    looked = 0

    class Part(bytes):
        def __len__(self) -> int:
            nonlocal looked
            looked += 1
            return super().__len__()

    output = Output(pipe[1], flush=Flush.FULL)
    for _ in range(2):
        for _ in range(100):
            output.write(Part(b"x"))
            output.end_batch()
        output.flush()
    assert looked == 200
    output.write(b"y" * 65535)
    output.end_batch()
    assert len(waiting(pipe[0])) == 200
    output.close()


def test_messages_come_after_the_output_before_them(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], messages=pipe[1], flush=Flush.FULL)
    output.write(b"first\n")
    output.message("second\n")
    output.write(b"third\n")
    output.flush()
    assert waiting(pipe[0]) == b"first\nsecond\nthird\n"


def test_a_long_batch_does_not_pile_up(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])
    output.extend([b"x"] * 5000)
    assert len(waiting(pipe[0])) == 5000


def test_a_reader_that_went_away_breaks_output_only(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    output = Output(pipe[1])
    output.write(b"lost")
    output.flush()
    assert output.broken
    output.write(b"more")
    output.flush()


def test_a_full_nonblocking_pipe_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    os.set_blocking(pipe[0], True)
    data = os.urandom(1 << 20)
    found: list[bytes] = []

    def read() -> None:
        while sum(map(len, found)) < len(data):
            found.append(os.read(pipe[0], 1 << 16))

    reader = threading.Thread(target=read)
    reader.start()
    output = Output(pipe[1])
    output.write(data)
    output.flush()
    reader.join(timeout=10)
    assert b"".join(found) == data


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    output = Output(create(str(path)), owned=True)
    output.write(b"new\n")
    output.close()
    assert path.read_bytes() == b"new\n"
    with pytest.raises(TraceError, match="no/where"):
        create("/no/where")


def test_a_full_device_is_an_error() -> None:
    output = Output(create("/dev/full"), owned=True)
    output.write(b"x")
    with pytest.raises(TraceError, match="No space"):
        output.flush()


def test_capturing(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])
    output.write(b"shown")
    output.capture()
    output.write(b"kept")
    output.end_batch()
    assert output.release() == b"kept"
    assert waiting(pipe[0]) == b"shown"
    output.write(b"after")
    output.flush()
    assert waiting(pipe[0]) == b"after"


def together(write: int, **options: Any) -> Output:
    """Output and messages on one pipe, as on a terminal."""
    return Output(write, messages=write, **options)


def test_messages_wait_for_the_end_of_the_line(pipe: tuple[int, int]) -> None:
    output = together(pipe[1])
    output.write(b"part ")
    output.message("WARNING: one\n")
    output.message("WARNING: two\n")
    assert waiting(pipe[0]) == b"part "
    output.write(b"more ")
    output.end_batch()
    assert waiting(pipe[0]) == b"more "
    output.extend([b"rest\nnext ", b"line"])
    output.end_batch()
    assert waiting(pipe[0]) == b"rest\nWARNING: one\nWARNING: two\nnext line"
    output.write(b"\n")
    output.message("WARNING: three\n")
    assert waiting(pipe[0]) == b"\nWARNING: three\n"


def test_a_line_that_never_ends_is_broken(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    output = together(pipe[1])
    output.write(b"...")
    output.message("WARNING: one\n")
    for step in (0.3, 0.3):
        now[0] += step
        output.end_batch()
        assert waiting(pipe[0]) == (b"..." if now[0] == 100.3 else b"")
    now[0] += 0.5
    output.end_batch()
    assert waiting(pipe[0]) == b"\nWARNING: one\n"
    output.message("WARNING: two\n")
    assert waiting(pipe[0]) == b"WARNING: two\n"


def test_at_the_end_messages_get_lines_of_their_own(pipe: tuple[int, int]) -> None:
    output = together(pipe[1])
    output.write(b"part")
    output.message("WARNING: one\n")
    output.close()
    assert waiting(pipe[0]) == b"part\nWARNING: one\n"


def test_messages_that_go_elsewhere_wait_for_nothing(pipe: tuple[int, int]) -> None:
    read, write = os.pipe()
    output = Output(pipe[1], messages=write)
    output.write(b"part")
    output.message("WARNING: one\n")
    assert os.read(read, 100) == b"WARNING: one\n"
    assert waiting(pipe[0]) == b"part"
    os.close(read)
    os.close(write)


def test_what_was_written_of_a_line_is_counted_once(pipe: tuple[int, int]) -> None:
    output = together(pipe[1], flush=Flush.NONE)
    output.write(b"part ")
    output.message("WARNING: one\n")
    output.write(b"rest\nnext\n")
    assert output.accepted == 2
    assert waiting(pipe[0]) == b"part rest\nWARNING: one\nnext\n"


def test_what_is_no_table_goes_to_standard_error_after_the_rows_before_it(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], messages=pipe[1], flush=Flush.FULL, csv=True)
    output.write(b"a\r\n")
    output.beside([b"one\n", b"two\n"])
    output.write(b"b\r\n")
    assert waiting(pipe[0]) == b"a\r\none\ntwo\n"
    assert output.accepted == 4
    output.flush()
    assert waiting(pipe[0]) == b"b\r\n"


def test_text_that_nobody_reads_is_counted(pipe: tuple[int, int], tmp_path: Path) -> None:
    output = Output(create(str(tmp_path / "rows.csv")), csv=True, requests=asked(), owned=True)
    output._messages = Output(pipe[1]).channel
    output.write(b"a\r\n")
    output.beside([b"x" * (1 << 20), b"y"])
    assert output.left == 2
    output.close()
    assert (tmp_path / "rows.csv").read_bytes() == b"a\r\n"


def test_cuts_tell_that_what_was_printed_may_not_be_seen(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])
    seen = [output.cuts]
    for step in (output.capture, output.release, output.drop):
        step()
        seen.append(output.cuts)
    assert seen[0] < seen[1] <= seen[2] < seen[3]


def test_a_pipe_is_no_terminal(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])
    assert not output.terminal
    assert output.height() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_behind_a_link_of_another_user_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("old")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared/out").symlink_to(tmp_path / "precious")
    os.chown(tmp_path / "shared/out", 12345, 12345, follow_symlinks=False)
    with pytest.raises(TraceError, match="it is a link of user 12345"):
        create(str(tmp_path / "shared/out"))
    assert (tmp_path / "precious").read_text() == "old"
