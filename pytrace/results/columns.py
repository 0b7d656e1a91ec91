"""Columns of integers, and the tables of strings, frames and stacks that columns of a snapshot's file refer to."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.types import Type
from pytrace.render.value_kind import Held
from pytrace.render.values import one_nan, value_kind_of
from pytrace.results.snapshot import Counts, Frame, Pair, Portable, Series, StackTrace, Value

Code: TypeAlias = Literal["B", "b", "H", "h", "I", "i", "Q", "q", "O", "o"]
"""Those of :mod:`array`, and for integers of 16 bytes ``O`` (unsigned) and ``o``."""

_BOUNDS: tuple[tuple[Code, int, int], ...] = (
    ("B", 0, (1 << 8) - 1), ("b", -(1 << 7), (1 << 7) - 1), ("H", 0, (1 << 16) - 1), ("h", -(1 << 15), (1 << 15) - 1),
    ("I", 0, (1 << 32) - 1), ("i", -(1 << 31), (1 << 31) - 1), ("Q", 0, (1 << 64) - 1),
    ("q", -(1 << 63), (1 << 63) - 1), ("O", 0, (1 << 128) - 1), ("o", -(1 << 127), (1 << 127) - 1),
)  # fmt: skip
"""Codes with the numbers that they hold, narrow ones first."""

_WIDE = 16
"""Bytes of an integer that :mod:`array` does not have."""


class Numbers(msgspec.Struct, frozen=True, array_like=True):
    """A column of integers (or truth values), little endian."""

    code: Code
    data: bytes

    @classmethod
    def of(cls, values: Sequence[int]) -> Numbers:
        """The column of *values* with the narrowest code that holds them all.

        Raises:
            OverflowError: one has more than 128 bits.
        """
        low, high = min(values, default=0), max(values, default=0)
        code = next((code for code, least, most in _BOUNDS if least <= low and high <= most), None)
        if code is None:
            raise OverflowError(f"{low} or {high} has more than 128 bits")
        if code in ("O", "o"):
            return cls(code, b"".join(value.to_bytes(_WIDE, "little", signed=code == "o") for value in values))
        return cls(code, _swapped(array(code, values)).tobytes())

    def values(self, count: int) -> list[int]:
        """The integers.

        Raises:
            ValueError: they are not *count* ones.
        """
        wide = self.code in ("O", "o")
        width = _WIDE if wide else array(self.code).itemsize
        if len(self.data) != count * width:
            raise ValueError(f"{len(self.data)} bytes of integers where {count} of {width} bytes should be")
        if wide:
            pieces = (self.data[start : start + width] for start in range(0, len(self.data), width))
            return [int.from_bytes(piece, "little", signed=self.code == "o") for piece in pieces]
        return _swapped(array(self.code, self.data)).tolist()


def _swapped(values: array[int]) -> array[int]:
    """From the order of bytes of the machine to little endian, or back."""
    if sys.byteorder == "big":
        values.byteswap()
    return values


def runs(rows: Sequence[Sequence[int]]) -> tuple[Numbers, Numbers]:
    """Sequences of different lengths: their lengths, and all their elements."""
    return Numbers.of([len(row) for row in rows]), Numbers.of(list(chain.from_iterable(rows)))


def _lengths_of(column: Numbers, count: int) -> list[int]:
    """The lengths of *count* lists.

    Raises:
        ValueError: they are none.
    """
    lengths = column.values(count)
    if min(lengths, default=0) < 0:
        raise ValueError("a list has a negative length")
    return lengths


def raw(text: str) -> bytes:
    """A text in a file."""
    return text.encode("utf-8", "surrogateescape")


def text(data: bytes) -> str:
    """The text that :func:`raw` made *data* of."""
    return data.decode("utf-8", "surrogateescape")


def counted(column: list[bytes], count: int) -> list[bytes]:
    """A column of bytes.

    Raises:
        ValueError: they are not *count* ones.
    """
    if len(column) != count:
        raise ValueError(f"{len(column)} values where {count} should be")
    return column


Column: TypeAlias = "Numbers | bytes | list[bytes] | tuple[Column, ...]"
"""A column, as it is encoded."""

Form: TypeAlias = object
"""The type of a column, for msgspec."""


def tuple_of(forms: Sequence[Form]) -> Form:
    """The type of tuples of values of these types."""
    return tuple.__class_getitem__(tuple(forms))


STRINGS: Form = list[bytes]
FRAMES: Form = tuple_of([Numbers] * len(Frame._fields))
STACKS: Form = tuple[Numbers, Numbers, Numbers, Numbers]
"""Columns of the tables."""


# ---------------------------------------------------------------------------------------------- writing


class TablesWriter:
    """The tables while a file is written."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._frames: dict[Frame, int] = {}
        self._frame_ids: dict[int, int] = {}
        self._stacks: dict[tuple[bytes, bool, str], int] = {}

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

    def _string(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings))

    @property
    def tables(self) -> tuple[tuple[Iterable[Any], Callable[[Any], Column]], ...]:
        """Rows of the tables of frames, stacks and strings, each with what makes columns of some of them.

        They are written after all other columns, and in this order: frames and stacks refer to strings.
        """
        return (
            (self._frames, self._frame_columns),
            (self._stacks, self._stack_columns),
            (self._strings, lambda strings: [raw(value) for value in strings]),
        )

    def reader(self) -> TablesReader:
        """These tables, as if they were read from a file."""
        reader = TablesReader()
        frames = self._frame_columns(list(self._frames)) if self._frames else ()
        stacks = self._stack_columns(list(self._stacks))
        reader.add_strings([raw(value) for value in self._strings], len(self._strings))
        if frames:
            reader.add_frames(frames, len(self._frames))
        reader.add_stacks(stacks, len(self._stacks))
        return reader

    def _frame_columns(self, frames: Sequence[Frame]) -> tuple[Numbers, ...]:
        return tuple(
            Numbers.of([self._string(value) for value in column] if name in _TEXTS else column)
            for name, column in zip(Frame._fields, zip(*frames, strict=True), strict=True)
        )

    def _stack_columns(self, stacks: Sequence[tuple[bytes, bool, str]]) -> tuple[Numbers, ...]:
        numbers = [array("I", data).tolist() for data, _, _ in stacks]
        return (
            *runs(numbers),
            Numbers.of([user for _, user, _ in stacks]),
            Numbers.of([self._string(error) for _, _, error in stacks]),
        )


