from __future__ import annotations

from pytrace.live.glyphs import Glyphs
from pytrace.live.log import Log


def log(*parts: bytes, kept: int = 100) -> Log:
    made = Log(Glyphs(), kept)
    for part in parts:
        made.add(part)
    return made


def test_lines_may_come_in_parts() -> None:
    assert log(b"one\ntw", b"o\nthree").lines() == ["one", "two"]


def test_the_newest_lines_are_kept() -> None:
    assert log(b"".join(b"%d\n" % number for number in range(10)), kept=3).lines() == ["7", "8", "9"]


def test_colours_are_left_out_and_other_controls_escaped() -> None:
    assert log(b"\x1b[36mbar\x1b[0m\tx\n", b"\x1b]0;title\x07\r\n").lines() == ["bar     x", "\\x1b]0;title\\x07"]


def test_a_script_that_clears_the_screen_clears_the_log() -> None:
    assert log(b"old\n", b"older\n\x1b[H\x1b[2Jnew\n").lines() == ["new"]


def test_the_filter_is_of_any_case() -> None:
    found = log(b"Alpha\nbeta\nalphabet\n")
    found.filter = "ALPHA"
    assert found.lines() == ["Alpha", "alphabet"]
    assert found.last(1) == ["alphabet"]
    assert len(found) == 3


def test_what_was_dropped_is_counted_and_joins_no_lines() -> None:
    found = log(b"begin")
    found.add(b"end\nnext\n", dropped=10)
    assert found.dropped == 10
    assert found.lines() == ["end", "next"]
