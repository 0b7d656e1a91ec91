"""Format ``firefox``: the processed profile format of the Firefox Profiler (https://profiler.firefox.com), as JSON.

Maps of numbers by stack are threads with weighted samples; rows with a time are markers, in a thread for each thread
of theirs. The form is that of ``src/types/profile.ts`` and ``docs-developer/CHANGELOG-formats.md`` of the profiler's
sources, at version 61: newer ones are read by every profiler that reads this one, older ones share no tables between
threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from pytrace.core.value_tables import TableSchema
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.row_events import RowEvent, row_events, unicode_text
from pytrace.results.snapshot import Frame, SnapshotData
from pytrace.results.stack_samples import (
    INTERPRETED,
    KERNEL,
    MARK,
    USER,
    Profile,
    Sample,
    by_labels,
    frame_name,
    profiles,
)

VERSION = 61
"""``preprocessedProfileVersion``."""
_GECKO_VERSION = 33
"""``version``: that of Firefox's own form, of which nothing is here; the profiler asks for one."""

_CATEGORIES = (("Other", "grey"), ("User", "yellow"), ("Kernel", "orange"), ("Interpreter", "green"))
"""Name and color. The first grey one is the default."""
_OTHER, _USER, _KERNEL, _INTERPRETER = range(len(_CATEGORIES))
_CATEGORY = {USER: _USER, INTERPRETED: _INTERPRETER, KERNEL: _KERNEL, MARK: _OTHER}
"""Categories by kind of frame."""

_WEIGHTS = {
    "ns": ("tracing-ms", 1e-6), "us": ("tracing-ms", 1e-3), "ms": ("tracing-ms", 1), "s": ("tracing-ms", 1e3),
    "bytes": ("bytes", 1), "KB": ("bytes", 1 << 10), "MB": ("bytes", 1 << 20),
}  # fmt: skip
"""The profiler's kind of weight for a unit, and how many of its units one of ours is; all others are samples."""

_LIBRARY = 1
"""``ResourceType.Library``."""
_INSTANT, _INTERVAL = 0, 1
"""Phases of markers."""

Cell = int | str | None


class _Table(msgspec.Struct):
    """A table of the format: lists of equal length, and the number of each row that is known."""

    columns: dict[str, list[Cell]]
    numbers: dict[tuple[Cell, ...], int] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, *names: str) -> _Table:
        return cls({name: [] for name in names})

    def number(self, *row: Cell) -> int:
        """The number of a row, which is appended when it is new."""
        known = self.numbers.get(row)
        if known is None:
            known = self.numbers[row] = len(self.numbers)
            for column, value in zip(self.columns.values(), row, strict=True):
                column.append(value)
        return known

    def written(self, **constant: Cell) -> dict[str, object]:
        """The table with further columns, of one value each."""
        rows = len(self.numbers)
        return {**self.columns, **{name: [value] * rows for name, value in constant.items()}, "length": rows}


class _Samples(msgspec.Struct, rename="camel"):
    """Stacks by number, with weights."""

    stack: list[int] = []
    time: list[int] = []
    weight: list[float] = []
    weight_type: str = "samples"
    length: int = 0


class _Markers(msgspec.Struct, rename="camel"):
    """Rows of a thread."""

    data: list[dict[str, int | float | str]] = []
    name: list[int] = []
    start_time: list[float] = []
    end_time: list[float | None] = []
    phase: list[int] = []
    category: list[int] = []
    length: int = 0


class _Thread(msgspec.Struct, rename="camel"):
    """A thread of the profile: a map, or a thread that rows name."""

    name: str
    process_name: str
    pid: str
    tid: int | str
    is_main_thread: bool = False
    process_type: str = "default"
    process_startup_time: int = 0
    process_shutdown_time: None = None
    register_time: int = 0
    unregister_time: None = None
    paused_ranges: list[int] = []
    samples: _Samples = msgspec.field(default_factory=_Samples)
    markers: _Markers = msgspec.field(default_factory=_Markers)


