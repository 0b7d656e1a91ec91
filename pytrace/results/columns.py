"""Keys and values of snapshots as columns: lists of one kind of thing, which are small and fast to write and read.

A column is what MessagePack can say: integers are ``[code, bytes]`` with the narrowest code of :mod:`array` that holds
them all, little endian; texts are lists. Members of tuples, parts of aggregations and so on are columns of their own.
:class:`Writer` and :class:`Reader` also keep the tables of strings, frames and stacks; columns refer to them by number.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.core.types import Type
from pytrace.results import stored_columns
from pytrace.results.message_pack import Cursor, Kind, Packed, Pages
from pytrace.results.stored_columns import LARGE, Stored
from pytrace.results.values import Counts, Frame, Portable, Series, StackTrace, Value

Column: TypeAlias = Packed
"""A column as it is written."""

_T = TypeVar("_T")

_BOUNDS = (
    ("B", 0, (1 << 8) - 1), ("b", -(1 << 7), (1 << 7) - 1), ("H", 0, (1 << 16) - 1), ("h", -(1 << 15), (1 << 15) - 1),
    ("I", 0, (1 << 32) - 1), ("i", -(1 << 31), (1 << 31) - 1), ("Q", 0, (1 << 64) - 1),
    ("q", -(1 << 63), (1 << 63) - 1),
)  # fmt: skip
"""Codes of :mod:`array` with the numbers that they hold, narrow ones first."""

def pack_integers(values: Sequence[int]) -> Column:
    """A column of integers (or truth values)."""
    low, high = min(values, default=0), max(values, default=0)
    for code, least, most in _BOUNDS:
        if least <= low and high <= most:
            found = array(code, values)
            if sys.byteorder == "big":
                found.byteswap()
            return [code, found.tobytes()]
    return [LARGE, [str(value) for value in values]]


def pack_runs(items: Iterable[Sequence[_T]], pack: Callable[[list[_T]], list[Column]]) -> list[Column]:
    """Sequences of different lengths: their lengths, and the columns of all their elements."""
    rows = list(items)
    return [pack_integers([len(row) for row in rows]), *pack(list(chain.from_iterable(rows)))]


def keys(values: Stored[Value]) -> Stored[Portable]:
    """Values that can be keys, or members of tuples; reading others raises ValueError."""

    def blocks(most: int) -> Iterator[list[Portable]]:
        for block in values.blocks(most):
            if dict in set(map(type, block)):
                raise ValueError("a histogram or time series stands where none can be")
            yield cast("list[Portable]", block)

    return Stored(values.count, blocks)


# ---------------------------------------------------------------------------------------------- writing


class Writer:
    """Makes columns."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._frames: dict[Frame, int] = {}
        self._frame_ids: dict[int, int] = {}
        self._stacks: dict[tuple[bytes, bool, str], int] = {}

    def string(self, text: str) -> int:
        """The number of a string in the table of strings."""
        return self._strings.setdefault(text, len(self._strings))

    def column(self, type_: Type, values: Sequence[Value]) -> Column:
        """A column of portable values of a type."""
        return ROWS[type(type_)].pack(self, type_, values)

    def stack(self, stack: StackTrace) -> int:
        """The number of a stack in the table of stacks."""
        # Most frames are shared objects: their hash, over all members, is computed once.
        known = self._frame_ids
        numbers = [known[id(frame)] if id(frame) in known else self._frame(frame) for frame in stack.frames]
        key = (array("I", numbers).tobytes(), stack.user, stack.error)
        return self._stacks.setdefault(key, len(self._stacks))

    def _frame(self, frame: Frame) -> int:
        number = self._frame_ids[id(frame)] = self._frames.setdefault(frame, len(self._frames))
        return number

    def tables(self) -> dict[str, Column]:
        """The tables that the columns refer to; the last thing to ask for."""
        frames = self._frame_columns()
        numbers = [array("I", data).tolist() for data, _, _ in self._stacks]
        stacks = [
            *pack_runs(numbers, lambda found: [pack_integers(found)]),
            pack_integers([user for _, user, _ in self._stacks]),
            pack_integers([self.string(error) for _, _, error in self._stacks]),
        ]
        return {"frames": frames, "stacks": stacks, "strings": list(self._strings)}

    def _frame_columns(self) -> list[Column]:
        columns = zip(*self._frames, strict=True) if self._frames else [()] * len(Frame._fields)
        return [
            pack_integers([self.string(text) for text in column] if name in _TEXTS else column)
            for name, column in zip(Frame._fields, columns, strict=True)
        ]


MOST_ELEMENTS = 1 << 16
"""Of an array: no value of a program is larger."""

_TEXTS = ("function", "module", "build_id", "file")
"""Members of frames that are in the table of strings."""


# ---------------------------------------------------------------------------------------------- reading


STACKS_KEPT = 1 << 14
"""Stacks that were read and may come again."""


