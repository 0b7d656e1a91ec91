"""States of a run as a live view gets them."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.core import types
from pytrace.live.messages import Meters, State
from pytrace.results.snapshot import MapData, Portable, Run, SnapshotData, Value

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
NAME = types.String(16)
METERS = Meters(elapsed=61, hits=1234.5, lost=0, losing=0, own=0.012, programs=0.034, interval=1)


def counts(name: str, entries: Mapping[Portable, Value]) -> MapData:
    """A map of counts by the name of a process."""
    return MapData(name, NAME, types.Count(), dict(entries))


def stored(name: str, entries: Mapping[Portable, Value], key: types.Type | None = NAME) -> MapData:
    """A map of numbers that a script stores."""
    return MapData(name, key, types.INT64, dict(entries))


def total(name: str, value: int) -> MapData:
    """A count without keys."""
    return MapData(name, None, types.Count(), {None: value})


def histogram(name: str, entries: Mapping[Portable, Mapping[int, int]]) -> MapData:
    """Histograms by the name of a process; the key None is that of a map without keys."""
    key = None if None in entries else NAME
    return MapData(name, key, types.Hist(0), {name: dict(buckets) for name, buckets in entries.items()})


def state(second: float, *maps: MapData, others: Mapping[str, int] | None = None, meters: Meters = METERS) -> State:
    """The state of the maps some seconds after the start."""
    end = START + round(second * SECOND)
    run = Run("one", "host", "6.1", "x86_64", "-e", "", (), START, end, 0, end - START)
    return State(SnapshotData((run,), {data.name: data for data in maps}), dict(others or {}), meters)


HOSTILE = "\x1b]0;owned\x07\x1b[31mevil\r\n"
"""A name that would take over a terminal."""
