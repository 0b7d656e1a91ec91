"""Aggregations: what they take, their limits, and the type of the map that holds them."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

from pytrace.frontend.check.map_family import MAX_BUCKETS, MAX_INTERVALS
from tests.frontend.checking import refusals
from tests.support.front import analyse
from tests.support.rows import each_row

# fmt: off
REFUSED = [
    ("begin { @ = tseries(1, 0, 10); }",
     "1:13-30", "the interval of tseries() must be 1 to 9223372036854775807, not 0"),
    ("begin { @ = tseries(1, 1s, 10, \"foo\"); }", "1:13-38", "tseries() aggregates by avg, max, min, sum"),
    ("begin { @ = lhist(1, 0, 100000, 1); }", "1:13-35", "lhist() would have 100000 buckets, the limit is 1000"),
    ("begin { $x = count(); }", "1:14-21", "count() must be assigned to a map directly"),
    ("begin { print(count()); }", "1:15-22", "count() must be assigned to a map directly"),
    ("begin { @x[count()] = 1; }", "1:12-19", "count() must be assigned to a map directly"),
    ("begin { @ = sum(\"a\"); }", "1:13-21", "sum() takes an integer, not string[2]"),
    ("begin { @ = avg(curtask); }", "1:13-25", "avg() takes an integer, not struct task_struct *"),
    ("begin { @ = max((1, 2)); }", "1:13-24", "max() takes an integer, not (int8,int8)"),
    ("begin { @ = stats(\"a\"); }", "1:13-23", "stats() takes an integer, not string[2]"),
    ("begin { @ = hist(\"a\"); }", "1:13-22", "hist() takes an integer, not string[2]"),
    ("begin { @ = hist(1, 6); }", "1:13-23", "the number of bits of hist() must be 0 to 5, not 6"),
    ("begin { @ = hist(1, -1); }", "1:13-24", "the number of bits of hist() must be 0 to 5, not -1"),
    ("begin { $k = 2; @ = hist(1, $k); }", "1:21-32", "the number of bits of hist() must be an integer literal"),
    ("begin { @ = lhist(1, 10, 5, 1); }",
     "1:13-31", "the minimum of lhist() must be less than the maximum, but 10 is not less than 5"),
    ("begin { @ = lhist(1, 0, 10, 0); }", "1:13-31", "the step of lhist() must be 1 or more, not 0"),
    ("begin { @ = lhist(1, 0, 10, 20); }", "1:13-32", "the step of lhist() (20) is greater than the range (10)"),
    ("begin { @ = lhist(1, -1, 10, 1); }",
     "1:13-32", "the minimum of lhist() must be 0 to 9223372036854775807, not -1"),
    ("begin { @ = tseries(\"a\", 1s, 3); }", "1:13-32", "tseries() takes an integer, not string[2]"),
    ("begin { @ = tseries(1, 1s, 0); }", "1:13-30", "the number of intervals must be 1 to 999999, not 0"),
    ("begin { @ = tseries(1, 1s, 1000000); }", "1:13-36", "the number of intervals must be 1 to 999999, not 1000000"),
    ("begin { @ = tseries(1, 1s, 3, 5); }", "1:31-32", "the aggregation of tseries() must be a string literal"),
    ("begin { @ = tseries(1, 1s, 3); @ = tseries(1, 1s, 4); }",
     "1:36-53", "the value of @ is tseries_t of 3 intervals of 1000000000 ns, this is tseries_t of 4 intervals of 1000000000 ns"),
    ("begin { @ = tseries(1, 1s, 3); @ = tseries(1, 1s, 3, \"sum\"); }",
     "1:36-60", "the value of @ is tseries_t of 3 intervals of 1000000000 ns, this is tseries_t of 3 intervals of 1000000000 ns by sum"),
    ("begin { @ = tseries(1, 1s, 3); $x = (int64)@; }",
     "1:44-45", "a value of tseries_t cannot be read by the script"),
    ("begin { $x = sum(1); }", "1:14-20", "sum() must be assigned to a map directly"),
    ("begin { @ = hist(nsecs); $x = hist(1); }", "1:31-38", "hist() must be assigned to a map directly"),
    ("begin { @ = lhist(1, 5, 5, 1); }",
     "1:13-30", "the minimum of lhist() must be less than the maximum, but 5 is not less than 5"),
    ("begin { @ = lhist(1, 0, 1001, 1); }", "1:13-33", "lhist() would have 1001 buckets, the limit is 1000"),
    ("begin { @ = tseries(1, 9223372036854775808, 3); }",
     "1:13-47", "the interval of tseries() must be 1 to 9223372036854775807, not 9223372036854775808"),
    ("config = { unstable_tseries = \"error\" } begin { @ = tseries(1, 1s, 3); }",
     "1:53-70", "tseries is unstable and disabled"),
]
# fmt: on

test_refused = refusals(REFUSED)


KEPT = [
    ("count()", "count_t"), ("count", "count_t"), ("sum(nsecs)", "usum_t"), ("sum((int8)pid)", "sum_t"), ("sum(5)", "sum_t"),
    ("sum(18446744073709551615)", "usum_t"), ("sum(true)", "sum_t"), ("avg(nsecs)", "uavg_t"), ("avg(-5)", "avg_t"),
    ("min(nsecs)", "umin_t"), ("max((int32)1)", "max_t"), ("stats(nsecs)", "ustats_t"), ("hist(1)", "hist_t"),
    (f"lhist(1, 0, {MAX_BUCKETS}, 1)", "lhist_t"), (f"tseries(1, 1s, {MAX_INTERVALS - 1})", "tseries_t"),
]  # fmt: skip


@each_row(("call", "type_"), KEPT)
def test_types_of_maps(call: str, type_: str) -> None:
    assert str(analyse(f"begin {{ @ = {call}; }}").checked().maps["@"].value) == type_


def test_time_series_are_unstable() -> None:
    result = analyse('begin { @ = tseries(1, 1s, 10); @b = tseries(1, 1s, 5, "avg"); }')
    assert [place for place, _ in result.warnings] == ["1:13-31", "1:38-62"]


def test_constants_take_the_sign_of_their_company() -> None:
    assert str(analyse("begin { @ = sum(5); @ = sum(nsecs); }").checked().maps["@"].value) == "usum_t"
