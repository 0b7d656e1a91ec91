"""Chains of waits: what whoever ended a wait did meanwhile, to the end of the chain."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytrace.account import chains
from pytrace.account.chains import DEPTH, Segment, Span, Timeline, Wait
from pytrace.account.reading import Reading
from pytrace.core import types
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace, Value

MAIN, HOLDER, OTHER = 1, 2, 3
LOCK, DISK, READY = 5000, 6000, 3


def spans(**parents: int) -> dict[int, Span]:
    return {
        MAIN: Span(0, 100, 0, 10, 0), HOLDER: Span(20, 100, 0, 5, parents.get("holder", MAIN)),
        OTHER: Span(0, 100, 7, 27, 0),
    }  # fmt: skip


def ends(segments: Iterable[Segment]) -> list[tuple[int, int, int, int]]:
    """Thread, begin, end and state (0: it ran), in order."""
    return [(one.tid, one.begin, one.end, one.wait.state if one.wait else 0) for one in segments]


def test_a_wait_is_what_whoever_ended_it_did() -> None:
    waits = {
        MAIN: [Wait(30, 90, LOCK, 0, 20, HOLDER, 5)],
        HOLDER: [Wait(40, 60, DISK, 0, 21, 999, 2), Wait(60, 65, READY, 0, 0, 0, 2)],
    }
    timeline = Timeline(waits, spans(), ())
    path = list(timeline.path(MAIN, 0, 100))
    assert ends(path) == [
        (MAIN, 0, 30, 0), (HOLDER, 30, 40, 0), (HOLDER, 40, 60, DISK), (HOLDER, 60, 65, READY), (HOLDER, 65, 90, 0),
        (MAIN, 90, 100, 0),
    ]  # fmt: skip
    assert [[link.tid for link in one.chain] for one in path] == [[], [MAIN], [MAIN], [MAIN], [MAIN], []]
    # Of CPU time what is known: 5 of the first 30, and 3 of the holder's last 35.
    assert [one.cpu for one in path if one.wait is None] == [5, 1, 2, 5]
    assert ends(timeline.meanwhile(MAIN, waits[MAIN][0])) == ends(path)[1:-1]


def test_a_command_whose_first_thread_ends_early_ends_with_its_last() -> None:
    maps: dict[str, dict[Portable, Value]] = {
        "@over": {None: 100_000_000},
        "@life": {
            8: (8, "main", 0, 10_000_000, 0, 0, 0, 0, 0, 0, 0),
            9: (8, "late", 4_000_000, 90_000_000, 0, 0, 0, 0, 0, 0, 8),
        },
        "@wait": {(9, 20_000_000): (80_000_000, LOCK, 0, 0, 0, 0)},
        "@place": {LOCK: (8, "late", 230, 0, StackTrace((), user=False), StackTrace((Frame("nap", 0, "/app"),)))},
    }  # fmt: skip
    data = SnapshotData((), {name: MapData(name, None, types.Sum(), rows) for name, rows in maps.items()})
    path = Reading(data, "app", "", attached=False, alive={}).path_segments
    assert ends(path) == [
        (8, 0, 4_000_000, 0), (9, 4_000_000, 20_000_000, 0), (9, 20_000_000, 80_000_000, LOCK),
        (9, 80_000_000, 90_000_000, 0),
    ]  # fmt: skip


def test_threads_that_exit_ends_are_no_later_end() -> None:
    """On a busy machine they wait for a CPU to end on."""
    maps: dict[str, dict[Portable, Value]] = {
        "@over": {None: 100_000_000},
        "@life": {
            8: (8, "main", 0, 10_000_000, 0, 0, 0, 0, 0, 0, 0),
            9: (8, "pool", 4_000_000, 14_200_000, 0, 0, 0, 0, 0, 0, 8),
        },
        "@wait": {
            (9, 5_000_000): (9_990_000, LOCK, 0, 7, 8, 0), (9, 9_990_000): (14_000_000, READY, 0, 0, 0, 0),
        },
        "@place": {LOCK: (8, "pool", 202, 9, StackTrace((), user=False), StackTrace((Frame("take", 0, "/app"),)))},
    }  # fmt: skip
    data = SnapshotData((), {name: MapData(name, None, types.Sum(), rows) for name, rows in maps.items()})
    assert ends(Reading(data, "app", "", attached=False, alive={}).path_segments) == [(8, 0, 10_000_000, 0)]


def test_a_wait_that_began_earlier_is_followed_in_part() -> None:
    waits = {
        MAIN: [Wait(50, 90, LOCK, 0, 20, HOLDER, 5)],
        HOLDER: [Wait(30, 80, LOCK, 0, 21, OTHER, 2)],
        OTHER: [Wait(10, 70, DISK, 0, 22, 0, 9)],
    }
    assert ends(Timeline(waits, spans(), ()).path(MAIN, 40, 95)) == [
        (MAIN, 40, 50, 0), (OTHER, 50, 70, DISK), (OTHER, 70, 80, 0), (HOLDER, 80, 90, 0), (MAIN, 90, 95, 0),
    ]  # fmt: skip


def test_time_before_a_thread_is_that_of_its_creator() -> None:
    waits = {MAIN: [Wait(10, 90, LOCK, 0, 20, HOLDER, 5)]}
    # Its creator waited already: for whom, is not asked in a circle.
    assert ends(Timeline(waits, spans(holder=OTHER), ()).path(MAIN, 0, 90)) == [
        (MAIN, 0, 10, 0), (OTHER, 10, 20, 0), (HOLDER, 20, 90, 0),
    ]  # fmt: skip
    assert ends(Timeline(waits, spans(holder=0), ()).path(MAIN, 0, 90)) == [(MAIN, 0, 10, 0), (HOLDER, 20, 90, 0)]


def test_interrupts_the_kernel_and_strangers_end_a_chain() -> None:
    waits = {MAIN: [Wait(30, 50, LOCK, 0, 20, HOLDER, 5), Wait(60, 80, LOCK, 0, 21, 77, 5)]}
    assert [one.wait.state for one in Timeline(waits, spans(), (20,)).path(MAIN, 0, 100) if one.wait] == [LOCK, LOCK]


def test_threads_that_wake_each_other_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains have a depth, and many waits a limit in all, which is said."""
    waits = {
        MAIN: [Wait(at, at + 2, LOCK, 0, 20, HOLDER, 5) for at in range(20, 100, 2)],
        HOLDER: [Wait(at, at + 2, LOCK, 0, 20, MAIN, 5) for at in range(21, 99, 2)],
    }
    path = list(Timeline(waits, spans(), ()).path(MAIN, 0, 100))
    assert sum(one.end - one.begin for one in path) == 100
    assert max(len(one.chain) for one in path) == DEPTH
    monkeypatch.setattr(chains, "MOST_STEPS", 30)
    many = Timeline(waits, spans(), ())
    found = sum(one.end - one.begin for one in many.path(MAIN, 0, 100))
    assert (found, many.left_out > 0) == (100 - many.left_out, True)
