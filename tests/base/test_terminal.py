"""Tests of whether messages are coloured."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pytrace.base.terminal import colour, unicode


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal, and an environment that says nothing about colour."""
    for name in ("PYTRACE_COLOR", "BPFTRACE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    first, second = pty.openpty()
    yield second
    os.close(first)
    os.close(second)


def test_a_terminal_shows_colours(screen: int) -> None:
    assert colour(screen)
    read, write = os.pipe()
    assert not colour(write)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("NO_COLOR", "1", False),
        ("NO_COLOR", "", True),
        ("TERM", "dumb", False),
        ("PYTRACE_COLOR", "never", False),
        ("BPFTRACE_COLOR", "never", False),
        ("PYTRACE_COLOR", "auto", True),
    ],
)
def test_the_environment_decides(
    screen: int, monkeypatch: pytest.MonkeyPatch, name: str, value: str, wanted: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert colour(screen) is wanted


def test_always_is_always(screen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_COLOR", "always")
    monkeypatch.setenv("NO_COLOR", "1")
    with open(os.devnull) as nothing:
        assert colour(nothing.fileno())


def _shown(program: str) -> bytes:
    """What a program whose streams are a terminal prints there."""
    first, second = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdout=second, stderr=second) as child:
        os.close(second)
        output = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while part := os.read(first, 4096):
                output += part
        os.close(first)
        assert child.wait() == 0
    return output.replace(b"\r\n", b"\n")


def test_both_streams_escape_control_characters_on_a_terminal() -> None:
    program = (
        "import sys; from pytrace.base.terminal import prepare_streams; prepare_streams()\n"
        "for stream in (sys.stdout, sys.stderr):\n"
        "    stream.write('a\\x1b[2J\\u202e\\udcff é\\n'); stream.flush()\n"
    )
    assert _shown(program) == b"a\\x1b[2J\\xe2\\x80\\xae\\xff \xc3\xa9\n" * 2


@pytest.mark.parametrize(("raw", "expected"), [(False, b"a\\x1b[2J\n"), (True, b"a\x1b[2J\n")])
def test_output_is_raw_where_that_is_asked_for(raw: bool, expected: bytes) -> None:
    assert _shown(f"from pytrace.cli import messages; messages.write_output(b'a\\x1b[2J\\n', raw={raw})") == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LANG": "en_US.UTF-8"}, True), ({"LANG": "C.utf8"}, True), ({"LC_CTYPE": "de_DE.UTF-8"}, True), ({}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, False), ({"LANG": "de_DE.ISO-8859-1"}, False),
        # Python replaces the C locale by this one in its own environment.
        ({"LC_CTYPE": "C.UTF-8"}, False), ({"LC_CTYPE": "C.UTF-8", "LANG": "en_US.UTF-8"}, True),
    ],
)  # fmt: skip
def test_only_locales_of_utf8_show_more_than_ascii(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: bool
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert unicode() is expected
