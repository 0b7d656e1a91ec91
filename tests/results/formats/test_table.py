from __future__ import annotations

from io import BytesIO

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import table
from pytrace.results.formats.format_row import Content, Format, FormatOption, WriteOptions, Writer, content
from pytrace.results.formats.selection import select
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, stack
from tests.support.snapshots import table as rows

USTACK = types.Stack(True)


def _missing() -> Writer:
    import no_such_library_at_all  # noqa: F401

    raise AssertionError


FOLDED = Format(
    "folded", "", (".folded",), frozenset({Content.STACKS}), _missing,
    options=(FormatOption("process", ""), FormatOption("period", "", "N")), extra="some",
)  # fmt: skip


def test_names_and_suffixes_are_distinct() -> None:
    names = [row.name for row in table.FORMATS]
    suffixes = [suffix for row in table.FORMATS for suffix in row.suffixes]
    assert len(set(names)) == len(names)
    assert len(set(suffixes)) == len(suffixes)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)


@pytest.mark.parametrize("row", [row for row in table.FORMATS if not row.extra], ids=lambda row: row.name)
def test_every_format_writes_a_snapshot_without_anything(row: Format) -> None:
    row.writer()(SnapshotData(()), WriteOptions(), BytesIO())


def test_each_kind_of_content_has_a_format() -> None:
    assert {held for row in table.FORMATS for held in row.shows} == set(Content)


def test_suffix_or_name_choose_the_format() -> None:
    assert table.chosen(None, None)[0].name == "text"
    assert table.chosen(None, "a/B.JSON")[0].name == "json"
    assert table.chosen(None, "log.unknown")[0].name == "text"
    assert table.chosen("text", "a.json")[0].name == "text"


def test_an_unknown_format_is_named_with_those_there_are() -> None:
    with pytest.raises(TraceError, match="there is no format 'jsn'") as found:
        table.chosen("jsn", None)
    assert "did you mean 'json'?" in found.value.hints
    assert any("text" in hint for hint in found.value.hints)


def test_options_of_a_format() -> None:
    assert FOLDED.settings("process,period=9") == {"process": "", "period": "9"}
    for text, message in [
        ("proces", "format folded has no option 'proces'"),
        ("period", "should be written period=N"),
        ("process=1", "should be written process"),
    ]:
        with pytest.raises(TraceError, match=message):
            FOLDED.settings(text)
    with pytest.raises(TraceError, match="no option 'x'"):
        table.chosen("text:x", None)


def test_a_library_that_is_missing_is_named_with_the_extra() -> None:
    with pytest.raises(TraceError, match="format folded needs the Python package no_such_library_at_all") as found:
        FOLDED.writer()
    assert found.value.hints == ("pip install 'pytrace[some]'",)


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [
        (None, COUNT, Content.NUMBERS),
        (STRING, types.Avg(), Content.NUMBERS),
        (types.Tuple((STRING, USTACK)), types.Sum(), Content.STACKS),
        (USTACK, types.Hist(), Content.HISTOGRAMS),
        (STRING, types.LHist(), Content.HISTOGRAMS),
        (STRING, types.TSeries(), Content.SERIES),
        (STRING, USTACK, Content.VALUES),
        (STRING, types.Tuple((types.INT64, types.INT64)), Content.VALUES),
    ],
)
def test_what_maps_hold(key: types.Type | None, value: types.Type, held: Content) -> None:
    assert content(map_data("@", key, value, {})) is held


def test_what_does_not_fit_is_left_out_and_told() -> None:
    whole = snapshot(
        map_data("@s", USTACK, COUNT, {stack("f"): 1}),
        map_data("@h", None, types.Hist(), {None: {1: 2}}),
        tables=(rows(["pid"], [types.INT64], [(1,)]),),
    )
    chosen = select(whole, FOLDED)
    assert list(chosen.snapshot.maps) == ["@s"]
    assert not chosen.snapshot.tables
    assert chosen.left_out == (
        "format folded cannot show @h (histograms)",
        "format folded cannot show rows",
    )
    assert select(whole, FOLDED, ["s"]).left_out == ()
    assert select(whole, table.named("text"), ["rows"]).snapshot.tables == whole.tables


def test_what_cannot_be_shown_at_all_is_an_error_that_names_what_can() -> None:
    whole = snapshot(map_data("@s", USTACK, COUNT, {}), map_data("@h", None, types.Hist(), {None: {1: 2}}))
    with pytest.raises(TraceError, match=r"format folded cannot show @h \(histograms\)") as found:
        select(whole, FOLDED, ["@h"])
    assert found.value.hints[0] == "it shows numbers by stack"
    assert found.value.hints[1].startswith("formats that show histograms: text, json")
    with pytest.raises(TraceError, match="cannot show"):
        select(snapshot(whole.maps["@h"]), FOLDED)
    with pytest.raises(TraceError, match="there is no map '@x'"):
        select(whole, FOLDED, ["@x"])
    assert select(SnapshotData(()), FOLDED).left_out == ()
