"""Maps are printed: order, tables, heat maps."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.types import (
    INT64,
    UINT32,
    UINT64,
    Array,
    Avg,
    Count,
    Hist,
    LHist,
    Max,
    Min,
    Record,
    Stack,
    Stats,
    String,
    Sum,
    TSeries,
    Tuple,
)
from pytrace.render import histogram
from pytrace.render.forms import JsonForms, TextForms
from pytrace.render.histogram import HeatScale, heat_level
from pytrace.render.map_printer import Entry, MapPrinter, Shown
from pytrace.results.formats.portable_forms import PortableNames
from tests.render.test_rows import bucket
from tests.support.encode import Frame, Run, Symbols

# ---------------------------------------------------------------------------------------------- map printer
# Maps as they print: merging, order, top, div, snapshots, percentiles, types of values and keys.


def show(run: Run, name: str, **static: Any) -> bytes:
    identity = run.event("print_map", map=name, **static)
    run.send(identity)
    return run.printed()


def ints(json_output: bool = False) -> Run:
    run = Run(json=json_output)
    run.keyed("@", INT64, INT64, {1: 10, 2: 30, 3: 20, 4: 40})
    return run


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        ({}, "1:10 3:20 2:30 4:40"),
        ({"top": 2}, "2:30 4:40"),
        ({"top": 10}, "1:10 3:20 2:30 4:40"),
        ({"top": 0, "div": 10}, "1:1 3:2 2:3 4:4"),
        ({"order": "key"}, "1:10 2:30 3:20 4:40"),
        ({"order": "-key"}, "4:40 3:20 2:30 1:10"),
        ({"order": "-value"}, "4:40 2:30 3:20 1:10"),
        ({"order": "value", "top": 1}, "4:40"),
        ({"order": "-value", "top": 2}, "3:20 1:10"),
    ],
)
def test_order_top_div(static: dict[str, Any], expected: str) -> None:
    lines = show(ints(), "@", **static).decode().splitlines()
    assert lines == ["@[{}]: {}".format(*item.split(":")) for item in expected.split()]
    data = json.loads(show(ints(True), "@", **static))
    assert data["type"] == "map"
    assert list(data["data"]["@"].items()) == [(key, int(value)) for key, value in
                                               (item.split(":") for item in expected.split())]  # fmt: skip


def test_order_and_division_of_values() -> None:
    run = Run()
    run.keyed("@", INT64, INT64, {1: -25, 2: 25})
    assert show(run, "@", div=10) == b"@[1]: -2\n@[2]: 2\n"
    run = Run()
    run.keyed("@", String(16), Count(), {b"b": [1, 1], b"a": [2, 0], b"c": [0, 1]})
    assert show(run, "@") == b"@[c]: 1\n@[a]: 2\n@[b]: 2\n"
    run = Run()
    run.keyed("@", UINT64, UINT64, {2**64 - 1: 2**63, 1: 2**63 + 1, 0: 5})
    assert show(run, "@") == b"@[0]: 5\n@[18446744073709551615]: 9223372036854775808\n@[1]: 9223372036854775809\n"


def test_stats_ignore_top_and_div_of_values_but_not_order() -> None:
    run = Run()
    run.keyed("@", INT64, Stats(), {1: [(100, 2), (0, 0)], 2: [(9, 1), (0, 0)]})
    found = show(run, "@", div=10)
    assert found == (
        b"@[2]: { .count = 1, .average = 9, .total = 9 }\n@[1]: { .count = 2, .average = 50, .total = 100 }\n"
    )


def test_printing_one_stats_value() -> None:
    run, as_json = Run(), Run(json=True)
    for item in (run, as_json):
        item.send(item.event("print_value", [Stats()]), (31, 2))
    assert run.printed() == b"{ .count = 2, .average = 15, .total = 31 }\n"
    assert json.loads(as_json.printed())["data"] == {"count": 2, "average": 15, "total": 31}


def test_sums_wrap_and_averages_of_nothing() -> None:
    run = Run()
    run.scalar("@s", Sum(), 2**63 - 1, 1)
    run.scalar("@a", Avg(), (0, 0), (0, 0))
    run.scalar("@m", Min(), (0, 0), (7, 1))
    run.scalar("@x", Max(False), (2**64 - 1, 1), (5, 1))
    run.renderer.print_maps()
    assert run.printed() == b"\n\n@a: 0\n@m: 7\n@s: -9223372036854775808\n@x: 18446744073709551615\n"


@given(st.lists(st.lists(st.integers(-(2**40), 2**40), max_size=4), min_size=2, max_size=4))
def test_merging_is_as_if_one_cpu_had_done_all(cpus: list[list[int]]) -> None:
    run = Run()
    everything = [value for values in cpus for value in values]
    run.scalar("@c", Count(), *map(len, cpus))
    run.scalar("@s", Sum(), *map(sum, cpus))
    run.scalar("@lo", Min(), *((min(values), 1) if values else (0, 0) for values in cpus))
    run.scalar("@hi", Max(), *((max(values), 1) if values else (0, 0) for values in cpus))
    run.renderer.print_maps()
    expected = (len(everything), max(everything, default=0), min(everything, default=0), sum(everything))
    assert run.printed().decode() == "\n\n@c: {}\n@hi: {}\n@lo: {}\n@s: {}\n".format(*expected)


def test_names_that_look_like_formats() -> None:
    run = Run()
    run.keyed("@p%d", String(8), INT64, {b"%s": 1})
    assert show(run, "@p%d") == b"@p%d[%s]: 1\n"


def test_unwritten_maps() -> None:
    run = Run(json=True)
    run.maps.append(types_spec("@n", Count()))
    run.maps.append(types_spec("@h", Hist()))
    run.keyed("@k", INT64, INT64, {})
    assert show(run, "@n") == b'{"type": "map", "data": {"@n": 0}}\n'
    run.renderer.print_maps()
    assert run.printed() == b""


def types_spec(name: str, kind: types.Type) -> Any:
    from pytrace.core.manifest import MapSpec

    return MapSpec(name, "", "global", None, kind, 1)


def test_an_empty_stack_in_a_key_is_a_word() -> None:
    run = Run(symbols=Symbols({1: [Frame("f", 2)]}))
    run.keyed("@", Stack(False, 4), Count(), {(0, (), 0): [1]})
    key = Tuple((Stack(False, 4), Stack(False, 4), String(16)))
    run.keyed("@t", key, Count(), {((0, (), 0), (0, (1,), 0), b"a"): [1]})
    run.renderer.print_maps()
    assert run.printed() == b"\n\n@[no stack]: 1\n@t[no stack, \n        f+2\n, a]: 1\n"


def layout(run: Run, *words: str, **static: Any) -> str:
    """The text of ``print(@)`` of a script with ``stack_layout()``."""
    identity = run.event("print_map", map="@", **static)
    run.layout = words
    run.send(identity)
    return run.printed_text()


def sampled() -> Run:
    symbols = Symbols({
        1: [Frame("leaf", 2, file="a.py", line=3)], 2: [Frame("leaf", 9, file="a.py", line=7)],
        3: [Frame("small", 1, inlined=True), Frame("main", 4)],
    })  # fmt: skip
    run = Run(symbols=symbols)
    key = Tuple((Stack(False, 4), Stack(True, 4), String(16), INT64))
    entries = {
        ((0, (), 0), (5, (number, 3), 0), b"work", 5): [count] for number, count in ((1, 3), (2, 4), (3, 1))
    }
    run.keyed("@", key, Count(), entries)
    return run


def test_stacks_in_the_layout_of_bcc() -> None:
    last = "    small\n    main\n"
    assert layout(sampled(), "names") == (
        f"    small\n    main\n{last}    -                work (5)\n        1\n\n"
        f"    leaf\n{last}    -                work (5)\n        7\n\n"
    )
    shown = layout(sampled(), "names", "lines", "offsets", top=1)
    assert shown == "    leaf+9 (a.py:7)\n    small\n    main+4\n    -                work (5)\n        4\n\n"


def test_the_largest_stacks_are_last_and_the_rest_is_counted() -> None:
    def summed() -> Run:
        run = Run(symbols=Symbols({number: [Frame(f"f{number}", 1)] for number in range(1, 31)}))
        run.keyed("@", Stack(True, 4), Sum(True), {(1, (number,), 0): [number] for number in range(1, 31)})
        return run

    text = layout(summed(), "names")
    # 1 to 10 are left out: 55 of 465.
    assert text.startswith("(10 of 30 stacks are left out, with 11.8% of the sum; --all shows them)\n\n    f11\n")
    assert text.endswith("    f30\n        30\n\n")
    assert layout(summed(), "names", "all").count("\n\n") == 30


def test_histograms_of_stacks_are_joined() -> None:
    run = Run(symbols=Symbols({1: [Frame("f", 1)], 2: [Frame("f", 2)]}))
    key = Tuple((Stack(True, 4), String(8)))
    run.bucketed("@", key, Hist(), {((1, (number,), 0), b"disk"): {bucket(5, 0): number} for number in (1, 2)})
    text = layout(run, "names")
    assert text.startswith("    f\n    -                disk\n[")
    assert " 3 |@" in text


def test_stack_and_tuple_keys() -> None:
    symbols = Symbols({1: [Frame("f g", 2)], 2: [Frame("h", 3)]})
    stack = Stack(False, 4)
    key = (0, (1, 2), 0)
    for as_json in (False, True):
        run = Run(symbols=symbols, json=as_json)
        run.keyed("@", stack, Count(), {key: [1, 1], (0, (), -22): [0, 1]})
        run.keyed("@t", Tuple((stack, String(16))), Count(), {(key, b"a b"): [1, 0]})
        run.renderer.print_maps()
        found = run.printed().decode()
        if as_json:
            names = [next(iter(json.loads(line)["data"].values())) for line in found.splitlines()]
            assert list(names[0]) == ["\n[no stack: Invalid argument]\n", "\nf g+2\nh+3\n"]
            assert list(names[1]) == ["\nf g+2\nh+3\n,a b"]
        else:
            assert found == (
                "\n\n@[\n        [no stack: Invalid argument]\n]: 1\n@[\n        f g+2\n        h+3\n]: 2\n"
                "@t[\n        f g+2\n        h+3\n, a b]: 1\n"
            )


def test_record_and_array_values_sort_by_key() -> None:
    run = Run()
    run.keyed("@", Array(INT64, 2), Record(("a",), (INT64,)), {(2, 1): (1,), (1, 9): (5,)})
    assert show(run, "@") == b"@[[1,9]]: { .a = 5 }\n@[[2,1]]: { .a = 1 }\n"


# ---------------------------------------------------------------------------------------------- histograms


def histograms(json_output: bool = False) -> Run:
    run = Run(json=json_output)
    run.bucketed("@h", INT64, Hist(), {1: {bucket(5, 0): 1}, 2: {bucket(5, 0): 2}, 3: {2: 3}})
    return run


def test_top_and_div_of_hist_maps() -> None:
    run = histograms()
    top = run.event("print_map", map="@h", top=2)
    div = run.event("print_map", map="@h", div=2)
    run.send(top)
    lines = run.printed().decode().splitlines()
    assert [line for line in lines if line.startswith("@")] == ["@h[2]:", "@h[3]:"]
    assert lines[1].startswith("[4, 8)                 2 |")
    run.send(div)
    assert b"[1]                    1 |" in run.printed()


def test_hist_in_json() -> None:
    found = json.loads(show(histograms(True), "@h", top=1, div=3))
    assert found == {"type": "hist", "data": {"@h": {"3": [{"min": 1, "max": 1, "count": 1}]}}}


def test_percentiles() -> None:
    run, as_json = histograms(), histograms(True)
    for item in (run, as_json):
        item.scalar("@s", LHist(0, 10, 5), (0, 3, 0, 1), (0, 0, 0, 0))
        first = item.event("quantiles", map="@h", percents=[50.0, 99.9])
        second = item.event("quantiles", map="@s", percents=[50.0, 100.0])
        item.send(first)
        item.send(second)
    assert run.printed().decode() == (
        "@h[1]:\np50      5 ±2\np99.9    5 ±2\n\n@h[2]:\np50      5 ±2\np99.9    5 ±2\n\n"
        "@h[3]:\np50      1\np99.9    1\n\n@s:\np50      2 ±2\np100     >= 10\n\n"
    )
    lines = [json.loads(line) for line in as_json.printed().splitlines()]
    assert lines[0]["type"] == "quantiles"
    assert lines[0]["data"]["@h"]["3"][0] == {"percentile": 50, "value": 1, "error": 0, "min": 1, "max": 1}
    assert lines[1]["data"]["@s"][1] == {"percentile": 100, "value": None, "error": None, "min": 10}


# ---------------------------------------------------------------------------------------------- snapshots


def test_print_and_clear_of_a_keyed_map() -> None:
    run = ints()
    take = run.event("print_map", map="@", clear=True)
    run.send(take)
    assert run.printed().count(b"\n") == 4
    run.send(take)
    assert run.printed() == b""


def test_print_and_clear_of_an_unkeyed_count_loses_nothing() -> None:
    run = Run()
    run.scalar("@c", Count(), 3, 4)
    take, show_, clear = (run.event(*item[:1], map="@c", **item[1]) for item in (
        ("print_map", {"clear": True}), ("print_map", {}), ("clear", {})))  # fmt: skip
    run.send(take)
    assert run.printed() == b"@c: 7\n"
    assert run.reader.slots["@c"] == (True, run.reader.slots["@c"][1])  # memory that a program writes stays untouched
    run.renderer.print_maps()
    assert run.printed() == b"\n\n"
    run.reader.slots["@c"] = (True, (5).to_bytes(8, "little") + (4).to_bytes(8, "little"))
    run.send(show_)
    assert run.printed() == b"@c: 2\n"
    run.send(take)
    run.send(show_)
    assert run.printed() == b"@c: 2\n@c: 0\n"
    run.send(clear)
    run.send(show_)
    assert run.printed() == b"@c: 0\n"
    run.reader.slots["@c"] = (True, (6).to_bytes(8, "little") + (5).to_bytes(8, "little"))
    run.send(show_)
    assert run.printed() == b"@c: 2\n"


def test_a_reset_is_of_keyed_and_of_unkeyed_maps() -> None:
    run, paused = ints(), list[bool]()
    run.scalar("@c", Count(), 3, 4)
    show_ = run.event("print_map", map="@c")
    for view in run.renderer.views():
        view.reset(lambda: paused.append(True))
        assert view.contents() == []
    assert paused, "between blocks of rows"
    run.reader.slots["@c"] = (True, (5).to_bytes(8, "little") + (4).to_bytes(8, "little"))
    run.send(show_)
    assert run.printed() == b"@c: 2\n"


def test_cleared_counts_are_gone_and_zeroed_ones_are_not() -> None:
    run = Run()
    run.scalar("@c", Count(), 3, 4)
    zero, clear = run.event("zero", map="@c"), run.event("clear", map="@c")
    for _ in range(2):
        run.send(zero)
        run.renderer.print_maps()
        assert run.printed() == b"\n\n@c: 0\n"
    for event in (clear, zero, clear):
        run.send(event)
        run.renderer.print_maps()
        assert run.printed() == b"\n\n"


def test_print_and_clear_of_an_unkeyed_hist() -> None:
    run = Run()
    run.scalar("@h", LHist(0, 3, 1), (0, 1, 0, 0, 0))
    take = run.event("print_map", map="@h", clear=True)
    run.send(take)
    first = run.printed()
    run.send(take)
    assert first.startswith(b"@h:\n[0] ")
    assert run.printed() == b""


# ---------------------------------------------------------------------------------------------- time series


def test_time_series_of_a_keyed_map_end_together() -> None:
    kind = TSeries(1_000_000_000, 3, "sum")
    run = Run(json=True)
    run.bucketed("@", INT64, kind, {
        1: {0: (101, 5, 0), 1: (102, 7, 0)},
        2: {0: (104, 1, 0), 2: (103, -2, 0)},
    })  # fmt: skip
    found = json.loads(show(run, "@"))
    assert found["type"] == "tseries"
    series = found["data"]["@"]
    assert [item["value"] for item in series["1"]] == [7]
    assert [item["value"] for item in series["2"]] == [-2, 1]
    # Interval 102 starts 102 s after 1970.
    started = datetime.datetime.fromisoformat(series["2"][0]["interval_start"][:26]).timestamp()
    assert started == 102


@pytest.mark.parametrize("large", [False, True])
def test_marks_are_part_of_the_name_in_text_and_members_in_json(large: bool) -> None:
    marks = {"@": "estimate", "@h": "sample"}
    texts = TextForms(PortableNames())
    blocks: list[list[Entry]] = [[(1, 5)], [(2, 6)]]
    shown = MapPrinter("@", INT64, Count(), texts, JsonForms(texts), marks)
    assert shown.entries_text(blocks[0], Shown()) == b"estimate @[1]: 5\n"
    together = [shown.entries_json([*blocks[0], *blocks[1]], Shown())]
    parts = shown.entries_json_parts(blocks, Shown(), None) if large else together
    assert json.loads(b"".join(parts)) == {"type": "map", "data": {"@": {"1": 5, "2": 6}}, "mark": "estimate"}
    plain = MapPrinter("@x", None, Count(), texts, JsonForms(texts), marks)
    assert plain.entries_text([((), 5)], Shown()) == b"@x: 5\n"
    # The marks of a run become more while it goes on.
    marks["@x"] = "sample"
    assert plain.entries_text([((), 5)], Shown()) == b"sample @x: 5\n"
    assert (plain.title, plain.name) == ("sample @x", "@x")


def test_large_maps_whose_keys_have_equal_names() -> None:
    """Two strings with commas: the names are told apart across blocks, as they are when all are in memory."""
    texts = TextForms(PortableNames())
    shown = MapPrinter("@", Tuple((String(8), String(8))), Count(), texts, JsonForms(texts), {})
    entries: list[Entry] = [((b"a", b"b,c"), 1), ((b"a,b", b"c"), 2), ((b"x", b"y"), 3)]
    names = shown.distinct_names(key for key, _ in entries)
    parts = list(shown.entries_json_parts([entries[:1], entries[1:]], Shown(), None, names))
    assert b"".join(parts) == shown.entries_json(entries, Shown())
    assert len(parts) == 3
    assert json.loads(b"".join(parts))["data"]["@"] == {"a,b,c": 1, "a,b,c #2": 2, "x,y": 3}


# ---------------------------------------------------------------------------------------------- map tables
# Maps as CSV tables.


def map_tables_show(run: Run, *names: str, **static: Any) -> list[str]:
    for identity in [run.event("print_map", map=name, **static) for name in names]:
        run.send(identity)
    return run.printed_text().split("\r\n")[:-1]


def test_unkeyed() -> None:
    run = Run(csv=True)
    run.scalar("@a", INT64, -3)
    run.scalar("@s", Stats(), (10, 4))
    run.scalar("@r", Record(("x", "y"), (INT64, String(4))), (1, b"a,b"))
    assert map_tables_show(run, "@a", "@s", "@r") == [
        "@a", "-3", "", "@s.count,@s.average,@s.total", "4,2,10", "", "@r.x,@r.y", '1,"a,b"',
    ]  # fmt: skip


def test_tables_of_maps() -> None:
    run = Run(csv=True)
    run.keyed("@", Tuple((UINT32, String(8))), Count(), {(1, b"a"): 5, (2, b'"'): 6})
    run.keyed("@n", Record(("pid", "comm"), (UINT32, String(8))), Avg(), {(7, b"x"): (9, 2)})
    assert map_tables_show(run, "@", "@n") == ["key1,key2,@", "1,a,5", '2,"""",6', "", "pid,comm,@n", "7,x,4"]
    run = Run(csv=True)
    run.scalar("@a", INT64, 1)
    assert map_tables_show(run, "@a", "@a") == ["@a", "1", "", "@a", "1"]
    run = Run(csv=True)
    run.keyed("@", INT64, INT64, {1: 10, 2: 30, 3: 20})
    assert map_tables_show(run, "@", top=2, div=10, order="-value") == ["key,@", "3,2", "1,1"]


