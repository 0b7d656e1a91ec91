"""Tables with a Python list for each column, and what other libraries make of them: Arrow, pandas, Polars.

The libraries are imported when they are asked for; the extra ``arrow`` (``pandas``, ``polars``) brings
them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import msgspec
from msgspec.structs import replace

from pytrace.base import extras
from pytrace.core import text, types
from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.types import truncated
from pytrace.core.value_tables import Column, TableSchema, value_columns
from pytrace.render import csv, histogram, tseries
from pytrace.render.map_printer import Shown
from pytrace.render.tables import Page
from pytrace.render.value_kind import Held, Plain
from pytrace.render.values import value_kind_of
from pytrace.results import external_sort
from pytrace.results.formats import about
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers, rows_of
from pytrace.results.snapshot import MapData, SnapshotData, Table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class ColumnKind(Enum):
    """Kinds of values of a column; each value may be None where there is none."""

    SIGNED = "int64"
    UNSIGNED = "uint64"
    FLOAT = "double"
    BOOL = "bool"
    TEXT = "text"
    """``str``."""
    BYTES = "bytes"
    TIME = "time"
    """``int``, nanoseconds since 1970."""
    LINES = "lines"
    """Lists of ``str``: the frames of a stack, innermost first."""


class FlatColumn(msgspec.Struct, frozen=True):
    """A column."""

    name: str
    kind: ColumnKind
    values: list[Any]
    unit: str = ""
    """``us``, ``KB`` … as the end of the name tells; else empty."""


class FlatTable(msgspec.Struct, frozen=True):
    """Columns of equal length."""

    name: str
    """Of the map that it shows, or ``rows``."""
    columns: tuple[FlatColumn, ...]

    @classmethod
    def joined(cls, parts: Sequence[FlatTable]) -> FlatTable:
        """One table of the rows of several with the same columns."""
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(parts[0].name, tuple(
            replace(same[0], values=list(chain.from_iterable(column.values for column in same))) for same in columns
        ))  # fmt: skip

    @staticmethod
    def ranges(parts: Iterable[FlatTable]) -> list[tuple[int, int]]:
        """For each column the least and the greatest integer in it, of all parts; 0 and 0 for other columns."""
        found: list[tuple[int, int]] = []
        for part in parts:
            own = [_range(column) for column in part.columns]
            found = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(found or own, own, strict=True)]
        return found

    def to_arrow(
        self, notes: Mapping[str, str] | None = None, ranges: Sequence[tuple[int, int]] | None = None
    ) -> pyarrow.Table:
        """As an Arrow table: 64-bit integers, doubles, text, binaries, lists of text, timestamps in nanoseconds UTC.

        Integers that do not all fit 64 bits (a signed column that was merged with an unsigned one) are decimals.

        Args:
            notes: metadata of the table; units are metadata of the columns.
            ranges: those of the whole table (:meth:`ranges`), where this is a part of it.

        Raises:
            TraceError: pyarrow is not installed.
        """
        arrow = library("pyarrow", "arrow")
        known = ranges or FlatTable.ranges((self,))
        arrays = [
            arrow.array(column.values, _arrow_type(arrow, column.kind, held))
            for column, held in zip(self.columns, known, strict=True)
        ]
        fields = [
            arrow.field(column.name, array.type, metadata={"unit": column.unit} if column.unit else None)
            for column, array in zip(self.columns, arrays, strict=True)
        ]
        return arrow.Table.from_arrays(arrays, schema=arrow.schema(fields, metadata=dict(notes) if notes else None))

    def to_pandas(self) -> pandas.DataFrame:
        """As a pandas frame, with types that keep integers whole where values are missing.

        Raises:
            TraceError: pandas or pyarrow is not installed.
        """
        frames = library("pandas", "pandas")
        # Through Arrow, without which a column of integers with a None in it would become floats.
        kinds = {"int64": frames.Int64Dtype(), "uint64": frames.UInt64Dtype()}
        table = self.to_arrow()
        missing = {str(field.type) for field in table.schema if table.column(field.name).null_count}
        frame: pandas.DataFrame = table.to_pandas(
            types_mapper=lambda kind: kinds.get(str(kind)) if str(kind) in missing else None
        )
        return frame

    def to_polars(self) -> polars.DataFrame:
        """As a Polars frame.

        Raises:
            TraceError: polars is not installed.
        """
        frames = library("polars", "polars")
        columns = [
            frames.Series(column.name, column.values, dtype=_polars_type(frames, column)) for column in self.columns
        ]
        frame: polars.DataFrame = frames.DataFrame(columns)
        return frame


def library(name: str, extra: str) -> Any:
    """A library that is no dependency.

    Raises:
        TraceError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise TraceError(f"this needs the Python package {error.name}", hints=(extras.hint(extra),)) from None