_TEXTS = ("function", "module", "build_id", "file")
"""Members of frames that are in the table of strings."""


# ---------------------------------------------------------------------------------------------- reading


_STACKS_KEPT = 1 << 14
"""Stacks that were read and may come again."""


class TablesReader:
    """The tables of a file, which are added block by block: strings, frames, stacks."""

    def __init__(self) -> None:
        self._strings: list[str] = []
        self._frames: list[Frame] = []
        self._ends, self._numbers = array("Q"), array("I")
        self._users, self._errors = bytearray(), array("I")
        self.stack = lru_cache(_STACKS_KEPT)(self._stack)
        """A stack by its number in the table."""

    def add_strings(self, column: list[bytes], count: int) -> list[str]:
        """Add a block of strings.

        Raises:
            ValueError: it is damaged.
        """
        strings = [text(data) for data in counted(column, count)]
        self._strings += strings
        return strings

    def add_frames(self, columns: tuple[Numbers, ...], count: int) -> list[Frame]:
        """Add a block of frames, after all strings.

        Raises:
            ValueError, LookupError: it is damaged.
        """
        members: list[Sequence[str | int]] = []
        for name, column in zip(Frame._fields, columns, strict=True):
            numbers = column.values(count)
            if name in _TEXTS:
                members.append([self._string(number) for number in numbers])
            else:
                members.append([bool(number) for number in numbers] if name == "inlined" else numbers)
        frames = [Frame(*parts) for parts in zip(*members, strict=True)]
        self._frames += frames
        return frames

    def add_stacks(self, columns: tuple[Numbers, ...], count: int) -> list[int]:
        """Add a block of stacks, after all frames.

        Raises:
            ValueError, OverflowError: it is damaged.
        """
        lengths, numbers, users, errors = columns
        sizes = _lengths_of(lengths, count)
        frames = array("I", numbers.values(sum(sizes)))
        if max(frames, default=0) >= max(1, len(self._frames)):
            raise ValueError("a stack has a frame that there is not")
        self._ends.extend(islice(accumulate(sizes, initial=len(self._numbers)), 1, None))
        self._numbers += frames
        self._users += bytes(map(bool, users.values(count)))
        self._errors.extend(errors.values(count))
        return sizes

    def _string(self, number: int) -> str:
        if number < 0:
            raise ValueError("a number in a table is negative")
        return self._strings[number]

    def _stack(self, number: int) -> StackTrace:
        if not 0 <= number < len(self._ends):
            raise ValueError("a stack that there is not")
        start = self._ends[number - 1] if number else 0
        frames = [self._frames[frame] for frame in self._numbers[start : self._ends[number]]]
        return StackTrace(tuple(frames), bool(self._users[number]), self._string(self._errors[number]))


