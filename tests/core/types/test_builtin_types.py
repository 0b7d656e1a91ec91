"""Types that builtins produce: sizes of what they hold."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core.types import (
    Avg,
    Count,
    Fixed,
    Hist,
    LHist,
    Max,
    Min,
    Stack,
    StackMode,
    Stats,
    Sum,
)
from pytrace.render.text import fixed


def test_bucket_counts_match_the_reference() -> None:
    assert Hist(0).buckets == 66
    assert Hist(5).buckets == ((65 - 5) << 5) + 1
    assert LHist(0, 10, 2).buckets == 7


@pytest.mark.parametrize(
    ("bounds", "buckets"), [((0, 10, 2), 7), ((0, 10, 10), 3), ((5, 6, 1), 3), ((0, 10, 3), 5), ((10, 110, 25), 6)]
)
def test_linear_buckets_have_two_more_for_what_is_outside(bounds: tuple[int, int, int], buckets: int) -> None:
    assert LHist(*bounds).buckets == buckets


@pytest.mark.parametrize("kind", [Min, Max])
@pytest.mark.parametrize("signed", [True, False])
def test_ranks_order_the_samples_of_extremes(kind: type[Min | Max], signed: bool) -> None:
    """Zero is the rank of the least wanted sample, so that memory that is zero holds no sample."""
    numbers = [-(2**63), -5, -1, 0, 7, 2**63 - 1] if signed else [0, 1, 2**63, 2**64 - 1]
    type_ = kind(signed)
    ranks = [type_.rank(number) for number in numbers]
    assert ranks == sorted(ranks, reverse=kind is Min)
    assert min(ranks) == 0
    assert [type_.value(rank) for rank in ranks] == numbers


@pytest.mark.parametrize(
    ("mode", "user", "frame"),
    [
        (StackMode.BPFTRACE, False, 8),
        (StackMode.PERF, True, 8),
        (StackMode.RAW, True, 8),
        (StackMode.BUILD_ID, True, 32),
    ],
)
def test_stacks(mode: StackMode, user: bool, frame: int) -> None:
    stack = Stack(user, 5, mode)
    assert stack.frame_size == frame
    assert stack.size >= 5 * frame
    assert stack.size % stack.align == 0
    assert Stack(user, 6, mode).size - stack.size == frame


def test_names() -> None:
    assert [str(item) for item in (Sum(), Sum(False), Avg(False), Count(), Stats(False), Hist(3))] == [
        "sum_t", "usum_t", "uavg_t", "count_t", "ustats_t", "hist_t",
    ]  # fmt: skip


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from([1, 2, 3, 1000, 1024, 10**12]), st.integers(0, 9))
def test_decimal_numbers_are_rounded_half_away_from_zero(value: int, divisor: int, digits: int) -> None:
    kind = Fixed(divisor, digits)
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(value) / divisor
        expected = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
        scaled = int(expected.scaleb(digits))
    assert kind.scaled(value) == scaled
    text = fixed(kind)(value).decode()
    assert text == f"{expected:f}" or (expected == 0 and text == f"{abs(expected):f}")
    assert kind.number(value) == float(expected)
