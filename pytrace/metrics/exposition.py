"""Snapshots in Prometheus text format, in the version that a client accepts."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.metrics.series_cap import SeriesCap
from pytrace.results.formats import openmetrics
from pytrace.results.formats.metric_families import PREFIX, Family, Known, MetricKind, Sample, distinct, families
from pytrace.results.snapshot import SnapshotData

LEFT_OUT = f"{PREFIX}map_series_left_out"


class Exposition:
    """Formats one snapshot after another, with at most *most_series* keys of each map.

    Formatting labels takes most of the time, so those of keys in the previous snapshot are cached.
    """

    def __init__(self, most_series: int) -> None:
        self._cap = SeriesCap(most_series)
        self._snapshot: SnapshotData | None = None
        self._families: list[Family] = []
        self._labels: Known = {}
        self._label_texts: openmetrics.LabelTexts = {}
        self._texts: dict[bool, bytes] = {}
        """Texts of the last snapshot, by whether they are in the older format: several clients may ask at once."""

    def of(self, snapshot: SnapshotData, accept: str) -> tuple[str, bytes]:
        """Content type and text of a snapshot, for a client whose ``Accept`` header is *accept*."""
        if snapshot is not self._snapshot:
            capped, left_out = self._cap.capped(snapshot)
            self._families = distinct([*families(capped, known=self._labels), _left_out(left_out)])
            self._snapshot, self._texts = snapshot, {}
        older = "application/openmetrics-text" not in accept
        if older not in self._texts:
            used: openmetrics.LabelTexts = {}
            self._texts[older] = openmetrics.exposition(self._families, older=older, known=self._label_texts, used=used)
            self._label_texts = used
        return openmetrics.OLDER_CONTENT_TYPE if older else openmetrics.CONTENT_TYPE, self._texts[older]


def _left_out(numbers: Mapping[str, int]) -> Family:
    text = "Keys of a map that are too many to be shown (config key max_metric_series)"
    samples = tuple(Sample("", (("map", name),), number) for name, number in sorted(numbers.items()))
    return Family(LEFT_OUT, MetricKind.GAUGE, text, "", samples)
