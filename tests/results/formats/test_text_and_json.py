"""Snapshots as text, JSON and SVG: maps, costs, differences."""

from __future__ import annotations

import json
import json as standard_json
import math
import re
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import BOOL, INT64, UINT32, UINT64, String, Type
from pytrace.results.difference import Difference, difference
from pytrace.results.formats import about, svg, text_and_json
from pytrace.results.formats import table as svg_table
from pytrace.results.formats.about import cost_line, cost_text
from pytrace.results.formats.format_row import WriteOptions, Writer
from pytrace.results.formats.text_and_json import write_json, write_text
from pytrace.results.merge import merge
from pytrace.results.snapshot import Frame, MapData, SnapshotData, StackTrace, Table, Value
from pytrace.runtime.session.snapshots import RowKeeper
from tests.support.captured import forms
from tests.support.encode import Run
from tests.support.pictures import boxes, picture, texts
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, stack, table
from tests.support.zone import zone

# ---------------------------------------------------------------------------------------------- text and json
# Formats ``text`` and ``json``: rows and maps of snapshots print as in a run.


OPENED: tuple[list[str], list[Type]] = (["pid", "comm", "lat_us", "path"], [UINT32, String(16), UINT64, String(64)])


def written(found: SnapshotData, write: Writer = write_text, *, about: bool = False) -> bytes:
    file = BytesIO()
    write(found, WriteOptions({}, about), file)
    return file.getvalue()


def lines(found: SnapshotData, *, about: bool = False) -> list[Any]:
    return [standard_json.loads(line) for line in written(found, write_json, about=about).splitlines()]


def both(
    tables: Sequence[tuple[list[str], list[Type]]],
    rows: Sequence[tuple[int, list[tuple[Any, ...]]]],
    *,
    as_json: bool,
) -> tuple[bytes, bytes]:
    """What a run prints of rows, those of one table at a time, and what is printed of the snapshot of that run."""
    keeper = RowKeeper()
    live = Run(json=as_json, keep_row=keeper.keep)
    places = [live.event("row", members, names=names) for names, members in tables]
    for place, values in rows:
        live.send_many(places[place], values)
    shown = written(snapshot(tables=keeper.tables("run-1", forms(live))), write_json if as_json else write_text)
    return live.printed(), shown


def test_rows_of_every_form_print_as_in_the_run() -> None:
    rows = [
        (1, b"init", 5, b"/etc/passwd"),
        (123456789, b"a\xff", 1 << 63, b"two\nlines\tand \x1b[31m"),
        (7, "日本語".encode(), 0, b""),
        (8, b"fifteen letters", 12345678901234, "é".encode()),
    ]
    for as_json in (False, True):
        live, shown = both([OPENED], [(0, rows)], as_json=as_json)
        assert shown == live
        assert (b"LAT(us)" in shown) is not as_json


def test_tables_are_apart_and_have_the_numbers_of_the_script() -> None:
    tables = [
        OPENED,
        (["n"], [INT64]),
        (["s.a", "s.b", "t.0", "t.1"], [INT64, BOOL, INT64, String(4)]),
    ]
    rows = [(2, [(1, True, -2, b"q"), (3, False, 4, b"r")]), (0, [(1, b"x", 2, b"y")])]
    for as_json in (False, True):
        live, shown = both(tables, rows, as_json=as_json)
        assert shown == live
    first, *_, last = map(standard_json.loads, shown.splitlines())
    assert first == {"type": "row", "table": 3, "data": {"s": {"a": 1, "b": True}, "t": [-2, "q"]}}
    assert last["table"] == 1


def test_names_that_the_run_resolved() -> None:
    names = ["user", "address", "flag", "any"]
    kinds: list[Type] = [types.Username(), types.Inet(), BOOL, types.Pointer(types.VOID)]
    for as_json in (False, True):
        live, shown = both([(names, kinds)], [(0, [(0, (2, b"\x7f\0\0\1"), True, 16)])], as_json=as_json)
        assert shown == live
    assert b"127.0.0.1" in shown


def test_rows_come_before_maps_which_go_by_name() -> None:
    found = snapshot(map_data("@", None, COUNT, {None: 3}), tables=(table(["n"], [types.INT8], [(1,)]),))
    assert written(found) == b"   N\n   1\n\n@: 3\n"
    assert written(snapshot(map_data("@", None, COUNT, {None: 3}))) == b"@: 3\n"
    rows = table(["n"], [types.INT8], [(1,)])
    full, empty = map_data("@", None, COUNT, {None: 3}), map_data("@", None, COUNT, {})
    assert written(snapshot(full, tables=(rows,))) == b"   N\n   1\n\n@: 3\n"
    assert written(snapshot(empty, tables=(rows,))) == b"   N\n   1\n"
    assert written(snapshot(full, tables=(table(["n"], [types.INT8], []),))) == b"@: 3\n"
    found = snapshot(map_data("@b", None, COUNT, {None: 1}), map_data("@a", None, COUNT, {None: 2}))
    assert written(found) == b"@a: 2\n@b: 1\n"
    assert written(snapshot(map_data("@", types.Stack(True), COUNT, {stack("f"): 1}))) == b"@[\n        f+4\n]: 1\n"


