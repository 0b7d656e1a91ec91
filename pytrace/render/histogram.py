"""Histograms: bounds of buckets, the text with bars, JSON, percentiles; the types ``hist`` and ``lhist``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Hist, LHist
from pytrace.render import json
from pytrace.render.aggregations import Counters
from pytrace.render.text import Bars
from pytrace.render.value_kind import (
    WORD_MASK,
    Change,
    Counts,
    Held,
    Join,
    Labels,
    Metric,
    MetricKind,
    Plain,
    Reduction,
    Sample,
    Subtract,
    ValueKind,
    counts_change,
    same_or_mismatch,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytrace.render.forms import Decoders, JsonForms, TextForms
    from pytrace.render.text import Decode

AllCounts: TypeAlias = tuple[int, ...]
"""A decoded histogram: the counts of all buckets."""

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


class LabelledBucket(msgspec.Struct, frozen=True):
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


def used(form: Shape, counts: Sequence[int]) -> Iterator[LabelledBucket]:
    """The buckets from the first to the last that counted something."""
    places = [index for index, count in enumerate(counts) if count]
    if not places:
        return
    for index in range(places[0], places[-1] + 1):
        yield _bucket(form, index, counts[index])


def _bucket(form: Shape, index: int, count: int) -> LabelledBucket:
    low = form.bound(index - 1) if index else None
    if form.open_above and index == form.buckets - 1:
        return LabelledBucket(low, None, count, f"[{form.label(index - 1)}, ...)")
    high = form.bound(index)
    if low is None:
        return LabelledBucket(None, high, count, f"(..., {form.label(index)})")
    if high - low == 1 and form.plain(index):
        return LabelledBucket(low, high, count, f"[{low}]")
    return LabelledBucket(low, high, count, f"[{form.label(index - 1)}, {form.label(index)})")


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
        buckets = [LabelledBucket(item.low, item.high, item.count // div, item.label) for item in used(form, counts)]
    else:
        buckets = list(used(form, counts))
    most = max((item.count for item in buckets), default=0) or 1
    return b"".join([f"{item.label:<16}".encode() + tail(item.count, most, bars) for item in buckets])


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


def _quantile(percent: str, bucket: LabelledBucket) -> Quantile:
    low, high = bucket.low, None if bucket.high is None else bucket.high - 1
    if low is None or high is None:
        return Quantile(percent, None, None, low, high)
    middle = (low + high) // 2
    return Quantile(percent, middle, high - middle, low, high)


# ---------------------------------------------------------------------------------------------- Python values


class Bucket(msgspec.Struct, frozen=True):
    """A bucket of a histogram: values from *low* up to, but not including, *high*; None for an open end."""

    low: int | None
    high: int | None
    count: int


class Histogram:
    """The value of ``hist()`` or ``lhist()``: buckets from the first to the last non-empty one."""

    def __init__(self, type_: Hist | LHist, counts: Counts) -> None:
        self.kind = type_
        self.counts = counts
        """Counts of the non-empty buckets, by bucket number."""
        self._shape = shape(type_)

    def _all(self) -> list[int]:
        return all_buckets(self.kind, self.counts)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, in order."""
        return [Bucket(item.low, item.high, item.count) for item in used(self._shape, self._all())]

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts.values())

    def quantile(self, fraction: float) -> int | None:
        """The value that *fraction* (0 to 1) of all values do not exceed, as by ``quantiles()`` in scripts.

        None in a bucket with an open end, and without values.
        """
        items = quantiles(self._shape, self._all(), [f"{100 * fraction:g}"]) if self.counts else []
        return items[0].value if items else None

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
        return text(self._shape, self._all()).decode()

    def __repr__(self) -> str:
        return f"<Histogram of {self.count} values>"


# ---------------------------------------------------------------------------------------------- the types

H = TypeVar("H", Hist, LHist)


