"""Joining two values of one map and one key: a row for each type of value.

All rows are commutative and associative, so that any number of values joins to the same one in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from pytrace.core import types
from pytrace.results.values import Counts, Series, Value

Join = Callable[[Any, Any], Any]
"""Joins two portable values (:mod:`pytrace.results.values`) of one type."""


def joiner(kind: types.Type) -> Callable[[Value, Value], Value]:
    """How values of a type join: aggregations as if one map had aggregated all, of others the greater one stays."""
    make = ROWS.get(type(kind))
    return max if make is None else make(kind)


def _wrapped(signed: bool) -> Callable[[int], int]:
    """64 bits, as in the kernel: a sum of sums is what one sum would have become."""
    if signed:
        return lambda value: ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    return lambda value: value & ((1 << 64) - 1)


def _count(_kind: types.Count) -> Join:
    wrap = _wrapped(False)
    return lambda first, second: wrap(first + second)


def _sum(kind: types.Sum) -> Join:
    wrap = _wrapped(kind.signed)
    return lambda first, second: wrap(first + second)


def _pair(kind: types.Avg | types.Stats) -> Join:
    wrap = _wrapped(kind.signed)
    return lambda first, second: (wrap(first[0] + second[0]), first[1] + second[1])


def _buckets(_kind: types.Hist | types.LHist) -> Join:
    def join(first: Counts, second: Counts) -> Counts:
        found = dict(first)
        for bucket, count in second.items():
            found[bucket] = found.get(bucket, 0) + count
        return found

    return join


def _series(kind: types.TSeries) -> Join:
    one = _INTERVALS[kind.reduce]

    def join(first: Series, second: Series) -> Series:
        found = dict(first)
        for number, item in second.items():
            known = found.get(number)
            found[number] = item if known is None else one(known, item)
        return found

    return join


Interval = tuple[int, int]


def _both(first: Interval, second: Interval) -> Interval:
    return first[0] + second[0], first[1] + second[1]


def _last(first: Interval, second: Interval) -> Interval:
    return max(first, second, key=lambda item: (item[1], item[0]))


_INTERVALS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "avg": _both, "sum": _both, "min": min, "max": max, "": _last,
}  # fmt: skip
"""How the values and metas of one interval join, by :attr:`pytrace.core.types.TSeries.reduce`."""

_T = TypeVar("_T", bound=types.Type)
_Make = Callable[[types.Type], Join]


def _row(kind: type[_T], make: Callable[[_T], Join]) -> tuple[type[types.Type], _Make]:
    """A row of the table, whose function is only called with values of its own class."""
    return kind, cast(_Make, make)


ROWS: dict[type[types.Type], _Make] = dict((
    _row(types.Count, _count),
    _row(types.Sum, _sum),
    _row(types.Avg, _pair),
    _row(types.Stats, _pair),
    _row(types.Min, lambda _kind: min),
    _row(types.Max, lambda _kind: max),
    _row(types.Hist, _buckets),
    _row(types.LHist, _buckets),
    _row(types.TSeries, _series),
))
