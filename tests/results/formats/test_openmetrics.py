"""Snapshots as metrics."""

from __future__ import annotations

import tempfile
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import external_sort
from pytrace.results.formats import openmetrics, table
from pytrace.results.formats.format_row import Content, Format, FormatOption, WriteOptions, content, has_stack
from pytrace.results.formats.openmetrics import Family, MetricKind, families, map_families, metric_name
from pytrace.results.snapshot import SnapshotData
from tests.support.examples import examples
from tests.support.portable import KEYS, VALUES, maps
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, stored

# ---------------------------------------------------------------------------------------------- metric families
# Metric families of maps, read back through the text by the parser of prometheus_client.


UINT = types.UINT64
MARKED = "a\\xff"  # as in CSV


def only(data: Any, **options: bool) -> Family:
    found = [item for item in families(snapshot(data), **options) if not item.name.startswith("pytrace_run")]
    assert len(found) == 1
    return found[0]


def numbers(family: Family) -> list[tuple[str, tuple[str, ...], Any]]:
    return [(item.suffix, tuple(value for _, value in item.labels), item.value) for item in family.samples]


def test_counts_and_sums() -> None:
    family = only(map_data("@reads", STRING, COUNT, {"b": 2, "a\udcff": (1 << 64) - 1}))
    assert (family.name, family.kind, family.unit) == ("pytrace_reads", MetricKind.COUNTER, "")
    assert numbers(family) == [("_total", (MARKED,), (1 << 64) - 1), ("_total", ("b",), 2)]
    unsigned = only(map_data("@read_bytes", None, types.Sum(False), {None: 5}))
    assert (unsigned.kind, unsigned.unit) == (MetricKind.COUNTER, "bytes")
    assert only(map_data("@", None, types.Sum(True), {None: 5})).kind is MetricKind.GAUGE


def test_the_difference_of_counts_is_a_gauge() -> None:
    family = only(map_data("@", STRING, COUNT, {"a": -2, "b": 3}))
    assert (family.kind, numbers(family)) == (MetricKind.GAUGE, [("", ("a",), -2), ("", ("b",), 3)])
    with pytest.raises(TraceError, match="negative"):
        families(snapshot(map_data("@", None, types.Hist(), {None: {2: -1}})))


def test_averages() -> None:
    assert numbers(only(map_data("@", None, types.Stats(False), {None: (7, 2)}))) == [
        ("_count", (), 2), ("_sum", (), 7),
    ]  # fmt: skip
    gauge, counter = map_families(map_data("@", None, types.Avg(True), {None: (-7, 2)}))
    assert (gauge.name, numbers(gauge)) == ("pytrace_map", [("", (), -3.5)])
    assert (counter.name, numbers(counter)) == ("pytrace_map_samples", [("_total", (), 2)])


def test_buckets_are_exact() -> None:
    family = only(map_data("@h", STRING, types.Hist(), {"a": {2: 1, 4: 3}, "b": {1: 9}}))
    assert numbers(family) == [
        ("_bucket", ("a", "-1.0"), 0), ("_bucket", ("a", "0.0"), 0), ("_bucket", ("a", "1.0"), 1),
        ("_bucket", ("a", "3.0"), 1), ("_bucket", ("a", "7.0"), 4), ("_bucket", ("a", "+Inf"), 4),
        ("_bucket", ("b", "-1.0"), 0), ("_bucket", ("b", "0.0"), 9), ("_bucket", ("b", "1.0"), 9),
        ("_bucket", ("b", "3.0"), 9), ("_bucket", ("b", "7.0"), 9), ("_bucket", ("b", "+Inf"), 9),
    ]  # fmt: skip
    linear = only(map_data("@", None, types.LHist(10, 30, 10), {None: {0: 1, 2: 4, 3: 2}}))
    assert numbers(linear) == [
        ("_bucket", ("9.0",), 1), ("_bucket", ("19.0",), 1), ("_bucket", ("29.0",), 5), ("_bucket", ("+Inf",), 7),
    ]  # fmt: skip
    last = only(map_data("@", None, types.Hist(), {None: {types.Hist().buckets - 1: 1}}))
    assert numbers(last)[-2:] == [("_bucket", ("18446744073709551615.0",), 1), ("_bucket", ("+Inf",), 1)]


def test_series_give_the_last_interval_or_all_with_times() -> None:
    data = map_data("@t", None, types.TSeries(SECOND, 3, "avg"), {None: {7: (9, 2), 9: (-3, 2)}})
    assert numbers(only(data)) == [("", (), -1)]
    assert [(item.value, item.timestamp) for item in only(data, timestamps=True).samples] == [
        (4, 8 * SECOND), (-1, 10 * SECOND),
    ]  # fmt: skip


