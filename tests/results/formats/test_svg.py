"""Pictures: flame graphs and histograms."""

from __future__ import annotations

import re
from io import BytesIO
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from pytrace.core import types
from pytrace.results.formats import table as formats
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.svg import MOST_TITLE, Drawing, fitted
from pytrace.results.snapshot import Frame, StackTrace
from tests.support.pictures import SVG, Box, boxes, picture, texts
from tests.support.snapshots import COUNT, SECOND, STRING, TWO_TASKS, map_data, snapshot, stack, table, two_tasks

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
    assert {
        "@: 16 events, most in:",
        "   75.0 %         12  é\\xff",
        "leaf",
        "entry",
        "user",
        "kernel",
        "other key",
    } <= set(texts(found))


def test_callees_lie_below_their_callers_and_above_them_in_a_flame() -> None:
    for wanted, sign in (("svg", 1), ("svg:flame", -1)):
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
    assert "leaf: 4 events, 100.00%\nx.c:7 (inlined)\n/bin/x" in [box.title for box in found]


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
    path = sorted((box for box in boxes(found) if ":" in box.title), key=lambda box: box.y)
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
    assert "@ns: 70 values: p50 <= 7 ns, p90 <= 31 ns, p99 <= 31 ns, largest <= 31 ns" in texts(found)
    assert "in ns; dashed: p50 [4, 8), p90 and p99 [16, 32)" in texts(found)


def test_titles_have_key_unit_and_mark() -> None:
    data = map_data("@usecs", types.INT64, HIST, {5: {3: 10}})
    data.mark = "estimate"
    title = "estimate @usecs[5]: 10 values: p50 <= 3 us, p90 <= 3 us, p99 <= 3 us, largest <= 3 us"
    assert title in texts(picture(data))


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


# ---------------------------------------------------------------------------------------------- shape and other content
# .


def test_deep_stacks_are_folded_and_truncated_to_the_shape_of_the_picture() -> None:
    deep = stack(*(f"import_{at}" for at in range(120)), "main")
    found = picture(map_data("@", USTACK, COUNT, {deep: 2, stack("hot", "main"): 98}))
    height = int(re.search(rb'height="(\d+)"', found)[1])  # type: ignore[index]
    assert height < 800
    assert any(box.title.startswith("⋯ 119 calls: import_119 … import_1: 2 events") for box in boxes(found))
    folded, user = (box for box in boxes(found) if box.title in ("calls of one another", "user"))
    assert user.x > folded.x + len(folded.title) * 7, "labels of the legend do not lie on each other"
    zigzag = {StackTrace(tuple(Frame(f"f{at}", module="x.py" if at % 2 else "/bin/x") for at in range(120, 0, -1))): 1}
    found = picture(map_data("@", USTACK, COUNT, zigzag))
    assert "… only the 35 outermost frames are drawn" in texts(found)
    assert int(re.search(rb'height="(\d+)"', found)[1]) < 800  # type: ignore[index]


def test_a_function_that_calls_itself_is_one_frame() -> None:
    deep = {stack("leaf", *["visit"] * depth, "main"): 1 for depth in (1, 7, 90)}
    found = picture(map_data("@", USTACK, COUNT, deep))
    assert numbers(found) == {"all": 3, "main": 3, "visit": 3, "leaf": 3}
    turned = picture(map_data("@", USTACK, COUNT, {stack("f", "f", "g", "f"): 2}), wanted="svg:reversed")
    assert numbers(turned) == {"all": 2, "f": 4, "g": 2}


def test_an_empty_key_has_a_name() -> None:
    key = types.Tuple((STRING, USTACK))
    found = picture(map_data("@", key, COUNT, {("", stack("f")): 1, ("a", stack("f")): 2}))
    assert numbers(found) == {"all": 3, "(none)": 1, "a": 2, "f": 3}


def test_keys_that_are_the_same_everywhere_are_no_frames() -> None:
    key = types.Tuple((STRING, types.UINT32, USTACK))
    data = map_data("@", key, COUNT, {("app", 7, stack("f", "main")): 1, ("app", 9, stack("f", "main")): 1})
    found = picture(data)
    assert {box.title.split(":")[0] for box in boxes(found) if ":" in box.title} == {"all", "7", "9", "main", "f"}
    assert "all of key1 app" in texts(found)


def test_numbers_rows_and_time_series_have_pictures() -> None:
    rows = [("read", 5_516_480), ("openat", 12)]
    series = types.TSeries(SECOND, 20, "sum", True)
    made = snapshot(
        map_data("@calls", None, COUNT, {None: 5932}), map_data("@by", STRING, COUNT, {"a": 1, "b": 3}),
        map_data("@sent_bytes", STRING, series, {f"k{at}": {5: (at, 1), 6: (2048 * at, 1)} for at in range(12)}),
        tables=(table(("call", "lat_us"), (STRING, types.UINT64), rows),),
    )  # fmt: skip
    file = BytesIO()
    formats.named("svg").write(made, WriteOptions(), file)
    found = texts(file.getvalue())
    assert {"@calls 5932", "key  @by", "b      3", "CALL       LAT", "read    5.52 s", "openat   12 us"} <= set(found)
    assert found.index("b      3") < found.index("a      1"), "the largest first"
    assert "@sent_bytes: sum of each 1 s, highest 22.5 kB at 1970-01-01 00:00:06.000 UTC" in found
    assert "8 of 12 shown, those with most" in found
    assert file.getvalue().count(b"<polyline") == 8
    bars = [box for box in boxes(file.getvalue()) if box.title.startswith(("read", "openat"))]
    assert bars[0].width > 100 * bars[1].width, "rows that are ranked have bars"


def test_labels_of_axes_end_within_the_picture() -> None:
    data = map_data("@us", None, types.LHist(0, 1_000_000, 20_000), {None: dict.fromkeys(range(1, 51), 1)})
    root = ElementTree.fromstring(picture(data))
    for text in root.iter(f"{SVG}text"):
        end = float(text.attrib["x"]) + (0 if text.get("text-anchor") == "end" else len(text.text or "") * 7.3)
        assert end <= 1190, text.text
