"""Bounds and labels of buckets, bars, percentiles."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.core.types import Hist, LHist
from pytrace.render import histogram
from pytrace.render.text import Bars
from tests.render.test_rows import bucket, counts, linear
from tests.support.rows import each_row

U64 = 2**64


@given(st.integers(0, U64 - 1), st.integers(0, 5))
@settings(max_examples=500, deadline=None)
def test_a_value_lies_in_its_bucket(value: int, bits: int) -> None:
    form = histogram.shape(Hist(bits))
    number = bucket(value, bits)
    assert number < form.buckets
    assert form.bound(number - 1) <= value < form.bound(number)


@given(st.integers(-50, 400), st.integers(0, 100), st.integers(1, 200), st.integers(1, 60))
@settings(deadline=None)
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


def test_bars_are_as_long_as_their_share() -> None:
    found = histogram.text(histogram.shape(LHist(0, 2, 1)), (3, 0, 1, 4)).decode().splitlines()
    assert [line.count("@") for line in found] == [39, 0, 13, 52]
    assert found[1] == "[0]                    0 |" + " " * 52 + "|"


def test_div_and_no_div_for_linear() -> None:
    hist = Hist()
    assert b"       5 |" in histogram.text(histogram.shape(hist), counts(hist.buckets, [3] * 10), 2)
    assert b"      10 |" in histogram.text(histogram.shape(LHist(0, 9, 1)), (0, 10), 2)


def test_nothing_counted_prints_nothing() -> None:
    assert histogram.text(histogram.shape(Hist()), (0,) * Hist().buckets) == b""


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=200), st.integers(0, 5),
       st.sampled_from(("0", "1", "50", "90", "99", "99.9", "100")))  # fmt: skip
@settings(max_examples=300, deadline=None)
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
    assert histogram.quantile_text(low) == b"p10      < 0\n"
    assert histogram.quantile_text(high) == b"p99.9    >= 10\n"
    (none,) = histogram.quantiles(form, (0, 0, 0, 0), ["50"])
    assert histogram.quantile_text(none) == b"p50      no data\n"


def test_percentile_text() -> None:
    kind = Hist(5)
    tally = counts(kind.buckets, [bucket(value, 5) for value in [7] * 10 + [1000] * 10])
    found = histogram.quantiles(histogram.shape(kind), tally, ["50", "99"])
    assert b"".join(map(histogram.quantile_text, found)).decode() == "p50      7\np99      999 ±8\n"


@pytest.mark.parametrize(
    ("count", "most", "bar"),
    [
        (0, 7, ""), (7, 7, "█" * 52), (1, 2, "█" * 26), (1, 416, "▏"), (1, 10**12, "▏"), (3, 8, "█" * 19 + "▌"),
        (1, 3, "█" * 17 + "▎"),
    ],
)  # fmt: skip
def test_bars_of_blocks(count: int, most: int, bar: str) -> None:
    assert histogram.tail(count, most, Bars.COLOUR).decode() == f"{count:>8} |\x1b[36m{bar:<52}\x1b[0m|\n"
