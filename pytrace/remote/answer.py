"""The answer of many hosts: snapshots merged as they come, in memory bounded by the answer.

Of maps that are too large to be sent or held the largest entries are kept, and by how much others may be wrong for it.
"""

from __future__ import annotations

import heapq
import operator
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError, counted
from pytrace.core.types import Array, Record, Tuple, Type
from pytrace.render.values import value_kind_of
from pytrace.results import file_form
from pytrace.results.merge import merge
from pytrace.results.snapshot import MapData, Portable, SnapshotData, Table, Value

WIDTH = 8
"""Snapshots that are merged at once: of N hosts, each entry is merged log(N) times."""

MOST_SHAPES = 8
"""Kinds of results that do not fit each other."""

LABEL = 128
"""Capacity of labels in keys."""

MOST_KEYS = 1_000_000
"""Entries of a map of an answer; of more, the largest."""


class _Shape(msgspec.Struct):
    """Hosts whose results fit each other."""

    types: SnapshotData
    """All maps without entries, which says whether another snapshot fits."""
    levels: list[list[SnapshotData]] = msgspec.field(default_factory=list)
    hosts: dict[str, int] = msgspec.field(default_factory=dict)
    """With the number of their runs."""

    @property
    def size(self) -> int:
        """The number of runs."""
        return sum(self.hosts.values())

    def copy(self) -> _Shape:
        """Another one, to which others can be added."""
        return _Shape(self.types, [list(level) for level in self.levels], dict(self.hosts))


