"""Maps with very many keys as text, a block of entries at a time.

One operation unpacks the rows of a block, and one formats them; histograms share their labels and bars.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.render import histogram
from pytrace.render.forms import key_form
from pytrace.render.large_maps.sorted_entries import (
    Block,
    Entry,
    SortedBuckets,
    SortedEntries,
    Words,
    sorted_buckets,
    sorted_entries,
    words_of,
)
from pytrace.render.text import Bars
from pytrace.render.values import with_div

if TYPE_CHECKING:
    from pytrace.render.forms import Decoders, TextForms
    from pytrace.render.large_maps.record_sorting import Sort
    from pytrace.render.maps.map_printer import MapView, Shown
    from pytrace.render.text import Form


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
