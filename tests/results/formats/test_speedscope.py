from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import table
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from tests.support.readers import speedscope, speedscope_stacks
from tests.support.snapshots import COUNT, STRING, TWO_TASKS, map_data, snapshot, stack, two_tasks

USTACK, KSTACK = types.Stack(True), types.Stack(False)
KEY = types.Tuple((STRING, KSTACK, USTACK))
WHOLE = snapshot(
    map_data("@", KEY, COUNT, {
        ("sh", stack("vfs", "entry", user=False), stack("leaf", "main")): 3,
        ("sh", stack(user=False), stack("leaf", "main")): 1,
        ("ls", stack(user=False), stack("é\udcff", "main")): 9,
    }),
    map_data("@lat_us", USTACK, types.Stats(), {stack("leaf", "main"): (40, 4)}),
    map_data("@size_kb", USTACK, types.Sum(), {stack("main"): 3}),
)  # fmt: skip


def written(snapshot_: SnapshotData, wanted: str = "speedscope") -> bytes:
    row, options = table.chosen(wanted, None)
    file = BytesIO()
    row.writer()(snapshot_, options, file)
    return file.getvalue()


@pytest.mark.needs("readers")
def test_speedscope_reads_a_profile_for_each_key_and_number(tmp_path: Path) -> None:
    path = tmp_path / "x.speedscope.json"
    path.write_bytes(written(WHOLE))
    assert speedscope_stacks(path) == {
        "@ ls": {"main;é\\xff": 9},
        "@ sh": {"main;leaf;entry;vfs": 3, "main;leaf": 1},
        "@lat_us (count)": {"main;leaf": 4},
        "@lat_us (total)": {"main;leaf": 40},
        "@size_kb": {"main": 3072},
    }
    found = speedscope(path)
    units = {profile["name"]: profile["unit"] for profile in found["profiles"]}
    assert units["@ ls"] == "none"
    assert units["@lat_us (count)"] == "none"
    assert units["@lat_us (total)"] == "microseconds"
    assert units["@size_kb"] == "bytes"
    assert found["activeProfileIndex"] == 0
    assert {"name": "main", "file": "/bin/program"} in found["shared"]["frames"]


@pytest.mark.needs("readers")
def test_speedscope_reads_all_keys_together(tmp_path: Path) -> None:
    path = tmp_path / "x.speedscope.json"
    path.write_bytes(written(snapshot(WHOLE.maps["@"]), "speedscope:together"))
    assert speedscope_stacks(path) == {
        "@": {"sh;main;leaf;entry;vfs": 3, "sh;main;leaf": 1, "ls;main;é\\xff": 9},
    }


def test_a_function_is_one_frame_wherever_it_calls_from() -> None:
    first, second = (
        StackTrace((Frame("leaf", at), Frame("main", at, "/bin/x", file="x.c", line=at)), True) for at in (4, 8)
    )
    entries: dict[Any, Any] = {first: 1, second: 2}
    found = json.loads(written(snapshot(map_data("@", USTACK, COUNT, entries))))
    assert found["shared"]["frames"] == [{"name": "main", "file": "x.c"}, {"name": "leaf"}]
    (profile,) = found["profiles"]
    assert (profile["samples"], profile["weights"], profile["endValue"]) == ([[0, 1]], [3], 3)


def test_empty_and_negative_maps() -> None:
    (profile,) = json.loads(written(snapshot(map_data("@x", KEY, COUNT, {}))))["profiles"]
    assert (profile["name"], profile["samples"]) == ("@x", [])
    with pytest.raises(TraceError, match="no negative numbers, and @x has -3"):
        written(snapshot(map_data("@x", USTACK, types.Sum(), {stack("f"): -3})))


@pytest.mark.needs("readers")
def test_stacks_of_two_tasks(tmp_path: Path) -> None:
    path = tmp_path / "x.speedscope.json"
    path.write_bytes(written(snapshot(two_tasks())))
    assert speedscope_stacks(path) == {"@": {TWO_TASKS: 4}}
