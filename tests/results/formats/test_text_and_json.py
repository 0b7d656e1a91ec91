"""Formats ``text`` and ``json``: rows and maps of snapshots print as in a run."""

from __future__ import annotations

import json as standard_json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from pytrace.core import types
from pytrace.core.types import BOOL, INT64, UINT32, UINT64, String, Type
from pytrace.results.formats.format_row import WriteOptions, Writer
from pytrace.results.formats.text_and_json import write_json, write_text
from pytrace.results.merge import merge
from pytrace.results.snapshot import SnapshotData, Table
from pytrace.runtime.capture.recording import RowKeeper
from tests.support.captured import forms
from tests.support.encode import Run
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, table

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


def test_maps_come_below_as_at_the_end_of_a_run() -> None:
    found = snapshot(map_data("@", None, COUNT, {None: 3}), tables=(table(["n"], [types.INT8], [(1,)]),))
    assert written(found) == b"   N\n   1\n\n@: 3\n"
    assert written(snapshot(map_data("@", None, COUNT, {None: 3}))) == b"@: 3\n"


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


def test_maps_go_by_name() -> None:
    found = snapshot(map_data("@b", None, COUNT, {None: 1}), map_data("@a", None, COUNT, {None: 2}))
    assert written(found) == b"@a: 2\n@b: 1\n"
    assert written(snapshot(map_data("@", types.Stack(True), COUNT, {stack("f"): 1}))) == b"@[\n        f+4\n]: 1\n"


def test_an_empty_line_is_between_rows_and_maps_where_both_print() -> None:
    rows = table(["n"], [types.INT8], [(1,)])
    full, empty = map_data("@", None, COUNT, {None: 3}), map_data("@", None, COUNT, {})
    assert written(snapshot(full, tables=(rows,))) == b"   N\n   1\n\n@: 3\n"
    assert written(snapshot(empty, tables=(rows,))) == b"   N\n   1\n"
    assert written(snapshot(full, tables=(table(["n"], [types.INT8], []),))) == b"@: 3\n"


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
