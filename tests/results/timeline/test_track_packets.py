"""Tracks of rows, read back with Perfetto's messages."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import snapshot, table
from tests.support.traces import BOOT, COLUMNS, KINDS, descriptors, run, slices, trace

pytest.importorskip("perfetto")


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
