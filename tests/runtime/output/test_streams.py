"""Streams that output goes to: files, pipes, and such that block."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.output import handlers
from pytrace.runtime.output.handlers import BrokenOffError, Wait, read_file, run_command
from pytrace.runtime.output.renderer import RunState
from pytrace.runtime.output.streams import Channel, Flush, Output, create
from tests.support.end_requests import ScriptedRequests, asked
from tests.support.waiting import descendants, open_descriptors, until

# ---------------------------------------------------------------------------------------------- streams
# Flush policies, order with messages, readers that go away, files.


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


# ---------------------------------------------------------------------------------------------- blocking
# Files and commands that make a run wait, and requests to end it.


def asks_after(looks: int) -> RunState:
    """The user asks for the end at a later look; waits take a look when they begin."""
    seen = iter([0] * looks)
    return RunState(requests=ScriptedRequests(lambda: next(seen, 1)))


def fifo(folder: Path) -> bytes:
    os.mkfifo(folder / "fifo")
    return os.fsencode(folder / "fifo")


@pytest.mark.parametrize("most", [1, 4, 6, 100])
def test_files(most: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123456")
    assert read_file(os.fsencode(tmp_path / "file"), most, Wait(RunState())) == b"123456"[:most]
    assert read_file(b"/proc/self/comm", 100, Wait(RunState())) == Path("/proc/self/comm").read_bytes()
    assert read_file(b"/dev/null", 100, Wait(RunState())) == b""


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(os.fsencode(tmp_path / "missing"), 10, Wait(RunState()))
    with pytest.raises(IsADirectoryError):
        read_file(os.fsencode(tmp_path), 10, Wait(RunState()))
    with pytest.raises(ValueError, match="null"):
        read_file(b"a\0b", 10, Wait(RunState()))


def test_a_fifo_is_read_to_the_end_of_its_writer(tmp_path: Path) -> None:
    path = fifo(tmp_path)
    told: list[str] = []

    def write() -> None:
        until(lambda: told)
        with open(path, "wb", buffering=0) as file:
            file.writelines((b"1", b"2", b"3"))

    writer = threading.Thread(target=write)
    writer.start()
    assert read_file(path, 100, Wait(RunState(), lambda: told.append("waits"))) == b"123"
    writer.join()
    assert told


@pytest.mark.parametrize("looks", [1, 2, 4])
def test_waiting_for_a_writer_ends_when_the_user_asks(looks: int, tmp_path: Path) -> None:
    with pytest.raises(BrokenOffError):
        read_file(fifo(tmp_path), 10, Wait(asks_after(looks)))


def test_waiting_for_more_ends_too(tmp_path: Path) -> None:
    path = fifo(tmp_path)
    descriptor = os.open(path, os.O_RDWR)
    os.write(descriptor, b"part")
    with pytest.raises(BrokenOffError):
        read_file(path, 10, Wait(asks_after(2)))
    os.close(descriptor)


def test_nothing_is_waited_for_once_the_end_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BrokenOffError):
        read_file(fifo(tmp_path), 10, Wait(RunState(requests=asked())))
    assert read_file(b"/dev/null", 10, Wait(RunState(requests=asked()))) == b""


def test_commands_run_to_their_end() -> None:
    assert run_command(b"echo one; sleep 0.1; echo two", RunState()) == (b"one\ntwo\n", True)
    assert run_command(b"exec >&-; sleep 0.1", RunState()) == (b"", True)


@pytest.mark.parametrize(
    "command",
    [b"echo one; sleep 86399", b"echo one; sleep 86399 | cat", b"echo one; exec >&-; sleep 86399",
     b"trap '' TERM; echo one; sleep 86399; sleep 86398"],
)  # fmt: skip
def test_commands_end_when_the_user_asks(command: bytes, tmp_path: Path) -> None:
    mine, printed = os.fsencode(tmp_path).replace(b"/", b""), tmp_path / "printed"
    looks = iter([0])
    state = RunState(requests=ScriptedRequests(lambda: next(looks, int(printed.exists()))))
    words = command.replace(b"echo one;", b"echo one; : >%s;" % os.fsencode(printed))
    assert run_command(b"export MINE=%s; %s" % (mine, words), state) == (b"one\n", False)

    def left() -> list[Path]:
        return [path for path in Path("/proc").glob("[0-9]*/environ") if mine in _content(path)]

    until(lambda: not left())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# ---------------------------------------------------------------------------------------------- commands

def test_all_that_is_written() -> None:
    assert run_command(b"printf 'a\\377'; exit 3", RunState()) == (b"a\xff", True)
    assert run_command(b"true", RunState()) == (b"", True)
    wanted, whole = run_command(b"head -c 300000 /dev/zero", RunState())
    assert (len(wanted), whole) == (300000, True)


def test_a_command_is_any_bytes() -> None:
    assert run_command(b"printf %s \xff", RunState())[0] == b"\xff"


def test_output_that_is_closed_before_the_end(tmp_path: Path) -> None:
    """The run waits for the end of the command too."""
    mark = tmp_path / "mark"
    assert run_command(f"echo x; exec >&-; echo > {mark}".encode(), RunState()) == (b"x\n", True)
    assert mark.exists()


def ended_by_request(text: str, mark: Path) -> tuple[bytes, bool]:
    """Run a command that makes a file, and ask for the end once that is there."""
    asked = 0

    def requests() -> int:
        nonlocal asked
        asked = asked or int(mark.exists())
        return asked

    return run_command(text.encode(), RunState(requests=ScriptedRequests(requests)))


def test_a_request_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    mark, pid = tmp_path / "mark", tmp_path / "pid"
    before = set(descendants(os.getpid()))
    found = ended_by_request(f"echo begun; sleep 600 & echo $! > {pid}; : > {mark}; wait", mark)
    assert found == (b"begun\n", False)
    child = int(pid.read_text())
    until(lambda: not os.path.exists(f"/proc/{child}") or b") Z " in Path(f"/proc/{child}/stat").read_bytes())
    assert set(descendants(os.getpid())) <= before


def test_a_request_ends_a_command_that_has_closed_its_output(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert ended_by_request(f"echo x; exec >&-; : > {mark}; exec sleep 600 > /dev/null", mark) == (b"x\n", False)


def test_a_command_that_does_not_heed_the_first_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "_PATIENCE", 100)
    mark = tmp_path / "mark"
    assert ended_by_request(f"trap '' TERM; : > {mark}; while :; do sleep 600; done", mark) == (b"", False)


def test_nothing_stays_open_or_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(handlers, "_read_all", fail)
    before = set(descendants(os.getpid())), len(open_descriptors())
    with pytest.raises(ZeroDivisionError):
        run_command(b"sleep 600", RunState())
    assert (set(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))) == before


# ---------------------------------------------------------------------------------------------- channel
# Writes that do not wait, to whatever output can be.


MUCH = memoryview(bytes(1 << 20))


def filled(channel: Channel) -> int:
    """Write until there is no more room, also after a moment; gives the number of bytes."""
    done: list[int] = []
    while True:
        before = len(done)
        assert channel.send(MUCH, done)
        if len(done) == before and (channel.unsure or not channel.wait(0.1)):
            return sum(done)


@pytest.mark.parametrize("kind", ["pipe", "terminal", "socket"])
def test_a_full_output_is_not_waited_for(kind: str) -> None:
    pair = socket.socketpair() if kind == "socket" else None
    if pair is not None:
        read, write = pair[0].detach(), pair[1].detach()
    else:
        read, write = os.openpty() if kind == "terminal" else os.pipe()
    channel = Channel(write)
    try:
        written = filled(channel)
        assert written > 0
        assert channel.unsure or not channel.wait(0)
        # Others who have the same file open are not to find it changed.
        assert os.get_blocking(write)
        got = 0
        while got < min(written, 1 << 16):
            got += len(os.read(read, 1 << 16))
        assert channel.wait(1)
        assert filled(channel) > 0
    finally:
        channel.close()
        os.close(read)
        os.close(write)


def test_without_a_description_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc is not mounted."""
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(2, "no /proc")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    read, write = os.pipe()
    channel = Channel(write)
    assert filled(channel) == 1 << 16
    os.read(read, 1 << 12)
    assert filled(channel) == 1 << 12
    for descriptor in (read, write):
        os.close(descriptor)


def test_a_reader_that_went_away() -> None:
    read, write = os.pipe()
    os.close(read)
    channel = Channel(write)
    assert not channel.send(MUCH, [])
    channel.close()
    os.close(write)


def test_a_file_takes_everything_and_a_full_device_is_an_error() -> None:
    with open("/dev/null", "wb") as file:
        done: list[int] = []
        assert Channel(file.fileno()).send(MUCH, done)
        assert done == [1 << 20]
    with open("/dev/full", "wb", buffering=0) as file, pytest.raises(TraceError, match="No space"):
        Channel(file.fileno()).send(MUCH, [])
