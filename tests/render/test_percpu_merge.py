"""pytrace.render.percpu_merge: one value of the copies of all CPUs, ranks, and division."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.types import INT32, INT64, UINT64, Array, Avg, Count, Enum, Hist, Max, Min, Record, Stats, Sum, Tuple
from pytrace.render.forms import Decoders
from pytrace.render.percpu_merge import SINGLE
from pytrace.render.value_types import ROWS, divided, merging_of
from tests.support.encode import encode
from tests.support.rows import each_row

COLOUR = Enum("colour", 4, False, (("RED", 0), ("BLUE", 7)))
SMALL = Hist(0)


def merged(kind: types.Type, *copies: Any) -> Any:
    data = b"".join(encode(kind, item).ljust((kind.size + 7) & ~7, b"\0") for item in copies)
    if len(copies) == 1:
        data = data[: kind.size]
    return merging_of(kind).merge(kind, len(data), Decoders())(data)


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
    assert ROWS[types.TSeries].merging.merge(kind, len(data), Decoders())(data) == ((7, -5, 1), (8, 3, 2))


@pytest.mark.parametrize(
    ("kind", "value", "rank"),
    [
        (types.Int, -5, -5), (types.Count, 7, 7), (types.Sum, 7, 7), (types.Min, (4, 1), 4), (types.Max, (4, 1), 4),
        (types.Avg, (-9, 2), -4), (types.Stats, (9, 2), 4), (types.Avg, (0, 0), 0), (types.Hist, (1, 2), 3),
        (types.TSeries, ((7, 1, 1), (9, 0, 1)), 9), (types.TSeries, (), 0),
    ],
)  # fmt: skip
def test_what_entries_are_ordered_by(kind: type[types.Type], value: Any, rank: int) -> None:
    sort = ROWS[kind].merging.rank
    assert sort is not None
    assert sort(value) == rank


def test_values_that_one_cpu_keeps_are_ordered_by_key() -> None:
    assert SINGLE.rank is SINGLE.subtract is None


@pytest.mark.parametrize(
    ("kind", "new", "old", "rest"),
    [(types.Count, 9, 4, 5), (types.Sum, -9, 4, -13), (types.Avg, (9, 3), (4, 1), (5, 2)),
     (types.Hist, (3, 4), (1, 4), (2, 0))],
)  # fmt: skip
def test_an_earlier_value_off_a_later_one(kind: type[types.Type], new: Any, old: Any, rest: Any) -> None:
    subtract = ROWS[kind].merging.subtract
    assert subtract is not None
    assert subtract(new, old) == rest


def test_extremes_cannot_be_taken_off() -> None:
    assert all(ROWS[kind].merging.subtract is None for kind in (types.Min, types.Max, types.TSeries))


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
    assert divided(kind, 10)(value) == result


def test_members_of_structs_are_divided() -> None:
    struct_ = types.Struct("struct", "s", 16, (types.Field("a", INT64, 0), types.Field("b", types.BOOL, 8)))
    assert divided(struct_, 10)((25, True)) == (2, True)


def test_types_with_buckets_are_those_of_several_lines() -> None:
    assert {kind for kind, row in ROWS.items() if row.merging.bucketed} == {types.Hist, types.LHist, types.TSeries}
