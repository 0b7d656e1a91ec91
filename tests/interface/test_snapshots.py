"""Snapshots in Python: maps and HTML pages."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.interface import html
from pytrace.interface.snapshots import Maps, ResultMap, Snapshot, merge
from pytrace.render.aggregations import Average
from pytrace.results.snapshot import MapData, StackTrace
from tests.support.pictures import boxes, texts
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, table

# ---------------------------------------------------------------------------------------------- snapshots
# .


def made(count: int, of: str = "run-1") -> Snapshot:
    rows = table(["n"], [types.INT64], [(count,)], of=of)
    return Snapshot(snapshot(map_data("@a", STRING, COUNT, {"x": count}), of=run(of), tables=(rows,)))


def test_its_parts() -> None:
    found = made(3)
    assert found.maps["a"]["x"] == 3
    assert found.to_dict("@a") == {"x": 3}
    assert (len(found.tables), [item.identity for item in found.runs], found.losses) == (1, ["run-1"], {})
    assert repr(found) == "<Snapshot of 1 runs: maps @a>"


def test_snapshots_merge() -> None:
    first, second, third = made(1), made(2, "run-2"), made(3, "run-3")
    assert first.merge(second, third).data == merge([first, second, third]).data
    assert first.merge(second, third).to_dict("a") == {"x": 6}
    with pytest.raises(TraceError):
        first.merge(first)


def test_files(tmp_path: Path) -> None:
    made(3).save(tmp_path / "x.pts")
    assert Snapshot.load(str(tmp_path / "x.pts")).data == made(3).data
    with pytest.raises(TraceError, match="No such file"):
        Snapshot.load(tmp_path / "none")
    with pytest.raises(TraceError, match="not a snapshot"):
        Snapshot.load(__file__)
    with pytest.raises(TraceError, match=r"cannot write .*: No such file"):
        made(3).save(tmp_path / "no" / "x.pts")


def test_formats() -> None:
    assert b"@a[x]: 3" in made(3).format("text")
    assert made(3).format("json", "@a").count(b'"@a"') == 1
    with pytest.raises(TraceError, match="@b"):
        made(3).format("json", "@b")
    with pytest.raises(TraceError, match="there is no format"):
        made(3).format("nothing")


def test_notebooks() -> None:
    assert "<b>@a</b>" in made(3)._repr_html_()
    assert "<b>@a</b>" in made(3).maps["a"]._repr_html_()


# ---------------------------------------------------------------------------------------------- maps
# .


def shown(data: MapData) -> ResultMap:
    return ResultMap(data.name, lambda: data)


def test_a_map_with_keys_is_a_mapping() -> None:
    counts = shown(map_data("@a", STRING, COUNT, {"x": 1, "y": 2}))
    assert (counts["x"], len(counts), sorted(counts), dict(counts)) == (1, 2, ["x", "y"], {"x": 1, "y": 2})
    assert (sorted(counts.values()), counts.get("z"), "y" in counts) == ([1, 2], None, True)
    with pytest.raises(KeyError):
        counts["z"]
    with pytest.raises(TypeError, match=r"@a has keys: use @a\[key\]"):
        counts.value


def test_a_map_without_keys_has_a_value() -> None:
    average = shown(map_data("@v", None, types.Avg(), {None: (7, 2)}))
    assert (average.value, average[None]) == (3, 3)
    assert isinstance(average.value, Average)
    assert average.key_type is None
    assert isinstance(average.value_type, types.Avg)
    assert shown(map_data("@v", None, types.Avg(), {})).value is None


def test_it_is_read_when_it_is_asked() -> None:
    contents = [{"x": 1}, {"x": 2}]
    live = ResultMap("@a", lambda: map_data("@a", STRING, COUNT, contents.pop(0)))
    assert [live["x"], live["x"]] == [1, 2]


def test_its_comment_and_its_name() -> None:
    data = replace(map_data("@a", STRING, COUNT, {}), help="what it counts")
    assert shown(data).help == "what it counts"

    def closed() -> MapData:
        raise AssertionError("a repr must not read the kernel")

    assert repr(ResultMap("@a", closed)) == "<map @a>"


def test_maps_by_name_with_or_without_the_sign() -> None:
    maps = Maps({"@a": shown(map_data("@a", STRING, COUNT, {})), "@": shown(map_data("@", STRING, COUNT, {}))})
    assert maps["@a"] is maps["a"]
    assert maps["@"] is maps[""]
    assert (list(maps), len(maps), repr(maps)) == (["@a", "@"], 2, "<maps @a, @>")
    with pytest.raises(KeyError):
        maps["b"]


# ---------------------------------------------------------------------------------------------- html
# .


class Checker(HTMLParser):
    """Collects the cells of tables, and fails when tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


def test_largest_values_first() -> None:
    found = Checker(html.result_map(map_data("@a", STRING, COUNT, {"x": 1, "y": 20, "z": 3})))
    assert found.cells == ["y", "20", "z", "3", "x", "1"]


