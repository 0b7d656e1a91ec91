"""Packets of a Perfetto trace for tracks: processes, threads, slices, moments and counters.

Numbers of fields are those of ``protos/perfetto/trace`` in the source of Perfetto, of which the names are in comments.
All times are wall times: a clock snapshot at the start makes the clock of the trace and ``CLOCK_REALTIME`` equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytrace.base.protobuf import data, double, number
from pytrace.results.timeline.row_events import RowEvent, Value

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
"""``TrackEvent.Type``."""
_REALTIME, _BOOTTIME = 1, 6
"""``BuiltinClock``."""
_TRACKS = 1
"""The packet sequence of all tracks."""


def packet(*fields: bytes) -> bytes:
    """A packet of the trace: ``Trace.packet``."""
    return data(1, b"".join(fields))


def clocks(start: int) -> bytes:
    """The packet that says that trace time is wall time."""
    equal = [data(1, number(1, clock) + number(2, start)) for clock in (_REALTIME, _BOOTTIME)]
    return packet(number(10, _TRACKS), number(8, start), data(6, b"".join(equal)))  # clock_snapshot


class Tracks:
    """Makes tracks as they are asked for; their descriptors are in :attr:`packets`."""

    def __init__(self, hosts: Sequence[str], table: str) -> None:
        self.packets: list[bytes] = []
        self._hosts = hosts
        self._table = table
        self._known: dict[tuple[object, ...], int] = {}
        self._places: dict[tuple[int, int | None, int | None], int] = {}

    def lane(self, event: RowEvent, lane: int) -> int:
        """The track of an event: of its thread, else its process, else of the table; lanes from 1 are beside it."""
        place = (event.run, event.pid, event.tid)
        track = self._places.get(place)
        if track is None:
            track = self._places[place] = self._place(event)
        return track if lane == 0 else self._track(("lane", track, lane), data(2, f"{self._table} {lane + 1}"), track)

    def counter(self, name: str, unit: str) -> int:
        """The track of a counter."""
        kind = data(8, data(6, unit) if unit else b"")  # counter: CounterDescriptor.unit_name
        return self._track(("counter", name), data(2, name) + kind, None)

    def _place(self, event: RowEvent) -> int:
        several = len(self._hosts) > 1
        host = self._track(("run", event.run), data(2, self._hosts[event.run]), None) if several else None
        pid = event.pid if event.pid is not None else event.tid
        if pid is None:
            return self._track(("table", event.run), data(2, self._table), host)
        comm = f" {event.comm}" if event.comm else ""
        # Processes of several machines can have one number: there are no descriptors of processes then.
        process = self._track(
            ("process", event.run, pid),
            data(2, f"process {pid}{comm}") if several else data(3, _process(pid, event.comm)), host,
        )  # fmt: skip
        if event.tid is None:
            return process
        thread = number(1, pid) + number(2, event.tid) + (data(5, event.comm) if event.comm else b"")
        return self._track(
            ("thread", event.run, pid, event.tid),
            data(2, f"thread {event.tid}{comm}") if several else data(4, thread), process,
        )  # fmt: skip

    def _track(self, key: tuple[object, ...], fields: bytes, parent: int | None) -> int:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self._known) + 1
            above = b"" if parent is None else number(5, parent)
            self.packets.append(packet(number(10, _TRACKS), data(60, number(1, known) + above + fields)))
        return known


def _process(pid: int, name: str) -> bytes:
    return number(1, pid) + (data(6, name) if name else b"")


# ---------------------------------------------------------------------------------------------- events


def row_packets(events: Iterable[RowEvent], tracks: Tracks) -> list[bytes]:
    """Slices and moments, those of each track from the first to the last."""
    by_track: dict[int, list[RowEvent]] = {}
    for event in events:
        by_track.setdefault(tracks.lane(event, 0), []).append(event)
    packets: list[bytes] = []
    for group in by_track.values():
        for lane, slices in enumerate(_lanes([event for event in group if event.duration is not None])):
            packets += _slices(slices, tracks, lane)
        for event in group:
            if event.duration is None:
                packets.append(_track_event(event.start, _INSTANT, tracks.lane(event, 0), _about(event)))
    return packets


def _lanes(events: list[RowEvent]) -> list[list[RowEvent]]:
    """Slices of one track must nest: those that overlap otherwise go to further lanes."""
    lanes: list[list[RowEvent]] = []
    open_ends: list[list[int]] = []
    for event in sorted(events, key=lambda event: (event.start, -(event.duration or 0))):
        for ends in open_ends:
            while ends and ends[-1] <= event.start:
                ends.pop()
        end = _end(event)
        lane = next((index for index, ends in enumerate(open_ends) if not ends or end <= ends[-1]), len(lanes))
        if lane == len(lanes):
            lanes.append([])
            open_ends.append([])
        lanes[lane].append(event)
        open_ends[lane].append(end)
    return lanes


def _end(event: RowEvent) -> int:
    return event.start + (event.duration or 0)


def _slices(events: list[RowEvent], tracks: Tracks, lane: int) -> list[bytes]:
    """Begin and end of each slice, in an order in which they nest also where times are equal."""
    packets: list[bytes] = []
    ends: list[tuple[int, int]] = []

    def close(until: int | None) -> None:
        while ends and (until is None or ends[-1][0] <= until):
            time, track = ends.pop()
            packets.append(_track_event(time, _END, track))

    for event in events:
        close(event.start)
        track = tracks.lane(event, lane)
        packets.append(_track_event(event.start, _BEGIN, track, _about(event)))
        ends.append((_end(event), track))
    close(None)
    return packets


def _track_event(time: int, kind: int, track: int, fields: bytes = b"") -> bytes:
    event = number(9, kind) + number(11, track) + fields
    return packet(number(10, _TRACKS), number(8, time), data(11, event))


def _about(event: RowEvent) -> bytes:
    return data(23, event.name) + b"".join(_annotation(name, value) for name, value in event.arguments)


def _annotation(name: str, value: Value) -> bytes:
    """``DebugAnnotation``."""
    if isinstance(value, bool):
        content = number(2, value)
    elif isinstance(value, int):
        content = number(3, value) if value >= 1 << 63 else number(4, value)
    elif isinstance(value, float):
        content = double(5, value)
    else:
        content = data(6, value)
    return data(4, data(10, name) + content)


def counter_packet(track: int, time: int, value: int) -> bytes:
    """A value of a counter; what ``int64`` cannot hold is rounded."""
    content = number(30, value) if -(1 << 63) <= value < 1 << 63 else double(44, float(value))
    return _track_event(time, _COUNTER, track, content)
