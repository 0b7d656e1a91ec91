"""Values of aggregations as Python programs get them."""

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
"""A key or a value as Python programs get it: of what type it is, the script that they run decides."""


class Average(int):
    """The value of ``avg()``: an integer, truncated as it prints; *total* and *count* are what it was made of."""

    total: int
    count: int

    def __new__(cls, total: int, count: int) -> Self:
        made = super().__new__(cls, truncated(total, count))
        made.total, made.count = total, count
        return made

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
    """A bucket of a histogram: values from *low* up to *high*, that excluded; None for an open end."""

    low: int | None
    high: int | None
    count: int


class Histogram:
    """The value of ``hist()`` or ``lhist()``: buckets from the first to the last that is not empty."""

    def __init__(self, kind: types.Hist | types.LHist, counts: Counts) -> None:
        self.kind = kind
        self.counts = counts
        """Buckets that are not empty: number and count."""
        self._shape = histogram.shape(kind)

    def _all(self) -> list[int]:
        return histogram.all_buckets(self.kind, self.counts)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, in order."""
        return [Bucket(item.low, item.high, item.count) for item in histogram.used(self._shape, self._all())]

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts.values())

    def quantile(self, fraction: float) -> int | None:
        """The value that *fraction* (0 to 1) of all values do not exceed, as ``quantiles()`` of scripts tells it.

        None at an open end, and without values.
        """
        found = list(histogram.quantiles(self._shape, self._all(), [f"{100 * fraction:g}"])) if self.counts else []
        return found[0].value if found else None

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
    """In UTC; microseconds are the finest that ``datetime`` has."""
    nanoseconds: int
    """The same, in nanoseconds since 1970."""
    value: int | None
    """None without a sample."""


class Series(tuple[Point, ...]):
    """The value of ``tseries()``: intervals of equal length, in order."""

    interval: int
    """Length of an interval, in nanoseconds."""

    @classmethod
    def of(cls, kind: types.TSeries, value: Mapping[int, tuple[int, int]]) -> Self:
        """The series of a portable value."""
        intervals = [(number + 1, item, meta) for number, (item, meta) in value.items()]
        found = tseries.whole(kind, intervals)
        made = cls(Point(datetime.fromtimestamp(start / 1e9, UTC), start, item) for start, item in found.points)
        made.interval = kind.interval
        return made


def as_python(kind: types.Type) -> Callable[[Value], Result]:
    """How portable values of a type are given to Python programs."""
    make = _ROWS.get(type(kind))
    return (lambda value: value) if make is None else cast("Callable[[Value], Result]", make(kind))


def _fixed(kind: types.Type) -> Callable[[int], float]:
    assert isinstance(kind, types.Fixed)
    return kind.number


def _members(kind: types.Type) -> Callable[[tuple[Value, ...]], Result]:
    assert isinstance(kind, types.Tuple | types.Record)
    if not any(isinstance(inner, types.Fixed) for inner in types.parts(kind.members)):
        return lambda value: value
    forms = [as_python(member) for member in kind.members]
    return lambda value: tuple([form(item) for form, item in zip(forms, value, strict=True)])


def _average(_kind: types.Type) -> Callable[[Pair], Average]:
    return lambda value: Average(*value)


def _stats(_kind: types.Type) -> Callable[[Pair], Stats]:
    return lambda value: Stats(value[1], truncated(*value), value[0])


def _histogram(kind: types.Type) -> Callable[[Counts], Histogram]:
    assert isinstance(kind, types.Hist | types.LHist)
    return lambda value: Histogram(kind, value)


def _series(kind: types.Type) -> Callable[[Intervals], Series]:
    assert isinstance(kind, types.TSeries)
    return lambda value: Series.of(kind, value)


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
