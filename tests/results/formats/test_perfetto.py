"""Traces, read back with the messages that the package of Perfetto brings."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import perfetto
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from tests.support.snapshots import COUNT, SECOND, STRING, TWO_TASKS, map_data, snapshot, stack, table, two_tasks
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


# ---------------------------------------------------------------------------------------------- test track packets


def test_slices_that_overlap_go_to_tracks_of_their_own() -> None:
    rows = table(["start", "pid", "dur_ns"], [types.UINT64, types.INT32, types.INT64], [
        (BOOT, 1, 10), (BOOT + 5, 1, 10), (BOOT + 6, 1, 2), (BOOT + 20, 1, 0), (BOOT + 20, 1, 5),
    ])  # fmt: skip
    found = slices(trace(snapshot(of=run(), tables=(rows,))))
    first = found[0][0]
    assert [(track == first, *rest) for track, *rest in found] == [
        (True, 0, 0, "dur", 10), (True, 0, 20, "dur", 5), (True, 1, 6, "dur", 2), (True, 1, 20, "dur", 0),
        (False, 0, 5, "dur", 10),
    ]  # fmt: skip


def test_processes_of_several_machines_stay_apart() -> None:
    rows = table(COLUMNS, KINDS, [(BOOT + 5_000, 10, 10, "cat", 3, "/a")])
    rows.rows["run-2"] = [(BOOT + 6_000, 10, 10, "cat", 3, "/b")]
    read = trace(SnapshotData((run(), run("run-2", "there")), {}, (rows,)))
    tracks = descriptors(read)
    assert not any(track.HasField("process") or track.HasField("thread") for track in tracks.values())
    places = []
    for track, *_ in slices(read):
        names = []
        while track:
            names.append(tracks[track].name)
            track = tracks[track].parent_uuid
        places.append(names)
    assert places == [["thread 10 cat", "process 10 cat", "here"], ["thread 10 cat", "process 10 cat", "there"]]


# ---------------------------------------------------------------------------------------------- test stack packets


def samples(read: Any) -> dict[tuple[Any, ...], int]:
    """How often each stack was seen: process, thread, and functions from the outermost."""
    counts: dict[tuple[Any, ...], int] = {}
    interned: dict[int, Any] = {}
    for packet in read.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("interned_data"):
            interned[sequence] = packet.interned_data
        if packet.HasField("perf_sample"):
            known = interned[sequence]
            names = {item.iid: item.str.decode() for item in known.function_names}
            frames = {item.iid: names[item.function_name_id] for item in known.frames}
            stacks = {item.iid: tuple(frames[number] for number in item.frame_ids) for item in known.callstacks}
            sample = packet.perf_sample
            key = (sample.pid, sample.tid, *stacks[sample.callstack_iid])
            counts[key] = counts.get(key, 0) + 1
    return counts


def test_counts_by_stack_are_samples() -> None:
    plain = map_data("@", types.Stack(True), COUNT, {stack("f", "main"): 2, stack("g", "main"): 3})
    key = types.Record(("pid", "comm", "cpu", "k", "u"), (
        types.UINT32, STRING, types.INT32, types.Stack(False), types.Stack(True),
    ))  # fmt: skip
    both = map_data("@both", key, COUNT, {(7, "cat", 1, stack("vfs_read", user=False), stack("read", "main")): 4})
    read = trace(snapshot(plain, both, of=run()))
    assert samples(read) == {
        (1 << 22, 1 << 22, "main", "f"): 2, (1 << 22, 1 << 22, "main", "g"): 3,
        (7, 7, "1", "main", "read", "vfs_read"): 4,
    }  # fmt: skip
    processes = {
        item.pid: item.cmdline[0] for packet in read.packet for item in packet.process_tree.processes
    }  # fmt: skip
    assert processes == {1 << 22: "@", 7: "cat"}
    threads = {item.tid: (item.name, item.tgid) for packet in read.packet for item in packet.process_tree.threads}
    assert threads[7] == ("cat", 7)


def test_frames_have_their_binaries_and_lines() -> None:
    frames = (Frame("f", 4, "/usr/bin/x", "00ff", "x.c", 7, False, 0x10), Frame("", address=0x20))
    read = trace(snapshot(map_data("@", types.Stack(True), COUNT, {StackTrace(frames): 1}), of=run()))
    known = next(packet.interned_data for packet in read.packet if packet.HasField("interned_data"))
    paths = {item.iid: item.str for item in known.mapping_paths}
    builds = {item.iid: item.str for item in known.build_ids}
    mappings = {
        item.iid: (builds[item.build_id], [paths[part] for part in item.path_string_ids]) for item in known.mappings
    }
    names = {item.iid: item.str for item in known.function_names}
    sources = {item.iid: item.str for item in known.source_paths}
    assert [(names[item.function_name_id], item.rel_pc, mappings[item.mapping_id]) for item in known.frames] == [
        (b"0x20", 0x20, (b"", [])), (b"f", 0x10, (b"\0\xff", [b"usr", b"bin", b"x"])),
    ]  # fmt: skip
    assert (sources[known.frames[1].source_path_iid], known.frames[1].line_number) == (b"x.c", 7)


def test_many_counts_are_scaled_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "MOST_SAMPLES", 1000)
    read = trace(snapshot(map_data("@", types.Stack(True), COUNT, {stack("f"): 3000, stack("g"): 1}), of=run()))
    counts = samples(read)
    assert sorted(counts.values()) == [1, 750]
    titles = [packet.trace_packet_defaults.perf_sample_defaults.timebase.name for packet in read.packet]
    assert "@ (a sample stands for 4)" in titles


def test_negative_numbers_are_an_error() -> None:
    with pytest.raises(TraceError, match="@ has negative numbers"):
        trace(snapshot(map_data("@", types.Stack(True), types.INT64, {stack("f"): -3})))


def test_stacks_of_two_tasks() -> None:
    assert samples(trace(snapshot(two_tasks(), of=run()))) == {(1 << 22, 1 << 22, *TWO_TASKS.split(";")): 4}
