"""Maps with very many keys as text and JSON, a part at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core import types
from pytrace.render import json
from pytrace.render.large_maps.bucket_texts import BucketJson, BucketTexts, RememberedTexts
from pytrace.render.large_maps.row_format import GIVEN, Cell, RowFormat, cell, number_cell
from pytrace.render.large_maps.sorted_buckets import SortedBuckets, sorted_buckets
from pytrace.render.large_maps.sorted_entries import Block, Entry, SortedEntries, sorted_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytrace.render.forms import TextForms
    from pytrace.render.large_maps.record_sorting import Sort
    from pytrace.render.maps.map_printer import MapView, Shown
    from pytrace.render.text import Form


def large_map(view: MapView, block: Block, shown: Shown, sort: Sort | None) -> LargeMap | None:
    """The way for the map of *view*, of which *block* is a part; None where its types need the other way."""
    spec = view.spec
    if isinstance(spec.value, types.Hist | types.LHist):
        buckets = sorted_buckets(spec, block, view.decoders, shown)
        return None if buckets is None else _Histograms(view, buckets, shown)
    entries = sorted_entries(spec, block, view.decoders, shown, sort)
    return None if entries is None else _Values(view, entries, shown)


class LargeMap:
    """Entries of one map, in order. *found* has them."""

    def __init__(self, view: MapView, found: SortedEntries | SortedBuckets, shown: Shown) -> None:
        assert view.key_type is not None
        self.view = view
        self.key_type = view.key_type
        self.shown = shown
        self._found = found
        self._name = view.name.encode(errors="surrogateescape")

    def fill(self, blocks: Iterable[Block]) -> None:
        """Take all entries."""
        self._found.fill(blocks)

    def entries(self) -> Iterator[Entry]:
        """The entries, decoded; once."""
        return self._found.entries()

    def text(self) -> Iterator[bytes]:
        """The entries as text; once."""
        raise NotImplementedError

    def json(self) -> Iterator[bytes] | None:
        """The entries as a line of JSON; once. None when names could be equal, which has to be looked at."""
        return self._json() if json.distinct_keys(self.key_type) else None

    def _json(self) -> Iterator[bytes]:
        # As json.line and json.mapping write it.
        kind, name = self.view.json_type.encode(), json.quoted(self._name)
        yield b'{"type": "%s", "data": {%s: {' % (kind, name)
        # Each part starts with a comma, of which there is none before the first.
        start = 2
        for part in self._members():
            yield part[start:]
            start = 0
        yield b"}}}\n"

    def _members(self) -> Iterator[bytes]:
        raise NotImplementedError


class _Values(LargeMap):
    def __init__(self, view: MapView, found: SortedEntries, shown: Shown) -> None:
        super().__init__(view, found, shown)
        self._rows = found

    def text(self) -> Iterator[bytes]:
        parts = [self._name, b"[", *_key_cells(self._rows, self.view.texts, self.key_type), b"]: ", self._value()]
        return self._formatted([*parts, b"\n"])

    def _value(self) -> Cell:
        rows, kind = self._rows, self.view.value_type
        if self.shown.div <= 1:
            if rows.ranked is not None and not isinstance(kind, types.Stats):
                start, code = rows.ranked
                return Cell(start, code, 8, None, b"%d")
            plain = number_cell(rows.value_type, rows.value_start, rows.decoders)
            if plain is not None:
                return plain
        form = self.view.value_form(many(self.view.texts, kind), self.shown.div)
        return cell(rows.value_type, rows.value_start, rows.decoders, form)

    def _members(self) -> Iterator[bytes]:
        rows, view = self._rows, self.view
        form = view.value_form(view.jsons.form(view.value_type), self.shown.div)
        value = cell(rows.value_type, rows.value_start, rows.decoders, form)
        key = _key_cells(rows, view.jsons.keys, self.key_type, quoted=True)
        return self._formatted([b', "', *key, b'": ', value])

    def _formatted(self, parts: Sequence[bytes | Cell]) -> Iterator[bytes]:
        return map(RowFormat(self._rows.form.row_size, parts).text, self._rows.rows())


class _Histograms(LargeMap):
    def __init__(self, view: MapView, found: SortedBuckets, shown: Shown) -> None:
        super().__init__(view, found, shown)
        self._buckets = found

    def text(self) -> Iterator[bytes]:
        key = _key_cells(self._buckets, self.view.texts, self.key_type)
        return self._formatted([self._name, b"[", *key, b"]:\n"], b"\n", BucketTexts(self.view.shape(), self.shown.div))

    def _members(self) -> Iterator[bytes]:
        div = self.shown.div if isinstance(self.view.value_type, types.Hist) else 1
        key = _key_cells(self._buckets, self.view.jsons.keys, self.key_type, quoted=True)
        return self._formatted([b', "', *key, b'": '], b"", BucketJson(self.view.shape(), div))

    def _formatted(
        self, before: Sequence[bytes | Cell], after: bytes, values: BucketTexts | BucketJson
    ) -> Iterator[bytes]:
        """Each key between *before* and *after*, with the text of its buckets."""
        remembered = RememberedTexts(values)
        row_format = RowFormat(self._buckets.form.row_size, [*before, GIVEN, after])
        for rows, buckets in self._buckets.groups():
            yield row_format.text(rows, list(map(remembered.__getitem__, buckets)))


def many(texts: TextForms, kind: types.Type) -> Form:
    """The text form of values of which there are very many: what repeats in stacks is looked up once."""
    if isinstance(kind, types.Stack):
        return texts.many_stacks(kind)
    return texts.form(kind)


def _key_cells(
    rows: SortedEntries | SortedBuckets, texts: TextForms, kind: types.Type, *, quoted: bool = False
) -> list[bytes | Cell]:
    """What a key prints: as :meth:`TextForms.key`, or with *quoted* the inside of a JSON string of it."""
    if not isinstance(kind, types.Tuple):
        return [_key_cell(rows, texts, kind, 0, quoted)]
    found: list[bytes | Cell] = []
    for member, offset in zip(kind.members, kind.offsets, strict=True):
        found += [texts.comma, _key_cell(rows, texts, member, offset, quoted)]
    return found[1:]


def _key_cell(
    rows: SortedEntries | SortedBuckets, texts: TextForms, kind: types.Type, start: int, quoted: bool
) -> Cell:
    plain = number_cell(kind, start, rows.decoders)
    if plain is not None:
        return plain
    form = many(texts, kind)
    return cell(kind, start, rows.decoders, (lambda value: json.escape(form(value))) if quoted else form)
