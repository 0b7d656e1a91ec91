"""Pictures of snapshots: options, comparison, losses."""

from __future__ import annotations

from io import BytesIO

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import svg, table
from pytrace.results.formats.format_row import WriteOptions
from tests.support.pictures import boxes, picture, texts
from tests.support.snapshots import COUNT, map_data, snapshot, stack

USTACK = types.Stack(True)
HIST = types.Hist(0)
STACKS = map_data("@", USTACK, COUNT, {stack("leaf", "main"): 3})


def test_a_comparison_colours_what_grew_red_and_what_shrank_blue() -> None:
    before = snapshot(map_data("@", USTACK, COUNT, {stack("a", "main"): 8, stack("b", "main"): 2}))
    after = snapshot(map_data("@", USTACK, COUNT, {stack("a", "main"): 2, stack("b", "main"): 18}))
    found = svg.differential(before, after, WriteOptions())
    drawn = {box.title.split(":")[0]: box for box in boxes(found)}
    assert drawn["b"].title.startswith("b: 18, 90.00%, before 2 (+16)")
    assert drawn["a"].title.startswith("a: 2, 10.00%, before 8 (-6)")
    assert drawn["b"].color.startswith("hsl(4,")
    assert drawn["a"].color.startswith("hsl(216,")
    assert drawn["main"].color == "hsl(0,0%,96%)"
    assert any("red: a larger share" in text for text in texts(found))
    with pytest.raises(TraceError, match="neither snapshot has one"):
        svg.differential(snapshot(), snapshot(), WriteOptions())


def test_what_was_lost_is_told() -> None:
    whole = snapshot(STACKS)
    whole.losses = {"lost events": {"k:f": 3}}
    file = BytesIO()
    svg.write(whole, WriteOptions(), file)
    assert "lost events: 3 (k:f)" in texts(file.getvalue())


@pytest.mark.parametrize("wanted", ["svg:width=ten", "svg:width=1", "svg:color=blue"])
def test_a_wrong_option_is_an_error(wanted: str) -> None:
    with pytest.raises(TraceError, match="of format svg is"):
        picture(STACKS, wanted=wanted)


def test_a_negative_number_has_no_width() -> None:
    with pytest.raises(TraceError, match="no negative numbers"):
        picture(map_data("@", USTACK, COUNT, {stack("main"): -4}))


def test_an_empty_map_is_a_picture() -> None:
    assert "@: 0" in texts(picture(map_data("@", USTACK, COUNT, {}), map_data("@h", None, HIST, {})))


def test_files_that_end_so_are_pictures() -> None:
    assert table.chosen(None, "report.svg")[0].name == "svg"
