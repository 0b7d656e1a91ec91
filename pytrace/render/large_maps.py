"""Maps with very many keys, in order, as memory that is decoded and formatted some thousand entries at a time.

:mod:`pytrace.render.map_printer` does the same with objects, which for a million keys take hundreds of megabytes and
seconds. Here per-CPU values are reduced as they are read, entries are sorted as records of bytes, and formatted in
blocks: one operation unpacks the rows of a block, and one formats them; histograms share their labels and bars. Types
without such a form are left to the map printer.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from operator import add
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.render import histogram
from pytrace.render.forms import key_form
from pytrace.render.text import Bars, Value
from pytrace.render.value_kind import Piece, Reduction
from pytrace.render.values import value_kind_of, with_div

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from pytrace.core.manifest import MapSpec
    from pytrace.render.forms import Decoders, TextForms
    from pytrace.render.map_printer import MapView, Shown
    from pytrace.render.text import Form


# ---------------------------------------------------------------------------------------------- rows as sorted records

# Rows of several columns as records that compare as bytes, and back.
#
# Numbers are stored with the most significant byte first and signed ones with the sign inverted; text stays. What
# compares by several parts has them one after another. Each part of a row is in exactly one place of its record, so
# `RecordForm.rows` is the inverse of `RecordForm.records`, except for what memory has after the end of a string.
#
# All is done for many rows at once, by columns: slices with a step, which arrays and byte strings copy in C. Columns
# that are zero in all rows are left out: the ends of short texts and stacks.

_CODES: Mapping[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_INVERT_SIGN = bytes(code ^ 0x80 for code in range(256))
_SWAPS = sys.byteorder == "little"

Records = tuple[bytearray, int]
"""Records one after another, and how many bytes each takes: a form's size, or less if the rest is zero in all."""


class _Unit(msgspec.Struct, frozen=True):
    """A part that is copied at once: *size* bytes of all rows.

    They are in column *source* from *start* on, at *place* of the record and at *row* of the row that comes back. In a
    string *after* is the index of the unit after it, otherwise 0.
    """

    source: int
    start: int
    size: int
    place: int
    row: int
    swap: bool
    invert: bool
    after: int = 0


class _Stack(msgspec.Struct, frozen=True):
    """A stack: at *place* process and error, then 16 bytes for each frame: 1 if there is one, and its address.

    So a stack comes before those that go on where it ends, and takes no room for frames that it does not have.
    """

    source: int
    start: int
    limit: int
    place: int
    row: int


