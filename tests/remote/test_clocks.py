"""Offsets of clocks, and times corrected by them."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.remote.clocks import LATEST, Offset, aligned, better, measured
from pytrace.remote.messages import Clock
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import STRING, map_data, run, snapshot

SECOND = 10**9


def test_a_round_trip_bounds_the_error() -> None:
    """10 there, 30 back, 5 between: the host is 1000 ahead, and what is found is at most half of 40 from it."""
    found = measured(Clock(100, 1110, 1115), 145)
    assert found == Offset(990, 21)
    assert abs(found.ahead - 1000) <= found.error


@pytest.mark.parametrize("clock", [Clock(100, 1115, 1110), Clock(100, 1000, 2000), Clock(200, 5, 5)])
def test_answers_that_cannot_be_true(clock: Clock) -> None:
    assert measured(clock, 145) is None


def test_the_smaller_error_wins_and_clocks_that_may_be_equal_are_not_corrected() -> None:
    best = Offset(5, 9)
    assert better(None, best) == better(Offset(4, 10), best) == better(best, None) == best
    assert (Offset(5, 9).correction, Offset(-9, 5).correction) == (0, -9)


def of_host(reduce: str, value: tuple[int, int]) -> SnapshotData:
    series = map_data("@t", STRING, types.TSeries(SECOND, 10, reduce), {"x": {100: value}})
    return snapshot(series, of=run(start=100))


def test_times_and_intervals_move() -> None:
    original = of_host("sum", (7, 3))
    moved = aligned(original, Offset(3 * SECOND // 2 + 7, 5))
    by = 3 * SECOND // 2 + 7
    assert moved.runs[0].start == max(original.runs[0].start - by, 0)
    assert moved.runs[0].start_monotonic == original.runs[0].start_monotonic
    assert moved.runs[0].clock == (by, 5)
    assert moved.maps["@t"].entries["x"] == {98: (7, 3)}
    last = aligned(of_host("", (7, 100 * SECOND)), Offset(-3 * SECOND, 5))
    assert last.maps["@t"].entries["x"] == {103: (7, 103 * SECOND)}


def test_a_difference_below_the_error_moves_nothing() -> None:
    moved = aligned(of_host("sum", (7, 3)), Offset(5 * SECOND, 6 * SECOND))
    assert moved.maps == of_host("sum", (7, 3)).maps
    assert moved.runs[0].clock == (5 * SECOND, 6 * SECOND)


def test_hosts_of_a_gateway_are_moved_once_more() -> None:
    """It has measured their clocks by its own, which is wrong itself."""
    once = aligned(of_host("sum", (7, 3)), Offset(3 * SECOND, 5))
    twice = aligned(once, Offset(2 * SECOND, 6))
    assert twice.runs[0].clock == (5 * SECOND, 11)
    assert twice.maps["@t"].entries["x"] == {95: (7, 3)}
    assert Offset(LATEST, LATEST).after(Offset(LATEST, LATEST)) == Offset(LATEST, LATEST)


@pytest.mark.parametrize("ahead", [LATEST, -LATEST])
def test_absurd_clocks_stay_within_what_snapshots_hold(ahead: int) -> None:
    moved = aligned(of_host("", (7, 5)), Offset(ahead, 1))
    assert file_form.from_bytes(file_form.to_bytes(moved), "x") == moved
