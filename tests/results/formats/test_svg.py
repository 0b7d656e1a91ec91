"""Pictures: flame graphs and histograms."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from pytrace.core import types
from pytrace.results.formats.svg import MOST_TITLE, Drawing, fitted
from pytrace.results.snapshot import Frame, StackTrace
from tests.support.pictures import Box, boxes, picture, texts
from tests.support.snapshots import COUNT, STRING, TWO_TASKS, map_data, stack, two_tasks

# ---------------------------------------------------------------------------------------------- drawing
# .


HOSTILE = "</text><script>alert(1)</script>&\"'\x1b[31m\x00\udcff\uffff]]>"


def test_a_picture_needs_no_script_and_names_stay_text() -> None:
    drawing = Drawing()
    drawing.line(HOSTILE)
    drawing.box(1, 2, 3, 4, "#fff", HOSTILE)
    picture = drawing.element().encode()
    escaped = "</text><script>alert(1)</script>&\"'\\x1b[31m\\x00\\xff\ufffd]]>"
    assert texts(picture) == [escaped]
    assert [box.title for box in boxes(picture)] == [escaped]
    assert b"<script" not in picture


def test_long_titles_are_truncated() -> None:
    drawing = Drawing()
    drawing.box(0, 0, 1, 1, "#fff", "x" * 10_000)
    assert [len(box.title) for box in boxes(drawing.element().encode())] == [MOST_TITLE]


@pytest.mark.parametrize(("width", "expected"), [(100.0, "function"), (45.0, "funct…"), (15.0, "")])
def test_text_is_fitted(width: float, expected: str) -> None:
    assert fitted("function", width) == expected


# ---------------------------------------------------------------------------------------------- flame graph
# Flame graphs: what is drawn equals the map.


USTACK, KSTACK = types.Stack(True), types.Stack(False)
KEY = types.Tuple((STRING, KSTACK, USTACK))
STACKS = map_data("@", KEY, COUNT, {
    ("sh", stack("vfs", "entry", user=False), stack("leaf", "main")): 3,
    ("sh", stack(user=False), stack("leaf", "main")): 1,
    ("ls", stack(user=False), stack("é\udcff", "main")): 12,
})  # fmt: skip


def numbers(picture_: bytes) -> dict[str, int]:
    """Numbers by name, of all boxes together."""
    found: dict[str, int] = {}
    for box in boxes(picture_):
        match = re.match(r"(.*): (\d+)", box.title)
        if match is not None:
            found[match[1]] = found.get(match[1], 0) + int(match[2])
    return found


def test_a_flame_graph_has_the_numbers_of_the_map() -> None:
    found = picture(STACKS)
    assert numbers(found) == {"all": 16, "sh": 4, "ls": 12, "main": 16, "leaf": 4, "é\\xff": 12, "entry": 3, "vfs": 3}
    drawn = [box for box in boxes(found) if ":" in box.title]
    scale = 1180 / 16
    for box in drawn:
        number = int(re.match(r".*: (\d+)", box.title)[1])  # type: ignore[index]
        assert box.width == pytest.approx(number * scale, abs=0.5), box.title
    assert {"@: 16", "leaf", "entry", "user", "kernel", "other key"} <= set(texts(found))


def test_callees_lie_above_their_callers_and_below_them_in_an_icicle() -> None:
    for wanted, sign in (("svg", -1), ("svg:icicle", 1)):
        found = {box.title.split(":")[0]: box for box in boxes(picture(STACKS, wanted=wanted)) if ":" in box.title}
        path = [found[name] for name in ("all", "sh", "leaf", "entry", "vfs")]
        steps = [(after.y - before.y) * sign for before, after in pairwise(path)]
        assert all(step > 0 for step in steps)
        assert all(_within(after, before) for before, after in pairwise(path))


def _within(inner: Box, outer: Box) -> bool:
    return inner.x >= outer.x - 0.1 and inner.x + inner.width <= outer.x + outer.width + 0.1


def test_reversed_joins_what_is_innermost() -> None:
    data = map_data("@", USTACK, COUNT, {stack("malloc", "a", "main"): 2, stack("malloc", "b", "main"): 3})
    titles = [box.title for box in boxes(picture(data, wanted="svg:reversed"))]
    assert sum(title.startswith("malloc: 5") for title in titles) == 1


def test_the_tooltip_has_share_line_and_module() -> None:
    frames = (Frame("leaf", 4, "/bin/x", file="x.c", line=7, inlined=True), Frame("main", 4, "/bin/x"))
    found = boxes(picture(map_data("@", USTACK, COUNT, {StackTrace(frames, True): 4})))
    assert "leaf: 4, 100.00%\nx.c:7 (inlined)\n/bin/x" in [box.title for box in found]


def test_averages_are_two_graphs_with_unit() -> None:
    found = texts(picture(map_data("@lat_us", USTACK, types.Stats(), {stack("main"): (40, 4)})))
    assert {"@lat_us (count): 4", "@lat_us (total): 40 us"} <= set(found)


def test_modules_have_one_colour_each() -> None:
    frames = (Frame("a", module="/bin/x"), Frame("b", module="/lib/y"), Frame("c", module="/bin/x"))
    found = {
        box.title[0]: box.color.split(",")[0]
        for box in boxes(
            picture(map_data("@", USTACK, COUNT, {StackTrace(frames, True): 4}), wanted="svg:color=module")
        )
    }
    assert found["a"] == found["c"] != found["b"]


def test_boxes_that_nobody_can_see_are_not_drawn() -> None:
    entries = {stack(f"f{number}", "main"): 1 for number in range(50_000)}
    assert len(boxes(picture(map_data("@", USTACK, COUNT, entries)))) < 10


def test_stacks_of_two_tasks_meet_in_the_middle() -> None:
    found = picture(two_tasks())
    path = sorted((box for box in boxes(found) if ":" in box.title), key=lambda box: -box.y)
    assert ";".join(box.title.split(":")[0] for box in path) == f"all;{TWO_TASKS}"
    assert {"user", "kernel", "no function"} <= set(texts(found))


def test_what_an_interpreter_runs_has_a_colour() -> None:
    frames = StackTrace((Frame("f", file="/srv/app.py", line=3), Frame("main")))
    found = picture(map_data("@", USTACK, COUNT, {frames: 1}))
    assert {"user", "interpreter"} <= set(texts(found))


# ---------------------------------------------------------------------------------------------- histogram chart
# Bars and heat maps: what is drawn equals the map.


HIST = types.Hist(0)


def test_a_histogram_has_a_bar_for_each_bucket_as_high_as_its_count() -> None:
    found = picture(map_data("@ns", None, HIST, {None: {3: 10, 4: 40, 6: 20}}))
    drawn = boxes(found)
    assert [(box.title.split(": ")[1].split()[0], round(box.height)) for box in drawn] == [
        ("10", 38), ("40", 150), ("0", 0), ("20", 75),
    ]  # fmt: skip
    assert "@ns (ns): 70" in texts(found)
    assert any(text.startswith("dashed: p50") for text in texts(found))


def test_titles_have_key_unit_and_mark() -> None:
    data = map_data("@usecs", types.INT64, HIST, {5: {3: 10}})
    data.mark = "estimate"
    assert "estimate @usecs[5] (us): 10" in texts(picture(data))


def test_many_keys_are_a_heat_map_in_the_order_of_their_numbers() -> None:
    data = map_data("@", types.INT64, HIST, {key: {3: key + 1, 5: 1} for key in range(30)})
    found = [box for box in boxes(picture(data)) if " of " in box.title]
    assert len(found) == 60
    columns = {box.title.split(",")[0]: box.x for box in found}
    assert list(columns) == sorted(columns, key=int)
    assert sorted(columns.values()) == [columns[str(key)] for key in range(30)]
    assert {box.title for box in found} >= {"29, [2, 4): 30 of 31 (96.77%)"}
    bars = boxes(picture(data, wanted="svg:bars"))
    assert len([box for box in bars if " of " in box.title]) == 0
