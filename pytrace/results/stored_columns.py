"""Maps and tables as they lie in a file: entries and rows are made block by block, each time that they are gone
through.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, TypeVar, cast

from pytrace.core.types import Record, Type
from pytrace.results import columns
from pytrace.results.stored_document import Blocks
from pytrace.results.stored_tables import TablesReader
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
        if self._key is None:
            return [None] * count
        return cast("list[Portable]", columns.unpack(self._tables, self._key, parts[0], count))

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
