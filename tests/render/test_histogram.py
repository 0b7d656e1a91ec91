"""Histograms and time series."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.types import (
    INT32,
    INT64,
    UINT64,
    Array,
    Avg,
    Count,
    Enum,
    Hist,
    LHist,
    Max,
    Min,
    Record,
    Stack,
    StackMode,
    Stats,
    String,
    Sum,
    Tuple,
)
from pytrace.render import histogram, map_printer
from pytrace.render.forms import Decoders
from pytrace.render.text import Bars
from pytrace.render.value_kind import Piece
from pytrace.render.values import KINDS, value_kind_of
from tests.render.test_rows import bucket, counts, linear
from tests.support.encode import encode
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- histogram
# Bounds and labels of buckets, bars, percentiles.


U64 = 2**64


@given(st.integers(0, U64 - 1), st.integers(0, 5))
def test_a_value_lies_in_its_bucket(value: int, bits: int) -> None:
    form = histogram.shape(Hist(bits))
    number = bucket(value, bits)
    assert number < form.buckets
    assert form.bound(number - 1) <= value < form.bound(number)


@given(st.integers(-50, 400), st.integers(0, 100), st.integers(1, 200), st.integers(1, 60))
def test_a_value_lies_in_its_linear_bucket(value: int, low: int, span: int, step: int) -> None:
    kind = LHist(low, low + span, min(step, span))
    number = linear(value, kind.low, kind.high, kind.step)
    (found,) = histogram.used(histogram.shape(kind), counts(kind.buckets, [number]))
    assert found.low is None or found.low <= value
    assert found.high is None or value < found.high or value == kind.high


@each_row(
    ("bits", "value", "label"),
    [
        (0, -1, "(..., 0)"), (0, 0, "[0]"), (0, 1, "[1]"), (0, 2, "[2, 4)"), (0, 1000, "[512, 1K)"),
        (0, 2**20, "[1M, 2M)"), (0, U64 - 1, "[8E, 16E)"), (1, 3, "[3]"), (1, 4, "[4, 6)"), (5, 63, "[63]"),
        (5, 64, "[64, 66)"), (5, 1024, "[1024, 1056)"), (2, 4096, "[4K, 5K)"), (2, 1 << 14, "[16K, 20K)"),
    ],
)  # fmt: skip
def test_labels(bits: int, value: int, label: str) -> None:
    kind = Hist(bits)
    (found,) = histogram.used(histogram.shape(kind), counts(kind.buckets, [bucket(value, bits)]))
    assert found.label == label


def test_linear_labels() -> None:
    def labels(kind: LHist) -> list[str]:
        return [item.label for item in histogram.used(histogram.shape(kind), [1] * kind.buckets)]

    assert labels(LHist(0, 3, 1)) == ["(..., 0)", "[0]", "[1]", "[2]", "[3, ...)"]
    assert labels(LHist(0, 10, 3)) == ["(..., 0)", "[0, 3)", "[3, 6)", "[6, 9)", "[9, ...)"]
    assert labels(LHist(0, 4096, 2048)) == ["(..., 0)", "[0, 2K)", "[2K, 4K)", "[4K, ...)"]


def test_bars() -> None:
    found = histogram.text(histogram.shape(LHist(0, 2, 1)), (3, 0, 1, 4)).decode().splitlines()
    assert [line.count("@") for line in found] == [39, 0, 13, 52]
    assert found[1] == "[0]                    0 |" + " " * 52 + "|"
    hist = Hist()
    assert b"       5 |" in histogram.text(histogram.shape(hist), counts(hist.buckets, [3] * 10), 2)
    assert b"      10 |" in histogram.text(histogram.shape(LHist(0, 9, 1)), (0, 10), 2)
    assert histogram.text(histogram.shape(Hist()), (0,) * Hist().buckets) == b""


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=200), st.integers(0, 5),
       st.sampled_from(("0", "1", "50", "90", "99", "99.9", "100")))  # fmt: skip
def test_the_true_percentile_is_within_the_stated_error(values: list[int], bits: int, percent: str) -> None:
    kind = Hist(bits)
    tally = counts(kind.buckets, [bucket(value, bits) for value in values])
    (found,) = histogram.quantiles(histogram.shape(kind), tally, [percent])
    rank = max(1, math.ceil(Fraction(percent) * len(values) / 100))
    true = sorted(values)[rank - 1]
    assert found.value is not None
    assert found.error is not None
    assert found.low is not None
    assert found.high is not None
    assert abs(true - found.value) <= found.error
    assert found.low <= true <= found.high
    # A bucket is 1/2**bits of its power of two wide, so the middle is off by half of that at most.
    assert found.error <= max(1, true) / 2**bits


def test_percentiles_at_open_ends() -> None:
    form = histogram.shape(LHist(0, 10, 5))
    low, high = histogram.quantiles(form, (1, 0, 0, 1), ["10", "99.9"])
    assert map_printer.quantile_text(low) == b"p10      < 0\n"
    assert map_printer.quantile_text(high) == b"p99.9    >= 10\n"
    (none,) = histogram.quantiles(form, (0, 0, 0, 0), ["50"])
    assert map_printer.quantile_text(none) == b"p50      no data\n"


def test_percentile_text() -> None:
    kind = Hist(5)
    tally = counts(kind.buckets, [bucket(value, 5) for value in [7] * 10 + [1000] * 10])
    found = histogram.quantiles(histogram.shape(kind), tally, ["50", "99"])
    assert b"".join(map(map_printer.quantile_text, found)).decode() == "p50      7\np99      999 ±8\n"


@pytest.mark.parametrize(
    ("count", "most", "bar"),
    [
        (0, 7, ""), (7, 7, "█" * 52), (1, 2, "█" * 26), (1, 416, "▏"), (1, 10**12, "▏"), (3, 8, "█" * 19 + "▌"),
        (1, 3, "█" * 17 + "▎"),
    ],
)  # fmt: skip
def test_bars_of_blocks(count: int, most: int, bar: str) -> None:
    assert histogram.tail(count, most, Bars.COLOUR).decode() == f"{count:>8} |\x1b[36m{bar:<52}\x1b[0m|\n"


# ---------------------------------------------------------------------------------------------- percpu merge
# One value of the copies of all CPUs, ranks, and division.


COLOUR = Enum("colour", 4, False, (("RED", 0), ("BLUE", 7)))
SMALL = Hist(0)


def merged(kind: types.Type, *copies: Any) -> Any:
    data = b"".join(encode(kind, item).ljust((kind.size + 7) & ~7, b"\0") for item in copies)
    if len(copies) == 1:
        data = data[: kind.size]
    return value_kind_of(kind).merge(len(data), Decoders())(data)


@each_row(
    ("kind", "copies", "value"),
    [
        (INT64, [-5], -5),
        (INT32, [-5], -5),
        (INT32, [-5, 3, -1], -3),
        (INT64, [2**63 - 1, 1], -(2**63)),
        (UINT64, [2**64 - 1, 2], 1),
        (COLOUR, [7], 7),
        (Count(), [1, 2, 3], 6),
        (Sum(True), [-5, 3], -2),
        (Sum(True), [2**63 - 1, 1], -(2**63)),
        (Sum(False), [2**64 - 1, 2], 1),
        (Avg(True), [(-9, 2), (1, 2)], (-8, 4)),
        (Avg(False), [(2**64 - 1, 1), (2, 1)], (1, 2)),
        (Stats(True), [(5, 1), (0, 0)], (5, 1)),
        (Min(True), [(-5, 1), (3, 1), (0, 0)], (-5, 1)),
        (Max(True), [(-5, 1), (-3, 1), (0, 0)], (-3, 1)),
        (Max(False), [(2**64 - 1, 1), (5, 1)], (2**64 - 1, 1)),
        (Min(True), [(0, 0), (0, 0)], (0, 0)),
        (types.String(8), [b"abc"], b"abc"),
    ],
)
def test_copies_become_one_value(kind: types.Type, copies: list[Any], value: Any) -> None:
    assert merged(kind, *copies) == value


def test_buckets_are_added_one_by_one() -> None:
    kind = Hist(0)
    one = [0] * kind.buckets
    one[3], one[-1] = 5, 1
    other = [0] * kind.buckets
    other[3], other[0] = 2, 7
    found = merged(kind, one, other)
    assert (found[0], found[3], found[-1], sum(found)) == (7, 7, 1, 15)


def test_intervals_of_a_series_are_those_that_were_used() -> None:
    kind = types.TSeries(1_000_000_000, 4, "sum")
    data = b"".join(struct.pack("=QqQ", *row) for row in ((7, -5, 1), (0, 9, 9), (8, 3, 2)))
    assert value_kind_of(kind).merge(len(data), Decoders())(data) == ((7, -5, 1), (8, 3, 2))


@pytest.mark.parametrize(
    ("kind", "value", "rank"),
    [
        (INT64, -5, -5), (Count(), 7, 7), (Sum(), 7, 7), (Min(), (4, 1), 4), (Max(), (4, 1), 4),
        (Avg(), (-9, 2), -4), (Stats(), (9, 2), 4), (Avg(), (0, 0), 0), (Hist(), (1, 2), 3),
        (types.TSeries(), ((7, 1, 1), (9, 0, 1)), 9), (types.TSeries(), (), 0),
    ],
)  # fmt: skip
def test_what_entries_are_ordered_by(kind: types.Type, value: Any, rank: int) -> None:
    sort = value_kind_of(kind).rank()
    assert sort is not None
    assert sort(value) == rank


def test_values_that_one_cpu_keeps_are_ordered_by_key() -> None:
    kind = value_kind_of(types.String(4))
    assert kind.rank() is kind.subtract() is None


@pytest.mark.parametrize(
    ("kind", "new", "old", "rest"),
    [(Count(), 9, 4, 5), (Sum(), -9, 4, -13), (Avg(), (9, 3), (4, 1), (5, 2)),
     (Hist(), (3, 4), (1, 4), (2, 0))],
)  # fmt: skip
def test_an_earlier_value_off_a_later_one(kind: types.Type, new: Any, old: Any, rest: Any) -> None:
    subtract = value_kind_of(kind).subtract()
    assert subtract is not None
    assert subtract(new, old) == rest


def test_extremes_cannot_be_taken_off() -> None:
    assert all(value_kind_of(kind).subtract() is None for kind in (Min(), Max(), types.TSeries()))


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        (INT64, -25, -2), (Count(), 25, 2), (Sum(True), -25, -2), (Min(True), (-25, 1), (-2, 1)),
        (Avg(True), (-75, 3), (-2, 1)), (SMALL, (25, 5), (2, 0)), (Array(INT32, 2), (25, -25), (2, -2)),
        (Tuple((INT64, types.String(4), Tuple((INT64,)))), (25, b"a", (35,)), (2, b"a", (3,))),
        (Record(("a", "b"), (INT64, types.BOOL)), (25, True), (2, True)), (types.String(4), b"25", b"25"),
        (COLOUR, 7, 7),
    ],
)  # fmt: skip
def test_division_rounds_towards_zero(kind: types.Type, value: Any, result: Any) -> None:
    assert value_kind_of(kind).divided(10)(value) == result


def test_division_of_structs_and_types_with_buckets() -> None:
    struct_ = types.Struct("struct", "s", 16, (types.Field("a", INT64, 0), types.Field("b", types.BOOL, 8)))
    assert value_kind_of(struct_).divided(10)((25, True)) == (2, True)
    assert {type_ for type_, kind in KINDS.items() if kind.bucketed} == {types.Hist, types.LHist, types.TSeries}


# ---------------------------------------------------------------------------------------------- sort keys
# Which parts of values decide their order.


def test_orders_of_types() -> None:
    assert value_kind_of(INT32).pieces() == [Piece(0, 4, True, True)]
    assert value_kind_of(String(9)).pieces() == [Piece(0, 9, False, ends=True)]
    assert value_kind_of(Tuple((INT32, UINT64))).pieces() == [Piece(0, 4, True, True), Piece(8, 8)]
    assert value_kind_of(Array(UINT64, 2)).pieces() == [Piece(0, 8), Piece(8, 8)]
    assert value_kind_of(types.USym()).pieces() == [Piece(8, 4), Piece(0, 8)], "the process comes first"
    assert value_kind_of(Stack(True, 5)).pieces() == [Piece(0, 48, False, False, 5)]
    assert value_kind_of(Stack(True, 300)).pieces() is None
    assert value_kind_of(Stack(True, 5, StackMode.BUILD_ID)).pieces() is None
    struct = types.Struct("struct", "s", 8, (types.Field("a", UINT64, 0),))
    assert value_kind_of(struct).pieces() is None
    assert value_kind_of(Tuple((INT32, struct))).pieces() is None
    assert value_kind_of(Array(struct, 2)).pieces() is None
