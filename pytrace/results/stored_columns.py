"""Columns as they lie in a document: their values are made in blocks, and of a column that is not read nothing is made.

The functions that open a column look at its form and pass over it; the sizes that it claims are compared with what is
there. They raise ValueError for what is no such column, and so does reading one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping, Sequence, ValuesView
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import Generic, TypeVar

import msgspec

from pytrace.results.message_pack import Cursor, Kind, steps
from pytrace.results.values import Portable, Value

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

CODES = ("B", "b", "H", "h", "I", "i", "Q", "q")
"""Codes of :mod:`array` that integers are stored with."""
LARGE = "s"
"""The code of integers that no array holds: a list of decimal texts."""

BLOCK = 1 << 14
"""Values that are made at once."""
_DIGITS = 1000
"""Of a decimal text."""


class Stored(msgspec.Struct, Generic[T], frozen=True):
    """A column of *count* values."""

    count: int
    blocks: Callable[[int], Iterator[list[T]]]
    """All values, that many at a time."""

    def all(self) -> list[T]:
        """All values at once."""
        return list(self)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.blocks(BLOCK))

    def map(self, form: Callable[[T], U]) -> Stored[U]:
        """The column of what *form* makes of each value."""
        return Stored(self.count, lambda size: ([form(value) for value in block] for block in self.blocks(size)))


def parts(cursor: Cursor, count: int | None = None) -> int:
    """How many columns the list of columns that comes next has, which must be *count* where that is given."""
    found = cursor.expect(Kind.LIST)
    if count is not None and found != count:
        raise ValueError(f"a list of {found} columns where {count} should be")
    return found


def integers(cursor: Cursor) -> Stored[int]:
    """A column of integers; the cursor is after it then, as with all functions here."""
    parts(cursor, 2)
    code = cursor.text()
    if code == LARGE:
        return texts(cursor).map(_decimal)
    if code not in CODES:
        raise ValueError(f"column of integers with code {code!r}")
    size, (start, pages) = cursor.expect(Kind.BYTES), (cursor.position, cursor.pages)
    width = array(code).itemsize
    if size % width:
        raise ValueError(f"{size} bytes of integers that take {width} each")
    cursor.position += size
    if cursor.position > pages.size:
        raise ValueError("the document ends too early")

    def blocks(most: int) -> Iterator[list[int]]:
        for at in range(start, start + size, most * width):
            found = array(code, pages.read(at, min(most * width, start + size - at)))
            if sys.byteorder == "big":
                found.byteswap()
            yield found.tolist()

    return Stored(size // width, blocks)


def _decimal(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def texts(cursor: Cursor) -> Stored[str]:
    """A list of texts."""
    start = cursor.position
    count = cursor.expect(Kind.LIST)
    for step in steps(count, BLOCK):
        cursor.texts(step)

    def blocks(most: int) -> Iterator[list[str]]:
        again = Cursor(cursor.pages, start)
        for step in steps(again.expect(Kind.LIST), most):
            yield [text.decode("utf-8", "surrogateescape") for text in again.texts(step)]

    return Stored(count, blocks)


def binaries(cursor: Cursor) -> Stored[bytes]:
    """A list of bytes."""
    start = cursor.position
    count = cursor.expect(Kind.LIST)
    for _ in range(count):
        cursor.take(cursor.expect(Kind.BYTES))

    def blocks(most: int) -> Iterator[list[bytes]]:
        again = Cursor(cursor.pages, start)
        for step in steps(again.expect(Kind.LIST), most):
            yield [again.take(again.expect(Kind.BYTES)) for _ in range(step)]

    return Stored(count, blocks)


def zipped(columns: Sequence[Stored[T]], count: int) -> Stored[tuple[T, ...]]:
    """A column of tuples, of *count* ones, from those of their members."""
    if any(column.count != count for column in columns):
        raise ValueError("columns of members differ in length")

    def blocks(most: int) -> Iterator[list[tuple[T, ...]]]:
        if not columns:
            empty: tuple[T, ...] = ()
            yield from ([empty] * step for step in steps(count, most))
            return
        for members in zip(*(column.blocks(most) for column in columns), strict=True):
            yield list(zip(*members, strict=True))

    return Stored(count, blocks)


def split(lengths: Stored[int], items: Stored[T], longest: int) -> Stored[list[T]]:
    """A column of lists, of at most *longest* elements, from their lengths and the column of all elements."""

    def blocks(most: int) -> Iterator[list[list[T]]]:
        rest = iter(items)
        for block in lengths.blocks(most):
            found = []
            for length in block:
                if not 0 <= length <= longest:
                    raise ValueError(f"a list of {length} elements where {longest} can be")
                found.append(list(islice(rest, length)))
                if len(found[-1]) != length:
                    raise ValueError("lists end too early")
            yield found
        if next(rest, None) is not None:
            raise ValueError("lists have more elements than their lengths say")

    return Stored(lengths.count, blocks)


# ---------------------------------------------------------------------------------------------- maps and tables

Guard = Callable[[], AbstractContextManager[None]]
"""Reports damage that is found in its block."""


def _guarded(blocks: Iterator[list[T]], guard: Guard) -> Iterator[T]:
    while True:
        with guard():
            block = next(blocks, None)
        if block is None:
            return
        yield from block


class _StoredMapping(Mapping[Portable, V]):
    """Keys and values in the order of the file. Looking one up reads all of them to memory."""

    def __init__(self, keys: Stored[Portable], values: Stored[V], guard: Guard) -> None:
        self._keys = keys
        self._values = values
        self._guard = guard
        self._known: dict[Portable, V] | None = None

    def pairs(self) -> Iterator[tuple[Portable, V]]:
        """Keys with their values."""
        blocks = zip(self._keys.blocks(BLOCK), self._values.blocks(BLOCK), strict=True)
        return _guarded((list(zip(keys, values, strict=True)) for keys, values in blocks), self._guard)

    def __len__(self) -> int:
        return self._values.count

    def __iter__(self) -> Iterator[Portable]:
        return _guarded(self._keys.blocks(BLOCK), self._guard)

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


class StoredTimes(_StoredMapping[int]):
    """Times of the keys of a map that have one of their own: those of the others are negative in the file."""

    def pairs(self) -> Iterator[tuple[Portable, int]]:
        """Keys with their times."""
        return ((key, time) for key, time in super().pairs() if time >= 0)

    def __len__(self) -> int:
        return sum(1 for _ in self.pairs())

    def __iter__(self) -> Iterator[Portable]:
        return (key for key, _ in self.pairs())


class StoredRows(Collection[T]):
    """Rows of a table."""

    def __init__(self, rows: Stored[T], guard: Guard) -> None:
        self._rows = rows
        self._guard = guard

    def __len__(self) -> int:
        return self._rows.count

    def __iter__(self) -> Iterator[T]:
        return _guarded(self._rows.blocks(BLOCK), self._guard)

    def __contains__(self, row: object) -> bool:
        return any(row == item for item in self)
