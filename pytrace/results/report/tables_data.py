"""Maps and rows as the data of tables, histograms and lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated
from pytrace.core.types.tables import Column, TableSchema, key_columns, value_columns
from pytrace.render import csv, histogram
from pytrace.render.tseries import TimeSeries
from pytrace.render.value_kind import Change as KeyChange
from pytrace.results.difference import MapDifference
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
from pytrace.results.report.states import Change, State, buckets_added, number_added, pair, steps_of
from pytrace.results.snapshot import MapData, Table
from pytrace.results.values import Portable, Value

if TYPE_CHECKING:
    from pytrace.results.formats.portable_forms import Printers


class Cells:
    """Keys and rows as cells of columns."""

    def __init__(
        self,
        document: Document,
        printers: Printers,
        columns: Sequence[Column],
        type_: types.Type | None,
        titles: Sequence[str] = (),
    ) -> None:
        self._document = document
        self._numeric = [column.right for column in columns]
        self.columns: list[PartColumn] = [
            (document.text(column.name), column.unit, int(column.right), document.text(title))
            for column, title in zip(columns, titles or [column.name for column in columns], strict=True)
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
    keys = data.key_columns
    key = Cells(document, printers, keys, data.key, data.key_titles)
    value = Cells(document, printers, value_columns(data.title, data.value), data.value)
    members = _stats_cells if isinstance(data.value, types.Stats) else value.of
    rows = [[*key.of(name), *members(item)] for name, item in data.entries.items()]
    return TablePart(
        name=document.text(data.title), help=document.text(data.help),
        columns=[*key.columns, *value.columns], rows=rows, sort=len(keys) if value.columns[0][2] else -1,
    )  # fmt: skip


def _stats_cells(value: Value) -> list[Cell]:
    total, count = pair(value)
    return [exact(count), exact(truncated(total, count)), exact(total)]


def difference_part(document: Document, printers: Printers, part: MapDifference) -> TablePart:
    """The keys of a map that differ: their values before and after, and the change of numbers."""
    of_value = value_columns(part.name, part.value)
    key = Cells(document, printers, key_columns(part.key), part.key)
    value = Cells(document, printers, of_value, part.value)
    members = _stats_cells if isinstance(part.value, types.Stats) else value.of
    missing: list[Cell] = ["" if column[2] else document.text("") for column in value.columns]
    sides: list[PartColumn] = [
        (name := document.text(f"{column.name} {side}"), column.unit, int(column.right), name)
        for side in ("before", "after")
        for column in of_value
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
    change_column: PartColumn = (document.text("change"), of_value[-1].unit, 1, document.text("change"))
    return TablePart(
        name=document.text(part.name), help=document.text(""),
        columns=[*key.columns, *sides, change_column], rows=rows, sort=len(key.columns) + len(sides),
    )  # fmt: skip


def _change(change: KeyChange) -> Cell:
    """The change of a number, of averages that of the average; empty for others."""
    if isinstance(change.delta, tuple):
        return exact(truncated(*pair(change.after)) - truncated(*pair(change.before)))
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
    cells = Cells(document, printers, data.key_columns, data.key, data.key_titles)
    keys = _keys(states)
    common = _Common(
        name=document.text(data.title), help=document.text(data.help), unit=data.unit,
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
        before=None if before is None else [_counts(before, key) for key in keys], by=0 if data.label else -1,
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
    points = sorted(TimeSeries(type_).printed_values(items).items())
    return [number * type_.interval / 1e9 for number, _ in points], [exact(item) for _, item in points]


# ---------------------------------------------------------------------------------------------- states in time


def heat_part(document: Document, printers: Printers, states: Sequence[State]) -> HeatPart:
    """Histograms of several moments: what each interval between two of them added."""
    common, keys = _keyed(document, printers, [state.data for state in states])
    type_ = states[-1].data.value
    assert isinstance(type_, types.Hist | types.LHist)
    return HeatPart(
        **common, buckets=_bounds(type_),
        starts=[state.start / 1e9 for state in states], times=[state.end / 1e9 for state in states],
        steps=[[_paired(step) for step in steps_of(states, key, buckets_added)] for key in keys],
    )  # fmt: skip


def counter_part(document: Document, printers: Printers, states: Sequence[State]) -> LinesPart:
    """Numbers of several moments as lines: of counts and sums what each interval added, of others the value."""
    common, keys = _keyed(document, printers, [state.data for state in states])
    type_ = states[-1].data.value
    adds = isinstance(type_, types.SUMS)
    change: Change = number_added if adds else lambda _was, now: now
    shown = _average if isinstance(type_, types.Avg | types.Stats) else _plain
    times = [state.end / 1e9 for state in states]
    lines: list[Line] = []
    for key in keys:
        steps = steps_of(states, key, change)
        lines.append((times, [None if step is None else exact(shown(step)) for step in steps]))
    return LinesPart(**common, lines=lines, note="What each interval added." if adds else "")


def _plain(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _average(value: Value) -> int:
    return truncated(*pair(value))
