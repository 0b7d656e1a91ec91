"""Table schemas: named, flat columns for a script's ``row()`` statements and for map entries.

A value of a record or tuple type has a column for each of its members, at any nesting: ``a.b`` is the member ``b`` of
the record ``a``, ``a.0`` the first of the tuple ``a``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from pytrace.core.event_layout import EventLayout, EventSpec, RowMembers
from pytrace.core.types import (
    INT64,
    UINT64,
    Array,
    Avg,
    Buffer,
    Count,
    Enum,
    Fixed,
    Float,
    Hist,
    Int,
    Joined,
    LHist,
    Max,
    Min,
    Record,
    Stats,
    String,
    Struct,
    Sum,
    Timestamp,
    TSeries,
    Tuple,
    Type,
    shown_name,
)

UNITS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "kb": "KB", "mb": "MB", "bytes": "bytes"}
"""Units by the suffix of a number's name: ``lat_us`` is in microseconds."""

_MAP_UNITS = {**UNITS, "nsecs": "ns", "usecs": "us", "msecs": "ms", "secs": "s"}

INTEGERS = (Int, Count, Sum, Avg, Min, Max)
"""Types whose values are decoded as integers and print as such."""

RIGHT = (*INTEGERS, Fixed, Float)
"""Types whose values are right-aligned and may have a unit."""

JOINED_TEXTS = Joined("", ())
"""The type of a column whose joined values have different parts: they are decoded as their printed text."""


class Column(msgspec.Struct, frozen=True):
    """A column: *unit* is one of the values of :data:`UNITS`, or empty.

    *quoted* is the path of a member whose name is in quotes in the script (:class:`Record`), else empty.
    """

    name: str
    type: Type
    unit: str = ""
    quoted: str = ""

    @classmethod
    def of(cls, path: str, type_: Type) -> Column:
        """A column whose unit is taken from its name's suffix, unless the name is in quotes."""
        if '"' in path:
            return cls(shown_name(path), type_, "", path)
        stem, underscore, end = path.rpartition("_")
        known = bool(stem) and bool(underscore) and isinstance(type_, RIGHT)
        return cls(path, type_, UNITS.get(end, "") if known else "")

    @property
    def path(self) -> str:
        """The path of the member, with quotes."""
        return self.quoted or self.name

    @property
    def number(self) -> bool:
        """Whether values are decoded and printed as integers."""
        return isinstance(self.type, INTEGERS)

    @property
    def right(self) -> bool:
        """Whether values are right-aligned."""
        return isinstance(self.type, RIGHT)

    @property
    def title(self) -> str:
        """The column's header in a table for people: ``LAT(us)`` for ``lat_us``; a name in quotes as it is."""
        if self.quoted:
            return self.name
        stem = self.name.rpartition("_")[0] if self.unit else self.name
        return f"{stem.upper()}({self.unit})" if self.unit else stem.upper()

    @property
    def shape(self) -> tuple[str, str]:
        """Name, and type without width: equal for columns of one table."""
        type_ = self.type
        if isinstance(type_, Int | String | Buffer):
            return self.path, type_.tag
        if isinstance(type_, Fixed):
            return self.path, f"{type_.tag} {type_.divisor} {type_.digits} {type_.path}"
        return self.path, f"{type_.tag} {type_}" if isinstance(type_, Enum | Array | Struct) else type_.tag

    def joined(self, other: Column) -> Column:
        """A column that can hold the values of both: the wider integer, the longer string."""
        own, others = self.type, other.type
        if isinstance(own, Int) and isinstance(others, Int):
            return replace(self, type=_wider(own, others))
        if isinstance(own, String | Buffer) and others.size > own.size:
            return replace(self, type=others)
        if isinstance(own, Fixed) and isinstance(others, Fixed):
            return replace(self, type=own if own.signed else others)
        return replace(self, type=JOINED_TEXTS) if isinstance(own, Joined) and own != others else self


def _wider(first: Int, second: Int) -> Int:
    """An integer type for values of both; ``int64`` for ``int64`` and ``uint64``."""
    if first.signed == second.signed:
        return max(first, second, key=lambda kind: kind.width)
    signed, unsigned = (first, second) if first.signed else (second, first)
    return signed if signed.width > unsigned.width else Int(min(8, 2 * unsigned.width), True)


class Leaf(msgspec.Struct, frozen=True):
    """A scalar part of a value: its path (``b.0``; empty for the whole value), type and byte offset."""

    path: str
    type: Type
    offset: int


def leaves(type_: Type, path: str = "", offset: int = 0) -> Iterator[Leaf]:
    """The scalar parts of a value in order: members of records and tuples, at any nesting."""
    if not isinstance(type_, Record | Tuple) or not type_.members:
        yield Leaf(path, type_, offset)
        return
    names = type_.names if isinstance(type_, Record) else tuple(map(str, range(len(type_.members))))
    for name, member, start in zip(names, type_.members, type_.offsets, strict=True):
        yield from leaves(member, joined_path(path, name), offset + start)


def joined_path(path: str, name: str) -> str:
    """The path of the member *name* of the value at *path*."""
    return f"{path}.{name}" if path and name else path or name


