from __future__ import annotations

from io import BytesIO

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import table
from pytrace.results.formats.format_row import Content, Format, WriteOptions
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, map_data, snapshot, stack
from tests.support.snapshots import table as rows

USTACK = types.Stack(True)


def test_names_and_suffixes_are_distinct() -> None:
    names = [row.name for row in table.FORMATS]
    suffixes = [suffix for row in table.FORMATS for suffix in row.suffixes]
    assert len(set(names)) == len(names)
    assert len(set(suffixes)) == len(suffixes)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)


@pytest.mark.parametrize("row", [row for row in table.FORMATS if not row.extra], ids=lambda row: row.name)
def test_every_format_writes_a_snapshot_without_anything(row: Format) -> None:
    row.writer()(SnapshotData(()), WriteOptions(), BytesIO())


def test_the_format_is_chosen_by_suffix_or_name() -> None:
    assert {held for row in table.FORMATS for held in row.shows} == set(Content)
    assert table.chosen(None, None)[0].name == "text"
    assert table.chosen(None, "a/B.JSON")[0].name == "json"
    assert table.chosen(None, "log.unknown")[0].name == "text"
    assert table.chosen("text", "a.json")[0].name == "text"


@pytest.mark.parametrize("name", ["x", "x.log", "x.out", "run.2", "a.b/x", "/dev/null", "png", ".png", "x.png/y"])
def test_other_names_mean_text(name: str) -> None:
    assert table.by_suffix(name) is None
    assert table.chosen(None, name)[0].name == "text"


@pytest.mark.parametrize("name", ["x.png", "a/B.PDF", "x.txt.gz", "x.speedscope.png", "x.perfetto", "x.ndjson"])
def test_a_suffix_of_another_format_is_refused(name: str) -> None:
    suffix = name.lower()[name.rindex(".") :]
    with pytest.raises(TraceError, match=rf"no format has the suffix '{suffix}' of '{name}'") as found:
        table.chosen(None, name)
    suffixes, names = found.value.hints
    assert ".folded" in suffixes
    assert "speedscope" in names
    assert table.chosen("text", name)[0].name == "text"


def test_formats_that_show_does_not_have() -> None:
    with pytest.raises(TraceError) as found:
        table.chosen(None, "x.pts")
    assert found.value.hints[0] == "--save FILE saves a snapshot"
    assert not {suffix for row in table.FORMATS for suffix in row.suffixes} & table._OTHERS
    with pytest.raises(TraceError, match="there is no format 'jsn'") as found:
        table.chosen("jsn", None)
    assert "did you mean 'json'?" in found.value.hints
    assert any("text" in hint for hint in found.value.hints)


# ---------------------------------------------------------------------------------------------- selection

FOLDED = Format("folded", "", (".folded",), frozenset({Content.STACKS}), table.named("text").write)


def test_what_does_not_fit_is_left_out_and_told() -> None:
    whole = snapshot(
        map_data("@s", USTACK, COUNT, {stack("f"): 1}),
        map_data("@h", None, types.Hist(), {None: {1: 2}}),
        tables=(rows(["pid"], [types.INT64], [(1,)]),),
    )
    chosen = table.select(whole, FOLDED)
    assert list(chosen.snapshot.maps) == ["@s"]
    assert not chosen.snapshot.tables
    assert chosen.left_out == (
        "format folded cannot show @h (histograms)",
        "format folded cannot show rows",
    )
    assert table.select(whole, FOLDED, ["s"]).left_out == ()
    assert table.select(whole, table.named("text"), ["rows"]).snapshot.tables == whole.tables


def test_numbers_of_different_kinds_that_a_reader_adds_up_are_told() -> None:
    samples = map_data("@s", USTACK, COUNT, {stack("f"): 1})
    times = map_data("@wait_us", USTACK, types.Sum(), {stack("f"): 1})
    folded = table.named("folded")
    (sentence,) = table.select(snapshot(samples, times), folded).left_out
    assert "add up numbers of different kinds: @s (samples), @wait_us (us)" in sentence
    assert table.select(snapshot(samples, times), folded, ["s"]).left_out == ()
    other = map_data("@t", USTACK, COUNT, {stack("f"): 1})
    assert table.select(snapshot(samples, other), folded).left_out == ()
    assert table.select(snapshot(samples, times), table.named("pprof")).left_out == ()
    assert table.named("jsonl") is table.named("json")


def test_what_cannot_be_shown_at_all_is_an_error_that_names_what_can() -> None:
    whole = snapshot(map_data("@s", USTACK, COUNT, {}), map_data("@h", None, types.Hist(), {None: {1: 2}}))
    with pytest.raises(TraceError, match=r"format folded cannot show @h \(histograms\)") as found:
        table.select(whole, FOLDED, ["@h"])
    assert found.value.hints[0] == "it shows numbers by stack"
    assert found.value.hints[1].startswith("formats that show histograms: text, json")
    with pytest.raises(TraceError, match="cannot show"):
        table.select(snapshot(whole.maps["@h"]), FOLDED)
    with pytest.raises(TraceError, match="there is no map '@x'"):
        table.select(whole, FOLDED, ["@x"])
    assert table.select(SnapshotData(()), FOLDED).left_out == ()