def test_rows_of_merged_snapshots_are_in_the_order_of_runs() -> None:
    late = snapshot(tables=(table(["n"], [types.INT8], [(3,), (1,)], of="late"),), of=run("late", start=20, end=30))
    early = snapshot(tables=(table(["n"], [types.INT8], [(2,)], of="early"),), of=run("early", start=10, end=40))
    for found in (merge([late, early]), merge([early, late])):
        assert written(found) == b"   N\n   2\n   3\n   1\n"
        assert [standard_json.loads(line)["data"]["n"] for line in written(found, write_json).splitlines()] == [2, 3, 1]


def test_merged_scripts_number_their_tables_anew_where_numbers_clash() -> None:
    def one(name: str, number: int, of: str) -> SnapshotData:
        record = types.Record((name,), (INT64,))
        return snapshot(tables=(Table(record, {of: [(number,)]}, 0, number),), of=run(of))

    def shown(*found: SnapshotData) -> list[tuple[str, int]]:
        return [(next(iter(line["data"])), line["table"]) for line in lines(merge(found))]

    assert shown(one("a", 2, "x"), one("b", 5, "y")) == [("a", 2), ("b", 5)]
    assert shown(one("b", 1, "x"), one("a", 1, "y")) == [("a", 1), ("b", 2)]
    assert shown(one("a", 3, "x"), one("a", 2, "y")) == [("a", 2), ("a", 2)]


def test_text_begins_with_what_is_known_of_the_runs_when_it_is_asked_for() -> None:
    found = written(snapshot(map_data("@", None, COUNT, {None: 3})), about=True)
    assert found.startswith(b"# x.bt ")
    assert found.endswith(b"\n\n@: 3\n")


def test_rows_and_then_maps_by_name_are_a_line_each() -> None:
    found = snapshot(
        map_data("@b", STRING, COUNT, {"x": 1, "y": 2}),
        map_data("@a", None, types.Hist(), {None: {1: 2}}),
        tables=(table(["n"], [types.INT8], [(1,), (2,)]),),
    )
    assert lines(found) == [
        {"type": "row", "table": 1, "data": {"n": 1}},
        {"type": "row", "table": 1, "data": {"n": 2}},
        {"type": "hist", "data": {"@a": [{"min": 0, "max": 0, "count": 2}]}},
        {"type": "map", "data": {"@b": {"y": 2, "x": 1}}},
    ]


def test_json_begins_with_what_is_known_of_the_runs_when_it_is_asked_for() -> None:
    first, second = lines(snapshot(map_data("@", None, COUNT, {None: 3})), about=True)
    assert first["type"] == "snapshot"
    assert second == {"type": "map", "data": {"@": 3}}


# ---------------------------------------------------------------------------------------------- portable forms
# What ``show`` prints of a snapshot is what the run would have printed of the same maps.


COLOUR = types.Enum("colour", 4, False, (("RED", 0), ("GREEN", 5)))
PAIR = types.Record(("a", "b"), (types.INT64, STRING))
NAMED = types.Struct("struct", "x", 8, (types.Field("n", types.INT32, 0), types.Field("t", types.INT32, 4)), "", 4)

KEYS: list[tuple[Type, list[Any], list[Any]]] = [
    (types.INT64, [-1, 3, 2], [-1, 3, 2]),
    (types.BOOL, [True, False], [True, False]),
    (types.DOUBLE, [2.5, -1e300, math.inf], [2.5, -1e300, math.inf]),
    (COLOUR, [5, 0, 7], [5, 0, 7]),
    (types.Pointer(types.VOID), [255, 16], [255, 16]),
    (STRING, [b"b", b"a\xff", b"%d"], ["b", "a\udcff", "%d"]),
    (types.Buffer(4), [b"\x00a", b"z"], [b"\x00a", b"z"]),
    (types.Array(types.INT32, 2), [(1, 2), (0, 9)], [(1, 2), (0, 9)]),
    (types.Tuple((types.INT64, STRING)), [(1, b"x"), (1, b"a")], [(1, "x"), (1, "a")]),
    (types.Tuple((STRING,)), [(b"x",), (b"a",)], [("x",), ("a",)]),
    (PAIR, [(1, b"x"), (0, b"y")], [(1, "x"), (0, "y")]),
    (NAMED, [(1, 2), (0, 3)], [(1, 2), (0, 3)]),
    (types.Inet(), [(2, b"\x7f\x00\x00\x01"), (10, bytes(15) + b"\x01"), (0, bytes(16))], ["127.0.0.1", "::1", ""]),
    (types.Mac(), [b"\xaa\x00\x00\x00\x00\x01"], ["AA:00:00:00:00:01"]),
]
"""Types, keys as they are decoded, and the same as snapshots have them."""