class _Shared(msgspec.Struct):
    """What all threads share."""

    strings: dict[str, int] = msgspec.field(default_factory=dict)
    stacks: _Table = msgspec.field(default_factory=lambda: _Table.of("prefix", "frame"))
    frames: _Table = msgspec.field(default_factory=lambda: _Table.of("func", "line", "category", "inlineDepth"))
    functions: _Table = msgspec.field(default_factory=lambda: _Table.of("name", "resource", "source"))
    resources: _Table = msgspec.field(default_factory=lambda: _Table.of("name"))
    sources: _Table = msgspec.field(default_factory=lambda: _Table.of("filename"))

    def string(self, text: str) -> int:
        return self.strings.setdefault(unicode_text(text), len(self.strings))

    def stack(self, roots: Iterable[str], sample: Sample) -> int:
        """The number of a stack: names at its root, and the frames of a sample."""
        number: int | None = None
        for text in roots:
            number = self.stacks.number(number, self._frame(Frame(text), _OTHER, 0))
        depth = 0
        for frame, kind in zip(sample.frames, sample.kinds, strict=True):
            depth = depth + 1 if frame.inlined else 0
            number = self.stacks.number(number, self._frame(frame, _CATEGORY[kind], depth))
        assert number is not None
        return number

    def _frame(self, frame: Frame, category: int, depth: int) -> int:
        resource = self.resources.number(self.string(frame.module)) if frame.module else -1
        source = self.sources.number(self.string(frame.file)) if frame.file else None
        function = self.functions.number(self.string(frame_name(frame)), resource, source)
        return self.frames.number(function, frame.line or None, category, depth)

    def written(self) -> dict[str, object]:
        return {
            "stackTable": self.stacks.written(),
            "frameTable": self.frames.written(
                address=-1, subcategory=0, nativeSymbol=None, innerWindowID=None, column=None
            ),
            "funcTable": self.functions.written(isJS=False, relevantForJS=False, lineNumber=None, columnNumber=None),
            "resourceTable": self.resources.written(lib=None, host=None, type=_LIBRARY),
            "nativeSymbols": _Table.of("libIndex", "address", "name", "functionSize").written(),
            "sources": self.sources.written(id=None, startLine=1, startColumn=1, sourceMapURL=None),
            "stringArray": list(self.strings),
        }


def write(snapshot: SnapshotData, _options: WriteOptions, file: BinaryIO) -> None:
    """Write one JSON object.

    Raises:
        TraceError: rows have no time.
    """
    shared = _Shared()
    measured = profiles(snapshot.maps.values(), Printers().portable_text)
    events = [
        (number, event)
        for number, table in enumerate(snapshot.tables)
        for event in row_events(snapshot, table)
    ]
    start = min((event.start for _, event in events), default=snapshot.start)
    maps = [thread for profile in measured for thread in _sample_threads(profile, shared)]
    for number, thread in enumerate(maps):
        thread.tid = f"map {number + 1}"
    threads = maps + _row_threads(events, start, shared)
    run = snapshot.runs[0] if snapshot.runs else None
    document = {
        "meta": {
            "version": _GECKO_VERSION,
            "preprocessedProfileVersion": VERSION,
            "product": unicode_text(f"{run.script} on {run.host}") if run else "pytrace",
            "importedFrom": unicode_text(f"pytrace {run.version}") if run else "pytrace",
            "oscpu": unicode_text(f"Linux {run.kernel} {run.machine}") if run else "",
            "arguments": unicode_text(" ".join(run.parameters)) if run else "",
            "interval": 1,
            "startTime": start / 1e6,
            "endTime": snapshot.end / 1e6,
            "processType": 0,
            "stackwalk": 1,
            "symbolicated": True,
            "symbolicationNotSupported": True,
            "usesOnlyOneStackType": True,
            "sourceCodeIsNotOnSearchfox": True,
            "keepProfileThreadOrder": True,
            "initialVisibleThreads": list(range(len(threads))),
            "initialSelectedThreads": [0] if threads else [],
            "categories": [
                {"name": name, "color": color, "subcategories": ["Other"]} for name, color in _CATEGORIES
            ],
            "markerSchema": [_schema(number, TableSchema.of(("",), (table.type,)))
                             for number, table in enumerate(snapshot.tables)],
            "extra": _losses(snapshot),
        },
        "libs": [],
        "shared": shared.written(),
        "threads": threads,
    }  # fmt: skip
    file.write(msgspec.json.encode(document) + b"\n")


