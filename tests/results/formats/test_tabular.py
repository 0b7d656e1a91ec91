"""Maps and rows as CSV, Arrow and Parquet, read back by Python's csv and by pyarrow."""

from __future__ import annotations

import csv as standard_csv
import math
from io import BytesIO, StringIO
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Type
from pytrace.interface.snapshots import Snapshot
from pytrace.remote.answer import labelled
from pytrace.results import external_sort
from pytrace.results.formats import tabular
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from tests.results.formats.test_text_and_json import KEYS, VALUES
from tests.support.encode import Run
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, stack, stored, table

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.feather")
pytest.importorskip("pyarrow.parquet")


def csv(found: SnapshotData) -> bytes:
    file = BytesIO()
    tabular.write_csv(found, WriteOptions(), file)
    return file.getvalue()


def live(key: Type, value: Type, entries: dict[Any, Any]) -> bytes:
    one = Run(csv=True)
    one.keyed("@", key, value, entries)
    one.send(one.event("print_map", map="@"))
    return one.printed()


@each_row(("value", "decoded_values", "portable_values"), VALUES, ids=lambda item: str(item)[:12])
@each_row(("key", "decoded_keys", "portable_keys"), KEYS, ids=lambda item: str(item)[:12])
def test_maps_print_as_in_the_run(
    key: Type, decoded_keys: list[Any], portable_keys: list[Any],
    value: Type, decoded_values: list[Any], portable_values: list[Any],
) -> None:  # fmt: skip
    decoded = dict(zip(decoded_keys, decoded_values, strict=False))
    data = map_data("@", key, value, dict(zip(portable_keys, portable_values, strict=False)))
    text = csv(snapshot(data))
    assert text == live(key, value, decoded)
    # The flat table has the same columns and rows, with numbers as numbers.
    flat = tabular.map_table(data)
    lines = list(standard_csv.reader(StringIO(text.decode(), newline="")))
    assert [column.name for column in flat.columns] == lines[0]
    for at, column in enumerate(flat.columns):
        assert len(column.values) == len(lines) - 1
        if column.kind.value in ("int64", "uint64") and not isinstance(key, types.Pointer):
            assert [str(item) for item in column.values] == [line[at] for line in lines[1:]]
        elif column.kind.value == "text":
            assert column.values == [line[at] for line in lines[1:]]


def test_csv_has_rows_first_and_then_maps() -> None:
    found = snapshot(
        map_data("@", types.Record(("pid", "comm"), (types.UINT64, STRING)), COUNT, {(1, "a,b"): 2}),
        map_data("@h", None, types.Hist(), {None: {2: 1, 3: 2}}),
        tables=(table(["pid", "path"], [types.INT64, STRING], [(10, 'x"'), (9, "")]),),
    )
    assert csv(found).decode().split("\r\n") == [
        "pid,path", '10,"x"""', "9,", "", "pid,comm,@", '1,"a,b",2', "", "@h.min,@h.max,@h.count", "1,1,1", "2,3,2", "",
    ]  # fmt: skip


def arrow(found: SnapshotData, form: str = "arrow", **settings: str) -> Any:
    file = BytesIO()
    options = WriteOptions(settings)
    if form == "parquet":
        tabular.write_parquet(found, options, file)
        return pyarrow.parquet.read_table(BytesIO(file.getvalue()))
    tabular.write_arrow(found, options, file)
    return pyarrow.ipc.open_file(BytesIO(file.getvalue())).read_all()


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_types(form: str) -> None:
    key = types.Record(
        ("n", "u", "flag", "text", "raw", "where", "pair"),
        (types.INT32, types.UINT64, types.BOOL, STRING, types.Buffer(4), types.Stack(True),
         types.Tuple((types.INT8, STRING))),
    )  # fmt: skip
    frames = StackTrace((Frame("f;g", 4), Frame("main")))
    entries = {(-1, (1 << 64) - 1, True, "a\udcff", b"\0\xff", frames, (3, "x")): 7}
    read = arrow(snapshot(map_data("@lat_us", key, types.Sum(), entries)), form)
    assert [(field.name, str(field.type)) for field in read.schema] == [
        ("n", "int64"), ("u", "uint64"), ("flag", "bool"), ("text", "string"), ("raw", "binary"),
        ("where", str(pyarrow.list_(pyarrow.string())) if form == "arrow" else str(read.schema.field("where").type)),
        ("pair.0", "int64"), ("pair.1", "string"), ("@lat_us", "int64"),
    ]  # fmt: skip
    assert list(read.to_pylist()[0].values()) == [
        -1, (1 << 64) - 1, True, "a\\xff", b"\0\xff", ["f;g+4", "main+0"], 3, "x", 7,
    ]  # fmt: skip
    assert read.schema.field("@lat_us").metadata[b"unit"] == b"us"
    assert b'"host": "here"' in read.schema.metadata[b"pytrace"]


