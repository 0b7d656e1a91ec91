"""Files and commands that make a run wait, and requests to end it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pytrace.runtime.output import blocking
from pytrace.runtime.output.blocking import BrokenOffError, Wait, read_file, run_command
from pytrace.runtime.output.run_state import RunState
from tests.support.end_requests import ScriptedRequests, asked
from tests.support.waiting import descendants, until


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
    monkeypatch.setattr(blocking, "_PATIENCE", 100)
    mark = tmp_path / "mark"
    assert ended_by_request(f"trap '' TERM; : > {mark}; while :; do sleep 600; done", mark) == (b"", False)


def test_nothing_stays_open_or_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(blocking, "_read_all", fail)
    before = set(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError):
        run_command(b"sleep 600", RunState())
    assert (set(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))) == before
