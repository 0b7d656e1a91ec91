from __future__ import annotations

from typing import Any

from pytrace.core import types
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.report.document import Document
from pytrace.results.report.flame_data import flame_part
from pytrace.results.report.parts import FlamePart
from pytrace.results.snapshot import MapData
from pytrace.results.stack_samples import INTERPRETED, KERNEL, MARK, USER
from pytrace.results.values import Frame, StackTrace
from tests.support.snapshots import COUNT, STRING, map_data, stack

K, U = types.Stack(False), types.Stack(True)


def part_of(data: MapData, before: MapData | None = None) -> tuple[Document, FlamePart]:
    document = Document()
    return document, flame_part(document, data, before, Printers().portable_text)


def paths(document: Document, part: FlamePart) -> list[tuple[list[str], list[str], list[Any]]]:
    """Labels, functions from the root and values of each sample, as the viewer reads them."""
    texts = document.texts.all()
    names = [texts[name] for name, _, _ in document.frames]
    depths, frames, _ = part.nodes
    found = []
    for at, node in enumerate(part.node):
        path, wanted = [], depths[node]
        for place in range(node, -1, -1):
            if depths[place] == wanted:
                path.append(names[frames[place]])
                wanted -= 1
        labels = [texts[text] for text in part.groups[part.group[at]]]
        found.append((labels, path[::-1], [column[at] for column in part.values]))
    return found


def test_samples_are_paths_in_a_trie() -> None:
    key = types.Tuple((STRING, K, U))
    data = map_data("@", key, COUNT, {
        ("a", stack("leaf_k", "enter", user=False), stack("f", "main")): 3,
        ("a", stack(user=False), stack("g", "main")): 4,
        ("b", stack(user=False), stack()): 5,
    })  # fmt: skip
    document, part = part_of(data)
    assert sorted(paths(document, part)) == [
        (["a"], ["main", "f", "enter", "leaf_k"], [3]),
        (["a"], ["main", "g"], [4]),
        (["b"], ["[no stack]"], [5]),
    ]
    assert len(part.nodes[0]) == 6
    kinds = {document.texts.all()[name]: kind for name, _, kind in document.frames}
    assert kinds["main"] == USER
    assert kinds["leaf_k"] == KERNEL


def test_source_lines_are_kept_and_say_what_an_interpreter_runs() -> None:
    trace = StackTrace((Frame("work", 1, "", "", "/x/app.py", 7), Frame("main", 1, "/bin/c", "", "main.c", 3)))
    document, _ = part_of(map_data("@", U, COUNT, {trace: 1}))
    texts = document.texts.all()
    assert [(texts[file], line) for file, line in document.places] == [("main.c", 3), ("/x/app.py", 7)]
    assert [kind for _, _, kind in document.frames] == [USER, INTERPRETED]


def test_a_difference_has_the_stacks_of_both() -> None:
    one, other = stack("f"), stack("g")
    before, after = map_data("@", U, COUNT, {one: 5}), map_data("@", U, COUNT, {one: 2, other: 7})
    document, part = part_of(after, before)
    assert [path for _, path, _ in paths(document, part)] == [["f"], ["g"]]
    assert (part.values, part.before) == ([[2, 7]], [[5, 0]])


def test_labels_that_are_the_same_in_all_keys_are_no_frames() -> None:
    key = types.Tuple((STRING, STRING, U))
    document, part = part_of(map_data("@", key, COUNT, {("by", name, stack("f")): 1 for name in ("a", "b")}))
    assert [labels for labels, _, _ in paths(document, part)] == [["a"], ["b"]]
    assert part.note == "In all keys: key1 = by."
    document, part = part_of(map_data("@", key, COUNT, {("by", "a", stack("f")): 1}))
    assert [labels for labels, _, _ in paths(document, part)] == [["by", "a"]]


def test_averages_have_two_measures() -> None:
    _, part = part_of(map_data("@lat_us", U, types.Avg(), {stack("f"): (100, 4)}))
    assert part.measures == [("count", "count"), ("total", "us")]
    assert part.values == [[4], [100]]


def test_maxima_are_no_sums() -> None:
    _, part = part_of(map_data("@", U, types.Max(), {stack("f"): 4}))
    assert "mean nothing" in part.note


def test_stacks_of_two_tasks_meet_in_the_middle() -> None:
    key = types.Tuple((K, U, K))
    entry = (stack("schedule", "sys_read", user=False), stack("wait", "main"), stack("wake_up", "softirq", user=False))
    document, part = part_of(map_data("@", key, COUNT, {entry: 9}))
    assert paths(document, part) == [([], ["main", "wait", "sys_read", "schedule", "--", "wake_up", "softirq"], [9])]
    assert [kind for _, _, kind in document.frames] == [USER, USER, KERNEL, KERNEL, MARK, KERNEL, KERNEL]


def test_a_difference_is_not_by_what_both_never_have_in_common() -> None:
    key = types.Tuple((types.UINT32, STRING, U))
    before = map_data("@", key, COUNT, {(7, "sh", stack("f", "main")): 4, (8, "ls", stack("g", "main")): 1})
    after = map_data("@", key, COUNT, {(9, "sh", stack("f", "main")): 6, (10, "cat", stack("g", "main")): 1})
    document, part = part_of(after, before)
    texts = document.texts.all()
    assert [texts[label] for label in part.labels] == ["key2"]
    assert sorted(texts[group[0]] for group in part.groups) == ["cat", "ls", "sh"], "each once"
    assert "Left out, as before and after have no key1 in common." in part.note
    found = {(tuple(labels), tuple(path)) for labels, path, _ in paths(document, part)}
    assert (("sh",), ("main", "f")) in found
    # Of one snapshot alone the processes are told apart.
    _, alone = part_of(after)
    assert len(alone.labels) == 2
