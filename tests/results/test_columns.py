"""Tables of columns and samples of stacks."""

from __future__ import annotations

import importlib
import math
from typing import Any

import msgspec
import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.render.value_kind import Held
from pytrace.render.values import one_nan
from pytrace.results import columns
from pytrace.results.columns import Numbers, TablesReader, TablesWriter
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.formats.tabular import ColumnKind, FlatColumn, FlatTable
from pytrace.results.snapshot import Frame, StackTrace, Value
from pytrace.results.stack_samples import (
    INTERPRETED,
    KERNEL,
    MARK,
    USER,
    Label,
    Measure,
    Profile,
    frame_name,
    paths,
    profiles,
    second_task,
)
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, stack

# ---------------------------------------------------------------------------------------------- columns
# Keys and values as columns.


def test_every_form_of_values_has_columns() -> None:
    assert columns.ROWS.keys() == set(Held)


def reader(writer: TablesWriter) -> TablesReader:
    found = TablesReader()
    (frames, pack_frames), (stacks, pack_stacks), (strings, pack_strings) = writer.tables
    blocks = [(len(list(rows)), pack(list(rows))) if rows else (0, None)
              for rows, pack in ((frames, pack_frames), (stacks, pack_stacks), (strings, pack_strings))]  # fmt: skip
    for at, add in ((2, found.add_strings), (0, found.add_frames), (1, found.add_stacks)):
        count, block = blocks[at]
        if count:
            add(block, count)  # type: ignore[arg-type]
    return found


def unpacked(type_: types.Type, data: bytes, count: int, tables: TablesReader) -> list[Value]:
    column = msgspec.msgpack.decode(data, type=columns.form(type_))
    return columns.unpack(tables, type_, column, count)


def again(type_: types.Type, values: list[Value]) -> list[Value]:
    writer = TablesWriter()
    data = msgspec.msgpack.encode(columns.pack(writer, type_, values))
    return unpacked(type_, data, len(values), reader(writer))


def test_columns_of_members_numbers_and_stacks() -> None:
    pair = types.Record(("n", "name"), (types.INT64, STRING))
    assert columns.pack(TablesWriter(), pair, [(1, "a"), (300, "b")]) == (Numbers("H", b"\1\0,\1"), [b"a", b"b"])
    assert again(pair, [(1, "a"), (300, "b")]) == [(1, "a"), (300, "b")]
    assert again(types.Tuple(()), [(), ()]) == [(), ()]
    assert again(types.Array(types.BOOL, 2), [(True, False)]) == [(True, False)]
    values: list[Value] = [2.5, -0.0, math.inf, math.nan, -math.nan]
    assert repr(again(types.DOUBLE, values)) == repr(values)
    assert again(types.Tuple((types.DOUBLE, types.FLOAT)), [(math.nan, 0.5)]) == [(one_nan(float("nan")), 0.5)]
    kind = types.Stack(True)
    assert columns.pack(TablesWriter(), kind, [stack("f"), stack("g"), stack("f")]) == Numbers("B", b"\0\1\0")
    assert again(kind, [stack("f"), stack("g"), stack("f")]) == [stack("f"), stack("g"), stack("f")]


def test_elements_of_arrays_are_one_column() -> None:
    pairs = types.Array(types.INT64, 2)
    assert columns.pack(TablesWriter(), pairs, [(1, 2), (3, 4)]) == Numbers("B", b"\1\2\3\4")
    assert again(pairs, [(1, 2), (3, 4)]) == [(1, 2), (3, 4)]
    assert again(types.Array(types.INT64, 0), [(), ()]) == [(), ()]


@each_row(
    ("type_", "count", "column"),
    [
        (types.INT64, 1, 5),
        (types.INT64, 1, ["B"]),
        (types.INT64, 1, ["x", b""]),
        (types.INT64, 2, ["H", b"odd"]),
        (types.INT64, 4, ["B", "text"]),
        (types.INT64, 1, ["B", b"12"]),
        (types.INT64, 1, ["O", b"12"]),
        (types.INT64, 1 << 60, ["B", b"12"]),
        (types.DOUBLE, 2, b"12345678"),
        (types.DOUBLE, 1 << 60, b"12345678"),
        (STRING, 1, ["text"]),
        (STRING, 2, [b"text"]),
        (STRING, 1, {"a": b"b"}),
        (types.Tuple((types.INT64,)), 2, [["B", b"1"]]),
        (types.Tuple((types.INT64,)), 1, [["B", b"1"], ["B", b"1"]]),
        (types.Tuple(()), 2, b"1"),
        (types.Tuple(()), 1 << 60, b"1"),
        (types.Array(types.INT64, 1 << 60), 1, ["B", b"1"]),
        (types.Array(types.INT64, 0), 1 << 60, b"1"),
        (types.Stack(True), 1, ["B", b"\1"]),
        (types.Stack(True), 1, ["b", b"\xff"]),
        (types.Avg(), 2, [["B", b"12"], ["B", b"1"]]),
        (types.LHist(0, 3, 1), 1, [["B", b"\1"], ["B", b"\7"], ["B", b"\1"]]),
        (types.LHist(0, 3, 1), 1, [["b", b"\xff"], ["B", b""], ["B", b""]]),
        (types.LHist(0, 3, 1), 1, [["B", b"\1"], ["B", b"\1\1"], ["B", b"\1\1"]]),
        (types.TSeries(), 1, [["B", b"\2"], ["B", b"\1"], ["B", b"\1"], ["B", b"\1"]]),
    ],
)
def test_what_is_no_column_is_refused(type_: types.Type, count: int, column: Any) -> None:
    with pytest.raises((ValueError, LookupError, msgspec.MsgspecError)):  # no ValueError before 0.21
        unpacked(type_, msgspec.msgpack.encode(column), count, TablesReader())