@each_row("form", ["arrow", "parquet"])
@each_row(
    ("type_", "value", "with_unit"),
    [
        (types.Hist(), {3: 5}, {"@usecs.min", "@usecs.max"}),
        (types.LHist(0, 10, 1), {3: 5}, {"@usecs.min", "@usecs.max"}),
        (types.Stats(), (9, 3), {"@usecs.average", "@usecs.total"}),
        (types.Sum(), 9, {"@usecs"}),
        (types.DOUBLE, 2.5, {"@usecs"}),
        (types.Max(), 9, {"@usecs"}),
    ],
)
def test_units_of_columns(form: str, type_: types.Type, value: object, with_unit: set[str]) -> None:
    schema = arrow(snapshot(map_data("@usecs", None, type_, {None: value})), form).schema
    assert {field.name for field in schema if (field.metadata or {}).get(b"unit") == b"us"} == with_unit


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_floating_point_numbers(form: str) -> None:
    entries = {(2.5, math.nan): -math.inf, (-0.5, 3.0): math.nan}
    read = arrow(snapshot(map_data("@", types.Tuple((types.DOUBLE, types.FLOAT)), types.DOUBLE, entries)), form)
    assert [str(field.type) for field in read.schema] == ["double"] * 3
    rows = sorted(str(list(row.values())) for row in read.to_pylist())
    assert rows == ["[-0.5, 3.0, nan]", "[2.5, nan, -inf]"]


def test_histograms_and_series() -> None:
    read = arrow(snapshot(map_data("@h", STRING, types.LHist(0, 20, 10), {"b": {0: 1, 2: 3}, "a": {3: 2}})))
    assert [tuple(row.values()) for row in read.to_pylist()] == [
        ("a", 20, None, 2), ("b", None, -1, 1), ("b", 0, 9, 0), ("b", 10, 19, 3),
    ]  # fmt: skip
    read = arrow(snapshot(map_data("@t", None, types.TSeries(SECOND, 3, "avg"), {None: {9: (-3, 2), 7: (9, 2)}})))
    assert [str(field.type) for field in read.schema] == ["timestamp[ns, tz=UTC]", "int64"]
    assert read.column(0).cast("int64").to_pylist() == [7 * SECOND, 9 * SECOND]
    assert read.column(1).to_pylist() == [4, -1]


def test_integers_beyond_their_column_are_not_lost() -> None:
    last = types.Hist().buckets - 1
    read = arrow(snapshot(map_data("@h", None, types.Hist(), {None: {last: 1}})))
    assert (str(read.schema.field("@h.max").type), read.to_pylist()[0]["@h.max"]) == ("uint64", (1 << 64) - 1)
    read = arrow(snapshot(map_data("@", None, types.INT64, {None: 1}), map_data("@b", None, types.INT64, {}),
                          tables=(table(["x"], [types.INT64], [((1 << 64) - 1,), (-1,)]),)), rows="1")  # fmt: skip
    assert [int(item) for item in read.column(0).to_pylist()] == [(1 << 64) - 1, -1]


