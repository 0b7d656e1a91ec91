"""The programs of a run, and a run without a command."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.session.resources import NoCommand, Notices
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


# ---------------------------------------------------------------------------------------------- notices

@pytest.mark.parametrize(
    ("options", "said"),
    [
        (RunOptions(), ["done\n", "WARNING: odd\nHINT: do that\n"]),
        (RunOptions(quiet=True), ["WARNING: odd\nHINT: do that\n"]),
        (RunOptions(warnings=False), ["done\n"]),
    ],
)
def test_notices_and_warnings_can_be_left_out(options: RunOptions, said: list[str]) -> None:
    messages: list[str] = []
    notices = Notices(cast(Any, SimpleNamespace(message=messages.append)), options)
    notices.tell("done\n")
    notices.warn("odd", ("do that",))
    assert messages == said
