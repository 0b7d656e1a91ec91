"""Times of goroutines: in three states, by cause, and who is idle."""

from __future__ import annotations

from pytrace.account import causes
from pytrace.account.causes import Cause
from pytrace.account.goroutines import BEFORE, RUN_NEW, RUN_WOKEN, RUNS, WAITS, GoroutineKey, Spent, split

CAUSES = {1: causes.RECEIVE, 2: causes.LOCK, 3: causes.RUNTIME, 4: causes.SEND}
ROOTS = {1: "main.work", 2: "main.work", 3: "runtime.bgsweep", 4: "main.produce"}


def cause_of(key: GoroutineKey) -> Cause:
    return CAUSES[key[2]] if key[1] == WAITS else Cause("unseen", "", idle="before", always_idle=True)


def test_time_is_running_runnable_or_waiting() -> None:
    time = {
        (5, RUNS, 1): Spent(3, 30, 20), (5, RUN_WOKEN, 1): Spent(2, 8, 5), (5, RUN_NEW, 0): Spent(1, 2, 2),
        (5, WAITS, 1): Spent(2, 40, 30), (5, WAITS, 2): Spent(1, 20, 20),
    }  # fmt: skip
    sums, runnable, waits, idle = split(time, cause_of, ROOTS.__getitem__)
    assert (sums.running, sums.runnable, sums.waiting, sums.idle) == (30, 10, 60, 0)
    assert set(runnable) == {(5, RUN_WOKEN, 1), (5, RUN_NEW, 0)}
    assert waits == {(-6, 1, 0): (causes.RECEIVE, Spent(2, 40, 30)), (-6, 2, 0): (causes.LOCK, Spent(1, 20, 20))}
    assert idle == []


def test_idle_are_those_that_receive_most_of_their_life_and_those_of_the_runtime() -> None:
    time = {
        # One of a pool, which waited for a lock, too; a producer at a full channel, which is never idle.
        (1, WAITS, 1): Spent(9, 900, 100), (1, WAITS, 2): Spent(1, 50, 50), (1, RUNS, 1): Spent(9, 50, 9),
        (2, WAITS, 4): Spent(9, 990, 100), (2, RUNS, 4): Spent(9, 10, 9),
        (3, WAITS, 3): Spent(1, 1000, 1000),
        (4, BEFORE, 2): Spent(1, 500, 500), (4, RUNS, 2): Spent(1, 500, 500),
    }  # fmt: skip
    sums, _, waits, idle = split(time, cause_of, ROOTS.__getitem__)
    assert sorted(cause.name for cause, _ in waits.values()) == ["channel-send", "lock"]
    assert idle == [
        ("the runtime (goroutines)", 1, 1000), ("chan receive (goroutines)", 1, 900), ("before (goroutines)", 1, 500),
    ]  # fmt: skip
    assert sums.idle == 2400


def test_goroutines_without_a_number_are_told_apart_by_their_first_function() -> None:
    time = {
        (0, WAITS, 1): Spent(90, 900, 10), (0, RUNS, 1): Spent(90, 10, 1),
        (0, WAITS, 4): Spent(10, 100, 10), (0, RUNS, 4): Spent(10, 900, 100),
    }  # fmt: skip
    _, _, waits, idle = split(time, cause_of, ROOTS.__getitem__)
    assert [cause.name for cause, _ in waits.values()] == ["channel-send"]
    assert idle == [("chan receive (goroutines)", 1, 900)]
