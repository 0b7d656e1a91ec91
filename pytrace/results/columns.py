"""Keys and values of snapshots as columns, which msgspec encodes and decodes with their types.

Integers are :class:`Numbers`, floating-point numbers doubles (little endian), texts are lists of bytes (they may be no
UTF-8), members of tuples and parts of aggregations are columns of their own. Each form in which snapshots hold values
(:class:`pytrace.render.value_kind.Held`) has a row. Every value takes at least a byte, so that a file holds no more
values than bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.core.types import Type
from pytrace.render.value_kind import Held
from pytrace.render.values import one_nan, value_kind_of
from pytrace.results.stored_tables import (
    Column,
    Form,
    Numbers,
    TablesReader,
    TablesWriter,
    counted,
    lengths_of,
    raw,
    runs,
    text,
    tuple_of,
)
from pytrace.results.values import Counts, Pair, Portable, Series, StackTrace, Value

_V = TypeVar("_V")
_C = TypeVar("_C")


def form(type_: Type) -> Form:
    """The type that msgspec decodes columns of values of a type as."""
    return _row(type_).form(type_)


def pack(tables: TablesWriter, type_: Type, values: Sequence[Value]) -> Column:
    """The column of portable values of a type."""
    return _row(type_).pack(tables, type_, values)


def unpack(tables: TablesReader, type_: Type, column: Column, count: int) -> list[Value]:
    """The *count* portable values of a type that a column holds, which was decoded as :func:`form`.

    Raises:
        ValueError, LookupError: it is damaged.
    """
    return _row(type_).unpack(tables, type_, column, count)


class Row(msgspec.Struct, Generic[_V, _C], frozen=True):
    """Writing and reading of columns of one form."""

    form: Callable[[Type], Form]
    """The type of the column, for msgspec."""
    pack: Callable[[TablesWriter, Type, Sequence[_V]], Column]
    unpack: Callable[[TablesReader, Type, _C, int], list[_V]]


def _any(row: Row[_V, _C]) -> Row[Value, Column]:
    """A row of the table, whose functions are only called with values and columns of its own form."""
    return cast("Row[Value, Column]", row)


def _plain(
    form: Form, pack: Callable[[Sequence[_V]], Column], unpack: Callable[[_C, int], list[_V]]
) -> Row[Value, Column]:
    """A row that depends neither on the type nor on the tables."""
    return _any(Row(
        lambda _type: form,
        lambda _tables, _type, values: pack(values),
        lambda _tables, _type, column, count: unpack(column, count),
    ))  # fmt: skip


def _bools(column: Numbers, count: int) -> list[bool]:
    return [bool(value) for value in column.values(count)]


def _pack_fractions(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def _fractions(column: bytes, count: int) -> list[float]:
    if len(column) != 8 * count:
        raise ValueError(f"{len(column)} bytes of floating-point numbers where {count} of 8 bytes should be")
    return [one_nan(value) for value in struct.unpack(f"<{count}d", column)]


def _texts(column: list[bytes], count: int) -> list[str]:
    return [text(data) for data in counted(column, count)]


def _pack_stacks(tables: TablesWriter, _type: Type, values: Sequence[StackTrace]) -> Column:
    return Numbers.of([tables.stack(value) for value in values])


def _unpack_stacks(tables: TablesReader, _type: Type, column: Numbers, count: int) -> list[StackTrace]:
    return [tables.stack(number) for number in column.values(count)]


# ---- members: a column for each; without members, a byte for each value


def _members_form(type_: Type) -> Form:
    members = list(map(form, types.member_types(type_)))
    return tuple_of(members) if members else bytes


def _pack_members(tables: TablesWriter, type_: Type, values: Sequence[tuple[Portable, ...]]) -> Column:
    members = types.member_types(type_)
    if not members:
        return bytes(len(values))
    turned = zip(*values, strict=True) if values else [()] * len(members)
    return tuple(pack(tables, part, column) for part, column in zip(members, turned, strict=True))


def _unpack_members(
    tables: TablesReader, type_: Type, column: tuple[Column, ...] | bytes, count: int
) -> list[tuple[Value, ...]]:
    if isinstance(column, bytes):
        return _empty(column, count)
    pairs = zip(types.member_types(type_), column, strict=True)
    return list(zip(*(unpack(tables, part, values, count) for part, values in pairs), strict=True))


def _empty(column: bytes, count: int) -> list[tuple[Value, ...]]:
    if len(column) != count:
        raise ValueError(f"{len(column)} empty values where {count} should be")
    return [()] * count


# ---- arrays: one column of all elements


def _array_form(type_: Type) -> Form:
    assert isinstance(type_, types.Array)
    return form(type_.element) if type_.count else bytes


def _pack_array(tables: TablesWriter, type_: Type, values: Sequence[tuple[Portable, ...]]) -> Column:
    assert isinstance(type_, types.Array)
    return pack(tables, type_.element, list(chain.from_iterable(values))) if type_.count else bytes(len(values))


def _unpack_array(tables: TablesReader, type_: Type, column: Column, count: int) -> list[tuple[Value, ...]]:
    assert isinstance(type_, types.Array)
    if not type_.count:
        assert isinstance(column, bytes)
        return _empty(column, count)
    elements = iter(unpack(tables, type_.element, column, count * type_.count))
    return [tuple(islice(elements, type_.count)) for _ in range(count)]


# ---- aggregations


def _pack_pairs(values: Sequence[Pair]) -> Column:
    return Numbers.of([value[0] for value in values]), Numbers.of([value[1] for value in values])


def _pairs(column: tuple[Numbers, Numbers], count: int) -> list[Pair]:
    totals, counts = column
    return list(zip(totals.values(count), counts.values(count), strict=True))


def _pack_buckets(_tables: TablesWriter, _type: Type, values: Sequence[Counts]) -> Column:
    counts = Numbers.of([count for value in values for count in value.values()])
    return (*runs([list(value) for value in values]), counts)


def _unpack_buckets(_tables: TablesReader, type_: Type, column: tuple[Numbers, ...], count: int) -> list[Counts]:
    assert isinstance(type_, types.Hist | types.LHist)
    lengths, *parts = column
    sizes = lengths_of(lengths, count)
    buckets, counts = (part.values(sum(sizes)) for part in parts)
    if not 0 <= min(buckets, default=0) <= max(buckets, default=0) < type_.buckets:
        raise ValueError("a histogram has a bucket outside of its type")
    items = zip(buckets, counts, strict=True)
    return [dict(islice(items, size)) for size in sizes]


def _pack_series(values: Sequence[Series]) -> Column:
    items = [item for value in values for item in value.values()]
    lists = [list(value) for value in values]
    return (*runs(lists), Numbers.of([value for value, _ in items]), Numbers.of([meta for _, meta in items]))


def _series(column: tuple[Numbers, ...], count: int) -> list[Series]:
    lengths, *parts = column
    sizes = lengths_of(lengths, count)
    numbers, values, metas = (part.values(sum(sizes)) for part in parts)
    items = zip(numbers, zip(values, metas, strict=True), strict=True)
    return [dict(islice(items, size)) for size in sizes]


ROWS: dict[Held, Row[Value, Column]] = {
    Held.BOOL: _plain(Numbers, Numbers.of, _bools),
    Held.INTEGER: _plain(Numbers, Numbers.of, Numbers.values),
    Held.FLOAT: _plain(bytes, _pack_fractions, _fractions),
    Held.TEXT: _plain(list[bytes], lambda values: [raw(value) for value in values], _texts),
    Held.BYTES: _plain(list[bytes], list, counted),
    Held.STACK: _any(Row(lambda _type: Numbers, _pack_stacks, _unpack_stacks)),
    Held.ARRAY: _any(Row(_array_form, _pack_array, _unpack_array)),
    Held.MEMBERS: _any(Row(_members_form, _pack_members, _unpack_members)),
    Held.PAIR: _plain(tuple[Numbers, Numbers], _pack_pairs, _pairs),
    Held.COUNTS: _any(Row(lambda _type: tuple[Numbers, Numbers, Numbers], _pack_buckets, _unpack_buckets)),
    Held.SERIES: _plain(tuple[Numbers, Numbers, Numbers, Numbers], _pack_series, _series),
}
"""Writing and reading of columns of each form."""


def _row(type_: Type) -> Row[Value, Column]:
    return ROWS[value_kind_of(type_).held]
