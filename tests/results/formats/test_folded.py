from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import folded, table
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import Frame, MapData, SnapshotData, StackTrace
from tests.support.readers import speedscope_stacks
from tests.support.snapshots import COUNT, STRING, TWO_TASKS, map_data, snapshot, stack, two_tasks

USTACK, KSTACK = types.Stack(True), types.Stack(False)
BOTH = types.Tuple((STRING, KSTACK, USTACK))


def written(snapshot_: SnapshotData, wanted: str = "folded") -> bytes:
    row, options = table.chosen(wanted, None)
    file = BytesIO()
    row.writer()(snapshot_, options, file)
    return file.getvalue()


def lines(data: MapData, wanted: str = "folded") -> list[str]:
    return written(snapshot(data), wanted).decode("utf-8", "surrogateescape").splitlines()


def test_one_line_for_each_stack_root_first() -> None:
    entries = {
        ("sh", stack("vfs", "entry", user=False), stack("leaf", "main")): 3,
        ("sh", stack(user=False), stack("leaf", "main")): 1,
        ("a b", stack(user=False), stack("main")): 2,
    }
    assert lines(map_data("@", BOTH, COUNT, entries)) == [
        "a b;main 2",
        "sh;main;leaf 1",
        "sh;main;leaf;entry;vfs 3",
    ]


def test_stacks_that_read_alike_are_one_line() -> None:
    first, second = (StackTrace((Frame("f", offset, "/bin/x"),)) for offset in (4, 8))
    for kind, value, joined in ((COUNT, (2, 3), 5), (types.Max(), (2, 3), 3), (types.Min(), (2, 3), 2)):
        assert lines(map_data("@", USTACK, kind, {first: value[0], second: value[1]})) == [f"f {joined}"]


def test_only_the_process_or_only_the_stacks() -> None:
    key = types.Tuple((types.INT32, STRING, USTACK))
    data = map_data("@", key, COUNT, {(1, "sh", stack("f")): 2, (2, "sh", stack("f")): 3, (3, "ls", stack("f")): 4})
    assert lines(data) == ["1;sh;f 2", "2;sh;f 3", "3;ls;f 4"]
    assert lines(data, "folded:process") == ["ls;f 4", "sh;f 5"]
    assert lines(data, "folded:stacks") == ["f 9"]
    nameless = map_data("@x", types.Tuple((types.INT32, USTACK)), COUNT, {(1, stack("f")): 2})
    with pytest.raises(TraceError, match="folded:process needs a string in the key of @x") as found:
        lines(nameless, "folded:process")
    assert "@x[comm, ustack]" in found.value.hints[0]


def test_members_of_the_key_in_its_order() -> None:
    woken = types.Stack(True, 127, types.StackMode.INVERTED)
    key = types.Tuple((STRING, USTACK, STRING, KSTACK, woken, STRING, KSTACK))
    failed = StackTrace((), error="Bad address")
    entries = {
        ("sh", stack("in", "main"), "-", stack("vfs", "entry", user=False), stack("post", "loop"), "", stack()): 2,
        ("ls", failed, "-", stack(user=False), stack(), "by", stack("k", "e", user=False)): 1,
        ("no", stack("main"), "-", stack(user=False), stack(), "-", stack("k", user=False)): 1,
    }
    data = map_data("@", key, COUNT, entries)
    whole = ["ls;[no user stack: Bad address];by;e;k 1", "no;main;k 1", "sh;main;in;-;entry;vfs;post;loop 2"]
    assert lines(data, "folded:ordered") == whole
    assert lines(data, "folded:ordered,annotate")[0] == "ls;[no user stack: Bad address];by;e_[k];k_[k] 1"


def test_averages_show_totals_counts_or_averages() -> None:
    first, second = (StackTrace((Frame("f", offset, "/bin/x"),)) for offset in (4, 8))
    data = map_data("@", USTACK, types.Avg(), {first: (10, 1), second: (20, 3)})
    assert lines(data) == ["f 30"]
    assert lines(data, "folded:value=count") == ["f 4"]
    assert lines(data, "folded:value=average") == ["f 7"]
    with pytest.raises(TraceError, match="one of total, count, average, not 'mean'"):
        lines(data, "folded:value=mean")


def test_titles_of_marks_and_of_several_maps() -> None:
    user = StackTrace((Frame("inner", 0, "/bin/x", inlined=True), Frame("main", 4, "/bin/x")))
    kernel = StackTrace((Frame("nft_do", 4, "nf_tables"), Frame("entry", 4, "[kernel]")), False)
    data = map_data("@", types.Tuple((KSTACK, USTACK)), COUNT, {(kernel, user): 1})
    assert lines(data, "folded:annotate") == ["main;inner_[i];entry_[k];nft_do_[k] 1"]
    maps = [map_data(name, USTACK, COUNT, {stack("f"): count}) for name, count in (("@b", 1), ("@a", 2))]
    assert written(snapshot(*maps)) == b"@a;f 2\n@b;f 1\n"


HARD = ["operator<;>", "a\nb", "f 12", "f 1.5", "\u00e9\udcff", "a  b"]


@pytest.mark.parametrize("name", HARD)
def test_every_name_stays_one_frame(name: str) -> None:
    (line,) = lines(map_data("@", USTACK, COUNT, {stack(name, "main"): 7}))
    # As flamegraph.pl splits lines: a number, before it another one if there is one, frames.
    match = re.fullmatch(r"(.*)\s+?(\d+(?:\.\d*)?)", line)
    assert match is not None
    assert match[2] == "7"
    assert re.fullmatch(r"(.*)\s+?(\d+(?:\.\d*)?)", match[1]) is None
    assert match[1].count(";") == 1


def test_negative_numbers_are_refused() -> None:
    file = BytesIO()
    with pytest.raises(TraceError, match="no negative numbers, and @x has -3"):
        folded.write(snapshot(map_data("@x", USTACK, types.Sum(), {stack("f"): -3})), WriteOptions(), file)
    assert file.getvalue() == b""


def test_two_snapshots_side_by_side() -> None:
    before = snapshot(map_data("@", USTACK, COUNT, {stack("f"): 1, stack("same"): 5}))
    after = snapshot(map_data("@", USTACK, COUNT, {stack("g"): 2, stack("same"): 5}))
    assert folded.differential(before, after, WriteOptions()) == b"f 1 0\ng 0 2\nsame 5 5\n"


@pytest.mark.needs("readers")
def test_speedscope_reads_it(tmp_path: Path) -> None:
    entries: dict[Any, Any] = {
        ("sh", stack("vfs", "entry", user=False), stack("leaf", "main")): 3,
        ("sh", stack(user=False), stack("leaf", "main")): 1,
        ("b", stack(user=False), stack("operator new", "main")): 1 << 40,
    }
    path = tmp_path / "x.folded"
    path.write_bytes(written(snapshot(map_data("@", BOTH, COUNT, entries))))
    assert list(speedscope_stacks(path).values()) == [
        {"sh;main;leaf;entry;vfs": 3, "sh;main;leaf": 1, "b;main;operator new": 1 << 40}
    ]


def test_stacks_of_two_tasks() -> None:
    assert lines(two_tasks()) == [f"{TWO_TASKS} 4"]
    assert lines(two_tasks(), "folded:annotate") == ["main;schedule_[k];--;wake_up_[k];softirq_[k] 4"]
    # All members in their order, as ever.
    assert lines(two_tasks(), "folded:ordered") == ["schedule;main;softirq;wake_up 4"]
