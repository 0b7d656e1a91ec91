"""The difference of two snapshots, key by key: of two moments of one run, or of two runs."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.render.value_kind import Change
from pytrace.render.values import value_kind_of
from pytrace.results import external_sort
from pytrace.results.findings import Stacks, changes, same_function
from pytrace.results.merge import common_type
from pytrace.results.snapshot import Frame, MapData, Portable, Run, SnapshotData, StackTrace, Value
from pytrace.results.stack_samples import is_profile, members_of, unlike

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison


class ManyChanges(Mapping[Portable, Change]):
    """The changes of maps that are not held in memory: found anew each time that they are gone through.

    The entries of both maps are parted by key into temporary files, and compared part by part.
    """

    def __init__(self, before: Mapping[Portable, Value], after: Mapping[Portable, Value], key: types.Type,
                 sides: tuple[types.Type, types.Type], value: types.Type) -> None:  # fmt: skip
        self._before, self._after = before, after
        self._entry_types = [types.Tuple((types.INT64, key, side)) for side in sides]
        self._type = types.Tuple((types.INT64, types.INT64, key, value, value))
        self._delta = value_kind_of(value).change()

    def in_order(
        self, order: Callable[[Portable, Change], SupportsRichComparison]
    ) -> Iterator[tuple[Portable, Change]]:
        """The changes ordered by *order*; those that it does not tell apart as in the two maps."""

        def key(row: external_sort.Row) -> SupportsRichComparison:
            return (order(*self._change(row)), row[0])

        for batch in external_sort.in_order(self._rows(), key, self._type):
            yield from map(self._change, batch)

    def _change(self, row: external_sort.Row) -> tuple[Portable, Change]:
        _, sides, key, was, is_ = row
        before, after = (None if sides == _ADDED else was), (None if sides == _REMOVED else is_)
        return cast("Portable", key), Change(before, after, *self._delta(before, after))

    def _rows(self) -> Iterator[external_sort.Row]:
        """The changes, with their place among the keys of both maps, the sides that there are, and both values."""
        number = min(_MOST_PARTS, (len(self._before) + len(self._after)) // external_sort.RUN + 1)

        def part(row: external_sort.Row) -> int:
            return hash(row[1]) % number

        first = ((place, *item) for place, item in enumerate(self._before.items()))
        second = ((place, *item) for place, item in enumerate(self._after.items(), len(self._before)))
        one, other = self._entry_types
        with (
            external_sort.parted(first, part, number, one) as old_parts,
            external_sort.parted(second, part, number, other) as new_parts,
        ):
            for old_part, new_part in zip(old_parts, new_parts, strict=True):
                old = {key: (place, value) for place, key, value in old_part.rows()}
                for place, key, is_ in new_part.rows():
                    if (entry := old.pop(key, None)) is None:
                        yield (place, _ADDED, key, is_, is_)
                    elif _differ(entry[1], is_):
                        yield (entry[0], _CHANGED, key, entry[1], is_)
                for key, (place, was) in old.items():
                    yield (place, _REMOVED, key, was, was)

    def __bool__(self) -> bool:
        if len(self._before) != len(self._after):
            return True
        # Two states of one run mostly have their keys in one order.
        for (old, was), (new, is_) in zip(self._before.items(), self._after.items(), strict=True):
            if old != new:
                return any(True for _ in self._rows())
            if _differ(was, is_):
                return True
        return False

    def __len__(self) -> int:
        return sum(1 for _ in self._rows())

    def __iter__(self) -> Iterator[Portable]:
        return (key for key, _ in self.items())

    def items(self) -> ItemsView[Portable, Change]:
        return _Items(self)

    def __getitem__(self, key: Portable) -> Change:
        was, is_ = self._before.get(key), self._after.get(key)
        if not _differ(was, is_):
            raise KeyError(key)
        return Change(was, is_, *self._delta(was, is_))


class _Items(ItemsView[Portable, Change]):
    _mapping: ManyChanges

    def __iter__(self) -> Iterator[tuple[Portable, Change]]:
        return self._mapping.in_order(lambda _key, _change: 0)


_CHANGED, _ADDED, _REMOVED = range(3)
"""What became of a key."""
_MOST_PARTS = 64
"""Of the temporary files of one map."""


class MapDifference(msgspec.Struct, frozen=True):
    """The keys of a map that differ."""

    name: str
    key: types.Type | None
    value: types.Type
    """The type of both sides."""
    changes: Mapping[Portable, Change]
    """Keys in the order of the two maps, first those of the earlier one."""
    mark: str = ""
    """That of either side."""
    found: tuple[str, ...] = ()
    """Of numbers by stack: how keys were matched, totals, and the functions that changed most."""


class Difference(msgspec.Struct, frozen=True):
    """The difference of two snapshots."""

    before: tuple[Run, ...]
    after: tuple[Run, ...]
    maps: dict[str, MapDifference]
    """Without maps that did not change."""
    losses: dict[str, dict[str, int]]
    """As those of snapshots, after less before."""
    rows: bool = False
    """Either has rows, which are not compared."""

    def signed(self) -> SnapshotData:
        """The changes of numbers and histograms as a snapshot, whose counts may be negative.

        Formats take such a snapshot: stacks with signed counts are a differential flame graph.
        """
        maps = {}
        for name, part in self.maps.items():
            type_ = value_kind_of(part.value).signed()
            if type_ is not None:
                entries: dict[Portable, Value] = {
                    key: change.delta for key, change in part.changes.items() if change.delta is not None
                }
                maps[name] = MapData(name, part.key, type_, entries, mark=part.mark)
        return SnapshotData(self.after, maps, (), self.losses)


def difference(
    before: SnapshotData, after: SnapshotData, names: tuple[str, str] = ("", ""), *, by_function: bool = False
) -> Difference:
    """The difference of two snapshots.

    Args:
        before: the earlier state, or the run to compare with.
        after: the later one.
        names: what messages call the two, files for example.
        by_function: stacks of different runs are matched by the names of functions and of their files, as of one
            program in another folder or version, and without members of keys that have nothing in common.

    Raises:
        TraceError: keys or values of a map are not comparable.
    """
    one, other = (name or item.title for name, item in zip(names, (before, after), strict=True))
    maps = {}
    for name in sorted({*before.maps, *after.maps}):
        old, new = before.maps.get(name), after.maps.get(name)
        found: tuple[str, ...] = ()
        if by_function and after.runs and old is not None and new is not None and is_profile(old) and is_profile(new):
            found = tuple(changes(Stacks(new, after.runs[-1], old)))
            if {run.identity for run in before.runs}.isdisjoint(run.identity for run in after.runs):
                old, new, note = _by_function(old, new)
                found = (note, *found)
        change = _map(name, (old, one), (new, other))
        if found:
            change = replace(change, found=found)
        if change.changes:
            maps[name] = change
    rows = bool(before.tables or after.tables)
    return Difference(before.runs, after.runs, maps, _losses(before.losses, after.losses), rows)


def _by_function(before: MapData, after: MapData) -> tuple[MapData, MapData, str]:
    """Maps of two runs with keys that both may have, and a sentence on what was left out."""
    if before.key != after.key or any(external_sort.is_large(side.entries) for side in (before, after)):
        return before, after, "stacks are matched as they are"
    key = after.key
    assert key is not None
    columns = after.key_columns
    stacks = [isinstance(column.type, types.Stack) for column in columns]
    members = [[list(members_of(key, entry)) for entry in side.entries] for side in (before, after)]
    labels = [at for at, stack in enumerate(stacks) if not stack]
    other = {
        labels[number]
        for number in unlike(*[[tuple(entry[at] for at in labels) for entry in side] for side in members])
    }  # fmt: skip
    kept = [at for at in range(len(columns)) if at not in other]
    # On one line, by the names of functions.
    kinds = tuple(
        replace(column.type, mode=types.StackMode.FOLDED) if isinstance(column.type, types.Stack) else column.type
        for column in columns
    )
    type_ = kinds[kept[0]] if len(kept) == 1 else types.Tuple(tuple(kinds[at] for at in kept))
    join = value_kind_of(after.value).join()
    sides = []
    for data, entries in zip((before, after), members, strict=True):
        joined: dict[Portable, Value] = {}
        for entry, value in zip(entries, data.entries.values(), strict=True):
            parts = tuple(_plain(entry[at]) for at in kept)
            name = parts[0] if len(kept) == 1 else parts
            joined[name] = join(joined[name], value) if name in joined else value
        sides.append(replace(data, key=type_, entries=joined, key_names=()))
    left_out = ", ".join(after.key_titles[at] for at in sorted(other))
    note = "stacks are matched by the names of functions and files"
    return sides[0], sides[1], f"{note}, without {left_out}, of which nothing is in common" if left_out else note


def _plain(member: Portable) -> Portable:
    """A stack with the names of its functions and files alone."""
    if not isinstance(member, StackTrace):
        return member
    return member._replace(frames=tuple(Frame(name, 0, module) for name, module in map(same_function, member.frames)))


def _map(name: str, first: tuple[MapData | None, str], second: tuple[MapData | None, str]) -> MapDifference:
    (before, here), (after, there) = first, second
    only = before or after
    assert only is not None
    key, value = only.key, only.value
    if before is not None and after is not None:
        if before.key is not None or after.key is not None:
            key = common_type(f"map {name}: keys", "compared", (before.key, after.key), (here, there))
        value = common_type(f"map {name}: values", "compared", (before.value, after.value), (here, there))
    old: Mapping[Portable, Value] = before.entries if before is not None else {}
    new: Mapping[Portable, Value] = after.entries if after is not None else {}
    mark = max(data.mark for data in (before, after) if data is not None)
    if key is not None and any(map(external_sort.is_large, (old, new))):
        sides = (before or only).value, (after or only).value
        return MapDifference(name, key, value, ManyChanges(old, new, key, sides, value), mark)
    change, changes = value_kind_of(value).change(), {}
    for item in {**old, **new}:
        was, is_ = old.get(item), new.get(item)
        if _differ(was, is_):
            changes[item] = Change(was, is_, *change(was, is_))
    return MapDifference(name, key, value, changes, mark)


def _differ(was: Value | None, is_: Value | None) -> bool:
    # NaN is the same object in both, but equal to nothing.
    return was is not is_ and was != is_


def _losses(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    changes: dict[str, dict[str, int]] = {}
    for kind in sorted({*before, *after}):
        old, new = before.get(kind, {}), after.get(kind, {})
        changed = {name: new.get(name, 0) - old.get(name, 0) for name in sorted({*old, *new})}
        if kept := {name: count for name, count in changed.items() if count}:
            changes[kind] = kept
    return changes