def test_members_of_keys_are_columns() -> None:
    key = types.Record(("pid", "comm"), (types.INT64, STRING))
    found = Checker(html.result_map(map_data("@a", key, types.Stats(), {(1, "x"): (10, 4)})))
    assert found.cells == ["pid", "comm", "count", "average", "total", "1", "x", "4", "2", "10"]


def test_a_map_without_keys() -> None:
    assert Checker(html.result_map(map_data("@a", None, types.Avg(), {None: (7, 2)}))).cells == ["3"]
    assert Checker(html.result_map(map_data("@a", None, types.Avg(), {}))).cells == []


def test_texts_are_escaped_and_are_utf8() -> None:
    bad = "<script>alert(1)</script>&\udcff\x00\x1b"
    maps = [map_data(f"@{at}", STRING, kind, {bad: value}) for at, (kind, value) in enumerate(
        ((COUNT, 1), (types.Hist(0), {5: 1}), (STRING, bad), (types.Stats(), (1, 1)))
    )]  # fmt: skip
    maps.append(map_data("@s", types.Tuple((STRING, types.Stack(True))), COUNT, {(bad, stack("<b>", module="<i>")): 1}))
    text = Snapshot(snapshot(*maps, tables=(table(["a"], [STRING], [(bad,)]),)))._repr_html_()
    assert Checker(text).tags == {"div", "pre", "b", "table", "tr", "td", "th"} | PICTURE
    assert "&lt;script&gt;" in text
    assert "\x00" not in text
    assert "\x1b" not in text
    assert "&amp;\\xff\\x00\\x1b" in text
    text.encode()


def test_texts_are_no_formulas_of_spreadsheets() -> None:
    data = map_data("@", types.Tuple((STRING, types.Int(4, True))), COUNT, {("=1+1", -2): 1, ("'@x", -3): 1})
    assert Checker(html.result_map(data)).cells == ["'=1+1", "-2", "1", "''@x", "-3", "1"]


PICTURE = {"svg", "style", "rect", "title", "text", "line"}


def picture(text: str) -> bytes:
    """The one picture of a map."""
    assert text.count("<svg ") == 1
    return text[text.index("<svg ") : text.index("</svg>") + 6].encode()


def test_histograms_are_bars() -> None:
    text = html.result_map(map_data("@h", STRING, types.LHist(0, 10, 5), {"x": {1: 4, 2: 1}}))
    assert [box.title for box in boxes(picture(text))] == ["[0, 5): 4 (80.00%)", "[5, 10): 1 (20.00%)"]
    assert "@h[x]: 5 values: p50 <= 4, p90 <= 9, p99 <= 9, largest <= 9" in texts(picture(text))


def test_stacks_are_a_flame_graph_with_shares() -> None:
    key = types.Tuple((STRING, types.Stack(True)))
    entries = {("p", stack("leaf", "main")): 3, ("p", stack("main")): 1, ("q", StackTrace((), True, "no memory")): 4}
    found = {box.title.split("\n")[0] for box in boxes(picture(html.result_map(map_data("@", key, COUNT, entries))))}
    assert found >= {
        "leaf: 3, 37.50%", "[no user stack: no memory]: 4, 50.00%", "main: 4, 50.00%", "p: 4, 50.00%", "q: 4, 50.00%",
    }  # fmt: skip


def test_negative_numbers_by_stack_are_a_table() -> None:
    text = html.result_map(map_data("@", types.Stack(True), types.Sum(), {stack("main"): -2}))
    assert "-2" in Checker(text).cells


def test_a_deep_stack() -> None:
    entries = {stack(*(f"f{at}" for at in range(3000))): 1}
    text = html.result_map(map_data("@", types.Stack(True), COUNT, entries))
    assert "only the 200 outermost frames are drawn" in text
    Checker(text)


@pytest.mark.parametrize(
    "data",
    [
        map_data("@a", types.INT64, COUNT, {at: at for at in range(10_000)}),
        map_data("@h", types.INT64, types.Hist(0), {at: {at % 60: 1} for at in range(10_000)}),
        map_data("@t", types.INT64, types.String(1 << 16), dict.fromkeys(range(200), "x" * 60000)),
        map_data("@s", types.Stack(True), COUNT, {stack(f"f{at}", "main"): 1 for at in range(10_000)}),
    ],
    ids=lambda data: data.name,
)  # fmt: skip
def test_size_is_bounded_and_what_is_left_out_is_told(data: html.MapData) -> None:
    text = html.result_map(data)
    assert len(text) < 300_000
    assert "more" in text


def test_newest_rows_are_shown() -> None:
    rows = [(at, f"row {at}") for at in range(150)]
    found = Checker(html.snapshot(snapshot(tables=(table(["n", "text"], [types.INT64, STRING], rows),))))
    assert found.cells[:4] == ["n", "text", "50", "row 50"]
    assert found.cells[-1] == "row 149"