VALUES: list[tuple[Type, list[Any], list[Any]]] = [
    (types.INT64, [5, -2, 1 << 62], [5, -2, 1 << 62]),
    (types.FLOAT, [-2.5, 1.0, math.inf], [-2.5, 1.0, math.inf]),
    (STRING, [b"x", b"y", b"\xfe"], ["x", "y", "\udcfe"]),
    (types.Tuple((types.INT64, STRING)), [(1, b"x"), (2, b"y"), (3, b"")], [(1, "x"), (2, "y"), (3, "")]),
    (COUNT, [[2], [1], [3]], [2, 1, 3]),
    (types.Sum(), [[-2], [1], [3]], [-2, 1, 3]),
    (types.Avg(), [[(7, 2)], [(-7, 2)], [(1, 1)]], [(7, 2), (-7, 2), (1, 1)]),
    (types.Stats(), [[(7, 2)], [(-7, 2)], [(1, 1)]], [(7, 2), (-7, 2), (1, 1)]),
    (types.Min(), [[(4, 1)], [(-4, 1)], [(1, 1)]], [4, -4, 1]),
    (types.Max(), [[(4, 1)], [(-4, 1)], [(1, 1)]], [4, -4, 1]),
]


def live(key: Type, value: Type, entries: dict[Any, Any], *, as_json: bool) -> bytes:
    one = Run(json=as_json)
    one.keyed("@", key, value, entries)
    one.send(one.event("print_map", map="@"))
    return one.printed()


@each_row(("value", "decoded_values", "portable_values"), VALUES, ids=lambda item: str(item)[:12])
@each_row(("key", "decoded_keys", "portable_keys"), KEYS, ids=lambda item: str(item)[:12])
def test_maps_print_as_in_the_run(
    key: Type, decoded_keys: list[Any], portable_keys: list[Any],
    value: Type, decoded_values: list[Any], portable_values: list[Any],
) -> None:  # fmt: skip
    decoded = dict(zip(decoded_keys, decoded_values, strict=False))
    found = snapshot(map_data("@", key, value, dict(zip(portable_keys, portable_values, strict=False))))
    assert written(found) == live(key, value, decoded, as_json=False)
    assert written(found, write_json) == live(key, value, decoded, as_json=True)


def test_histograms_and_series() -> None:
    found = snapshot(
        map_data("@h", STRING, types.Hist(), {"a": {2: 1, 4: 3}, "b": {1: 9}}),
        map_data("@t", None, types.TSeries(1_000_000_000, 3, "avg"), {None: {7: (9, 2), 9: (-3, 2)}}),
    )
    with zone("UTC"):
        shown = written(found).decode().splitlines()
    assert shown[0] == "@h[a]:"
    assert shown[1].startswith("[1]                    1 |@@@")
    assert sum(line.startswith("@h[") for line in shown) == 2
    assert [line.split()[-1] for line in shown if line.startswith("00:00:")] == ["4", "-", "-1"]
    first, second = map(standard_json.loads, written(found, write_json).splitlines())
    assert first == {"type": "hist", "data": {"@h": {
        "a": [{"min": 1, "max": 1, "count": 1}, {"min": 2, "max": 3, "count": 0}, {"min": 4, "max": 7, "count": 3}],
        "b": [{"min": 0, "max": 0, "count": 9}],
    }}}  # fmt: skip
    assert [item["value"] for item in second["data"]["@t"]] == [4, -1]


def test_stacks_print_by_their_mode() -> None:
    frames = (
        Frame("f", 4, "/bin/x", "00ff", "x.c", 7, False, 0x10),
        Frame("g", 0, "/bin/x", "", "", 0, True, 0x10),
        Frame("", address=0x20),
    )
    expected = {
        types.StackMode.BPFTRACE: "        f+4@x.c:7\n        [inlined] g\n        0x20\n",
        types.StackMode.PERF: "\t10 f+4 (/bin/x)\n\t10 g (inlined)\n\t20 0x20 ([unknown])\n",
        types.StackMode.RAW: "10\n10\n20\n",
        types.StackMode.BUILD_ID: "00ff 0x10\n10\n20\n",
    }
    for mode, lines in expected.items():
        found = snapshot(map_data("@", types.Stack(True, 127, mode), COUNT, {StackTrace(frames): 1}))
        assert written(found).decode() == f"@[\n{lines}]: 1\n"
    error = snapshot(map_data("@", types.Stack(True), COUNT, {StackTrace((), True, "File exists"): 1}))
    assert written(error) == b"@[\n        [no stack: File exists]\n]: 1\n"


