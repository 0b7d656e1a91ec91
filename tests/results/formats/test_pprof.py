from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import table
from pytrace.results.snapshot import Frame, MapData, SnapshotData, StackTrace
from tests.support.readers import pprof, speedscope_stacks
from tests.support.snapshots import COUNT, SECOND, STRING, TWO_TASKS, map_data, snapshot, stack, two_tasks

USTACK, KSTACK = types.Stack(True), types.Stack(False)
KEY = types.Tuple((STRING, types.INT32, KSTACK, USTACK))
ENTRY = (
    "sh",
    -5,
    StackTrace((Frame("vfs", 4, "[kernel]", "aa", address=0xFFFFFFFF81000000),), False),
    StackTrace((
        Frame("inner", 9, "/bin/x", "bb", "x.h", 3, True, 0x1010),
        Frame("outer", 9, "/bin/x", "bb", "x.c", 30, False, 0x1010),
        Frame("", 0, "/lib/libc.so.6", "cc", address=0x77),
    )),
)  # fmt: skip


def written(snapshot_: SnapshotData, wanted: str = "pprof") -> bytes:
    row, options = table.chosen(wanted, None)
    file = BytesIO()
    row.writer()(snapshot_, options, file)
    return file.getvalue()


def signed(number: int | str) -> int:
    """An ``int64``, which the package gives as unsigned."""
    return (int(number) + (1 << 63)) % (1 << 64) - (1 << 63)


class Read:
    """A profile as others decode it, with its texts in place of their numbers."""

    def __init__(self, path: Path, snapshot_: SnapshotData, wanted: str = "pprof") -> None:
        file = path / "x.pb.gz"
        file.write_bytes(written(snapshot_, wanted))
        self.data = pprof(file)
        self.texts: list[str] = self.data["stringTable"]

    def types(self) -> list[tuple[str, str]]:
        return [(self.texts[one["type"]], self.texts[one["unit"]]) for one in self.data["sampleType"]]

    def samples(self) -> list[tuple[str, list[int], dict[str, Any]]]:
        return [
            (
                ";".join(name for number in reversed(one["locationId"]) for name in reversed(self.names(number))),
                [signed(value) for value in one["value"]],
                {self.texts[label["key"]]: self.texts[label["str"]] or signed(label["num"]) for label in one["label"]},
            )
            for one in self.data["sample"]
        ]

    def location(self, number: int) -> Any:
        return next(one for one in self.data["location"] if one["id"] == number)

    def names(self, number: int) -> list[str]:
        """Functions at a location, the innermost first."""
        functions = {one["id"]: self.texts[one["name"]] for one in self.data["function"]}
        return [functions[line["functionId"]] for line in self.location(number)["line"]] or ["?"]


def test_samples_have_labels_and_values(tmp_path: Path) -> None:
    found = Read(tmp_path, snapshot(map_data("@", KEY, COUNT, {ENTRY: 3, ("ls", 0, *ENTRY[2:]): 1 << 40})))
    assert found.types() == [("samples", "count")]
    assert found.samples() == [
        ("?;outer;inner;vfs", [1 << 40], {"key1": "ls", "key2": 0}),
        ("?;outer;inner;vfs", [3], {"key1": "sh", "key2": -5}),
    ]


def test_places_know_their_binary_and_what_was_inlined(tmp_path: Path) -> None:
    found = Read(tmp_path, snapshot(map_data("@", KEY, COUNT, {ENTRY: 3})))
    leaf, inlined, unknown = (found.location(number) for number in found.data["sample"][0]["locationId"])
    assert int(leaf["address"]) == 0xFFFFFFFF81000000
    assert [line["line"] for line in inlined["line"]] == [3, 30]
    assert (inlined["address"], unknown["address"], unknown["line"]) == (0x1010, 0x77, [])
    mappings = {
        one["id"]: (found.texts[one["filename"]], found.texts[one["buildId"]], one["hasFunctions"])
        for one in found.data["mapping"]
    }
    # The program first: readers take the first for what was profiled.
    assert mappings == {
        1: ("/bin/x", "bb", True), 2: ("/lib/libc.so.6", "cc", False), 3: ("[kernel]", "aa", True)
    }  # fmt: skip
    assert [place["mappingId"] for place in (leaf, inlined, unknown)] == [3, 1, 2]
    assert found.data["mapping"][0]["hasInlineFrames"]
    files = {found.texts[one["name"]]: found.texts[one["filename"]] for one in found.data["function"]}
    assert files == {"vfs": "", "inner": "x.h", "outer": "x.c"}


def test_every_map_has_value_types_of_its_own(tmp_path: Path) -> None:
    maps = [
        map_data("@", USTACK, COUNT, {stack("a"): 2}),
        map_data("@lat_us", USTACK, types.Stats(), {stack("b"): (40, 4)}),
        map_data("@size_kb", USTACK, types.Sum(), {stack("c"): -3}),
    ]
    found = Read(tmp_path, snapshot(*maps), "pprof:hz=100")
    assert found.types() == [
        ("samples", "count"), ("cpu", "nanoseconds"), ("lat_us_count", "count"), ("lat_us_total", "microseconds"),
        ("size_kb", "kilobytes"),
    ]  # fmt: skip
    assert [(stack_, values) for stack_, values, _ in found.samples()] == [
        ("a", [2, 20_000_000, 0, 0, 0]), ("b", [0, 0, 4, 40, 0]), ("c", [0, 0, 0, 0, -3])
    ]  # fmt: skip
    assert (found.data["period"], found.texts[found.data["defaultSampleType"]]) == (10_000_000, "cpu")


def test_names_of_values_and_times(tmp_path: Path) -> None:
    maps = [map_data(name, USTACK, COUNT, {stack("a"): 2}) for name in ("@", "@samples")]
    assert len(set(Read(tmp_path, snapshot(*maps)).types())) == 2
    found = Read(tmp_path, snapshot(map_data("@", USTACK, COUNT, {stack("a"): 2})))
    assert (int(found.data["timeNanos"]), int(found.data["durationNanos"])) == (100 * SECOND, 10 * SECOND)
    assert [found.texts[number] for number in found.data["comment"]] == ["x.bt on here, Linux 6.1.0, pytrace 0.1"]


@pytest.mark.needs("readers")
def test_speedscope_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.pb.gz"
    path.write_bytes(written(snapshot(map_data("@", KEY, COUNT, {ENTRY: 3}))))
    (found,) = speedscope_stacks(path).values()
    assert list(found.values()) == [3]
    # It leaves inlined functions out.
    assert next(iter(found)).endswith("outer;vfs")


def test_the_same_snapshot_gives_the_same_bytes() -> None:
    data = snapshot(map_data("@", KEY, COUNT, {ENTRY: 3}))
    assert written(data) == written(data)


def test_numbers_and_options_that_do_not_fit() -> None:
    large: MapData = map_data("@x", USTACK, types.Sum(False), {stack("f"): 1 << 63})
    with pytest.raises(TraceError, match="end at 9223372036854775807, and @x has 9223372036854775808"):
        written(snapshot(large))
    for text in ("0", "-1", "x", "1.5"):
        with pytest.raises(TraceError, match="option hz of format pprof is a frequency"):
            written(snapshot(), f"pprof:hz={text}")


def test_stacks_of_two_tasks(tmp_path: Path) -> None:
    assert Read(tmp_path, snapshot(two_tasks())).samples() == [(TWO_TASKS, [4], {})]
