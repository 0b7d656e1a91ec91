"""The answer of many hosts: snapshots merged as they come, in memory bounded by the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Array, Record, Tuple, Type
from pytrace.remote import top_keys
from pytrace.results.joining import joiner
from pytrace.results.merge import merge
from pytrace.results.snapshot import MapData, SnapshotData, Table
from pytrace.results.values import Portable, Value

WIDTH = 8
"""Snapshots that are merged at once: of N hosts, each entry is merged log(N) times."""

LABEL = 128
"""Capacity of labels in keys."""


class Answer:
    """Merges snapshots: each is added once, when its host has nothing more to say.

    *label* returns the label of a host, which the keys of maps then begin with, and the rows of tables; None: merged.
    *named* is applied to each snapshot before: it puts names in place of what only one host can resolve.
    """

    def __init__(
        self, label: Callable[[str], str] | None, name: str = "host",
        named: Callable[[SnapshotData], SnapshotData] | None = None, most: int = top_keys.MOST_KEYS,
    ) -> None:  # fmt: skip
        """*most*: entries of a map that are held of any number of merged snapshots, the largest ones."""
        self._label, self._name, self._named, self._most = label, name, named, most
        self._levels: list[list[SnapshotData]] = []
        self._shape = SnapshotData(())
        """All maps without entries, which says whether another snapshot fits."""
        self._seen: set[str] = set()
        """Identities of all runs."""
        self._texts: dict[str, str] = {}
        """Scripts: of ten thousand hosts, most have the same text."""

    def add(self, host: str, snapshot: SnapshotData, *, merged: bool = False) -> None:
        """Add what a host has; *merged*: what a gateway has merged, with labels.

        Raises:
            TraceError: its maps have other keys or values than those of the hosts before, or one of these holds the
                same run; nothing is added.
        """
        identities = [run.identity for run in snapshot.runs]
        if self._seen.intersection(identities):
            raise TraceError(f"another host and {host} hold the same run, whose counts would be added twice")
        if self._named is not None:
            snapshot = self._named(snapshot)
        if self._label is not None and not merged:
            snapshot = labelled(snapshot, self._name, self._label(host))
        self._shape = merge([self._shape, _empty(snapshot)], ["the other hosts", host])
        self._seen.update(identities)
        runs = tuple(replace(run, text=self._texts.setdefault(run.text, run.text)) for run in snapshot.runs)
        snapshot = replace(snapshot, runs=runs)
        level = 0
        while True:
            if level == len(self._levels):
                self._levels.append([])
            here = self._levels[level]
            here.append(snapshot)
            if len(here) < WIDTH:
                return
            snapshot = top_keys.trimmed(merge(here), self._most)
            here.clear()
            level += 1

    def result(self) -> SnapshotData:
        """All that was added, as one snapshot."""
        whole = merge([snapshot for level in self._levels for snapshot in level])
        return top_keys.trimmed(whole, self._most)

    def copy(self) -> Answer:
        """An answer that others can be added to. Snapshots are not changed by merging, so both may have them."""
        other = Answer(self._label, self._name, self._named, self._most)
        other._levels = [list(level) for level in self._levels]
        other._shape, other._seen, other._texts = self._shape, set(self._seen), dict(self._texts)
        return other


def _empty(snapshot: SnapshotData) -> SnapshotData:
    maps = {name: MapData(name, data.key, data.value) for name, data in snapshot.maps.items()}
    return SnapshotData((), maps)


def labelled(snapshot: SnapshotData, name: str, label: str) -> SnapshotData:
    """A snapshot whose keys begin with a label, and whose rows have it as first column, of the *name*."""
    maps = {data.name: _labelled_map(data, name, label) for data in snapshot.maps.values()}
    tables = tuple(_labelled_table(table, name, label) for table in snapshot.tables)
    losses = {kind: _labelled_losses(kind, counts, label) for kind, counts in snapshot.losses.items()}
    return replace(snapshot, maps=maps, tables=tables, losses=losses)


def _labelled_losses(kind: str, counts: dict[str, int], label: str) -> dict[str, int]:
    """Losses with the label before what they concern, but for those of the answer as a whole."""
    if kind in (top_keys.LEFT_OUT, top_keys.BOUND):
        return counts
    return {f"{label}: {subject}" if subject else label: count for subject, count in counts.items()}


def _labelled_map(data: MapData, name: str, label: str) -> MapData:
    of_tuple = isinstance(data.key, Tuple)
    own: tuple[Type, ...] = () if data.key is None else (data.key,)
    if isinstance(data.key, Tuple):
        own = data.key.members

    def key_of(key: Portable) -> Portable:
        if of_tuple and isinstance(key, tuple):
            return (label, *key)
        return (label, key) if own else label

    text = types.String(LABEL)
    entries = {key_of(key): value for key, value in data.entries.items()}
    times = None if data.times is None else {key_of(key): time for key, time in data.times.items()}
    return replace(
        data, key=Tuple((text, *own)) if own else text, entries=entries, times=times, label=name,
        estimated=(label,) if data.mark else (),
    )  # fmt: skip


def _labelled_table(table: Table, name: str, label: str) -> Table:
    while name in table.type.names:
        name += "_"
    record = Record((name, *table.type.names), (types.String(LABEL), *table.type.members))
    rows = {run: [(label, *row) for row in rows] for run, rows in table.rows.items()}
    return replace(table, type=record, rows=rows)


def renamed(
    snapshot: SnapshotData, wanted: Callable[[Type | None], bool], leaf: Callable[[Type | None, object], object]
) -> SnapshotData:
    """A snapshot with other leaves (:func:`changed`) where a type is *wanted*; keys that become equal are joined."""
    maps = {
        name: _renamed_map(data, leaf) if wanted(data.key) or wanted(data.value) else data
        for name, data in snapshot.maps.items()
    }
    tables = tuple(_renamed_table(table, leaf) if wanted(table.type) else table for table in snapshot.tables)
    return replace(snapshot, maps=maps, tables=tables)


def _renamed_map(data: MapData, leaf: Callable[[Type | None, object], object]) -> MapData:
    join, entries, times = joiner(data.value), dict[Portable, Value](), dict[Portable, int]()
    for key, value in data.entries.items():
        other = changed(data.key, key, leaf)
        entries[other] = join(entries.get(other), changed(data.value, value, leaf))
    for key, time in (data.times or {}).items():
        other = changed(data.key, key, leaf)
        times[other] = max(times.get(other, 0), time)
    return replace(data, entries=entries, times=None if data.times is None else times)


def _renamed_table(table: Table, leaf: Callable[[Type | None, object], object]) -> Table:
    rows = {run: [changed(table.type, row, leaf) for row in rows] for run, rows in table.rows.items()}
    return replace(table, rows=rows)


def leaf_types(type_: Type | None) -> Iterator[Type]:
    """The types with which :func:`changed` calls its *leaf*."""
    match type_:
        case Tuple() | Record():
            for member in type_.members:
                yield from leaf_types(member)
        case Array():
            yield from leaf_types(type_.element)
        case Type():
            yield type_


def changed(type_: Type | None, value: Any, leaf: Callable[[Type | None, Any], Any]) -> Any:
    """A value with other leaves: *leaf* is called with type and value of each, in tuples, records and arrays."""
    match type_:
        case Tuple() | Record():
            return tuple(changed(member, each, leaf) for member, each in zip(type_.members, value, strict=True))
        case Array():
            return tuple(changed(type_.element, each, leaf) for each in value)
        case _:
            return leaf(type_, value)