class RecordForm:
    """Conversion of rows of several columns to records.

    Args:
        sizes: bytes of a row in each column.
        order: the pieces (column, piece) that decide the order; those that are left out follow.
    """

    def __init__(self, sizes: Sequence[int], order: Sequence[tuple[int, Piece]]) -> None:
        self._sizes = list(sizes)
        self.starts: list[int] = []
        """Where each column starts in a row that comes back."""
        end = 0
        for size in sizes:
            self.starts.append(end)
            end += (size + 7) & ~7
        self.row_size = end
        self._units: list[_Unit] = []
        self._stacks: list[_Stack] = []
        self._place = 0
        for source, piece in [*order, *_rest(self._sizes, order)]:
            self._put(source, piece)
        self.size = (self._place + 7) & ~7
        """Bytes of a whole record."""

    def _put(self, source: int, piece: Piece) -> None:
        row = self.starts[source] + piece.start
        if piece.frames:
            place = (self._place + 7) & ~7
            self._stacks.append(_Stack(source, piece.start, piece.frames, place, row))
            self._place = place + 8 + 16 * (piece.frames + 1)
            return
        swap = piece.number and _SWAPS
        for size in (8, 4, 2, 1):
            if not (piece.start | self._sizes[source] | piece.size) & (size - 1) and (not swap or size == piece.size):
                break
        place = -(-self._place // size) * size
        self._place = place + piece.size
        whole = size == piece.size
        after = len(self._units) + piece.size // size if piece.ends else 0
        for offset in range(0, piece.size, size):
            # A number that is not aligned is copied byte by byte.
            goal = place + (piece.size - 1 - offset if swap and not whole else offset)
            first = goal == place and piece.signed
            unit = _Unit(source, piece.start + offset, size, goal, row + offset, swap and whole, first, after)
            self._units.append(unit)

    def records(self, columns: Sequence[bytes], count: int, *, whole: bool = False) -> Records:
        """The records of *count* rows; *columns* are the rows of each column. *whole* ones have the form's size."""
        units = self._unit_columns(columns)
        for stack in self._stacks:
            units += self._stack_columns(stack, columns[stack.source])
        size = self.size if whole else (max((place + size for place, size, _ in units), default=1) + 7) & ~7
        records = bytearray(count * size)
        for place, width, data in units:
            _write(records, size, place, width, data)
        return records, size

    def _unit_columns(self, columns: Sequence[bytes]) -> list[tuple[int, int, bytes]]:
        """Place, size and bytes of the units that are not zero in all rows."""
        used, index = [], 0
        while index < len(self._units):
            unit = self._units[index]
            data = self._column(unit, columns)
            if data:
                used.append((unit.place, unit.size, data))
            # Where all rows of a string have a zero, all of them have ended.
            index = unit.after if unit.after and not data else index + 1
        return used

    def _column(self, unit: _Unit, columns: Sequence[bytes]) -> bytes:
        """The bytes of a unit of all rows, as they are in records; empty where all are zero."""
        data = _read(columns[unit.source], self._sizes[unit.source], unit.start, unit.size)
        if unit.invert:
            return _inverted(_swapped(data, unit.size) if unit.swap else data, unit.size)
        if not any(data[:64]) and data == bytes(len(data)):
            return b""
        return _swapped(data, unit.size) if unit.swap else data

    def _stack_columns(self, stack: _Stack, data: bytes) -> list[tuple[int, int, bytes]]:
        step = self._sizes[stack.source]
        counts = array("i", _read(data, step, stack.start, 4))
        errors = array("i", [min(count, 0) for count in counts]).tobytes()
        units = [
            (stack.place, 4, _swapped(_read(data, step, stack.start + 4, 4), 4)),
            (stack.place + 4, 4, _inverted(_swapped(errors, 4), 4)),
        ]
        # A truncated stack has one frame more, of which there is no address.
        present = bytes([min(max(count, 0), stack.limit + 1) for count in counts])
        for index in range(max(present, default=0)):
            place = stack.place + 8 + 16 * index
            units.append((place, 1, present.translate(bytes(index + 1) + b"\1" * (255 - index))))
            if index == stack.limit:
                break
            units.append((place + 8, 8, _swapped(_read(data, step, stack.start + 8 + 8 * index, 8), 8)))
        return units

    def rows(self, records: Records) -> bytearray:
        """The inverse: rows of :attr:`row_size` bytes."""
        data, size = records
        rows = bytearray(len(data) // size * self.row_size)
        for unit in self._units:
            if unit.place >= size:
                continue
            column = _read(data, size, unit.place, unit.size)
            if unit.invert:
                column = _inverted(column, unit.size)
            _write(rows, self.row_size, unit.row, unit.size, _swapped(column, unit.size) if unit.swap else column)
        for stack in self._stacks:
            self._stack_rows(stack, data, size, rows)
        return rows

    def _stack_rows(self, stack: _Stack, data: bytearray, size: int, rows: bytearray) -> None:
        step, row = self.row_size, stack.row
        errors = _swapped(_inverted(_read(data, size, stack.place + 4, 4), 4), 4)
        _write(rows, step, row, 4, errors)
        _write(rows, step, row + 4, 4, _swapped(_read(data, size, stack.place, 4), 4))
        counts = 0
        for index in range(min(stack.limit + 1, (size - stack.place + 7) // 16)):
            place = stack.place + 8 + 16 * index
            present = int.from_bytes(data[place::size], "little")
            if not present:
                break
            # Each byte of the sum counts the frames of one stack.
            counts += present
            # What is behind the end of trimmed records is zero, as is the address of a last frame that has none.
            if index == stack.limit or place + 8 >= size:
                break
            _write(rows, step, row + 8 + 8 * index, 8, _swapped(_read(data, size, place + 8, 8), 8))
        numbers = array("i", list(counts.to_bytes(len(data) // size, "little")))
        if any(errors):
            numbers = array("i", map(_or_error, numbers, array("i", errors)))
        _write(rows, step, row, 4, numbers.tobytes())


def _or_error(count: int, error: int) -> int:
    return error or count


def _rest(sizes: Sequence[int], order: Sequence[tuple[int, Piece]]) -> list[tuple[int, Piece]]:
    """The parts that no piece of *order* covers."""
    pieces = []
    for source, size in enumerate(sizes):
        covered = sorted((piece.start, piece.start + piece.size) for index, piece in order if index == source)
        free = 0
        for start, end in [*covered, (size, size)]:
            if start > free:
                pieces.append((source, Piece(free, start - free, False)))
            free = max(free, end)
    return pieces


def _read(data: bytes | bytearray, step: int, start: int, size: int) -> bytes:
    """*size* bytes from *start* on of each of the rows, which take *step* bytes; both are multiples of *size*."""
    if size == 1:
        return bytes(data[start::step])
    with memoryview(data) as whole, _units(whole, size) as units:
        return units[start // size :: step // size].tobytes()


def _write(rows: bytearray, step: int, place: int, size: int, data: bytes) -> None:
    """The inverse of :func:`_read`."""
    if size == 1:
        rows[place::step] = data
        return
    with memoryview(rows) as whole, _units(whole, size) as units:
        units[place // size :: step // size] = _units(memoryview(data), size)


def _units(view: memoryview, size: int) -> memoryview:
    return view.cast(_CODES[size])


def _swapped(data: bytes, size: int) -> bytes:
    if not _SWAPS or size == 1:
        return data
    units = array(_CODES[size], data)
    units.byteswap()
    return units.tobytes()


def _inverted(data: bytes, size: int) -> bytes:
    """Numbers with the most significant byte first, their signs inverted."""
    inverted = bytearray(data)
    inverted[::size] = inverted[::size].translate(_INVERT_SIGN)
    return bytes(inverted)


# ---------------------------------------------------------------------------------------------- sorting


ROWS = 1024
"""Records of one block of the result."""
_SHORT = 32
"""Longer records sort faster as objects: only their references move."""


Sort = Callable[[bytearray, int], None]
"""Sorts records of a size in place, by their bytes."""


class RecordSorter(ABC):
    """Sorts records."""

    whole = False
    """Whether records must have their whole size."""

    @abstractmethod
    def add(self, records: Records) -> None:
        """Take some records."""

    @abstractmethod
    def blocks(self) -> Iterator[Records]:
        """All records in order, some at a time."""


def sorter(size: int, sort: Sort | None, *, top: int = 0, descending: bool = False) -> RecordSorter:
    """A sorter of records of *size* bytes; of all only the last *top* of the order are returned unless that is 0.

    *sort* sorts short ones in place, where the machine has such a function.
    """
    if top:
        return _LastRecords(top, descending)
    if size <= _SHORT and sort is not None:
        return _ShortRecords(size, sort, descending)
    return _LongRecords(descending)


class _ShortRecords(RecordSorter):
    whole = True

    def __init__(self, size: int, sort: Sort, descending: bool) -> None:
        self._size = size
        self._sort = sort
        self._descending = descending
        self._all = bytearray()

    def add(self, records: Records) -> None:
        self._all += records[0]

    def blocks(self) -> Iterator[Records]:
        data, size = self._all, self._size
        self._sort(data, size)
        step = ROWS * size
        if not self._descending:
            for start in range(0, len(data), step):
                yield data[start : start + step], size
            return
        for end in range(len(data), 0, -step):
            yield bytearray().join(reversed(_split(data[max(0, end - step) : end], size))), size


class _LongRecords(RecordSorter):
    def __init__(self, descending: bool) -> None:
        self._descending = descending
        self._all: list[bytes] = []

    def add(self, records: Records) -> None:
        # Without the zeros at their ends they compare as with them.
        self._all += [record.rstrip(b"\0") for record in _split(*records)]

    def blocks(self) -> Iterator[Records]:
        self._all.sort(reverse=self._descending)
        for start in range(0, len(self._all), ROWS):
            yield padded(self._all[start : start + ROWS])


class _LastRecords(RecordSorter):
    def __init__(self, top: int, descending: bool) -> None:
        self._top = top
        self._descending = descending
        self._best: list[bytes] = []

    def add(self, records: Records) -> None:
        items = [record.rstrip(b"\0") for record in _split(*records)]
        if len(self._best) == self._top:
            bound = self._best[0]
            items = [item for item in items if (item < bound if self._descending else item > bound)]
        if items:
            self._best = sorted(self._best + items, reverse=self._descending)[-self._top :]

    def blocks(self) -> Iterator[Records]:
        for start in range(0, len(self._best), ROWS):
            yield padded(self._best[start : start + ROWS])


def _split(data: bytearray, size: int) -> list[bytes]:
    return [record for (record,) in struct.iter_unpack(f"{size}s", data)]


def padded(trimmed: list[bytes]) -> Records:
    """Records of different sizes with zeros at their ends."""
    size = (max(map(len, trimmed), default=1) + 7) & ~7 or 8
    return bytearray().join([record.ljust(size, b"\0") for record in trimmed]), size


# ---------------------------------------------------------------------------------------------- entries of maps

Block = tuple[bytes, bytes, int]
Entry = tuple[Value, Value]
Words = tuple[int, ...]
"""Number and count of a bucket, of another one, and so on; in no order. Where they are bytes, each takes 8."""

_BUCKET = 8
"""Bytes of the number of a bucket, at the end of a key in the map."""


class SortedEntries:
    """Entries of one map; rows are key, value and, if not in the value, the number that values are sorted by."""

    def __init__(
        self, key: types.Type, reduced: Reduction, form: RecordForm, records: RecordSorter, decoders: Decoders
    ) -> None:
        self.key_type = key
        self.value_type = reduced.type
        self.decoders = decoders
        self.form = form
        self._reduced = reduced
        self._records = records
        self.count = 0
        """Number of entries."""

    @property
    def value_start(self) -> int:
        """Offset of the value in a row."""
        return self.form.starts[1]

    @property
    def ranked(self) -> tuple[int, str] | None:
        """Offset and code of the number by which values are sorted, if it is not in the value."""
        return None if self._reduced.ranks is None else (self.form.starts[2], "q" if self._reduced.signed else "Q")

    def fill(self, blocks: Iterable[Block]) -> None:
        """Take all entries."""
        reduced = self._reduced
        for keys, values, count in blocks:
            self.count += count
            one = reduced.one(values)
            columns = [keys, one] if reduced.ranks is None else [keys, one, reduced.ranks(one).tobytes()]
            self._records.add(self.form.records(columns, count, whole=self._records.whole))

    def rows(self) -> Iterator[bytearray]:
        """All entries in order: blocks of rows."""
        for records in self._records.blocks():
            yield self.form.rows(records)

    def entries(self) -> Iterator[list[Entry]]:
        """All entries in order, decoded: blocks of them."""
        key, value = self.decoders.decoder(self.key_type), self.decoders.decoder(self.value_type)
        start, size = self.value_start, self.form.row_size
        for rows in self.rows():
            yield [(key(rows, offset), value(rows, offset + start)) for offset in range(0, len(rows), size)]


def sorted_entries(
    spec: MapSpec, block: Block, decoders: Decoders, shown: Shown, sort: Sort | None
) -> SortedEntries | None:
    """Entries of a map of which *block* is a part; None where its types have no such order."""
    assert spec.key is not None
    keys, values, count = block
    key_size, value_size = len(keys) // count, len(values) // count
    reduced = value_kind_of(spec.value).reduction(value_size, decoders)
    order = None if reduced is None else _order(spec, reduced, shown.order.removeprefix("-"))
    if reduced is None or order is None or spec.key.size > key_size:
        return None
    sizes = [key_size, reduced.size] + ([8] if reduced.ranks is not None else [])
    form = RecordForm(sizes, order)
    records = sorter(form.size, sort, top=shown.top, descending=shown.order.startswith("-"))
    return SortedEntries(spec.key, reduced, form, records, decoders)


def _order(spec: MapSpec, reduced: Reduction, by: str) -> list[tuple[int, Piece]] | None:
    """The parts of rows that decide the order; None where the types have none."""
    assert spec.key is not None
    key = value_kind_of(spec.key).pieces()
    if key is None:
        return None
    rank: list[tuple[int, Piece]] = []
    if by == "value" or (by != "key" and value_kind_of(spec.value).rank() is not None):
        if reduced.ranks is not None:
            rank = [(2, Piece(0, 8, True, reduced.signed))]
        else:
            value = value_kind_of(reduced.type).pieces()
            if value is None:
                return None
            rank = [(1, piece) for piece in value]
    return rank + [(0, piece) for piece in key]


# ---------------------------------------------------------------------------------------------- histograms


class SortedBuckets:
    """Entries of a map of histograms; the map has a row for each bucket of a key that counted something."""

    def __init__(
        self, spec: MapSpec, reduced: Reduction, form: RecordForm, key_size: int, decoders: Decoders, shown: Shown
    ) -> None:
        assert spec.key is not None
        assert isinstance(spec.value, types.Hist | types.LHist)
        self.key_type = spec.key
        self.decoders = decoders
        self._name = spec.name
        self._buckets = spec.value.buckets
        self._shown = shown
        self._reduced = reduced
        self.form = form
        self._key_size = key_size
        self._grouped: dict[bytes, bytes] = {}
        """For each key its buckets: pairs of number and count, in no order."""
        self.count = 0
        """Number of keys."""

    def fill(self, blocks: Iterable[Block]) -> None:
        """Take all rows."""
        split = struct.Struct(f"{self._key_size}s{_BUCKET}x").iter_unpack
        grouped, get = self._grouped, self._grouped.get
        for keys, values, count in blocks:
            with memoryview(keys) as whole, whole.cast("Q") as words:
                numbers = words[self._key_size // 8 :: len(keys) // count // 8].tobytes()
            self._check(numbers)
            pairs = bytearray(16 * count)
            with memoryview(pairs) as whole, whole.cast("Q") as words:
                words[0::2] = memoryview(numbers).cast("Q")
                words[1::2] = memoryview(self._reduced.one(values)).cast("Q")
            for (key,), (pair,) in zip(split(keys), struct.iter_unpack("16s", pairs), strict=True):
                grouped[key] = get(key, b"") + pair
        self.count = len(grouped)

    def _check(self, numbers: bytes) -> None:
        greatest = max(memoryview(numbers).cast("Q"))
        if greatest >= self._buckets:
            raise InternalError(f"{self._name} has a bucket {greatest}; its type has {self._buckets}")

    def groups(self) -> Iterator[tuple[bytearray, list[bytes]]]:
        """Rows of all keys in order, and the buckets of each: numbers and counts, in turn; some keys at a time."""
        size, records = self.form.size, self._sorted()
        for start in range(0, len(records), ROWS):
            block = records[start : start + ROWS]
            rows = self.form.rows((bytearray().join([record[:size] for record in block]), size))
            yield rows, [record[size:] for record in block]

    def _sorted(self) -> list[bytes]:
        """Records of the key and the sum of its counts, each followed by its buckets."""
        form, grouped = self.form, self._grouped
        split = struct.Struct(f"{form.size}s").iter_unpack
        records: list[bytes] = []
        keys, buckets = list(grouped), list(grouped.values())
        # Their content moves to the records.
        grouped.clear()
        while keys:
            names, pairs = keys[-4 * ROWS :], buckets[-4 * ROWS :]
            del keys[-4 * ROWS :], buckets[-4 * ROWS :]
            data, _ = form.records([b"".join(names), _sums(pairs).tobytes()], len(names), whole=True)
            records += map(add, [record for (record,) in split(data)], pairs)
        records.sort(reverse=self._shown.order.startswith("-"))
        return records[-self._shown.top :] if self._shown.top else records

    def entries(self) -> Iterator[list[Entry]]:
        """All entries in order, decoded, with the counts of all buckets: blocks of them."""
        decode, step = self.decoders.decoder(self.key_type), self.form.row_size
        for rows, buckets in self.groups():
            keys = [decode(rows, offset) for offset in range(0, len(rows), step)]
            yield list(zip(keys, map(self._counts, buckets), strict=True))

    def _counts(self, pairs: bytes) -> tuple[int, ...]:
        words = words_of(pairs)
        get = dict(zip(words[0::2], words[1::2], strict=True)).get
        return tuple([get(bucket, 0) for bucket in range(self._buckets)])


def _sums(buckets: Sequence[bytes]) -> array[int]:
    """The sums of the counts of keys with these buckets."""
    whole = b"".join(buckets)
    if len(whole) == 16 * len(buckets):
        # Each key has one.
        with memoryview(whole) as view, view.cast("Q") as words:
            return array("Q", words[1::2].tobytes())
    return array("Q", [sum(words_of(pairs)[1::2]) for pairs in buckets])


def words_of(pairs: bytes) -> Words:
    """Numbers of buckets and their counts."""
    return _unpacker(len(pairs))(pairs)


@cache
def _unpacker(size: int) -> Callable[[bytes], Words]:
    return struct.Struct(f"={size // 8}Q").unpack


def sorted_buckets(spec: MapSpec, block: Block, decoders: Decoders, shown: Shown) -> SortedBuckets | None:
    """Histograms of a map of which *block* is a part; None where its keys have no such order."""
    assert spec.key is not None
    keys, values, count = block
    key_size = len(keys) // count - _BUCKET
    reduced = value_kind_of(spec.value).reduction(len(values) // count, decoders)
    order = value_kind_of(spec.key).pieces()
    if reduced is None or order is None or key_size % 8 or spec.key.size > key_size:
        return None
    key = [(0, piece) for piece in order]
    by_key = shown.order.removeprefix("-") == "key"
    form = RecordForm([key_size, 8], key if by_key else [(1, Piece(0, 8)), *key])
    return SortedBuckets(spec, reduced, form, key_size, decoders, shown)


# ---------------------------------------------------------------------------------------------- printing


class LargeMap(msgspec.Struct, frozen=True):
    """Entries of one map. After :meth:`fill`, either :meth:`entries` or :attr:`text` can be read once."""

    _entries: SortedEntries | SortedBuckets
    text: Callable[[], Iterator[bytes]]
    """The entries as text, a block at a time."""

    def fill(self, blocks: Iterable[Block]) -> None:
        """Take all entries."""
        self._entries.fill(blocks)

    @property
    def count(self) -> int:
        """Number of entries that :meth:`fill` has taken."""
        return self._entries.count

    def entries(self) -> Iterator[list[Entry]]:
        """The entries in order, decoded, a block at a time."""
        return self._entries.entries()


def large_map(view: MapView, block: Block, shown: Shown, sort: Sort | None) -> LargeMap | None:
    """The entries of the map of *view*, of which *block* is a part; None where its types have no such form."""
    spec = view.spec
    if isinstance(spec.value, types.Hist | types.LHist):
        buckets = sorted_buckets(spec, block, view.decoders, shown)
        return None if buckets is None else LargeMap(buckets, partial(_histograms, view, buckets, shown))
    entries = sorted_entries(spec, block, view.decoders, shown, sort)
    return None if entries is None else LargeMap(entries, partial(_values, view, entries, shown))


def _values(view: MapView, entries: SortedEntries, shown: Shown) -> Iterator[bytes]:
    parts = [*_key_parts(view, entries.decoders), b"]: ", _value_cell(view, entries, shown), b"\n"]
    return map(RowFormat(entries.form.row_size, parts).text, entries.rows())


def _value_cell(view: MapView, entries: SortedEntries, shown: Shown) -> Cell:
    type_ = view.value_type
    if shown.div <= 1:
        if entries.ranked is not None and not isinstance(type_, types.Stats):
            start, code = entries.ranked
            return Cell(start, code, 8, None, b"%d")
        plain = number_cell(entries.value_type, entries.value_start, entries.decoders)
        if plain is not None:
            return plain
    form = with_div(_many(view.texts, type_), type_, shown.div)
    return cell(entries.value_type, entries.value_start, entries.decoders, form)


def _histograms(view: MapView, entries: SortedBuckets, shown: Shown) -> Iterator[bytes]:
    values = BucketTexts(view.shape(), shown.div, view.texts.bars)
    row_format = RowFormat(entries.form.row_size, [*_key_parts(view, entries.decoders), b"]:\n", LAST, b"\n"])
    for rows, buckets in entries.groups():
        yield row_format.text(rows, [values.text(words_of(pairs)) for pairs in buckets])


def _many(texts: TextForms, type_: types.Type) -> Form:
    """The text form of very many values."""
    return texts.many_stacks(type_) if isinstance(type_, types.Stack) else texts.form(type_)


def _key_parts(view: MapView, decoders: Decoders) -> list[bytes | Cell]:
    """The name of a map, and a key as :meth:`TextForms.key` prints it."""
    type_, texts = view.key_type, view.texts
    assert type_ is not None
    members = [(type_, 0)]
    if isinstance(type_, types.Tuple):
        members = list(zip(type_.members, type_.offsets, strict=True))
    parts: list[bytes | Cell] = []
    for member, offset in members:
        plain = number_cell(member, offset, decoders)
        parts += [texts.comma, plain or cell(member, offset, decoders, key_form(member, _many(texts, member)))]
    return [view.label, b"[", *parts[1:]]


# ---------------------------------------------------------------------------------------------- rows


Column = Callable[[Sequence[bytes]], list[bytes]]
"""From the bytes of the values of one column to their texts."""


class Cell(msgspec.Struct, frozen=True):
    """A value in a row: how it is read from *start* (a code of :mod:`struct`), converted, and formatted."""

    start: int
    code: str
    size: int
    convert: Column | None
    form: bytes


def number_cell(type_: types.Type, start: int, decoders: Decoders) -> Cell | None:
    """The cell of a value that is formatted as the number that it is; None for other types."""
    if not isinstance(type_, types.Pointer | types.Int | types.Count | types.Sum) or type_.size > 8:
        return None
    form = b"0x%x" if isinstance(type_, types.Pointer) else b"%d"
    return Cell(start, decoders.convert(type_)[0], type_.size, None, form)


def cell(type_: types.Type, start: int, decoders: Decoders, form: Form) -> Cell:
    """The cell of a value of type *type_* whose text is *form* of the decoded value."""
    if isinstance(type_, types.String):
        string = decoders.string(type_)
        return Cell(start, f"{type_.size}s", type_.size, lambda column: [form(string(item)) for item in column], b"%s")
    decode = decoders.decoder(type_)
    return Cell(start, f"{type_.size}s", type_.size, lambda column: [form(decode(item, 0)) for item in column], b"%s")


LAST = Cell(0, "", 0, None, b"%s")
"""The last cell of rows, whose texts are not in their memory."""


class RowFormat:
    """The text of rows of *size* bytes: *parts* are literal text and cells, in the order of text and of memory."""

    def __init__(self, size: int, parts: Sequence[bytes | Cell]) -> None:
        self.size = size
        cells = [part for part in parts if isinstance(part, Cell) and part is not LAST]
        layout, offset = "", 0
        for item in cells:
            layout += f"{item.start - offset}x{item.code}" if item.start != offset else item.code
            offset = item.start + item.size
        self._layout = layout + (f"{size - offset}x" if size != offset else "")
        self._line = b"".join([part.form if isinstance(part, Cell) else part.replace(b"%", b"%%") for part in parts])
        self._converts = [(index, item.convert) for index, item in enumerate(cells) if item.convert is not None]
        self._width = len(cells)
        self._for_rows = lru_cache(2)(self._repeated)

    def _repeated(self, count: int) -> tuple[struct.Struct, bytes]:
        return struct.Struct("=" + self._layout * count), self._line * count

    def text(self, rows: bytearray, last: Sequence[bytes] | None = None) -> bytes:
        """The text of *rows*, which lie one after another; *last* are the texts of :data:`LAST`."""
        count, width = len(rows) // self.size, self._width
        layout, line = self._for_rows(count)
        if not self._converts and last is None:
            return line % layout.unpack(rows)
        flat = list(layout.unpack(rows))
        for index, convert in self._converts:
            flat[index::width] = convert(flat[index::width])
        if last is None:
            return line % tuple(flat)
        whole: list[object] = [None] * (count * (width + 1))
        for index in range(width):
            whole[index :: width + 1] = flat[index::width]
        whole[width :: width + 1] = last
        return line % tuple(whole)


# ---------------------------------------------------------------------------------------------- histograms

_REMEMBERED = 1 << 16
"""Different ends of lines that are remembered."""


class BucketTexts:
    """The text of histograms of one shape; *div* divides the counts, *bars* says how bars are drawn."""

    def __init__(
        self, shape: histogram.Shape, div: int = 1, bars: Bars = Bars.SIGNS
    ) -> None:
        self._div = div if shape.divisible else 1
        self._labels = [histogram.label(shape, index) for index in range(shape.buckets)]
        self._tail = lru_cache(_REMEMBERED)(partial(histogram.tail, bars=bars))

    def text(self, words: Words) -> bytes:
        """As :func:`histogram.text`; *words* are numbers of buckets and their counts, in turn."""
        used = {bucket: count for bucket, count in zip(words[0::2], words[1::2], strict=True) if count}
        if not used:
            return b""
        counts = used if self._div == 1 else {bucket: count // self._div for bucket, count in used.items()}
        most, labels, tail, get = max(counts.values()) or 1, self._labels, self._tail, counts.get
        buckets = range(min(used), max(used) + 1)
        return b"".join([labels[bucket] + tail(get(bucket, 0), most) for bucket in buckets])
