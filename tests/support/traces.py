"""Perfetto traces, read with the messages that the package of Perfetto brings."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from pytrace.core import types
from pytrace.results.formats import perfetto
from pytrace.results.snapshot import Run, SnapshotData
from tests.support.snapshots import SECOND, STRING

WALL = 1_700_000_000 * SECOND
BOOT = 5_000 * SECOND


def run(identity: str = "run-1", host: str = "here") -> Run:
    """A run that began when the machine had been up for BOOT."""
    return Run(identity, host, "6.1.0", "x86_64", "x.bt", "ab" * 32, (), WALL, WALL + 10 * SECOND, BOOT, BOOT, "0.1")


def trace(found: SnapshotData) -> Any:
    """The trace that is written of a snapshot."""
    file = BytesIO()
    perfetto.write(found, file)
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

    read = messages.Trace()
    read.ParseFromString(file.getvalue())
    size = read.ByteSize()
    read.DiscardUnknownFields()
    assert read.ByteSize() == size, "there are fields that Perfetto does not know"
    return read


def descriptors(read: Any) -> dict[int, Any]:
    """Tracks by their numbers."""
    found = [packet.track_descriptor for packet in read.packet if packet.HasField("track_descriptor")]
    return {track.uuid: track for track in found}


def slices(read: Any) -> list[tuple[int, int, int, str, int]]:
    """Track, depth, start, name and duration: what the rules of track events make of begins and ends."""
    stacks: dict[int, list[tuple[int, str]]] = {}
    found = []
    events = [packet for packet in read.packet if packet.HasField("track_event")]
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        event = packet.track_event
        opened = stacks.setdefault(event.track_uuid, [])
        if event.type == event.TYPE_SLICE_BEGIN:
            opened.append((packet.timestamp, event.name))
        elif event.type == event.TYPE_SLICE_END:
            start, name = opened.pop()
            found.append((event.track_uuid, len(opened), start - WALL, name, packet.timestamp - start))
    assert not any(stacks.values())
    return sorted(found)


COLUMNS = ["ts", "pid", "tid", "comm", "lat_us", "path"]
KINDS = [types.UINT64, types.UINT32, types.UINT32, STRING, types.UINT64, STRING]