# ---------------------------------------------------------------------------------------------- about
# What is known of the runs of a snapshot.


def test_a_paragraph_names_runs_and_losses() -> None:
    found = snapshot(of=run(host="web1"))
    found.losses = {"lost": {"begin": 3}, "map_full": {"": 2}}
    assert about.text(found).splitlines() == [
        "# x.bt (SHA-256 abababababab) on web1, Linux 6.1.0 x86_64",
        "# 1970-01-01 00:01:40.000 UTC to 1970-01-01 00:01:50.000 UTC (10.000 s), run run-1, pytrace 0.1",
        "# 3 events lost (begin)",
        "# 2 map updates dropped",
        "",
    ]


def test_maps_that_were_full_say_what_is_missing() -> None:
    counts = MapData("@calls", types.INT64, types.Count(), {1: 60, 2: 15})
    sums = MapData("@bytes", types.INT64, types.Sum(signed=False), {1: 4096})
    found = replace(snapshot(), maps={"@calls": counts, "@bytes": sums})
    found.losses = {"map_full": {"@calls": 25, "@bytes": 7}}
    assert list(about.losses(found)) == [
        "@bytes is incomplete: 7 updates found no room for their keys",
        "@calls is incomplete: 25 of 100 (25%) found no room for their keys",
    ]


def test_runs_of_one_script_on_one_host_are_told_together() -> None:
    runs = (run("run-1"), run("run-2", host="web2"), replace(run("run-3"), start=10**9))
    found = about.text(replace(snapshot(), runs=runs)).splitlines()
    assert [[*line.split()[1:6:4], line[-18:]] for line in found[:-1]] == [
        ["x.bt", "here,", "Linux 6.1.0 x86_64"], ["1970-01-01", "1970-01-01", "run-1, pytrace 0.1"],
        ["1970-01-01", "1970-01-01", "run-3, pytrace 0.1"],
        ["x.bt", "web2,", "Linux 6.1.0 x86_64"], ["1970-01-01", "1970-01-01", "run-2, pytrace 0.1"],
    ]  # fmt: skip


def test_a_line_of_json_has_the_same() -> None:
    found = snapshot(of=run(host="web\udcff"))
    found.losses = {"lost": {"begin": 3}}
    line = json.loads(about.json_line(found))
    (one,) = line["data"]["runs"]
    assert (line["type"], one["script"], one["parameters"], one["end"]) == ("snapshot", "x.bt", [], 110 * 10**9)
    assert one["end_time"] == "1970-01-01 00:01:50.000 UTC"
    assert line["data"]["losses"] == {"lost": {"begin": 3}}


def test_the_cost_of_a_run_follows_its_times() -> None:
    found = snapshot(of=run())
    found.costs = {"run-1": RunCost(10**9, 2, (ProbeCost("k:f", 10, 1000, 4000),), 10**7, 1 << 20, 1 << 19)}
    assert about.text(found).splitlines()[2:6] == [
        "# cost of tracing: 1.00% of one CPU in 1.0 s",
        "# probe           hits  ns/hit  entry    total  of a CPU",
        "# k:f               10     100    400   0.0 ms     0.00%",
        "# pytrace itself                       10.0 ms     1.00%",
    ]
    assert json.loads(about.json_line(found))["data"]["costs"]["run-1"]["own_time"] == 10**7


def test_gaps_and_clocks_of_runs() -> None:
    found = snapshot(of=replace(run(), gaps=((105 * 10**9, 1_500_000_000),)))
    assert about.text(found).splitlines()[2] == "# hits were skipped for 1.500 s from 1970-01-01 00:01:45.000 UTC"
    (one,) = json.loads(about.json_line(found))["data"]["runs"]
    assert one["gaps"] == [[105_000_000_000, 1_500_000_000]]
    assert "clock" not in one
    found = snapshot(of=replace(run(), clock=(-2_500_123_000, 400_000)))
    assert about.text(found).splitlines()[1].endswith(", clock 2500.123 ms behind (± 0.400 ms)")
    (one,) = json.loads(about.json_line(found))["data"]["runs"]
    assert one["clock"] == [-2_500_123_000, 400_000]
    assert about.moment(1_999_999_999) == "1970-01-01 00:00:01.999 UTC"