def test_rows_of_all_runs_and_the_choice_of_a_table() -> None:
    rows = table(["pid"], [types.UINT32], [(10,)])
    rows.rows["run-2"] = [(11,)]
    other = table(["name"], [STRING], [("x",)])
    found = SnapshotData((run(), run("run-2")), {}, (rows, other))
    assert arrow(found, rows="1").to_pydict() == {"pid": [10, 11]}
    assert arrow(found, "parquet", rows="2").to_pydict() == {"name": ["x"]}
    with pytest.raises(TraceError, match="one table; the snapshot has rows=1, rows=2"):
        arrow(found)
    with pytest.raises(TraceError, match="no number 3"):
        arrow(found, rows="3")
    with pytest.raises(TraceError, match="expected the number"):
        arrow(found, rows="x")


def test_snapshots_give_maps_and_rows_by_name() -> None:
    found = Snapshot(snapshot(
        map_data("@lat_us", STRING, COUNT, {"a": 2}), tables=(table(["pid"], [types.INT64], [(7,)]),)
    ))  # fmt: skip
    assert found.to_arrow("lat_us").to_pydict() == {"key": ["a"], "@lat_us": [2]}
    assert found.to_arrow("@lat_us").equals(found.to_arrow("lat_us"))
    pytest.importorskip("pandas")
    assert list(found.to_pandas("lat_us")["@lat_us"]) == [2]
    pytest.importorskip("polars")
    assert found.to_polars("rows").to_dict(as_series=False) == {"pid": [7]}
    with pytest.raises(TraceError, match="no map 'lat'") as caught:
        found.to_pandas("lat")
    assert "@lat_us" in caught.value.hints[0]
    with pytest.raises(TraceError, match="1 tables of rows, and no number 2"):
        found.to_pandas("rows", table=2)


def test_several_maps_do_not_fit_one_file() -> None:
    found = snapshot(map_data("@a", None, COUNT, {None: 1}), map_data("@b", None, COUNT, {None: 1}))
    with pytest.raises(TraceError, match="holds one table; the snapshot has @a, @b"):
        arrow(found)


def test_stacks_with_errors_and_empty_ones() -> None:
    key = types.Stack(True)
    entries = {stack("f", "main"): 1, StackTrace((), True): 2, StackTrace((), True, "File exists"): 3}
    flat = tabular.map_table(map_data("@", key, COUNT, entries))
    values = dict(zip(flat.columns[1].values, flat.columns[0].values, strict=True))
    assert values == {1: ["f+4", "main+4"], 2: [], 3: ["[no stack: File exists]"]}


def test_empty_maps_and_labels() -> None:
    assert arrow(snapshot(map_data("@", STRING, COUNT, {}))).column_names == ["key", "@"]
    assert csv(snapshot(map_data("@", STRING, COUNT, {}))) == b""
    (data,) = labelled(snapshot(map_data("@", STRING, COUNT, {"cat": 3})), "host", "web1").maps.values()
    assert csv(snapshot(data)) == b"host,key,@\r\nweb1,cat,3\r\n"
    assert [column.name for column in tabular.map_table(data).columns] == ["host", "key", "@"]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_many_rows_are_written_in_parts_of_one_schema(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with keys; a value of the last part decides the type of the whole column."""
    entries = {(number, f"name{number % 7}"): number for number in range(50)} | {(50, "last"): (1 << 64) - 1}
    data = map_data("@m", types.Tuple((types.INT64, STRING)), types.Sum(), entries)
    whole = arrow(snapshot(data), form)
    monkeypatch.setattr(external_sort, "RUN", 8)
    monkeypatch.setattr(external_sort, "CHUNK", 3)
    assert len(list(tabular.map_parts(data))) > 5
    monkeypatch.setattr(tabular, "_GROUP", 4)
    assert arrow(stored(snapshot(data)), form).equals(whole)
    assert arrow(snapshot(data), form).equals(whole)
    if form == "parquet":
        file = BytesIO()
        tabular.write_parquet(stored(snapshot(data)), WriteOptions(), file)
        groups = pyarrow.parquet.ParquetFile(file)
        sizes = [groups.metadata.row_group(number).num_rows for number in range(groups.num_row_groups)]
        assert sizes == [12, 12, 12, 12, 3], "some parts in each"
    assert tabular.map_table(data).to_arrow().equals(whole)
    assert whole.num_rows == 51
    assert arrow(snapshot(map_data("@m", types.INT64, types.Sum(), {})), form).num_rows == 0
