"""Tables with a Python list for each column, and what other libraries make of them: Arrow, pandas, Polars.

The libraries are imported when they are asked for; the extra ``arrow`` (``pandas``, ``polars``) brings
them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from pytrace.base import extras
from pytrace.core.diagnostics import TraceError

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
