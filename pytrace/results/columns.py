"""Keys and values of snapshots as columns: typed lists of one kind, which msgspec encodes and decodes.

Integers are :class:`Numbers`, texts are lists of bytes (they may be no UTF-8), members of tuples and parts of
aggregations are columns of their own. A row of :data:`ROWS` says for each type what its column is; msgspec checks a
column against it. Every value takes at least a byte, so that a file holds no more values than bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Generic, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.core.types import Type
from pytrace.results.stored_tables import (
    Column,
    Numbers,
    TablesReader,
    TablesWriter,
    counted,
    lengths_of,
    raw,
    runs,
    text,
    tuple_of,
)  # fmt: skip
from pytrace.results.values import Counts, Portable, Series, StackTrace, Value


def form(type_: Type) -> Any:
    """The type that msgspec decodes columns of values of a type as."""
    return ROWS[type(type_)].form(type_)


def pack(tables: TablesWriter, type_: Type, values: Sequence[Value]) -> Column:
    """The column of portable values of a type."""
    return ROWS[type(type_)].pack(tables, type_, values)


def unpack(tables: TablesReader, type_: Type, column: Any, count: int) -> list[Value]:
    """The *count* portable values of a type that a column holds, which was decoded as :func:`form`.

    Raises:
        ValueError, LookupError: it is damaged.
    """
    return ROWS[type(type_)].unpack(tables, type_, column, count)


_K = TypeVar("_K", bound=Type)
_V = TypeVar("_V", bound=Value)


class Row(msgspec.Struct, Generic[_K, _V], frozen=True):
    """How columns of one class of types are written and read."""

    form: Callable[[_K], Any]
    """The type of the column, for msgspec."""
    pack: Callable[[TablesWriter, _K, Sequence[_V]], Column]
    unpack: Callable[[TablesReader, _K, Any, int], list[_V]]


def _plain(form: Any, pack: Callable[[Sequence[_V]], Column], unpack: Callable[[Any, int], list[_V]]) -> Row[Type, _V]:
    """A row that depends neither on the type nor on the tables."""
    return Row(
        lambda _type: form,
        lambda _tables, _type, values: pack(values),
        lambda _tables, _type, column, count: unpack(column, count),
    )


def _bools(column: Numbers, count: int) -> list[bool]:
    return [bool(value) for value in column.values(count)]


def _texts(column: list[bytes], count: int) -> list[str]:
    return [text(data) for data in counted(column, count)]


def _unpack_stacks(tables: TablesReader, _type: Type, column: Numbers, count: int) -> list[StackTrace]:
    return [tables.stack(number) for number in column.values(count)]


def _empty(column: bytes, count: int) -> list[tuple[Portable, ...]]:
    """Tuples without members: a byte for each."""
    if len(column) != count:
        raise ValueError(f"{len(column)} empty values where {count} should be")
    return [()] * count


def _members(of: Callable[[_K], Sequence[Type]]) -> Row[_K, tuple[Portable, ...]]:
    """Tuples: a column for each member."""

    def form_of(type_: _K) -> Any:
        members = list(map(form, of(type_)))
        return tuple_of(members) if members else bytes

    def packed(tables: TablesWriter, type_: _K, values: Sequence[tuple[Portable, ...]]) -> Column:
        members = of(type_)
        if not members:
            return bytes(len(values))
        return tuple(pack(tables, part, column) for part, column in zip(members, _turned(values, members), strict=True))

    def unpacked(tables: TablesReader, type_: _K, column: Any, count: int) -> list[tuple[Portable, ...]]:
        members = of(type_)
        if not members:
            return _empty(column, count)
        parts = [unpack(tables, part, values, count) for part, values in zip(members, column, strict=True)]
        return cast("list[tuple[Portable, ...]]", list(zip(*parts, strict=True)))

    return Row(form_of, packed, unpacked)


def _turned(values: Sequence[tuple[Portable, ...]], members: Sequence[Type]) -> Iterable[Sequence[Portable]]:
    return zip(*values, strict=True) if values else [() for _ in members]


def _array_form(type_: types.Array) -> Any:
    return form(type_.element) if type_.count else bytes


def _pack_array(tables: TablesWriter, type_: types.Array, values: Sequence[tuple[Portable, ...]]) -> Column:
    if not type_.count:
        return bytes(len(values))
    return pack(tables, type_.element, list(chain.from_iterable(values)))


def _unpack_array(tables: TablesReader, type_: types.Array, column: Any, count: int) -> list[tuple[Portable, ...]]:
    if not type_.count:
        return _empty(column, count)
    elements = iter(cast("list[Portable]", unpack(tables, type_.element, column, count * type_.count)))
    return [tuple(islice(elements, type_.count)) for _ in range(count)]


def _struct_members(type_: types.Struct) -> list[Type]:
    return [field.type for field in types.named_fields(type_)]


def _record_members(type_: types.Record | types.Tuple) -> Sequence[Type]:
    return type_.members


def _pack_pairs(values: Sequence[tuple[int, int]]) -> Column:
    return Numbers.of([value[0] for value in values]), Numbers.of([value[1] for value in values])


def _pairs(column: tuple[Numbers, Numbers], count: int) -> list[tuple[int, int]]:
    totals, counts = column
    return list(zip(totals.values(count), counts.values(count), strict=True))


def _pack_buckets(_tables: TablesWriter, _type: Type, values: Sequence[Counts]) -> Column:
    counts = Numbers.of([count for value in values for count in value.values()])
    return (*runs([list(value) for value in values]), counts)


def _unpack_buckets(_tables: TablesReader, type_: types.Hist | types.LHist, column: Any, count: int) -> list[Counts]:
    lengths, *parts = column
    sizes = lengths_of(lengths, count)
    buckets, counts = (part.values(sum(sizes)) for part in parts)
    if not 0 <= min(buckets, default=0) <= max(buckets, default=0) < type_.buckets:
        raise ValueError("a histogram has a bucket outside of its type")
    items = zip(buckets, counts, strict=True)
    return [dict(islice(items, size)) for size in sizes]


def _pack_series(values: Sequence[Series]) -> Column:
    items = [item for value in values for item in value.values()]
    return (*runs([list(value) for value in values]), *(Numbers.of([item[at] for item in items]) for at in range(2)))


def _series(column: tuple[Numbers, ...], count: int) -> list[Series]:
    lengths, *parts = column
    sizes = lengths_of(lengths, count)
    numbers, values, metas = (part.values(sum(sizes)) for part in parts)
    items = zip(numbers, zip(values, metas, strict=True), strict=True)
    return [dict(islice(items, size)) for size in sizes]


def _form(type_: Any) -> Callable[[Type], Any]:
    return lambda _type: type_


_INTEGERS: Row[Type, int] = _plain(Numbers, Numbers.of, Numbers.values)
_BOOLS: Row[Type, bool] = _plain(Numbers, Numbers.of, _bools)
_STRINGS: Row[Type, str] = _plain(list[bytes], lambda values: [raw(value) for value in values], _texts)
_BYTES: Row[Type, bytes] = _plain(list[bytes], list, counted)
_PAIRS: Row[Type, tuple[int, int]] = _plain(tuple[Numbers, Numbers], _pack_pairs, _pairs)
_STACKS: Row[Type, StackTrace] = Row(
    _form(Numbers), lambda tables, _type, values: Numbers.of([tables.stack(value) for value in values]), _unpack_stacks
)
_TUPLES = _members(_record_members)
_BUCKETS = Row(_form(tuple[Numbers, Numbers, Numbers]), _pack_buckets, _unpack_buckets)
_SERIES: Row[Type, Series] = _plain(tuple[Numbers, Numbers, Numbers, Numbers], _pack_series, _series)


def _row(kind: type[_K], row: Row[_K, _V]) -> tuple[type[Type], Row[Type, Value]]:
    """A row of the table, whose functions are only called with types of its own class and their values."""
    return kind, cast("Row[Type, Value]", row)


ROWS: dict[type[Type], Row[Type, Value]] = dict((
    _row(types.Bool, _BOOLS),
    _row(types.Int, _INTEGERS),
    _row(types.Enum, _INTEGERS),
    _row(types.Pointer, _INTEGERS),
    _row(types.String, _STRINGS),
    _row(types.Buffer, _BYTES),
    _row(types.Array, Row(_array_form, _pack_array, _unpack_array)),
    _row(types.Tuple, _TUPLES),
    _row(types.Record, _TUPLES),
    _row(types.Struct, _members(_struct_members)),
    _row(types.Stack, _STACKS),
    _row(types.KSym, _STRINGS),
    _row(types.USym, _STRINGS),
    _row(types.Inet, _STRINGS),
    _row(types.Mac, _STRINGS),
    _row(types.Timestamp, _STRINGS),
    _row(types.Username, _STRINGS),
    _row(types.InterfaceName, _STRINGS),
    _row(types.NetworkNamespace, _STRINGS),
    _row(types.CgroupPath, _STRINGS),
    _row(types.Fixed, _INTEGERS),
    _row(types.Joined, _STRINGS),
    _row(types.Count, _INTEGERS),
    _row(types.Sum, _INTEGERS),
    _row(types.Avg, _PAIRS),
    _row(types.Stats, _PAIRS),
    _row(types.Min, _INTEGERS),
    _row(types.Max, _INTEGERS),
    _row(types.Hist, _BUCKETS),
    _row(types.LHist, _BUCKETS),
    _row(types.TSeries, _SERIES),
))
"""How columns of each type are written and read."""