# ---------------------------------------------------------------------------------------------- flat tables
# Flat tables as frames of pandas and Polars.


BIG = (1 << 64) - 1

TABLE = FlatTable("@", (
    FlatColumn("n", ColumnKind.SIGNED, [-1, None, 3]),
    FlatColumn("u", ColumnKind.UNSIGNED, [BIG, 0, 1]),
    FlatColumn("flag", ColumnKind.BOOL, [True, False, True]),
    FlatColumn("text", ColumnKind.TEXT, ["a", "", "c"]),
    FlatColumn("raw", ColumnKind.BYTES, [b"\xff", b"", b"x"]),
    FlatColumn("time", ColumnKind.TIME, [1_700_000_000_000_000_001, 0, 1]),
    FlatColumn("stack", ColumnKind.LINES, [["f", "main"], [], ["g"]]),
))  # fmt: skip


def test_pandas() -> None:
    pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert str(frame["n"].dtype) == "Int64"
    assert str(frame["u"].dtype) == "uint64"
    assert list(frame["u"]) == [BIG, 0, 1]
    assert [frame["n"][0], frame["n"][2]] == [-1, 3]
    assert bool(frame["n"].isna()[1])
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert frame["time"][0].value == 1_700_000_000_000_000_001
    assert list(frame["flag"]) == [True, False, True]
    assert list(frame["stack"][0]) == ["f", "main"]


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = TABLE.to_polars()
    assert frame.schema == {
        "n": polars.Int64, "u": polars.UInt64, "flag": polars.Boolean, "text": polars.String, "raw": polars.Binary,
        "time": polars.Datetime("ns", "UTC"), "stack": polars.List(polars.String),
    }  # fmt: skip
    assert frame["u"].to_list() == [BIG, 0, 1]
    assert frame["n"].to_list() == [-1, None, 3]
    assert frame["stack"].to_list() == [["f", "main"], [], ["g"]]


def test_signed_and_unsigned_of_64_bits_in_one_column() -> None:
    pytest.importorskip("pyarrow")
    mixed = FlatTable("@", (FlatColumn("x", ColumnKind.SIGNED, [BIG, -1]),))
    assert [int(item) for item in mixed.to_arrow().column(0).to_pylist()] == [BIG, -1]
    pytest.importorskip("polars")
    assert mixed.to_polars()["x"].to_list() == [BIG, -1]


