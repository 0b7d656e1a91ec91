"""pytrace.runtime.output.commands: what a command writes, and its end when the user wants that of the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.runtime.output import commands
from pytrace.runtime.output.context import RunState
from tests.support.end_requests import ScriptedRequests
from tests.support.waiting import descendants, until


def test_all_that_is_written() -> None:
    assert commands.run(b"printf 'a\\377'; exit 3", RunState()) == (b"a\xff", True)
    assert commands.run(b"true", RunState()) == (b"", True)
    wanted, whole = commands.run(b"head -c 300000 /dev/zero", RunState())
    assert (len(wanted), whole) == (300000, True)


def test_a_command_is_any_bytes() -> None:
    assert commands.run(b"printf %s \xff", RunState())[0] == b"\xff"


def test_output_that_is_closed_before_the_end(tmp_path: Path) -> None:
    """The run waits for the end of the command too."""
    mark = tmp_path / "mark"
    assert commands.run(f"echo x; exec >&-; echo > {mark}".encode(), RunState()) == (b"x\n", True)
    assert mark.exists()


def ended_by_request(text: str, mark: Path) -> tuple[bytes, bool]:
    """Run a command that makes a file, and ask for the end once that is there."""
    asked = 0

    def requests() -> int:
        nonlocal asked
        asked = asked or int(mark.exists())
        return asked

    return commands.run(text.encode(), RunState(requests=ScriptedRequests(requests)))


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
    monkeypatch.setattr(commands, "_PATIENCE", 100)
    mark = tmp_path / "mark"
    assert ended_by_request(f"trap '' TERM; : > {mark}; while :; do sleep 600; done", mark) == (b"", False)


def test_nothing_stays_open_or_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(commands, "_read_all", fail)
    before = set(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError):
        commands.run(b"sleep 600", RunState())
    assert (set(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))) == before
