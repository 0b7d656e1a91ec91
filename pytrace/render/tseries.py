"""Time series: merging the intervals of all CPUs, the graph, JSON; the type ``tseries``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from pytrace.core.types import TSeries, truncated, wrapped
from pytrace.render import json
from pytrace.render.text import strftime
from pytrace.render.value_kind import (
    Change,
    Counts,
    Held,
    Join,
    Labels,
    Metric,
    MetricKind,
    Pair,
    Plain,
    Sample,
    Subtract,
    ValueKind,
    counts_change,
    same_or_mismatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pytrace.render.forms import Decoders, JsonForms, TextForms
    from pytrace.render.text import Decode, Memory

_WIDTH = 53
_LEFT = 21
_SECOND, _MILLI, _MICRO = 1_000_000_000, 1_000_000, 1_000

Interval = tuple[int, int, int]
"""Epoch (interval number plus 1), value, meta: as :class:`pytrace.core.types.TSeries` keeps it."""
Intervals: TypeAlias = tuple[Interval, ...]
"""A decoded time series, of one CPU or of all."""
_PortableSeries: TypeAlias = dict[int, Pair]
"""A portable time series: interval numbers, and value and meta as :class:`TSeries` describes them."""


class Points(msgspec.Struct, frozen=True):
    """Points of equal distance: start of each interval (wall time, nanoseconds) and its value, None for no data."""

    interval: int
    points: tuple[tuple[int, int | None], ...]


def joined(type_: TSeries, intervals: Iterable[Interval]) -> _PortableSeries:
    """Value and meta of all CPUs by interval number, for those intervals that had any."""
    values: _PortableSeries = {}
    for epoch, value, meta in intervals:
        if epoch:
            known = values.get(epoch - 1)
            values[epoch - 1] = (value, meta) if known is None else _join(type_.reduce, known, (value, meta))
    return values


def merged(type_: TSeries, intervals: Iterable[Interval]) -> dict[int, int]:
    """Values of all CPUs by interval number, for those intervals that had any."""
    values = joined(type_, intervals)
    if type_.reduce == "avg":
        return {number: truncated(value, meta) for number, (value, meta) in values.items()}
    return {number: value for number, (value, _) in values.items()}


def _join(reduce: str, first: Pair, second: Pair) -> Pair:
    if reduce in ("avg", "sum"):
        return first[0] + second[0], first[1] + second[1]
    if reduce == "min":
        return min(first, second)
    if reduce == "max":
        return max(first, second)
    return max(first, second, key=lambda item: item[1])  # the last sample wins


def window(type_: TSeries, values: dict[int, int], last: int) -> Points:
    """The *kind.count* intervals that end with number *last*, beginning with the first that has a value.

    Interval 0 started in 1970: intervals are aligned to wall time.
    """
    least = last - type_.count + 1
    numbers = [number for number in values if least <= number <= last]
    if not numbers:
        return Points(type_.interval, ())
    every = range(min(numbers), last + 1)
    return Points(type_.interval, tuple((number * type_.interval, values.get(number)) for number in every))


def whole(type_: TSeries, intervals: Iterable[Interval]) -> Points:
    """The series of one value on its own: it ends with its own last interval."""
    values = merged(type_, intervals)
    return window(type_, values, max(values)) if values else Points(type_.interval, ())


def moment(start: int) -> bytes:
    """The start of an interval in the ISO form with nanoseconds."""
    return strftime("%Y-%m-%dT%H:%M:%S.%k", start)


# ---------------------------------------------------------------------------------------------- the graph


def _unit(interval: int) -> tuple[str, str]:
    """Precision of times: strftime layout, and its text in the header."""
    if interval >= _SECOND:
        return "%H:%M:%S", "hh:mm:ss"
    if interval >= _MILLI:
        return "%H:%M:%S.%l", "hh:mm:ss.ms"
    if interval >= _MICRO:
        return "%H:%M:%S.%f", "hh:mm:ss.μs"
    return "%H:%M:%S.%k", "hh:mm:ss.ns"


def text(series: Points) -> bytes:
    """The graph: a header with least and greatest value, a line for each interval, and the header again below."""
    known = [value for _, value in series.points if value is not None]
    if not known:
        return b"<no data>"
    low, high = min(known), max(known)
    if low == high:
        low, high = low - 1, high + 1
    layout, header = _unit(series.interval)
    margin = len(strftime(layout, series.points[0][0]))
    scale = f"{'':<{margin + 1}}{low:<{_LEFT}}{high:>{_WIDTH - _LEFT}}\n"
    lines = [scale, f"{header:<{margin + 1}}|{'_' * (_WIDTH - 2)}|\n"]
    zero = _WIDTH * -low // (high - low) if low < 0 < high else 0
    for start, value in series.points:
        row = [" "] * _WIDTH
        row[0] = row[-1] = "|"
        if zero:
            row[zero] = "."
        if value is not None:
            row[(_WIDTH - 1) * (value - low) // (high - low)] = "*"
        shown = "-" if value is None else str(value)
        lines.append(f"{strftime(layout, start).decode()} {''.join(row)} {shown}\n")
    lines.append(f"{'':<{margin}} v{'_' * (_WIDTH - 2)}v\n")
    lines.append(scale)
    return "".join(lines).encode()


def json_text(series: Points) -> bytes:
    """An array of the intervals that have a value."""
    intervals = [
        b'{"interval_start":%s,"value":%s}' % (json.quoted(moment(start)), json.number(value))
        for start, value in series.points
        if value is not None
    ]
    return b"[%s]" % b",".join(intervals)


# ---------------------------------------------------------------------------------------------- Python values


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
    def of(cls, type_: TSeries, value: Mapping[int, Pair]) -> Self:
        """The series of a portable value."""
        from datetime import UTC, datetime  # only programs have times as these

        intervals = [(number + 1, item, meta) for number, (item, meta) in value.items()]
        points = whole(type_, intervals).points
        series = cls(Point(datetime.fromtimestamp(start / 1e9, UTC), start, item) for start, item in points)
        series.interval = type_.interval
        return series


# ---------------------------------------------------------------------------------------------- the type


def last_epoch(value: Intervals) -> int:
    """The number of the last interval plus 1; 0 without one."""
    return max((epoch for epoch, _, _ in value), default=0)


class TimeSeries(ValueKind[TSeries]):
    """``tseries()``: values of maps only."""

    held = Held.SERIES
    durable = False
    json_type = "tseries"
    bucketed = True

    def _one(self) -> struct.Struct:
        return struct.Struct(f"=Q{'q' if self.type.signed else 'Q'}Q")

    def decode(self, decoders: Decoders) -> Decode:
        size, one = self.type.size, self._one()

        def decode(memory: Memory, offset: int) -> Intervals:
            return tuple(one.iter_unpack(bytes(memory[offset : offset + size])))

        return decode

    def merge(self, size: int, decoders: Decoders) -> Callable[[bytes], Intervals]:
        one = self._one()
        return lambda data: tuple(item for item in one.iter_unpack(data) if item[0])

    def reduction(self, size: int, decoders: Decoders) -> None:
        return None

    def rank(self) -> Callable[[Intervals], int]:
        return last_epoch

    def text(self, forms: TextForms) -> Callable[[Iterable[Interval]], bytes]:
        return lambda value: text(whole(self.type, value))

    def json(self, forms: JsonForms) -> Callable[[Iterable[Interval]], bytes]:
        return lambda value: json_text(whole(self.type, value))

    def portable(self, forms: object) -> Callable[[Intervals], _PortableSeries]:
        def convert(intervals: Intervals) -> _PortableSeries:
            values = joined(self.type, intervals)
            # A CPU that had nothing to count still has intervals that the others gave up long ago: they are not whole.
            least = max(values, default=0) - self.type.count
            return {number: item for number, item in values.items() if number > least}

        return convert

    def restored(self) -> Callable[[_PortableSeries], Intervals]:
        return lambda value: tuple((number + 1, item, meta) for number, (item, meta) in sorted(value.items()))

    def python(self) -> Callable[[_PortableSeries], Series]:
        return lambda value: Series.of(self.type, value)

    def described(self) -> str:
        return f"tseries of {self.type.interval} ns, {self.type.reduce or 'last value'}"

    def union(self, other: TSeries) -> TSeries:
        own = self.type
        same_or_mismatch((own.interval, own.reduce), (other.interval, other.reduce))
        return replace(own, count=max(own.count, other.count), signed=own.signed or other.signed)

    def join(self) -> Join[_PortableSeries]:
        interval = self._joined_intervals()

        def join(first: _PortableSeries | None, second: _PortableSeries) -> _PortableSeries:
            series = dict(first or ())
            for number, item in second.items():
                series[number] = interval(series.get(number), item)
            return series

        return join

    def _joined_intervals(self) -> Join[Pair]:
        """Joins value and meta of one interval; the meta of all but the last value is a number of samples."""
        reduce, total, count = self.type.reduce, wrapped(self.type.signed), wrapped(False)
        adds = reduce in ("avg", "sum")

        def join(first: Pair | None, second: Pair) -> Pair:
            if not reduce:
                # The last sample, by its time; of samples at one time the greater.
                return max(first or second, second, key=lambda item: (item[1], item[0]))
            if first is None:
                # Of a signed and an unsigned series the signed type is taken.
                return (total(second[0]), second[1]) if adds else second
            samples = count(first[1] + second[1])
            if adds:
                return total(first[0] + second[0]), samples
            return (min if reduce == "min" else max)(first[0], second[0]), samples

        return join

    def printed_values(self, value: _PortableSeries | None) -> Counts:
        """The values of the intervals, as they print; none without a value."""
        if self.type.reduce == "avg":
            return {number: truncated(*item) for number, item in (value or {}).items()}
        return {number: item for number, (item, _) in (value or {}).items()}

    def change(self) -> Subtract:
        return lambda was, is_: counts_change(self.printed_values(was), self.printed_values(is_))

    def change_text(self, form: Callable[[Plain], bytes]) -> Callable[[Change], bytes]:
        def shown(change: Change) -> bytes:
            assert isinstance(change.delta, dict)
            old, new = self.printed_values(change.before), self.printed_values(change.after)
            lines = [
                f"{moment(number * self.type.interval).decode()} {delta:+d} "
                f"({old.get(number, '-')} → {new.get(number, '-')})\n"
                for number, delta in change.delta.items()
            ]
            return ("\n" + "".join(lines) + "\n").encode()

        return shown

    def change_json(self) -> Callable[[Change], bytes]:
        def shown(change: Change) -> bytes:
            assert isinstance(change.delta, dict)
            interval = self.type.interval
            points = tuple((number * interval, item) for number, item in change.delta.items())
            return json_text(Points(interval, points))

        return shown

    def metrics(self, name: str, values: Callable[[], Iterator[_PortableSeries]], *, timestamps: bool) -> list[Metric]:
        """Gauges of the last interval, with *timestamps* of all."""
        interval = self.type.interval

        def samples(labels: Labels, value: _PortableSeries) -> list[Sample]:
            points = sorted(self.printed_values(value).items())
            if timestamps:
                return [Sample("", labels, item, (number + 1) * interval) for number, item in points]
            return [Sample("", labels, item) for _, item in points[-1:]]

        return [Metric(MetricKind.GAUGE, samples)]
