"""Format ``perfetto``: a trace for ui.perfetto.dev and its trace processor.

Rows with a time are slices or moments (:func:`row_events` says which columns mean what), time series are counters, and
counts by stack are samples of a profiler (:func:`_stack_packets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

import msgspec

from pytrace.base.protobuf import data, double, number
from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import truncated
from pytrace.core.value_tables import Column, key_columns
from pytrace.render.value_kind import Plain
from pytrace.results.row_events import RowEvent, Value, lanes, row_events, shown, unicode_text
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace
from pytrace.results.stack_samples import KERNEL, members_of, paths


def write(snapshot: SnapshotData, file: BinaryIO) -> None:
    """Write rows, time series, and maps of numbers by stack.

    Raises:
        TraceError: rows have no time, or a map of stacks has negative numbers.
    """
    events = [event for table in snapshot.tables for event in row_events(snapshot, table)]
    tracks = Tracks([run.host for run in snapshot.runs], "rows")
    maps = [map_ for _, map_ in sorted(snapshot.maps.items())]
    series = [map_ for map_ in maps if isinstance(map_.value, types.TSeries)]
    stacks = [map_ for map_ in maps if not isinstance(map_.value, types.TSeries)]
    packets = _row_packets(events, tracks)
    packets += [packet for map_ in series for packet in _counters(map_, map_.value, tracks)]
    for place, map_ in enumerate(stacks):
        packets += _stack_packets(map_, place, snapshot.end)
    file.write(clocks(snapshot.start))
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
            one = truncated(total, count) if type_.reduce == "avg" else total
            yield _counter_packet(track, interval * type_.interval, one)


def _key(data: MapData, key: Portable) -> str:
    if data.key is None:
        return ""
    pairs = zip(data.key_columns, members_of(data.key, key), strict=True)
    return f"[{', '.join(str(shown(column.type, item)) for column, item in pairs)}]"


# ---------------------------------------------------------------------------------------------- stack packets


MOST_SAMPLES = 1_000_000
"""Of a map with more, each sample stands for several."""

_CLEARED, _NEEDED = 1, 2
"""``SequenceFlags``: the packet begins, and needs, what is interned on its sequence."""
_MADE_UP = 1 << 22
"""The first process number that Linux never assigns (``PID_MAX_LIMIT``): processes of maps without one."""


class _Sample(msgspec.Struct, frozen=True):
    frames: tuple[Frame, ...]
    """Outermost first."""
    kernel: bool
    pid: int
    tid: int
    comm: str
    weight: int


def _stack_packets(data_: MapData, place: int, time: int) -> Iterator[bytes]:
    """The packets of a map of numbers by stack.

    Args:
        data_: the map.
        place: its number among those of the trace, from 0.
        time: of all samples, nanoseconds since 1970.

    Raises:
        TraceError: it has negative numbers.
    """
    samples = [_sample(data_, key, value, place) for key, value in data_.entries.items()]
    total = sum(sample.weight for sample in samples)
    share = -(-total // MOST_SAMPLES) or 1
    sequence = 2 + place
    interned = _Interned()
    stacks = [interned.stack(sample.frames) for sample in samples]
    title = data_.title if share == 1 else f"{data_.title} (a sample stands for {share})"
    timebase = data(1, number(1, 1) + data(10, title))  # perf_sample_defaults.timebase: period, name
    yield packet(
        number(10, sequence), number(8, time), number(13, _CLEARED),
        data(59, data(12, timebase)), data(12, interned.content()),
    )  # fmt: skip
    yield from _tasks(samples, sequence, title)
    for sample, stack in zip(samples, stacks, strict=True):
        mode = 1 if sample.kernel else 2  # Profiling.CpuMode
        content = number(2, sample.pid) + number(3, sample.tid) + number(5, mode) + number(4, stack)
        one = packet(number(10, sequence), number(8, time), number(13, _NEEDED), data(66, content))
        yield one * (-(-sample.weight // share))


def _tasks(samples: list[_Sample], sequence: int, title: str) -> Iterator[bytes]:
    """Names of processes and threads: ``process_tree``."""
    names = {(sample.pid, sample.tid): sample.comm for sample in samples}
    processes = {pid: comm for (pid, _), comm in names.items()}
    content = b"".join(data(1, number(1, pid) + data(3, comm or title)) for pid, comm in processes.items())
    for (pid, tid), comm in names.items():
        content += data(2, number(1, tid) + (data(2, comm) if comm else b"") + number(3, pid))
    yield packet(number(10, sequence), data(2, content))


# ---------------------------------------------------------------------------------------------- samples


def _sample(data_: MapData, key: Plain, value: Plain, place: int) -> _Sample:
    assert data_.key is not None
    columns = key_columns(data_.key)
    named: dict[str, Plain] = {}
    labels: list[Frame] = []
    members = list(members_of(data_.key, key))
    for column, item in zip(columns, members, strict=True):
        if isinstance(item, StackTrace):
            continue
        if _is_task(column, data_.key):
            named[column.name] = item
        else:
            labels.append(Frame(str(shown(column.type, item))))
    pid: int = named["pid"] if "pid" in named else named.get("tid", _MADE_UP + place)
    tid: int = named.get("tid", pid)
    path = paths([column.type for column in columns])(members)
    return _Sample(
        (*labels, *(frame for frame, _ in path)), path[-1][1] == KERNEL, pid, tid,
        unicode_text(named.get("comm", "")), _weight(data_, value),
    )  # fmt: skip


def _is_task(column: Column, key: types.Type) -> bool:
    if not isinstance(key, types.Record):
        return False
    wanted = types.String if column.name == "comm" else types.Int
    return column.name in ("pid", "tid", "comm") and isinstance(column.type, wanted)


def _weight(data_: MapData, value: Plain) -> int:
    """The number of samples of a value: of averages and stats their counts."""
    weight = int(value[1] if isinstance(value, tuple) else value)
    if weight < 0:
        raise TraceError(f"{data_.name} has negative numbers, which a trace cannot show",
                         hints=("differences can be shown as text or json",))  # fmt: skip
    return weight


# ---------------------------------------------------------------------------------------------- interning


class _Interned:
    """Stacks, frames, binaries and texts, to which samples refer by number: ``InternedData`` of one sequence."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, object], int] = {}
        self._counts: dict[int, int] = {}
        self._fields: list[bytes] = []

    def content(self) -> bytes:
        """The message."""
        return b"".join(self._fields)

    def stack(self, frames: tuple[Frame, ...]) -> int:
        """``callstacks``; frames from the outermost."""
        return self._number(7, frames, lambda: b"".join(number(2, self._frame(frame)) for frame in frames))

    def _frame(self, frame: Frame) -> int:
        known = self._numbers.get((6, frame))
        if known is not None:
            return known
        name = frame.function or (f"0x{frame.address:x}" if frame.address else "[unknown]")
        return self._number(6, frame, lambda: (
            number(2, self._text(5, unicode_text(name).encode()))
            + number(3, self._mapping(frame.module, frame.build_id))
            + number(4, frame.address)
            + (number(5, self._text(18, unicode_text(frame.file).encode())) if frame.file else b"")
            + (number(6, frame.line) if frame.line else b"")
        ))  # fmt: skip

    def _mapping(self, module: str, build_id: str) -> int:
        parts = [part for part in unicode_text(module).split("/") if part]
        return self._number(19, (module, build_id), lambda: (
            number(2, self._text(16, _build_id(build_id)))
            + b"".join(number(7, self._text(17, part.encode())) for part in parts)
        ))  # fmt: skip

    def _text(self, field: int, text: bytes) -> int:
        return self._number(field, text, lambda: data(2, text))

    def _number(self, field: int, key: object, content: Callable[[], bytes]) -> int:
        known = self._numbers.get((field, key))
        if known is None:
            inner = content()
            known = self._counts[field] = self._counts.get(field, 0) + 1
            self._numbers[field, key] = known
            self._fields.append(data(field, number(1, known) + inner))
        return known


def _build_id(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return unicode_text(text).encode()


# ---------------------------------------------------------------------------------------------- track packets


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


def _row_packets(events: Iterable[RowEvent], tracks: Tracks) -> list[bytes]:
    """Slices and moments, those of each track from the first to the last."""
    by_track: dict[int, list[RowEvent]] = {}
    for event in events:
        by_track.setdefault(tracks.lane(event, 0), []).append(event)
    packets: list[bytes] = []
    for group in by_track.values():
        for lane, slices in enumerate(lanes([event for event in group if event.duration is not None])):
            packets += _slices(slices, tracks, lane)
        for event in group:
            if event.duration is None:
                packets.append(_track_event(event.start, _INSTANT, tracks.lane(event, 0), _about(event)))
    return packets


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
        ends.append((event.end, track))
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


def _counter_packet(track: int, time: int, value: int) -> bytes:
    """A value of a counter; what ``int64`` cannot hold is rounded."""
    content = number(30, value) if -(1 << 63) <= value < 1 << 63 else double(44, float(value))
    return _track_event(time, _COUNTER, track, content)
