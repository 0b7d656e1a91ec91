"""A map at several moments: in snapshots of a run, or as the script printed it; and what was added between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from pytrace.core import types
from pytrace.results.merge import common_type
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.values import Pair, Portable, Value


class State(NamedTuple):
    """A map at one moment. Times are wall times, in nanoseconds."""

    start: int
    """Of the interval that ends with this state."""
    end: int
    data: MapData
    fresh: bool
    """True if nothing of the state before is in this one: another run, or the map was emptied."""


def of_snapshots(name: str, snapshots: Sequence[SnapshotData]) -> list[State]:
    """A map in each snapshot that has it, with the types that all have in common.

    Raises:
        TraceError: they have none.
    """
    versions = [(snapshot, at_end(name, snapshot)) for snapshot in snapshots if name in snapshot.maps]
    key, value = versions[0][1].key, versions[0][1].value
    for snapshot, data in versions[1:]:
        names = (snapshots[0].title, snapshot.title)
        value = common_type(f"map {name}: values", "shown together", (value, data.value), names)
        if key is not None or data.key is not None:
            key = common_type(f"map {name}: keys", "shown together", (key, data.key), names)
    states = []
    earlier: SnapshotData | None = None
    for snapshot, data in versions:
        known = earlier is not None and _identities(earlier) == _identities(snapshot)
        start = earlier.end if earlier is not None and known else snapshot.start
        states.append(State(start, snapshot.end, replace(data, key=key, value=value), not known))
        earlier = snapshot
    return states


def _identities(snapshot: SnapshotData) -> set[str]:
    return {run.identity for run in snapshot.runs}


def of_prints(name: str, snapshot: SnapshotData) -> list[State]:
    """A map as the script printed it during the run, if it did so more than once, and as it was at the end.

    Where older prints were not kept, the first one that was is not fresh.
    """
    prints = [item for item in snapshot.prints if item.map == name]
    if sum(item.time < snapshot.end for item in prints) < _SEVERAL:
        return []
    data = snapshot.maps[name]
    states, start, fresh = [], snapshot.start, prints[0].number == 1
    for item in prints:
        states.append(State(start, item.time, replace(data, entries=item.entries), fresh))
        start, fresh = item.time, item.cleared
    if data.entries and (fresh or data.entries != prints[-1].entries):
        # A print that ended the run is printed after its end.
        states.append(State(start, max(snapshot.end, start + _INSTANT), data, fresh))
    return states


_SEVERAL = 2
_INSTANT = 1_000_000
"""Nanoseconds: no interval is shorter."""


def at_end(name: str, snapshot: SnapshotData) -> MapData:
    """A map at the end of the run; one that the last print emptied, as it was printed."""
    data = snapshot.maps[name]
    prints = [item for item in snapshot.prints if item.map == name]
    return data if data.entries or not prints else replace(data, entries=prints[-1].entries)


# ---------------------------------------------------------------------------------------------- intervals

Change: TypeAlias = "Callable[[Value | None, Value | None], Value | None]"
"""From the values before and after an interval to that of the interval."""


def steps_of(states: Sequence[State], key: Portable, change: Change) -> list[Value | None]:
    """The change of a key's value since the state before; since nothing where the state is fresh.

    A first state that is not fresh is only what the next one is compared with.
    """
    changes = [change(None, states[0].data.entries.get(key)) if states[0].fresh else None]
    for before, after in pairwise(states):
        was = None if after.fresh else before.data.entries.get(key)
        changes.append(change(was, after.data.entries.get(key)))
    return changes


def number_added(was: Value | None, now: Value | None) -> Value | None:
    """The increase; a number that decreased was reset to 0 between."""
    if now is None:
        return None
    if isinstance(now, tuple):
        (total, count), (old_total, old_count) = pair(now), pair(was)
        # A count that became less was set back to 0 between.
        return now if count < old_count else (total - old_total, count - old_count)
    assert isinstance(now, int)
    old = was if isinstance(was, int) else 0
    return now - old if was is None or now >= old else now


def buckets_added(was: Value | None, now: Value | None) -> Value | None:
    """What a histogram counted since; one that has less than before was emptied between."""
    new: Mapping[int, object] = now if isinstance(now, dict) else {}
    old: Mapping[int, object] = was if isinstance(was, dict) else {}
    counts = {number: _whole(new.get(number)) - _whole(old.get(number)) for number in sorted({*new, *old})}
    if any(count < 0 for count in counts.values()):
        return {number: _whole(count) for number, count in new.items()}
    return {number: count for number, count in counts.items() if count}


def _whole(count: object) -> int:
    return count if isinstance(count, int) else 0


def pair(value: Value | None) -> Pair:
    """The total and count of an average or of statistics."""
    if not isinstance(value, tuple):
        return 0, 0
    total, count = value
    assert isinstance(total, int)
    assert isinstance(count, int)
    return total, count


def is_number(type_: types.Type) -> bool:
    """True for values that are numbers, or totals and counts."""
    return isinstance(type_, types.Int | types.Count | types.Sum | types.Avg | types.Stats | types.Min | types.Max)


def shown_names(snapshots: Sequence[SnapshotData]) -> list[str]:
    """The maps that a series in time shows: those with entries that the last snapshot of a run does not hide."""
    last = {tuple(run.identity for run in snapshot.runs): snapshot for snapshot in snapshots}
    hidden = [{name for name, data in snapshot.maps.items() if data.hidden} for snapshot in last.values()]
    names = sorted({name for snapshot in snapshots for name, data in snapshot.maps.items() if data.entries})
    shown = [name for name in names if not all(name in one for one in hidden)]
    return shown if shown or any(snapshot.tables for snapshot in last.values()) else names
