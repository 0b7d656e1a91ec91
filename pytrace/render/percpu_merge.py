"""Joining the copies that CPUs keep of a map's value, and how values order and divide: a row for each type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated, wrapped
from pytrace.render.decoders import Value, Values, integer_code
from pytrace.render.forms import Decoders

T = TypeVar("T", bound=types.Type)
V = TypeVar("V")

Intervals = tuple[tuple[int, int, int], ...]
Merge = Callable[[bytes], V]
"""Joins the copies of all CPUs, in a row, to one decoded value."""


class Row(msgspec.Struct, Generic[T, V], frozen=True):
    """What differs between types of map values.

    *merge* makes, for a type of the row's class, the function that joins the copies of all CPUs; *rank* is what
    entries are ordered by before the key (None: by key alone). *subtract* takes an earlier merged value off a later one
    where that makes sense.
    """

    merge: Callable[[T, int, Decoders], Merge[V]]
    rank: Callable[[V], Value] | None = None
    subtract: Callable[[V, V], V] | None = None
    json_type: str = "map"


def _single(kind: types.Type, _size: int, decoders: Decoders) -> Merge[Value]:
    decode = decoders.decoder(kind)
    return lambda data: decode(data, 0)


def _words(data_size: int, code: str) -> Callable[[bytes], tuple[int, ...]]:
    return struct.Struct(f"={data_size // 8}{code}").unpack


def _number(kind: types.Int, size: int, decoders: Decoders) -> Merge[Value]:
    if size <= max(8, kind.size):
        return _single(kind, size, decoders)
    # A plain number in a per-CPU map: each copy takes 8 bytes.
    wrap = wrapped(kind.signed)
    one = struct.Struct("=" + integer_code(kind.width, kind.signed)).unpack_from
    return lambda data: wrap(sum(one(data, at)[0] for at in range(0, size, 8)))


def _count(_kind: types.Type, size: int, _decoders: Decoders) -> Merge[int]:
    words = _words(size, "Q")
    return lambda data: sum(words(data))


def _sum(kind: types.Sum, size: int, _decoders: Decoders) -> Merge[int]:
    signed = kind.signed
    wrap, words = wrapped(signed), _words(size, "q" if signed else "Q")
    return lambda data: wrap(sum(words(data)))


def _pairs(kind: types.Avg | types.Stats, size: int, _decoders: Decoders) -> Merge[tuple[int, int]]:
    signed = kind.signed
    wrap, words = wrapped(signed), struct.Struct("=" + ("qQ" if signed else "QQ") * (size // 16)).unpack

    def merge(data: bytes) -> tuple[int, int]:
        found = words(data)
        return wrap(sum(found[::2])), sum(found[1::2])

    return merge


def _extreme(kind: types.Min | types.Max, size: int, _decoders: Decoders) -> Merge[tuple[int, int]]:
    value, words = kind.value, _words(size, "Q")

    def merge(data: bytes) -> tuple[int, int]:
        found = words(data)
        # A CPU that has seen nothing has the least rank.
        return (value(max(found[::2])), 1) if any(found[1::2]) else (0, 0)

    return merge


def _buckets(kind: types.Hist | types.LHist, size: int, _decoders: Decoders) -> Merge[tuple[int, ...]]:
    count = kind.buckets
    words = _words(size, "Q")

    def merge(data: bytes) -> tuple[int, ...]:
        found = words(data)
        return tuple(map(sum, zip(*(found[at : at + count] for at in range(0, len(found), count)), strict=True)))

    return merge


def _series(kind: types.TSeries, _size: int, _decoders: Decoders) -> Merge[Intervals]:
    one = struct.Struct(f"=Q{'q' if kind.signed else 'Q'}Q")
    return lambda data: tuple(item for item in one.iter_unpack(data) if item[0])


def itself(value: V) -> V:
    """The value as it is."""
    return value


def _average(value: tuple[int, int]) -> int:
    return truncated(*value)


def _minus(new: int, old: int) -> int:
    return new - old


def _pair_minus(new: tuple[int, int], old: tuple[int, int]) -> tuple[int, int]:
    return new[0] - old[0], new[1] - old[1]


def _all_minus(new: Sequence[int], old: Sequence[int]) -> tuple[int, ...]:
    return tuple(first - second for first, second in zip(new, old, strict=True))


def _row(kind: type[T], row: Row[T, V]) -> tuple[type[types.Type], Row[types.Type, Value]]:
    """A row of the table, whose functions are only called with types of its own class and their values."""
    return kind, cast("Row[types.Type, Value]", row)


ROWS: dict[type[types.Type], Row[types.Type, Value]] = dict((
    _row(types.Int, Row(_number, itself)),
    _row(types.Enum, Row(_single, itself)),
    _row(types.Fixed, Row(_single, itself)),
    _row(types.Count, Row(_count, itself, _minus)),
    _row(types.Sum, Row(_sum, itself, _minus)),
    _row(types.Min, Row(_extreme, lambda value: value[0])),
    _row(types.Max, Row(_extreme, lambda value: value[0])),
    _row(types.Avg, Row(_pairs, _average, _pair_minus, "stats")),
    _row(types.Stats, Row(_pairs, _average, _pair_minus, "stats")),
    _row(types.Hist, Row(_buckets, sum, _all_minus, "hist")),
    _row(types.LHist, Row(_buckets, sum, _all_minus, "hist")),
    _row(types.TSeries, Row(_series, lambda value: max((item[0] for item in value), default=0), None, "tseries")),
))
OTHER = Row(_single)
"""Values that one CPU keeps, ordered by key."""

BUCKETED = (types.Hist, types.LHist, types.TSeries)
"""Types whose keyed maps have an entry for each bucket, and whose text takes several lines."""


def intervals_of(value: Value) -> Intervals:
    """The merged value of a ``TSeries``."""
    return cast("Intervals", value)


def counts_of(value: Value) -> tuple[int, ...]:
    """The merged value of a ``Hist`` or ``LHist``."""
    return cast("tuple[int, ...]", value)


def _least_divided(value: tuple[int, int], div: int) -> tuple[int, int]:
    return truncated(value[0], div), value[1]


def _average_divided(value: tuple[int, int], div: int) -> tuple[int, int]:
    return truncated(truncated(*value), div), 1


def _buckets_divided(value: tuple[int, ...], div: int) -> tuple[int, ...]:
    return tuple(count // div for count in value)


def _each(value: Values, parts: Sequence[Callable[[Value], Value]]) -> Values:
    return tuple(part(item) for part, item in zip(parts, value, strict=True))


def divided(kind: types.Type, div: int) -> Callable[[Value], Value]:
    """How ``div`` changes a decoded value: numbers at any nesting, rounded towards zero; the rest stays."""
    if isinstance(kind, types.Int | types.Count | types.Sum):
        return partial(truncated, count=div)
    if isinstance(kind, types.Min | types.Max):
        return partial(_least_divided, div=div)
    if isinstance(kind, types.Avg):
        return partial(_average_divided, div=div)
    if isinstance(kind, types.Hist):
        return partial(_buckets_divided, div=div)
    if isinstance(kind, types.Array):
        parts = [divided(kind.element, div)] * kind.count
    elif isinstance(kind, types.Members):
        parts = [divided(member, div) for member in kind.members]
    elif isinstance(kind, types.Struct):
        parts = [divided(field.type, div) for field in types.named_fields(kind)]
    else:
        return itself
    return partial(_each, parts=parts)
