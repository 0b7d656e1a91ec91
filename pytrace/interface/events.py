"""Events of a trace as Python objects."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from pytrace.core.event_layout import EventSpec, Formatted, LayoutWithProbe, Location, PrintedMap
from pytrace.core.manifest import ProgramSpec
from pytrace.core.types import Record, Type, parts, shown_name
from pytrace.core.value_tables import FlatLayout, row_schema
from pytrace.render.events import Formatter, Piece, RunHandler, Tally, compile_pieces, each, formatter, reader
from pytrace.render.forms import PortableForms
from pytrace.render.map_printer import Shown
from pytrace.render.text import Values
from pytrace.render.value_kind import Plain, Result, itself
from pytrace.render.values import value_kind_of
from pytrace.results.snapshot import Portable
from pytrace.runtime.output import rows
from pytrace.runtime.output.handlers import HANDLERS, Make, static_bytes
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.snapshots import StackTraces, portable
from pytrace.runtime.stacks.lazy_symbols import LazySymbols


class EventSource(msgspec.Struct, frozen=True):
    """The properties that all events from one statement of a script share."""

    kind: str
    location: Location
    names: tuple[str, ...]
    text: Callable[[bytes], bytes]
    """Returns the text that the event in a record prints."""
    values: Callable[[bytes], tuple[Portable, ...]]
    """Returns the arguments of the event in a record."""
    probe: Callable[[bytes], str]
    """Returns the probe that sent the event in a record."""
    durable: bool
    """The result of decoding a record does not depend on the time."""


class Event:
    """An event that a script printed.

    The parts of an event are decoded on first use.
    """

    __slots__ = ("_source", "_record", "_text", "_values", "size")

    def __init__(
        self, source: EventSource, record: bytes, text: bytes | None = None, values: tuple[Result, ...] | None = None
    ) -> None:
        self._source = source
        self._record = record
        self._text = text
        self._values = values
        self.size = len(record) + len(text or b"")
        """Size in bytes of the record, and of text that was decoded on arrival."""

    def decode(self) -> None:
        """Decode all parts now instead of on first use."""
        self._text = self._source.text(self._record)
        self._values = self._source.values(self._record)

    @property
    def kind(self) -> str:
        """The function that sent it: ``printf``, ``print`` (a value), ``map``, ``quantiles``, ``time``, ``join``,
        ``cat``, ``system``, ``errorf``, ``warnf``, ``row``, or ``iter`` (output of an iterator).
        """
        return self._source.kind

    @property
    def probe(self) -> str:
        """Full name of the probe that fired."""
        return self._source.probe(self._record)

    @property
    def location(self) -> Location:
        """The location in the script."""
        return self._source.location

    @property
    def raw_text(self) -> bytes:
        """The printed text as bytes: strings of traced programs may contain any bytes."""
        if self._text is None:
            self._text = self._source.text(self._record)
        return self._text

    @property
    def text(self) -> str:
        """The printed text, without the line end; bytes that are not UTF-8 become lone surrogates."""
        return self.raw_text.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def values(self) -> tuple[Result, ...]:
        """The arguments of ``printf``, the value of ``print``, the members of a ``row``; for a printed map, one
        dictionary. ``pytrace.results.snapshot`` describes the Python value of each type.
        """
        if self._values is None:
            self._values = self._source.values(self._record)
        return self._values

    @property
    def names(self) -> tuple[str, ...]:
        """Names of :attr:`values` for a ``row`` or a record; empty for other events."""
        return self._source.names

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Event(kind={self.kind!r}, probe={self.probe!r}, values={self.values!r}, text={self.text!r})"


# ------------------------------------------------------------------------------------------------------------ collector

# Collects the events of a session as objects, instead of printing them.


PRINTED = {"print_value": "print", "print_map": "map"}
"""Kinds of events that Python programs see under the name of the script's function."""

FOLLOWED_BY_TEXT = ("time", "join", "cat", "system", "quantiles")
"""Kinds whose handlers write one text per event."""

WITH_LINE_END = ("join", "system")
"""Those of them whose handlers append a line end to the text."""

MOST_EVENTS = 100_000
MOST_BYTES = 256 << 20
"""Maximum number of queued events, and of their bytes; beyond these the oldest are dropped and counted."""

OVERHEAD = 256
"""Approximate size of an event in bytes, without its record and text."""


