"""Keys and values of snapshots as columns: lists of one kind of thing, which are small and fast to write and read.

A column is what MessagePack can say: integers are ``[code, bytes]`` with the narrowest code of :mod:`array` that holds
them all, little endian; texts are lists. Members of tuples, parts of aggregations and so on are columns of their own.
:class:`Writer` and :class:`Reader` also keep the tables of strings, frames and stacks; columns refer to them by number.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, TypeAlias, TypeVar, cast

from pytrace.core import types
from pytrace.core.types import Type
from pytrace.results.values import Frame, StackTrace

Column: TypeAlias = Any
"""What MessagePack makes of a column: nested lists, strings, bytes, integers."""

_T = TypeVar("_T")

_BOUNDS = (
    ("B", 0, (1 << 8) - 1), ("b", -(1 << 7), (1 << 7) - 1), ("H", 0, (1 << 16) - 1), ("h", -(1 << 15), (1 << 15) - 1),
    ("I", 0, (1 << 32) - 1), ("i", -(1 << 31), (1 << 31) - 1), ("Q", 0, (1 << 64) - 1),
    ("q", -(1 << 63), (1 << 63) - 1),
)  # fmt: skip
"""Codes of :mod:`array` with the numbers that they hold, narrow ones first."""

_CODES = {code: low for code, low, _ in _BOUNDS}
_LARGE = "s"
"""The code of integers that no array holds: a list of decimal texts."""


def pack_integers(values: Sequence[int]) -> Column:
    """A column of integers (or truth values)."""
    low, high = min(values, default=0), max(values, default=0)
    for code, least, most in _BOUNDS:
        if least <= low and high <= most:
            found = array(code, values)
            if sys.byteorder == "big":
                found.byteswap()
            return [code, found.tobytes()]
    return [_LARGE, [str(value) for value in values]]


def unpack_integers(column: Column) -> list[int]:
    """The integers of a column.

    Raises:
        ValueError: it is none.
    """
    code, data = column
    if code == _LARGE:
        return [int(text) for text in data]
    if code not in _CODES:
        raise ValueError(f"column of integers with code {code!r}")
    found = array(code)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tolist()


def pack_runs(items: Iterable[Sequence[Any]], pack: Callable[[list[Any]], list[Column]]) -> Column:
    """Sequences of different lengths: their lengths, and the columns of all their elements."""
    rows = list(items)
    return [pack_integers([len(row) for row in rows]), *pack(list(chain.from_iterable(rows)))]


def split(lengths: Iterable[int], items: Sequence[_T]) -> Iterable[Sequence[_T]]:
    """The sequences that :func:`pack_runs` joined.

    Raises:
        ValueError: the lengths do not add up.
    """
    start = 0
    for length in lengths:
        yield items[start : start + length]
        start += length
    if start != len(items):
        raise ValueError(f"sequences of {start} elements together, of which there are {len(items)}")


def checked(column: Column, kind: type) -> list[Any]:
    """A list of texts or bytes.

    Raises:
        ValueError: it is none.
    """
    if type(column) is not list or not set(map(type, column)) <= {kind}:
        raise ValueError(f"a column should hold {kind.__name__}")
    return column


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

    def column(self, type_: Type, values: Sequence[Any]) -> Column:
        """A column of portable values of a type."""
        return ROWS[type(type_)][0](self, type_, values)

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
        columns = list(zip(*self._frames, strict=True)) or [()] * len(Frame._fields)
        for at, name in enumerate(Frame._fields):
            if name in _TEXTS:
                columns[at] = tuple([self.string(text) for text in columns[at]])
        return [pack_integers(column) for column in columns]


_TEXTS = ("function", "module", "build_id", "file")
"""Members of frames that are in the table of strings."""


# ---------------------------------------------------------------------------------------------- reading


class Reader:
    """Reads columns. *tables* are those that :meth:`Writer.tables` gave."""

    def __init__(self, tables: dict[str, Column]) -> None:
        self.strings: list[str] = checked(tables["strings"], str)
        frames = self._read_frames(tables["frames"])
        lengths, numbers, users, errors = map(unpack_integers, tables["stacks"])
        found = _at(frames, numbers)
        self._stacks = [
            StackTrace(tuple(part), bool(user), error)
            for part, user, error in zip(split(lengths, found), users, _at(self.strings, errors), strict=True)
        ]

    def _read_frames(self, columns: Sequence[Column]) -> list[Frame]:
        read: list[Sequence[Any]] = []
        for name, column in zip(Frame._fields, columns, strict=True):
            numbers = unpack_integers(column)
            read.append(_at(self.strings, numbers) if name in _TEXTS else numbers)
        read[Frame._fields.index("inlined")] = list(map(bool, read[Frame._fields.index("inlined")]))
        return [Frame(*members) for members in zip(*read, strict=True)]

    def stacks(self, numbers: Sequence[int]) -> list[StackTrace]:
        """Stacks by their numbers in the table."""
        return _at(self._stacks, numbers)

    def column(self, type_: Type, column: Column) -> list[Any]:
        """The portable values of a column of a type.

        Raises:
            ValueError, LookupError, TypeError, OverflowError: the column is damaged.
        """
        return ROWS[type(type_)][1](self, type_, column)


def _at(items: Sequence[_T], numbers: Sequence[int]) -> list[_T]:
    if numbers and min(numbers) < 0:
        raise ValueError("a number in a table is negative")
    return [items[number] for number in numbers]


# ---------------------------------------------------------------------------------------------- rows

_Pack = Callable[[Writer, Any, Sequence[Any]], Column]
_Unpack = Callable[[Reader, Any, Column], list[Any]]

_INTEGERS: tuple[_Pack, _Unpack] = (
    lambda _writer, _type, values: pack_integers(values),
    lambda _reader, _type, column: unpack_integers(column),
)
_BOOLS: tuple[_Pack, _Unpack] = (
    lambda _writer, _type, values: pack_integers(values),
    lambda _reader, _type, column: list(map(bool, unpack_integers(column))),
)
_STRINGS: tuple[_Pack, _Unpack] = (
    lambda _writer, _type, values: list(values),
    lambda _reader, _type, column: checked(column, str),
)
_BYTES: tuple[_Pack, _Unpack] = (
    lambda _writer, _type, values: list(values),
    lambda _reader, _type, column: checked(column, bytes),
)
_STACKS: tuple[_Pack, _Unpack] = (
    lambda writer, _type, values: pack_integers([writer.stack(value) for value in values]),
    lambda reader, _type, column: reader.stacks(unpack_integers(column)),
)


def _members(of: Callable[[Any], Sequence[Type]]) -> tuple[_Pack, _Unpack]:
    """Tuples: how many, and a column for each member."""

    def pack(writer: Writer, type_: Type, values: Sequence[Any]) -> Column:
        columns = zip(*values, strict=True) if values else [() for _ in of(type_)]
        return [len(values), *(writer.column(part, column) for part, column in zip(of(type_), columns, strict=True))]

    def unpack(reader: Reader, type_: Type, column: Column) -> list[Any]:
        count, *columns = column
        parts = [reader.column(part, found) for part, found in zip(of(type_), columns, strict=True)]
        if any(len(part) != count for part in parts):
            raise ValueError("columns of members differ in length")
        return list(zip(*parts, strict=True)) if parts else [()] * count

    return pack, unpack


def named_members(type_: types.Struct) -> list[Type]:
    """Types of the members of a struct as portable values have them: those of anonymous ones in place."""
    found: list[Type] = []
    for field in type_.fields:
        if not field.name and isinstance(field.type, types.Struct):
            found += named_members(field.type)
        elif field.name:
            text = isinstance(field.type, types.Array) and field.type.element == types.INT8 and field.type.count > 0
            found.append(types.String(field.type.size) if text else field.type)
    return found


def _pack_pairs(_writer: Writer, _type: Type, values: Sequence[Any]) -> Column:
    return [pack_integers([value[0] for value in values]), pack_integers([value[1] for value in values])]


def _unpack_pairs(_reader: Reader, _type: Type, column: Column) -> list[Any]:
    totals, counts = map(unpack_integers, column)
    return list(zip(totals, counts, strict=True))


def _pack_buckets(_writer: Writer, _type: Type, values: Sequence[Any]) -> Column:
    lengths = pack_integers([len(value) for value in values])
    buckets = pack_integers(list(chain.from_iterable(values)))
    return [lengths, buckets, pack_integers([count for value in values for count in value.values()])]


def _unpack_buckets(_reader: Reader, type_: types.Hist | types.LHist, column: Column) -> list[Any]:
    lengths, buckets, counts = map(unpack_integers, column)
    if buckets and not (min(buckets) >= 0 and max(buckets) < type_.buckets):
        raise ValueError("a histogram has a bucket outside of its type")
    return list(map(dict, split(lengths, list(zip(buckets, counts, strict=True)))))


def _pack_series(_writer: Writer, _type: Type, values: Sequence[Any]) -> Column:
    lengths = pack_integers([len(value) for value in values])
    items = [(number, *item) for value in values for number, item in value.items()]
    return [lengths, *(pack_integers([item[at] for item in items]) for at in range(3))]


def _unpack_series(_reader: Reader, _type: Type, column: Column) -> list[Any]:
    lengths, numbers, values, metas = map(unpack_integers, column)
    items = list(zip(numbers, zip(values, metas, strict=True), strict=True))
    return list(map(dict, split(lengths, items)))


_TUPLES = _members(lambda type_: type_.members)
_PAIRS: tuple[_Pack, _Unpack] = (_pack_pairs, _unpack_pairs)
_BUCKETS: tuple[_Pack, _Unpack] = (_pack_buckets, cast(_Unpack, _unpack_buckets))

ROWS: dict[type[Type], tuple[_Pack, _Unpack]] = {
    types.Bool: _BOOLS,
    types.Int: _INTEGERS,
    types.Enum: _INTEGERS,
    types.Pointer: _INTEGERS,
    types.String: _STRINGS,
    types.Buffer: _BYTES,
    types.Array: _members(lambda type_: list(repeat(type_.element, type_.count))),
    types.Tuple: _TUPLES,
    types.Record: _TUPLES,
    types.Struct: _members(named_members),
    types.Stack: _STACKS,
    types.KSym: _STRINGS,
    types.USym: _STRINGS,
    types.Inet: _STRINGS,
    types.Mac: _STRINGS,
    types.Timestamp: _STRINGS,
    types.Username: _STRINGS,
    types.InterfaceName: _STRINGS,
    types.NetworkNamespace: _STRINGS,
    types.CgroupPath: _STRINGS,
    types.Count: _INTEGERS,
    types.Sum: _INTEGERS,
    types.Avg: _PAIRS,
    types.Stats: _PAIRS,
    types.Min: _INTEGERS,
    types.Max: _INTEGERS,
    types.Hist: _BUCKETS,
    types.LHist: _BUCKETS,
    types.TSeries: (_pack_series, _unpack_series),
}
"""How columns of each type are written and read."""
