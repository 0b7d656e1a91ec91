"""What a row of the table of formats says of its format."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import table
from pytrace.results.formats.format_row import Content, Format, FormatOption, WriteOptions, content, has_stack
from tests.support.snapshots import COUNT, STRING, map_data

USTACK = types.Stack(True)


FOLDED = Format(
    "folded", "", (".folded",), frozenset({Content.STACKS}), table.named("text").write,
    options=(FormatOption("process", ""), FormatOption("period", "", "N")),
    library="no_such_library_at_all", extra="some",
)  # fmt: skip


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
    assert "the extra 'some'" in found.value.hints[0]


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


def test_stacks_are_found_at_any_depth() -> None:
    assert has_stack(types.Tuple((STRING, types.Record(("a",), (USTACK,)))))
    assert not has_stack(types.Tuple((STRING, types.INT64)))


def test_a_flag_is_there_or_not() -> None:
    assert WriteOptions({"process": ""}).flag("process")
    assert not WriteOptions().flag("process")
