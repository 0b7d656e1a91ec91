"""Limits the number of series per map: a monitoring system keeps every series that it has ever seen."""

from __future__ import annotations

from msgspec.structs import replace

from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.values import Portable, Value


class SeriesCap:
    """Selects at most *most* keys of each map.

    A key that was selected once stays selected while the map contains it, so that series do not come and go; remaining
    room goes to the keys with the largest values.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._shown: dict[str, set[Portable]] = {}

    def capped(self, snapshot: SnapshotData) -> tuple[SnapshotData, dict[str, int]]:
        """The snapshot without surplus keys, and the number of surplus keys for each keyed map, by name."""
        maps: dict[str, MapData] = {}
        left_out: dict[str, int] = {}
        for name, data in snapshot.maps.items():
            maps[name] = data
            if data.key is None:
                continue
            maps[name] = self._map(data)
            left_out[name] = len(data.entries) - len(maps[name].entries)
        return replace(snapshot, maps=maps), left_out

    def _map(self, data: MapData) -> MapData:
        entries = data.entries
        before = self._shown.pop(data.name, set())
        if len(entries) <= self._most:
            self._shown[data.name] = set(entries)
            return data
        selected = before & entries.keys()
        others = sorted((key for key in entries if key not in selected), key=lambda key: -_size(entries[key]))
        selected.update(others[: self._most - len(selected)])
        self._shown[data.name] = selected
        return replace(data, entries={key: value for key, value in entries.items() if key in selected})


def _size(value: Value) -> int:
    """The rank of a value: the number, the count of an average, the total count of a histogram."""
    if isinstance(value, int):
        return value
    if isinstance(value, tuple) and value and isinstance(value[-1], int):
        return value[-1]
    if isinstance(value, dict):
        return sum(item for item in value.values() if isinstance(item, int))
    return 0
