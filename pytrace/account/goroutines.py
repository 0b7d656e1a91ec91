"""What goroutines spent in which state, as ``goroutines.bt`` has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pytrace.account.account import Goroutines
from pytrace.account.causes import Cause, idle_waits

RUN_WOKEN, RUNS, RUN_AGAIN, WAITS, RUN_NEW, BEFORE = range(1, 7)
"""States: ``enum routine_states``."""
RUNNABLE = {RUN_WOKEN: "woken", RUN_AGAIN: "displaced", RUN_NEW: "new"}
GoroutineKey = tuple[int, int, int]
"""Number of a goroutine (0 of all after the first thousands), state, place where it waits or has waited last."""


class Turn(NamedTuple):
    """What a goroutine that has not ended is in: the value of ``@routine``."""

    at: int
    state: int
    place: int
    begin: int
    number: int
    ran: int
    """Nanoseconds that it ran until then."""
    parent: int
    """The number of the goroutine that started it; 0 where that was not kept."""


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
    units = {key: key[0] or root_of(key[2]) for key in time}
    lives: Counter[int | str] = Counter()
    for key, spent in time.items():
        lives[units[key]] += spent.ns
    causes = {key: cause_of(key) for key in time if key[1] in (WAITS, BEFORE)}
    idle, rows = idle_waits(
        {key: (units[key], cause, time[key].ns) for key, cause in causes.items()}, lives,
        lambda _unit, cause: cause.always_idle, lambda _unit, cause: bool(cause.idle),
    )  # fmt: skip
    runnable = {key: spent for key, spent in time.items() if key not in causes and key[1] != RUNS}
    waits = {(-1 - key[0], key[2], 0): (cause, time[key]) for key, cause in causes.items() if key not in idle}
    sums = Goroutines(
        0, 0, sum(spent.ns for key, spent in time.items() if key[1] == RUNS),
        sum(spent.ns for spent in runnable.values()), sum(time[key].ns for key in causes), sum(row[2] for row in rows),
    )  # fmt: skip
    return sums, runnable, waits, [(f"{label} (goroutines)", count, ns) for label, count, ns in rows]
