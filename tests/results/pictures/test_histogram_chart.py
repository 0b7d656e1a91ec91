"""Bars and heat maps: what is drawn equals the map."""

from __future__ import annotations

from pytrace.core import types
from tests.support.pictures import boxes, picture, texts
from tests.support.snapshots import map_data

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
