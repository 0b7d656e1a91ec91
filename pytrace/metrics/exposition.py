"""Snapshots in Prometheus text format, in the version that a client accepts."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pytrace.render.value_kind import MetricKind, Sample
from pytrace.results.formats import openmetrics
from pytrace.results.formats.metric_families import PREFIX, Family, distinct, families
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.values import Portable, Value

LEFT_OUT = f"{PREFIX}map_series_left_out"


class Exposition:
    """Formats one snapshot after another, with at most *most_series* keys of each map."""

    def __init__(self, most_series: int) -> None:
        self._cap = SeriesCap(most_series)
        self._snapshot: SnapshotData | None = None
        self._families: list[Family] = []
        self._texts: dict[bool, bytes] = {}
        """Texts of the last snapshot, by whether they are in the older format: several clients may ask at once."""

    def of(self, snapshot: SnapshotData, accept: str) -> tuple[str, bytes]:
        """Content type and text of a snapshot, for a client whose ``Accept`` header is *accept*."""
        if snapshot is not self._snapshot:
            capped, left_out = self._cap.capped(snapshot)
            self._families = distinct([*families(capped), _left_out(left_out)])
            self._snapshot, self._texts = snapshot, {}
        older = "application/openmetrics-text" not in accept
        if older not in self._texts:
            self._texts[older] = openmetrics.exposition(self._families, older=older)
        return openmetrics.OLDER_CONTENT_TYPE if older else openmetrics.CONTENT_TYPE, self._texts[older]


def _left_out(numbers: Mapping[str, int]) -> Family:
    text = "Keys of a map that are too many to be shown (config key max_metric_series)"
    samples = tuple(Sample("", (("map", name),), number) for name, number in sorted(numbers.items()))
    return Family(LEFT_OUT, MetricKind.GAUGE, text, "", samples)


# ---------------------------------------------------------------------------------------------- the number of series


class SeriesCap:
    """Selects at most *most* keys of each map: a monitoring system keeps every series that it has ever seen.

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
