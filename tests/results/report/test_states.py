from __future__ import annotations

from typing import Any

from pytrace.core import types
from pytrace.results.report.states import (
    at_end,
    buckets_added,
    number_added,
    of_prints,
    of_snapshots,
    shown_names,
    steps_of,
)
from pytrace.results.snapshot import Print, SnapshotData
from tests.support.snapshots import COUNT, SECOND, map_data, run, snapshot, table

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
