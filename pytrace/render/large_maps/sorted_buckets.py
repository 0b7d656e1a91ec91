"""The histograms of a map with very many keys, in order; as :mod:`.sorted_entries` for values of one row."""

from __future__ import annotations

import struct
from array import array
from functools import cache
from operator import add
from typing import TYPE_CHECKING

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.render.large_maps.record_form import RecordForm
from pytrace.render.large_maps.record_sorting import ROWS
from pytrace.render.large_maps.reduction import Reduction, reduction
from pytrace.render.large_maps.sort_keys import Piece, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytrace.core.manifest import MapSpec
    from pytrace.render.forms import Decoders
    from pytrace.render.large_maps.sorted_entries import Block, Entry, Shown

Words = tuple[int, ...]
"""Number and count of a bucket, of another one, and so on; in no order. Where they are bytes, each takes 8."""

_BUCKET = 8
"""Bytes of the number of a bucket, at the end of a key in the map."""


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
                words[1::2] = memoryview(self._reduced.one(values, count)).cast("Q")
            for (key,), (pair,) in zip(split(keys), struct.iter_unpack("16s", pairs), strict=True):
                grouped[key] = get(key, b"") + pair

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
        # What is in a record needs no place elsewhere any more.
        grouped.clear()
        while keys:
            names, pairs = keys[-4 * ROWS :], buckets[-4 * ROWS :]
            del keys[-4 * ROWS :], buckets[-4 * ROWS :]
            made, _ = form.records([b"".join(names), _sums(pairs).tobytes()], len(names), whole=True)
            records += map(add, [record for (record,) in split(made)], pairs)
        records.sort(reverse=self._shown.order.startswith("-"))
        return records[-self._shown.top :] if self._shown.top else records

    def entries(self) -> Iterator[Entry]:
        """All entries in order, decoded: counts of all buckets."""
        decode, step = self.decoders.decoder(self.key_type), self.form.row_size
        for rows, buckets in self.groups():
            for start, words in zip(range(0, len(rows), step), map(words_of, buckets), strict=True):
                get = dict(zip(words[0::2], words[1::2], strict=True)).get
                yield decode(rows, start), tuple([get(bucket, 0) for bucket in range(self._buckets)])


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
    """What sorts the histograms of a map of which *block* is a part; None where its keys have no such order."""
    assert spec.key is not None
    keys, values, count = block
    key_size = len(keys) // count - _BUCKET
    reduced, order = reduction(spec.value, len(values) // count), pieces(spec.key)
    if reduced is None or order is None or key_size % 8 or spec.key.size > key_size:
        return None
    key = [(0, piece) for piece in order]
    by_key = shown.order.removeprefix("-") == "key"
    form = RecordForm([key_size, 8], key if by_key else [(1, Piece(0, 8)), *key])
    return SortedBuckets(spec, reduced, form, key_size, decoders, shown)
