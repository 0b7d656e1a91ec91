"""The entries of a map with very many keys, in order, as memory that is decoded and formatted some thousand at a time.

The same as :mod:`pytrace.render.maps.map_printer` does by objects, which for a million keys take hundreds of
megabytes and seconds: values of all CPUs are reduced as they are read, entries are sorted as records of bytes, and
formatted in blocks. Types that have no such form are left to the other way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytrace.core import types
from pytrace.render import percpu_merge
from pytrace.render.decoders import Value
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.record_form import RecordForm
from pytrace.render.large_maps.record_sorting import RecordSorter, Sort, sorter
from pytrace.render.large_maps.reduction import Reduction, reduction
from pytrace.render.large_maps.sort_keys import Piece, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytrace.core.manifest import MapSpec

Block = tuple[bytes, bytes, int]
Entry = tuple[Value, Value]
_RANKED = (types.Avg, types.Stats, types.Min, types.Max)
"""Values that are ordered by a number that has to be computed."""


class Shown(Protocol):
    """What is needed of :class:`pytrace.render.maps.map_printer.Shown`."""

    @property
    def top(self) -> int:
        """How many entries print; 0 for all."""

    @property
    def order(self) -> str:
        """Empty for the usual order, or ``key``, ``-key``, ``value``, ``-value``."""


class SortedEntries:
    """Entries of one map; rows are key, value and perhaps the number that values are ordered by."""

    def __init__(
        self, key: types.Type, reduced: Reduction, form: RecordForm, records: RecordSorter, decoders: Decoders
    ) -> None:
        self.key_type = key
        self.value_type = reduced.type
        self.decoders = decoders
        self.form = form
        self._reduced = reduced
        self._records = records

    @property
    def value_start(self) -> int:
        """Where the value is in a row."""
        return self.form.starts[1]

    @property
    def ranked(self) -> tuple[int, str] | None:
        """Where the number is that values are ordered by, and its code, if it is not in the value."""
        return None if self._reduced.ranks is None else (self.form.starts[2], "q" if self._reduced.signed else "Q")

    def fill(self, blocks: Iterable[Block]) -> None:
        """Take all entries."""
        reduced = self._reduced
        for keys, values, count in blocks:
            one = reduced.one(values, count)
            columns = [keys, one] if reduced.ranks is None else [keys, one, reduced.ranks(one).tobytes()]
            self._records.add(self.form.records(columns, count, whole=self._records.whole))

    def rows(self) -> Iterator[bytearray]:
        """All entries in order: blocks of rows."""
        for records in self._records.blocks():
            yield self.form.rows(records)

    def entries(self) -> Iterator[Entry]:
        """All entries in order, decoded."""
        key, value = self.decoders.decoder(self.key_type), self.decoders.decoder(self.value_type)
        start, size = self.value_start, self.form.row_size
        for rows in self.rows():
            for at in range(0, len(rows), size):
                yield key(rows, at), value(rows, at + start)


def sorted_entries(
    spec: MapSpec, block: Block, decoders: Decoders, shown: Shown, sort: Sort | None
) -> SortedEntries | None:
    """What sorts the entries of a map of which *block* is a part; None where its types have no such order."""
    assert spec.key is not None
    keys, values, count = block
    key_size, value_size = len(keys) // count, len(values) // count
    reduced = reduction(spec.value, value_size)
    order = None if reduced is None else _order(spec, reduced, shown.order.removeprefix("-"))
    if reduced is None or order is None or spec.key.size > key_size:
        return None
    sizes = [key_size, reduced.size] + ([8] if reduced.ranks is not None else [])
    form = RecordForm(sizes, order)
    records = sorter(form.size, sort, top=shown.top, descending=shown.order.startswith("-"))
    return SortedEntries(spec.key, reduced, form, records, decoders)


def _order(spec: MapSpec, reduced: Reduction, by: str) -> list[tuple[int, Piece]] | None:
    """The parts of rows that decide the order."""
    assert spec.key is not None
    key = pieces(spec.key)
    if key is None:
        return None
    rank: list[tuple[int, Piece]] = []
    row = percpu_merge.ROWS.get(type(spec.value), percpu_merge.OTHER)
    if by == "value" or (by != "key" and row.rank is not None):
        if reduced.ranks is not None:
            rank = [(2, Piece(0, 8, True, reduced.signed))]
        else:
            value = pieces(reduced.type)
            if value is None:
                return None
            rank = [(1, piece) for piece in value]
    return rank + [(0, piece) for piece in key]
