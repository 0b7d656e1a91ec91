"""Sampled events, timers, and probes without a target."""

from __future__ import annotations

import pytest

from pytrace.core.probe_kinds import (
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
        ("software:page-faults", "software:page-faults", CountedEventTarget("page-faults", 2, 100)),
        ("s:faults:5", "software:faults:5", CountedEventTarget("page-faults", 2, 5)),
        ("software:cs", "software:cs", CountedEventTarget("context-switches", 3, 1000)),
    ],
)
def test_places(text: str, probe: str, target: ProbeTarget) -> None:
    (found,) = Expanded(f"{text} {{ }}").unit.targets
    assert (found.probe, found.place) == (probe, target)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("software:page-fault", "page-fault"),
        ("software:*", "*"),
        ("software:cs:0", "0"),
        ("software:cs:many", "many"),
        ("software", "software"),
        ("hardware:loops", "loops"),
    ],
)
def test_mistakes(text: str, place: str) -> None:
    assert Expanded(f"{text} {{ }}").places == [place]


def test_events_and_their_suggestions() -> None:
    assert "page-faults" in Expanded("software:page-fault { }").hints[0]
    assert Expanded("software:zzz { }").hints[0].startswith("events are ")
    assert Expanded("software:cs:5 { }", mode="list").names == ["software:cs:"]


def test_hardware_needs_counters() -> None:
    assert "counters" in Expanded("hardware:cycles { }").errors[0]
    assert not Expanded("hardware:cycles { }", mode="list").errors
    kernel = RecordedKernel(features=FEATURES | {"perf_hardware"})
    (target,) = Expanded("hardware:cycles:100 { }", kernel).unit.targets
    assert (target.probe, target.place) == ("hardware:cycles:100", CountedEventTarget("cpu-cycles", 0, 100))


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
    ],
)
def test_places_timers(text: str, probe: str, target: ProbeTarget) -> None:
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
    ],
)
def test_mistakes_timers(text: str, place: str) -> None:
    assert Expanded(f"{text} {{ }}").places == [place]


def test_units_of_timers() -> None:
    assert "interval:s:5" in Expanded("interval:5 { }").hints[0]
    assert "profile:hz:99 is 99 times a second" in Expanded("profile:99 { }").hints[0]
    assert "'ms'" in Expanded("interval:mss:5 { }").hints[0] or "ms" in Expanded("interval:mss:5 { }").hints[0]


def test_the_context_is_that_of_perf_events() -> None:
    assert str(Expanded("profile:hz:9 { print(ctx) }").unit.context.ctx_type) == "struct bpf_perf_event_data *"
    assert Expanded("profile:hz:9 { print(1) }").unit.context.ctx_type is None


@pytest.mark.parametrize(
    ("text", "probe", "target"),
    [
        ("watchpoint:0x1000:8:wr", "watchpoint:4096:8:rw", WatchpointTarget(4096, 8, "rw")),
        ("w:4096:1:x", "watchpoint:4096:1:x", WatchpointTarget(4096, 1, "x")),
    ],
)
def test_places_watchpoints(text: str, probe: str, target: ProbeTarget) -> None:
    (found,) = Expanded(f"{text} {{ }}").unit.targets
    assert (found.probe, found.place) == (probe, target)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("watchpoint:0x1000:8", "watchpoint:0x1000:8"),
        ("watchpoint:0:8:w", "0"),
        ("watchpoint:0x1000:3:w", "3"),
        ("watchpoint:0x1000:8:r", "r"),
        ("watchpoint:0x1000:8:ww", "ww"),
        ("watchpoint:0x1000:8:q", "q"),
        ("watchpoint:main+arg1:8:w", "main+arg1"),
    ],
)
def test_mistakes_watchpoints(text: str, place: str) -> None:
    assert Expanded(f"{text} {{ }}").places == [place]


def test_watchpoints_need_the_machine() -> None:
    assert Expanded("watchpoint:0x1000:8:r { }", RecordedKernel(arch="aarch64")).names == ["watchpoint:4096:8:r"]
    assert "rw watches both" in Expanded("watchpoint:0x1000:8:r { }").hints[0]
    kernel = RecordedKernel(features=frozenset())
    assert "hardware breakpoints" in Expanded("watchpoint:0x1000:8:w { }", kernel).errors[0]
    assert not Expanded("watchpoint:0x1000:8:w { }", kernel, mode="list").errors


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_lengths(length: int) -> None:
    assert not Expanded(f"watchpoint:0x1000:{length}:w {{ }}").errors


def test_addresses_of_watchpoints() -> None:
    assert "64 bits" in Expanded("watchpoint:0x10000000000000000:8:w { }").errors[0]
    assert not Expanded("watchpoint:0xffffffffffffffff:8:w { }").errors
    assert "uprobe" in Expanded("watchpoint:main+arg1:8:w { }").hints[0]
    assert Expanded("watchpoint:main:8:w { }").hints == []


# -------------------------------------------------------------------------------------------------------------- special


@pytest.mark.parametrize(
    ("text", "probe", "target"),
    [
        ("self:signal:SIGUSR1", "self:signal:SIGUSR1", SignalTarget("SIGUSR1")),
        ("begin", "begin", NoTarget()),
        ("END", "end", NoTarget()),
    ],
)
def test_special_places(text: str, probe: str, target: ProbeTarget) -> None:
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
def test_special_mistakes(text: str, place: str) -> None:
    assert Expanded(f"{text} {{ }}").places == [place]


def test_signals_and_benchmarks() -> None:
    found = Expanded("test:a { } test:a { }", mode="test")
    assert found.places == ["a"]
    assert found.diagnostics.errors[0].notes[0].span.start == 5
    assert not Expanded("test:a { } test:b { }", mode="test").errors
    assert not Expanded("test:a { } bench:a { }", mode="test").errors
    assert len(Expanded("begin, begin { }").units) == 2
    assert Expanded("self:signal:SIGTERM { }").hints == ["it takes SIGUSR1"]
    assert Expanded("self:SIGNAL:sigusr1 { }").names == ["self:signal:SIGUSR1"]
