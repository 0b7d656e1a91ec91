"""Stacks on one line."""

from __future__ import annotations

import pytest

from pytrace.core.types import Stack, StackMode
from pytrace.render.names import Names
from pytrace.results.formats.portable_forms import PortableNames
from pytrace.results.values import Frame as PortableFrame
from pytrace.results.values import StackTrace
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.host.host_names import HostNames
from tests.support.encode import Frame, Symbols

KNOWN = {
    0x1000: [Frame("leaf;[odd]\n", 16, "[kernel]")],
    0x2000: [
        Frame("helper", 4, "/bin/prog", "src/a.c", 12, True),
        Frame("main", 8, "/bin/prog", "src/b.c", 30),
    ],
    0x4000: [Frame("", 0, "/usr/lib/libx.so.1")],
}
PLACES = (0x1000, 0x2000, 0x3000, 0x4000)

EXPECTED = {
    (StackMode.FOLDED, False): b"[libx.so.1];0x3000;main;helper;leaf:[odd]\\x0a",
    (StackMode.FOLDED, True): b"[libx.so.1];0x3000;main;helper;leaf:[odd]\\x0a",
    (StackMode.ANNOTATED, False): b"[libx.so.1]_[k];0x3000_[k];main_[k];helper_[i];leaf:[odd]\\x0a_[k]",
    (StackMode.ANNOTATED, True): b"[libx.so.1];0x3000;main;helper_[i];leaf:[odd]\\x0a",
    (StackMode.INVERTED, True): b"leaf:[odd]\\x0a;helper;main;0x3000;[libx.so.1]",
}


@pytest.mark.parametrize(("mode", "user"), list(EXPECTED))
def test_frames_of_a_run(mode: StackMode, user: bool) -> None:
    text = Names(Symbols(KNOWN), Clock(), (), HostNames()).stack(Stack(user, 127, mode))
    assert text((7, PLACES, 0)) == EXPECTED[mode, user]


@pytest.mark.parametrize(("mode", "user"), list(EXPECTED))
def test_frames_of_a_snapshot(mode: StackMode, user: bool) -> None:
    frames = (
        PortableFrame("leaf;[odd]\n", 16, "[kernel]"),
        PortableFrame("helper", 4, "/bin/prog", inlined=True),
        PortableFrame("main", 8, "/bin/prog"),
        PortableFrame("", address=0x3000),
        PortableFrame("", module="/usr/lib/libx.so.1", address=0x4000),
    )
    text = PortableNames().stack(Stack(user, 127, mode))
    assert text(StackTrace(frames, user)) == EXPECTED[mode, user]


def test_no_frames() -> None:
    text = Names(Symbols(KNOWN), Clock(), (), HostNames()).stack(Stack(True, 127, StackMode.FOLDED))
    assert text((7, (), 0)) == b""
    assert text((7, (), -14)) == b""
    assert text((7, (), -22)) == b"[no stack: Invalid argument]"
    saved = PortableNames().stack(Stack(True, 127, StackMode.FOLDED))
    assert saved(StackTrace((), error="Invalid argument")) == b"[no stack: Invalid argument]"


def test_callers_are_where_they_called() -> None:
    known = {0x2000: [Frame("main", 8, "/bin/prog", "b.c", 30)], 0x4000: [Frame("start", 1, "/bin/prog", "b.c", 40)]}
    calls = {0x4000: [Frame("abort", 20, "/bin/prog", "b.c", 9)]}
    text = Names(Symbols(known, calls), Clock(), (), HostNames()).stack(Stack(True, 127, StackMode.FOLDED))
    assert text((0, (0x2000, 0x4000), 0)) == b"abort;main"
