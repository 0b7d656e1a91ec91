"""The largest entries of maps that are too large to be sent or held, and by how much others may be wrong for it.

A key that was left out of a part of the answer had at most the value of the largest one left out there. These bounds
add up when parts are merged, as losses do: they are kept there, by map.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import counted
from pytrace.core.types import Type
from pytrace.results import file_form
from pytrace.results.snapshot import MapData, SnapshotData, Table

LEFT_OUT = "keys left out"
"""The kind of loss: how many entries of maps of hosts."""
BOUND = "wrong by at most"
"""The kind of loss: by how much a value (of averages and histograms: the number of samples) may be too small or, of a
sum of negative numbers, too large."""

MOST_KEYS = 1_000_000
"""Of a map of an answer."""

Weight = Callable[[Any], int]
"""Of the values of one type."""


def _samples(value: tuple[int, int]) -> int:
    return value[1]


def _counts(value: Mapping[int, int]) -> int:
    return sum(value.values())


_ADDED: Mapping[type[Type], Weight] = {
    types.Count: abs, types.Sum: abs, types.Avg: _samples, types.Stats: _samples, types.Hist: _counts,
    types.LHist: _counts,
}  # fmt: skip
"""Weights of aggregations that add up, for which there is a bound."""
_KEPT: Mapping[type[Type], Weight] = {types.Max: operator.pos, types.Min: operator.neg}
"""Weights of others, of which it is only said how many were left out. Any others are kept by chance."""


def trimmed(snapshot: SnapshotData, most: int) -> SnapshotData:
    """A snapshot whose maps have at most so many entries, the largest ones."""
    losses = {kind: dict(counts) for kind, counts in snapshot.losses.items()}
    maps = {}
    for name, data in snapshot.maps.items():
        maps[name] = data
        if len(data.entries) > most:
            maps[name], bound = _trimmed(data, most)
            _add(losses, LEFT_OUT, name, len(data.entries) - most)
            if bound:
                _add(losses, BOUND, name, bound)
    return replace(snapshot, maps=maps, losses=losses)


def _add(losses: dict[str, dict[str, int]], kind: str, name: str, number: int) -> None:
    counts = losses.setdefault(kind, {})
    counts[name] = counts.get(name, 0) + number


def _trimmed(data: MapData, most: int) -> tuple[MapData, int]:
    """The map, and the weight of the largest entry left out; 0 if that says nothing."""
    added = _ADDED.get(type(data.value))
    weight = added or _KEPT.get(type(data.value), lambda _: 0)
    largest = heapq.nlargest(most + 1, data.entries.items(), key=lambda entry: weight(entry[1]))
    entries = dict(largest[:most])
    times = None if data.times is None else {key: time for key, time in data.times.items() if key in entries}
    return replace(data, entries=entries, times=times), weight(largest[most][1]) if added else 0


def fitting(snapshot: SnapshotData, longest: int) -> bytes:
    """The file form of a snapshot in at most *longest* bytes, if necessary with fewer entries and rows."""
    data = file_form.to_bytes(snapshot)
    most = max([*(len(data.entries) for data in snapshot.maps.values()), *map(_rows, snapshot.tables)], default=0)
    while len(data) > longest and most:
        # A little less than what would fit if all entries were equally long.
        most = min(most - 1, int(most * longest / len(data) * 0.9))
        fewer = trimmed(snapshot, most)
        data = file_form.to_bytes(replace(fewer, tables=tuple(_newest(table, most) for table in snapshot.tables)))
    return data


def _rows(table: Table) -> int:
    return sum(map(len, table.rows.values()))


def _newest(table: Table, most: int) -> Table:
    """The table of one run with at most so many rows, the newest."""
    rows = {run: list(rows)[max(len(rows) - most, 0) :] for run, rows in table.rows.items()}
    return replace(table, rows=rows, dropped=table.dropped + _rows(table) - sum(map(len, rows.values())))


def warnings(snapshot: SnapshotData) -> list[str]:
    """A sentence for each map of which entries were left out."""
    bounds = snapshot.losses.get(BOUND, {})
    return [
        f"{name}: {counted(number, 'key')} of hosts left out, as the answer was too large"
        + (f"; numbers may be wrong by {bounds[name]} at most" if name in bounds else "")
        for name, number in snapshot.losses.get(LEFT_OUT, {}).items()
    ]
