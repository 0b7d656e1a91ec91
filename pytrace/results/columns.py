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
from typing import Generic, TypeAlias, TypeGuard, TypeVar, cast

from pytrace.base.fast_dataclass import dataclass
from pytrace.core import types
from pytrace.core.types import Type
from pytrace.results.values import Counts, Frame, Portable, Series, StackTrace, Value

Column: TypeAlias = "bool | int | float | str | bytes | list[Column] | dict[str, Column] | None"
"""What MessagePack can say: columns, and documents of them."""

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
    code, data = listed(column, 2)
    if code == _LARGE:
        return [int(text) for text in checked(data, str)]
    if not isinstance(code, str) or code not in _CODES or not isinstance(data, bytes):
        raise ValueError(f"column of integers with code {code!r}")
    found = array(code)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tolist()


def pack_runs(items: Iterable[Sequence[_T]], pack: Callable[[list[_T]], list[Column]]) -> list[Column]:
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


def checked(column: Column, kind: type[_T]) -> list[_T]:
    """A list of texts or bytes.

    Raises:
        ValueError: it is none.
    """
    if not _holds(column, kind):
        raise ValueError(f"a column should hold {kind.__name__}")
    return column


def _holds(column: object, kind: type[_T]) -> TypeGuard[list[_T]]:
    return type(column) is list and set(map(type, column)) <= {kind}


def listed(column: Column, count: int | None = None) -> list[Column]:
    """A list of columns, *count* ones where that is given.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(column, list) or (count is not None and len(column) != count):
        raise ValueError("a list of columns is missing")
    return column


def named(column: Column) -> dict[str, Column]:
    """A document.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(column, dict):
        raise ValueError("a map of names is missing")
    return column


def keys(values: Sequence[Value]) -> Sequence[Portable]:
    """Values that can be keys, or members of tuples.

    Raises:
        ValueError: they are none.
    """
    if not _are_plain(values):
        raise ValueError("a histogram or time series stands where none can be")
    return values


def _are_plain(values: Sequence[Value]) -> TypeGuard[Sequence[Portable]]:
    return dict not in set(map(type, values))


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


_TEXTS = ("function", "module", "build_id", "file")
"""Members of frames that are in the table of strings."""


# ---------------------------------------------------------------------------------------------- reading


class Reader:
    """Reads columns. *tables* are those that :meth:`Writer.tables` gave."""

    def __init__(self, tables: dict[str, Column]) -> None:
        self.strings: list[str] = checked(tables["strings"], str)
        frames = self._read_frames(listed(tables["frames"]))
        lengths, numbers, users, errors = map(unpack_integers, listed(tables["stacks"], 4))
        found = _at(frames, numbers)
        self._stacks = [
            StackTrace(tuple(part), bool(user), error)
            for part, user, error in zip(split(lengths, found), users, _at(self.strings, errors), strict=True)
        ]

    def _read_frames(self, columns: Sequence[Column]) -> list[Frame]:
        read: list[Sequence[str | int]] = []
        for name, column in zip(Frame._fields, columns, strict=True):
            numbers = unpack_integers(column)
            read.append(_at(self.strings, numbers) if name in _TEXTS else numbers)
        read[Frame._fields.index("inlined")] = list(map(bool, read[Frame._fields.index("inlined")]))
        return [Frame(*members) for members in zip(*read, strict=True)]

    def stacks(self, numbers: Sequence[int]) -> list[StackTrace]:
        """Stacks by their numbers in the table."""
        return _at(self._stacks, numbers)

    def column(self, type_: Type, column: Column) -> Sequence[Value]:
        """The portable values of a column of a type.

        Raises:
            ValueError, LookupError, TypeError, OverflowError: the column is damaged.
        """
        return ROWS[type(type_)].unpack(self, type_, column)

    def rows(self, type_: types.Record, column: Column) -> list[tuple[Portable, ...]]:
        """As :meth:`column` for rows of a table."""
        return _ROWS.unpack(self, type_, column)


def _at(items: Sequence[_T], numbers: Sequence[int]) -> list[_T]:
    if numbers and min(numbers) < 0:
        raise ValueError("a number in a table is negative")
    return [items[number] for number in numbers]


# ---------------------------------------------------------------------------------------------- rows

_K = TypeVar("_K", bound=Type)
_V = TypeVar("_V", bound=Value)


@dataclass(frozen=True, slots=True)
class Row(Generic[_K, _V]):
    """How columns of one class of types are written and read."""

    pack: Callable[[Writer, _K, Sequence[_V]], Column]
    unpack: Callable[[Reader, _K, Column], list[_V]]


