"""Maps and tables as they lie in a file: entries and rows are made block by block, each time that they are gone
through. What a script printed of its maps is little, and made at once.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Mapping, Sequence, ValuesView
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec

from pytrace.core.types import Record, Type
from pytrace.results import columns
from pytrace.results.snapshot import MapData, Print, SnapshotData
from pytrace.results.stored_document import Blocks
from pytrace.results.stored_tables import Column, Form, TablesReader, TablesWriter, tuple_of
from pytrace.results.values import Portable, Value

V = TypeVar("V")


class _StoredMapping(Mapping[Portable, V]):
    """Keys and values in the order of the file. Looking one up reads all of them to memory."""

    def __init__(self, blocks: Blocks, tables: TablesReader, key: Type | None, value: Type) -> None:
        self._blocks = blocks
        self._tables = tables
        self._key = key
        self._value = value
        self._known: dict[Portable, V] | None = None

    def _keys(self, parts: Any, count: int) -> list[Portable]:
        return _keys(self._tables, self._key, parts, count)

    def _values(self, parts: Any, count: int) -> list[V]:
        raise NotImplementedError

    def pairs(self) -> Iterator[tuple[Portable, V]]:
        """Keys with their values."""

        def unpack(parts: Any, count: int) -> list[tuple[Portable, V]]:
            return list(zip(self._keys(parts, count), self._values(parts, count), strict=True))

        return chain.from_iterable(self._blocks.read(unpack))

    def __len__(self) -> int:
        return self._blocks.rows

    def __iter__(self) -> Iterator[Portable]:
        return chain.from_iterable(self._blocks.read(self._keys))

    def items(self) -> ItemsView[Portable, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __getitem__(self, key: Portable) -> V:
        if self._known is None:
            self._known = dict(self.pairs())
        return self._known[key]


class _Items(ItemsView[Portable, V]):
    _mapping: _StoredMapping[V]

    def __iter__(self) -> Iterator[tuple[Portable, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    _mapping: _StoredMapping[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.pairs())


class StoredEntries(_StoredMapping[Value]):
    """Entries of a map."""

    def _values(self, parts: Any, count: int) -> list[Value]:
        return columns.unpack(self._tables, self._value, parts[self._key is not None], count)


class StoredTimes(_StoredMapping[int]):
    """Times of the keys of a map that have one of their own: those of the others are negative in the file."""

    def _values(self, parts: Any, count: int) -> list[int]:
        times: list[int] = parts[-1].values(count)
        return times

    def pairs(self) -> Iterator[tuple[Portable, int]]:
        """Keys with their times."""
        return ((key, time) for key, time in super().pairs() if time >= 0)

    def __len__(self) -> int:
        return sum(1 for _ in self.pairs())

    def __iter__(self) -> Iterator[Portable]:
        return (key for key, _ in self.pairs())


def _keys(tables: TablesReader, key: Type | None, parts: Any, count: int) -> list[Portable]:
    """The keys of entries, which are in the first of their columns."""
    if key is None:
        return [None] * count
    return cast("list[Portable]", columns.unpack(tables, key, parts[0], count))


class StoredRows(Collection[tuple[Portable, ...]]):
    """Rows of a table."""

    def __init__(self, blocks: Blocks, tables: TablesReader, type_: Record) -> None:
        self._blocks = blocks
        self._tables = tables
        self._type = type_

    def _rows(self, parts: Any, count: int) -> list[tuple[Portable, ...]]:
        return cast("list[tuple[Portable, ...]]", columns.unpack(self._tables, self._type, parts, count))

    def __len__(self) -> int:
        return self._blocks.rows

    def __iter__(self) -> Iterator[tuple[Portable, ...]]:
        return chain.from_iterable(self._blocks.read(self._rows))

    def __contains__(self, row: object) -> bool:
        return any(row == item for item in self)


# ---------------------------------------------------------------------------------------------- prints


def entry_columns(tables: TablesWriter, data: MapData, entries: Sequence[tuple[Portable, Value]]) -> list[Column]:
    """The columns of keys (not of a map without keys) and values."""
    stored: list[Column] = []
    if data.key is not None:
        stored.append(columns.pack(tables, data.key, [key for key, _ in entries]))
    stored.append(columns.pack(tables, data.value, [value for _, value in entries]))
    return stored


def entry_forms(key: Type | None, value: Type) -> list[Form]:
    """The types that msgspec decodes these columns as."""
    return [columns.form(type_) for type_ in (key, value) if type_ is not None]


def stored_prints(tables: TablesWriter, snapshot: SnapshotData) -> tuple[StoredPrint, ...]:
    """The prints of a snapshot in the form of the document."""
    numbers = {name: number for number, name in enumerate(snapshot.maps)}
    stored = []
    for item in snapshot.prints:
        parts = entry_columns(tables, snapshot.maps[item.map], list(item.entries.items()))
        encoded = msgspec.Raw(msgspec.msgpack.encode(parts))
        number = numbers[item.map]
        stored.append(StoredPrint(number, item.time, item.cleared, item.number, len(item.entries), encoded))
    return tuple(stored)


class StoredPrint(msgspec.Struct, frozen=True):
    """What was printed of a map, which is given by its number in the document."""

    map: int
    time: int
    cleared: bool
    number: int
    rows: int
    columns: msgspec.Raw

    def read(self, tables: TablesReader, maps: Sequence[MapData]) -> Print:
        """What was printed.

        Raises:
            ValueError, LookupError: it is damaged.
        """
        if not 0 <= self.map < len(maps):
            raise ValueError(f"a print of map {self.map}, which there is not")
        data = maps[self.map]
        # Every value takes at least a byte.
        if not 0 <= self.rows <= (1 if data.key is None else len(memoryview(self.columns))):
            raise ValueError(f"a print of {data.name} has {self.rows} rows")
        parts = msgspec.msgpack.decode(self.columns, type=tuple_of(entry_forms(data.key, data.value)))
        keys = _keys(tables, data.key, parts, self.rows)
        values = columns.unpack(tables, data.value, parts[-1], self.rows)
        return Print(data.name, self.time, dict(zip(keys, values, strict=True)), self.cleared, self.number)
