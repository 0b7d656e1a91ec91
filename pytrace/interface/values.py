"""Python classes for the values of aggregations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Never, Self, TypeAlias, cast

import msgspec

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated
from pytrace.render import histogram, tseries
from pytrace.results.values import Counts, Pair, Value
from pytrace.results.values import Series as Intervals

Result: TypeAlias = Any
"""A key or a value in its Python form, whose type depends on the script."""


class Average(int):
    """The value of ``avg()``: an integer, truncated as in printed output, with its *total* and *count*."""

    total: int
    count: int

    def __new__(cls, total: int, count: int) -> Self:
        average = super().__new__(cls, truncated(total, count))
        average.total, average.count = total, count
        return average

    @property
    def mean(self) -> float:
        """The average, not truncated; 0 without samples."""
        return self.total / self.count if self.count else 0.0


class Stats(msgspec.Struct, frozen=True):
    """The value of ``stats()``."""

    count: int
    average: int
    total: int


class Bucket(msgspec.Struct, frozen=True):
    """A bucket of a histogram: values from *low* up to, but not including, *high*; None for an open end."""

    low: int | None
    high: int | None
    count: int


class Histogram:
    """The value of ``hist()`` or ``lhist()``: buckets from the first to the last non-empty one."""

    def __init__(self, kind: types.Hist | types.LHist, counts: Counts) -> None:
        self.kind = kind
        self.counts = counts
        """Counts of the non-empty buckets, by bucket number."""
        self._shape = histogram.shape(kind)

    def _all(self) -> list[int]:
        return histogram.all_buckets(self.kind, self.counts)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, in order."""
        return [Bucket(item.low, item.high, item.count) for item in histogram.used(self._shape, self._all())]

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts.values())

    def quantile(self, fraction: float) -> int | None:
        """The value that *fraction* (0 to 1) of all values do not exceed, as by ``quantiles()`` in scripts.

        None in a bucket with an open end, and without values.
        """
        quantiles = list(histogram.quantiles(self._shape, self._all(), [f"{100 * fraction:g}"])) if self.counts else []
        return quantiles[0].value if quantiles else None

    def __getitem__(self, index: int) -> Bucket:
        return self.buckets[index]

    def __len__(self) -> int:
        return len(self.buckets)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self.buckets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and (self.kind, self.counts) == (other.kind, other.counts)

    def __hash__(self) -> int:
        return hash((self.kind, tuple(sorted(self.counts.items()))))

    def __str__(self) -> str:
        return histogram.text(self._shape, self._all()).decode()

    def __repr__(self) -> str:
        return f"<Histogram of {self.count} values>"


class Point(NamedTuple):
    """An interval of a time series."""

    start: datetime
    """Start in UTC, truncated to the microseconds of ``datetime``."""
    nanoseconds: int
    """The same, in nanoseconds since 1970."""
    value: int | None
    """None without a sample."""


class Series(tuple[Point, ...]):
    """The value of ``tseries()``: intervals of equal length, in order."""

    interval: int
    """Length of an interval, in nanoseconds."""

    @classmethod
    def of(cls, type_: types.TSeries, value: Mapping[int, tuple[int, int]]) -> Self:
        """The series of a portable value."""
        intervals = [(number + 1, item, meta) for number, (item, meta) in value.items()]
        whole = tseries.whole(type_, intervals)
        series = cls(Point(datetime.fromtimestamp(start / 1e9, UTC), start, item) for start, item in whole.points)
        series.interval = type_.interval
        return series


def as_python(type_: types.Type) -> Callable[[Value], Result]:
    """The function that converts portable values of a type to their Python form."""
    make = _ROWS.get(type(type_))
    return (lambda value: value) if make is None else cast("Callable[[Value], Result]", make(type_))


def _fixed(type_: types.Type) -> Callable[[int], float]:
    assert isinstance(type_, types.Fixed)
    return type_.number


def _members(type_: types.Type) -> Callable[[tuple[Value, ...]], Result]:
    assert isinstance(type_, types.Tuple | types.Record)
    if not any(isinstance(inner, types.Fixed) for inner in types.parts(type_.members)):
        return lambda value: value
    forms = [as_python(member) for member in type_.members]
    return lambda value: tuple([form(item) for form, item in zip(forms, value, strict=True)])


def _average(_kind: types.Type) -> Callable[[Pair], Average]:
    return lambda value: Average(*value)


def _stats(_kind: types.Type) -> Callable[[Pair], Stats]:
    return lambda value: Stats(value[1], truncated(*value), value[0])


def _histogram(type_: types.Type) -> Callable[[Counts], Histogram]:
    assert isinstance(type_, types.Hist | types.LHist)
    return lambda value: Histogram(type_, value)


def _series(type_: types.Type) -> Callable[[Intervals], Series]:
    assert isinstance(type_, types.TSeries)
    return lambda value: Series.of(type_, value)


_ROWS: dict[type[types.Type], Callable[[types.Type], Callable[[Never], Result]]] = {
    types.Fixed: _fixed,
    types.Tuple: _members,
    types.Record: _members,
    types.Avg: _average,
    types.Stats: _stats,
    types.Hist: _histogram,
    types.LHist: _histogram,
    types.TSeries: _series,
}