def _plain(pack: Callable[[Sequence[_V]], Column], unpack: Callable[[Column], list[_V]]) -> Row[Type, _V]:
    """A row that depends neither on the type nor on the tables."""
    return Row(lambda _writer, _type, values: pack(values), lambda _reader, _type, column: unpack(column))


def _unpack_bools(column: Column) -> list[bool]:
    return list(map(bool, unpack_integers(column)))


def _unpack_strings(column: Column) -> list[str]:
    return checked(column, str)


def _unpack_bytes(column: Column) -> list[bytes]:
    return checked(column, bytes)


def _pack_stacks(writer: Writer, _type: Type, values: Sequence[StackTrace]) -> Column:
    return pack_integers([writer.stack(value) for value in values])


def _unpack_stacks(reader: Reader, _type: Type, column: Column) -> list[StackTrace]:
    return reader.stacks(unpack_integers(column))


def _members(of: Callable[[_K], Sequence[Type]]) -> Row[_K, tuple[Portable, ...]]:
    """Tuples: how many, and a column for each member."""

    def pack(writer: Writer, type_: _K, values: Sequence[tuple[Portable, ...]]) -> Column:
        columns = zip(*values, strict=True) if values else [() for _ in of(type_)]
        return [len(values), *(writer.column(part, column) for part, column in zip(of(type_), columns, strict=True))]

    def unpack(reader: Reader, type_: _K, column: Column) -> list[tuple[Portable, ...]]:
        count, *columns = listed(column)
        parts = [keys(reader.column(part, found)) for part, found in zip(of(type_), columns, strict=True)]
        if not isinstance(count, int) or any(len(part) != count for part in parts):
            raise ValueError("columns of members differ in length")
        return list(zip(*parts, strict=True)) if parts else [()] * count

    return Row(pack, unpack)


def _struct_members(type_: types.Struct) -> list[Type]:
    return [field.type for field in types.named_fields(type_)]


def _record_members(type_: types.Record) -> Sequence[Type]:
    return type_.members


_ROWS = _members(_record_members)


def _pack_pairs(values: Sequence[tuple[int, int]]) -> Column:
    return [pack_integers([value[0] for value in values]), pack_integers([value[1] for value in values])]


def _unpack_pairs(column: Column) -> list[tuple[int, int]]:
    totals, counts = map(unpack_integers, listed(column, 2))
    return list(zip(totals, counts, strict=True))


def _pack_buckets(_writer: Writer, _type: Type, values: Sequence[Counts]) -> Column:
    lengths = pack_integers([len(value) for value in values])
    buckets = pack_integers(list(chain.from_iterable(values)))
    return [lengths, buckets, pack_integers([count for value in values for count in value.values()])]


def _unpack_buckets(_reader: Reader, type_: types.Hist | types.LHist, column: Column) -> list[Counts]:
    lengths, buckets, counts = map(unpack_integers, listed(column, 3))
    if buckets and not (min(buckets) >= 0 and max(buckets) < type_.buckets):
        raise ValueError("a histogram has a bucket outside of its type")
    return list(map(dict, split(lengths, list(zip(buckets, counts, strict=True)))))


def _pack_series(values: Sequence[Series]) -> Column:
    lengths = pack_integers([len(value) for value in values])
    items = [(number, *item) for value in values for number, item in value.items()]
    return [lengths, *(pack_integers([item[at] for item in items]) for at in range(3))]


def _unpack_series(column: Column) -> list[Series]:
    lengths, numbers, values, metas = map(unpack_integers, listed(column, 4))
    items = list(zip(numbers, zip(values, metas, strict=True), strict=True))
    return list(map(dict, split(lengths, items)))


_INTEGERS = _plain(pack_integers, unpack_integers)
_BOOLS = _plain(pack_integers, _unpack_bools)
_STRINGS: Row[Type, str] = _plain(list, _unpack_strings)
_BYTES: Row[Type, bytes] = _plain(list, _unpack_bytes)
_PAIRS = _plain(_pack_pairs, _unpack_pairs)


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
    _row(types.Array, _members(lambda type_: list(repeat(type_.element, type_.count)))),
    _row(types.Tuple, _members(lambda type_: type_.members)),
    _row(types.Record, _ROWS),
    _row(types.Struct, _members(_struct_members)),
    _row(types.Stack, Row(_pack_stacks, _unpack_stacks)),
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
    _row(types.Hist, Row(_pack_buckets, _unpack_buckets)),
    _row(types.LHist, Row(_pack_buckets, _unpack_buckets)),
    _row(types.TSeries, _plain(_pack_series, _unpack_series)),
))
"""How columns of each type are written and read."""