# ---------------------------------------------------------------------------------------------- cost forms
# Costs of a run as text and as JSON.


COST = RunCost(
    duration=2_000_000_000,
    processors=2,
    probes=(
        ProbeCost("uprobe:/bin/x:f and 2 more", 1000, 300_000, 9_000_000),
        ProbeCost("profile:hz:99", 0, 0, 0),
    ),
    own_time=20_000_000,
    memory=40 << 20,
    maps=3 << 19,
)


def test_the_table_has_a_row_for_each_probe_and_one_for_the_tracer() -> None:
    assert cost_text(COST) == (
        "cost of tracing: 1.47% of one CPU in 2.0 s\n"
        "probe                       hits  ns/hit  entry    total  of a CPU\n"
        "uprobe:/bin/x:f and 2 more  1000     300   9000   9.3 ms     0.47%\n"
        "profile:hz:99                  0       0      0   0.0 ms     0.00%\n"
        "pytrace itself                                   20.0 ms     1.00%\n"
        "memory: 40.0 MiB of pytrace, 1.5 MiB of its maps in the kernel\n"
    )


def test_the_line_of_json_has_the_same_numbers() -> None:
    line = json.loads(cost_line(COST))
    assert line["type"] == "cost"
    data = line["data"]
    probes = data.pop("probes")
    assert data == {
        "duration": 2_000_000_000, "processors": 2, "total": 29_300_000, "own_time": 20_000_000,
        "memory": 40 << 20, "maps": 3 << 19,
    }  # fmt: skip
    assert probes[0] == {
        "probe": "uprobe:/bin/x:f and 2 more", "hits": 1000, "run_time": 300_000, "entry": 9_000_000,
        "total": 9_300_000, "weight": 1, "detached": False,
    }  # fmt: skip


def test_what_was_limited_is_told_below() -> None:
    first, second = COST.probes
    cost = replace(COST, probes=(replace(first, weight=8, detached=True), replace(second, weight=2)))
    assert cost_text(cost).splitlines()[5:7] == [
        "uprobe:/bin/x:f and 2 more: sampled, 1 in 8 hits, then detached",
        "profile:hz:99: sampled, 1 in 2 hits",
    ]


def test_a_run_without_duration_has_no_shares() -> None:
    assert cost_text(RunCost(0, 1, (), 0, 0, 0)).startswith("cost of tracing: 0.00% of one CPU in 0.0 s\n")


# ---------------------------------------------------------------------------------------------- difference forms
# How differences of snapshots print.


def compared(kind: types.Type, before: Value | None, after: Value | None) -> Difference:
    """The key ``k`` of a map; None is a key that is not there."""
    first, second = ({} if value is None else {"k": value} for value in (before, after))
    return difference(
        snapshot(map_data("@", STRING, kind, first)), snapshot(map_data("@", STRING, kind, second), of=run("run-2"))
    )


def text_of(found: Difference) -> bytes:
    return b"".join(text_and_json.difference_text(found))


def lines_of(found: Difference) -> bytes:
    return b"".join(text_and_json.difference_json(found))


@pytest.mark.parametrize(
    ("kind", "before", "after", "text"),
    [
        (COUNT, 3, 9, "@[k]: +6 (3 → 9)\n"),
        (COUNT, None, 2, "@[k]: +2 (new)\n"),
        (COUNT, 4, None, "@[k]: -4 (was 4)\n"),
        (STRING, "a", "b", "@[k]: a → b\n"),
        (STRING, None, "b", "@[k]: b (new)\n"),
        (STRING, "a", None, "@[k]: removed (was a)\n"),
        (types.Avg(), (10, 2), (40, 4), "@[k]: +5 (5 → 10; count +2)\n"),
        (types.Avg(), None, (40, 4), "@[k]: +10 (new; count +4)\n"),
        (types.Stats(), (10, 2), (-40, 4), "@[k]: count +2 (2 → 4), average -15 (5 → -10), total -50 (10 → -40)\n"),
        (types.Min(), None, 7, "@[k]: 7 (new)\n"),
        (types.TSeries(10**9, 5, "avg"), {1: (6, 2)}, {1: (9, 1), 2: (1, 1)},
         "@[k]:\n1970-01-01T00:00:01.000000000 +6 (3 → 9)\n1970-01-01T00:00:02.000000000 +1 (- → 1)\n\n"),
    ],
)  # fmt: skip
def test_text_says_the_change_and_both_values(kind: types.Type, before: Value, after: Value, text: str) -> None:
    with zone("UTC"):
        assert text_of(compared(kind, before, after)).decode() == text


