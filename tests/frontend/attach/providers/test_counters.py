"""software and hardware: names of events, counts, and machines without counters."""

from __future__ import annotations

import pytest

from pytrace.core.probes.targets import CountedEventTarget, ProbeTarget
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


def test_event_suggestions() -> None:
    assert "page-faults" in Expanded("software:page-fault { }").hints[0]
    assert Expanded("software:zzz { }").hints[0].startswith("events are ")


def test_hardware_needs_counters() -> None:
    assert "counters" in Expanded("hardware:cycles { }").errors[0]
    assert not Expanded("hardware:cycles { }", mode="list").errors
    kernel = RecordedKernel(features=FEATURES | {"perf_hardware"})
    (target,) = Expanded("hardware:cycles:100 { }", kernel).unit.targets
    assert (target.probe, target.place) == ("hardware:cycles:100", CountedEventTarget("cpu-cycles", 0, 100))


def test_a_listing_shows_the_place_of_the_count() -> None:
    assert Expanded("software:cs:5 { }", mode="list").names == ["software:cs:"]
