"""Events: their layout, what is lost, and how often failures are reported."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit.events import IN_REGISTERS, REPORTED
from pytrace.core.options.compile_options import CompileOptions
from tests.codegen.running import helpers, machine, ran


@pytest.mark.parametrize("count", [1, 5, IN_REGISTERS, IN_REGISTERS + 1, 40])
def test_any_number_of_arguments(count: int) -> None:
    values = [f"(uint64)pid + {at}" if at % 3 else f'"text{at}"' for at in range(count)]
    formats = " ".join("%d" if at % 3 else "%s" for at in range(count))
    ((_, found),) = ran(f'begin {{ printf("{formats}", {", ".join(values)}); }}').values()
    assert found == [4321 + at if at % 3 else f"text{at}".encode() for at in range(count)]


def test_events_of_fixed_size_are_filled_in_place() -> None:
    assert 131 in helpers(ran("begin { print(pid); }"))
    assert 130 in helpers(ran("begin { let $s: string[200] = comm; print($s); }"))


@pytest.mark.parametrize("value", ["pid", "str(comm, 9)", 'strftime("%F", 1)'])
def test_events_that_find_no_room_are_counted(value: str) -> None:
    found = ran(f"begin {{ print({value}); print({value}); }}", ring_full=True)
    assert found.events == []
    assert found.counts()["lost"] == 2


def test_tails_are_as_long_as_their_text() -> None:
    script = 'begin { let $s: string[200] = comm; printf("%s %d %s", $s, 5, "abc"); }'
    short, long = ran(script, comm=b"a"), ran(script, comm=b"abcdef")
    assert len(long.events[0]) - len(short.events[0]) == 5
    assert [arguments for _, arguments in long.values()] == [[b"abcdef", 5, b"abc"]]


def test_a_string_that_fills_all_room_is_cut_and_counted() -> None:
    config = "config = { max_strlen = 8 } "
    for text, cut in ((b"1234567", False), (b"12345678", True), (b"123456789", True)):
        found = machine(f"{config}kprobe:vfs_read {{ print(str(kptr(arg0))); }}")
        context = bytearray(168)
        context[112:120] = found.region(text + b"\0").to_bytes(8, "little")
        found.run(context=bytes(context))
        assert found.printed() == [text[:8]]
        assert found.counts()["cut"] == cut, text


def test_buffers() -> None:
    ((_, found),) = ran('begin { printf("%r|%r", buf("abcdef", 3), buf("x", 1)); }').values()
    assert found == [b"abc", b"x"]


def failing(level: int) -> tuple[int, int]:
    """Events and counted failures of a helper that fails in each of many runs."""
    found = machine(
        "kprobe:vfs_read { signal(9); }",
        options=CompileOptions(unsafe=True, checks=level),
        helpers={109: lambda *_: -1},
    )
    for _ in range(REPORTED + 10):
        found.run()
    return len(found.events), found.counts()["helper"]


def test_a_cpu_reports_the_first_failures_and_counts_all() -> None:
    assert failing(1) == (REPORTED, REPORTED + 10)
    assert failing(0) == (0, REPORTED + 10)


@pytest.mark.parametrize(("level", "events"), [(0, 0), (1, 0), (2, 1)])
def test_failed_reads_are_reported_on_request(level: int, events: int) -> None:
    found = ran("begin { @ = *(uint64 *)kptr(8); }", options=CompileOptions(checks=level))
    assert len(found.events) == events
    if events:
        ((kind, arguments),) = found.values()
        assert (kind, arguments) == ("helper_error", [-14])
