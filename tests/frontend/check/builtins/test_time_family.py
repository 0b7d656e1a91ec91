"""Builtins about time: clocks, and which of them make a date."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.event_layout import CurrentTime
from pytrace.frontend.ast.compile_time_facts import DateFormat
from tests.frontend.checking import last_value, refused, value
from tests.support.front import analyse
from tests.support.recorded import Facts

# fmt: off
REFUSED = [
    ("begin { print(strftime(\"%F\", nsecs(monotonic))); }",
     "1:30-46", "the monotonic clock cannot be turned into a date"),
    ("begin { print(nsecs(\"boot\")); }", "1:15-28", "nsecs() takes monotonic, boot, tai, sw_tai"),
    ("begin { print(strftime(5, nsecs)); }", "1:24-25", "the format of strftime() must be a string literal"),
    ("begin { print(strftime(\"%Y\", \"x\")); }",
     "1:15-34", "the time of strftime() must be an integer, not string[2]"),
    ("begin { print(strftime(comm, nsecs)); }", "1:24-28", "the format of strftime() must be a string literal"),
    ("begin { time(5); }", "1:14-15", "the format of time() must be a string literal"),
]
VALUES = [
    ("begin { print(nsecs); }", "uint64", None),
    ("begin { print(nsecs(sw_tai)); }", "uint64", None),
    ("begin { print(elapsed); }", "uint64", None),
    ("begin { print(jiffies); }", "uint64", None),
    ("begin { print(strftime(\"%F\", nsecs)); }", "timestamp", None),
]
# fmt: on


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "type_", "constant"), VALUES)
def test_values(script: str, type_: str, constant: object) -> None:
    assert value(script) == (type_, constant)


@pytest.mark.parametrize(("time", "clock"), [("nsecs", 0), ("5", 0), ("nsecs(boot)", 0), ("nsecs(tai)", 1), ("nsecs(sw_tai)", 2)])
def test_dates_know_their_clock(time: str, clock: int) -> None:
    program, node = last_value(f'begin {{ print(strftime("%F", {time})); }}')
    assert program.fact(node, DateFormat).clock == clock
    assert program.strings == ["%F"]


def test_the_time_of_day() -> None:
    first, second = analyse('begin { time(); time("%H"); }').checked().event_list
    assert (first.static, second.static) == (CurrentTime("%H:%M:%S\n"), CurrentTime("%H"))


def test_kernels_without_the_atomic_clock() -> None:
    kernel = Facts(missing=frozenset({"tai_clock"}))
    assert refused("begin { print(nsecs(tai)); }", kernel=kernel)[1] == "the kernel has no helper for the tai clock"
    assert value("begin { print(nsecs(sw_tai)); }", kernel) == ("uint64", None)
