"""Histograms: bounds of buckets, the text with bars, JSON, percentiles."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.types import Hist, LHist
from pytrace.render import json
from pytrace.render.text import Bars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytrace.render.forms import JsonForms, TextForms

_BAR = 52
_UNITS = ("", "K", "M", "G", "T", "P", "E")
_KILO, _MEGA = 1 << 10, 1 << 20


class Shape(msgspec.Struct, frozen=True):
    """The bounds of a histogram's buckets and how they are labelled.

    Bucket *n* holds values from ``bound(n - 1)`` up to ``bound(n)``, that excluded; the first has no lower end, and the
    last of a linear histogram no upper one. *label* writes the bound of that number.
    """

    buckets: int
    bound: Callable[[int], int]
    label: Callable[[int], str]
    open_above: bool
    plain: Callable[[int], bool]
    """True for bounds whose label is the number itself, so that a bucket of one value may show just that."""
    divisible: bool
    """The ``div`` argument of ``print()`` applies."""


class Bucket(msgspec.Struct, frozen=True):
    """A bucket: values *low* … *high* (excluded; None for an open end), how many, and its label."""

    low: int | None
    high: int | None
    count: int
    label: str


def shape(type_: Hist | LHist) -> Shape:
    """The shape of a histogram type."""
    return _linear(type_) if isinstance(type_, LHist) else _logarithmic(type_)


def _logarithmic(type_: Hist) -> Shape:
    bits = type_.bits
    parts = 1 << bits

    def exponent(number: int) -> int:
        return max(0, (number >> bits) - 1)

    def bound(number: int) -> int:
        return number if number < parts else (parts + (number & (parts - 1))) << exponent(number)

    def label(number: int) -> str:
        # The unit follows the width of the bucket, so that all buckets of one power show the same number of digits.
        step = exponent(number) // 10
        return f"{bound(number) >> (10 * step)}{_UNITS[step]}"

    return Shape(type_.buckets, bound, label, False, lambda number: number <= 2 * parts, True)


def _linear(type_: LHist) -> Shape:
    low, step = type_.low, type_.step
    units = step % _KILO == 0

    def bound(number: int) -> int:
        return low + number * step

    def label(number: int) -> str:
        value = bound(number)
        if not units or value == 0:
            return str(value)
        for size, unit in ((_MEGA, "M"), (_KILO, "K")):
            if value % size == 0:
                return f"{value // size}{unit}"
        return str(value)

    return Shape(type_.buckets, bound, label, True, lambda _number: not units, False)


def all_buckets(type_: Hist | LHist, counts: Mapping[int, int]) -> list[int]:
    """The counts of all buckets, from those that are not 0."""
    return [counts.get(bucket, 0) for bucket in range(type_.buckets)]


def used(form: Shape, counts: Sequence[int]) -> Iterator[Bucket]:
    """The buckets from the first to the last that counted something."""
    places = [index for index, count in enumerate(counts) if count]
    if not places:
        return
    for index in range(places[0], places[-1] + 1):
        yield _bucket(form, index, counts[index])


def _bucket(form: Shape, index: int, count: int) -> Bucket:
    low = form.bound(index - 1) if index else None
    if form.open_above and index == form.buckets - 1:
        return Bucket(low, None, count, f"[{form.label(index - 1)}, ...)")
    high = form.bound(index)
    if low is None:
        return Bucket(None, high, count, f"(..., {form.label(index)})")
    if high - low == 1 and form.plain(index):
        return Bucket(low, high, count, f"[{low}]")
    return Bucket(low, high, count, f"[{form.label(index - 1)}, {form.label(index)})")


def _single_precision(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _length(count: int, most: int) -> int:
    # In single precision, as the bars of bpftrace are computed: the last sign of a bar can depend on it.
    share = _single_precision(_single_precision(count) / _single_precision(most))
    return int(_single_precision(share * _BAR))


def label(form: Shape, index: int) -> bytes:
    """The beginning of the line of a bucket."""
    return f"{_bucket(form, index, 0).label:<16}".encode()


_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def tail(count: int, most: int, bars: Bars = Bars.SIGNS) -> bytes:
    """The end of a line, after the label: the count, and a bar whose full length is that of *most*."""
    if bars is Bars.SIGNS:
        return f"{count:>8} |{'@' * _length(count, most):<{_BAR}}|\n".encode()
    eighths = max(8 * _BAR * count // most, 1 if count else 0)
    bar = f"{'█' * (eighths // 8) + _EIGHTHS[eighths % 8]:<{_BAR}}"
    return f"{count:>8} |\x1b[36m{bar}\x1b[0m|\n".encode()


def text(form: Shape, counts: Sequence[int], div: int = 1, bars: Bars = Bars.SIGNS) -> bytes:
    """A line for each used bucket: label, count, bar."""
    if div > 1 and form.divisible:
        buckets = [Bucket(item.low, item.high, item.count // div, item.label) for item in used(form, counts)]
    else:
        buckets = list(used(form, counts))
    most = max((item.count for item in buckets), default=0) or 1
    return b"".join([f"{item.label:<16}".encode() + tail(item.count, most, bars) for item in buckets])


def text_form(forms: TextForms, type_: Hist | LHist) -> Callable[[Sequence[int]], bytes]:
    """The text of counts of a type."""
    form = shape(type_)
    return lambda counts: text(form, counts, bars=forms.bars)


def json_form(_forms: JsonForms, type_: Hist | LHist) -> Callable[[Sequence[int]], bytes]:
    """The JSON of counts of a type."""
    form = shape(type_)
    return lambda counts: json_text(form, counts)


def json_text(form: Shape, counts: Sequence[int], div: int = 1) -> bytes:
    """An array of buckets; an open end has no ``min`` or no ``max``, which are both inclusive."""
    buckets = []
    for bucket in used(form, counts):
        least = b"" if bucket.low is None else b'"min": %s, ' % json.number(bucket.low)
        most = b"" if bucket.high is None else b'"max": %s, ' % json.number(bucket.high - 1)
        buckets.append(b'{%s%s"count": %s}' % (least, most, json.number(bucket.count // div)))
    return b"[%s]" % b",".join(buckets)


# ---------------------------------------------------------------------------------------------- percentiles


class Quantile(msgspec.Struct, frozen=True):
    """A percentile of what a histogram counted.

    The true value lies in *low* … *high* (both included; None where the bucket has an open end), and *value* is the
    middle of that, so it is off by at most *error*; None where an open end forbids to tell.
    """

    percent: str
    value: int | None
    error: int | None
    low: int | None
    high: int | None


def quantiles(form: Shape, counts: Sequence[int], percents: Sequence[str]) -> list[Quantile]:
    """The percentiles *percents* (decimal numbers, 0 … 100) by the nearest-rank method.

    The p-th percentile is the least value such that at least p percent of all values are not greater.
    """
    from fractions import Fraction

    total = sum(counts)
    results = []
    for percent in percents:
        if not total:
            results.append(Quantile(percent, None, None, None, None))
            continue
        share = Fraction(percent) * total / 100
        rank = max(1, -(-share.numerator // share.denominator))
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if seen >= rank:
                results.append(_quantile(percent, _bucket(form, index, count)))
                break
    return results


def _quantile(percent: str, bucket: Bucket) -> Quantile:
    low, high = bucket.low, None if bucket.high is None else bucket.high - 1
    if low is None or high is None:
        return Quantile(percent, None, None, low, high)
    middle = (low + high) // 2
    return Quantile(percent, middle, high - middle, low, high)


def quantile_text(item: Quantile) -> bytes:
    """``p99 1056 ±32`` or, at an open end, ``p99 < 0``."""
    label = f"p{item.percent}"
    if item.value is not None:
        tail = f"{item.value} ±{item.error}" if item.error else f"{item.value}"
    elif item.low is not None:
        tail = f">= {item.low}"
    elif item.high is not None:
        tail = f"< {item.high + 1}"
    else:
        tail = "no data"
    return f"{label:<8} {tail}\n".encode()


def quantile_json(items: Sequence[Quantile]) -> bytes:
    """An array of percentiles: value and maximum error (both null at an open end), and the known bounds."""
    quantiles = []
    for item in items:
        parts = [
            (b"percentile", item.percent.encode()),
            (b"value", b"null" if item.value is None else json.number(item.value)),
            (b"error", b"null" if item.error is None else json.number(item.error)),
        ]
        bounds = ((b"min", item.low), (b"max", item.high))
        quantiles.append(json.mapping([*parts, *((name, json.number(end)) for name, end in bounds if end is not None)]))
    return b"[%s]" % b",".join(quantiles)