# ---------------------------------------------------------------------------------------------- costs


class _StoredProbe(msgspec.Struct, frozen=True, array_like=True):
    """As :class:`pytrace.core.costs.ProbeCost`."""

    probe: bytes
    hits: int
    run_time: int
    entry: int
    weight: int = 1
    detached: bool = False


class StoredCost(msgspec.Struct, frozen=True):
    """As :class:`pytrace.core.costs.RunCost`; *run* is the number of the run in the file."""

    run: int
    duration: int
    processors: int
    probes: tuple[_StoredProbe, ...]
    own_time: int
    memory: int
    maps: int

    @classmethod
    def of(cls, run: int, cost: RunCost) -> StoredCost:
        """The stored form of a run's cost."""
        probes = tuple(
            _StoredProbe(raw(item.probe), item.hits, item.run_time, item.entry, item.weight, item.detached)
            for item in cost.probes
        )
        return cls(run, cost.duration, cost.processors, probes, cost.own_time, cost.memory, cost.maps)

    def cost(self) -> RunCost:
        """Inverse of :meth:`of`."""
        probes = tuple(
            ProbeCost(text(item.probe), item.hits, item.run_time, item.entry, item.weight, item.detached)
            for item in self.probes
        )
        return RunCost(self.duration, self.processors, probes, self.own_time, self.memory, self.maps)


# ---------------------------------------------------------------------------------------------- columns


_V = TypeVar("_V")
_C = TypeVar("_C")


def form(type_: Type) -> Form:
    """The type that msgspec decodes columns of values of a type as."""
    return _row(type_).form(type_)


def pack(tables: TablesWriter, type_: Type, values: Sequence[Value]) -> Column:
    """The column of portable values of a type."""
    return _row(type_).pack(tables, type_, values)


def unpack(tables: TablesReader, type_: Type, column: Column, count: int) -> list[Value]:
    """The *count* portable values of a type that a column holds, which was decoded as :func:`form`.

    Raises:
        ValueError, LookupError: it is damaged.
    """
    return _row(type_).unpack(tables, type_, column, count)


class Row(msgspec.Struct, Generic[_V, _C], frozen=True):
    """Writing and reading of columns of one form."""

    form: Callable[[Type], Form]
    """The type of the column, for msgspec."""
    pack: Callable[[TablesWriter, Type, Sequence[_V]], Column]
    unpack: Callable[[TablesReader, Type, _C, int], list[_V]]


def _any(row: Row[_V, _C]) -> Row[Value, Column]:
    """A row of the table, whose functions are only called with values and columns of its own form."""
    return cast("Row[Value, Column]", row)


def _plain(
    form: Form, pack: Callable[[Sequence[_V]], Column], unpack: Callable[[_C, int], list[_V]]
) -> Row[Value, Column]:
    """A row that depends neither on the type nor on the tables."""
    return _any(Row(
        lambda _type: form,
        lambda _tables, _type, values: pack(values),
        lambda _tables, _type, column, count: unpack(column, count),
    ))  # fmt: skip


def _bools(column: Numbers, count: int) -> list[bool]:
    return [bool(value) for value in column.values(count)]


