"""Maps as CSV tables: columns of the key, columns of the value; a histogram has a row for each bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pytrace.core import types
from pytrace.core.types.tables import Column, TableSchema, key_columns, value_columns
from pytrace.render import csv, histogram, tseries
from pytrace.render.aggregations import stats_members
from pytrace.render.histogram import AllCounts
from pytrace.render.maps.map_printer import Entry, MapPrinter, MapView, Shown, last_interval
from pytrace.render.text import Value, for_any
from pytrace.render.tseries import Intervals
from pytrace.render.values import with_div

if TYPE_CHECKING:
    from pytrace.render.tables import Page

Rows = Callable[[Value], list[list[bytes]]]
"""The rows of a value, without its key."""


def entries(view: MapView, page: Page, shown: Shown | None = None, *, always: bool = False) -> bytes:
    """The map as a table of its own with a heading; empty when there is nothing to show."""
    shown = shown or Shown()
    return table(view, page, view.entries(shown, always=always), shown)


def table(printer: MapPrinter, page: Page, entries: list[Entry], shown: Shown) -> bytes:
    """Entries of a map, wherever they come from, as a table of their own; empty when there are none."""
    last = last_interval(entries) if isinstance(printer.value_type, types.TSeries) else 0
    keys = key_columns(printer.key_type)
    return b"".join(table_parts(printer, page, keys, [entries] if entries else [], shown, last))


def table_parts(
    printer: MapPrinter, page: Page, keys: Sequence[Column], blocks: Iterable[list[Entry]], shown: Shown, last: int
) -> Iterator[bytes]:
    """As :func:`table`, of blocks of entries, with columns *keys*; *last* is the last interval of time series."""
    schema = TableSchema((*keys, *value_columns(printer.title, printer.value_type)))
    return _table(printer, page, schema, blocks, _rows(printer, shown, last))


def quantiles(view: MapView, page: Page, percents: Sequence[str]) -> bytes:
    """Percentiles of a hist map as a table of its own."""
    name, of_value = view.title, view.quantiles(percents)
    columns = [Column(f"{name}.{item}", types.INT64) for item in ("percentile", "value", "error", "min", "max")]
    schema = TableSchema((*key_columns(view.key_type), *columns))

    def rows(value: Value) -> list[list[bytes]]:
        return [
            [item.percent.encode(), *map(_bound, (item.value, item.error, item.low, item.high))]
            for item in of_value(value)
        ]

    entries = view.entries()
    return b"".join(_table(view, page, schema, [entries] if entries else [], rows))


def _table(
    printer: MapPrinter, page: Page, schema: TableSchema, blocks: Iterable[list[Entry]], rows: Rows
) -> Iterator[bytes]:
    key = csv.cells(printer.texts, printer.key_type) if printer.key_type is not None else _no_key
    first = True
    for block in blocks:
        if first:
            yield (csv.END if page.begin(None) else b"") + csv.heading(schema.names)
        first = False
        lines: list[bytes] = []
        for name, value in block:
            before = key(name)
            lines += [csv.line([*before, *after]) for after in rows(value)]
        yield b"".join(lines)


def _no_key(_key: object) -> list[bytes]:
    return []


def _bound(value: int | None) -> bytes:
    return b"" if value is None else b"%d" % value


# ---------------------------------------------------------------------------------------------- values


def _rows(printer: MapPrinter, shown: Shown, last: int) -> Rows:
    type_ = printer.value_type
    if isinstance(type_, types.Stats):
        return for_any(_stats)
    if isinstance(type_, types.Hist | types.LHist):
        return _buckets(printer, shown)
    if isinstance(type_, types.TSeries):
        return _intervals(printer, type_, shown, last)
    cells = with_div(csv.cells(printer.texts, type_), type_, shown.div)
    return lambda value: [cells(value)]


def _stats(value: tuple[int, int]) -> list[list[bytes]]:
    return [[b"%d" % item for item in stats_members(value)]]


def _buckets(printer: MapPrinter, shown: Shown) -> Rows:
    shape = printer.shape()
    div = shown.div if shape.divisible else 1

    def rows(value: AllCounts) -> list[list[bytes]]:
        return [
            [_bound(item.low), _bound(None if item.high is None else item.high - 1), b"%d" % (item.count // div)]
            for item in histogram.used(shape, value)
        ]

    return for_any(rows)


def _intervals(printer: MapPrinter, type_: types.TSeries, shown: Shown, last: int) -> Rows:
    window = printer.window(type_, [], shown.div, last)

    def rows(value: Intervals) -> list[list[bytes]]:
        points = window(value).points
        return [[tseries.moment(start), b"%d" % item] for start, item in points if item is not None]

    return for_any(rows)
