"""Time series: merging the intervals of all CPUs, the graph, JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core.types.builtin_types import truncated
from pytrace.render import json
from pytrace.render.strftime import strftime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytrace.core.types import TSeries
    from pytrace.render.forms import JsonForms, TextForms

_WIDTH = 53
_LEFT = 21
_SECOND, _MILLI, _MICRO = 1_000_000_000, 1_000_000, 1_000

Interval = tuple[int, int, int]
"""Epoch (interval number plus 1), value, meta: as :class:`pytrace.core.types.TSeries` keeps it."""


class Series(msgspec.Struct, frozen=True):
    """Points of equal distance: start of each interval (wall time, nanoseconds) and its value, None for no data."""

    interval: int
    points: tuple[tuple[int, int | None], ...]


def joined(type_: TSeries, intervals: Iterable[Interval]) -> dict[int, tuple[int, int]]:
    """Value and meta of all CPUs by interval number, for those intervals that had any."""
    values: dict[int, tuple[int, int]] = {}
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


def _join(reduce: str, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    if reduce in ("avg", "sum"):
        return first[0] + second[0], first[1] + second[1]
    if reduce == "min":
        return min(first, second)
    if reduce == "max":
        return max(first, second)
    return max(first, second, key=lambda item: item[1])  # the last sample wins


def window(type_: TSeries, values: dict[int, int], last: int) -> Series:
    """The *kind.count* intervals that end with number *last*, beginning with the first that has a value.

    Interval 0 started in 1970: intervals are aligned to wall time.
    """
    least = last - type_.count + 1
    numbers = [number for number in values if least <= number <= last]
    if not numbers:
        return Series(type_.interval, ())
    every = range(min(numbers), last + 1)
    return Series(type_.interval, tuple((number * type_.interval, values.get(number)) for number in every))


def whole(type_: TSeries, intervals: Iterable[Interval]) -> Series:
    """The series of one value on its own: it ends with its own last interval."""
    values = merged(type_, intervals)
    return window(type_, values, max(values)) if values else Series(type_.interval, ())


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


def text(series: Series) -> bytes:
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


def text_form(_forms: TextForms, type_: TSeries) -> Callable[[Iterable[Interval]], bytes]:
    """The text of series of a type."""
    return lambda value: text(whole(type_, value))


# ---------------------------------------------------------------------------------------------- JSON


def json_form(_forms: JsonForms, type_: TSeries) -> Callable[[Iterable[Interval]], bytes]:
    """The JSON of series of a type."""
    return lambda value: json_text(whole(type_, value))


def json_text(series: Series) -> bytes:
    """An array of the intervals that have a value."""
    intervals = [
        b'{"interval_start":%s,"value":%s}' % (json.quoted(moment(start)), json.number(value))
        for start, value in series.points
        if value is not None
    ]
    return b"[%s]" % b",".join(intervals)
