"""Maps and rows as the data of tables, histograms and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from pytrace.core import types
from pytrace.core.types.tables import Column, TableSchema, key_columns, map_schema
from pytrace.render import csv, histogram
from pytrace.results.difference import average, series_values
from pytrace.results.report.document import Document, Part, exact, exacts
from pytrace.results.snapshot import MapData, SnapshotData, Table
from pytrace.results.values import Portable, Value

if TYPE_CHECKING:
    from pytrace.results.formats.portable_forms import Printers

Cell: TypeAlias = int | str
"""A number, or as text one that JavaScript could not hold; of texts their number."""


class Cells:
    """Keys and rows as cells of columns."""

    def __init__(
        self, document: Document, printers: Printers, columns: Sequence[Column], type_: types.Type | None
    ) -> None:
        self._document = document
        self._numeric = [column.right for column in columns]
        self.columns = [
            [document.text(column.name), column.unit, int(column.right)] for column in columns
        ]  # fmt: skip
        self._texts = None if type_ is None else printers.portable(type_, csv.texts(printers.texts, type_))

    def of(self, value: Value) -> list[Cell]:
        """The cells of a value."""
        if self._texts is None:
            return []
        found = self._texts(value)
        return [self._cell(text, numeric) for text, numeric in zip(found, self._numeric, strict=True)]

    def _cell(self, text: bytes, numeric: bool) -> Cell:
        if numeric:
            digits = text.decode()
            return exact(int(digits)) if digits.lstrip("-").isdecimal() else digits
        return self._document.text(text.decode("utf-8", "surrogateescape"))


def rows_part(
    document: Document, printers: Printers, table: Table, rows: Iterable[tuple[Portable, ...]], name: str
) -> Part:
    """The rows of ``row()`` statements of one shape."""
    cells = Cells(document, printers, TableSchema.of(("",), (table.type,)).columns, table.type)
    found = [cells.of(row) for row in rows]
    note = f"{table.dropped} older rows were not kept." if table.dropped else ""
    return {
        "kind": "table", "name": document.text(name), "help": document.text(""), "note": note,
        "columns": cells.columns, "rows": found, "sort": -1,
    }  # fmt: skip


def map_part(document: Document, printers: Printers, data: MapData) -> Part:
    """A map of numbers or other values, as it prints in CSV."""
    schema = map_schema(data.name, data.key, data.value).columns
    keys = key_columns(data.key) if data.key is not None else ()
    key = Cells(document, printers, schema[: len(keys)], data.key)
    value = Cells(document, printers, schema[len(keys) :], data.value)
    members = _stats_cells if isinstance(data.value, types.Stats) else value.of
    rows = [[*key.of(name), *members(item)] for name, item in data.entries.items()]
    return {
        "kind": "table", "name": document.text(data.name), "help": document.text(data.help), "note": "",
        "columns": [*key.columns, *value.columns], "rows": rows, "sort": len(keys) if value.columns[0][2] else -1,
    }  # fmt: skip


def _stats_cells(value: Value) -> list[Cell]:
    assert isinstance(value, tuple)
    total, count = value
    assert isinstance(total, int)
    assert isinstance(count, int)
    return [exact(count), exact(average((total, count))), exact(total)]


# ---------------------------------------------------------------------------------------------- keys that states share


def _keys(states: Sequence[MapData]) -> list[Portable]:
    """The keys of several states of a map."""
    return list(dict.fromkeys(key for data in states for key in data.entries))


def _keyed(document: Document, printers: Printers, states: Sequence[MapData]) -> tuple[Part, list[Portable]]:
    """The members that parts of maps with keys have in common, and the keys."""
    data = states[-1]
    cells = Cells(document, printers, key_columns(data.key) if data.key is not None else (), data.key)
    keys = _keys(states)
    part: Part = {
        "name": document.text(data.name), "help": document.text(data.help), "note": "",
        "unit": Column.of(data.name, types.INT64).unit, "columns": cells.columns,
        "keys": [cells.of(key) for key in keys],
    }  # fmt: skip
    return part, keys


# ---------------------------------------------------------------------------------------------- histograms


def histogram_part(document: Document, printers: Printers, data: MapData, before: MapData | None = None) -> Part:
    """The histograms of a map; with *before* those of an earlier state beside them."""
    states = [data] if before is None else [before, data]
    part, keys = _keyed(document, printers, states)
    assert isinstance(data.value, types.Hist | types.LHist)
    part |= {"kind": "histogram", "buckets": _bounds(data.value), "counts": [_counts(data, key) for key in keys]}
    if before is not None:
        part["before"] = [_counts(before, key) for key in keys]
    return part


def _bounds(type_: types.Hist | types.LHist) -> list[list[Cell | None]]:
    """Least and greatest value of each bucket, null at an open end."""
    buckets = histogram.used(histogram.shape(type_), [1] * type_.buckets)
    return [
        [None if item.low is None else exact(item.low), None if item.high is None else exact(item.high - 1), item.label]
        for item in buckets
    ]


_BucketCounts: TypeAlias = list[list[int] | list[Cell]]


def _counts(data: MapData, key: Portable) -> _BucketCounts:
    """Numbers and counts of the buckets that are not empty."""
    return _paired(data.entries.get(key))


def _paired(value: Value | None) -> _BucketCounts:
    found = sorted(value.items()) if isinstance(value, dict) else []
    return [[number for number, _ in found], exacts(count for _, count in found if isinstance(count, int))]


# ---------------------------------------------------------------------------------------------- lines


def series_part(document: Document, printers: Printers, data: MapData, before: MapData | None = None) -> Part:
    """The time series of a map; those of *before* as keys of their own."""
    states = [data] if before is None else [before, data]
    part, keys = _keyed(document, printers, states)
    assert isinstance(data.value, types.TSeries)
    part |= {"kind": "lines", "step": data.value.interval / 1e9, "lines": [_points(data, key) for key in keys]}
    if before is not None:
        part["before"] = [_points(before, key) for key in keys]
    return part


def _points(data: MapData, key: Portable) -> list[list[float] | list[Cell]]:
    type_, value = data.value, data.entries.get(key)
    assert isinstance(type_, types.TSeries)
    found = (
        {number: item for number, item in value.items() if isinstance(item, tuple)} if isinstance(value, dict) else {}
    )
    points = sorted(series_values(type_, found).items())
    return [[number * type_.interval / 1e9 for number, _ in points], exacts(item for _, item in points)]


# ---------------------------------------------------------------------------------------------- states in time


def heat_part(document: Document, printers: Printers, states: Sequence[tuple[SnapshotData, MapData]]) -> Part:
    """Histograms of several moments: what each interval between two of them added."""
    part, keys = _keyed(document, printers, [data for _, data in states])
    type_ = states[-1][1].value
    assert isinstance(type_, types.Hist | types.LHist)
    steps = [
        [_paired(step) for step in added([data.entries.get(key) for _, data in states], _buckets_added)] for key in keys
    ]
    times = [snapshot.end / 1e9 for snapshot, _ in states]
    return part | {
        "kind": "heat", "buckets": _bounds(type_), "start": states[0][0].start / 1e9, "times": times, "steps": steps,
    }  # fmt: skip


def counter_part(document: Document, printers: Printers, states: Sequence[tuple[SnapshotData, MapData]]) -> Part:
    """Numbers of several moments as lines: of counts and sums what each interval added, of others the value."""
    maps = [data for _, data in states]
    part, keys = _keyed(document, printers, maps)
    adds = isinstance(maps[-1].value, types.SUMS)
    change: Callable[[Value | None, Value | None], Value | None] = _number_added if adds else lambda _was, now: now
    numbers = _average if isinstance(maps[-1].value, types.Avg | types.Stats) else _plain
    times = [snapshot.end / 1e9 for snapshot, _ in states]
    lines = []
    for key in keys:
        steps = added([data.entries.get(key) for data in maps], change)
        lines.append([times, [None if step is None else exact(numbers(step)) for step in steps]])
    part |= {"kind": "lines", "step": 0, "lines": lines}
    if adds:
        part["note"] = "What each interval between two snapshots added."
    return part


def added(
    values: Sequence[Value | None], change: Callable[[Value | None, Value | None], Value | None]
) -> list[Value | None]:
    """The change of each value since the one before it, and first since nothing."""
    return [change(was, now) for was, now in pairwise((None, *values))]


def _number_added(was: Value | None, now: Value | None) -> Value | None:
    """What was added; a number that became less was set back to 0 between."""
    if now is None:
        return None
    if isinstance(now, tuple):
        old = was if isinstance(was, tuple) else (0, 0)
        pair = tuple(
            [
                new - before
                for new, before in zip(now, old, strict=True)
                if isinstance(new, int) and isinstance(before, int)
            ]
        )
        return now if len(pair) != 2 or pair[1] < 0 else pair
    assert isinstance(now, int)
    step = now - (was if isinstance(was, int) else 0)
    return step if step >= 0 or not isinstance(was, int) else now


def _buckets_added(was: Value | None, now: Value | None) -> Value | None:
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
    assert isinstance(value, tuple)
    total, count = value
    assert isinstance(total, int)
    assert isinstance(count, int)
    return average((total, count))
