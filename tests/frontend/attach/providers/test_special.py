"""begin, end, self, test and bench."""

from __future__ import annotations

import pytest

from pytrace.core.probe_kinds import NoTarget, ProbeTarget, SignalTarget
from tests.frontend.expanding import Expanded


@pytest.mark.parametrize(
    ("text", "probe", "target"),
    [
        ("self:signal:SIGUSR1", "self:signal:SIGUSR1", SignalTarget("SIGUSR1")),
        ("begin", "begin", NoTarget()),
        ("END", "end", NoTarget()),
    ],
)
def test_places(text: str, probe: str, target: ProbeTarget) -> None:
    (found,) = Expanded(f"{text} {{ }}").unit.targets
    assert (found.probe, found.place) == (probe, target)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("self:signal:SIGTERM", "SIGTERM"),
        ("self:x", "self:x"),
        ("begin:x", "begin:x"),
    ],
)
def test_mistakes(text: str, place: str) -> None:
    assert Expanded(f"{text} {{ }}").places == [place]


def test_names_are_unique() -> None:
    found = Expanded("test:a { } test:a { }", mode="test")
    assert found.places == ["a"]
    assert found.diagnostics.errors[0].notes[0].span.start == 5
    assert not Expanded("test:a { } test:b { }", mode="test").errors
    assert not Expanded("test:a { } bench:a { }", mode="test").errors


def test_each_is_a_program_of_its_own() -> None:
    assert len(Expanded("begin, begin { }").units) == 2


def test_the_signal_is_named() -> None:
    assert Expanded("self:signal:SIGTERM { }").hints == ["it takes SIGUSR1"]
    assert Expanded("self:SIGNAL:sigusr1 { }").names == ["self:signal:SIGUSR1"]