def _losses(snapshot: SnapshotData) -> list[dict[str, object]]:
    """What was lost, for the profiler's page about a profile."""
    entries = [
        {"label": unicode_text(f"{kind} ({subject})" if subject else kind), "format": "integer", "value": count}
        for kind, subjects in sorted(snapshot.losses.items())
        for subject, count in sorted(subjects.items())
    ]
    return [{"label": "Losses", "entries": entries}] if entries else []


# ---------------------------------------------------------------------------------------------- stacks


def _sample_threads(profile: Profile, shared: _Shared) -> Iterator[_Thread]:
    """A thread for each combination of labels and each measure."""
    for name, samples in by_labels(profile):
        for number, measure in enumerate(profile.measures):
            kind, factor = _WEIGHTS.get(measure.unit, ("samples", 1))
            weights: dict[int, int] = {}
            for sample in samples:
                stack = shared.stack((), sample)
                known = weights.get(stack)
                value = sample.values[number]
                weights[stack] = value if known is None else profile.join(known, value)
            title = unicode_text(f"{name} ({measure.part})" if measure.part else name)
            # The order has no meaning, but the profiler wants a time for each.
            scaled = [value * factor for value in weights.values()]
            written = _Samples(list(weights), list(range(len(weights))), scaled, kind, len(weights))
            yield _Thread(title, unicode_text(profile.name), "0", "", samples=written)


# ---------------------------------------------------------------------------------------------- rows


def _row_threads(events: Iterable[tuple[int, RowEvent]], start: int, shared: _Shared) -> list[_Thread]:
    """A thread with markers for each thread that rows name, in the order of their first rows."""
    threads: dict[tuple[int, int | None, int | None], _Thread] = {}
    for number, event in sorted(events, key=lambda item: item[1].start):
        place = (event.run, event.pid, event.tid)
        thread = threads.get(place)
        if thread is None:
            name = unicode_text(event.comm or "rows")
            pid = "0" if event.pid is None else str(event.pid)
            tid = f"rows {event.run + 1}" if event.tid is None else event.tid
            thread = threads[place] = _Thread(name, name, pid, tid, event.tid is not None and event.tid == event.pid)
        _append(thread.markers, number, event, start, shared)
    return list(threads.values())


def _append(markers: _Markers, number: int, event: RowEvent, start: int, shared: _Shared) -> None:
    begin = (event.start - start) / 1e6
    markers.data.append({**dict(event.arguments), "type": _marker_type(number)})
    markers.name.append(shared.string(event.name))
    markers.start_time.append(begin)
    markers.end_time.append(None if event.duration is None else begin + event.duration / 1e6)
    markers.phase.append(_INSTANT if event.duration is None else _INTERVAL)
    markers.category.append(_OTHER)
    markers.length += 1


def _marker_type(number: int) -> str:
    return f"rows {number + 1}"


def _schema(number: int, schema: TableSchema) -> dict[str, object]:
    """How the profiler shows the rows of a table: their columns as fields."""
    fields = [
        {"key": column.name, "label": column.name, "format": "integer" if column.number else "string"}
        for column in schema.columns
        if column.name != "type"
    ]
    display = ["marker-chart", "marker-table", "timeline-overview"]
    return {"name": _marker_type(number), "display": display, "fields": fields}
