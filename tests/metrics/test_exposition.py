"""Snapshots as text: read back by the parsers of prometheus_client."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from pytrace.core import types
from pytrace.metrics.exposition import Exposition
from pytrace.results.snapshot import MapData, SnapshotData

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
"""As Prometheus 2.42 asks."""


def snapshot() -> SnapshotData:
    maps = [
        MapData("@calls", types.String(16), types.Count(), {"ls": 3, 'a"b\\\n': 1, "cat": 2}, help="Calls\nby name"),
        MapData("@size_bytes", None, types.Hist(0), {None: {1: 2, 4: 5}}),
        MapData("@level", None, types.INT64, {None: -7}),
    ]
    return SnapshotData((), {data.name: data for data in maps}, (), {"ring": {"events": 4}})


def values(metrics: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for metric in metrics for sample in metric.samples}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        (ACCEPT, OPENMETRICS, openmetrics),
        ("application/openmetrics-text", OPENMETRICS, openmetrics),
        ("", "text/plain; version=0.0.4; charset=utf-8", classic),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", classic),
        ("text/html", "text/plain; version=0.0.4; charset=utf-8", classic),
    ],
)
def test_both_formats_say_the_same(accept: str, content_type: str, parse: object) -> None:
    got, text = Exposition(2).of(snapshot(), accept)
    assert got.startswith(content_type)
    found = values(parse(text.decode()))  # type: ignore[operator]
    assert found["pytrace_calls_total", (("key", "ls"),)] == 3
    assert found["pytrace_calls_total", (("key", "cat"),)] == 2
    assert ("pytrace_calls_total", (("key", 'a"b\\\n'),)) not in found
    assert found["pytrace_map_series_left_out", (("map", "@calls"),)] == 1
    assert found["pytrace_size_bytes_bucket", (("le", "+Inf"),)] == 7
    assert found["pytrace_level", ()] == -7
    assert found["pytrace_lost_events_total", (("kind", "ring"), ("subject", "events"))] == 4


def test_types_and_help() -> None:
    _, text = Exposition(10).of(snapshot(), ACCEPT)
    found = {metric.name: metric for metric in openmetrics(text.decode())}
    assert found["pytrace_calls"].type == "counter"
    assert found["pytrace_calls"].documentation == "Calls\nby name"
    assert found["pytrace_size_bytes"].type == "histogram"
    assert found["pytrace_level"].type == "gauge"
    calls = {sample.labels["key"]: sample.value for sample in found["pytrace_calls"].samples}
    assert calls == {"ls": 3, 'a"b\\\n': 1, "cat": 2}


def test_one_snapshot_is_written_once_for_each_format() -> None:
    exposition, taken = Exposition(10), snapshot()
    first = exposition.of(taken, ACCEPT)[1]
    assert exposition.of(taken, ACCEPT)[1] is first
    assert exposition.of(taken, "")[1] != first
    assert exposition.of(snapshot(), ACCEPT)[1] is not first


def test_labels_are_made_once_for_each_key() -> None:
    exposition = Exposition(10)
    taken = snapshot()
    exposition.of(taken, ACCEPT)
    before = dict(exposition._labels["@calls"])
    taken = snapshot()
    entries = dict(taken.maps["@calls"].entries)
    del entries["ls"]
    taken.maps["@calls"].entries = {"zsh": 1, **entries, "awk": 5}
    _, text = exposition.of(taken, ACCEPT)
    after = exposition._labels["@calls"]
    assert list(after) == sorted(after) == ['a"b\\\n', "awk", "cat", "zsh"]
    assert after["cat"] is before["cat"]
    assert text == Exposition(10).of(taken, ACCEPT)[1]
    assert all("ls" not in dict(labels).values() for labels in exposition._label_texts)


def test_each_map_has_the_time_at_which_it_was_read() -> None:
    taken = snapshot()
    taken.read = {"@calls": 1_500_000_000, "@level": 2_000_000_000}
    found = values(openmetrics(Exposition(10).of(taken, ACCEPT)[1].decode()))
    assert found["pytrace_map_read_seconds", (("map", "@calls"),)] == 1.5
    assert found["pytrace_map_read_seconds", (("map", "@level"),)] == 2


def test_the_older_format_names_what_it_shows() -> None:
    text = Exposition(10).of(snapshot(), "")[1].decode()
    assert "# HELP pytrace_calls_total Calls\\nby name\n# TYPE pytrace_calls_total counter\n" in text
    assert "# UNIT" not in text
    assert "# EOF" not in text


def test_a_map_of_the_name_of_one_of_our_own() -> None:
    maps = {"@map_series_left_out": MapData("@map_series_left_out", None, types.INT64, {None: 5})}
    _, text = Exposition(10).of(SnapshotData((), maps), ACCEPT)
    found = values(openmetrics(text.decode()))
    assert found == {("pytrace_map_series_left_out", ()): 5}
