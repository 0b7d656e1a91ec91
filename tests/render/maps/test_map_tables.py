"""Maps as CSV tables."""

from __future__ import annotations

from typing import Any

from pytrace.core.types import (
    INT64,
    UINT32,
    UINT64,
    Avg,
    Count,
    Hist,
    LHist,
    Record,
    Stack,
    Stats,
    String,
    TSeries,
    Tuple,
)
from tests.render.test_rows import bucket
from tests.support.encode import Frame, Run, Symbols


def show(run: Run, *names: str, **static: Any) -> list[str]:
    for identity in [run.event("print_map", map=name, **static) for name in names]:
        run.send(identity)
    return run.printed_text().split("\r\n")[:-1]


def test_unkeyed() -> None:
    run = Run(csv=True)
    run.scalar("@a", INT64, -3)
    run.scalar("@s", Stats(), (10, 4))
    run.scalar("@r", Record(("x", "y"), (INT64, String(4))), (1, b"a,b"))
    assert show(run, "@a", "@s", "@r") == [
        "@a", "-3", "", "@s.count,@s.average,@s.total", "4,2,10", "", "@r.x,@r.y", '1,"a,b"',
    ]  # fmt: skip


def test_keys_are_columns() -> None:
    run = Run(csv=True)
    run.keyed("@", Tuple((UINT32, String(8))), Count(), {(1, b"a"): 5, (2, b'"'): 6})
    run.keyed("@n", Record(("pid", "comm"), (UINT32, String(8))), Avg(), {(7, b"x"): (9, 2)})
    assert show(run, "@", "@n") == ["key1,key2,@", "1,a,5", '2,"""",6', "", "pid,comm,@n", "7,x,4"]


def test_each_print_is_a_table_of_its_own() -> None:
    run = Run(csv=True)
    run.scalar("@a", INT64, 1)
    assert show(run, "@a", "@a") == ["@a", "1", "", "@a", "1"]


def test_order_number_and_divisor() -> None:
    run = Run(csv=True)
    run.keyed("@", INT64, INT64, {1: 10, 2: 30, 3: 20})
    assert show(run, "@", top=2, div=10, order="-value") == ["key,@", "3,2", "1,1"]


def test_a_histogram_has_a_row_for_each_bucket() -> None:
    run = Run(csv=True)
    run.bucketed("@h", UINT64, Hist(), {1: {bucket(5, 0): 3, bucket(9, 0): 4}})
    run.bucketed("@l", UINT64, LHist(0, 20, 10), {1: {0: 1, 2: 5, 3: 2}})
    assert show(run, "@h", "@l") == [
        "key,@h.min,@h.max,@h.count", "1,4,7,3", "1,8,15,4",
        "", "key,@l.min,@l.max,@l.count", "1,,-1,1", "1,0,9,0", "1,10,19,5", "1,20,,2",
    ]  # fmt: skip


def test_quantiles() -> None:
    run = Run(csv=True)
    run.bucketed("@h", UINT64, Hist(), {1: {bucket(5, 0): 3}})
    run.send(run.event("quantiles", map="@h", percents=[50.0, 99.9]))
    assert run.printed_text().split("\r\n")[:-1] == [
        "key,@h.percentile,@h.value,@h.error,@h.min,@h.max", "1,50,5,2,4,7", "1,99.9,5,2,4,7",
    ]  # fmt: skip


def test_a_series_has_a_row_for_each_interval() -> None:
    run = Run(csv=True)
    second = 1_000_000_000
    run.bucketed("@t", UINT64, TSeries(second, 3, "sum"), {1: {0: (1, 5, 1), 1: (3, 7, 1)}})
    names, *rows = show(run, "@t")
    assert names == "key,@t.start,@t.value"
    assert [row.split(",")[0] + row[row.rindex(","):] for row in rows] == ["1,5", "1,7"]


def test_frames_of_a_stack_are_joined() -> None:
    run = Run(csv=True, symbols=Symbols({16: [Frame("inner", 1)], 32: [Frame("outer", 2)]}))
    run.keyed("@", Stack(False, 4), Count(), {(0, (16, 32), 0): 1})
    assert show(run, "@") == ["key,@", "inner+1;outer+2,1"]


def test_maps_at_the_end() -> None:
    run = Run(csv=True)
    run.scalar("@b", INT64, 1)
    run.keyed("@a", INT64, INT64, {1: 2})
    run.keyed("@empty", INT64, INT64, {})
    run.renderer.print_maps()
    assert run.printed_text() == "key,@a\r\n1,2\r\n\r\n@b\r\n1\r\n"