def test_buckets_that_gained_and_lost_have_bars() -> None:
    found = text_of(compared(types.LHist(0, 9, 3), {1: 4}, {1: 2, 2: 1})).decode().splitlines()
    assert found[0] == "@[k]:"
    assert found[1].split() == ["[0,", "3)", "-2", "|" + "-" * 52 + "|"]
    assert found[2].split()[:4] == ["[3,", "6)", "+1", "|" + "+" * 26]


@pytest.mark.parametrize(
    ("kind", "before", "after", "entry"),
    [
        (COUNT, 3, 9, {"before": 3, "after": 9, "change": 6}),
        (COUNT, None, 9, {"before": None, "after": 9, "change": 9}),
        (STRING, "a", "b", {"before": "a", "after": "b", "change": None}),
        (types.Avg(), (10, 2), (40, 4), {"before": 5, "after": 10, "change": 5}),
        (types.Stats(), (10, 2), None, {
            "before": {"count": 2, "average": 5, "total": 10}, "after": None,
            "change": {"count": -2, "average": -5, "total": -10},
        }),
        (types.LHist(0, 9, 3), {1: 4}, {1: 2}, {
            "before": [{"min": 0, "max": 2, "count": 4}], "after": [{"min": 0, "max": 2, "count": 2}],
            "change": [{"min": 0, "max": 2, "count": -2}],
        }),
    ],
)  # fmt: skip
def test_json_has_before_after_and_change(kind: types.Type, before: Value, after: Value, entry: Any) -> None:
    (line,) = lines_of(compared(kind, before, after)).splitlines()
    assert json.loads(line) == {"type": "difference", "data": {"@": {"k": entry}}}


def test_what_found_no_room_in_the_map_of_stacks_is_told_as_a_share() -> None:
    key = types.Tuple((STRING, STRING))
    other = MapData("@other_stacks", key, types.Sum(), {("app", "[other stacks]"): 1_000})
    of_stacks = MapData("@bytes", types.Stack(True), types.Sum(), {stack("f"): 2_000, stack("g"): 1_000})
    found = snapshot(other, of_stacks)
    said = "1,000 bytes (25 % of all) are of stacks beyond the first 2: no function has them"
    assert list(about.losses(found)) == [said]
    shown = texts(picture(other, of_stacks))
    assert said in shown
    assert "@other_stacks" not in " ".join(shown)


def test_the_largest_change_is_the_last_and_losses_follow() -> None:
    before = snapshot(map_data("@", types.INT64, COUNT, {1: 5, 2: 5, 3: 5}))
    after = snapshot(map_data("@", types.INT64, COUNT, {1: 15, 2: 4, 3: 8}), of=run("run-2"))
    after.losses = {"lost": {"begin": 2}}
    found = difference(before, after)
    assert text_of(found).decode() == ("@[2]: -1 (5 → 4)\n@[3]: +3 (5 → 8)\n@[1]: +10 (5 → 15)\n# lost: +2 (begin)\n")
    maps, losses = map(json.loads, lines_of(found).splitlines())
    assert list(maps["data"]["@"]) == ["2", "3", "1"]
    assert losses == {"type": "difference_losses", "data": {"lost": {"begin": 2}}}


def test_nothing_is_a_line_of_text_and_none_of_json() -> None:
    found = compared(COUNT, 3, 3)
    assert text_of(found) == b"no map differs\n"
    assert lines_of(found) == b""
    assert text_of(replace(found, rows=True)) == b"no map differs; rows are not compared\n"


