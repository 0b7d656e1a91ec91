"""Clocks."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.options import CompileOptions
from tests.codegen.running import helpers, printed, ran
from tests.support.bpf_machine import NOW


@pytest.mark.parametrize(
    ("clock", "number", "value"),
    [
        ("nsecs", 125, NOW + 10**9),
        ("nsecs(monotonic)", 5, NOW),
        ("nsecs(boot)", 125, NOW + 10**9),
        ("nsecs(tai)", 208, NOW + 2 * 10**9),
        ("jiffies", 118, 55),
    ],
)
def test_clocks(clock: str, number: int, value: int) -> None:
    found = ran(f"begin {{ print({clock}); }}")
    assert found.printed() == [value]
    assert number in helpers(found)


@pytest.mark.parametrize(("call", "member", "sign"), [("elapsed", "start", -1), ("nsecs(sw_tai)", "tai", 1)])
def test_what_the_session_knows(call: str, member: str, sign: int) -> None:
    found = ran(f"begin {{ print({call}); }}")
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + getattr(session, member), struct.pack("<Q", 1000))
    found.events.clear()
    found.run()
    assert found.printed() == [NOW + 10**9 + sign * 1000]


def test_dates_are_made_later() -> None:
    (value,) = printed('print(strftime("%F", pid));')
    assert struct.unpack("<QII", value) == (4321, 0, 0)


def test_files_compiled_ahead_have_the_same_clocks() -> None:
    assert printed("print(nsecs);", options=CompileOptions(ahead=True)) == [NOW + 10**9]
