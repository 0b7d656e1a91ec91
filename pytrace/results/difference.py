"""The difference of two snapshots, key by key: of two moments of one run, or of two runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Never, TypeAlias, cast

import msgspec

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated
from pytrace.render import percpu_merge
from pytrace.render.percpu_merge import Merging
from pytrace.render.value_types import merging_of
from pytrace.results import type_union
from pytrace.results.snapshot import MapData, Run, SnapshotData
from pytrace.results.values import Counts, Pair, Portable, Series, Value

Delta: TypeAlias = int | Pair | Counts
"""A difference of two values."""


class Change(msgspec.Struct, frozen=True):
    """The change of one key. At least one of the two values exists; they differ."""

    before: Value | None
    """None: the key was added."""
    after: Value | None
    """None: the key was removed."""
    delta: Delta | None
    """After less before, signed, and not wrapped; a missing key counts as nothing. Of avg and stats both numbers, of
    histograms the buckets that differ, of time series the intervals (their values, as they print). None for what is no
    number, and for min and max where a value is missing."""
    size: int
    """The size of the change, never negative; 0 for values that are no numbers."""


class MapDifference(msgspec.Struct, frozen=True):
    """The keys of a map that differ."""

    name: str
    key: types.Type | None
    value: types.Type
    """The type of both sides."""
    changes: dict[Portable, Change]
    """In no order."""
    mark: str = ""
    """That of either side."""


class Difference(msgspec.Struct, frozen=True):
    """The difference of two snapshots."""

    before: tuple[Run, ...]
    after: tuple[Run, ...]
    maps: dict[str, MapDifference]
    """Without maps that did not change."""
    losses: dict[str, dict[str, int]]
    """As those of snapshots, after less before."""

    def signed(self) -> SnapshotData:
        """The changes of numbers and histograms as a snapshot, whose counts may be negative.

        Formats take such a snapshot: stacks with signed counts are a differential flame graph.
        """
        maps = {}
        for name, part in self.maps.items():
            type_ = _SIGNED.get(merging_of(part.value))
            if type_ is not None:
                entries: dict[Portable, Value] = {
                    key: change.delta for key, change in part.changes.items() if change.delta is not None
                }
                maps[name] = MapData(name, part.key, type_(part.value), entries, mark=part.mark)
        return SnapshotData(self.after, maps, (), self.losses)


def difference(before: SnapshotData, after: SnapshotData, names: tuple[str, str] = ("", "")) -> Difference:
    """The difference of two snapshots.

    Args:
        before: the earlier state, or the run to compare with.
        after: the later one.
        names: what messages call the two, files for example.

    Raises:
        TraceError: keys or values of a map are not comparable.
    """
    one, other = (name or item.title for name, item in zip(names, (before, after), strict=True))
    maps = {}
    for name in sorted({*before.maps, *after.maps}):
        change = _map(name, (before.maps.get(name), one), (after.maps.get(name), other))
        if change.changes:
            maps[name] = change
    return Difference(before.runs, after.runs, maps, _losses(before.losses, after.losses))


def _map(name: str, first: tuple[MapData | None, str], second: tuple[MapData | None, str]) -> MapDifference:
    (before, here), (after, there) = first, second
    only = before or after
    assert only is not None
    key, value = only.key, only.value
    if before is not None and after is not None:
        if before.key is not None or after.key is not None:
            key = type_union.common(f"map {name}: keys", "compared", (before.key, after.key), (here, there))
        value = type_union.common(f"map {name}: values", "compared", (before.value, after.value), (here, there))
    old: Mapping[Portable, Value] = before.entries if before is not None else {}
    new: Mapping[Portable, Value] = after.entries if after is not None else {}
    subtract = cast("Subtract", _ROWS.get(merging_of(value), _unlike)(value))
    changes = {}
    for item in {**old, **new}:
        was, is_ = old.get(item), new.get(item)
        # NaN is the same object in both, but equal to nothing.
        if was is not is_ and was != is_:
            delta, size = subtract(was, is_)
            changes[item] = Change(was, is_, delta, size)
    mark = max(data.mark for data in (before, after) if data is not None)
    return MapDifference(name, key, value, changes, mark)


def _losses(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    changes: dict[str, dict[str, int]] = {}
    for kind in sorted({*before, *after}):
        old, new = before.get(kind, {}), after.get(kind, {})
        changed = {name: new.get(name, 0) - old.get(name, 0) for name in sorted({*old, *new})}
        if kept := {name: count for name, count in changed.items() if count}:
            changes[kind] = kept
    return changes


# ---------------------------------------------------------------------------------------------- rows

Subtract: TypeAlias = "Callable[[Value | None, Value | None], tuple[Delta | None, int]]"
"""The delta of two values, of which one may be None, and its size."""
_Row: TypeAlias = Callable[[Never, Never], tuple[Delta | None, int]]
"""The same for values of one type."""


def average(value: Pair | None) -> int:
    """The average of an avg or stats value, rounded towards zero; 0 for none."""
    return truncated(*(value or (0, 0)))


def series_values(type_: types.TSeries, value: Series | None) -> Counts:
    """The values of the intervals of a time series, as they print."""
    if type_.reduce == "avg":
        return {number: average(item) for number, item in (value or {}).items()}
    return {number: item for number, (item, _) in (value or {}).items()}


def _unlike(_type: types.Type) -> _Row:
    return lambda _was, _is: (None, 0)


def _numbers(_type: types.Type) -> _Row:
    def subtract(was: int | None, is_: int | None) -> tuple[int, int]:
        delta = (is_ or 0) - (was or 0)
        return delta, abs(delta)

    return subtract


def _extremes(_type: types.Type) -> _Row:
    def subtract(was: int | None, is_: int | None) -> tuple[int | None, int]:
        if was is None or is_ is None:
            return None, abs(was or is_ or 0)
        return is_ - was, abs(is_ - was)

    return subtract


def _pairs(_type: types.Type) -> _Row:
    def subtract(was: Pair | None, is_: Pair | None) -> tuple[Pair, int]:
        old, new = was or (0, 0), is_ or (0, 0)
        return (new[0] - old[0], new[1] - old[1]), abs(average(is_) - average(was))

    return subtract


def _less(new: Counts, old: Counts) -> tuple[Counts, int]:
    every = {number: new.get(number, 0) - old.get(number, 0) for number in sorted({*old, *new})}
    delta = {number: value for number, value in every.items() if value}
    return delta, sum(map(abs, delta.values()))


def _buckets(_type: types.Type) -> _Row:
    def subtract(was: Counts | None, is_: Counts | None) -> tuple[Counts, int]:
        return _less(is_ or {}, was or {})

    return subtract


def _series(type_: types.Type) -> _Row:
    assert isinstance(type_, types.TSeries)

    def subtract(was: Series | None, is_: Series | None) -> tuple[Counts, int]:
        return _less(series_values(type_, is_), series_values(type_, was))

    return subtract


_ROWS: dict[Merging, Callable[[types.Type], _Row]] = {
    percpu_merge.NUMBER: _numbers,
    percpu_merge.SUM: _numbers,
    percpu_merge.MEAN: _pairs,
    percpu_merge.LEAST: _extremes,
    percpu_merge.GREATEST: _extremes,
    percpu_merge.BUCKETS: _buckets,
    percpu_merge.SERIES: _series,
}
"""Values whose changes have a size."""

_SIGNED: dict[Merging, Callable[[types.Type], types.Type]] = {
    percpu_merge.NUMBER: lambda _type: types.INT64,
    percpu_merge.SUM: lambda _type: types.Sum(True),
    percpu_merge.BUCKETS: percpu_merge.itself,
}
"""The types of deltas that are values themselves."""
