"""Merging of the per-CPU copies of map values, and the order, difference and division of merged values.

:mod:`pytrace.render.value_types` says which :class:`Merging` and which division each type has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, Never, TypeAlias, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated, wrapped
from pytrace.render.decoders import Value, Values, integer_code

if TYPE_CHECKING:
    from pytrace.render.forms import Decoders

T = TypeVar("T", bound=types.Type)
V = TypeVar("V")

Counts: TypeAlias = tuple[int, ...]
"""The merged value of a ``Hist`` or ``LHist``."""
Intervals: TypeAlias = tuple[tuple[int, int, int], ...]
"""The merged value of a ``TSeries``."""
Merge: TypeAlias = Callable[[bytes], V]
"""Merges the copies of all CPUs, which lie one after another, to one decoded value."""
Divide: TypeAlias = Callable[[Never, int], Value]
"""Divides a merged value."""


class OneMerging(msgspec.Struct, Generic[T, V], frozen=True, eq=False):
    """The properties of types whose values merge in the same way."""

    merge: Callable[[T, int, Decoders], Merge[V]]
    """Creates the function that merges the copies of a type, all of which take so many bytes together."""
    rank: Callable[[V], Value] | None = None
    """The number by which entries of a map are sorted before their keys; None: they are sorted by key alone."""
    subtract: Callable[[V, V], V] | None = None
    """Subtracts an earlier merged value from a later one."""
    json_type: str = "map"
    bucketed: bool = False
    """Keyed maps have an entry for each bucket, and the text of a value takes several lines."""


Merging: TypeAlias = OneMerging[types.Type, Value]
"""The same in the table of types, for which it is called with types and values of the row's own class."""


def _single(type_: types.Type, _size: int, decoders: Decoders) -> Merge[Value]:
    decode = decoders.decoder(type_)
    return lambda data: decode(data, 0)


def _words(data_size: int, code: str) -> Callable[[bytes], tuple[int, ...]]:
    return struct.Struct(f"={data_size // 8}{code}").unpack


def _number(type_: types.Int, size: int, decoders: Decoders) -> Merge[Value]:
    if size <= max(8, type_.size):
        return _single(type_, size, decoders)
    # A plain number in a per-CPU map: each copy takes 8 bytes.
    wrap = wrapped(type_.signed)
    one = struct.Struct("=" + integer_code(type_.width, type_.signed)).unpack_from
    return lambda data: wrap(sum(one(data, offset)[0] for offset in range(0, size, 8)))


def _sum(type_: types.Count | types.Sum, size: int, _decoders: Decoders) -> Merge[int]:
    wrap, words = wrapped(type_.signed), _words(size, "q" if type_.signed else "Q")
    return lambda data: wrap(sum(words(data)))


def _pairs(type_: types.Avg | types.Stats, size: int, _decoders: Decoders) -> Merge[tuple[int, int]]:
    wrap, unpack = wrapped(type_.signed), struct.Struct("=" + ("qQ" if type_.signed else "QQ") * (size // 16)).unpack

    def merge(data: bytes) -> tuple[int, int]:
        words = unpack(data)
        return wrap(sum(words[::2])), sum(words[1::2])

    return merge


def _extreme(type_: types.Min | types.Max, size: int, _decoders: Decoders) -> Merge[tuple[int, int]]:
    value, unpack = type_.value, _words(size, "Q")

    def merge(data: bytes) -> tuple[int, int]:
        words = unpack(data)
        # A CPU without a value has the least rank.
        return (value(max(words[::2])), 1) if any(words[1::2]) else (0, 0)

    return merge


def _buckets(type_: types.Hist | types.LHist, size: int, _decoders: Decoders) -> Merge[Counts]:
    step = type_.buckets
    unpack = _words(size, "Q")

    def merge(data: bytes) -> Counts:
        words = unpack(data)
        return tuple(map(sum, zip(*(words[start : start + step] for start in range(0, len(words), step)), strict=True)))

    return merge


def _series(type_: types.TSeries, _size: int, _decoders: Decoders) -> Merge[Intervals]:
    one = struct.Struct(f"=Q{'q' if type_.signed else 'Q'}Q")
    return lambda data: tuple(item for item in one.iter_unpack(data) if item[0])


def itself(value: V) -> V:
    """The value."""
    return value


def _first(value: tuple[int, int]) -> int:
    return value[0]


def _average(value: tuple[int, int]) -> int:
    return truncated(*value)


def last_epoch(value: Intervals) -> int:
    """The number of the last interval plus 1; 0 without one."""
    return max((epoch for epoch, _, _ in value), default=0)


def _difference(new: int, old: int) -> int:
    return new - old


def _pair_difference(new: tuple[int, int], old: tuple[int, int]) -> tuple[int, int]:
    return new[0] - old[0], new[1] - old[1]


def _differences(new: Sequence[int], old: Sequence[int]) -> tuple[int, ...]:
    return tuple(first - second for first, second in zip(new, old, strict=True))


def _any(merging: OneMerging[T, V]) -> Merging:
    return cast(Merging, merging)


SINGLE = OneMerging(_single)
"""Values that one CPU keeps, sorted by key."""
RANKED = OneMerging(_single, itself)
"""The same, sorted by value."""
NUMBER = _any(OneMerging(_number, itself))
SUM = _any(OneMerging(_sum, itself, _difference))
MEAN = _any(OneMerging(_pairs, _average, _pair_difference, "stats"))
LEAST = _any(OneMerging(_extreme, _first))
GREATEST = _any(OneMerging(_extreme, _first))
BUCKETS = _any(OneMerging(_buckets, sum, _differences, "hist", True))
SERIES = _any(OneMerging(_series, last_epoch, None, "tseries", True))


# ---------------------------------------------------------------------------------------------- division


def divided_number(value: int, div: int) -> int:
    """A number, rounded towards zero."""
    return truncated(value, div)


def divided_extreme(value: tuple[int, int], div: int) -> tuple[int, int]:
    """A least or greatest value."""
    return truncated(value[0], div), value[1]


def divided_average(value: tuple[int, int], div: int) -> tuple[int, int]:
    """An average, which is truncated before."""
    return truncated(truncated(*value), div), 1


def divided_buckets(value: Counts, div: int) -> Counts:
    """The counts of a histogram."""
    return tuple(count // div for count in value)


def divided_members(parts: Sequence[Callable[[Value], Value]]) -> Callable[[Values], Value]:
    """Members, each by its own function."""
    return partial(_each, parts=parts)


def _each(value: Values, parts: Sequence[Callable[[Value], Value]]) -> Values:
    return tuple(part(item) for part, item in zip(parts, value, strict=True))
