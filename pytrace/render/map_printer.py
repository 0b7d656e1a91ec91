"""Printing maps: entries sorted and limited to the top N, text and JSON, snapshots, percentiles."""

from __future__ import annotations

import heapq
import struct
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import msgspec

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import truncated
from pytrace.render import histogram, json, tseries
from pytrace.render.forms import Decoders
from pytrace.render.histogram import Quantile
from pytrace.render.text import Decode, Value, Values, for_any, map_title
from pytrace.render.tseries import Intervals
from pytrace.render.value_kind import itself
from pytrace.render.values import value_kind_of, with_div

if TYPE_CHECKING:
    # Loaded only by scripts that have such maps.
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytrace.core.manifest import MapSpec
    from pytrace.render.forms import JsonForms, TextForms
    from pytrace.render.large_maps import LargeMap
    from pytrace.render.stack_layout import StackLayout
    from pytrace.render.text import Form


LARGE = 4096
"""Maps with more rows are printed by blocks (:mod:`pytrace.render.large_maps`)."""

Block = tuple[bytes, bytes, int]
"""Keys one after another, their values one after another, and how many they are."""


class Reader(Protocol):
    """The part of :class:`pytrace.runtime.load.map_reader.MapReader` that printing uses."""

    def blocks(self, spec: MapSpec, *, clear: bool = False) -> Iterator[Block]:
        """The rows of a keyed map, some thousand at a time; values are the copies of all CPUs in a row.

        With *clear* they are taken out in the same step; all have to be asked for then.
        """

    def chunk(self, digest: bytes) -> bytes | None:
        """A chunk of stacks by its digest (:data:`pytrace.core.types.CHUNK_SIZE`)."""

    def slot(self, spec: MapSpec) -> tuple[bool, bytes]:
        """True if an unkeyed map was written, and its copies one after another."""

    def slot_and_clear(self, spec: MapSpec) -> tuple[bool, bytes]:
        """As :meth:`slot`, clearing it in the same step."""

    def lookup(self, spec: MapSpec, key: bytes) -> bytes | None:
        """The value of *key*, or None."""

    def store(self, spec: MapSpec, key: bytes, value: bytes) -> None:
        """Set the value of *key*."""

    def delete(self, spec: MapSpec, key: bytes) -> bool:
        """Remove *key*; False when it was not there."""

    def store_slot(self, spec: MapSpec, value: bytes) -> bool:
        """Set the value of a map without keys. Returns whether it had one."""

    def clear(self, spec: MapSpec) -> None:
        """Make a map as if never written."""

    def zero(self, spec: MapSpec) -> None:
        """Set all values to zero."""


class Shown(msgspec.Struct, frozen=True):
    """Options of ``print()`` of a map: the last *top* entries (0: all) in *order*, numbers divided by *div*.

    *order* is empty for the usual one, or ``key``, ``-key``, ``value``, ``-value``.
    """

    top: int = 0
    div: int = 1
    order: str = ""
    clear: bool = False


Entry = tuple[Value, Value]
"""Decoded key (``()`` for an unkeyed map) and merged value."""


