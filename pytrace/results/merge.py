"""Merging snapshots of several runs to what one run that saw everything would have."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from itertools import chain
from operator import itemgetter
from typing import cast

from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Tuple, Type
from pytrace.render.value_kind import Join, MismatchError
from pytrace.render.values import joined_types, value_kind_of
from pytrace.results import external_sort
from pytrace.results.snapshot import MapData, Portable, Run, SnapshotData, Table, Value


def merge(snapshots: Iterable[SnapshotData], names: Sequence[str] = ()) -> SnapshotData:
    """One snapshot of all runs. Commutative and associative, and none of *snapshots* is changed.

    Aggregations join exactly, as if one map had aggregated everything (sums wrap at 64 bits). Of other values the one
    of the snapshot that ended last stays, of several that ended at the same time the greater one. Losses add up, tables
    keep the rows of each run in the order of their arrival.

    Args:
        snapshots: any number, of different runs.
        names: what messages call them, files for example; without it their scripts and hosts.

    Raises:
        TraceError: a run occurs in two of them, or the keys or values of a map cannot stand in one map.
    """
    items = list(snapshots)
    labels = [names[number] if number < len(names) else item.title for number, item in enumerate(items)]
    runs = _runs(items, labels)
    maps: dict[str, list[tuple[SnapshotData, MapData, str]]] = {}
    for item, label in zip(items, labels, strict=True):
        for name, data in item.maps.items():
            maps.setdefault(name, []).append((item, data, label))
    return SnapshotData(
        runs,
        {name: _merge_map(name, parts) for name, parts in sorted(maps.items())},
        _merge_tables(items, runs),
        _merge_losses(item.losses for item in items),
        costs={run: cost for item in items for run, cost in item.costs.items()},
    )


def _runs(snapshots: Sequence[SnapshotData], labels: Sequence[str]) -> tuple[Run, ...]:
    seen: dict[str, str] = {}
    runs: list[Run] = []
    for snapshot, label in zip(snapshots, labels, strict=True):
        for run in snapshot.runs:
            if run.identity in seen:
                raise TraceError(
                    f"{seen[run.identity]} and {label} hold the same run ({run.script} on {run.host}), "
                    "whose counts would be added twice",
                    hints=("pytrace diff shows what changed between two states of a run; merge the later one",),
                )
            seen[run.identity] = label
            runs.append(run)
    return tuple(sorted(runs, key=lambda run: (run.start, run.identity)))


# ---------------------------------------------------------------------------------------------- maps


def _merge_map(name: str, parts: Sequence[tuple[SnapshotData, MapData, str]]) -> MapData:
    first, first_label = parts[0][1], parts[0][2]
    key, value = first.key, first.value
    for _, data, label in parts[1:]:
        labels = first_label, label
        if key is not None or data.key is not None:
            key = common_type(f"map {name}: keys", "merged", (key, data.key), labels)
        value = common_type(f"map {name}: values", "merged", (value, data.value), labels)
    help_ = max(data.help for _, data, _ in parts)
    # The weaker promise: a sample, an estimate, nothing.
    mark = max(data.mark for _, data, _ in parts)
    hidden = all(data.hidden for _, data, _ in parts)
    names = {data.label for _, data, _ in parts}
    estimated = tuple(sorted({host for _, data, _ in parts for host in data.estimated}))
    entries: dict[Portable, Value] = {}
    times: dict[Portable, int] | None = None
    join = value_kind_of(value).join()
    many = _many(key, value, [data.entries for _, data, _ in parts])
    if value.aggregate and many is None:
        for _, data, _ in parts:
            for entry, item in data.entries.items():
                entries[entry] = join(entries.get(entry), item)
    elif many is None:
        times = {}
        for snapshot, data, _ in parts:
            _join_plain(entries, times, data, snapshot.end, join)
    label = names.pop() if len(names) == 1 else ""
    key_names = max((data.key_names for _, data, _ in parts), key=lambda names: sum(map(bool, names)))
    return MapData(name, key, value, many or entries, times, help_, mark, hidden, label, estimated, key_names)


_IN_MEMORY = 4
"""Sorted runs that entries may have before they are joined in files, which takes four times as long."""
_MOST_PARTS = 64
"""Of the temporary files of one map."""


def _many(key: Type | None, value: Type, sides: Sequence[Mapping[Portable, Value]]) -> ManyEntries | None:
    """The entries of maps in files, where they are too many for memory."""
    large = any(map(external_sort.is_large, sides)) and sum(map(len, sides)) > _IN_MEMORY * external_sort.RUN
    return ManyEntries(sides, key, value) if large and key is not None and value.aggregate else None


class ManyEntries(Mapping[Portable, Value]):
    """Aggregates of maps that are not held in memory, joined anew each time that they are gone through.

    The entries of all maps are parted by key into temporary files, and joined part by part.
    """

    def __init__(self, sides: Sequence[Mapping[Portable, Value]], key: Type, value: Type) -> None:
        self._sides = sides
        self._type = Tuple((types.INT64, key, value))
        self._join = value_kind_of(value).join()

    def pairs(self) -> Iterator[tuple[Portable, Value]]:
        """Keys and values, in the order of the maps: neighbours are alike, which makes files small."""
        for batch in external_sort.in_order(self._rows(), itemgetter(0), self._type):
            for _, key, value in batch:
                yield cast("Portable", key), value

    def _rows(self) -> Iterator[external_sort.Row]:
        """The joined entries, each with the place at which its key is met first."""
        number = min(_MOST_PARTS, sum(map(len, self._sides)) // external_sort.RUN + 1)
        entries = enumerate(chain.from_iterable(side.items() for side in self._sides))
        rows = ((place, *entry) for place, entry in entries)
        with external_sort.parted(rows, lambda row: hash(row[1]) % number, number, self._type) as parts:
            for part in parts:
                joined: dict[Value, tuple[Value, Value]] = {}
                for place, key, value in part.rows():
                    first, before = joined.get(key, (place, None))
                    joined[key] = first, self._join(before, value)
                yield from ((place, key, value) for key, (place, value) in joined.items())

    def items(self) -> ItemsView[Portable, Value]:
        return _Items(self)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Portable]:
        return (key for key, _ in self.pairs())

    def __len__(self) -> int:
        return sum(1 for _ in self.pairs())

    def __getitem__(self, key: Portable) -> Value:
        held = [side[key] for side in self._sides if key in side]
        if not held:
            raise KeyError(key)
        none: Value = None
        return reduce(self._join, held, none)


class _Items(ItemsView[Portable, Value]):
    _mapping: ManyEntries

    def __iter__(self) -> Iterator[tuple[Portable, Value]]:
        return self._mapping.pairs()


def _join_plain(
    into: dict[Portable, Value], times: dict[Portable, int], data: MapData, end: int, join: Join[Value]
) -> None:
    """Take the last value of each key, by the end of the snapshot that it comes from."""
    own: Mapping[Portable, int] = data.times or {}
    for key, value in data.entries.items():
        time = own.get(key, end)
        known = times.get(key)
        if known is None or time > known:
            into[key] = value
            times[key] = time
        elif time == known:
            into[key] = join(into[key], value)


# ---------------------------------------------------------------------------------------------- tables, losses


def _merge_tables(snapshots: Iterable[SnapshotData], runs: Sequence[Run]) -> tuple[Table, ...]:
    """Tables of one shape become one; rows are those of each run, runs in their order."""
    merged: list[Table] = []
    for table in (table for snapshot in snapshots for table in snapshot.tables):
        for known in merged:
            try:
                type_ = joined_types(known.type, table.type)
            except MismatchError:
                continue
            assert isinstance(type_, types.Record)
            known.type = type_
            known.dropped += table.dropped
            known.number = min(known.number, table.number)
            known.rows = {**known.rows, **{run: [*known.rows.get(run, ()), *rows] for run, rows in table.rows.items()}}
            break
        else:
            merged.append(replace(table, rows={run: list(rows) for run, rows in table.rows.items()}))
    order = [run.identity for run in runs]
    for table in merged:
        table.rows = {run: table.rows[run] for run in order if run in table.rows}
    return tuple(sorted(merged, key=lambda table: (table.number, table.type.names, described(table.type))))


def _merge_losses(losses: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    merged: dict[str, dict[str, int]] = {}
    for run_losses in losses:
        for kind, subjects in run_losses.items():
            counts = merged.setdefault(kind, {})
            for subject, count in subjects.items():
                counts[subject] = counts.get(subject, 0) + count
    return merged


# ---------------------------------------------------------------------------------------------- types


def common_type(subject: str, verb: str, pair: tuple[Type | None, Type | None], labels: tuple[str, str]) -> Type:
    """The type of values of both (:func:`joined_types`), with a message for users.

    Args:
        subject: a part of the snapshots, for the message.
        verb: the operation (``merged``).
        pair: the types; None is that of the keys of a map without keys.
        labels: names of the two snapshots for the message.

    Raises:
        TraceError: values of the two cannot stand in one map.
    """
    first, second = pair
    if first is not None and second is not None:
        with suppress(MismatchError):
            return joined_types(first, second)
    one, other = (f"{described(type_)} in {label}" for type_, label in zip(pair, labels, strict=True))
    raise TraceError(f"{subject} differ and cannot be {verb}: {one}, {other}")


def described(type_: Type | None) -> str:
    """The type of keys or values for a message; None is that of the keys of a map without keys."""
    return "no key" if type_ is None else value_kind_of(type_).described()
