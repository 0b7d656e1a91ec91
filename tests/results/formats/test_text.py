"""Format ``text``."""

from __future__ import annotations

from io import BytesIO

from pytrace.core import types
from pytrace.results.formats import text
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, map_data, snapshot, stack, table


def written(found: SnapshotData, *, about: bool = False) -> bytes:
    file = BytesIO()
    text.write(found, WriteOptions({}, about), file)
    return file.getvalue()


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


def test_what_is_known_of_the_runs_comes_first_when_it_is_asked_for() -> None:
    found = written(snapshot(map_data("@", None, COUNT, {None: 3})), about=True)
    assert found.startswith(b"# x.bt ")
    assert found.endswith(b"\n\n@: 3\n")
