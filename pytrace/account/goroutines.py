"""What goroutines spent in which state, as ``goroutines.bt`` has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pytrace.account.account import Goroutines
from pytrace.account.causes import Cause

RUN_WOKEN, RUNS, RUN_AGAIN, WAITS, RUN_NEW, BEFORE = range(1, 7)
"""States: ``enum routine_states``."""
RUNNABLE = {RUN_WOKEN: "woken", RUN_AGAIN: "displaced", RUN_NEW: "new"}
IDLE_SHARE = 0.8
"""Who spends more than this share of its life waiting for work waits for work."""

GoroutineKey = tuple[int, int, int]
"""Number of a goroutine (0 of all after the first thousands), state, place where it waits or has waited last."""


class Turn(NamedTuple):
    """What a goroutine that has not ended is in: the value of ``@routine``."""

    at: int
    state: int
    place: int
    begin: int
    number: int


class Spent(NamedTuple):
    """How often, how long in all and at most, in nanoseconds."""

    times: int
    ns: int
    most: int


Waits = dict[tuple[int, int, int], tuple[Cause, Spent]]
"""By thread (of goroutines a negative number), place and object."""


def split(
    time: Mapping[GoroutineKey, Spent], cause_of: Callable[[GoroutineKey], Cause], root_of: Callable[[int], str]
) -> tuple[Goroutines, dict[GoroutineKey, Spent], Waits, list[tuple[str, int, int]]]:
    """Sums, what was spent runnable, waits that are not idle, and idle goroutines: what in, how many, nanoseconds.

    Goroutines without a number of their own are told apart by the function that they began with.
    """
    units: dict[int | str, dict[GoroutineKey, Spent]] = defaultdict(dict)
    for key, spent in time.items():
        units[key[0] or root_of(key[2])][key] = spent
    runnable: dict[GoroutineKey, Spent] = {}
    waits: Waits = {}
    idle: dict[str, tuple[set[int | str], int]] = {}
    running = waiting = 0
    for unit, spans in units.items():
        causes = {key: cause_of(key) for key in spans if key[1] in (WAITS, BEFORE)}
        aside = sum(spans[key].ns for key, cause in causes.items() if cause.always_idle)
        may = sum(spans[key].ns for key, cause in causes.items() if cause.idle and not cause.always_idle)
        works = may < IDLE_SHARE * (sum(spent.ns for spent in spans.values()) - aside)
        for key, spent in spans.items():
            if (cause := causes.get(key)) is None:
                if key[1] == RUNS:
                    running += spent.ns
                else:
                    runnable[key] = spent
                continue
            waiting += spent.ns
            if cause.always_idle or (cause.idle and not works):
                members, ns = idle.get(cause.idle, (set(), 0))
                members.add(unit)
                idle[cause.idle] = members, ns + spent.ns
            else:
                waits[-1 - key[0], key[2], 0] = cause, spent
    sums = Goroutines(
        0, 0, running, sum(spent.ns for spent in runnable.values()), waiting, sum(ns for _, ns in idle.values())
    )
    rows = ((f"{label} (goroutines)", len(members), ns) for label, (members, ns) in idle.items())
    return sums, runnable, waits, sorted(rows, key=lambda row: -row[2])
