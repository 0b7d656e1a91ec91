"""Tests of whether messages are coloured."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator

import pytest

from pytrace.base.terminal import colour


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