class Reader:
    """Opens columns. *places* are those of the tables that :meth:`Writer.tables` gave.

    Raises:
        ValueError, LookupError: the tables are damaged.
    """

    def __init__(self, pages: Pages, places: dict[str, int]) -> None:
        self.strings = stored_columns.texts(Cursor(pages, places["strings"])).all()
        self._frames = self._read_frames(Cursor(pages, places["frames"]))
        cursor = Cursor(pages, places["stacks"])
        stored_columns.parts(cursor, 4)
        lengths, numbers, users, errors = (array("Q", stored_columns.integers(cursor)) for _ in range(4))
        if not len(lengths) == len(users) == len(errors) or sum(lengths) != len(numbers):
            raise ValueError("columns of stacks differ in length")
        if max(numbers, default=0) >= max(1, len(self._frames)):
            raise ValueError("a stack has a frame that there is not")
        self._ends = array("Q", _sums(lengths))
        self._numbers, self._users, self._errors = numbers, users, errors
        self.stack = lru_cache(STACKS_KEPT)(self._stack)
        """A stack by its number in the table."""

    def _read_frames(self, cursor: Cursor) -> list[Frame]:
        stored_columns.parts(cursor, len(Frame._fields))
        read: list[list[str] | list[int] | list[bool]] = []
        for name in Frame._fields:
            numbers = stored_columns.integers(cursor)
            if name in _TEXTS:
                read.append([self._string(number) for number in numbers])
            else:
                read.append([bool(number) for number in numbers] if name == "inlined" else numbers.all())
        return [Frame(*members) for members in zip(*read, strict=True)]

    def _string(self, number: int) -> str:
        if number < 0:
            raise ValueError("a number in a table is negative")
        return self.strings[number]

    def _stack(self, number: int) -> StackTrace:
        if not 0 <= number < len(self._ends):
            raise ValueError("a stack that there is not")
        start = self._ends[number - 1] if number else 0
        frames = [self._frames[frame] for frame in self._numbers[start : self._ends[number]]]
        return StackTrace(tuple(frames), bool(self._users[number]), self._string(self._errors[number]))

    def column(self, type_: Type, cursor: Cursor) -> Stored[Value]:
        """The column of portable values of a type that a cursor is at.

        Raises:
            ValueError: it is none. Reading it raises ValueError and LookupError when it is damaged further on.
        """
        return ROWS[type(type_)].stored(self, type_, cursor)

    def rows(self, type_: types.Record, cursor: Cursor) -> Stored[tuple[Portable, ...]]:
        """As :meth:`column` for rows of a table."""
        return _ROWS.stored(self, type_, cursor)


def _sums(lengths: Iterable[int]) -> Iterator[int]:
    total = 0
    for length in lengths:
        total += length
        yield total


# ---------------------------------------------------------------------------------------------- rows

_K = TypeVar("_K", bound=Type)
_V = TypeVar("_V", bound=Value)


class Row(msgspec.Struct, Generic[_K, _V], frozen=True):
    """How columns of one class of types are written and read."""

    pack: Callable[[Writer, _K, Sequence[_V]], Column]
    stored: Callable[[Reader, _K, Cursor], Stored[_V]]


def _plain(pack: Callable[[Sequence[_V]], Column], stored: Callable[[Cursor], Stored[_V]]) -> Row[Type, _V]:
    """A row that depends neither on the type nor on the tables."""
    return Row(lambda _writer, _type, values: pack(values), lambda _reader, _type, cursor: stored(cursor))


def _stored_bools(cursor: Cursor) -> Stored[bool]:
    return stored_columns.integers(cursor).map(bool)


def _pack_list(values: Sequence[str] | Sequence[bytes]) -> Column:
    return list(values)


def _pack_stacks(writer: Writer, _type: Type, values: Sequence[StackTrace]) -> Column:
    return pack_integers([writer.stack(value) for value in values])


def _stored_stacks(reader: Reader, _type: Type, cursor: Cursor) -> Stored[StackTrace]:
    return stored_columns.integers(cursor).map(reader.stack)


def _members(of: Callable[[_K], Sequence[Type]]) -> Row[_K, tuple[Portable, ...]]:
    """Tuples: how many, and a column for each member."""

    def pack(writer: Writer, type_: _K, values: Sequence[tuple[Portable, ...]]) -> Column:
        columns = zip(*values, strict=True) if values else [() for _ in of(type_)]
        return [len(values), *(writer.column(part, column) for part, column in zip(of(type_), columns, strict=True))]

    def stored(reader: Reader, type_: _K, cursor: Cursor) -> Stored[tuple[Portable, ...]]:
        # Before anything is made of the number of members, which may be that of an array.
        members = of(type_)
        stored_columns.parts(cursor, 1 + len(members))
        count = cursor.expect(Kind.INTEGER)
        if not 0 <= count <= cursor.pages.size:
            raise ValueError(f"a column of {count} tuples")
        return stored_columns.zipped([keys(reader.column(member, cursor)) for member in members], count)

    return Row(pack, stored)