class Collector(Output):
    """Receives the output of a session: events in :attr:`events`, its messages in :attr:`messages`."""

    def __init__(
        self, programs: tuple[ProgramSpec, ...], most: int = MOST_EVENTS, most_bytes: int = MOST_BYTES
    ) -> None:
        super().__init__(-1, messages=-1)
        self.events: deque[Event] = deque()
        self.messages: list[str] = []
        """Warnings of the session, each ending with a line end, that have not been taken yet."""
        self.dropped = 0
        """Number of events that were dropped because they were not taken."""
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0
        self._taken = 0
        self._current: tuple[EventSource, bytes] | None = None
        location = programs[0].location
        self._iterator = EventSource("iter", location, (), bytes, lambda _record: (), lambda _record: "iter", True)

    # ---- what a session calls

    @property
    def accepted(self) -> int:
        """Number of events that were handed over so far."""
        return self._taken + len(self.events)

    @property
    def congested(self) -> bool:
        """Never: surplus events are dropped and counted."""
        return False

    def prepare(self) -> None:
        """Writing needs nothing."""

    def write(self, data: bytes) -> None:
        """Keep a text that a handler or an iterator writes."""
        source, record = self._current or (self._iterator, b"")
        text = data.decode("utf-8", "surrogateescape")
        value = text.removesuffix("\n") if source.kind in WITH_LINE_END else text
        self.add(Event(source, record, data, (value,)))

    def extend(self, parts: Iterable[bytes]) -> None:
        """Keep texts."""
        for part in parts:
            self.write(part)

    def add(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
        self._bytes += event.size + OVERHEAD
        while len(self.events) > self._most or (self._bytes > self._most_bytes and len(self.events) > 1):
            self.take()
            self.dropped += 1

    def take(self) -> Event:
        """Take the oldest queued event."""
        self._taken += 1
        event = self.events.popleft()
        self._bytes -= event.size + OVERHEAD
        return event

    def end_batch(self) -> None:
        """Does nothing, as nothing is written."""

    def advance(self) -> bool:
        """Nothing waits to be written."""
        return True

    def flush(self) -> None:
        """Nothing waits to be written."""

    def message(self, text: str) -> None:
        """Keep a message of the session."""
        self.messages.append(text)

    def close(self) -> None:
        """Does nothing, as nothing was opened."""

    @contextmanager
    def during(self, source: EventSource, record: bytes) -> Iterator[None]:
        """In the block, written text belongs to an event of *source*."""
        self._current = source, record
        try:
            yield
        finally:
            self._current = None


class EventSources:
    """Creates the sources of events from the manifest; *symbols* resolve stacks."""

    def __init__(self, programs: tuple[ProgramSpec, ...], symbols: LazySymbols) -> None:
        self._programs = programs
        self._symbols = symbols

    def source(self, renderer: Renderer, spec: EventSpec, text: Callable[[bytes], bytes]) -> EventSource:
        """The source that *spec* describes."""
        layout = FlatLayout.of(spec.layout) if spec.kind == "row" else spec.layout
        read: Callable[[bytes, int], Values] = reader(layout, renderer.forms.decoders)
        durable = all(value_kind_of(inner).durable for inner in parts(layout.args))
        changes: list[Change] = []
        known = False

        def values(record: bytes) -> tuple[Portable, ...]:
            nonlocal known
            # Stacks are cached by their addresses, which may be those of other functions later.
            if not durable or not known:
                changes[:] = _changes(layout.args, self.forms(renderer))
                known = True
            found: list[Plain] = list(read(record, 0))
            for at, convert in changes:
                found[at] = convert(found[at])
            return tuple(found)

        kind = PRINTED.get(spec.kind, spec.kind)
        names = tuple(row_schema(spec).names) if spec.kind == "row" else _names(spec.args)
        return EventSource(kind, spec.location, names, text, values, self._probe(spec), durable)

    def forms(self, renderer: Renderer) -> PortableForms:
        """Conversions of decoded values to plain ones."""
        return PortableForms(renderer.forms.texts, StackTraces(self._symbols))

    def _probe(self, spec: EventSpec) -> Callable[[bytes], str]:
        layout = spec.layout
        if not isinstance(layout, LayoutWithProbe):
            return lambda _record: ""
        names = [tuple(target.probe for target in program.targets) for program in self._programs]
        offset, word = layout.probe_offset, struct.Struct("=Q").unpack_from

        def probe(record: bytes) -> str:
            (value,) = word(record, offset)
            targets = names[value >> 32]
            name: str = targets[min(value & 0xFFFFFFFF, len(targets) - 1)]
            return name

        return probe


Change = tuple[int, Callable[[Plain], Plain]]
"""The place of a value in an event, and what it is converted with."""


def _changes(args: tuple[Type, ...], forms: PortableForms) -> list[Change]:
    """The conversions of decoded values to those of Python, of those that are not so already: most are numbers."""
    found: list[Change] = []
    for at, type_ in enumerate(args):
        steps = (forms.form(type_), value_kind_of(type_).python())
        found += [(at, step) for step in steps if step is not itself]
    return found


def _names(args: tuple[Type, ...]) -> tuple[str, ...]:
    return tuple(map(shown_name, args[0].names)) if len(args) == 1 and isinstance(args[0], Record) else ()


# ---------------------------------------------------------------------------------------------- handlers


def _unseen(_renderer: Renderer, _spec: EventSpec) -> RunHandler:
    """The handler of events that have no meaning for programs."""
    return Tally(lambda _count: None)


def event_handlers(collector: Collector, sources: EventSources) -> Mapping[str, Make]:
    """Handlers by kind of event: events that print become objects, the others are handled as usual."""
    rows: dict[str, Make] = dict(HANDLERS)
    rows |= {
        "printf": _formatted(collector, sources),
        "heading": _unseen,
        "errorf": _formatted(collector, sources, error=True),
        "warnf": _formatted(collector, sources),
        "print_value": _value(collector, sources),
        "print_map": _map(collector, sources),
        "row": _row(collector, sources),
    }
    for kind in FOLLOWED_BY_TEXT:
        rows[kind] = _text(collector, sources, HANDLERS[kind])
    return rows


def _keep(collector: Collector, source: EventSource) -> RunHandler:
    def run(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
        for start in range(offset, offset + stride * count, stride):
            event = Event(source, data[start : start + length])
            if not source.durable:
                event.decode()
            collector.add(event)

    return run


def _formatted(collector: Collector, sources: EventSources, *, error: bool = False) -> Make:
    def make(renderer: Renderer, spec: EventSpec) -> RunHandler:
        static = spec.static_part(Formatted)
        parts = compile_pieces(static_bytes(static.format), spec.args, renderer.forms.texts)
        one = formatter(spec.layout, renderer.forms.decoders, parts)
        keep = _keep(collector, sources.source(renderer, spec, lambda record: one(record, 0)))
        if not error:
            return keep

        def run(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
            renderer.state.errors += count
            renderer.state.assertion_failed |= static.assertion
            keep(data, offset, length, stride, count)

        return run

    return make


def _value(collector: Collector, sources: EventSources) -> Make:
    def make(renderer: Renderer, spec: EventSpec) -> RunHandler:
        one = formatter(spec.layout, renderer.forms.decoders, compile_pieces(b"%s\n", spec.args, renderer.forms.texts))
        return _keep(collector, sources.source(renderer, spec, lambda record: one(record, 0)))

    return make


def _line(renderer: Renderer, spec: EventSpec) -> Callable[[bytes, int], bytes]:
    """``line(data, offset)``: a row as text on its own, the members with their names."""
    layout = FlatLayout.of(spec.layout)
    parts: list[bytes | Piece] = []
    for name, type_ in zip(renderer.rows.row_tables[spec.id].schema.names, layout.args, strict=True):
        parts += (b" " if parts else b"", name.encode() + b"=", Piece(b"%s", render=renderer.forms.texts.form(type_)))
    return Formatter(layout, renderer.forms.decoders, parts).one


def _row(collector: Collector, sources: EventSources) -> Make:
    def make(renderer: Renderer, spec: EventSpec) -> RunHandler:
        text = _line(renderer, spec)
        collect = _keep(collector, sources.source(renderer, spec, lambda record: text(record, 0)))
        return rows.waiting(renderer, spec, rows.keeping(renderer, spec, collect))

    return make


def _map(collector: Collector, sources: EventSources) -> Make:
    def make(renderer: Renderer, spec: EventSpec) -> RunHandler:
        static = spec.static_part(PrintedMap)
        shown = Shown(static.top, static.div or 1, static.order, static.clear)
        at_end = replace(shown, clear=False)
        state, view = renderer.state, renderer.maps.view(static.map)
        source = sources.source(renderer, spec, bytes)

        def handle(data: bytes, offset: int) -> None:
            if state.resumed:
                state.shown_at_end.add(static.map)
            entries = view.entries(at_end if state.resumed else shown, always=True)
            text = view.entries_text(entries, shown)
            values = portable(view.spec, entries, sources.forms(renderer), div=shown.div)
            form = value_kind_of(view.spec.value).python()
            mapping = {key: form(value) for key, value in values.items()}
            collector.add(Event(source, data[offset : offset + spec.layout.fixed_size], text, (mapping,)))

        return each(handle)

    return make


def _text(collector: Collector, sources: EventSources, original: Make) -> Make:
    def make(renderer: Renderer, spec: EventSpec) -> RunHandler:
        inner = original(renderer, spec)
        source = sources.source(renderer, spec, bytes)

        def run(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
            for start in range(offset, offset + stride * count, stride):
                with collector.during(source, data[start : start + length]):
                    inner(data, start, length, stride, 1)

        return run

    return make
