"""Profiles, read back by the Firefox Profiler's own command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from tests.results.formats.test_speedscope import KEY, USTACK, WHOLE, written
from tests.support.readers import firefox
from tests.support.snapshots import COUNT, TWO_TASKS, map_data, snapshot, stack, table, two_tasks
from tests.support.traces import BOOT, COLUMNS, KINDS, WALL, run


def threads(tmp_path: Path, snapshot_: SnapshotData) -> list[dict[str, Any]]:
    path = tmp_path / "x.firefox.json"
    path.write_bytes(written(snapshot_, "firefox"))
    return firefox(path)


def document(snapshot_: SnapshotData) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written(snapshot_, "firefox"))
    return found


@pytest.mark.needs("readers")
def test_the_profiler_reads_a_thread_for_each_key_and_number(tmp_path: Path) -> None:
    found = {thread["name"]: (thread["weight"], thread["stacks"]) for thread in threads(tmp_path, WHOLE)}
    assert found == {
        "@ ls": ("samples", {"main;é\\xff": 9}),
        "@ sh": ("samples", {"main;leaf;entry;vfs": 3, "main;leaf": 1}),
        "@lat_us (count)": ("samples", {"main;leaf": 4}),
        "@lat_us (total)": ("tracing-ms", {"main;leaf": 0.04}),
        "@size_kb": ("bytes", {"main": 3072}),
    }


@pytest.mark.needs("readers")
def test_the_profiler_reads_rows_as_markers_of_their_threads(tmp_path: Path) -> None:
    rows = table(COLUMNS, KINDS, [
        (BOOT + 5_000, 10, 10, "cat", 3, "/a"),
        (BOOT + 9_000, 10, 10, "cat", 9, "/outer"),
        (WALL + 4_000, 10, 12, "dog", 4, "</script>\udcff"),
    ])  # fmt: skip
    moments = table(["time_ms", "name"], [types.UINT64, types.String(16)], [(BOOT // 10**6, "x")])
    found = threads(tmp_path, snapshot(of=run(), tables=(rows, moments)))
    assert [(thread["name"], thread["pid"], thread["tid"], len(thread["markers"])) for thread in found] == [
        ("cat", "10", 10, 2), ("dog", "10", 12, 1), ("rows", "0", "rows 1", 1),
    ]  # fmt: skip
    seen = {marker["name"]: marker for thread in found for marker in thread["markers"]}
    assert seen["/outer"]["duration"] == pytest.approx(0.009)
    assert seen["/outer"]["start"] == 0
    assert seen["/a"]["start"] == pytest.approx(0.002)
    assert seen["</script>\\xff"]["duration"] == pytest.approx(0.004)
    assert not seen["x"].get("duration")


def test_frames_have_source_line_module_and_category() -> None:
    inlined = Frame("leaf", 4, "/bin/x", file="x.c", line=7, inlined=True)
    user = StackTrace((inlined, Frame("main", 4, "/bin/x", file="x.c", line=9)), True)
    kernel = stack("vfs", user=False)
    found = document(snapshot(map_data("@", types.Tuple((USTACK, types.Stack(False))), COUNT, {(user, kernel): 2})))
    shared = found["shared"]
    strings = shared["stringArray"]
    names = [strings[number] for number in shared["funcTable"]["name"]]
    frames = shared["frameTable"]
    categories = [category["name"] for category in found["meta"]["categories"]]
    assert [
        (names[function], frames["line"][at], frames["inlineDepth"][at], categories[frames["category"][at]])
        for at, function in enumerate(frames["func"])
    ] == [("main", 9, 0, "User"), ("leaf", 7, 1, "User"), ("vfs", None, 0, "Kernel")]
    assert strings[shared["resourceTable"]["name"][0]] == "/bin/x"
    assert strings[shared["sources"]["filename"][0]] == "x.c"


def test_all_columns_of_a_table_are_equally_long() -> None:
    for name, columns in document(WHOLE)["shared"].items():
        if name != "stringArray":
            lengths = {column: len(values) for column, values in columns.items() if column != "length"}
            assert set(lengths.values()) == {columns["length"]}, name


def test_changes_keep_their_sign_and_losses_are_told() -> None:
    whole = snapshot(map_data("@", USTACK, COUNT, {stack("main"): -4}))
    whole.losses = {"lost events": {"k:f": 3}}
    found = document(whole)
    assert found["threads"][0]["samples"]["weight"] == [-4]
    assert found["meta"]["extra"] == [
        {"label": "Losses", "entries": [{"label": "lost events (k:f)", "format": "integer", "value": 3}]}
    ]


def test_an_empty_map_is_an_empty_thread_and_rows_need_a_time() -> None:
    (thread,) = document(snapshot(map_data("@x", KEY, COUNT, {})))["threads"]
    assert (thread["name"], thread["samples"]["length"]) == ("@x", 0)
    with pytest.raises(TraceError, match="columns pid, lat_us have no time"):
        document(snapshot(tables=(table(["pid", "lat_us"], [types.INT32, types.INT64], []),)))


@pytest.mark.needs("readers")
def test_stacks_of_two_tasks(tmp_path: Path) -> None:
    (thread,) = threads(tmp_path, snapshot(two_tasks()))
    assert thread["stacks"] == {TWO_TASKS: 4}
    categories = document(snapshot(two_tasks()))["shared"]["frameTable"]["category"]
    assert categories == [1, 2, 0, 2, 2]
