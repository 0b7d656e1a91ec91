from __future__ import annotations

from typing import Any

import pytest

from pytrace.core import types
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.stack_samples import (
    INTERPRETED,
    KERNEL,
    MARK,
    USER,
    Label,
    Measure,
    Profile,
    frame_name,
    paths,
    profiles,
    second_task,
)
from pytrace.results.values import Frame, StackTrace
from tests.support.snapshots import COUNT, STRING, map_data, stack

USTACK, KSTACK = types.Stack(True), types.Stack(False)


def profile(key: types.Type, value: types.Type, entries: dict[Any, Any], name: str = "@") -> Profile:
    (found,) = profiles([map_data(name, key, value, entries)], Printers().portable_text)
    return found


def names(found: Profile) -> list[list[str]]:
    return [[frame_name(frame) for frame in sample.frames] for sample in found.samples]


def test_the_user_stack_is_the_root_wherever_it_stands_in_the_key() -> None:
    user, kernel = stack("leaf", "main"), stack("vfs", "entry", user=False)
    for key, entry in (((USTACK, KSTACK), (user, kernel)), ((KSTACK, USTACK), (kernel, user))):
        found = profile(types.Tuple(key), COUNT, {entry: 3})
        assert names(found) == [["main", "leaf", "entry", "vfs"]]
        assert found.samples[0].kinds == (USER, USER, KERNEL, KERNEL)


def test_other_members_of_the_key_are_labels() -> None:
    key = types.Tuple((STRING, KSTACK, types.Tuple((types.INT32, types.BOOL))))
    found = profile(key, COUNT, {("sh", stack("f", user=False), (-7, True)): 1})
    assert found.samples[0].labels == (
        Label("key1", "sh", None),
        Label("key3.0", "-7", -7),
        Label("key3.1", "true", 1),
    )
    assert found.text_labels == ("key1",)
    record = types.Record(("pid", "where"), (types.UINT32, USTACK))
    assert profile(record, COUNT, {(5, stack("f")): 1}).samples[0].labels == (Label("pid", "5", 5),)


def test_bytes_that_are_no_text_are_escaped_in_labels() -> None:
    found = profile(types.Tuple((STRING, USTACK)), COUNT, {("a\udcff", stack("f")): 1})
    assert found.samples[0].labels[0].text == "a\\xff"


def test_stacks_that_are_missing() -> None:
    def path(*stacks: StackTrace) -> list[tuple[str, int]]:
        return [(frame.function, kind) for frame, kind in paths([types.Stack(item.user) for item in stacks])(stacks)]

    assert path(StackTrace((), True, "Bad address")) == [("[no user stack: Bad address]", USER)]
    assert path(StackTrace((), True), StackTrace((), False)) == [("[no stack]", MARK)]
    assert path(StackTrace((), True), stack("vfs", user=False)) == [("vfs", KERNEL)]
    # One task has none: the other's is there all the same.
    waker = stack("wake", user=False)
    assert path(StackTrace((), False), waker) == [("[no stack]", MARK), ("--", MARK), ("wake", KERNEL)]


@pytest.mark.parametrize(("members", "split"), [
    ((KSTACK, USTACK), None), ((USTACK, KSTACK, STRING), None), ((KSTACK, STRING, KSTACK), 2),
    ((KSTACK, USTACK, STRING, KSTACK, USTACK), 3), ((USTACK, USTACK), 1),
])  # fmt: skip
def test_a_second_stack_of_a_kind_is_of_another_task(members: tuple[types.Type, ...], split: int | None) -> None:
    assert second_task(members) == split


def test_stacks_of_two_tasks_meet_in_the_middle() -> None:
    key = types.Tuple((KSTACK, USTACK, STRING, KSTACK))
    waker = stack("wake_up", "softirq", user=False)
    entry = (stack("schedule", "sys_read", user=False), stack("wait", "main"), "waker", waker)
    found = profile(key, COUNT, {entry: 9})
    assert names(found) == [["main", "wait", "sys_read", "schedule", "--", "wake_up", "softirq"]]
    assert found.samples[0].kinds == (USER, USER, KERNEL, KERNEL, MARK, KERNEL, KERNEL)


def test_what_an_interpreter_runs() -> None:
    entry = StackTrace((Frame("f", file="/srv/app.py", line=3), Frame("main")))
    assert profile(USTACK, COUNT, {entry: 1}).samples[0].kinds == (USER, INTERPRETED)
    mixed = ("/srv/app.py", "<frozen importlib._bootstrap>", "<string>", "/usr/bin/python3.11")
    entry = StackTrace(tuple(Frame("f", module=module) for module in mixed))
    assert profile(USTACK, COUNT, {entry: 1}).samples[0].kinds == (USER, INTERPRETED, INTERPRETED, INTERPRETED)


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (Frame("main", 4, "/bin/x"), "main"),
        (Frame("", 0, "/usr/lib/libc.so.6", address=16), "[libc.so.6]"),
        (Frame("", 0, "[vdso]"), "[vdso]"),
        (Frame("", address=0x1F), "0x1f"),
        (Frame("", build_id="ab12", address=0x1F), "ab12+0x1f"),
    ],
)
def test_names_of_frames(frame: Frame, name: str) -> None:
    assert frame_name(frame) == name


@pytest.mark.parametrize(
    ("map_name", "kind", "value", "measures", "numbers"),
    [
        ("@", COUNT, 3, (Measure("", "count"),), (3,)),
        ("@wait_ns", types.Sum(), -4, (Measure("", "ns"),), (-4,)),
        ("@size_kb", types.Avg(), (10, 4), (Measure("count", "count"), Measure("total", "KB")), (4, 10)),
        ("@x", types.Stats(), (10, 4), (Measure("count", "count"), Measure("total", "")), (4, 10)),
        ("@x_us", types.Max(), 9, (Measure("", "us"),), (9,)),
        ("@on", types.BOOL, True, (Measure("", ""),), (1,)),
    ],
)
def test_numbers_and_their_units(
    map_name: str, kind: types.Type, value: Any, measures: tuple[Measure, ...], numbers: tuple[int, ...]
) -> None:
    found = profile(USTACK, kind, {stack("f"): value}, map_name)
    assert (found.measures, found.samples[0].values) == (measures, numbers)


def test_joining_follows_the_aggregation() -> None:
    for kind, joined in ((COUNT, 7), (types.Min(), 3), (types.Max(), 4), (types.INT64, 7)):
        assert profile(USTACK, kind, {}).join(3, 4) == joined


def test_maps_come_by_name_and_samples_by_labels_and_functions() -> None:
    key = types.Tuple((STRING, USTACK))
    entries = {("b", stack("x")): 1, ("a", stack("z", "main")): 2, ("a", stack("y", "main")): 3}
    found = profiles([map_data("@b", key, COUNT, entries), map_data("@a", key, COUNT, {})], Printers().portable_text)
    assert [one.name for one in found] == ["@a", "@b"]
    assert [sample.values for sample in found[1].samples] == [(3,), (2,), (1,)]
