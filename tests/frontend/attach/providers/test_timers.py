"""profile and interval: units, periods, frequencies."""

from __future__ import annotations

import pytest

from pytrace.core.probes.targets import ProbeTarget, TimerTarget
from tests.frontend.expanding import Expanded


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
    ],
)
def test_mistakes(text: str, place: str) -> None:
    assert Expanded(f"{text} {{ }}").places == [place]


def test_short_period_hints_at_units() -> None:
    assert "interval:s:5" in Expanded("interval:5 { }").hints[0]
    assert "profile:hz:99 is 99 times a second" in Expanded("profile:99 { }").hints[0]


def test_unit_suggestions() -> None:
    assert "'ms'" in Expanded("interval:mss:5 { }").hints[0] or "ms" in Expanded("interval:mss:5 { }").hints[0]


def test_the_context_is_that_of_perf_events() -> None:
    assert str(Expanded("profile:hz:9 { print(ctx) }").unit.context.ctx_type) == "struct bpf_perf_event_data *"
    assert Expanded("profile:hz:9 { print(1) }").unit.context.ctx_type is None
