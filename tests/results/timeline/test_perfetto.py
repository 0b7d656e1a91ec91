"""Traces, read back with the messages that the package of Perfetto brings."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import SECOND, STRING, map_data, snapshot, table
from tests.support.traces import BOOT, COLUMNS, KINDS, WALL, descriptors, run, slices, trace

pytest.importorskip("perfetto")

def test_rows_with_a_duration_are_slices_of_their_thread() -> None:
    rows = table(COLUMNS, KINDS, [
        (BOOT + 5_000, 10, 11, "cat", 3, "/a"),
        (BOOT + 9_000, 10, 11, "cat", 9, "/outer"),
        (WALL + 4_000, 10, 12, "dog", 4, "/\udcff"),
    ])  # fmt: skip
    read = trace(snapshot(of=run(), tables=(rows,)))
    tracks = descriptors(read)
    found = slices(read)
    assert [(tracks[track].thread.tid, *rest) for track, *rest in found] == [
        (11, 0, 0, "/outer", 9_000), (11, 1, 2_000, "/a", 3_000), (12, 0, 0, "/\\xff", 4_000),
    ]  # fmt: skip
    thread = tracks[found[0][0]]
    assert (thread.thread.pid, thread.thread.thread_name) == (10, "cat")
    assert (tracks[thread.parent_uuid].process.pid, tracks[thread.parent_uuid].process.process_name) == (10, "cat")
    begin = next(item.track_event for item in read.packet if item.track_event.name == "/a")
    assert {item.name: item.int_value or item.string_value for item in begin.debug_annotations} == {
        "lat_us": 3, "path": "/a",
    }  # fmt: skip


def test_rows_without_a_duration_are_moments_and_without_a_time_an_error() -> None:
    rows = table(["time_ms", "name"], [types.UINT64, STRING], [(BOOT // 10**6, "x")])
    packet = next(item for item in trace(snapshot(of=run(), tables=(rows,))).packet if item.HasField("track_event"))
    event = packet.track_event
    assert (event.type, event.name, packet.timestamp) == (event.TYPE_INSTANT, "x", WALL)
    with pytest.raises(TraceError, match="columns pid, lat_us have no time"):
        trace(snapshot(tables=(table(["pid", "lat_us"], [types.INT32, types.INT64], []),)))


def test_time_series_are_counters() -> None:
    data = map_data("@free_kb", types.Tuple((STRING, types.INT32)), types.TSeries(SECOND, 3, "avg"), {
        ("a", 1): {WALL // SECOND: (9, 2), WALL // SECOND + 2: (-3, 2)}, ("b", 1): {WALL // SECOND: (0, 1)},
    })  # fmt: skip
    read = trace(snapshot(data, of=run()))
    tracks = descriptors(read)
    values = [
        (tracks[item.track_event.track_uuid].name, item.timestamp - WALL, item.track_event.counter_value)
        for item in read.packet
        if item.HasField("track_event")
    ]
    assert values == [("@free_kb[a, 1]", 0, 4), ("@free_kb[a, 1]", 2 * SECOND, -1), ("@free_kb[b, 1]", 0, 0)]
    assert {track.counter.unit_name for track in tracks.values()} == {"KB"}


def test_an_empty_snapshot_is_a_trace() -> None:
    assert len(trace(SnapshotData(())).packet) == 1
