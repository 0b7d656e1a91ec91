"""The aggregations that are numbers: count, sum, avg, stats, min and max.

Every aggregation merges the copies of all CPUs (:meth:`ValueKind.merge`), and joins values of several snapshots.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.types import truncated, wrapped
from pytrace.render import json
from pytrace.render.text import named_members
from pytrace.render.value_kind import (
    WORD_MASK,
    Change,
    Held,
    Join,
    Labels,
    Metric,
    MetricKind,
    Pair,
    Piece,
    Plain,
    Reduction,
    Sample,
    Subtract,
    ValueKind,
    itself,
    merged_copies,
    numbers_change,
    words,
)

if TYPE_CHECKING:
    from pytrace.render.forms import Decoders, JsonForms, TextForms
    from pytrace.render.text import Decode

S = TypeVar("S", bound=types.Signed)
A = TypeVar("A", types.Avg, types.Stats)


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


_STATS = ("count", "average", "total")
"""Members of a stats value as it prints."""


def stats_members(value: Pair) -> tuple[int, int, int]:
    """The members of a stats value, in the order of :data:`_STATS`."""
    total, count = value
    return count, truncated(total, count), total


def _signed_union(first: S, second: S) -> S:
    """The type of numbers of both, which are signed if one is."""
    return replace(first, signed=first.signed or second.signed, either=first.either and second.either)


# ---------------------------------------------------------------------------------------------- sums


N = TypeVar("N", types.Count, types.Sum)


class _Sums(ValueKind[N]):
    held = Held.INTEGER
    number = True
    durable = False

    def code(self) -> str:
        return "q" if self.type.signed else "Q"

    def merge(self, size: int, decoders: Decoders) -> Callable[[bytes], int]:
        wrap, unpack = wrapped(self.type.signed), words(size, self.code())
        return lambda data: wrap(sum(unpack(data)))

    def reduction(self, size: int, decoders: Decoders) -> Reduction:
        pack = struct.Struct("=" + self.code()).pack
        return Reduction(self.type, 8, merged_copies(self, size, 8, pack, decoders))

    def rank(self) -> Callable[[int], int]:
        return itself

    def subtract(self) -> Callable[[int, int], int]:
        return lambda new, old: new - old

    def divided(self, div: int) -> Callable[[int], int]:
        return lambda value: truncated(value, div)

    def text(self, forms: TextForms) -> Callable[[int], bytes]:
        return lambda value: b"%d" % value

    def json(self, forms: JsonForms) -> Callable[[int], bytes]:
        return json.number

    def join(self) -> Join[int]:
        wrap = wrapped(self.type.signed)
        return lambda first, second: wrap((first or 0) + second)

    def change(self) -> Subtract:
        return numbers_change

    def signed(self) -> types.Type:
        return types.Sum(True)


class Counters(_Sums[types.Count]):
    """``count()``."""

    def pieces(self) -> list[Piece]:
        return [Piece(0, 8)]

    def metrics(self, name: str, values: Callable[[], Iterator[int]], *, timestamps: bool) -> list[Metric]:
        return [Metric(MetricKind.COUNTER, lambda labels, value: [Sample("_total", labels, value)], unit=False)]


class Sums(_Sums[types.Sum]):
    """``sum()``; a signed one can fall."""

    def pieces(self) -> list[Piece]:
        return [Piece(0, 8, True, self.type.signed)]

    def union(self, other: types.Sum) -> types.Sum:
        return _signed_union(self.type, other)

    def metrics(self, name: str, values: Callable[[], Iterator[int]], *, timestamps: bool) -> list[Metric]:
        if self.type.signed:
            return super().metrics(name, values, timestamps=timestamps)
        return [Metric(MetricKind.COUNTER, lambda labels, value: [Sample("_total", labels, value)])]


# ---------------------------------------------------------------------------------------------- totals with counts


def _ranked(
    kind: ValueKind[S], size: int, pack: Callable[..., bytes], rank: Callable[..., int], decoders: Decoders
) -> Reduction:
    """The reduction of values of two words, which are sorted by a number that has to be computed."""
    type_ = kind.type
    decode, code = decoders.decoder(type_), "q" if type_.signed else "Q"

    def ranks(values: bytes) -> array[int]:
        return array(code, [rank(decode(values, offset)) for offset in range(0, len(values), 16)])

    return Reduction(type_, 16, merged_copies(kind, size, 16, pack, decoders), ranks, type_.signed)


class _Pairs(ValueKind[A]):
    held = Held.PAIR
    number = True
    durable = False
    json_type = "stats"

    def decode(self, decoders: Decoders) -> Decode:
        return struct.Struct(self._layout()).unpack_from

    def _layout(self) -> str:
        return "=qQ" if self.type.signed else "=QQ"

    def merge(self, size: int, decoders: Decoders) -> Callable[[bytes], Pair]:
        signed = self.type.signed
        wrap, unpack = wrapped(signed), struct.Struct("=" + ("qQ" if signed else "QQ") * (size // 16)).unpack

        def merge(data: bytes) -> Pair:
            words = unpack(data)
            return wrap(sum(words[::2])), sum(words[1::2])

        return merge

    def reduction(self, size: int, decoders: Decoders) -> Reduction:
        pack = struct.Struct(self._layout()).pack
        return _ranked(self, size, lambda value: pack(*value), self.rank(), decoders)

    def rank(self) -> Callable[[Pair], int]:
        return lambda value: truncated(*value)

    def subtract(self) -> Callable[[Pair, Pair], Pair]:
        return lambda new, old: (new[0] - old[0], new[1] - old[1])

    def union(self, other: A) -> A:
        return _signed_union(self.type, other)

    def join(self) -> Join[Pair]:
        wrap = wrapped(self.type.signed)

        def join(first: Pair | None, second: Pair) -> Pair:
            total, count = first or (0, 0)
            return wrap(total + second[0]), (count + second[1]) & WORD_MASK

        return join

    def change(self) -> Subtract:
        def subtract(was: Pair | None, is_: Pair | None) -> tuple[Pair, int]:
            old, new = was or (0, 0), is_ or (0, 0)
            return (new[0] - old[0], new[1] - old[1]), abs(truncated(*new) - truncated(*old))

        return subtract

    def metrics(self, name: str, values: Callable[[], Iterator[Pair]], *, timestamps: bool) -> list[Metric]:
        if not self.type.signed:
            return [Metric(MetricKind.SUMMARY, _sum_and_count)]
        return [
            Metric(MetricKind.GAUGE, _mean),
            Metric(
                MetricKind.COUNTER, lambda labels, value: [Sample("_total", labels, value[1])],
                "_samples", ": number of samples",
            ),
        ]  # fmt: skip


def _sum_and_count(labels: Labels, value: Pair) -> list[Sample]:
    return [Sample("_count", labels, value[1]), Sample("_sum", labels, value[0])]


def _mean(labels: Labels, value: Pair) -> list[Sample]:
    total, count = value
    return [Sample("", labels, total / count if count else 0)]


class Averages(_Pairs[types.Avg]):
    """``avg()``: total / count, truncated."""

    def divided(self, div: int) -> Callable[[Pair], Pair]:
        return lambda value: (truncated(truncated(*value), div), 1)

    def text(self, forms: TextForms) -> Callable[[Pair], bytes]:
        return lambda value: b"%d" % truncated(*value)

    def json(self, forms: JsonForms) -> Callable[[Pair], bytes]:
        return lambda value: json.number(truncated(*value))

    def python(self) -> Callable[[Pair], Average]:
        return lambda value: Average(*value)

    def change_text(self, form: Callable[[Plain], bytes]) -> Callable[[Change], bytes]:
        def shown(change: Change) -> bytes:
            old, new = change.before or (0, 0), change.after or (0, 0)
            step, count = truncated(*new) - truncated(*old), new[1] - old[1]
            return b" %+d (%s; count %+d)\n" % (step, change.from_to(form), count)

        return shown

    def change_json(self) -> Callable[[Change], bytes]:
        return lambda change: json.number(truncated(*(change.after or (0, 0))) - truncated(*(change.before or (0, 0))))


class Statistics(_Pairs[types.Stats]):
    """``stats()``: count, average and total."""

    def text(self, forms: TextForms) -> Callable[[Pair], bytes]:
        record = named_members(_STATS, [lambda number: b"%d" % number] * 3, forms.comma, compact=forms.compact)
        return lambda value: record(stats_members(value))

    def json(self, forms: JsonForms) -> Callable[[Pair], bytes]:
        record = json.named_members(_STATS, [json.number] * 3)
        return lambda value: record(stats_members(value))

    def python(self) -> Callable[[Pair], Stats]:
        return lambda value: Stats(*stats_members(value))

    def change_text(self, form: Callable[[Plain], bytes]) -> Callable[[Change], bytes]:
        def shown(change: Change) -> bytes:
            parts = [f"{name} {new - old:+d} ({old} → {new})" for name, old, new in _both(change)]
            note = " (new)" if change.before is None else " (removed)" if change.after is None else ""
            return f" {', '.join(parts)}{note}\n".encode()

        return shown

    def change_json(self) -> Callable[[Change], bytes]:
        def shown(change: Change) -> bytes:
            return json.mapping([(name.encode(), json.number(new - old)) for name, old, new in _both(change)])

        return shown


def _both(change: Change) -> Iterator[tuple[str, int, int]]:
    """The members of statistics before and after, by name."""
    return zip(_STATS, stats_members(change.before or (0, 0)), stats_members(change.after or (0, 0)), strict=True)


# ---------------------------------------------------------------------------------------------- extremes

E = TypeVar("E", types.Min, types.Max)


class _Extremes(ValueKind[E]):
    held = Held.INTEGER
    number = True
    durable = False

    def decode(self, decoders: Decoders) -> Decode:
        unpack, value = struct.Struct("=QQ").unpack_from, self.type.value

        def decode(memory: bytes | bytearray | memoryview, offset: int) -> tuple[int, int]:
            rank, seen = unpack(memory, offset)
            return (value(rank), seen) if seen else (0, 0)

        return decode

    def merge(self, size: int, decoders: Decoders) -> Callable[[bytes], Pair]:
        value, unpack = self.type.value, words(size, "Q")

        def merge(data: bytes) -> Pair:
            words = unpack(data)
            # A CPU without a value has the least rank.
            return (value(max(words[::2])), 1) if any(words[1::2]) else (0, 0)

        return merge

    def reduction(self, size: int, decoders: Decoders) -> Reduction:
        pack, rank = struct.Struct("=QQ").pack, self.type.rank
        return _ranked(
            self, size, lambda value: pack(rank(value[0]) * value[1], value[1]), self.rank(), decoders
        )

    def rank(self) -> Callable[[Pair], int]:
        return lambda value: value[0]

    def divided(self, div: int) -> Callable[[Pair], Pair]:
        return lambda value: (truncated(value[0], div), value[1])

    def text(self, forms: TextForms) -> Callable[[Pair], bytes]:
        return lambda value: b"%d" % value[0]

    def json(self, forms: JsonForms) -> Callable[[Pair], bytes]:
        return lambda value: json.number(value[0])

    def portable(self, forms: object) -> Callable[[Pair], int]:
        return lambda value: value[0]

    def restored(self) -> Callable[[int], Pair]:
        return lambda value: (value, 1)

    def union(self, other: E) -> E:
        return _signed_union(self.type, other)

    def change(self) -> Subtract:
        def subtract(was: int | None, is_: int | None) -> tuple[int | None, int]:
            if was is None or is_ is None:
                return None, abs(was or is_ or 0)
            return is_ - was, abs(is_ - was)

        return subtract


class Minima(_Extremes[types.Min]):
    """``min()``."""

    def extreme(self) -> Callable[[int, int], int]:
        return min

    def join(self) -> Join[int]:
        return lambda first, second: second if first is None else min(first, second)


class Maxima(_Extremes[types.Max]):
    """``max()``."""

    def extreme(self) -> Callable[[int, int], int]:
        return max
