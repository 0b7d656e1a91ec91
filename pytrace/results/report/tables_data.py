"""Maps and rows as the data of tables, histograms and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from pytrace.core import types
from pytrace.core.types.tables import Column, TableSchema, key_columns, map_schema
from pytrace.render import csv, histogram
from pytrace.results.difference import Change, MapDifference, average, series_values
from pytrace.results.report.document import Document, exact, exacts
from pytrace.results.report.parts import (
    Bucket,
    Cell,
    Counts,
    HeatPart,
    HistogramPart,
    Line,
    LinesPart,
    TablePart,
)
from pytrace.results.report.parts import Column as PartColumn
from pytrace.results.snapshot import MapData, SnapshotData, Table
from pytrace.results.values import Pair, Portable, Value

if TYPE_CHECKING:
    from pytrace.results.formats.portable_forms import Printers


class Cells:
    """Keys and rows as cells of columns."""

    def __init__(
        self, document: Document, printers: Printers, columns: Sequence[Column], type_: types.Type | None
    ) -> None:
        self._document = document
        self._numeric = [column.right for column in columns]
        self.columns: list[PartColumn] = [
            (document.text(column.name), column.unit, int(column.right)) for column in columns
        ]
        self._texts = None if type_ is None else printers.portable(type_, csv.texts(printers.texts, type_))

    def of(self, value: Value) -> list[Cell]:
        """The cells of a value."""
        if self._texts is None:
            return []
        texts = self._texts(value)
        return [self._cell(text, numeric) for text, numeric in zip(texts, self._numeric, strict=True)]

    def _cell(self, text: bytes, numeric: bool) -> Cell:
        if numeric:
            digits = text.decode()
            return exact(int(digits)) if digits.lstrip("-").isdecimal() else digits
        return self._document.text(text.decode("utf-8", "surrogateescape"))


def rows_part(
    document: Document, printers: Printers, table: Table, rows: Iterable[tuple[Portable, ...]], name: str
) -> TablePart:
    """The rows of ``row()`` statements of one shape."""
    cells = Cells(document, printers, TableSchema.of(("",), (table.type,)).columns, table.type)
    cells_of_rows = [cells.of(row) for row in rows]
    note = f"{table.dropped} older rows were not kept." if table.dropped else ""
    return TablePart(
        name=document.text(name), help=document.text(""), note=note,
        columns=cells.columns, rows=cells_of_rows, sort=-1,
    )  # fmt: skip


def map_part(document: Document, printers: Printers, data: MapData) -> TablePart:
    """A map of numbers or other values, as it prints in CSV."""
    schema = map_schema(data.name, data.key, data.value).columns
    keys = key_columns(data.key) if data.key is not None else ()
    key = Cells(document, printers, schema[: len(keys)], data.key)
    value = Cells(document, printers, schema[len(keys) :], data.value)
    members = _stats_cells if isinstance(data.value, types.Stats) else value.of
    rows = [[*key.of(name), *members(item)] for name, item in data.entries.items()]
    return TablePart(
        name=document.text(data.title), help=document.text(data.help),
        columns=[*key.columns, *value.columns], rows=rows, sort=len(keys) if value.columns[0][2] else -1,
    )  # fmt: skip


def _stats_cells(value: Value) -> list[Cell]:
    total, count = _pair(value)
    return [exact(count), exact(average((total, count))), exact(total)]


def difference_part(document: Document, printers: Printers, part: MapDifference) -> TablePart:
    """The keys of a map that differ: their values before and after, and the change of numbers."""
    schema = map_schema(part.name, part.key, part.value).columns
    keys = key_columns(part.key)
    key = Cells(document, printers, schema[: len(keys)], part.key)
    value = Cells(document, printers, schema[len(keys) :], part.value)
    members = _stats_cells if isinstance(part.value, types.Stats) else value.of
    missing: list[Cell] = ["" if column[2] else document.text("") for column in value.columns]
    sides: list[PartColumn] = [
        (document.text(f"{column.name} {side}"), column.unit, int(column.right))
        for side in ("before", "after")
        for column in schema[len(keys) :]
    ]
    rows = [
        [
            *key.of(name),
            *(missing if change.before is None else members(change.before)),
            *(missing if change.after is None else members(change.after)),
            _change(change),
        ]
        for name, change in part.changes.items()
    ]
    change_column: PartColumn = (document.text("change"), schema[-1].unit, 1)
    return TablePart(
        name=document.text(part.name), help=document.text(""),
        columns=[*key.columns, *sides, change_column], rows=rows, sort=len(keys) + len(sides),
    )  # fmt: skip


def _change(change: Change) -> Cell:
    """The change of a number, of averages that of the average; empty for others."""
    if isinstance(change.delta, tuple):
        return exact(average(_pair(change.after)) - average(_pair(change.before)))
    return exact(change.delta) if isinstance(change.delta, int) else ""


# ---------------------------------------------------------------------------------------------- keys that states share


def _keys(states: Sequence[MapData]) -> list[Portable]:
    """The keys of several states of a map."""
    return list(dict.fromkeys(key for data in states for key in data.entries))


class _Common(TypedDict):
    """The members that parts with keys have in common."""

    name: int
    help: int
    unit: str
    columns: list[PartColumn]
    keys: list[list[Cell]]


def _keyed(document: Document, printers: Printers, states: Sequence[MapData]) -> tuple[_Common, list[Portable]]:
    """The members that parts of maps with keys have in common, and the keys."""
    data = states[-1]
    cells = Cells(document, printers, key_columns(data.key) if data.key is not None else (), data.key)
    keys = _keys(states)
    common = _Common(
        name=document.text(data.title), help=document.text(data.help), unit=Column.of(data.name, types.INT64).unit,
        columns=cells.columns, keys=[cells.of(key) for key in keys],
    )  # fmt: skip
    return common, keys


# ---------------------------------------------------------------------------------------------- histograms


def histogram_part(
    document: Document, printers: Printers, data: MapData, before: MapData | None = None
) -> HistogramPart:
    """The histograms of a map; with *before* those of an earlier state beside them."""
    states = [data] if before is None else [before, data]
    common, keys = _keyed(document, printers, states)
    assert isinstance(data.value, types.Hist | types.LHist)
    return HistogramPart(
        **common, buckets=_bounds(data.value), counts=[_counts(data, key) for key in keys],
        before=None if before is None else [_counts(before, key) for key in keys],
    )  # fmt: skip


def _bounds(type_: types.Hist | types.LHist) -> list[Bucket]:
    """Least and greatest value of each bucket, null at an open end."""
    buckets = histogram.used(histogram.shape(type_), [1] * type_.buckets)
    return [
        (None if item.low is None else exact(item.low), None if item.high is None else exact(item.high - 1), item.label)
        for item in buckets
    ]


def _counts(data: MapData, key: Portable) -> Counts:
    """Numbers and counts of the buckets that are not empty."""
    return _paired(data.entries.get(key))


def _paired(value: Value | None) -> Counts:
    items = sorted(value.items()) if isinstance(value, dict) else []
    return [number for number, _ in items], exacts(count for _, count in items if isinstance(count, int))


# ---------------------------------------------------------------------------------------------- lines


def series_part(document: Document, printers: Printers, data: MapData, before: MapData | None = None) -> LinesPart:
    """The time series of a map; those of *before* as keys of their own."""
    states = [data] if before is None else [before, data]
    common, keys = _keyed(document, printers, states)
    return LinesPart(
        **common, lines=[_points(data, key) for key in keys],
        before=None if before is None else [_points(before, key) for key in keys],
    )  # fmt: skip


def _points(data: MapData, key: Portable) -> Line:
    type_, value = data.value, data.entries.get(key)
    assert isinstance(type_, types.TSeries)
    items = (
        {number: item for number, item in value.items() if isinstance(item, tuple)} if isinstance(value, dict) else {}
    )
    points = sorted(series_values(type_, items).items())
    return [number * type_.interval / 1e9 for number, _ in points], [exact(item) for _, item in points]


# ---------------------------------------------------------------------------------------------- states in time

States: TypeAlias = Sequence[tuple[SnapshotData, MapData]]
"""A map in several snapshots, in the order of their times."""
_Change: TypeAlias = "Callable[[Value | None, Value | None], Value | None]"


def is_number(type_: types.Type) -> bool:
    """True for values that are numbers, or totals and counts."""
    return isinstance(type_, types.Int | types.Count | types.Sum | types.Avg | types.Stats | types.Min | types.Max)


def heat_part(document: Document, printers: Printers, states: States) -> HeatPart:
    """Histograms of several moments: what each interval between two of them added."""
    common, keys = _keyed(document, printers, [data for _, data in states])
    type_ = states[-1][1].value
    assert isinstance(type_, types.Hist | types.LHist)
    return HeatPart(
        **common, buckets=_bounds(type_), starts=_starts(states), times=[snapshot.end / 1e9 for snapshot, _ in states],
        steps=[[_paired(step) for step in steps_of(states, key, buckets_added)] for key in keys],
    )  # fmt: skip


def counter_part(document: Document, printers: Printers, states: States) -> LinesPart:
    """Numbers of several moments as lines: of counts and sums what each interval added, of others the value."""
    common, keys = _keyed(document, printers, [data for _, data in states])
    type_ = states[-1][1].value
    adds = isinstance(type_, types.SUMS)
    change: _Change = _number_added if adds else lambda _was, now: now
    shown = _average if isinstance(type_, types.Avg | types.Stats) else _plain
    times = [snapshot.end / 1e9 for snapshot, _ in states]
    lines: list[Line] = []
    for key in keys:
        steps = steps_of(states, key, change)
        lines.append((times, [None if step is None else exact(shown(step)) for step in steps]))
    return LinesPart(**common, lines=lines, note="What each interval between two snapshots added." if adds else "")


def _same_run(earlier: SnapshotData, later: SnapshotData) -> bool:
    return {run.identity for run in earlier.runs} == {run.identity for run in later.runs}


def _starts(states: States) -> list[float]:
    """When the interval that ends with each snapshot began: at the one before it, or with its run."""
    starts = [states[0][0].start / 1e9]
    for (earlier, _), (later, _) in pairwise(states):
        starts.append((earlier.end if _same_run(earlier, later) else later.start) / 1e9)
    return starts


def steps_of(states: States, key: Portable, change: _Change) -> list[Value | None]:
    """The change of a key's value since the snapshot before; since nothing where another run began."""
    changes = [change(None, states[0][1].entries.get(key))]
    for (earlier, before), (later, after) in pairwise(states):
        was = before.entries.get(key) if _same_run(earlier, later) else None
        changes.append(change(was, after.entries.get(key)))
    return changes


