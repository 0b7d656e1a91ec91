"""Joining values of one map and one key: a row for each way in which values merge.

All rows are commutative and associative, so that any number of values joins to the same one in any order. Sums wrap at
64 bits as the kernel's do, which is what one sum of everything would have become.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Never, TypeAlias, TypeVar, cast

from pytrace.core import types
from pytrace.core.types.builtin_types import wrapped
from pytrace.render import percpu_merge
from pytrace.render.percpu_merge import Merging
from pytrace.render.value_types import merging_of
from pytrace.results.values import Counts, Pair, Series, Value

V = TypeVar("V")

_MASK = (1 << 64) - 1

Join: TypeAlias = Callable[[V | None, V], V]
"""Joins a portable value (:mod:`pytrace.results.values`) to another of its type, or to None; changes neither."""


def joiner(type_: types.Type) -> Join[Value]:
    """Joins values of a type: aggregations as if one map had aggregated all, of others the greater one stays."""
    make = cast("Callable[[types.Type], Join[Value]]", ROWS.get(merging_of(type_), _greatest))
    return make(type_)


def _sum(type_: types.Count | types.Sum) -> Join[int]:
    wrap = wrapped(type_.signed)
    return lambda first, second: wrap((first or 0) + second)


def _pair(type_: types.Avg | types.Stats) -> Join[Pair]:
    wrap = wrapped(type_.signed)

    def join(first: Pair | None, second: Pair) -> Pair:
        total, count = first or (0, 0)
        return wrap(total + second[0]), (count + second[1]) & _MASK

    return join


def _least(_type: types.Type) -> Join[int]:
    return lambda first, second: second if first is None else min(first, second)


def _greatest(type_: types.Type) -> Join[int]:
    if any(isinstance(part, types.Float) for part in types.parts((type_,))):
        return lambda first, second: second if first is None else max(first, second, key=_rank)
    return lambda first, second: second if first is None else max(first, second)


def _rank(value: object) -> tuple[object, ...]:
    """What orders values with floating-point numbers: NaN, which compares with nothing, is less than the others."""
    if isinstance(value, tuple):
        return tuple(map(_rank, value))
    if isinstance(value, float):
        return (False, math.copysign(1, value)) if math.isnan(value) else (True, value)
    return (value,)


def _buckets(_type: types.Hist | types.LHist) -> Join[Counts]:
    def join(first: Counts | None, second: Counts) -> Counts:
        counts = dict(first or ())
        get = counts.get
        for bucket, count in second.items():
            counts[bucket] = (get(bucket, 0) + count) & _MASK
        return counts

    return join


def _series(type_: types.TSeries) -> Join[Series]:
    interval = _intervals(type_)

    def join(first: Series | None, second: Series) -> Series:
        series = dict(first or ())
        for number, item in second.items():
            series[number] = interval(series.get(number), item)
        return series

    return join


def _intervals(type_: types.TSeries) -> Join[Pair]:
    """Joins value and meta of one interval; the meta of all but the last value is a number of samples."""
    total, count = wrapped(type_.signed), wrapped(False)
    values: dict[str, Callable[[int, int], int]] = {
        "avg": lambda first, second: first + second,
        "sum": lambda first, second: first + second,
        "min": min,
        "max": max,
    }
    value = values.get(type_.reduce)

    def join(first: Pair | None, second: Pair) -> Pair:
        if value is None:
            # The last sample, by its time; of samples at one time the greater.
            return max(first or second, second, key=lambda item: (item[1], item[0]))
        if first is None:
            # Of a signed and an unsigned series the signed type is taken.
            return (total(second[0]), second[1]) if type_.reduce in ("avg", "sum") else second
        joined = value(first[0], second[0])
        return total(joined) if type_.reduce in ("avg", "sum") else joined, count(first[1] + second[1])

    return join


ROWS: Mapping[Merging, Callable[[Never], Callable[[Never, Never], object]]] = {
    percpu_merge.SUM: _sum,
    percpu_merge.MEAN: _pair,
    percpu_merge.LEAST: _least,
    percpu_merge.GREATEST: _greatest,
    percpu_merge.BUCKETS: _buckets,
    percpu_merge.SERIES: _series,
}
"""The aggregations."""
