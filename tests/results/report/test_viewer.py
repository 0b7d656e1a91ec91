"""Reports in a browser: what is on the page is compared with the snapshot."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.remote.answer import Answer
from pytrace.results import findings
from pytrace.results.formats import about, tabular, text_and_json
from pytrace.results.formats import table as formats
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from tests.support.browser import frames, opened
from tests.support.snapshots import (
    COUNT,
    SECOND,
    STRING,
    TWO_TASKS,
    map_data,
    run,
    snapshot,
    stack,
    table,
    two_tasks,
)
from tests.support.waiting import until

pytestmark = pytest.mark.needs("chromium")

K, U = types.Stack(False), types.Stack(True)
KEY = types.Tuple((STRING, K, U))
NONE = stack(user=False)
STACKS = {
    ("nginx", stack("sys_read", "entry", user=False), stack("parse", "serve", "main")): 30,
    ("nginx", NONE, stack("serve", "main")): 10,
    ("bash", NONE, stack("eval", "main")): 60,
}


def written(folder: Path, made: SnapshotData) -> Path:
    file = BytesIO()
    formats.named("html").write(made, WriteOptions(), file)
    path = folder / "report.html"
    path.write_bytes(file.getvalue())
    return path


def kept(folder: Path, data: bytes) -> Path:
    path = folder / "report.html"
    path.write_bytes(data)
    return path


def by_name(page: Any, number: int = 0) -> dict[str, dict[str, Any]]:
    return {frame["name"]: frame for frame in frames(page, number)}


def show(page: Any, **values: int) -> None:
    """Wait until frames of these names have these values: what is clicked is drawn a moment later."""
    until(lambda: {name: by_name(page).get(name, {}).get("value") for name in values} == values)


def come_true(page: Any, expression: str) -> None:
    """Wait for a condition. Chromium asks again within the page, where its policy forbids to evaluate texts."""
    until(lambda: page.evaluate(expression))


def text_of(page: Any, selector: str) -> str:
    found: str = page.inner_text(selector)
    return found


def hover(page: Any, frame: dict[str, Any]) -> str:
    box = page.locator("div.flame canvas").first.bounding_box()
    page.mouse.move(box["x"] + frame["x"] + frame["width"] / 2, box["y"] + frame["y"] + 9)
    return text_of(page, ".tip")


def click(page: Any, frame: dict[str, Any]) -> None:
    hover(page, frame)
    page.mouse.down()
    page.mouse.up()


def test_flame_graph(tmp_path: Path) -> None:
    with opened(written(tmp_path, snapshot(map_data("@", KEY, COUNT, STACKS)))) as page:
        drawn = frames(page)
        whole = drawn[0]["width"]
        assert {one["name"]: one["value"] for one in drawn if one["depth"] < 2} == {"all": 100, "bash": 60, "nginx": 40}
        for one in drawn:
            assert one["width"] == pytest.approx(whole * one["value"] / 100)
        found = by_name(page)
        assert found["serve"]["value"] == 40
        assert found["serve"]["self"] == 10
        assert found["sys_read"]["y"] > found["entry"]["y"] > found["all"]["y"]
        tip = hover(page, found["parse"])
        assert "30 events, 30.00 % of all" in tip
        assert "/bin/program" in tip

        page.fill("div.flame input[type=search]", "serve")
        assert text_of(page, ".matches") == "1 frame: 40 events, 40.00 %"
        page.fill("div.flame input[type=search]", "/^(entry|parse)$/")
        assert text_of(page, ".matches") == "2 frames: 30 events, 30.00 %"

        click(page, found["nginx"])
        zoomed = by_name(page)
        assert zoomed["nginx"]["width"] == pytest.approx(whole)
        assert "bash" not in zoomed
        page.get_by_text("Show all").click()
        assert "bash" in by_name(page)


def test_flame_graph_turned_and_narrowed(tmp_path: Path) -> None:
    with opened(written(tmp_path, snapshot(map_data("@", KEY, COUNT, STACKS)))) as page:
        assert by_name(page)["all"]["y"] == 0
        page.get_by_label("drawn with").select_option("callers below")
        found = by_name(page)
        assert found["main"]["y"] < found["all"]["y"]
        page.get_by_label("split by").select_option("nothing")
        assert by_name(page)["main"]["value"] == 100
        page.get_by_role("group", name="key1").get_by_text("nginx 40 %").click()
        assert by_name(page)["main"]["value"] == 40
        page.get_by_label("drawn with").select_option("innermost first")
        found = frames(page)
        assert {one["name"]: one["value"] for one in found if one["depth"] == 1} == {"sys_read": 30, "serve": 10}
        before = by_name(page)["sys_read"]["colour"]
        page.get_by_label("colours").select_option("module")
        assert by_name(page)["sys_read"]["colour"] != before
        page.get_by_text("All functions").click()
        assert "serve" in text_of(page, "div.flame details table")


PYTHON = StackTrace((
    Frame("handler", 1, "", "", "/srv/app.py", 7), Frame("loop", 1, "", "", "/srv/app.py", 20),
    Frame("eval", 1, "/usr/bin/python3", "", "ceval.c", 3),
))  # fmt: skip


def test_source_lines_and_the_kinds_of_functions(tmp_path: Path) -> None:
    key = types.Tuple((K, U))
    entry = {(stack("sys_read", user=False), PYTHON): 3, (NONE, PYTHON._replace(frames=PYTHON.frames[1:])): 1}
    with opened(written(tmp_path, snapshot(map_data("@", key, COUNT, entry), two_tasks("@tasks")))) as page:
        found = by_name(page)
        assert "/srv/app.py:7" in hover(page, found["handler"])
        assert "/srv/app.py:20" in hover(page, found["loop"])
        hues = {name: int(re.findall(r"\d+", one["colour"])[0]) for name, one in found.items() if name != "all"}
        assert 140 <= hues["handler"] <= 152
        assert 36 <= hues["eval"] <= 48
        assert 4 <= hues["sys_read"] <= 16
        assert text_of(page, ".legend").split() == ["user", "kernel", "interpreter"]
        below = [one["name"] for one in sorted(frames(page, 1), key=lambda one: one["depth"])]
        assert below == ["all", *TWO_TASKS.split(";")], "who waits and who wakes meet in the middle"


def test_flame_graph_by_keys(tmp_path: Path) -> None:
    with opened(written(tmp_path, snapshot(map_data("@", KEY, COUNT, STACKS)))) as page:
        page.focus("div.flame canvas")
        for key in ("ArrowDown", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        assert text_of(page, ".status").startswith("main · 60 events, 60.00 % of all")
        assert {one["name"] for one in frames(page)} == {"all", "bash", "main", "eval"}
        page.keyboard.press("Escape")
        assert "nginx" in by_name(page)


def test_keys_that_have_next_to_nothing_are_in_a_list(tmp_path: Path) -> None:
    key = types.Tuple((STRING, U))
    entries = {("a", stack("f")): 600, ("", stack("f")): 399, **{(f"rare{at}", stack("f")): 1 for at in range(3)}}
    with opened(written(tmp_path, snapshot(map_data("@", key, COUNT, entries)))) as page:
        group = page.get_by_role("group", name="key1")
        assert group.get_by_role("button").all_text_contents() == ["all", "a 60 %", "(none) 40 %"]
        group.get_by_role("combobox").select_option("rare1 0 %")
        assert by_name(page)["f"]["value"] == 1
        assert group.get_by_role("combobox").evaluate("it => it.selectedOptions[0].textContent") == "rare1 0 %"


def test_a_range_of_time_is_what_the_graph_shows(tmp_path: Path) -> None:
    key = types.Tuple((U, types.UINT64))
    early, late = stack("warm_up", "main"), stack("compute", "main")
    entries = {(early, 100 * at): 4 for at in range(5)} | {(late, 100 * at): 6 for at in range(5, 10)}
    taken = {100 * at: 4 if at < 5 else 6 + (at == 7) for at in range(10)}
    made = snapshot(
        msgspec.structs.replace(map_data("@s", key, COUNT, entries), key_names=("", "slice_ms")),
        msgspec.structs.replace(map_data("@n", types.UINT64, COUNT, taken), key_names=("slice_ms",)),
    )
    path = written(tmp_path, made)
    with opened(path) as page:
        assert by_name(page)["all"]["value"] == 50
        assert "Each column is 100 ms" in text_of(page, ".time-strip")
        strip = page.locator(".strip canvas").bounding_box()

        def drag(start: float, end: float) -> None:
            y = strip["y"] + 20
            page.mouse.move(strip["x"] + strip["width"] * start, y)
            page.mouse.down()
            page.mouse.move(strip["x"] + strip["width"] * end, y)
            page.mouse.up()

        drag(0.55, 0.95)
        found = by_name(page)
        assert found["compute"]["value"] == found["all"]["value"] == 30
        assert "warm_up" not in found
        assert text_of(page, ".time-strip output").startswith("500 ms to 1 s, ")
        assert text_of(page, ".time-strip output").endswith("30 events; 1 sample found no room (red)")
        assert "30 events, in the time that is chosen" in text_of(page, ".flame .headline")
        address = page.evaluate("location.hash")
        page.keyboard.press("Escape")
        page.focus(".strip canvas")
        page.keyboard.press("Escape")
        assert by_name(page)["all"]["value"] == 50
        for _ in range(2):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Shift+ArrowRight")
        assert by_name(page)["warm_up"]["value"] == 8
        page.get_by_role("button", name="Whole time").click()
        assert by_name(page)["all"]["value"] == 50
    assert "time=5-10" in address
    with opened(path, address) as page:
        assert by_name(page)["all"]["value"] == 30


def test_the_first_screen_answers(tmp_path: Path) -> None:
    deep = [f"step{number}" for number in range(30)]
    stacks = {
        stack("hot", "serve", *deep): 700, stack("warm", "serve", *deep): 200, stack("cold", "serve", *deep): 90,
        stack(*(f"import{number}" for number in range(100)), *deep): 10,
    }  # fmt: skip
    of = run("r", target="./shop --port 80", text="profile:hz:100 { @[ustack] = count(); }")
    for size in ((1400, 900), (800, 600)):
        with opened(written(tmp_path, snapshot(map_data("@", U, COUNT, stacks), of=of))) as page:
            page.set_viewport_size({"width": size[0], "height": size[1]})
            come_true(page, "document.querySelector('.canvas').clientHeight > 0")
            assert "./shop --port 80" in text_of(page, "h1")
            assert text_of(page, ".headline") == "10 s (1\u202f000 samples) on CPU"
            first = page.locator(".answer li").first
            assert text_of(page, ".answer li").split() == ["70", "%", "hot", "7", "s"]
            assert first.bounding_box()["y"] < size[1] * 0.6
            hot, box = by_name(page)["hot"], page.locator("div.flame canvas").bounding_box()
            assert hot["width"] > 40
            assert box["y"] + hot["y"] + 18 <= size[1], "seen without scrolling"


def test_long_runs_of_single_calls_are_one_row_until_a_click(tmp_path: Path) -> None:
    stacks = {stack(leaf, "serve", "d", "c", "b", "a", "main"): count for leaf, count in (("hot", 9), ("cold", 1))}
    with opened(written(tmp_path, snapshot(map_data("@", U, COUNT, stacks)))) as page:
        found = by_name(page)
        assert [one["name"] for one in frames(page) if one["folded"]] == ["a"]
        assert {"serve", "hot", "cold"} < set(found)
        assert "b" not in found
        click(page, found["a"])
        assert {"main", "a", "b", "c", "serve", "hot"} < set(by_name(page))


def test_calls_of_one_function_from_all_places(tmp_path: Path) -> None:
    stacks = {
        stack("copy", "send", "main"): 5, stack("copy", "read", "main"): 3,
        stack("fault", "copy", "read", "main"): 2, stack("copy", "copy", "main"): 1,
    }  # fmt: skip
    path = written(tmp_path, snapshot(map_data("@", U, COUNT, stacks)))
    with opened(path) as page:
        page.get_by_role("button", name=re.compile("copy")).first.click()
        found = by_name(page)
        assert found["copy"]["value"] == 11
        rows = {name: one["y"] for name, one in found.items()}
        assert 0 < rows["send"] < rows["copy"] < rows["fault"]
        values = sorted((one["name"], one["value"]) for one in frames(page))
        assert values == [("copy", 11), ("fault", 2), ("main", 1), ("main", 5), ("main", 5), ("read", 5), ("send", 5)]
        place = page.evaluate("location.hash")
    with opened(path, place) as page:
        assert by_name(page) == found, "whom the address is sent sees the same"
        page.get_by_text("Show all").click()
        assert "all" in by_name(page)


def test_calls_too_rare_to_be_drawn_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = {
        stack("copy", "send", "main"): 50, stack("copy", "read", "main"): 3, stack("send", "send", "main"): 2,
        stack("fault", "copy", "read", "main"): 2, stack("copy", "copy", "main"): 1, stack("idle"): 1,
    }  # fmt: skip
    rare = "[calls too rare to be drawn]"

    def listed(page: Any) -> list[str]:
        return [row for row in text_of(page, "div.flame details table").splitlines() if not row.startswith(rare)]

    tables = []
    for most in (100, 3):
        monkeypatch.setattr(findings, "MOST_CALLS", most)
        with opened(written(tmp_path, snapshot(map_data("@", U, COUNT, stacks)))) as page:
            assert by_name(page)["main"]["value"] == 58
            assert sum(one["value"] for one in frames(page) if one["name"] == rare) == (9 if most == 3 else 0)
            assert "copy\n54" in text_of(page, ".answer"), "the answer counts all"
            page.get_by_text("All functions").click()
            tables.append(listed(page))
            page.get_by_label("drawn with").select_option("innermost first")
            found = {one["name"]: one["value"] for one in frames(page) if one["depth"] == 1}
            assert found == {"copy": 54, "send": 2, "fault": 2, "idle": 1}
            tables.append(listed(page))
            page.get_by_role("button", name=re.compile("copy")).first.click()
            said = "copy: 56 events" if most == 100 else "copy: 54 events, and 2 events in calls too rare"
            assert text_of(page, ".headline").startswith(said)
    assert tables[0] == tables[1] == tables[2] == tables[3]


def test_enter_goes_through_what_was_found(tmp_path: Path) -> None:
    with opened(written(tmp_path, snapshot(map_data("@", KEY, COUNT, STACKS)))) as page:
        page.fill("div.flame input[type=search]", "main")
        for place, status in (("1 of 2", "main · 60"), ("2 of 2", "main · 40"), ("1 of 2", "main · 60")):
            page.keyboard.press("Enter")
            assert text_of(page, ".matches").startswith(place)
            assert text_of(page, ".status").startswith(status)


def test_a_difference_leads_with_what_changed(tmp_path: Path) -> None:
    assert HTML.differential is not None
    before, after = (
        snapshot(
            map_data(
                "@",
                U,
                COUNT,
                {
                    StackTrace(
                        tuple(Frame(name, 1, f"{folder}/app-{version}/server.so") for name in (leaf, "main"))
                    ): count
                    for leaf, count in counts.items()
                },
            ),
            of=run(folder, target="server", text="profile:hz:100 { @[ustack] = count(); }"),
        )
        for folder, version, counts in (("/old", "1.2", {"a": 30, "b": 60}), ("/new", "1.10", {"a": 80, "b": 40}))
    )
    with opened(kept(tmp_path, HTML.differential(before, after, WriteOptions()))) as page:
        found = by_name(page)
        assert {name: (one["before"], one["value"]) for name, one in found.items()} == {
            "all": (90, 120), "main": (90, 120), "a": (30, 80), "b": (60, 40),
        }  # fmt: skip
        assert text_of(page, ".headline") == "900 ms (90 samples) before, 1.2 s (120 samples) after: +300 ms (+33.33 %)"
        answer = text_of(page, ".answer").split("\n")
        assert answer[answer.index("a") + 1] == "+500 ms"
        assert answer[answer.index("b") + 1] == "−200 ms"
        assert "Shrank most (in % of all after)" in answer, "the base of shares"
        first = page.locator(".answer button").first.get_attribute("title") or ""
        assert "300 ms (30 samples) before, 800 ms (80 samples) after" in first
        page.get_by_text("All functions").click()
        assert {"30", "80", "50"} <= set(text_of(page, "div.flame details table").split())


def test_waits_are_of_the_functions_that_waited(tmp_path: Path) -> None:
    key = types.Tuple((K, U))
    switch = stack("schedule", "do_wait", user=False)
    entries = {(switch, stack("read", "main")): 3_000_000, (switch, stack("poll", "main")): 1_000_000}
    of = run("r", script="offcputime", target="1 (server)")
    with opened(written(tmp_path, snapshot(map_data("@usecs", key, types.Sum(), entries), of=of))) as page:
        assert text_of(page, "h1") == "Where 1 (server) waited"
        assert text_of(page, ".headline") == "4 s waited"
        assert text_of(page, ".answer li").split() == ["75", "%", "read", "3", "s"]


def test_several_maps_side_by_side(tmp_path: Path) -> None:
    maps = [map_data(name, KEY, COUNT, STACKS) for name in ("@a", "@b")]
    with opened(written(tmp_path, snapshot(*maps))) as page:
        page.get_by_text("side by side").click()
        one, other = (page.locator("section.flame").nth(at).bounding_box() for at in range(2))
        assert one["y"] == other["y"]
        assert one["x"] + one["width"] < other["x"]


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a\"'`\\",
    "\x00\x07\x1b[31m",
    "long" * 2500,
]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    made = snapshot(
        map_data(
            "@", types.Tuple((types.String(20000), U)), COUNT, {(name, stack(name, "main")): 7 for name in HOSTILE}
        ),
        map_data("@n", types.String(20000), COUNT, dict.fromkeys(HOSTILE, 7)),
        map_data("@h", types.String(20000), types.Hist(0), {name: {3: 1} for name in HOSTILE}),
        map_data(
            "@t", types.String(20000), types.TSeries(SECOND, 10, "sum", True), {name: {5: (3, 1)} for name in HOSTILE}
        ),
    )
    with opened(written(tmp_path, made)) as page:
        shown = [*HOSTILE[:3], "\\x00\\x07\\x1b[31m", HOSTILE[4]]
        assert {one["name"] for one in frames(page)} == {"all", "main", *shown}
        for one in frames(page):
            assert hover(page, one).startswith(one["name"][:100].strip())
        cells = page.locator("#part-2 td:first-child").all_text_contents()
        assert set(cells) >= set(shown)
        assert page.locator("img").count() == 0


def test_numbers_beyond_a_double_are_exact(tmp_path: Path) -> None:
    large = (1 << 60) + 1
    made = snapshot(
        map_data("@", U, COUNT, {stack("f", "main"): large, stack("g", "main"): 2}),
        map_data("@n", None, COUNT, {None: large}),
    )
    with opened(written(tmp_path, made)) as page:
        assert str(large + 2) in hover(page, by_name(page)["main"])
        assert text_of(page, "#part-1 td") == str(large)


def test_tables_sort_filter_and_export(tmp_path: Path) -> None:
    made = snapshot(map_data("@n", STRING, COUNT, {"b": 5, "=1+1": 30, 'a,"x': 20}))
    with opened(written(tmp_path, made)) as page:

        def column() -> list[str]:
            found: list[str] = page.locator("section td:first-child").all_text_contents()
            return found

        assert column() == ["=1+1", 'a,"x', "b"]
        page.get_by_role("button", name="@n").click()
        assert column() == ["b", 'a,"x', "=1+1"]
        page.get_by_role("button", name="key").click()
        assert column() == ["=1+1", 'a,"x', "b"]
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        assert Path(download.value.path()).read_bytes().decode() == 'key,@n\r\n\'=1+1,30\r\n"a,""x",20\r\nb,5\r\n'
        page.fill("section input[type=search]", "b")
        assert column() == ["b"]


def test_tuples_and_records_are_columns_and_csv_is_that_of_the_format(tmp_path: Path) -> None:
    record = types.Record(("pid", "where"), (types.INT64, types.Tuple((types.INT32, STRING))))
    made = snapshot(
        map_data("@r", record, types.Stats(), {(1, (-3, "größe 中文 🦀 عربى")): (10, 4), (2, (4, '"a,b"')): (-5, 2)}),
    )  # fmt: skip
    made.maps["@r"].mark = "estimate"
    made.losses = {"lost events": {"k:f": 3}}
    with opened(written(tmp_path, made)) as page:
        assert text_of(page, "section h2") == "estimate @r"
        assert page.locator("th").all_text_contents() == [
            "pid", "where.0", "where.1", "estimate @r.count", "estimate @r.average", "estimate @r.total",
        ]  # fmt: skip
        assert page.locator("tbody tr:not(.space)").first.locator("td").all_text_contents() == [
            "1", "-3", "größe 中文 🦀 عربى", "4", "2", "10",
        ]  # fmt: skip
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        file = BytesIO()
        tabular.write_csv(made, WriteOptions(), file)
        saved = Path(download.value.path()).read_bytes().splitlines()
        assert (saved[0], sorted(saved)) == (file.getvalue().splitlines()[0], sorted(file.getvalue().splitlines()))
        assert text_of(page, ".losses") == next(iter(about.losses(made)))


def test_spans_are_enlarged_and_say_what_they_are(tmp_path: Path) -> None:
    names = ("start", "took_ns", "pid", "tid", "comm", "name", "arguments")
    kinds = (types.UINT64, types.UINT64, types.INT32, types.INT32, STRING, STRING, STRING)
    rows = [
        (SECOND, 4_000_000, 7, 7, "sh", "outer", "x=1"), (SECOND + 1_000_000, 1_000_000, 7, 7, "sh", "inner", "x=<2>"),
        (SECOND + 3_000_000, 900_000, 7, 9, "worker", "read", ""),
    ]  # fmt: skip
    with opened(written(tmp_path, snapshot(tables=(table(names, kinds, rows),)))) as page:
        assert text_of(page, "nav").split() == ["timeline", "rows"]
        assert text_of(page, ".spans-answer").startswith("3 spans of 2 threads in 4 ms; the longest is outer, 4 ms")
        box = page.locator("section.spans canvas").bounding_box()
        inner = (box["x"] + box["width"] * 0.375, box["y"] + 20 + 18 + 18 + 9)
        page.mouse.move(*inner)
        assert text_of(page, "section.spans .status").startswith("inner 1 ms, at 1 ms (")
        assert "sh 7\narguments: x=<2>" in text_of(page, "section.spans .status")
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20 + 18 + 2 * 18 + 8 + 18 + 9)
        assert "worker 9 of 7" in text_of(page, "section.spans .status")
        whole = page.get_by_role("button", name="Whole time")
        assert whole.is_disabled()
        page.mouse.move(*inner)
        page.mouse.down()
        page.mouse.up()
        assert whole.is_enabled()
        # It takes most of the width now, so its left end is near the canvas's.
        page.mouse.move(box["x"] + box["width"] * 0.12, inner[1])
        assert text_of(page, "section.spans .status").startswith("inner")
        page.locator("section.spans canvas").press("Escape")
        assert whole.is_disabled()
        page.mouse.move(box["x"] + box["width"] * 0.2, inner[1])
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, inner[1])
        page.mouse.up()
        assert whole.is_enabled()


def test_times_and_sizes_of_rows_are_for_people_and_exact_on_hover(tmp_path: Path) -> None:
    rows = [("read", 5_516_480, 4096), ("openat", 12, 300)]
    made = snapshot(tables=(table(("call", "lat_us", '"SIZE(bytes)"'), (STRING, types.UINT64, types.UINT64), rows),))
    with opened(written(tmp_path, made)) as page:
        assert page.locator("th").all_text_contents() == ["CALL", "LAT", "SIZE"]
        cells = page.locator("tbody tr:not(.space) td")
        assert cells.all_text_contents() == ["read", "5.52 s", "4.1 kB", "openat", "12 µs", "300 bytes"]
        assert cells.nth(1).get_attribute("title") == "5516480 us"
        assert page.evaluate("document.querySelector('div.table').csv()").startswith(
            "call,lat_us,SIZE(bytes)\r\nread,5516480,4096"
        )
        assert page.evaluate("document.querySelector('.rows').offsetWidth") < 700, "as wide as what it says"
        assert cells.nth(2).evaluate("cell => cell.style.getPropertyValue('--share')") == "100%", "ranked by it"


def test_bars_are_of_amounts_and_not_of_names(tmp_path: Path) -> None:
    rows = [(9, 3, 70), (4, 3, 8), (1, 5, 2)]
    found = table(("pid", "io", "kbytes"), (types.UINT32, types.UINT32, types.UINT32), rows)
    with opened(written(tmp_path, snapshot(tables=(found,)))) as page:
        bars = "cells => cells.map(it => Boolean(it.style.getPropertyValue('--share')))"
        assert page.locator("tbody tr:not(.space)").first.locator("td").evaluate_all(bars) == [False, False, True]
    names = table(("pid", "comm"), (types.UINT32, STRING), [(9, "a"), (4, "b")])
    with opened(written(tmp_path, snapshot(tables=(names,)))) as page:
        assert page.locator("td[style*=share]").count() == 0


def test_comments_of_maps_are_headings_where_there_are_several(tmp_path: Path) -> None:
    sizes = replace(map_data("@size_bytes", None, types.Hist(0), {None: {3: 2}}), help="Sizes of the requests")
    other = map_data("@other", None, types.Hist(0), {None: {3: 1}})
    with opened(written(tmp_path, snapshot(sizes, other))) as page:
        assert page.locator("section h2").all_text_contents() == ["@other", "Sizes of the requests@size_bytes"]
    with opened(written(tmp_path, snapshot(other, of=run(script="biolatency")))) as page:
        assert page.locator("section h2").count() == 0, "the title has the tool's question"


def test_long_tables_show_what_is_scrolled_to(tmp_path: Path) -> None:
    rows = [(at, f"name{at}") for at in range(20_000)]
    with opened(written(tmp_path, snapshot(tables=(table(("n", "name"), (types.INT32, STRING), rows),)))) as page:
        assert page.locator("tbody tr").count() < 100
        page.evaluate("document.querySelector('.rows').scrollTop = 24 * 15000")
        come_true(page, "document.querySelector('tbody').textContent.includes('name15005')")


def test_histograms(tmp_path: Path) -> None:
    made = snapshot(map_data("@us", STRING, types.Hist(0), {"a": {3: 10, 5: 30, 8: 2}, "b": {2: 1}}))
    with opened(written(tmp_path, made)) as page:

        def bars() -> list[list[str]]:
            rows = page.locator("table.histogram tbody tr")
            return [rows.nth(at).locator("th, td").all_text_contents() for at in range(rows.count())]

        labels, counts = zip(*[(row[0], row[1]) for row in bars()], strict=True)
        file = BytesIO()
        text_and_json.write_text(made, WriteOptions(), file)
        lines = file.getvalue().decode().partition("@us[a]:")[2].strip().splitlines()
        assert [(line.split("|")[0].split(")")[0] + ")", line.split("|")[0].split()[-1]) for line in lines] == list(
            zip(labels, counts, strict=True)
        )
        marks = {row[0]: row[-1] for row in bars()}
        assert marks["[8, 16)"] == "p50p90"
        assert marks["[64, 128)"] == "p99p99.9"
        widths = page.locator(".bar").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
        assert widths[0] == pytest.approx(widths[2] / 3, rel=0.01)
        page.get_by_role("cell", name="b", exact=True).click()
        assert [row[0] for row in bars()] == ["[1]"]
        keys = page.locator(".rows tbody td:first-child")
        page.get_by_role("button", name="key").click()
        page.get_by_role("button", name="key").click()
        assert keys.all_text_contents() == ["b", "a"]
        page.fill("section input[type=search]", "a")
        assert keys.all_text_contents() == ["a"]
        page.locator(".rows tbody tr[tabindex]").focus()
        page.keyboard.press("Enter")
        assert len(bars()) == 6, "a key is chosen by the keyboard, too"


def by_host(*hosts: SnapshotData) -> SnapshotData:
    """The answer of many hosts, by host."""
    answer = Answer(str)
    for number, host in enumerate(hosts, 1):
        answer.add(f"web{number}", host)
    return answer.result()


def test_the_answer_of_a_histogram_is_above_it(tmp_path: Path) -> None:
    data = map_data("@lat_us", None, types.Hist(0), {None: {8: 90, 12: 9, 20: 1}})
    with opened(written(tmp_path, snapshot(data))) as page:
        assert re.fullmatch(
            r"100 values: p50 ≤ \S+ (µs|ms), p90 ≤ \S+ (µs|ms), p99 ≤ \S+ ms, largest ≤ \S+ (ms|s)",
            text_of(page, ".headline"),
        )


def test_single_numbers_are_one_list(tmp_path: Path) -> None:
    maps = [
        map_data("@calls", None, COUNT, {None: 5932}), map_data("@us", None, types.Sum(), {None: 5_516_480}),
        map_data("@by", STRING, COUNT, {"a": 1}),
    ]  # fmt: skip
    with opened(written(tmp_path, snapshot(*maps))) as page:
        assert text_of(page, ".figures").split("\n") == ["@calls", "5\u202f932", "@us", "5.52 s"]
        assert page.locator(".figures dd").last.get_attribute("title") == "5516480 us"
        assert page.locator("section.table").count() == 1


def test_headings_are_those_of_the_script_and_csv_is_that_of_the_format(tmp_path: Path) -> None:
    key = types.Tuple((STRING, types.UINT64))
    data = map_data("@", key, COUNT, {("/etc/passwd", 7): 1})
    data = msgspec.structs.replace(data, key_names=("filename", "pid"))
    with opened(written(tmp_path, snapshot(data))) as page:
        assert text_of(page, "thead").split()[:2] == ["filename", "PID"]
        assert page.evaluate("document.querySelector('div.table').csv()").startswith("filename,pid,@")


def test_hosts_by_buckets(tmp_path: Path) -> None:
    """Of twelve hosts one is slow: its column has its values elsewhere, though it counted least."""
    key = types.Tuple((STRING, STRING))
    usual, slow = {("sda", "R"): {5: 900, 6: 100}, ("sdb", "R"): {6: 50}}, {("sda", "R"): {9: 40, 5: 10}}
    hosts = [
        snapshot(
            map_data("@lat_us", key, types.Hist(0), slow if number == 7 else usual),
            map_data("@one", None, types.Hist(0), {None: {3: number}}), of=run(f"run-{number}"),
        )
        for number in range(1, 13)
    ]  # fmt: skip
    hosts[6].maps["@lat_us"].mark, hosts[6].losses = "estimate", {"lost": {"t:x:y": 3}}
    with opened(written(tmp_path, by_host(*hosts))) as page:
        columns = "document.querySelectorAll('div.keyheat')[{}].columns()"
        drawn = page.evaluate(columns.format(0))
        assert [one["name"] for one in drawn] == [f"web{number}" for number in range(1, 13)], "by number"
        assert drawn[0]["counts"] == [900, 150, 0, 0, 0], "the keys of a host are added up"
        darkest = [max(range(5), key=lambda bucket: one["depths"][bucket]) for one in drawn]
        assert darkest == [0] * 6 + [4] + [0] * 5, "the outlier's darkest cell is in another row"
        heat = page.locator("div.keyheat").first
        place = {"x": drawn[6]["x"], "y": 8}
        heat.locator("canvas").hover(position=place)
        assert heat.locator(".status").inner_text() == "web7, [128, 256) us: 40 of 50 values, 80.00 %"
        rows = page.locator("section").first.locator("table.histogram tbody tr")
        assert rows.first.locator("th, td").all_text_contents()[:2] == ["[8, 16)", "9910"], "merged at first"
        heat.locator("canvas").click(position=place)
        assert rows.first.locator("th, td").all_text_contents()[:2] == ["[8, 16)", "10"]
        heat.get_by_role("button", name="Merged").click()
        assert rows.count() == 5
        heat.get_by_role("combobox", name="columns").select_option("each key")
        assert len(page.evaluate(columns.format(0))) == 23
        heat.get_by_role("combobox", name="columns").select_option("key2")
        assert [one["name"] for one in page.evaluate(columns.format(0))] == ["R"]
        assert page.evaluate(columns.format(1))[6]["counts"] == [7], "maps without keys have those of hosts"
        section = page.locator("section").first
        assert section.locator("h2").inner_text() == "estimate @lat_us"
        assert "Hits were left out on: web7." in section.inner_text()
        assert "3 events lost (web7: t:x:y)" in text_of(page, "header .losses")
        page.set_viewport_size({"width": 500, "height": 700})
        come_true(page, "document.querySelector('div.keyheat canvas').getBoundingClientRect().width < 500")


def test_flame_graphs_of_hosts(tmp_path: Path) -> None:
    hosts = [
        snapshot(map_data("@", KEY, COUNT, {key: at * count for key, count in STACKS.items()}), of=run(f"r{at}"))
        for at in (1, 2)
    ]
    with opened(written(tmp_path, by_host(*hosts))) as page:
        show(page, all=300, web1=100, web2=200)
        page.get_by_role("group", name="host").get_by_text("web2").click()
        show(page, all=200, web2=200)
        page.get_by_label("split by").select_option("key1")
        show(page, bash=120, nginx=80)
        page.get_by_role("group", name="host").get_by_text("web1").click()
        page.get_by_role("group", name="key1").get_by_text("bash").click()
        show(page, all=60)
        page.get_by_role("group", name="host").get_by_text("all").click()
        show(page, bash=180)


def test_time_series(tmp_path: Path) -> None:
    type_ = types.TSeries(SECOND, 10, "sum", True)
    made = snapshot(map_data("@t", STRING, type_, {"a": {5: (3, 1), 6: (9, 1)}, "b": {6: (1, 1)}}))
    with opened(written(tmp_path, made)) as page:
        assert page.evaluate("document.querySelector('div.lines').values()") == {
            "times": [5, 6],
            "series": [[3, 9], [None, 1]],
        }
        assert text_of(page, ".lines .headline").startswith("Sum of each 1 s, highest 9 at ")
    many = {f"k{at:02}": {5: (at + 1, 1)} for at in range(47)}
    with opened(written(tmp_path, snapshot(map_data("@t_bytes", STRING, type_, many)))) as page:
        assert text_of(page, ".lines .headline").endswith("(k46), 8 of 47 shown")
        assert [text.strip() for text in page.locator(".value").all_text_contents()] == [
            f"k{at}" for at in range(46, 38, -1)
        ]


def test_dark_and_printed(tmp_path: Path) -> None:
    with opened(written(tmp_path, snapshot(map_data("@", KEY, COUNT, STACKS))), color_scheme="dark") as page:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(24, 24, 27)"
        page.set_viewport_size({"width": 360, "height": 700})
        come_true(page, "document.querySelector('canvas').getBoundingClientRect().width < 360")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, "no text beside the window"
        page.emulate_media(media="print")
        assert not page.locator("div.flame .toolbar").is_visible()
        assert page.locator("div.flame canvas").is_visible()


def test_tab_reaches_all_that_acts_and_shows_where_it_is(tmp_path: Path) -> None:
    with opened(written(tmp_path, snapshot(map_data("@", KEY, COUNT, STACKS)))) as page:
        reached = []
        for _ in range(page.locator("button, select, input, canvas, summary").count()):
            page.keyboard.press("Tab")
            name, outline = page.evaluate(
                "[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
            )
            reached.append(name)
            assert name == "BODY" or outline == "solid", name
        assert {"BUTTON", "SELECT", "INPUT", "CANVAS", "SUMMARY"} <= set(reached)


HTML = formats.named("html")


def test_differential_flame_graph(tmp_path: Path) -> None:
    assert HTML.differential is not None
    before, after = (
        snapshot(map_data("@", U, COUNT, {stack(name, "main"): count for name, count in counts.items() if count}))
        for counts in ({"a": 30, "b": 60, "gone": 10, "same": 5}, {"a": 60, "b": 30, "new": 10, "same": 5})
    )
    with opened(kept(tmp_path, HTML.differential(before, after, WriteOptions()))) as page:
        found = by_name(page)
        assert {name: (one["before"], one["value"]) for name, one in found.items()} == {
            "all": (105, 105), "main": (105, 105), "a": (30, 60), "b": (60, 30), "new": (0, 10), "same": (5, 5),
        }  # fmt: skip
        hues = {name: one["colour"].partition(" ")[0] for name, one in found.items()}
        assert (hues["a"], hues["new"], hues["b"]) == ("hsl(5", "hsl(5", "hsl(215")
        assert found["same"]["colour"] == found["main"]["colour"]
        legend = text_of(page, ".legend")
        assert "blue: less than before" in legend
        assert "red: more than before" in legend
        assert "before 30 events (28.57 %), after 60 events (57.14 %)" in hover(page, found["a"])
        page.get_by_role("combobox", name="widths").select_option("before")
        widths = by_name(page)
        assert widths["gone"]["width"] == pytest.approx(widths["all"]["width"] * 10 / 105)
        assert "new" not in widths


def test_differential_histogram_and_table(tmp_path: Path) -> None:
    assert HTML.differential is not None
    before, after = (
        snapshot(
            map_data("@h", STRING, types.Hist(0), {"k": {3: low, 4: 2}}), map_data("@n", STRING, COUNT, {"k": low})
        )
        for low in (5, 9)
    )
    with opened(kept(tmp_path, HTML.differential(before, after, WriteOptions()))) as page:
        assert page.locator("table.histogram tbody tr").first.locator("th, td").all_text_contents()[:4] == [
            "[2, 4)", "5", "9", "+4",
        ]  # fmt: skip
        assert page.locator("#part-1 tbody td").all_text_contents() == ["k", "5", "9", "4"]


def test_histograms_over_time(tmp_path: Path) -> None:
    assert HTML.series is not None
    counts = [{3: 1}, {3: 4, 5: 10}, {3: 4, 5: 10, 6: 7}]
    states = [
        snapshot(
            map_data("@lat_us", STRING, types.Hist(0), {"k": dict(one)}), map_data("@n", STRING, COUNT, {"a": 10 * at}),
            of=run(end=(100 + at) * SECOND),
        )
        for at, one in enumerate(counts, 1)
    ]  # fmt: skip
    with opened(kept(tmp_path, HTML.series(states, WriteOptions()))) as page:
        assert page.evaluate("document.querySelector('div.lines').values()") == {
            "times": [101, 102, 103], "series": [[10, 10, 10]],
        }  # fmt: skip
        assert page.evaluate("document.querySelector('div.heat').cells().map(step => step.slice(3, 7))") == [
            [1, 0, 0, 0], [3, 0, 10, 0], [0, 0, 0, 7],
        ]  # fmt: skip
        plot = page.locator("div.heat .u-over").bounding_box()
        buckets, steps = 4, 3
        page.mouse.move(plot["x"] + plot["width"] * 1.5 / steps, plot["y"] + plot["height"] * (1 - 2.5 / buckets))
        assert "01:42.000 UTC, [8, 16) us: 10 of 13 values" in text_of(page, "div.heat .status").replace("00:", "")
        page.mouse.down()
        page.mouse.up()
        rows = page.locator("table.histogram tbody tr")
        assert [rows.nth(at).locator("th, td").all_text_contents()[:2] for at in range(rows.count())] == [
            ["[2, 4)", "3"], ["[4, 8)", "0"], ["[8, 16)", "10"],
        ]  # fmt: skip
        # Dragging over the last two columns shows what both added.
        page.mouse.down()
        page.mouse.move(plot["x"] + plot["width"] * 2.5 / steps, plot["y"] + 20, steps=3)
        page.mouse.up()
        assert "2 intervals" in text_of(page, "div.heat .detail h3")
        assert text_of(page, "div.heat .detail .headline").startswith("20 values: p50 ≤ 15 µs, p90 ≤ 31 µs")
        page.get_by_role("button", name="all intervals").click()
        assert text_of(page, "div.heat .detail h3") == "all intervals"
        for label, option in (("colours", "linear"), ("buckets", "value")):
            page.get_by_role("combobox", name=label).select_option(option)


def test_an_empty_snapshot_says_so(tmp_path: Path) -> None:
    with opened(written(tmp_path, SnapshotData(()))) as page:
        assert "Nothing was counted" in text_of(page, "header")
