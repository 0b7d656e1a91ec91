from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.live import terminal

ROOT = Path(__file__).resolve().parent.parent.parent


def standard(monkeypatch: pytest.MonkeyPatch, *terminals: int) -> None:
    monkeypatch.setattr(os, "isatty", lambda number: number in terminals)


@pytest.mark.parametrize(
    ("terminals", "message"),
    [
        ((), "standard input and output are not one"),
        ((0,), "standard output is not one"),
        ((1,), "standard input is not one"),
    ],
)
def test_it_needs_a_terminal(monkeypatch: pytest.MonkeyPatch, terminals: tuple[int, ...], message: str) -> None:
    standard(monkeypatch, *terminals)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(TraceError, match=message) as raised:
        terminal.check()
    assert "-o FILE" in raised.value.hints[0]


@pytest.mark.parametrize(
    ("term", "shows", "coloured"),
    [("xterm-256color", True, True), ("vt100", True, False), ("dumb", False, False), ("", False, False)],
)
def test_what_a_terminal_can_do(term: str, shows: bool, coloured: bool) -> None:
    """In a process of its own: a process reads one entry of terminfo."""
    assert asked(TERM=term) == [shows, coloured, True]
    assert asked(TERM=term, NO_COLOR="1", LC_ALL="C") == [shows, False, False]


ASK = """
import json, os
from pytrace.core.diagnostics import TraceError
from pytrace.live import terminal
os.isatty = lambda _number: True
try:
    terminal.check()
    shows = True
except TraceError:
    shows = False
print(json.dumps([shows, terminal.coloured(), terminal.characters()]))
"""


def asked(**variables: str) -> list[bool]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, check=True)
    found: list[bool] = json.loads(done.stdout)
    return found


def test_a_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = pty.openpty()
    attributes = termios.tcgetattr(ours)
    monkeypatch.setattr(termios, "tcgetattr", lambda _number: attributes)
    saved = terminal.SavedTerminal()
    changed = [*attributes[:3], attributes[3] & ~(termios.ECHO | termios.ISIG), *attributes[4:]]
    termios.tcsetattr(ours, termios.TCSANOW, changed)
    saved.restore(ours, modes=True)
    monkeypatch.undo()
    assert termios.tcgetattr(ours) == attributes
    assert b"\x1b[?1049l" in os.read(theirs, 1000)
    os.close(ours)
    os.close(theirs)
