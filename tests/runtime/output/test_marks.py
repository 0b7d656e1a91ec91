"""Marks of what was counted while hits were left out."""

from __future__ import annotations

from pytrace.core import types
from pytrace.core.config import Config
from pytrace.core.manifest import Manifest, MapSpec, SampledUnit, Sampling
from pytrace.core.types import Type
from pytrace.runtime.output.marks import ESTIMATE, SAMPLE, Marks


def spec(name: str, value: Type) -> MapSpec:
    return MapSpec(name, "", "global", None, value, 1)


MAPS = (
    spec("@count", types.Count()), spec("@max", types.Max(signed=True)), spec("@last", types.INT64),
    spec("@start", types.INT64), spec("@times", types.Hist(0)), spec("@rate", types.INT64),
    spec("@rates", types.Sum(signed=True)),
    spec("@other", types.Count()),
)  # fmt: skip
UNITS = (
    SampledUnit(True, False, (), ("@count", "@last", "@max", "@start"), (0,), ("@start",)),
    SampledUnit(False, True, ("@start",), ("@times",), (1,), ("@start",)),
    SampledUnit(False, False, ("@count",), ("@rate",), (2,), ()),
    SampledUnit(False, False, ("@rate",), ("@rates",), (), ()),
    SampledUnit(True, False, (), ("@other",), (3,), ()),
)


def marked(*units: int) -> tuple[dict[str, str], dict[int, str]]:
    maps: dict[str, str] = {}
    events: dict[int, str] = {}
    manifest = Manifest((), MAPS, (), (), Config(), sampling=Sampling("s", 0, UNITS))
    Marks(manifest, maps, events).add(units)
    return maps, events


def test_what_is_scaled_is_an_estimate_and_the_rest_a_sample() -> None:
    maps, events = marked(0)
    assert {name: maps.get(name) for name in ("@count", "@max", "@last", "@start", "@other")} == {
        "@count": ESTIMATE, "@max": SAMPLE, "@last": SAMPLE, "@start": SAMPLE, "@other": None,
    }  # fmt: skip
    assert events[0] == SAMPLE


def test_what_is_made_of_it_is_marked_as_well() -> None:
    maps, events = marked(0)
    # The return counts with the weights of the entries; what a timer computes of an estimate is one.
    assert (maps["@times"], maps["@rate"], maps["@rates"]) == (ESTIMATE, ESTIMATE, ESTIMATE)
    assert events == {0: SAMPLE, 1: SAMPLE, 2: ESTIMATE}


def test_other_programs_are_exact() -> None:
    assert marked(4) == ({"@other": ESTIMATE}, {3: SAMPLE})
    assert marked() == ({}, {})
