"""Pictures of snapshots: options, comparison, losses."""

from __future__ import annotations

from io import BytesIO

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import svg, table
from pytrace.results.formats.format_row import WriteOptions
from tests.support.pictures import boxes, picture, texts
from tests.support.snapshots import COUNT, SECOND, map_data, run, snapshot, stack

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


def test_a_series_is_a_heat_map_of_what_each_interval_added() -> None:
    states = [{1: {3: 2}}, {1: {3: 2, 5: 4}, 2: {4: 1}}, {1: {4: 7}, 2: {4: 1}}]
    saved = [
        snapshot(map_data("@us", types.INT64, HIST, entries), STACKS, map_data("@n", None, COUNT, {None: 1}),
                 of=run(end=(101 + number) * SECOND))
        for number, entries in enumerate(states)
    ]  # fmt: skip
    found = svg.series(list(reversed(saved)), WriteOptions())
    assert {"3 snapshots", "@us[1] (us): 13", "@us[2] (us): 1", "as of the last snapshot:", "@: 3"} <= set(texts(found))
    cells = [box.title for box in boxes(found) if " of " in box.title]
    # In the last one the first key was emptied before: it shows all that it holds.
    assert sorted(cells) == [
        "00:01:41, [2, 4): 2 of 2 (100.00%)", "00:01:42, [4, 8): 1 of 1 (100.00%)",
        "00:01:42, [8, 16): 4 of 4 (100.00%)", "00:01:43, [4, 8): 7 of 7 (100.00%)",
    ]  # fmt: skip
    with pytest.raises(TraceError, match="shows histograms over time, and none"):
        svg.series([snapshot(), snapshot()], WriteOptions())


def test_many_intervals_share_columns() -> None:
    saved = [
        snapshot(map_data("@", None, HIST, {None: {3: number + 1}}), of=run(end=(101 + number) * SECOND))
        for number in range(900)
    ]  # fmt: skip
    cells = [box for box in boxes(svg.series(saved, WriteOptions())) if " of " in box.title]
    assert len(cells) == 300
    assert all(": 3 of 3" in cell.title for cell in cells)


def test_a_comparison_is_not_by_processes_of_which_both_have_others() -> None:
    key = types.Tuple((types.UINT32, USTACK))
    before, after = (snapshot(map_data("@", key, COUNT, {(pid, stack("f", "main")): 4})) for pid in (7, 9))
    drawn = {box.title.split(":")[0]: box for box in boxes(svg.differential(before, after, WriteOptions()))}
    assert drawn["f"].title.startswith("f: 4, 100.00%, before 4 (+0)")
    assert not {"7", "9"} & set(drawn)