class TableSchema(msgspec.Struct, frozen=True):
    """The columns of a table."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, names: Sequence[str], kinds: Sequence[Type]) -> TableSchema:
        """The table of values with these names and types; an empty name stands for a record that is the whole row."""
        return cls(
            tuple(
                Column.of(leaf.path, leaf.type)
                for name, kind in zip(names, kinds, strict=True)
                for leaf in leaves(kind, name)
            )
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the columns, names in quotes with these."""
        return tuple(column.path for column in self.columns)

    @property
    def shape(self) -> tuple[tuple[str, str], ...]:
        """:attr:`Column.shape` of each column: equal for rows of one table."""
        return tuple(column.shape for column in self.columns)

    def joined(self, other: TableSchema) -> TableSchema:
        """A schema that can hold the rows of both, which must have the same shape."""
        pairs = zip(self.columns, other.columns, strict=True)
        return TableSchema(tuple(own.joined(others) for own, others in pairs))


def row_schema(spec: EventSpec) -> TableSchema:
    """The columns of the rows in an event of the kind ``row``."""
    return TableSchema.of(spec.static_part(RowMembers).names, spec.args)


class FlatLayout(EventLayout, frozen=True, dict=True):
    """The layout of the events of *whole* with the members of its records and tuples as arguments of their own."""

    whole: EventLayout
    starts: tuple[int, ...]
    """Value of :attr:`offsets`."""

    @classmethod
    def of(cls, whole: EventLayout) -> FlatLayout:
        """The flat layout of events that are laid out as *whole*."""
        members = [
            (leaf.type, start + leaf.offset)
            for kind, start in zip(whole.args, whole.offsets, strict=True)
            for leaf in leaves(kind)
        ]
        return cls(tuple(kind for kind, _ in members), whole, tuple(start for _, start in members))

    @cached_property
    def tails(self) -> tuple[bool, ...]:
        """For each argument whether it is in the tail; members of records and tuples never are."""
        tailed = {start for start, tail in zip(self.whole.offsets, self.whole.tails, strict=True) if tail}
        return tuple(start in tailed for start in self.starts)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Offset of each argument's fixed part from the start of the event."""
        return self.starts

    @cached_property
    def fixed_size(self) -> int:
        """Bytes of header and fixed part."""
        return self.whole.fixed_size

    @property
    def tail_capacity(self) -> int:
        """The maximum size of the tail in bytes."""
        return self.whole.tail_capacity


class RowTable(msgspec.Struct, frozen=True):
    """A table of a script's ``row()`` statements; *number* counts from 1, in order of first statements."""

    number: int
    schema: TableSchema


def row_tables(statements: Iterable[tuple[int, TableSchema]]) -> dict[int, RowTable]:
    """The table of each ``row()`` statement, by event id; statements of the same shape share a table."""
    schemas: dict[tuple[tuple[str, str], ...], TableSchema] = {}
    shapes: dict[int, tuple[tuple[str, str], ...]] = {}
    for identity, schema in statements:
        shape = shapes[identity] = schema.shape
        known = schemas.get(shape)
        schemas[shape] = schema if known is None else known.joined(schema)
    tables = {shape: RowTable(number, schema) for number, (shape, schema) in enumerate(schemas.items(), 1)}
    return {identity: tables[shape] for identity, shape in shapes.items()}


# ---------------------------------------------------------------------------------------------- maps


def key_columns(type_: Type | None, names: Sequence[str] = ()) -> tuple[Column, ...]:
    """Columns of a map's key: of a record the names of its members, else what the script calls them (*names*), as
    identifiers; what has no name is ``key``, of several ``key1``, ``key2`` ….
    """
    if type_ is None:
        return ()
    if isinstance(type_, Record) and type_.members:
        return TableSchema.of(("",), (type_,)).columns
    if isinstance(type_, Tuple) and type_.members:
        members = type_.members
        # Names are of columns: where a member has several, it is not known which name is of which.
        nested = any(isinstance(member, Record | Tuple) for member in members)
        return TableSchema.of(_identifiers(() if nested else names, len(members), "key{}"), members).columns
    return (Column.of(_identifiers(names, 1, "key")[0], type_),)


def _identifiers(names: Sequence[str], count: int, other: str) -> list[str]:
    """*count* different names of columns; *other* of those that have none."""
    known = names if len(names) == count else ("",) * count
    found: list[str] = []
    for number, name in enumerate(known, 1):
        word = "" if name.startswith('"') else re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
        taken = not word or word[0].isdigit() or word in found or re.fullmatch(r"key\d*", word)
        found.append(other.format(number) if taken else word)
    return found


def map_unit(name: str) -> str:
    """The unit of a map's numbers by its name, or the end of it: ``@usecs``, ``@lat_us``; empty when unknown.

    ``@s`` alone is a name like any other.
    """
    stem, _, end = name.removeprefix("@").rpartition("_")
    return _MAP_UNITS.get(end, "") if stem or end != "s" else ""


def value_columns(name: str, value: Type) -> tuple[Column, ...]:
    """The columns of a map's values, which have the map's name (``@lat``, ``@lat.count``)."""
    unit = map_unit(name)
    parts: list[tuple[str, Type, str]]
    if isinstance(value, Stats):
        parts = [("count", UINT64, ""), ("average", INT64, unit), ("total", INT64, unit)]
    elif isinstance(value, Hist | LHist):
        parts = [("min", INT64, unit), ("max", INT64, unit), ("count", UINT64, "")]
    elif isinstance(value, TSeries):
        parts = [("start", Timestamp(), ""), ("value", INT64, unit)]
    else:
        columns = TableSchema.of((name,), (value,)).columns
        # A map is named more freely than a column: @usecs, @nsecs.
        return (replace(columns[0], unit=unit),) if len(columns) == 1 and columns[0].right else columns
    return tuple(Column(f"{name}.{part}", kind, unit) for part, kind, unit in parts)
