from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.interface import compiled, running
from pytrace.interface.running import _checked


def test_a_run_has_the_arguments_of_a_trace() -> None:
    opened, run = (inspect.signature(function).parameters for function in (running.open, running.run))
    assert {name: item for name, item in run.items() if name in opened} == dict(opened)
    assert set(run) - set(opened) == {"until", "on_event"}


def test_a_trace_has_the_arguments_of_a_compilation() -> None:
    opened, compiles = (inspect.signature(function).parameters for function in (running.open, compiled.compile))
    assert set(compiles) - set(opened) == set()
    assert {name: compiles[name].default for name in compiles} == {name: opened[name].default for name in compiles}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (None, None), ("ls /", "ls /"), (["ls", "a b"], "ls 'a b'"), ([Path("/bin/ls"), "'"], "/bin/ls ''\"'\"''"),
    ],
)  # fmt: skip
def test_commands_are_one_text(command: running.Command | None, text: str | None) -> None:
    assert _checked(None, command, False, ()) == text


@pytest.mark.parametrize(
    ("pid", "command", "follow", "features", "message"),
    [
        (1, "ls", False, (), "pid and command cannot be used together"), (None, "  ", False, (), "command is empty"),
        (None, [], False, (), "command is empty"), (None, None, True, (), "follow needs pid or command"),
        (None, None, False, ("nope",), "unknown feature 'nope'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(
    pid: int | None, command: running.Command | None, follow: bool, features: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        _checked(pid, command, follow, features)


def test_a_compiled_script_has_its_options_already() -> None:
    script = compiled.compile("begin { exit(); }", cached=False)
    for options in ({"unsafe": True}, {"parameters": [1]}, {"includes": ["x.h"]}, {"probe_filter": "x"}):
        with pytest.raises(TraceError, match=rf"compiled already; give {next(iter(options))} to compile"):
            running.open(script, **options)  # type: ignore[arg-type]