class _Histograms(ValueKind[H]):
    held = Held.COUNTS
    durable = False
    json_type = "hist"
    bucketed = True

    def decode(self, decoders: Decoders) -> Decode:
        return struct.Struct(f"={self.type.buckets}Q").unpack_from

    def merge(self, size: int, decoders: Decoders) -> Callable[[bytes], AllCounts]:
        step, unpack = self.type.buckets, words(size, "Q")

        def merge(data: bytes) -> AllCounts:
            counts = unpack(data)
            copies = (counts[start : start + step] for start in range(0, len(counts), step))
            return tuple(map(sum, zip(*copies, strict=True)))

        return merge

    def reduction(self, size: int, decoders: Decoders) -> Reduction:
        # The map has an entry for each bucket.
        return Counters(types.Count()).reduction(size, decoders)

    def rank(self) -> Callable[[AllCounts], int]:
        return sum

    def subtract(self) -> Callable[[AllCounts, AllCounts], AllCounts]:
        return lambda new, old: tuple(first - second for first, second in zip(new, old, strict=True))

    def text(self, forms: TextForms) -> Callable[[Sequence[int]], bytes]:
        form, bars = shape(self.type), forms.bars
        return lambda counts: text(form, counts, bars=bars)

    def json(self, forms: JsonForms) -> Callable[[Sequence[int]], bytes]:
        form = shape(self.type)
        return lambda counts: json_text(form, counts)

    def portable(self, forms: object) -> Callable[[AllCounts], Counts]:
        return lambda counts: {number: count for number, count in enumerate(counts) if count}

    def restored(self) -> Callable[[Counts], AllCounts]:
        return lambda value: tuple(all_buckets(self.type, value))

    def python(self) -> Callable[[Counts], Histogram]:
        return lambda value: Histogram(self.type, value)

    def join(self) -> Join[Counts]:
        def join(first: Counts | None, second: Counts) -> Counts:
            counts = dict(first or ())
            get = counts.get
            for bucket, count in second.items():
                counts[bucket] = (get(bucket, 0) + count) & WORD_MASK
            return counts

        return join

    def change(self) -> Subtract:
        return lambda was, is_: counts_change(was or {}, is_ or {})

    def signed(self) -> types.Type:
        return self.type

    def change_text(self, form: Callable[[Plain], bytes]) -> Callable[[Change], bytes]:
        type_, buckets_shape = self.type, shape(self.type)

        def shown(change: Change) -> bytes:
            assert isinstance(change.delta, dict)
            buckets = list(used(buckets_shape, all_buckets(type_, change.delta)))
            most = max(abs(bucket.count) for bucket in buckets)
            lines = []
            for bucket in buckets:
                bar = ("+" if bucket.count > 0 else "-") * (abs(bucket.count) * _BAR // most)
                lines.append(f"{bucket.label:<16}{bucket.count:>+8} |{bar:<{_BAR}}|\n")
            return ("\n" + "".join(lines) + "\n").encode()

        return shown

    def change_json(self) -> Callable[[Change], bytes]:
        def shown(change: Change) -> bytes:
            assert isinstance(change.delta, dict)
            return json_text(shape(self.type), all_buckets(self.type, change.delta))

        return shown

    def metrics(self, name: str, values: Callable[[], Iterator[Counts]], *, timestamps: bool) -> list[Metric]:
        if any(count < 0 for counts in values() for count in counts.values()):
            raise TraceError(f"metric {name}: buckets of a histogram cannot have negative counts")
        seen = {bucket for counts in values() for bucket, count in counts.items() if count}
        # All series of the family have the same buckets, from the one below the first that counted something.
        buckets = range(max(0, min(seen, default=0) - 1), max(seen, default=-1) + 1)
        bounds = self._upper_bounds(buckets)

        def samples(labels: Labels, counts: Counts) -> Iterator[Sample]:
            total = 0
            for bucket, bound in bounds:
                total += counts.get(bucket, 0)
                yield Sample("_bucket", (*labels, ("le", bound)), total)
            yield Sample("_bucket", (*labels, ("le", "+Inf")), sum(counts.values()))

        return [Metric(MetricKind.HISTOGRAM, samples)]

    def _upper_bounds(self, buckets: Iterable[int]) -> list[tuple[int, str]]:
        """Numbers of buckets and their greatest values, as ``le`` has them; without one that has no end."""
        form = shape(self.type)
        return [
            # Digits of an integer, as not every one below 2**64 is a float.
            (bucket, f"{form.bound(bucket) - 1}.0")
            for bucket in buckets
            if not (form.open_above and bucket == form.buckets - 1)
        ]


class LogHistograms(_Histograms[Hist]):
    """``hist()``."""

    def divided(self, div: int) -> Callable[[AllCounts], AllCounts]:
        return lambda value: tuple(count // div for count in value)

    def described(self) -> str:
        return f"hist with {self.type.bits} bits"

    def union(self, other: Hist) -> Hist:
        same_or_mismatch(self.type.bits, other.bits)
        return self.type


class LinearHistograms(_Histograms[LHist]):
    """``lhist()``; ``div`` does not apply."""

    def described(self) -> str:
        return f"lhist from {self.type.low} to {self.type.high} by {self.type.step}"

    def union(self, other: LHist) -> LHist:
        same_or_mismatch((self.type.low, self.type.high, self.type.step), (other.low, other.high, other.step))
        return self.type


# ---------------------------------------------------------------------------------------------- heat maps

HEAT_LEVELS = 9
_SIGNS = " .:-=+*#%@"
"""Signs of the levels, for terminals without colour, files and pipes."""
_COLOURS = (0, 53, 54, 90, 126, 161, 197, 203, 209, 220)
"""Colours of the levels, of the palette of 256: from dark to bright."""
_WIDEST = 4
"""Columns of a bucket, at most."""
_TIME_COLUMNS, _TOTAL_COLUMNS = 9, 11
"""Columns before and after the cells."""


def heat_level(count: int) -> int:
    """0 for no value, 1 for 1 to 3, 2 for 4 to 15, and so on by powers of four up to :data:`HEAT_LEVELS`."""
    return min(HEAT_LEVELS, (count.bit_length() + 1) // 2)


class HeatScale(msgspec.Struct, frozen=True):
    """The cells of a line of a heat map: buckets from left to right, a colour or sign for each count.

    Each of the *cells* has *group* buckets, from *first* on, and is *width* columns wide.
    """

    first: int
    group: int
    cells: int
    width: int

    @classmethod
    def of(cls, low: int, high: int, columns: int) -> HeatScale:
        """The scale of the buckets *low* to *high* on a terminal of *columns*."""
        room = max(8, columns - _TIME_COLUMNS - _TOTAL_COLUMNS)
        buckets = high - low + 1
        group = -(-buckets // room)
        cells = -(-buckets // group)
        return cls(low, group, cells, min(_WIDEST, room // cells))

    def covers(self, low: int, high: int) -> bool:
        """Whether the buckets *low* to *high* have cells."""
        return self.first <= low and high < self.end

    @property
    def end(self) -> int:
        """The bucket after the last one."""
        return self.first + self.group * self.cells

    def sums(self, counts: Sequence[int]) -> list[int]:
        """The values in each cell."""
        return [sum(counts[start : start + self.group]) for start in range(self.first, self.end, self.group)]

    def heading(self, title: bytes, shape: Shape, *, colour: bool) -> bytes:
        """Two lines: what the colours mean, and the lower bounds of cells, each where its cell begins."""
        meanings = [_cell(number, 1, colour=colour) + _least(number) for number in range(1, HEAT_LEVELS + 1)]
        bounds = b""
        for cell in range(self.cells):
            bucket, column = self.first + cell * self.group, cell * self.width
            label = f"|{shape.label(bucket - 1)}" if bucket else f"|<{shape.label(0)}"
            if column >= len(bounds) + bool(bounds):
                bounds = bounds.ljust(column) + label.encode()
        end = _TIME_COLUMNS + self.cells * self.width + _TOTAL_COLUMNS
        ruler = b"TIME".ljust(_TIME_COLUMNS) + bounds
        total = b" TOTAL".rjust(end - len(ruler))
        return b"%s: %s\n%s%s\n" % (title, b" ".join(meanings), ruler, total)

    def line(self, time: bytes, counts: Sequence[int], *, colour: bool) -> bytes:
        """The line of an interval: its time, the cells, and how many values it has."""
        cells = b"".join([_cell(heat_level(count), self.width, colour=colour) for count in self.sums(counts)])
        return b"%s%s%s\n" % (time.ljust(_TIME_COLUMNS), cells, str(sum(counts)).encode().rjust(_TOTAL_COLUMNS))


def _least(number: int) -> bytes:
    """The least count of a level."""
    least = 4 ** (number - 1)
    return b"%dK" % (least >> 10) if least >= 1 << 10 else b"%d" % least


def _cell(number: int, width: int, *, colour: bool) -> bytes:
    if not colour:
        return _SIGNS[number].encode() * width
    return b"\x1b[48;5;%dm%s\x1b[0m" % (_COLOURS[number], b" " * width) if number else b" " * width