@pytest.mark.parametrize("key", [types.INT64, types.Tuple((STRING, STRING))])
def test_lines_of_many_keys_are_written_in_parts(key: types.Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also keys that may have the same text, which are told apart by the hashes of all."""
    texts = [("a", f"{number}") for number in range(5)] + [("a,b", ""), ("a", "b,")]
    keys: list[Any] = [*range(7)] if key is types.INT64 else texts
    maps = [map_data("@", key, COUNT, {name: number + add for number, name in enumerate(keys)}) for add in (1, 2)]
    found = difference(snapshot(maps[0]), snapshot(maps[1], of=run("run-2")))
    whole = lines_of(found)
    monkeypatch.setattr(text_and_json, "_BLOCK", 3)
    parts = list(text_and_json.difference_json(found))
    assert b"".join(parts) == whole
    assert len(parts) == 4
    changes = json.loads(whole)["data"]["@"]
    assert len(changes) == len(keys)
    assert {item["change"] for item in changes.values()} == {1}


# ---------------------------------------------------------------------------------------------- svg
# Pictures of snapshots: options, comparison, losses.


USTACK = types.Stack(True)
HIST = types.Hist(0)
STACKS = map_data("@", USTACK, COUNT, {stack("leaf", "main"): 3})


def test_a_comparison_colours_what_grew_red_and_what_shrank_blue() -> None:
    before = snapshot(map_data("@", USTACK, COUNT, {stack("a", "main"): 8, stack("b", "main"): 2}))
    after = snapshot(map_data("@", USTACK, COUNT, {stack("a", "main"): 2, stack("b", "main"): 18}))
    found = svg.differential(before, after, WriteOptions())
    drawn = {box.title.split(":")[0]: box for box in boxes(found)}
    assert drawn["b"].title.startswith("b: 18 events, 90.00%, before 2 events (+16, +800.0%)")
    assert drawn["a"].title.startswith("a: 2 events, 10.00%, before 8 events (-6, -75.0%)")
    assert drawn["b"].color.startswith("hsl(4,")
    assert drawn["a"].color.startswith("hsl(216,")
    assert drawn["main"].color == "hsl(0,0%,96%)"
    assert any("red: a larger share" in text for text in texts(found))
    assert "@: 10 events before, 20 events after: +10 (+100.0 %)" in texts(found)
    assert "         +16  b (2 before, 18 after)" in texts(found)
    with pytest.raises(TraceError, match="neither snapshot has one"):
        svg.differential(snapshot(), snapshot(), WriteOptions())


def test_what_was_lost_is_told() -> None:
    whole = snapshot(STACKS)
    whole.losses = {"lost": {"k:f": 3}}
    file = BytesIO()
    svg.write(whole, WriteOptions(), file)
    assert "3 events lost (k:f)" in texts(file.getvalue())


@pytest.mark.parametrize("wanted", ["svg:width=ten", "svg:width=1", "svg:color=blue"])
def test_a_wrong_option_is_an_error(wanted: str) -> None:
    with pytest.raises(TraceError, match="of format svg is"):
        picture(STACKS, wanted=wanted)


def test_a_negative_number_has_no_width() -> None:
    with pytest.raises(TraceError, match="no negative numbers"):
        picture(map_data("@", USTACK, COUNT, {stack("main"): -4}))


def test_an_empty_map_is_a_picture() -> None:
    assert "@: 0 events" in texts(picture(map_data("@", USTACK, COUNT, {}), map_data("@h", None, HIST, {})))


def test_files_that_end_so_are_pictures() -> None:
    assert svg_table.chosen(None, "report.svg")[0].name == "svg"


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ((100, 101, 102), ["00:01:40", "00:01:41", "00:01:42"]),
        ((100, 100.5, 101), ["00:01:40.000", "00:01:40.500", "00:01:41.000"]),
        ((86_390, 86_410, 172_810), ["01-01 23:59:50", "01-02 00:00:10", "01-03 00:00:10"]),
    ],
)
def test_times_of_a_heat_map_tell_columns_apart(times: tuple[float, ...], labels: list[str]) -> None:
    saved = [
        snapshot(map_data("@us", None, HIST, {None: {3: number}}), of=run(start=0, end=int(time * SECOND)))
        for number, time in enumerate(times, 1)
    ]
    said = texts(svg.series(saved, WriteOptions()))
    assert [text for text in said if re.fullmatch(r"(\d\d-\d\d )?\d\d:\d\d:\d\d[.\d]*", text)] == labels


def test_a_series_is_a_heat_map_of_what_each_interval_added() -> None:
    states = [{1: {3: 2}}, {1: {3: 2, 5: 4}, 2: {4: 1}}, {1: {4: 7}, 2: {4: 1}}]
    saved = [
        snapshot(map_data("@us", types.INT64, HIST, entries), STACKS, map_data("@n", None, COUNT, {None: 1}),
                 of=run(end=(101 + number) * SECOND))
        for number, entries in enumerate(states)
    ]  # fmt: skip
    found = svg.series(list(reversed(saved)), WriteOptions())
    said = texts(found)
    assert said[1].endswith(", 3 snapshots")
    assert {"@us[2]: 1 value: p50 <= 7 us, p90 <= 7 us, p99 <= 7 us, largest <= 7 us", "as of the last snapshot:",
            "@: 3 events, most in:", "values in a cell"} <= set(said)  # fmt: skip
    assert any(text.startswith("@us[1]: 13 values: p50 ") for text in said)
    assert any(text.startswith("@n: what each interval added, highest 1 at ") for text in said)
    cells = [box.title for box in boxes(found) if " of " in box.title]
    # In the last one the first key was emptied before: it shows all that it holds.
    assert sorted(cells) == [
        "00:01:41, [2, 4): 2 of 2 (100.00%)", "00:01:42, [4, 8): 1 of 1 (100.00%)",
        "00:01:42, [8, 16): 4 of 4 (100.00%)", "00:01:43, [4, 8): 7 of 7 (100.00%)",
    ]  # fmt: skip
    with pytest.raises(TraceError, match="shows maps over time, and none"):
        svg.series([snapshot(), snapshot()], WriteOptions())


def test_many_intervals_share_columns() -> None:
    saved = [
        snapshot(map_data("@", None, HIST, {None: {3: number + 1}}), of=run(end=(101 + number) * SECOND))
        for number in range(900)
    ]  # fmt: skip
    cells = [box for box in boxes(svg.series(saved, WriteOptions())) if " of " in box.title]
    assert len(cells) == 300
    assert all(": 3 of 3" in cell.title for cell in cells)


def test_a_comparison_is_not_by_processes_of_which_both_have_others() -> None:
    key = types.Tuple((types.UINT32, USTACK))
    before, after = (snapshot(map_data("@", key, COUNT, {(pid, stack("f", "main")): 4})) for pid in (7, 9))
    drawn = {box.title.split(":")[0]: box for box in boxes(svg.differential(before, after, WriteOptions()))}
    assert drawn["f"].title.startswith("f: 4 events, 100.00%, before 4 events (0, +0.0%)")
    assert not {"7", "9"} & set(drawn)


def test_stacks_of_two_runs_are_matched_by_functions_and_files() -> None:
    def state(folder: str, pid: int, name: str, **own: int) -> SnapshotData:
        frame = Frame("main", 8, f"{folder}/bin/app-{pid}.{pid}", file=f"{folder}/main.c", line=pid)
        entries = {
            (StackTrace((Frame(function, pid, f"{folder}/lib.so.{pid}"), frame)), pid, "app"): count
            for function, count in own.items()
        }
        data = map_data("@", types.Tuple((USTACK, types.UINT32, STRING)), COUNT, entries)
        data = msgspec.structs.replace(data, key_names=("", "pid", "comm"))
        return snapshot(data, of=run(name, script="-e", text="profile:hz:100 { }"))

    before, after = state("/venv/a", 7, "one", parse=10, same=5), state("/srv/b", 9, "two", parse=30, same=5)
    found = difference(before, after, by_function=True)
    assert text_of(found).decode().splitlines() == [
        "@[main;parse, app]: +20 (10 → 30)",
        "# @: stacks are matched by the names of functions and files, without PID, of which nothing is in common",
        "# @: 150 ms (15 samples) before, 350 ms (35 samples) after: +200 ms (+133.3 %)",
        "# @: grew most:", "# @:      +200 ms  parse (100 ms before, 300 ms after)",
    ]  # fmt: skip
    assert json.loads(lines_of(found))["data"] == {"@": {"main;parse,app": {"before": 10, "after": 30, "change": 20}}}
    assert len(difference(before, after).maps["@"].changes) == 4, "other formats have all of each place"
    later = state("/venv/a", 7, "one", parse=11, same=5)
    text = text_of(difference(before, later, by_function=True)).decode()
    assert "parse+7" in text, "one run: places as they are"
    assert "matched" not in text


def test_a_comparison_as_picture_has_numbers_without_stacks() -> None:
    before, after = (
        snapshot(map_data("@n", STRING, COUNT, {"read": low, "same": 4}), map_data("@h", None, HIST, {None: {3: low}}))
        for low in (5, 9)
    )
    found = texts(svg.differential(before, after, WriteOptions()))
    assert "key   @n before  @n after  change" in found
    assert "read          5         9       4" in found
    assert "@h differs; pictures compare numbers only" in found


def test_stacks_that_changed_least_are_one_line() -> None:
    def state(name: str, factor: int) -> SnapshotData:
        entries = {(stack(f"f{number}"), 1): 100 + number * factor for number in range(1, 31)}
        entries[stack("gone"), 1] = 103 if factor == 1 else 101
        data = map_data("@", types.Tuple((USTACK, types.UINT32)), COUNT, entries)
        return snapshot(data, of=run(name, script="-e", text="profile:hz:100 { }"))

    found = difference(state("one", 1), state("two", 3), by_function=True)
    rows = text_of(found).decode().splitlines()
    assert rows[0] == "# @: 11 further stacks differ by less (+110 and -2 in all); -f json has each"
    assert [line.partition(" (")[0] for line in rows[1:22]] == [
        *(f"@[f{number}, 1]: +{2 * number}" for number in range(11, 31)),
        "# @: stacks are matched by the names of functions and files",
    ]
    assert len(json.loads(lines_of(found))["data"]["@"]) == 31