def _array_members(type_: types.Array) -> Sequence[Type]:
    if type_.count > MOST_ELEMENTS:
        raise ValueError(f"an array of {type_.count} elements")
    return list(repeat(type_.element, type_.count))


def _struct_members(type_: types.Struct) -> list[Type]:
    return [field.type for field in types.named_fields(type_)]


def _record_members(type_: types.Record) -> Sequence[Type]:
    return type_.members


_ROWS = _members(_record_members)


def _pack_pairs(values: Sequence[tuple[int, int]]) -> Column:
    return [pack_integers([value[0] for value in values]), pack_integers([value[1] for value in values])]


def _stored_pairs(cursor: Cursor) -> Stored[tuple[int, int]]:
    stored_columns.parts(cursor, 2)
    totals, counts = stored_columns.integers(cursor), stored_columns.integers(cursor)
    return cast("Stored[tuple[int, int]]", stored_columns.zipped((totals, counts), totals.count))


def _pack_buckets(_writer: Writer, _type: Type, values: Sequence[Counts]) -> Column:
    lengths = pack_integers([len(value) for value in values])
    buckets = pack_integers(list(chain.from_iterable(values)))
    return [lengths, buckets, pack_integers([count for value in values for count in value.values()])]


def _stored_buckets(_reader: Reader, type_: types.Hist | types.LHist, cursor: Cursor) -> Stored[Counts]:
    stored_columns.parts(cursor, 3)
    lengths = stored_columns.integers(cursor)
    most, pairs = type_.buckets, _stored_items(cursor, 2)

    def counts(items: list[tuple[int, ...]]) -> Counts:
        if any(not 0 <= bucket < most for bucket, _ in items):
            raise ValueError("a histogram has a bucket outside of its type")
        return dict(cast("list[tuple[int, int]]", items))

    return stored_columns.split(lengths, pairs, most).map(counts)


def _stored_items(cursor: Cursor, width: int) -> Stored[tuple[int, ...]]:
    """Columns of integers, one element of each of them at a time."""
    columns = [stored_columns.integers(cursor) for _ in range(width)]
    return stored_columns.zipped(columns, columns[0].count)


def _pack_series(values: Sequence[Series]) -> Column:
    lengths = pack_integers([len(value) for value in values])
    items = [(number, *item) for value in values for number, item in value.items()]
    return [lengths, *(pack_integers([item[at] for item in items]) for at in range(3))]


def _stored_series(cursor: Cursor) -> Stored[Series]:
    stored_columns.parts(cursor, 4)
    lengths = stored_columns.integers(cursor)
    items = _stored_items(cursor, 3)
    return stored_columns.split(lengths, items, items.count).map(
        lambda found: {number: (value, meta) for number, value, meta in found}
    )


_INTEGERS = _plain(pack_integers, stored_columns.integers)
_BOOLS = _plain(pack_integers, _stored_bools)
_STRINGS: Row[Type, str] = _plain(_pack_list, stored_columns.texts)
_BYTES: Row[Type, bytes] = _plain(_pack_list, stored_columns.binaries)
_PAIRS = _plain(_pack_pairs, _stored_pairs)


def _row(kind: type[_K], row: Row[_K, _V]) -> tuple[type[Type], Row[Type, Value]]:
    """A row of the table, whose functions are only called with types of its own class and their values."""
    return kind, cast("Row[Type, Value]", row)


ROWS: dict[type[Type], Row[Type, Value]] = dict((
    _row(types.Bool, _BOOLS),
    _row(types.Int, _INTEGERS),
    _row(types.Enum, _INTEGERS),
    _row(types.Pointer, _INTEGERS),
    _row(types.String, _STRINGS),
    _row(types.Buffer, _BYTES),
    _row(types.Array, _members(_array_members)),
    _row(types.Tuple, _members(lambda type_: type_.members)),
    _row(types.Record, _ROWS),
    _row(types.Struct, _members(_struct_members)),
    _row(types.Stack, Row(_pack_stacks, _stored_stacks)),
    _row(types.KSym, _STRINGS),
    _row(types.USym, _STRINGS),
    _row(types.Inet, _STRINGS),
    _row(types.Mac, _STRINGS),
    _row(types.Timestamp, _STRINGS),
    _row(types.Username, _STRINGS),
    _row(types.InterfaceName, _STRINGS),
    _row(types.NetworkNamespace, _STRINGS),
    _row(types.CgroupPath, _STRINGS),
    _row(types.Fixed, _INTEGERS),
    _row(types.Joined, _STRINGS),
    _row(types.Count, _INTEGERS),
    _row(types.Sum, _INTEGERS),
    _row(types.Avg, _PAIRS),
    _row(types.Stats, _PAIRS),
    _row(types.Min, _INTEGERS),
    _row(types.Max, _INTEGERS),
    _row(types.Hist, Row(_pack_buckets, _stored_buckets)),
    _row(types.LHist, Row(_pack_buckets, _stored_buckets)),
    _row(types.TSeries, _plain(_pack_series, _stored_series)),
))
"""How columns of each type are written and read."""