def _pack_fractions(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def _fractions(column: bytes, count: int) -> list[float]:
    if len(column) != 8 * count:
        raise ValueError(f"{len(column)} bytes of floating-point numbers where {count} of 8 bytes should be")
    return [one_nan(value) for value in struct.unpack(f"<{count}d", column)]


def _texts(column: list[bytes], count: int) -> list[str]:
    return [text(data) for data in counted(column, count)]


def _pack_stacks(tables: TablesWriter, _type: Type, values: Sequence[StackTrace]) -> Column:
    return Numbers.of([tables.stack(value) for value in values])


def _unpack_stacks(tables: TablesReader, _type: Type, column: Numbers, count: int) -> list[StackTrace]:
    return [tables.stack(number) for number in column.values(count)]


# ---- members: a column for each; without members, a byte for each value


def _members_form(type_: Type) -> Form:
    members = list(map(form, types.member_types(type_)))
    return tuple_of(members) if members else bytes


def _pack_members(tables: TablesWriter, type_: Type, values: Sequence[tuple[Portable, ...]]) -> Column:
    members = types.member_types(type_)
    if not members:
        return bytes(len(values))
    turned = zip(*values, strict=True) if values else [()] * len(members)
    return tuple(pack(tables, part, column) for part, column in zip(members, turned, strict=True))


def _unpack_members(
    tables: TablesReader, type_: Type, column: tuple[Column, ...] | bytes, count: int
) -> list[tuple[Value, ...]]:
    if isinstance(column, bytes):
        return _empty(column, count)
    pairs = zip(types.member_types(type_), column, strict=True)
    return list(zip(*(unpack(tables, part, values, count) for part, values in pairs), strict=True))


def _empty(column: bytes, count: int) -> list[tuple[Value, ...]]:
    if len(column) != count:
        raise ValueError(f"{len(column)} empty values where {count} should be")
    return [()] * count


# ---- arrays: one column of all elements


def _array_form(type_: Type) -> Form:
    assert isinstance(type_, types.Array)
    return form(type_.element) if type_.count else bytes


def _pack_array(tables: TablesWriter, type_: Type, values: Sequence[tuple[Portable, ...]]) -> Column:
    assert isinstance(type_, types.Array)
    return pack(tables, type_.element, list(chain.from_iterable(values))) if type_.count else bytes(len(values))


def _unpack_array(tables: TablesReader, type_: Type, column: Column, count: int) -> list[tuple[Value, ...]]:
    assert isinstance(type_, types.Array)
    if not type_.count:
        assert isinstance(column, bytes)
        return _empty(column, count)
    elements = iter(unpack(tables, type_.element, column, count * type_.count))
    return [tuple(islice(elements, type_.count)) for _ in range(count)]


# ---- aggregations


def _pack_pairs(values: Sequence[Pair]) -> Column:
    return Numbers.of([value[0] for value in values]), Numbers.of([value[1] for value in values])


def _pairs(column: tuple[Numbers, Numbers], count: int) -> list[Pair]:
    totals, counts = column
    return list(zip(totals.values(count), counts.values(count), strict=True))


def _pack_buckets(_tables: TablesWriter, _type: Type, values: Sequence[Counts]) -> Column:
    counts = Numbers.of([count for value in values for count in value.values()])
    return (*runs([list(value) for value in values]), counts)


def _unpack_buckets(_tables: TablesReader, type_: Type, column: tuple[Numbers, ...], count: int) -> list[Counts]:
    assert isinstance(type_, types.Hist | types.LHist)
    lengths, *parts = column
    sizes = _lengths_of(lengths, count)
    buckets, counts = (part.values(sum(sizes)) for part in parts)
    if not 0 <= min(buckets, default=0) <= max(buckets, default=0) < type_.buckets:
        raise ValueError("a histogram has a bucket outside of its type")
    items = zip(buckets, counts, strict=True)
    return [dict(islice(items, size)) for size in sizes]


def _pack_series(values: Sequence[Series]) -> Column:
    items = [item for value in values for item in value.values()]
    lists = [list(value) for value in values]
    return (*runs(lists), Numbers.of([value for value, _ in items]), Numbers.of([meta for _, meta in items]))


def _series(column: tuple[Numbers, ...], count: int) -> list[Series]:
    lengths, *parts = column
    sizes = _lengths_of(lengths, count)
    numbers, values, metas = (part.values(sum(sizes)) for part in parts)
    items = zip(numbers, zip(values, metas, strict=True), strict=True)
    return [dict(islice(items, size)) for size in sizes]


ROWS: dict[Held, Row[Value, Column]] = {
    Held.BOOL: _plain(Numbers, Numbers.of, _bools),
    Held.INTEGER: _plain(Numbers, Numbers.of, Numbers.values),
    Held.FLOAT: _plain(bytes, _pack_fractions, _fractions),
    Held.TEXT: _plain(list[bytes], lambda values: [raw(value) for value in values], _texts),
    Held.BYTES: _plain(list[bytes], list, counted),
    Held.STACK: _any(Row(lambda _type: Numbers, _pack_stacks, _unpack_stacks)),
    Held.ARRAY: _any(Row(_array_form, _pack_array, _unpack_array)),
    Held.MEMBERS: _any(Row(_members_form, _pack_members, _unpack_members)),
    Held.PAIR: _plain(tuple[Numbers, Numbers], _pack_pairs, _pairs),
    Held.COUNTS: _any(Row(lambda _type: tuple[Numbers, Numbers, Numbers], _pack_buckets, _unpack_buckets)),
    Held.SERIES: _plain(tuple[Numbers, Numbers, Numbers, Numbers], _pack_series, _series),
}
"""Writing and reading of columns of each form."""


def _row(type_: Type) -> Row[Value, Column]:
    return ROWS[value_kind_of(type_).held]
