"""Python classes for the values of aggregations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import msgspec

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated
from pytrace.render import histogram, tseries
from pytrace.render.portable import Counts
from pytrace.render.portable import Series as Intervals

if TYPE_CHECKING:
    from pytrace.render.forms import PythonForms

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

    def __init__(self, type_: types.Hist | types.LHist, counts: Counts) -> None:
        self.kind = type_
        self.counts = counts
        """Counts of the non-empty buckets, by bucket number."""
        self._shape = histogram.shape(type_)

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


def fixed(_forms: PythonForms, type_: types.Fixed) -> Callable[[int], float]:
    """Decimal numbers."""
    return type_.number


def members(forms: PythonForms, type_: types.Tuple | types.Record) -> Callable[[tuple[object, ...]], Result]:
    """Tuples and records."""
    if not any(isinstance(inner, types.Fixed) for inner in types.parts(type_.members)):
        return lambda value: value
    parts = [forms.form(member) for member in type_.members]
    return lambda value: tuple([part(item) for part, item in zip(parts, value, strict=True)])


def average(_forms: PythonForms, _kind: types.Type) -> Callable[[tuple[int, int]], Average]:
    """Averages."""
    return lambda value: Average(*value)


def stats(_forms: PythonForms, _kind: types.Type) -> Callable[[tuple[int, int]], Stats]:
    """Statistics."""
    return lambda value: Stats(value[1], truncated(*value), value[0])


def histogram_value(_forms: PythonForms, type_: types.Hist | types.LHist) -> Callable[[Counts], Histogram]:
    """Histograms."""
    return lambda value: Histogram(type_, value)


def series(_forms: PythonForms, type_: types.TSeries) -> Callable[[Intervals], Series]:
    """Time series."""
    return lambda value: Series.of(type_, value)
