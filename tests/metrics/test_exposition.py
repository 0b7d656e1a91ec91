"""Snapshots as text: read back by the parsers of prometheus_client."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from pytrace.core import types
from pytrace.metrics.exposition import Exposition, SeriesCap
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.values import Portable, Value

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


# ---------------------------------------------------------------------------------------------- the number of series

COUNT = types.Count()


def of_maps(
    value: types.Type = COUNT, key: types.Type | None = types.INT64, **maps: dict[Portable, Value]
) -> SnapshotData:
    return SnapshotData((), {f"@{name}": MapData(f"@{name}", key, value, entries) for name, entries in maps.items()})


def test_the_largest_values_come_first() -> None:
    before = of_maps(a={1: 5, 2: 9, 3: 7}, b={1: 1, 2: 2})
    after, left_out = SeriesCap(2).capped(before)
    assert after.maps["@a"].entries == {2: 9, 3: 7}
    assert after.maps["@b"] is before.maps["@b"]
    assert left_out == {"@a": 1, "@b": 0}
    assert len(before.maps["@a"].entries) == 3


def test_a_key_that_was_shown_stays_until_the_map_has_lost_it() -> None:
    cap = SeriesCap(2)
    cap.capped(of_maps(a={1: 5, 2: 6}))
    after, left_out = cap.capped(of_maps(a={1: 5, 2: 6, 3: 100}))
    assert (after.maps["@a"].entries, left_out) == ({1: 5, 2: 6}, {"@a": 1})
    after, _ = cap.capped(of_maps(a={2: 6, 3: 100, 4: 50}))
    assert after.maps["@a"].entries == {2: 6, 3: 100}
    cap.capped(of_maps(a={}))
    after, _ = cap.capped(of_maps(a={2: 6, 3: 100, 4: 50}))
    assert after.maps["@a"].entries == {3: 100, 4: 50}


def test_averages_and_histograms_weigh_what_they_counted() -> None:
    after, _ = SeriesCap(1).capped(of_maps(types.Avg(), a={1: (1000, 1), 2: (10, 5)}))
    assert after.maps["@a"].entries == {2: (10, 5)}
    after, _ = SeriesCap(1).capped(of_maps(types.Hist(0), a={1: {60: 1}, 2: {1: 2, 2: 2}}))
    assert after.maps["@a"].entries == {2: {1: 2, 2: 2}}


def test_a_map_without_keys_is_no_matter_of_the_cap() -> None:
    after, left_out = SeriesCap(1).capped(of_maps(COUNT, None, a={None: 3}))
    assert after.maps["@a"].entries == {None: 3}
    assert left_out == {}