def _number_added(was: Value | None, now: Value | None) -> Value | None:
    """The increase; a number that decreased was reset to 0 between."""
    if now is None:
        return None
    if isinstance(now, tuple):
        (total, count), (old_total, old_count) = _pair(now), _pair(was)
        # A count that became less was set back to 0 between.
        return now if count < old_count else (total - old_total, count - old_count)
    assert isinstance(now, int)
    old = was if isinstance(was, int) else 0
    return now - old if was is None or now >= old else now


def buckets_added(was: Value | None, now: Value | None) -> Value | None:
    """What a histogram counted since; one that has less than before was emptied between."""
    new: Mapping[int, object] = now if isinstance(now, dict) else {}
    old: Mapping[int, object] = was if isinstance(was, dict) else {}
    counts = {number: _whole(new.get(number)) - _whole(old.get(number)) for number in sorted({*new, *old})}
    if any(count < 0 for count in counts.values()):
        return {number: _whole(count) for number, count in new.items()}
    return {number: count for number, count in counts.items() if count}


def _whole(count: object) -> int:
    return count if isinstance(count, int) else 0


def _plain(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _average(value: Value) -> int:
    return average(_pair(value))


def _pair(value: Value | None) -> Pair:
    """The total and count of an average or of statistics."""
    if not isinstance(value, tuple):
        return 0, 0
    total, count = value
    assert isinstance(total, int)
    assert isinstance(count, int)
    return total, count
