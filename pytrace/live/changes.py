"""What a map gained between two snapshots: rates of numbers, and counts of buckets."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.core import types
from pytrace.results.snapshot import Portable, Value

NUMBERS = (types.Int, types.Count, types.Sum, types.Avg, types.Stats, types.Min, types.Max)
"""Values that are one number, or a total and a count."""
_CHANGING = (types.Int, types.Count, types.Sum, types.Avg, types.Stats)
"""Those of :data:`NUMBERS` whose change in time says something."""
GROWING = (types.Count, types.Sum, types.Avg, types.Stats)
"""Those that add up what happens."""


def rates(
    type_: types.Type,
    before: Mapping[Portable, Value],
    after: Mapping[Portable, Value],
    seconds: float,
    *,
    whole: bool,
) -> dict[Portable, float]:
    """What each value of *after* gained per second; of averages and statistics the count.

    A sum that became less was cleared in between, and has gained all that it is. *whole*: *before* has all keys of its
    moment, so that those that it lacks are new; otherwise nothing is known of these.
    """
    if seconds <= 0 or not isinstance(type_, _CHANGING):
        return {}
    adds = isinstance(type_, types.SUMS)
    found: dict[Portable, float] = {}
    for key, value in after.items():
        was = before.get(key)
        if was is None and not (whole and adds):
            continue
        new, old = number(value), 0 if was is None else number(was)
        found[key] = (new if adds and new < old and not _signed(type_) else new - old) / seconds
    return found


def _signed(type_: types.Type) -> bool:
    return isinstance(type_, types.Sum) and type_.signed


def number(value: Value) -> int:
    """The number that grows: of a total and its count the count."""
    chosen = value[1] if isinstance(value, tuple) and len(value) == 2 else value
    return chosen if isinstance(chosen, int) else 0


def counts(value: Value | None) -> dict[int, int]:
    """The buckets of a histogram that are not empty."""
    items = value.items() if isinstance(value, dict) else ()
    return {number: count for number, count in items if isinstance(count, int)}