class Answer:
    """Merges snapshots: each is added once, when its host has nothing more to say.

    *label* returns the label of a host, which the keys of maps then begin with, and the rows of tables; None: merged.
    *named* is applied to each snapshot before: it puts names in place of what only one host can resolve.

    Of results that do not fit each other, those of most hosts are the answer, whoever came first. (Where the controller
    knows the types of the script, :class:`pytrace.remote.host_results.Script` has left the others out before.)
    """

    def __init__(
        self, label: Callable[[str], str] | None, name: str = "host",
        named: Callable[[SnapshotData], SnapshotData] | None = None, most: int = MOST_KEYS,
    ) -> None:  # fmt: skip
        """*most*: entries of a map that are held of any number of merged snapshots, the largest ones."""
        self.label, self.name, self._named, self._most = label, name, named, most
        self._shapes: list[_Shape] = []
        self._seen: set[str] = set()
        """Identities of all runs."""
        self._texts: dict[str, str] = {}
        """Scripts: of ten thousand hosts, most have the same text."""

    def add(self, host: str, snapshot: SnapshotData, *, merged: bool = False) -> None:
        """Add what a host has; *merged*: what a gateway has merged, with labels.

        Raises:
            TraceError: its maps have keys or values of too many kinds beside those of the hosts before; nothing is
                added.
        """
        if self._seen.intersection(run.identity for run in snapshot.runs):
            # Identities are random. One of the two hosts has taken another's, and nobody can tell which: each keeps
            # its numbers, so that no host can have another left out.
            snapshot = self._renamed(host, snapshot)
        identities = [run.identity for run in snapshot.runs]
        if self._named is not None:
            snapshot = self._named(snapshot)
        if self.label is not None and not merged:
            snapshot = labelled(snapshot, self.name, self.label(host))
        shape = self._shape(host, snapshot)
        runs = tuple(replace(run, text=self._texts.setdefault(run.text, run.text)) for run in snapshot.runs)
        self._merge(shape, replace(snapshot, runs=runs))
        shape.hosts[host] = len(identities)
        self._seen.update(identities)

    def _renamed(self, host: str, snapshot: SnapshotData) -> SnapshotData:
        """A snapshot with other identities of its runs, which are the same each time."""
        names: dict[str, str] = {}
        for run in snapshot.runs:
            name = run.identity
            while name in self._seen or name in names.values():
                name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{host} {name}"))
            names[run.identity] = name
        return replace(
            snapshot,
            runs=tuple(replace(run, identity=names[run.identity]) for run in snapshot.runs),
            tables=tuple(
                replace(table, rows={names[run]: rows for run, rows in table.rows.items()}) for table in snapshot.tables
            ),
            costs={names[run]: cost for run, cost in snapshot.costs.items()},
        )

    def _shape(self, host: str, snapshot: SnapshotData) -> _Shape:
        """The hosts that a snapshot is merged with."""
        empty, failure = _empty(snapshot), None
        for shape in self._shapes:
            if shape.types.maps and empty.maps and shape.types.maps.keys() != empty.maps.keys():
                failure = failure or TraceError("it has other maps than the other hosts")
                continue
            try:
                shape.types = merge([shape.types, empty], ["the other hosts", host])
            except TraceError as error:
                failure = failure or error
            else:
                return shape
        if len(self._shapes) >= MOST_SHAPES and failure is not None:
            raise failure
        self._shapes.append(_Shape(empty))
        return self._shapes[-1]

    def _merge(self, shape: _Shape, snapshot: SnapshotData) -> None:
        levels, level = shape.levels, 0
        while level < len(levels) and len(levels[level]) == WIDTH - 1:
            snapshot = trimmed(merge([*levels[level], snapshot]), self._most)
            level += 1
        # Not before all of it has been merged, so that a failure changes nothing.
        for merged in levels[:level]:
            merged.clear()
        if level == len(levels):
            levels.append([])
        levels[level].append(snapshot)

    @property
    def _largest(self) -> _Shape | None:
        return max(self._shapes, key=lambda shape: shape.size, default=None)

    def outvoted(self) -> dict[str, str]:
        """Hosts whose results do not fit those of most others, and so are no part of the answer, with the reason."""
        largest = self._largest
        if largest is None or len(self._shapes) == 1:
            return {}
        others = counted(largest.size, "host")
        return {
            host: f"its results do not fit those of {others}: {_difference(largest, shape, host)}"
            for shape in self._shapes if shape is not largest for host in shape.hosts
        }  # fmt: skip

    def result(self) -> SnapshotData:
        """All that was added, as one snapshot."""
        largest = self._largest
        levels = [] if largest is None else largest.levels
        whole = merge([snapshot for level in levels for snapshot in level])
        return trimmed(whole, self._most)

    def copy(self) -> Answer:
        """An answer that others can be added to. Snapshots are not changed by merging, so both may have them."""
        other = Answer(self.label, self.name, self._named, self._most)
        other._shapes = [shape.copy() for shape in self._shapes]
        other._seen, other._texts = set(self._seen), dict(self._texts)
        return other


def _difference(first: _Shape, other: _Shape, host: str) -> str:
    try:
        merge([first.types, other.types], ["the other hosts", host])
    except TraceError as error:
        return error.message
    return "they have other maps"


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
    if kind in (LEFT_OUT, BOUND):
        return counts
    return {f"{label}: {subject}" if subject else label: count for subject, count in counts.items()}


def labelled_key(key: Type | None) -> Type:
    """The type of keys that begin with a label."""
    text = types.String(LABEL)
    if key is None:
        return text
    return Tuple((text, *key.members) if isinstance(key, Tuple) else (text, key))


def labelled_row(row: Record, name: str) -> Record:
    """The type of rows that begin with a label, in a column of the *name*."""
    while name in row.names:
        name += "_"
    return Record((name, *row.names), (types.String(LABEL), *row.members))


def _labelled_map(data: MapData, name: str, label: str) -> MapData:
    of_tuple = isinstance(data.key, Tuple)

    def key_of(key: Portable) -> Portable:
        if of_tuple and isinstance(key, tuple):
            return (label, *key)
        return label if data.key is None else (label, key)

    entries = {key_of(key): value for key, value in data.entries.items()}
    times = None if data.times is None else {key_of(key): time for key, time in data.times.items()}
    return replace(
        data, key=labelled_key(data.key), entries=entries, times=times, label=name,
        estimated=(label,) if data.mark else (),
    )  # fmt: skip


