"""Format ``json``."""

from __future__ import annotations

import json as standard_json
from io import BytesIO
from typing import Any

from pytrace.core import types
from pytrace.results.formats import json
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, table


def lines(found: SnapshotData, *, about: bool = False) -> list[Any]:
    file = BytesIO()
    json.write(found, WriteOptions({}, about), file)
    return [standard_json.loads(line) for line in file.getvalue().splitlines()]


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


def test_what_is_known_of_the_runs_is_the_first_line_when_it_is_asked_for() -> None:
    first, second = lines(snapshot(map_data("@", None, COUNT, {None: 3})), about=True)
    assert first["type"] == "snapshot"
    assert second == {"type": "map", "data": {"@": 3}}
