from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.interface import compiled, running
from pytrace.interface.running import _checked


@pytest.mark.parametrize("function", [compiled.compile, running.open, running.run])
def test_arguments_of_other_names_are_refused(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'pidd'"):
        function("begin { exit(); }", pidd=1)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (None, None), ("ls /", "ls /"), (["ls", "a b"], "ls 'a b'"), ([Path("/bin/ls"), "'"], "/bin/ls ''\"'\"''"),
    ],
)  # fmt: skip
def test_commands_are_one_text(command: compiled.Command | None, text: str | None) -> None:
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
    pid: int | None, command: compiled.Command | None, follow: bool, features: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        _checked(pid, command, follow, features)


def test_a_compiled_script_has_its_options_already() -> None:
    script = compiled.compile("begin { exit(); }", cached=False)
    for options in ({"unsafe": True}, {"parameters": [1]}, {"includes": ["x.h"]}, {"probe_filter": "x"}):
        with pytest.raises(TraceError, match=rf"compiled already; give {next(iter(options))} to compile"):
            running.open(script, **options)  # type: ignore[arg-type]