_SIGNED = (-(1 << 63), (1 << 63) - 1)
_UNSIGNED = (0, (1 << 64) - 1)


def _range(column: FlatColumn) -> tuple[int, int]:
    if column.kind not in (ColumnKind.SIGNED, ColumnKind.UNSIGNED):
        return 0, 0
    known = [value for value in column.values if value is not None]
    return min(known, default=0), max(known, default=0)


def _integer_kind(own: ColumnKind, held: tuple[int, int]) -> ColumnKind | None:
    """The type that holds all integers of a range, a column's *own* if it does; None if 64 bits do not."""
    ranges = {ColumnKind.SIGNED: _SIGNED, ColumnKind.UNSIGNED: _UNSIGNED}
    for kind in sorted(ranges, key=lambda kind: kind is not own):
        if ranges[kind][0] <= held[0] and held[1] <= ranges[kind][1]:
            return kind
    return None


def _arrow_type(arrow: Any, own: ColumnKind, held: tuple[int, int]) -> Any:
    if own in (ColumnKind.SIGNED, ColumnKind.UNSIGNED):
        kind = _integer_kind(own, held)
        return arrow.decimal128(20, 0) if kind is None else getattr(arrow, kind.value)()
    return {
        ColumnKind.FLOAT: arrow.float64(),
        ColumnKind.BOOL: arrow.bool_(),
        ColumnKind.TEXT: arrow.string(),
        ColumnKind.BYTES: arrow.binary(),
        ColumnKind.TIME: arrow.timestamp("ns", tz="UTC"),
        ColumnKind.LINES: arrow.list_(arrow.string()),
    }[own]


def _polars_type(frames: Any, column: FlatColumn) -> Any:
    if column.kind in (ColumnKind.SIGNED, ColumnKind.UNSIGNED):
        kind = _integer_kind(column.kind, _range(column))
        return frames.Int128 if kind is None else {"int64": frames.Int64, "uint64": frames.UInt64}[kind.value]
    return {
        ColumnKind.FLOAT: frames.Float64,
        ColumnKind.BOOL: frames.Boolean,
        ColumnKind.TEXT: frames.String,
        ColumnKind.BYTES: frames.Binary,
        ColumnKind.TIME: frames.Datetime("ns", "UTC"),
        ColumnKind.LINES: frames.List(frames.String),
    }[column.kind]


# ---------------------------------------------------------------------------------------------- tabular


_Row: TypeAlias = tuple[Plain, ...]

# ---------------------------------------------------------------------------------------------- CSV


def write_csv(snapshot: SnapshotData, _options: WriteOptions, file: BinaryIO) -> None:
    """Write tables of rows, and maps by name, as runs with ``-f csv`` print them: rows first, maps at the end."""
    printers, page = Printers(), Page()
    for table in snapshot.tables:
        file.writelines(_csv_rows(printers, page, snapshot, table))
    for _, data in sorted(snapshot.maps.items()):
        blocks, last = printers.in_order(data), printers.last_interval(data)
        file.writelines(csv.map_parts(printers.printer(data), page, data.key_columns, blocks, Shown(), last))


def _csv_rows(printers: Printers, page: Page, snapshot: SnapshotData, table: Table) -> Iterator[bytes]:
    schema = TableSchema.of(("",), (table.type,))
    restore, cells = printers.restored(table.type), csv.cells(printers.texts, table.type)
    yield (csv.END if page.begin(None) else b"") + csv.heading(schema.names)
    for row in rows_of(snapshot, table):
        yield csv.line(cells(restore(row)))


# ---------------------------------------------------------------------------------------------- Arrow