def test_labels_are_the_columns_of_the_key() -> None:
    key = types.Record(("pid", "le", "a"), (UINT, STRING, types.Record(("b",), (STRING,))))
    family = only(map_data("@", key, COUNT, {(1, "x", ("y",)): 1}))
    assert family.samples[0].labels == (("pid", "1"), ("key_le", "x"), ("a_b", "y"))
    family = only(map_data("@", types.Tuple((UINT, STRING)), COUNT, {(1, "x"): 1}))
    assert family.samples[0].labels == (("key1", "1"), ("key2", "x"))
    # Two keys whose texts are equal stay two series.
    enum = types.Enum("e", 4, False, (("A", 0), ("A", 1)))
    assert [item.labels for item in only(map_data("@", enum, COUNT, {0: 1, 1: 2})).samples] == [
        (("key", "A"),), (("key", "A"), ("same_text", "2")),
    ]  # fmt: skip


def test_names() -> None:
    assert [metric_name(name) for name in ("@", "@x", "@x_total", "@total", "@x_bucket")] == [
        "pytrace_map", "pytrace_x", "pytrace_x", "pytrace_total", "pytrace_x",
    ]  # fmt: skip
    found = families(snapshot(
        map_data("@x", None, types.LHist(0, 2, 1), {None: {1: 1}}),
        map_data("@x_count", None, UINT, {None: 1}),
        map_data("@x_total", None, COUNT, {None: 1}),
    ))  # fmt: skip
    names = [item.name for item in found if "_x" in item.name]
    assert names == ["pytrace_x", "pytrace_x_count_2", "pytrace_x_2"]


def test_runs_and_losses() -> None:
    found = snapshot(of=run(host='we"b'))
    found.losses = {"lost": {"begin": 3}}
    info, start, end, lost = families(found)
    assert dict(info.samples[0].labels)["host"] == 'we"b'
    assert (start.samples[0].value, end.samples[0].value) == (100.0, 110.0)
    assert numbers(lost) == [("_total", ("lost", "begin"), 3)]


def test_help_is_the_comment_of_the_map() -> None:
    data = map_data("@", None, COUNT, {None: 1})
    assert only(data).help == "Map @ (count)"
    data.help = "Opened files"
    assert only(data).help == "Opened files"


# ---------------------------------------------------------------------------------------------- format row
# What a row of the table of formats says of its format.


USTACK = types.Stack(True)


FOLDED = Format(
    "folded", "", (".folded",), frozenset({Content.STACKS}), table.named("text").write,
    options=(FormatOption("process", ""), FormatOption("period", "", "N")),
    library="no_such_library_at_all", extra="some",
)  # fmt: skip


def test_options_of_a_format() -> None:
    assert FOLDED.settings("process,period=9") == {"process": "", "period": "9"}
    for text, message in [
        ("proces", "format folded has no option 'proces'"),
        ("period", "should be written period=N"),
        ("process=1", "should be written process"),
    ]:
        with pytest.raises(TraceError, match=message):
            FOLDED.settings(text)
    with pytest.raises(TraceError, match="no option 'x'"):
        table.chosen("text:x", None)


def test_a_library_that_is_missing_is_named_with_the_extra() -> None:
    with pytest.raises(TraceError, match="format folded needs the Python package no_such_library_at_all") as found:
        FOLDED.writer()
    assert "the extra 'some'" in found.value.hints[0]


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [
        (None, COUNT, Content.NUMBERS),
        (STRING, types.Avg(), Content.NUMBERS),
        (types.Tuple((STRING, USTACK)), types.Sum(), Content.STACKS),
        (USTACK, types.Hist(), Content.HISTOGRAMS),
        (STRING, types.LHist(), Content.HISTOGRAMS),
        (STRING, types.TSeries(), Content.SERIES),
        (STRING, USTACK, Content.VALUES),
        (STRING, types.Tuple((types.INT64, types.INT64)), Content.VALUES),
    ],
)
def test_what_maps_hold(key: types.Type | None, value: types.Type, held: Content) -> None:
    assert content(map_data("@", key, value, {})) is held


def test_labels_of_stacks_and_flags() -> None:
    assert has_stack(types.Tuple((STRING, types.Record(("a",), (USTACK,)))))
    assert not has_stack(types.Tuple((STRING, types.INT64)))
    assert WriteOptions({"process": ""}).flag("process")
    assert not WriteOptions().flag("process")


# ---------------------------------------------------------------------------------------------- test openmetrics


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


def test_digits_and_snapshots_without_values() -> None:
    found = snapshot(map_data("@", None, COUNT, {None: 2**64 - 1}))
    assert "pytrace_map_total 18446744073709551615\n" in written(found)
    assert written(SnapshotData(())) == "# EOF\n"
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
