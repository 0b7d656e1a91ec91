"""Stacks as functions: the same that output prints, and where they are."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytrace.core.types import Stack, StackMode
from pytrace.render.names import Names
from pytrace.results import values
from pytrace.results.values import StackTrace
from pytrace.runtime.capture.stack_traces import StackTraces
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.host.host_names import HostNames
from tests.support.captured import Places
from tests.support.encode import Frame

KNOWN = {
    0x1000: [Frame("do_work", 16)],
    0x2000: [Frame("helper", 4, "/bin/prog", "src/a.c", 12, True), Frame("main", 8, "/bin/prog", "src/b.c", 30)],
    0x3000: [Frame("start", 0, "/bin/prog", "src/b.c", 40)],
    0x4000: [Frame("", module="/bin/stripped")],
    0x5000: [Frame("called", 5, "/bin/prog", "src/c.c", 50)],
}
CALLS = {
    0x2000: [Frame("main", 8, "/bin/prog", "src/b.c", 29)],
    0x3000: [Frame("abort", 20, "/bin/prog", "src/b.c", 9)],
    0x5000: [Frame("called", 5, "/bin/prog", "src/c.c", 49)],
}


def text(trace: StackTrace) -> bytes:
    """The default form of :meth:`pytrace.render.names.Names.stack`, without indent."""
    lines = [""]
    for frame in trace.frames:
        place = f"@{frame.file}:{frame.line}" if frame.file else ""
        if not frame.function:
            lines.append(f"0x{frame.address:x}")
        elif frame.inlined:
            lines.append(f"[inlined] {frame.function}{place}")
        else:
            lines.append(f"{frame.function}+{frame.offset}{place}")
    return "".join(f"{line}\n" for line in lines).encode()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.booleans(),
    st.lists(st.sampled_from((*KNOWN, 0x7000, 0x8000)), max_size=8),
    st.sets(st.sampled_from((0x7000, 0x1000, 0x5000))),
)
def test_frames_are_those_that_print(user: bool, addresses: list[int], trampolines: set[int]) -> None:
    symbols = Places(KNOWN, CALLS)
    symbols.trampolines = trampolines
    kind = Stack(user, 127)
    printed = Names(symbols, Clock(), (), HostNames()).stack(kind, b"")
    value = (7, tuple(addresses), 0)
    found = StackTraces(symbols).form(kind)(value)
    assert text(found) == printed(value)
    assert found.user is user


def test_frames_say_where_they_are() -> None:
    symbols = Places(KNOWN, CALLS, moved={7: 0x500})
    (first, second) = StackTraces(symbols).form(Stack(True))((7, (0x2000,), 0)).frames
    assert first == values.Frame("helper", 4, "/bin/prog", "beef", "src/a.c", 12, True, 0x1B00)
    assert second == values.Frame("main", 8, "/bin/prog", "beef", "src/b.c", 30, False, 0x1B00)
    trace = StackTraces(symbols).form(Stack(True))((7, (0x1000, 0x5000, 0x4000), 0))
    assert [(frame.line, frame.address) for frame in trace.frames] == [(0, 0xB00), (49, 0x4B00), (0, 0x3B00)]
    assert trace.frames[2] == values.Frame("", 0, "/bin/stripped", "beef", address=0x3B00)


def test_functions_that_are_named_elsewhere() -> None:
    """Of a place in a file there is the address of its byte; what a signal interrupted is no caller."""
    file = [Frame("f", 1, "/bin/prog")]
    known = {**KNOWN, **dict.fromkeys((0x20FF, 0x2100, 0x2FFF, 0x9000), file)}
    symbols = Places(known, moved={7: 0x500})
    symbols.trampolines = {0x9000}

    def frames(*addresses: int) -> list[values.Frame]:
        return list(StackTraces(symbols, places=True).form(Stack(True))((7, addresses, 0)).frames)

    def place(byte: int, after: int = 0) -> values.Frame:
        return values.Frame("", byte, "/bin/prog", "beef", address=byte + after)

    assert frames(0x2100) == [place(0x1C00)]
    assert frames(0x1000, 0x2100) == [values.Frame("do_work", 16, "", "beef", address=0xB00), place(0x1BFF, 1)]
    assert frames(0x3000, 0x9000, 0x2100, 0x3000) == [place(0x2B00), place(0x8B00), place(0x1C00), place(0x2AFF, 1)]
    kernel = StackTraces(symbols, places=True).form(Stack(False))((0, (0x1000,), 0)).frames
    assert kernel[0].function == "do_work"


def test_the_kernel_has_a_name() -> None:
    trace = StackTraces(Places({**KNOWN, 0x1: [Frame("read", 1, "ext4")]})).form(Stack(False))((0, (0x1000, 1, 9), 0))
    assert [frame.module for frame in trace.frames] == ["[kernel]", "ext4", ""]
    assert trace.frames[0] == values.Frame("do_work", 16, "[kernel]", "cafe", address=0x1000)
    assert trace.frames[2].address == 9


def test_modes_of_numbers_stay_numbers() -> None:
    traces = StackTraces(Places(KNOWN))
    raw = traces.form(Stack(True, 127, StackMode.RAW))((7, (0x1000, 0x2000), 0))
    assert raw.frames == (values.Frame("", address=0x1000), values.Frame("", address=0x2000))
    rows = ((1, bytes(range(20)), 0x5), (2, bytes(20), 0x7F00))
    by_id = traces.form(Stack(True, 127, StackMode.BUILD_ID))((7, rows, 0))
    assert by_id.frames == (
        values.Frame("", build_id=bytes(range(20)).hex(), address=5),
        values.Frame("", address=0x7F00),
    )
    perf = traces.form(Stack(True, 127, StackMode.PERF))((7, (0x2000,), 0))
    assert [frame.function for frame in perf.frames] == ["helper", "main"]


@pytest.mark.parametrize(("error", "expected"), [(0, ""), (-14, ""), (-61, os.strerror(61)), (-22, os.strerror(22))])
def test_errors(error: int, expected: str) -> None:
    assert StackTraces(Places()).form(Stack(True))((7, (), error)) == StackTrace((), True, expected)


def test_a_stack_is_resolved_once() -> None:
    class Counting(Places):
        asked = 0

        def user(self, pid: int, address: int, *, caller: bool = False) -> list[Frame]:
            self.asked += 1
            return super().user(pid, address, caller=caller)

    symbols = Counting(KNOWN)
    form = StackTraces(symbols).form(Stack(True))
    first = form((7, (0x1000, 0x1000), 0))
    assert symbols.asked == 2, "as the innermost frame, and as that of a call"
    assert form((7, (0x1000, 0x1000), 0)) is first
    assert form((8, (0x1000, 0x1000), 0)) == first