def test_a_histogram_has_a_row_for_each_bucket() -> None:
    run = Run(csv=True)
    run.bucketed("@h", UINT64, Hist(), {1: {bucket(5, 0): 3, bucket(9, 0): 4}})
    run.bucketed("@l", UINT64, LHist(0, 20, 10), {1: {0: 1, 2: 5, 3: 2}})
    assert map_tables_show(run, "@h", "@l") == [
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
    names, *rows = map_tables_show(run, "@t")
    assert names == "key,@t.start,@t.value"
    assert [row.split(",")[0] + row[row.rindex(","):] for row in rows] == ["1,5", "1,7"]


def test_frames_of_a_stack_are_joined() -> None:
    run = Run(csv=True, symbols=Symbols({16: [Frame("inner", 1)], 32: [Frame("outer", 2)]}))
    run.keyed("@", Stack(False, 4), Count(), {(0, (16, 32), 0): 1})
    assert map_tables_show(run, "@") == ["key,@", "inner+1;outer+2,1"]


def test_maps_at_the_end() -> None:
    run = Run(csv=True)
    run.scalar("@b", INT64, 1)
    run.keyed("@a", INT64, INT64, {1: 2})
    run.keyed("@empty", INT64, INT64, {})
    run.renderer.print_maps()
    assert run.printed_text() == "key,@a\r\n1,2\r\n\r\n@b\r\n1\r\n"


# ---------------------------------------------------------------------------------------------- heat lines
# Lines of heat maps: levels, scales, cells.


@pytest.mark.parametrize(
    ("count", "level"), [(0, 0), (1, 1), (3, 1), (4, 2), (15, 2), (16, 3), (4**8, 9), (2**64, 9)]
)
def test_levels(count: int, level: int) -> None:
    assert heat_level(count) == level


def test_a_scale_fits_the_terminal() -> None:
    few = HeatScale.of(3, 6, 80)
    assert (few.first, few.group, few.cells, few.width) == (3, 1, 4, 4)
    many = HeatScale.of(0, 999, 80)
    assert many.cells * many.width <= 60
    assert many.covers(0, 999)
    assert not many.covers(0, many.end)
    assert sum(many.sums([1] * 1000)) == 1000
    assert HeatScale.of(0, 70, 10).cells <= 8, "what is narrower than the least is wrapped by the terminal"


def test_heading_and_line_of_signs() -> None:
    shape, scale = histogram.shape(Hist()), HeatScale.of(3, 6, 80)
    heading = scale.heading(b"@us", shape, colour=False).decode()
    assert heading == (
        "@us: .1 :4 -16 =64 +256 *1K #4K %16K @64K\n"
        "TIME     |2  |4  |8  |16       TOTAL\n"
    )  # fmt: skip
    counts = [0, 0, 0, 1, 4, 0, 70_000]
    line = scale.line(b"12:00:00", counts, colour=False).decode()
    assert line == "12:00:00 ....::::    @@@@      70005\n"


def test_open_ends_and_bounds_that_do_not_fit() -> None:
    shape = histogram.shape(LHist(0, 100_000, 1000))
    scale = HeatScale.of(0, 101, 80)
    ruler = scale.heading(b"@", shape, colour=False).decode().split("\n")[1]
    assert "TIME     |<0 |7000 |19000 " in ruler
    assert scale.group == 2


def test_colours() -> None:
    line = HeatScale.of(0, 1, 80).line(b"12:00:00", [0, 5], colour=True)
    assert line == b"12:00:00     \x1b[48;5;54m    \x1b[0m          5\n"
