"""Format ``perfetto``: a trace for ui.perfetto.dev and its trace processor.

Rows with a time are slices or moments (:mod:`row_events` says which columns mean what), time series are counters, and
counts by stack are samples of a profiler (:mod:`stack_packets`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pytrace.core import types
from pytrace.core.types.tables import key_columns
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.stack_samples import members_of
from pytrace.results.timeline import row_events, track_packets
from pytrace.results.timeline.row_events import shown
from pytrace.results.timeline.stack_packets import stack_packets
from pytrace.results.timeline.track_packets import Tracks
from pytrace.results.values import Portable


def write(snapshot: SnapshotData, file: BinaryIO) -> None:
    """Write rows, time series, and maps of numbers by stack.

    Raises:
        TraceError: rows have no time, or a map of stacks has negative numbers.
    """
    events = [event for table in snapshot.tables for event in row_events.events(snapshot, table)]
    tracks = Tracks([run.host for run in snapshot.runs], "rows")
    maps = [data for _, data in sorted(snapshot.maps.items())]
    series = [data for data in maps if isinstance(data.value, types.TSeries)]
    stacks = [data for data in maps if not isinstance(data.value, types.TSeries)]
    packets = track_packets.row_packets(events, tracks)
    packets += [packet for data in series for packet in _counters(data, data.value, tracks)]
    for place, data in enumerate(stacks):
        packets += stack_packets(data, place, snapshot.end)
    file.write(track_packets.clocks(snapshot.start))
    file.writelines(tracks.packets)
    file.writelines(packets)


def _counters(data: MapData, type_: types.Type, tracks: Tracks) -> Iterator[bytes]:
    """A counter for each key; its value is set at the start of each interval with a sample."""
    assert isinstance(type_, types.TSeries)
    for key, value in sorted(data.entries.items(), key=lambda entry: repr(entry[0])):
        track = tracks.counter(f"{data.title}{_key(data, key)}", data.unit)
        assert isinstance(value, dict)
        for interval, meta in sorted(value.items()):
            assert isinstance(meta, tuple)
            total, count = meta
            one = _average(total, count) if type_.reduce == "avg" else total
            yield track_packets.counter_packet(track, interval * type_.interval, one)


def _key(data: MapData, key: Portable) -> str:
    if data.key is None:
        return ""
    pairs = zip(key_columns(data.key), members_of(data.key, key), strict=True)
    return f"[{', '.join(str(shown(column.type, item)) for column, item in pairs)}]"


def _average(total: int, count: int) -> int:
    """Rounded towards zero, as C divides and as it prints."""
    if not count:
        return 0
    return total // count if total >= 0 else -(-total // count)
