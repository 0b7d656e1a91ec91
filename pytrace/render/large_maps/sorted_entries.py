"""The entries of a map with very many keys, in order, as memory that is decoded and formatted some thousand at a time.

:mod:`pytrace.render.maps.map_printer` does the same with objects, which for a million keys take hundreds of megabytes
and seconds. Here per-CPU values are reduced as they are read, entries are sorted as records of bytes, and formatted in
blocks. Types without such a form are left to the map printer.
"""

from __future__ import annotations

import struct
from array import array
from functools import cache
from operator import add
from typing import TYPE_CHECKING

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.render.large_maps.record_form import RecordForm
from pytrace.render.large_maps.record_sorting import ROWS, RecordSorter, Sort, sorter
from pytrace.render.text import Value
from pytrace.render.value_kind import Piece, Reduction
from pytrace.render.values import value_kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytrace.core.manifest import MapSpec
    from pytrace.render.forms import Decoders
    from pytrace.render.maps.map_printer import Shown

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
