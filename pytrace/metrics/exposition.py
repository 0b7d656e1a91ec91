"""Snapshots as text for Prometheus, in the format that a client accepts; ``prometheus_client`` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pytrace.metrics.series_cap import SeriesCap
from pytrace.results.formats.metric_families import PREFIX, Family, MetricKind, Sample, distinct, families
from pytrace.results.snapshot import SnapshotData

LEFT_OUT = f"{PREFIX}map_series_left_out"


class Exposition:
    """The text of one snapshot after another; at most *most_series* keys of each map."""

    def __init__(self, most_series: int) -> None:
        self._cap = SeriesCap(most_series)
        self._snapshot: SnapshotData | None = None
        self._families: list[Family] = []
        self._texts: dict[str, bytes] = {}
        """Of the last snapshot, by content type: several clients may ask at once."""

    def of(self, snapshot: SnapshotData, accept: str) -> tuple[str, bytes]:
        """Content type and text of a snapshot, for a client whose ``Accept`` header is *accept*."""
        if snapshot is not self._snapshot:
            kept, left_out = self._cap.capped(snapshot)
            self._families = distinct([*families(kept), _left_out(left_out)])
            self._snapshot, self._texts = snapshot, {}
        encode, content_type = choose_encoder(accept)
        if content_type not in self._texts:
            self._texts[content_type] = encode(_Families(self._families))
        return content_type, self._texts[content_type]


class _Families(Collector):
    """Families as ``prometheus_client`` collects them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.help, family.kind.value, family.unit)
            for sample in family.samples:
                metric.add_sample(family.name + sample.suffix, dict(sample.labels), sample.value)
            yield metric


def _left_out(numbers: Mapping[str, int]) -> Family:
    text = "Keys of a map that are too many to be shown (config key max_metric_series)"
    samples = tuple(Sample("", (("map", name),), number) for name, number in sorted(numbers.items()))
    return Family(LEFT_OUT, MetricKind.GAUGE, text, "", samples)
