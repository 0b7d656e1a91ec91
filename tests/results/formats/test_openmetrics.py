"""Metrics as text, read back by the parser of prometheus_client."""

from __future__ import annotations

import tempfile
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.results import external_sort
from pytrace.results.formats import openmetrics, table
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import SnapshotData
from tests.support.examples import examples
from tests.support.portable import KEYS, VALUES, maps
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, stored

parser = pytest.importorskip("prometheus_client.openmetrics.parser")


def written(found: SnapshotData, **options: str) -> str:
    file = BytesIO()
    openmetrics.write(found, WriteOptions(options), file)
    return file.getvalue().decode()


def parsed(text: str) -> dict[str, Any]:
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


@pytest.mark.parametrize("options", [{}, {"timestamps": ""}], ids=["plain", "timestamps"])
def test_a_parser_reads_every_kind_of_map(options: dict[str, str]) -> None:
    number = types.UINT64
    found = snapshot(
        map_data("@reads", STRING, COUNT, {'a"\\\n': 3, "b": 4}),
        map_data("@lat_us", STRING, types.Hist(2), {"a": {0: 1, 7: 2}, "b": {9: 1}}),
        map_data("@linear", None, types.LHist(-10, 10, 5), {None: {0: 1, 3: 2, 5: 4}}),
        map_data("@stats", STRING, types.Stats(False), {"a": (7, 2), "b": (1, 1)}),
        map_data("@avg", STRING, types.Avg(True), {"a": (-7, 2)}),
        map_data("@min", None, types.Min(), {None: -4}),
        map_data("@series", STRING, types.TSeries(SECOND, 3), {"a": {7: (9, 2), 8: (4, 1)}, "b": {8: (1, 1)}}),
        map_data("@flag", None, types.BOOL, {None: True}),
        map_data("@plain", types.Tuple((number, number)), number, {(1, 2): 5}),
    )
    found.losses = {"lost": {"begin": 3}}
    families = parsed(written(found, **options))
    assert {name: family.type for name, family in families.items() if "_run" not in name} == {
        "pytrace_reads": "counter", "pytrace_lat_us": "histogram", "pytrace_linear": "histogram",
        "pytrace_stats": "summary", "pytrace_avg": "gauge", "pytrace_avg_samples": "counter", "pytrace_min": "gauge",
        "pytrace_series": "gauge", "pytrace_flag": "gauge", "pytrace_plain": "gauge", "pytrace_lost_events": "counter",
    }  # fmt: skip
    assert families["pytrace_run"].samples[0].labels["host"] == "here"
    samples = families["pytrace_reads"].samples
    assert [(item.labels, item.value) for item in samples] == [({"key": 'a"\\\n'}, 3), ({"key": "b"}, 4)]
    assert families["pytrace_lat_us"].unit == "us"
    bounds = [(item.labels["le"], item.value) for item in families["pytrace_linear"].samples]
    assert bounds == [("-11.0", 1), ("-6.0", 1), ("-1.0", 1), ("4.0", 3), ("9.0", 3), ("+Inf", 7)]
    times = {float(item.timestamp) for item in samples if item.timestamp is not None}
    assert times == ({110.0} if options else set())


def test_integers_have_all_their_digits() -> None:
    found = snapshot(map_data("@", None, COUNT, {None: 2**64 - 1}))
    assert "pytrace_map_total 18446744073709551615\n" in written(found)


def test_an_empty_snapshot_is_valid() -> None:
    assert written(SnapshotData(())) == "# EOF\n"


def test_an_identity_that_is_no_utf8_as_damaged_snapshots_have_it() -> None:
    found = snapshot(map_data("@", None, types.Count(), {None: 1}), of=run("run\udce8"))
    assert 'run="run\\\\xe8"' in written(found)


@pytest.mark.parametrize("name", VALUES)
@examples(8)
@given(data=st.data())
def test_many_keys_are_sorted_in_files_with_the_same_result(name: str, data: st.DataObject) -> None:
    """Also keys of the same text, whose order is that of the map."""
    key = data.draw(st.sampled_from([key for key in KEYS if key is not None]))
    (item,) = data.draw(maps("@", key, VALUES[name], 1))
    options = data.draw(st.sampled_from([{}, {"timestamps": ""}]))
    whole = written(snapshot(item), **options)
    run_, chunk = external_sort.RUN, external_sort.CHUNK
    try:
        external_sort.RUN, external_sort.CHUNK = 1, data.draw(st.integers(1, 2))
        assert written(stored(snapshot(item)), **options) == whole
    finally:
        external_sort.RUN, external_sort.CHUNK = run_, chunk


def test_many_negative_counts_are_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {(1, "a"): -3, (2, "b"): 4, (0, "c"): 5}
    found = snapshot(map_data("@", types.Tuple((types.INT64, STRING)), COUNT, entries))
    whole = written(found)
    monkeypatch.setattr(external_sort, "RUN", 1)
    assert written(stored(found)) == whole
    assert "# TYPE pytrace_map gauge" in whole


@pytest.mark.parametrize("form", ["text", "json", "csv", "openmetrics", "arrow", "parquet"])
def test_maps_in_memory_need_no_files(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a run may not write any when it writes its results."""

    def refused(**_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(external_sort, "RUN", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    row, options = table.chosen(form, None)
    many = snapshot(map_data("@", STRING, COUNT, {"a": 3, "b": 4, "c": 1}))
    row.writer()(many, options, BytesIO())
    with pytest.raises(PermissionError):
        row.writer()(stored(many), options, BytesIO())