def _labelled_table(table: Table, name: str, label: str) -> Table:
    rows = {run: [(label, *row) for row in rows] for run, rows in table.rows.items()}
    return replace(table, type=labelled_row(table.type, name), rows=rows)


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
    join, entries, times = value_kind_of(data.value).join(), dict[Portable, Value](), dict[Portable, int]()
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


# ---------------------------------------------------------------------------------------------- largest entries

# A key that was left out of a part of the answer had at most the value of the largest one left out there. These bounds
# add up when parts are merged, as losses do: they are kept there, by map.


LEFT_OUT = "keys left out"
"""The kind of loss: how many entries of maps of hosts."""
BOUND = "wrong by at most"
"""The kind of loss: by how much a value (of averages and histograms: the number of samples) may be too small or, of a
sum of negative numbers, too large."""

_Weight = Callable[[Any], int]
"""Of the values of one type."""


def _samples(value: tuple[int, int]) -> int:
    return value[1]


def _counts(value: Mapping[int, int]) -> int:
    return sum(value.values())


_ADDED: Mapping[type[Type], _Weight] = {
    types.Count: abs, types.Sum: abs, types.Avg: _samples, types.Stats: _samples, types.Hist: _counts,
    types.LHist: _counts,
}  # fmt: skip
"""Weights of aggregations that add up, for which there is a bound."""
_KEPT: Mapping[type[Type], _Weight] = {types.Max: operator.pos, types.Min: operator.neg}
"""Weights of others, of which it is only said how many were left out. Any others are kept by chance."""


def trimmed(snapshot: SnapshotData, most: int) -> SnapshotData:
    """A snapshot whose maps have at most so many entries, the largest ones."""
    losses = {kind: dict(counts) for kind, counts in snapshot.losses.items()}
    maps = {}
    for name, data in snapshot.maps.items():
        maps[name] = data
        if len(data.entries) > most:
            maps[name], bound = _trimmed(data, most)
            _add(losses, LEFT_OUT, name, len(data.entries) - most)
            if bound:
                _add(losses, BOUND, name, bound)
    return replace(snapshot, maps=maps, losses=losses)


def _add(losses: dict[str, dict[str, int]], kind: str, name: str, number: int) -> None:
    counts = losses.setdefault(kind, {})
    counts[name] = counts.get(name, 0) + number


def _trimmed(data: MapData, most: int) -> tuple[MapData, int]:
    """The map, and the weight of the largest entry left out; 0 if that says nothing."""
    added = _ADDED.get(type(data.value))
    weight = added or _KEPT.get(type(data.value), lambda _: 0)
    largest = heapq.nlargest(most + 1, data.entries.items(), key=lambda entry: weight(entry[1]))
    entries = dict(largest[:most])
    times = None if data.times is None else {key: time for key, time in data.times.items() if key in entries}
    return replace(data, entries=entries, times=times), weight(largest[most][1]) if added else 0


def fitting(snapshot: SnapshotData, longest: int) -> bytes:
    """The file form of a snapshot in at most *longest* bytes, if necessary with fewer entries and rows."""
    data = file_form.to_bytes(snapshot)
    most = max([*(len(data.entries) for data in snapshot.maps.values()), *map(_rows, snapshot.tables)], default=0)
    while len(data) > longest and most:
        # A little less than what would fit if all entries were equally long.
        most = min(most - 1, int(most * longest / len(data) * 0.9))
        fewer = trimmed(snapshot, most)
        data = file_form.to_bytes(replace(fewer, tables=tuple(_newest(table, most) for table in snapshot.tables)))
    return data


def _rows(table: Table) -> int:
    return sum(map(len, table.rows.values()))


def _newest(table: Table, most: int) -> Table:
    """The table of one run with at most so many rows, the newest."""
    rows = {run: list(rows)[max(len(rows) - most, 0) :] for run, rows in table.rows.items()}
    return replace(table, rows=rows, dropped=table.dropped + _rows(table) - sum(map(len, rows.values())))