def test_a_missing_library_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    before = importlib.import_module

    def missing(name: str, *arguments: Any) -> Any:
        if name == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return before(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(TraceError, match="needs the Python package pyarrow") as caught:
        TABLE.to_arrow()
    assert "pip install 'pyarrow" in caught.value.hints[0]


# ---------------------------------------------------------------------------------------------- stack samples
# .


USTACK, KSTACK = types.Stack(True), types.Stack(False)


def profile(key: types.Type, value: types.Type, entries: dict[Any, Any], name: str = "@") -> Profile:
    (found,) = profiles([map_data(name, key, value, entries)], Printers().portable_text)
    return found


def names(found: Profile) -> list[list[str]]:
    return [[frame_name(frame) for frame in sample.frames] for sample in found.samples]


def test_the_user_stack_is_the_root_wherever_it_stands_in_the_key() -> None:
    user, kernel = stack("leaf", "main"), stack("vfs", "entry", user=False)
    for key, entry in (((USTACK, KSTACK), (user, kernel)), ((KSTACK, USTACK), (kernel, user))):
        found = profile(types.Tuple(key), COUNT, {entry: 3})
        assert names(found) == [["main", "leaf", "entry", "vfs"]]
        assert found.samples[0].kinds == (USER, USER, KERNEL, KERNEL)


def test_other_members_of_the_key_are_labels() -> None:
    key = types.Tuple((STRING, KSTACK, types.Tuple((types.INT32, types.BOOL))))
    found = profile(key, COUNT, {("sh", stack("f", user=False), (-7, True)): 1})
    assert found.samples[0].labels == (
        Label("key1", "sh", None),
        Label("key3.0", "-7", -7),
        Label("key3.1", "true", 1),
    )
    assert found.text_labels == ("key1",)
    record = types.Record(("pid", "where"), (types.UINT32, USTACK))
    assert profile(record, COUNT, {(5, stack("f")): 1}).samples[0].labels == (Label("pid", "5", 5),)


def test_bytes_that_are_no_text_are_escaped_in_labels() -> None:
    found = profile(types.Tuple((STRING, USTACK)), COUNT, {("a\udcff", stack("f")): 1})
    assert found.samples[0].labels[0].text == "a\\xff"


def test_stacks_that_are_missing() -> None:
    def path(*stacks: StackTrace) -> list[tuple[str, int]]:
        return [(frame.function, kind) for frame, kind in paths([types.Stack(item.user) for item in stacks])(stacks)]

    assert path(StackTrace((), True, "Bad address")) == [("[no user stack: Bad address]", USER)]
    assert path(StackTrace((), True), StackTrace((), False)) == [("[no stack]", MARK)]
    assert path(StackTrace((), True), stack("vfs", user=False)) == [("vfs", KERNEL)]
    # One task has none: the other's is there all the same.
    waker = stack("wake", user=False)
    assert path(StackTrace((), False), waker) == [("[no stack]", MARK), ("--", MARK), ("wake", KERNEL)]


@pytest.mark.parametrize(("members", "split"), [
    ((KSTACK, USTACK), None), ((USTACK, KSTACK, STRING), None), ((KSTACK, STRING, KSTACK), 2),
    ((KSTACK, USTACK, STRING, KSTACK, USTACK), 3), ((USTACK, USTACK), 1),
])  # fmt: skip
def test_a_second_stack_of_a_kind_is_of_another_task(members: tuple[types.Type, ...], split: int | None) -> None:
    assert second_task(members) == split


def test_stacks_of_two_tasks_meet_in_the_middle() -> None:
    key = types.Tuple((KSTACK, USTACK, STRING, KSTACK))
    waker = stack("wake_up", "softirq", user=False)
    entry = (stack("schedule", "sys_read", user=False), stack("wait", "main"), "waker", waker)
    found = profile(key, COUNT, {entry: 9})
    assert names(found) == [["main", "wait", "sys_read", "schedule", "--", "wake_up", "softirq"]]
    assert found.samples[0].kinds == (USER, USER, KERNEL, KERNEL, MARK, KERNEL, KERNEL)


def test_what_an_interpreter_runs() -> None:
    entry = StackTrace((Frame("f", file="/srv/app.py", line=3), Frame("main")))
    assert profile(USTACK, COUNT, {entry: 1}).samples[0].kinds == (USER, INTERPRETED)
    mixed = ("/srv/app.py", "<frozen importlib._bootstrap>", "<string>", "/usr/bin/python3.11")
    entry = StackTrace(tuple(Frame("f", module=module) for module in mixed))
    assert profile(USTACK, COUNT, {entry: 1}).samples[0].kinds == (USER, INTERPRETED, INTERPRETED, INTERPRETED)


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (Frame("main", 4, "/bin/x"), "main"),
        (Frame("", 0, "/usr/lib/libc.so.6", address=16), "[libc.so.6]"),
        (Frame("", 0, "[vdso]"), "[vdso]"),
        (Frame("", address=0x1F), "0x1f"),
        (Frame("", build_id="ab12", address=0x1F), "ab12+0x1f"),
    ],
)
def test_names_of_frames(frame: Frame, name: str) -> None:
    assert frame_name(frame) == name


@pytest.mark.parametrize(
    ("map_name", "kind", "value", "measures", "numbers"),
    [
        ("@", COUNT, 3, (Measure("", "count"),), (3,)),
        ("@wait_ns", types.Sum(), -4, (Measure("", "ns"),), (-4,)),
        ("@size_kb", types.Avg(), (10, 4), (Measure("count", "count"), Measure("total", "KB")), (4, 10)),
        ("@x", types.Stats(), (10, 4), (Measure("count", "count"), Measure("total", "")), (4, 10)),
        ("@x_us", types.Max(), 9, (Measure("", "us"),), (9,)),
        ("@on", types.BOOL, True, (Measure("", ""),), (1,)),
    ],
)
def test_numbers_and_their_units(
    map_name: str, kind: types.Type, value: Any, measures: tuple[Measure, ...], numbers: tuple[int, ...]
) -> None:
    found = profile(USTACK, kind, {stack("f"): value}, map_name)
    assert (found.measures, found.samples[0].values) == (measures, numbers)


def test_joining_follows_the_aggregation() -> None:
    for kind, joined in ((COUNT, 7), (types.Min(), 3), (types.Max(), 4), (types.INT64, 7)):
        assert profile(USTACK, kind, {}).join(3, 4) == joined


def test_maps_come_by_name_and_samples_by_labels_and_functions() -> None:
    key = types.Tuple((STRING, USTACK))
    entries = {("b", stack("x")): 1, ("a", stack("z", "main")): 2, ("a", stack("y", "main")): 3}
    found = profiles([map_data("@b", key, COUNT, entries), map_data("@a", key, COUNT, {})], Printers().portable_text)
    assert [one.name for one in found] == ["@a", "@b"]
    assert [sample.values for sample in found[1].samples] == [(3,), (2,), (1,)]
