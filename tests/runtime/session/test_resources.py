"""The programs of a run, and a run without a command."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pytrace.runtime.session.resources import NoCommand
from tests.support.fake_run import FakeRun, program


def test_programs_by_kind_are_those_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = program("kprobe", "a"), program("kprobe", "b")
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, first, program("begin"), program("tracepoint", service=True), second)
        assert run.resources.programs("kprobe") == [first, second]
        assert run.resources.programs("tracepoint") == []
        assert run.resources.kinds() == {"kprobe", "begin"}


def test_no_command_never_ends() -> None:
    command = NoCommand()
    command.stop_after_exec()
    command.release()
    assert (command.pid, command.poll(), command.run_to_entry(), command.descriptors) == (None, None, False, ())
