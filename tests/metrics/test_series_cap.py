"""Which keys of a map are shown when there are too many."""

from __future__ import annotations

from pytrace.core import types
from pytrace.metrics.series_cap import SeriesCap
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.values import Portable, Value

COUNT = types.Count()


def snapshot(
    value: types.Type = COUNT, key: types.Type | None = types.INT64, **maps: dict[Portable, Value]
) -> SnapshotData:
    return SnapshotData((), {f"@{name}": MapData(f"@{name}", key, value, entries) for name, entries in maps.items()})


def test_the_largest_values_come_first() -> None:
    before = snapshot(a={1: 5, 2: 9, 3: 7}, b={1: 1, 2: 2})
    after, left_out = SeriesCap(2).capped(before)
    assert after.maps["@a"].entries == {2: 9, 3: 7}
    assert after.maps["@b"] is before.maps["@b"]
    assert left_out == {"@a": 1, "@b": 0}
    assert len(before.maps["@a"].entries) == 3


def test_a_key_that_was_shown_stays_until_the_map_has_lost_it() -> None:
    cap = SeriesCap(2)
    cap.capped(snapshot(a={1: 5, 2: 6}))
    after, left_out = cap.capped(snapshot(a={1: 5, 2: 6, 3: 100}))
    assert (after.maps["@a"].entries, left_out) == ({1: 5, 2: 6}, {"@a": 1})
    after, _ = cap.capped(snapshot(a={2: 6, 3: 100, 4: 50}))
    assert after.maps["@a"].entries == {2: 6, 3: 100}
    cap.capped(snapshot(a={}))
    after, _ = cap.capped(snapshot(a={2: 6, 3: 100, 4: 50}))
    assert after.maps["@a"].entries == {3: 100, 4: 50}


def test_averages_and_histograms_weigh_what_they_counted() -> None:
    after, _ = SeriesCap(1).capped(snapshot(types.Avg(), a={1: (1000, 1), 2: (10, 5)}))
    assert after.maps["@a"].entries == {2: (10, 5)}
    after, _ = SeriesCap(1).capped(snapshot(types.Hist(0), a={1: {60: 1}, 2: {1: 2, 2: 2}}))
    assert after.maps["@a"].entries == {2: {1: 2, 2: 2}}


def test_a_map_without_keys_is_no_matter_of_the_cap() -> None:
    after, left_out = SeriesCap(1).capped(snapshot(COUNT, None, a={None: 3}))
    assert after.maps["@a"].entries == {None: 3}
    assert left_out == {}