class MapPrinter:
    """The text and JSON of a map's entries, wherever they come from."""

    def __init__(
        self,
        name: str,
        key: types.Type | None,
        value: types.Type,
        texts: TextForms,
        jsons: JsonForms,
        marks: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._marks: Mapping[str, str] = {} if marks is None else marks
        self.key_type = key
        self.value_type = value
        self.texts = texts
        self.jsons = jsons
        self._kind = value_kind_of(value)
        self._name = name.encode(errors="surrogateescape")

    @property
    def mark(self) -> str:
        """What is said of the values: ``estimate`` or ``sample`` if hits were left out, else nothing."""
        return self._marks.get(self.name, "")

    @property
    def title(self) -> str:
        """The name of the map, with its mark."""
        return map_title(self.name, self.mark)

    @property
    def label(self) -> bytes:
        """The title in text output."""
        return self.title.encode(errors="surrogateescape")

    def sort(self, entries: list[Entry], order: str = "") -> None:
        """Order entries as they print."""
        entries.sort(key=self.order_key(order.removeprefix("-")), reverse=order.startswith("-"))

    def order_key(self, by: str = "") -> Callable[[Entry], Value]:
        """The sort key of entries: by ``key``, by ``value``, or as they print without an order."""
        rank = self._kind.rank()
        if by == "value" and rank is None:
            rank = itself
        if by == "key" or rank is None:
            return lambda entry: entry[0]
        if rank is itself:
            return lambda entry: (entry[1], entry[0])
        chosen = rank
        return lambda entry: (chosen(entry[1]), entry[0])

    @property
    def json_type(self) -> str:
        """The type of the map's lines in JSON output."""
        return self._kind.json_type

    def entries_text(self, entries: list[Entry], shown: Shown, last: int | None = None) -> bytes:
        """Entries as text, empty when there are none; *last* as for :meth:`window`."""
        value = self._form(shown, entries, last)
        if self.key_type is None:
            opening = b":\n" if self._kind.bucketed else b": "
            return b"".join([b"%s%s%s\n" % (self.label, opening, value(item)) for _, item in entries])
        key = self.texts.key(self.key_type)
        line = self.label.replace(b"%", b"%%") + (
            b"[%s]:\n%s\n" if self._kind.bucketed else b"[%s]: %s\n"
        )
        return b"".join([line % (key(name), value(item)) for name, item in entries])

    def entries_json(self, entries: list[Entry], shown: Shown) -> bytes:
        """Entries as one line of JSON, empty when there are none."""
        if not entries:
            return b""
        value = self._form(shown, entries, as_json=True)
        if self.key_type is None:
            data = value(entries[0][1])
        else:
            data = self._members([(name, value(item)) for name, item in entries])
        return json.line(self._kind.json_type, json.mapping([(self._name, data)]), self.mark)

    def distinct_names(self, keys: Iterable[Value]) -> json.DistinctNames | None:
        """What makes the names of these decoded keys distinct in JSON; None where they are."""
        if self.key_type is None or json.distinct_keys(self.key_type):
            return None
        return json.DistinctNames(map(self.jsons.key(self.key_type), keys))

    def entries_json_parts(
        self, blocks: Iterable[list[Entry]], shown: Shown, last: int | None, names: json.DistinctNames | None = None
    ) -> Iterator[bytes]:
        """As :meth:`entries_json`, of at least one block of entries.

        Where different keys may have the same text and there are no *names* of all of them, in one part.
        """
        if self.key_type is None or (names is None and not json.distinct_keys(self.key_type)):
            yield self.entries_json(list(chain.from_iterable(blocks)), shown)
            return
        # As json.line and json.mapping write it.
        before = b'{"type": "%s", "data": {%s: {' % (self._kind.json_type.encode(), json.quoted(self._name))
        for block in blocks:
            value = self._form(shown, block, last, as_json=True)
            yield before + self._members([(name, value(item)) for name, item in block], names)[1:-1]
            before = b", "
        yield b"}}%s\n" % json.ending(self.mark)

    def _members(self, entries: list[tuple[Value, bytes]], distinct: json.DistinctNames | None = None) -> bytes:
        """A JSON object of decoded keys and values in JSON form; they are all unless *distinct* knows the others."""
        assert self.key_type is not None
        key = self.jsons.key(self.key_type)
        texts = [key(name) for name, _ in entries]
        names = json.distinct(texts) if distinct is None else distinct.of(texts)
        return json.mapping(list(zip(names, (value for _, value in entries), strict=True)))

    def _form(self, shown: Shown, entries: list[Entry], last: int | None = None, *, as_json: bool = False) -> Form:
        """The form of values in text or JSON."""
        type_ = self.value_type
        if isinstance(type_, types.TSeries):
            series = tseries.json_text if as_json else tseries.text
            window = self.window(type_, entries, shown.div, last)
            return for_any(lambda value: series(window(value)))
        if isinstance(type_, types.Hist):
            shape, bars = histogram.shape(type_), self.texts.bars
            if as_json:
                return for_any(lambda value: histogram.json_text(shape, value, shown.div))
            return for_any(lambda value: histogram.text(shape, value, shown.div, bars))
        return with_div((self.jsons if as_json else self.texts).form(type_), type_, shown.div)

    def window(
        self, type_: types.TSeries, entries: list[Entry], div: int, last: int | None = None
    ) -> Callable[[Intervals], tseries.Points]:
        """The series of a value, divided by *div*.

        All series of a map end with the last interval that any of them has: *last*, or that of *entries*.
        """
        if last is None:
            last = last_interval(entries)
        end = last

        def window(value: Intervals) -> tseries.Points:
            values = {number: truncated(item, div) for number, item in tseries.merged(type_, value).items()}
            return tseries.window(type_, values, end)

        return window

    def shape(self) -> histogram.Shape:
        """The buckets of a map of histograms."""
        type_ = self.value_type
        if not isinstance(type_, types.Hist | types.LHist):
            raise InternalError(f"percentiles of {self.name}, which is no histogram")
        return histogram.shape(type_)


def _quantile_json(items: Sequence[Quantile]) -> bytes:
    """An array of percentiles: value and maximum error (both null at an open end), and the known bounds."""
    quantiles = []
    for item in items:
        parts = [
            (b"percentile", item.percent.encode()),
            (b"value", b"null" if item.value is None else json.number(item.value)),
            (b"error", b"null" if item.error is None else json.number(item.error)),
        ]
        bounds = ((b"min", item.low), (b"max", item.high))
        quantiles.append(json.mapping([*parts, *((name, json.number(end)) for name, end in bounds if end is not None)]))
    return b"[%s]" % b",".join(quantiles)


def quantile_text(item: Quantile) -> bytes:
    """``p99 1056 ±32`` or, at an open end, ``p99 < 0``."""
    label = f"p{item.percent}"
    if item.value is not None:
        tail = f"{item.value} ±{item.error}" if item.error else f"{item.value}"
    elif item.low is not None:
        tail = f">= {item.low}"
    elif item.high is not None:
        tail = f"< {item.high + 1}"
    else:
        tail = "no data"
    return f"{label:<8} {tail}\n".encode()


class MapView(MapPrinter):
    """One map of the running script: reading, merging and printing."""

    def __init__(
        self,
        spec: MapSpec,
        reader: Reader,
        decoders: Decoders,
        texts: TextForms,
        jsons: JsonForms,
        large: Callable[[MapView, Block, Shown], LargeMap | None] | None = None,
        marks: Mapping[str, str] | None = None,
        layout: StackLayout | None = None,
    ) -> None:
        super().__init__(spec.name, spec.key, spec.value, texts, jsons, marks)
        self._layout = layout if layout is not None and layout.applies(spec.key) else None
        self.spec = spec
        self.decoders = decoders
        self._reader = reader
        self._large = large
        self._merges: dict[int, Callable[[bytes], Value]] = {}
        self._key: Decode | None = None if spec.key is None else decoders.decoder(spec.key)
        self._baseline: Value | None = None
        """Of an unkeyed sum that was emptied, the value at that time: nothing is written to what programs write to."""
        self._zeroed = False
        self._numbers: dict[Value, int] = {}
        """Values by key at the last call of :meth:`greatest`."""
        slot = spec.slot
        alone = spec.key is None and (slot is None or not slot.generation)
        self._subtract = self._kind.subtract() if alone else None

    # ---- reading

    def entries(self, shown: Shown | None = None, *, always: bool = False) -> list[Entry]:
        """Decoded entries, ordered and cut as *shown* says; of an unkeyed map one, if it was written or *always*."""
        shown = shown or Shown()
        if self._key is None:
            return self._scalar(shown, always)
        entries = self._sorted(shown, self._key)
        return entries if isinstance(entries, list) else list(chain.from_iterable(entries.entries()))

    def contents(self) -> list[Entry]:
        """The entries that would print, in no order."""
        if self._key is None:
            return self._scalar(Shown(), False)
        return self._decoded(self._reader.blocks(self.spec), self._key)

    def greatest(self, most: int, pause: Callable[[], None]) -> tuple[list[Entry], int]:
        """The last *most* entries in the order of printing, themselves in no order, and how many there are in all.

        Nothing else is sorted. *pause* is called now and then while it takes long.
        """
        if self._key is None:
            found = self._scalar(Shown(), False)
            return found, len(found)
        blocks, start, count = _paused(self._reader.blocks(self.spec), pause), list[Block](), 0
        for block in blocks:
            start.append(block)
            count += block[2]
            large = self._large(self, block, Shown(most)) if count > LARGE and self._large is not None else None
            if large is not None:
                large.fill(chain(start, blocks))
                return list(chain.from_iterable(large.entries())), large.count
        found = self._decoded(start, self._key)
        if len(found) > most and isinstance(self.spec.value, types.Count | types.Sum):
            return self._greatest_and_grown(found, most), len(found)
        return heapq.nlargest(most, found, key=self.order_key()), len(found)

    def element(self, key: bytes) -> list[Entry] | None:
        """The entry at *key* of the BPF map, if there is one; None where a row is more than one entry of that map."""
        if self._key is None or self.spec.keys or self._kind.bucketed:
            return None
        data = self._reader.lookup(self.spec, key)
        return [] if data is None else [(self._key(key, 0), self._merge(data))]

    def _greatest_and_grown(self, found: list[Entry], most: int) -> list[Entry]:
        """Half of *most* entries by value, the rest by what they gained since the call before: what is busy now."""
        order = self.order_key()
        by_value = heapq.nlargest(most // 2, found, key=order)
        rank = self._kind.rank()
        assert rank is not None  # of sums
        numbers = {key: number for key, value in found if isinstance(number := rank(value), int)}
        before, self._numbers = self._numbers, numbers
        kept = {key for key, _ in by_value}
        others = (item for item in found if item[0] not in kept)
        return by_value + heapq.nlargest(
            most - len(by_value), others, key=lambda item: (numbers[item[0]] - before.get(item[0], 0), order(item))
        )

    def _sorted(self, shown: Shown, decode: Decode) -> list[Entry] | LargeMap:
        """The entries of a keyed map, ordered and limited: decoded, or in a form that takes less of very many."""
        blocks, start, count = self._reader.blocks(self.spec, clear=shown.clear), list[Block](), 0
        for block in blocks:
            start.append(block)
            count += block[2]
            large = self._large(self, block, shown) if count > LARGE and self._large is not None else None
            if large is not None:
                large.fill(chain(start, blocks))
                return large
            if count > LARGE:
                break
        entries = self._decoded(chain(start, blocks), decode)
        self.sort(entries, shown.order)
        return entries[-shown.top :] if shown.top else entries

    def _scalar(self, shown: Shown, always: bool) -> list[Entry]:
        subtract = self._subtract
        read = self._reader.slot_and_clear if shown.clear and subtract is None else self._reader.slot
        written, data = read(self.spec)
        value = self._merge(data)
        fresh, shown_value = self._fresh(value), value
        if self._baseline is not None and subtract is not None:
            shown_value = subtract(value, self._baseline)
        if shown.clear and subtract is not None:
            # A write from here could meet one in the kernel and lose it; so nothing is written, and what was
            # printed is taken off from now on.
            self._baseline = value
            self._zeroed = False
        if not always and not (written and fresh):
            return []
        if self._kind.bucketed and not (written and fresh):
            return []
        return [((), shown_value)]

    def _fresh(self, value: Value) -> bool:
        """True if the map was never emptied, or written since."""
        return self._zeroed or self._baseline is None or bool(value != self._baseline)

    def _decoded(self, blocks: Iterable[Block], decode: Decode) -> list[Entry]:
        pairs: list[tuple[bytes, bytes]] = []
        for keys, values, count in blocks:
            split_keys = struct.iter_unpack(f"{len(keys) // count}s", keys)
            split_values = struct.iter_unpack(f"{len(values) // count}s", values)
            pairs += [(key, value) for (key,), (value,) in zip(split_keys, split_values, strict=True)]
        if self._kind.bucketed:
            return self._bucketed(pairs, self.spec.value, decode)
        if not pairs:
            return []
        merge = self._merger(len(pairs[0][1]))
        return [(decode(key, 0), merge(value)) for key, value in pairs]

    def _bucketed(self, pairs: list[tuple[bytes, bytes]], type_: types.Type, decode: Decode) -> list[Entry]:
        grouped: dict[bytes, list[tuple[int, bytes]]] = {}
        number = struct.Struct("=Q").unpack_from
        for key, value in pairs:
            cut = len(key) - 8
            grouped.setdefault(key[:cut], []).append((number(key, cut)[0], value))
        join = self._join_series if isinstance(type_, types.TSeries) else self._join_buckets
        return [(decode(key, 0), join(parts)) for key, parts in grouped.items()]

    def _join_buckets(self, parts: list[tuple[int, bytes]]) -> tuple[int, ...]:
        assert isinstance(self.spec.value, types.Hist | types.LHist)
        counts = [0] * self.spec.value.buckets
        for bucket, value in parts:
            if bucket >= len(counts):
                raise InternalError(f"{self.spec.name} has a bucket {bucket}; its type has {len(counts)}")
            counts[bucket] += sum(struct.unpack(f"={len(value) // 8}Q", value))
        return tuple(counts)

    def _join_series(self, parts: list[tuple[int, bytes]]) -> Values:
        series = [self._merge(value) for _, value in parts]
        return tuple(item for intervals in series if isinstance(intervals, tuple) for item in intervals)

    def _merger(self, size: int) -> Callable[[bytes], Value]:
        merge = self._merges.get(size)
        if merge is None:
            merge = self._merges[size] = self._kind.merge(size, self.decoders)
        return merge

    def _merge(self, data: bytes) -> Value:
        return self._merger(len(data))(data)

    # ---- changing

    def clear(self) -> None:
        """Empty the map."""
        self._zeroed = False
        if self._subtract is not None:
            self._baseline = self._merge(self._reader.slot(self.spec)[1])
        else:
            self._reader.clear(self.spec)

    def change(self, key: bytes | None, value: bytes | None) -> bool:
        """Store *value* at *key* (None: in a map without keys), or remove the key. Returns whether it was there."""
        if value is None:
            assert key is not None
            return self._reader.delete(self.spec, key)
        if key is None:
            return self._reader.store_slot(self.spec, value)
        there = self._reader.lookup(self.spec, key) is not None
        self._reader.store(self.spec, key, value)
        return there

    def reset(self, pause: Callable[[], None]) -> None:
        """As :meth:`clear`; of a double-buffered map no update is lost. *pause* is called while it takes long."""
        if self._key is None:
            self._scalar(Shown(clear=True), False)
            return
        for _ in _paused(self._reader.blocks(self.spec, clear=True), pause):
            pass

    def zero(self) -> None:
        """Set all values to zero; keys stay."""
        if self._subtract is None:
            self._reader.zero(self.spec)
            return
        written, data = self._reader.slot(self.spec)
        value = self._merge(data)
        self._zeroed = written and self._fresh(value)
        self._baseline = value

    # ---- printing

    def text(self, shown: Shown | None = None, *, always: bool = False) -> bytes:
        """The map as text, empty when there is nothing to show."""
        return b"".join(self.text_parts(shown, always=always))

    def text_parts(self, shown: Shown | None = None, *, always: bool = False) -> Iterator[bytes]:
        """As :meth:`text`, a part at a time."""
        shown = shown or Shown()
        if self._layout is not None:
            yield self._in_layout(self._layout, shown)
            return
        entries = self._scalar(shown, always) if self._key is None else self._sorted(shown, self._key)
        if isinstance(entries, list):
            yield self.entries_text(entries, shown)
        else:
            yield from entries.text()

    def _in_layout(self, layout: StackLayout, shown: Shown) -> bytes:
        """The text of a map whose key has a stack."""
        assert self.spec.key is not None
        found = self.entries(Shown(order=shown.order, clear=shown.clear))
        entries = layout.merged(self.spec.key, self.value_type, found, self.texts)
        if "key" not in shown.order:
            self.sort(entries, shown.order)
        title = self.label + b":\n" if self.mark and entries else b""
        value = self._form(shown, entries)
        return title + layout.text(entries, value, shown.top, bucketed=self._kind.bucketed)

    def json(self, shown: Shown | None = None, *, always: bool = False) -> bytes:
        """The map as one line of JSON, empty when there is nothing to show."""
        return b"".join(self.json_parts(shown, always=always))

    def json_parts(self, shown: Shown | None = None, *, always: bool = False) -> Iterator[bytes]:
        """As :meth:`json`, a part at a time."""
        shown = shown or Shown()
        entries = self._scalar(shown, always) if self._key is None else self._sorted(shown, self._key)
        if isinstance(entries, list):
            yield self.entries_json(entries, shown)
        else:
            yield from self.entries_json_parts(entries.entries(), shown, None)

    # ---- percentiles

    def quantiles(self, percents: Sequence[str]) -> Callable[[Value], list[histogram.Quantile]]:
        """The percentiles of a value of a hist map."""
        shape = self.shape()
        return for_any(lambda counts: histogram.quantiles(shape, counts, percents))

    def quantiles_text(self, percents: Sequence[str]) -> bytes:
        """Percentiles of a hist map, a line for each."""
        quantiles = self.quantiles(percents)
        parts = []
        for key, counts in self.entries():
            label = self.label if self.spec.key is None else b"%s[%s]" % (self.label, self._key_text(key))
            parts.append(b"%s:\n%s\n" % (label, b"".join(map(quantile_text, quantiles(counts)))))
        return b"".join(parts)

    def quantiles_json(self, percents: Sequence[str]) -> bytes:
        """Percentiles of a hist map as one line of JSON."""
        quantiles = self.quantiles(percents)
        forms = [(key, _quantile_json(quantiles(counts))) for key, counts in self.entries()]
        if not forms:
            return b""
        data = forms[0][1] if self.spec.key is None else self._members(forms)
        return json.line("quantiles", json.mapping([(self._name, data)]), self.mark)

    def _key_text(self, name: Value) -> bytes:
        assert self.spec.key is not None
        return self.texts.key(self.spec.key)(name)


def _paused(blocks: Iterable[Block], pause: Callable[[], None]) -> Iterator[Block]:
    for block in blocks:
        yield block
        pause()


def last_interval(entries: Iterable[Entry]) -> int:
    """The number of the last interval of time series."""
    epoch = for_any(tseries.last_epoch)
    return max((epoch(value) for _, value in entries), default=1) - 1