def write_arrow(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one map or table as an Arrow IPC file.

    Raises:
        TraceError: there are several of them, or pyarrow is not installed.
    """
    ipc = library("pyarrow.ipc", "arrow")
    _write_parts(snapshot, options, "arrow", lambda schema: ipc.new_file(file, schema))


def write_parquet(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one map or table as a Parquet file.

    Raises:
        TraceError: as :func:`write_arrow`.
    """
    parquet = library("pyarrow.parquet", "arrow")
    _write_parts(snapshot, options, "parquet", lambda schema: parquet.ParquetWriter(file, schema))


def _write_parts(snapshot: SnapshotData, options: WriteOptions, name: str, opened: Callable[[Plain], Plain]) -> None:
    """Write one map or table by a writer for its schema, some thousand rows at a time: memory does not grow with keys.

    The types of columns are those that hold all values, which are looked at first.
    """
    parts = _only(snapshot, options, name)
    ranges = FlatTable.ranges(parts(False))
    notes = _notes(snapshot)
    groups = map(FlatTable.joined, external_sort.batches(parts(True), _GROUP))
    tables = (group.to_arrow(notes, ranges) for group in groups)
    first = next(tables)
    with opened(first.schema) as writer:
        for table in chain((first,), tables):
            writer.write_table(table)


_GROUP = 128
"""Parts of a table in a row group (a record batch): readers go from group to group, and small ones hold them up."""


def _notes(snapshot: SnapshotData) -> dict[str, str]:
    """Metadata of the file: runs and losses as in the JSON of ``--about``."""
    return {"pytrace": about.json_line(snapshot).decode("utf-8", "replace").rstrip()}


def _only(snapshot: SnapshotData, options: WriteOptions, name: str) -> Callable[[bool], Iterator[FlatTable]]:
    """The one table that a file of such a format holds, in parts, in order or not; they can be gone through again."""
    number = options.settings.get("rows")
    if number is not None:
        if not number.isdecimal():
            raise TraceError(f"rows={number}: expected the number of a table of rows, from 1")
        table = named_table(snapshot, "rows", int(number))
        return lambda _ordered: iter((table,))
    names = [*snapshot.maps, *(f"rows={table}" for table in range(1, len(snapshot.tables) + 1))]
    if len(names) != 1:
        hints = (f"--map {next(iter(snapshot.maps), 'rows')} chooses one of them", *_row_hint(snapshot, name))
        there = ", ".join(names) or "nothing"
        raise TraceError(f"a file of format {name} holds one table; the snapshot has {there}", hints=hints)
    if snapshot.maps:
        data = next(iter(snapshot.maps.values()))
        return lambda ordered: map_parts(data, ordered=ordered)
    table = _rows_table(snapshot, snapshot.tables[0])
    return lambda _ordered: iter((table,))


def _row_hint(snapshot: SnapshotData, name: str) -> tuple[str, ...]:
    return (f"-f {name}:rows=1 takes the first table of rows",) if snapshot.tables else ()


# ---------------------------------------------------------------------------------------------- flat tables


def named_table(snapshot: SnapshotData, name: str, number: int = 1) -> FlatTable:
    """The map *name* (with or without ``@``), or for ``rows`` the table of rows of that number, from 1.

    Raises:
        TraceError: there is none.
    """
    for known in (name, f"@{name}"):
        if known in snapshot.maps:
            return map_table(snapshot.maps[known])
    if name == "rows" and 1 <= number <= len(snapshot.tables):
        return _rows_table(snapshot, snapshot.tables[number - 1])
    there = [*snapshot.maps, *(["rows"] if snapshot.tables else [])]
    if name == "rows":
        raise TraceError(f"the snapshot has {len(snapshot.tables)} tables of rows, and no number {number}")
    hints = did_you_mean(name, there) or ("there are " + (", ".join(there) or "none"),)
    raise TraceError(f"there is no map {name!r} in the snapshot", hints=hints)


def map_table(data: MapData) -> FlatTable:
    """A map as a table with the columns of ``-f csv``.

    Entries are in the order in which the map prints. A histogram has a row for each bucket from the first to the last
    that counted something, a time series one for each interval with a sample.
    """
    parts = list(map_parts(data))
    return parts[0] if len(parts) == 1 else FlatTable.joined(parts)


def map_parts(data: MapData, *, ordered: bool = True) -> Iterator[FlatTable]:
    """The table of :func:`map_table` in parts; one without rows if there are none. *ordered*: as the map prints."""
    of_key, of_value = data.key_columns, value_columns(data.title, data.value)
    keys = _parts(data.key, of_key) if data.key is not None else _no_parts
    values = _values(data.value, of_value)
    schema = TableSchema((*of_key, *of_value))
    times = {f"{data.title}.start"} if isinstance(data.value, types.TSeries) else set()
    empty = True
    unordered = external_sort.batches(data.entries.items(), external_sort.CHUNK)
    for block in Printers().portable_in_order(data) if ordered else unordered:
        empty = False
        yield _table(data.name, schema, [(*keys(key), *row) for key, value in block for row in values(value)], times)
    if empty:
        yield _table(data.name, schema, [], times)


def _rows_table(snapshot: SnapshotData, table: Table) -> FlatTable:
    """The rows of ``row()`` statements of one shape, of all runs."""
    schema = TableSchema.of(("",), (table.type,))
    parts = _parts(table.type, schema.columns)
    return _table("rows", schema, [parts(row) for row in rows_of(snapshot, table)])


def _table(name: str, schema: TableSchema, rows: list[_Row], times: Set[str] = frozenset()) -> FlatTable:
    columns = zip(*rows, strict=True) if rows else [() for _ in schema.columns]
    return FlatTable(name, tuple(
        FlatColumn(
            column.name, ColumnKind.TIME if column.name in times else _kind(column.type), list(values), column.unit
        )
        for column, values in zip(schema.columns, columns, strict=True)
    ))  # fmt: skip


_Parts = Callable[[Plain], _Row]
"""From a portable value to those of its columns."""

_KINDS = {
    Held.BOOL: ColumnKind.BOOL, Held.FLOAT: ColumnKind.FLOAT, Held.BYTES: ColumnKind.BYTES,
    Held.STACK: ColumnKind.LINES,
}  # fmt: skip


def _kind(type_: types.Type) -> ColumnKind:
    """The kind of a column; values without one are text."""
    if isinstance(type_, types.Fixed):
        return ColumnKind.FLOAT
    if isinstance(type_, types.Int | types.Count | types.Signed):
        return ColumnKind.SIGNED if type_.signed else ColumnKind.UNSIGNED
    if isinstance(type_, types.Pointer):
        return ColumnKind.UNSIGNED
    return _KINDS.get(value_kind_of(type_).held, ColumnKind.TEXT)


def _no_parts(_key: object) -> _Row:
    return ()


def _parts(type_: types.Type, columns: Sequence[Column]) -> _Parts:
    converted = [_converter(column.type) for column in columns]
    flat = _flattened(type_)
    if len(columns) == 1:
        only = converted[0]
        return lambda value: (only(flat(value)[0]),)
    return lambda value: tuple([convert(item) for convert, item in zip(converted, flat(value), strict=True)])


def _flattened(type_: types.Type) -> Callable[[Plain], list[Plain]]:
    """The members of a value, at any nesting of records and tuples."""
    if not isinstance(type_, types.Record | types.Tuple) or not type_.members:
        return lambda value: [value]
    inner = [_flattened(member) for member in type_.members]
    return lambda value: [item for part, member in zip(inner, value, strict=True) for item in part(member)]


def _converter(type_: types.Type) -> Callable[[Plain], Plain]:
    """From a portable value to one of a column."""
    if isinstance(type_, types.Avg):
        return lambda value: truncated(*value)
    if isinstance(type_, types.Fixed):
        return type_.number
    kind = _kind(type_)
    if kind not in (ColumnKind.TEXT, ColumnKind.LINES):
        return lambda value: value
    shown = Printers().portable_text(type_)
    if kind is ColumnKind.LINES:
        return lambda value: [text.escaped_utf8(line.strip()) for line in shown(value).split(b"\n") if line.strip()]
    return lambda value: text.escaped_utf8(shown(value))


def _values(type_: types.Type, columns: Sequence[Column]) -> Callable[[Plain], list[_Row]]:
    """The rows of a value, without its key."""
    if isinstance(type_, types.Stats):
        return lambda value: [(value[1], truncated(*value), value[0])]
    if isinstance(type_, types.Hist | types.LHist):
        return _buckets(type_)
    if isinstance(type_, types.TSeries):
        return _intervals(type_)
    parts = _parts(type_, columns)
    return lambda value: [parts(value)]


def _buckets(type_: types.Hist | types.LHist) -> Callable[[Plain], list[_Row]]:
    shape = histogram.shape(type_)
    ends = {
        number: (bucket.low, None if bucket.high is None else bucket.high - 1)
        for number, bucket in enumerate(histogram.used(shape, [1] * shape.buckets))
    }

    def rows(value: dict[int, int]) -> list[_Row]:
        places = [number for number, count in value.items() if count]
        shown = range(min(places), max(places) + 1) if places else ()
        return [(*ends[number], value.get(number, 0)) for number in shown]

    return rows


def _intervals(type_: types.TSeries) -> Callable[[Plain], list[_Row]]:
    def rows(value: dict[int, tuple[int, int]]) -> list[_Row]:
        merged = tseries.merged(type_, [(number + 1, *item) for number, item in value.items()])
        return [(number * type_.interval, item) for number, item in sorted(merged.items())]

    return rows
