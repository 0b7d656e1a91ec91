"""begin … bench, profile, interval, software, hardware, watchpoint."""

from __future__ import annotations

import pytest

from pytrace.core.probes.targets import (
    CountedEventTarget,
    NoTarget,
    ProbeTarget,
    SignalTarget,
    TimerTarget,
    WatchpointTarget,
)
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel


@pytest.mark.parametrize(
    ("text", "probe", "target"),
    [
        ("interval:s:1", "interval:s:1", TimerTarget(period_ns=10**9)),
        ("interval:ms:10", "interval:ms:10", TimerTarget(period_ns=10**7)),
        ("profile:us:100", "profile:us:100", TimerTarget(period_ns=10**5)),
        ("profile:hz:99", "profile:hz:99", TimerTarget(frequency=99)),
        ("profile:HZ:0x10", "profile:hz:16", TimerTarget(frequency=16)),
        ("interval:5s", "interval:us:5000000", TimerTarget(period_ns=5 * 10**9)),
        ("interval:1500", "interval:us:1", TimerTarget(period_ns=1000)),
        ("interval:1e6", "interval:us:1000", TimerTarget(period_ns=10**6)),
        ("software:page-faults", "software:page-faults", CountedEventTarget("page-faults", 2, 100)),
        ("s:faults:5", "software:faults:5", CountedEventTarget("page-faults", 2, 5)),
        ("software:cs", "software:cs", CountedEventTarget("context-switches", 3, 1000)),
        ("watchpoint:0x1000:8:wr", "watchpoint:4096:8:rw", WatchpointTarget(4096, 8, "rw")),
        ("w:4096:1:x", "watchpoint:4096:1:x", WatchpointTarget(4096, 1, "x")),
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
        ("interval:s:0", "0"),
        ("interval:s:-1", "-1"),
        ("interval:s:x", "x"),
        ("interval:h:1", "h"),
        ("interval:999", "999"),
        ("interval", "interval"),
        ("profile:s:1:2", "profile:s:1:2"),
        ("profile:s:99999999999999", "99999999999999"),
        ("software:page-fault", "page-fault"),
        ("software:*", "*"),
        ("software:cs:0", "0"),
        ("software:cs:many", "many"),
        ("software", "software"),
        ("hardware:loops", "loops"),
        ("watchpoint:0x1000:8", "watchpoint:0x1000:8"),
        ("watchpoint:0:8:w", "0"),
        ("watchpoint:0x1000:3:w", "3"),
        ("watchpoint:0x1000:8:r", "r"),
        ("watchpoint:0x1000:8:ww", "ww"),
        ("watchpoint:0x1000:8:q", "q"),
        ("watchpoint:main+arg1:8:w", "main+arg1"),
        ("self:signal:SIGTERM", "SIGTERM"),
        ("self:x", "self:x"),
        ("begin:x", "begin:x"),
    ],
)
def test_mistakes(text: str, place: str) -> None:
    found = Expanded(f"{text} {{ }}")
    assert found.places == [place]


def test_short_period_hints_at_units() -> None:
    assert "interval:s:5" in Expanded("interval:5 { }").hints[0]
    assert "profile:hz:99 is 99 times a second" in Expanded("profile:99 { }").hints[0]


def test_event_suggestions() -> None:
    assert "page-faults" in Expanded("software:page-fault { }").hints[0]


def test_hardware_needs_counters() -> None:
    assert "counters" in Expanded("hardware:cycles { }").errors[0]
    kernel = RecordedKernel(features=FEATURES | {"perf_hardware"})
    (target,) = Expanded("hardware:cycles:100 { }", kernel).unit.targets
    assert (target.probe, target.place) == ("hardware:cycles:100", CountedEventTarget("cpu-cycles", 0, 100))


def test_watchpoint_reads_on_other_machines() -> None:
    assert Expanded("watchpoint:0x1000:8:r { }", RecordedKernel(arch="aarch64")).names == ["watchpoint:4096:8:r"]


def test_watchpoint_needs_breakpoints() -> None:
    found = Expanded("watchpoint:0x1000:8:w { }", RecordedKernel(features=frozenset()))
    assert "hardware breakpoints" in found.errors[0]


def test_names_are_unique() -> None:
    found = Expanded("test:a { } test:a { }", mode="test")
    assert found.places == ["a"]
    assert found.diagnostics.errors[0].notes[0].span.start == 5
    assert not Expanded("test:a { } test:b { }", mode="test").errors
