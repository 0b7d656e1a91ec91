"""Renders events and maps of a run as output; the session's interface to the output."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytrace.base import control_characters
from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import (
    EXIT_STATUSES,
    STATIC_PARTS,
    EventSpec,
    Exit,
    Location,
    RuntimeFailure,
    cut_exit_status,
)
from pytrace.core.failures import failure
from pytrace.core.manifest import Manifest
from pytrace.render import events, json
from pytrace.render.events import RunHandler, Tally
from pytrace.render.events import reader as event_reader
from pytrace.render.json import mapping, quoted
from pytrace.render.text import Bars, Values
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.output import messages
from pytrace.runtime.output.messages import Totals
from pytrace.runtime.output.ring import Handlers
from pytrace.runtime.output.streams import Output

if TYPE_CHECKING:
    from pytrace.core.value_tables import RowTable
    from pytrace.render.forms import Decoders, JsonForms, TextForms
    from pytrace.render.map_printer import MapView, Reader
    from pytrace.render.names import Symbols
    from pytrace.runtime.output.handlers import Make, PcapWriter
    from pytrace.runtime.output.map_output import MapOutput, PrintKeeper
    from pytrace.runtime.output.rows import Rows

_LARGE_PART = 4096
"""A part of a map that is longer than this is written at once."""
_EAGER = frozenset({"skboutput"})
"""Kinds whose handler is created before the first event: a file that cannot be written is an error at the start."""
_OF_SCRIPTS = ("errorf", "warnf")
"""Kinds of messages whose text is the script's."""


class Forms(NamedTuple):
    """Forms of the values of a run.

    *raw_texts* are without escapes: for JSON and tables, which have their own, and for snapshots. *message_texts* are
    for messages, with escapes where these go to a terminal: line ends, too.
    """

    decoders: Decoders
    raw_texts: TextForms
    texts: TextForms
    jsons: JsonForms
    message_texts: TextForms


class RunState(msgspec.Struct):
    """Requests of events to the session."""

    exit_requested: bool = False
    """``exit()`` was called: end probes run, then the maps print."""
    exit_code: int = 0
    timed: bool = False
    """A timer called ``exit()``: it was time to end."""
    errors: int = 0
    """Number of calls of ``errorf``; a test with one has failed."""
    assertion_failed: bool = False
    """An assertion of the script failed: maps are not printed."""
    requests: EndRequests = msgspec.field(default_factory=EndRequests)
    """Requests of the user to end the run."""
    resumed: bool = False
    """End probes run: their output and commands are waited for, although the user has asked for the end."""
    marks: dict[str, str] = msgspec.field(default_factory=dict)
    """Marks of maps whose values are estimates, as hits were left out (``runtime.session.costs.Marks``)."""
    event_marks: dict[int, str] = msgspec.field(default_factory=dict)
    """The same for events by their id."""
    not_run: int = 0
    """Commands of ``system()`` that were not run because the user had asked for the end."""
    shown_at_end: set[str] = msgspec.field(default_factory=set)
    """Maps that end probes have printed to a Python program: what they empty then stays, as it is the result."""
    prints: PrintKeeper | None = None
    """Keeps what is printed of maps, where snapshots are taken."""

    @property
    def hurry(self) -> bool:
        """Whether the user has asked for the end: waiting events are still printed, but commands are not run."""
        return self.requests.ending and not self.resumed


class RenderOptions(msgspec.Struct, frozen=True):
    """*quiet*: no notices of the tracer's own. *warnings*: show warnings (``--no-warnings`` does not).

    *namespace*: the open network namespace that interfaces are in, where that is not the tracer's. *printable*: the
    output is text or CSV on a terminal, so that control characters of traced data are shown as escapes.
    *bars*: how histograms are drawn. *heat*: how the cells of heat maps are, which are printed in place of histograms
    until the run ends.
    *tool*: the script is a shipped tool, whose messages are shown without their place in it.
    """

    quiet: bool = False
    warnings: bool = True
    namespace: int | None = None
    printable: bool = False
    bars: Bars = Bars.SIGNS
    heat: Bars | None = None
    tool: bool = False


def _fields_line(kind: str, items: Sequence[tuple[str, bytes]]) -> bytes:
    """One line of output: an object with ``type`` and more members."""
    members = ((name.encode(errors="surrogateescape"), value) for name, value in items)
    return mapping([(b"type", quoted(kind.encode())), *members]) + b"\n"


class Renderer:
    """Prints events and maps of a script.

    :attr:`handlers` is for :meth:`pytrace.runtime.output.ring.RingReader.drain`: one handler for each event id.
    After ``exit()`` the list has handlers that ignore waiting events, until :meth:`resume`. *handlers* replaces the
    table of handlers that print. Decoded rows are also passed to *keep_row*. *unwatch* detaches the watchpoints on an
    address.

    Forms of values, names and maps are created with the first event that needs them, together with the modules for
    that: many runs print nothing but a map, or nothing.
    """

    def __init__(
        self,
        manifest: Manifest,
        output: Output,
        symbols: Symbols,
        reader: Reader,
        clock: Clock | None = None,
        options: RenderOptions | None = None,
        state: RunState | None = None,
        handlers: Mapping[str, Make] | None = None,
        keep_row: Callable[[RowTable, Values], None] | None = None,
        unwatch: Callable[[int], None] = lambda _address: None,
    ) -> None:
        self.manifest = manifest
        self.output = output
        self.clock = clock or Clock()
        self.options = options or RenderOptions()
        self.state = state or RunState()
        self.keep_row = keep_row
        self.unwatch = unwatch
        self.refused: set[tuple[str, int]] = set()
        """Reported failures of map updates, by map and error number; all of them are counted elsewhere."""
        self.undeleted: set[Location] = set()
        """Reported locations of ``delete()`` of missing keys."""
        self.writers: dict[str, PcapWriter] = {}
        """Files of packets by their paths."""
        self._symbols = symbols
        self._reader = reader
        self._replaced = handlers
        self._iterating = False
        self._created = [self._initial(index, spec) for index, spec in enumerate(manifest.events)]
        self.handlers = Handlers(self._created)
        self.ignored = 0
        """Events that came after ``exit()``, other than further ones of ``exit()``."""
        self._stops = not any(spec.kind in ("system", "cat") for spec in manifest.events)
        """Whether programs stop at ``exit()`` themselves."""
        self.printed_nothing = False
        """Whether the run has ended and neither events nor maps printed anything."""
        self._reported: dict[tuple[str, int], int] = {}
        self._told: set[str] = set()
        """Kinds of failures that were reported while the run went on."""

    # ---- what handlers use

    @cached_property
    def forms(self) -> Forms:
        """Forms of values, with the names that this run has resolved."""
        from pytrace.render.forms import Decoders, JsonForms, TextForms  # see the class
        from pytrace.render.names import Names
        from pytrace.runtime.machine.host_names import HostNames  # names of users and interfaces

        options, config = self.options, self.manifest.config
        names = Names(self._symbols, self.clock, self.manifest.strings, HostNames(options.namespace))
        raw = texts = in_messages = TextForms(names, formatted=events.of_values)
        if options.printable or options.bars is not Bars.SIGNS:
            texts = TextForms(names, formatted=events.of_values, printable=options.printable, bars=options.bars)
        if self.output.escapes and not self.output.json:
            in_messages = TextForms(names, formatted=events.of_values, printable=True)
        trailer = config.str_trunc_trailer.encode("utf-8", "surrogateescape")
        decoders = Decoders(trailer, config.max_strlen, self._reader.chunk)
        return Forms(decoders, raw, texts, JsonForms(raw), in_messages)

    @cached_property
    def maps(self) -> MapOutput:
        """The maps of the script."""
        from pytrace.runtime.output.map_output import MapOutput  # only scripts with maps need it

        return MapOutput(self, self._reader)

    @cached_property
    def rows(self) -> Rows:
        """Rows and tables of the script."""
        from pytrace.runtime.output.rows import Rows  # few scripts need it

        return Rows(self)

    @property
    def used_rows(self) -> Rows | None:
        """:attr:`rows`, if anything needed them."""
        return self.rows if "rows" in self.__dict__ else None

    def printable(self, data: bytes) -> bytes:
        """Traced *data* with line ends, in the form of the output: with escapes on a terminal."""
        return control_characters.printable_lines(data) if self.options.printable else data

    def mark(self, spec: EventSpec) -> str:
        """The mark of an event whose program is sampled, as of now."""
        return self.state.event_marks.get(spec.id, "")

    @property
    def extend_text(self) -> Callable[[list[bytes]], None]:
        """Prints texts that are rows of no table."""
        return self.output.beside if self.output.csv else self.output.extend

    def write_text(self, text: bytes) -> None:
        """Print a text that is no row of a table."""
        self.extend_text([text])

    def located(
        self,
        severity: str,
        kind: str,
        text: bytes,
        spec: EventSpec,
        extra: Sequence[tuple[str, bytes]] = (),
        hint: str = "",
    ) -> None:
        """A message about a place in the script: on standard error, or as a JSON object of type *kind*."""
        if self.output.json:
            members = [("msg", json.quoted(text)), *extra, *_place(spec.location)]
            self.output.write(_fields_line(kind, members))
            return
        shown, colour = text.decode("utf-8", "surrogateescape"), self.output.colour
        if self.options.tool and kind in _OF_SCRIPTS:
            message = messages.plain(severity, shown, colour=colour)
        else:
            message = messages.located(severity, shown, spec.location, spec.expansion, colour=colour)
        self.output.message(message + (f"HINT: {hint}\n" if hint else ""))

    def warn(self, spec: EventSpec, text: str) -> None:
        """A warning of the runtime itself about a place in the script."""
        if self.options.warnings:
            colour = self.output.colour
            self.output.message(messages.located("WARNING", text, spec.location, spec.expansion, colour=colour))

    # ---- handlers

    def _initial(self, index: int, spec: EventSpec) -> RunHandler:
        """The handler of an event before the first one has come."""
        if spec.kind not in STATIC_PARTS:
            raise InternalError(f"no handler for events of kind {spec.kind!r}")
        if spec.id != index:
            raise InternalError(f"event {spec.id} is at place {index} of the manifest")
        if spec.kind == "exit":
            return self._exit_handler(spec)
        return self._handler(spec) if spec.kind in _EAGER else self._later(spec)

    def _handler(self, spec: EventSpec) -> RunHandler:
        from pytrace.runtime.output.handlers import HANDLERS  # see the class

        return (self._replaced or HANDLERS)[spec.kind](self, spec)

    def _later(self, spec: EventSpec) -> RunHandler:
        """A handler that is created at its first event: many statements of a script never send any."""

        def first(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
            handler = self._created[spec.id] = self.handlers[spec.id] = self._handler(spec)
            handler(data, offset, length, stride, count)

        return first

    def mark_events(self) -> None:
        """Have JSON lines of events carry their marks (:attr:`RunState.event_marks`), some of which are new."""
        for identity in self.state.event_marks if self.output.json else ():
            spec = self.manifest.events[identity]
            if self.handlers[identity] is self._created[identity] and spec.kind != "exit":
                self._created[identity] = self.handlers[identity] = self._later(spec)

    def _exit_handler(self, spec: EventSpec) -> RunHandler:
        known = spec.static_part(Exit)

        def handle(data: bytes, offset: int, _length: int, _stride: int, _count: int) -> None:
            code = event_reader(spec.layout, self.forms.decoders)(data, offset)[0] if spec.layout.args else 0
            if not known.known and code not in EXIT_STATUSES:
                self.warn(spec, cut_exit_status(code))
            self.exit(code, timed=known.timed)

        return handle

    # ---- maps

    def views(self) -> list[MapView]:
        """Views of all maps of the script."""
        return [self.maps.view(item.name) for item in self.manifest.maps]

    # ---- events

    def kinds(self, kind: str) -> frozenset[int]:
        """Ids of the events of a kind."""
        return frozenset(spec.id for spec in self.manifest.events if spec.kind == kind)

    def end_batch(self) -> None:
        """All waiting events were handled: flush the output."""
        self.output.end_batch()

    def exit(self, code: int, *, timed: bool = False) -> None:
        """The script called ``exit(code)``, *timed*: in a timer."""
        self.state.exit_requested = True
        self.state.timed = timed
        self.state.exit_code = code & 0xFF
        # Programs have stopped at exit(). What one on another CPU sends later had begun before, and maps have it. Only
        # the time of a timer is exact in this way: others mean the hit that they end with to be the last.
        if self._iterating or (timed and self._stops):
            self._ignore_exits()
        else:
            self._ignore_rest()

    def resume(self) -> None:
        """Handle events again (those of end probes)."""
        self.state.resumed = True
        self.handlers[:] = self._created

    def iterating(self) -> ExitStack:
        """Within, ``exit()`` ends only what comes afterwards: the iterator that calls it shows all its items."""
        self._iterating = True
        stack = ExitStack()
        stack.callback(self._end_of_items)
        return stack

    def _end_of_items(self) -> None:
        self._iterating = False
        if self.state.exit_requested:
            self._ignore_rest()

    def _ignore_exits(self) -> None:
        for spec in self.manifest.events:
            if spec.kind == "exit":
                self.handlers[spec.id] = _nothing()

    def _ignore_rest(self) -> None:
        # Repeated exit() calls, by timers that are not detached yet, do not count as lost.
        ignore = Tally(self._ignore)
        self.handlers[:] = [_nothing() if spec.kind == "exit" else ignore for spec in self.manifest.events]

    def _ignore(self, count: int) -> None:
        # While commands of the script run, programs go on (codegen.lower.output_family), and maps count.
        if not (self.state.timed and self._stops):
            self.ignored += count

    # ---- beginning and end

    def attached(self, count: int) -> None:
        """Report that *count* probes are attached, without buffering."""
        if self.output.json:
            if not self.options.quiet:
                self._json("attached_probes", count, "probes")
                self.output.flush()
        elif not self.options.quiet:
            self.output.message(f"Attached {count} probe{'' if count == 1 else 's'}\n")

    def no_child(self) -> None:
        """Warn at the start of a run without a child that the script uses ``cpid``."""
        for spec in self.manifest.events:
            if self.options.warnings and spec.static == RuntimeFailure("no_child"):
                text = messages.RUNTIME_ERRORS["no_child"].encode()
                self.located("WARNING", "runtime_error", text, spec)
                return

    def print_heat(self, names: Sequence[str], *, rest: bool = False) -> None:
        """Print a line of ``--heat`` for each of these maps; *rest*: only where there is something left to show."""
        for name in names:
            self.output.write(self.maps.heat_line(name, rest=rest))
        self.output.end_batch()

    def print_rows(self) -> None:
        """Print the rows that still wait for ``print_rows()``."""
        if rows := self.used_rows:
            rows.sorted.print()

    def print_maps(self) -> None:
        """Print all non-empty maps at the end, by name, in text after two empty lines.

        Tools whose output are rows alone end with their last row.
        """
        text = not self.output.json and not self.output.csv
        rows = any(spec.kind == "row" for spec in self.manifest.events)
        self.printed_nothing = self.output.accepted == 0
        if text and not rows:
            self.output.write(b"\n\n")
        due = text and rows
        names = sorted(item.name for item in self.manifest.maps if not item.private)
        for name in names if self.manifest.config.print_maps_on_exit else ():
            for part in filter(None, self.maps.parts(name)):
                self.output.write(b"\n\n" + part if due else part)
                self.printed_nothing = due = False
                if len(part) > _LARGE_PART:
                    # Further parts together take much memory.
                    self.output.advance()
        if due and self.output.terminal and self.state.requests.count:
            self.output.write(b"\n")  # after ^C
        self.output.flush()

    def close(self) -> None:
        """Flush the output and close files that handlers opened, even if the output cannot be written."""
        try:
            self.output.flush()
        finally:
            for writer in self.writers.values():
                writer.close()

    # ---- losses

    def losses(self, totals: Totals, *, ended: bool = False) -> None:
        """Report losses since the last call; *totals* counts from the start of the run.

        *ended*: the sum follows (:meth:`summary`), so nothing that it says is said before it but how many more events
        were lost.
        """
        fresh = {key: count - self._reported.get(key, 0) for key, count in totals.items()}
        self._reported.update(totals)
        lost = sum(count for (kind, _), count in fresh.items() if kind == "lost")
        if lost:
            self.lost(lost)
        others = {
            key: count for key, count in fresh.items() if key[0] != "lost" and count > failure(key[0]).told
        }
        if any(others.values()) and self.options.warnings and not ended:
            self._tell("failures", others)
            self._told.update(kind for kind, _ in others)

    def gaps(self, gaps: Sequence[tuple[int, int]], skipped: Totals) -> None:
        """Report times in which programs skipped hits (wall time and duration), and how many they skipped in them."""
        if not self.options.warnings:
            return
        if self.output.json:
            counts = _numbers(messages.by_kind(self.manifest, skipped).get("skipped", {}))
            times = b", ".join(b'{"start": %d, "duration": %d}' % gap for gap in gaps)
            self.output.write(_fields_line("gap", [("data", b"[%s]" % times), ("skipped", counts)]))
            return
        for text in (*(messages.gap(*gap) for gap in gaps), *messages.summary_lines(self.manifest, skipped)):
            self.output.message(messages.plain("WARNING", text, colour=self.output.colour))
        self._told.add("skipped")

    def lost(self, count: int) -> None:
        """Report that *count* more events were lost."""
        self._told.add("lost")
        if self.output.json:
            self._json("lost_events", count, "events")
        else:
            self.output.message(f"Lost {count} events\n")

    def summary(self, totals: Totals) -> None:
        """Print the summary of losses at the end, by probe and map; nothing if there are none.

        Events that came after ``exit()`` are part of the sum; in text only when notices are wanted.
        """
        totals = self.all_losses(totals)
        if not self.output.json and self.options.quiet:
            totals.pop(("ignored", 0), None)
        if any(totals.values()) and self.options.warnings:
            self._tell("losses", totals)

    def all_losses(self, totals: Totals) -> dict[tuple[str, int], int]:
        """*totals*, with the events, commands and rows that the output left out."""
        own = {("ignored", 0): self.ignored, ("not_run", 0): self.state.not_run}
        if rows := self.used_rows:
            own["unsorted", 0] = rows.sorted.lost
        return {**totals, **{key: count for key, count in own.items() if count}}

    def broken_off(self, totals: Totals) -> None:
        """Print the summary of losses of an aborted run, on standard error in any case."""
        if (rows := self.used_rows) and (waiting := rows.sorted.waiting):
            totals = {**totals, ("unprinted", 0): totals.get(("unprinted", 0), 0) + waiting}
        if self.options.warnings:
            for text in messages.summary_lines(self.manifest, totals):
                self.output.message(messages.plain("WARNING", text, colour=self.output.colour))

    def _tell(self, kind: str, totals: Totals) -> None:
        if self.output.json:
            counts = messages.by_kind(self.manifest, totals)
            members = [("data", _counts(counts))]
            if "map_full" in counts:
                sizes = messages.map_sizes(self.manifest, counts["map_full"])
                members.append(("sizes", _numbers(sizes)))
            self.output.write(_fields_line(kind, members))
            return
        for text in messages.summary_lines(self.manifest, totals, self._told if kind == "losses" else ()):
            self.output.message(messages.plain("WARNING", text, colour=self.output.colour))

    def _json(self, kind: str, count: int, name: str) -> None:
        number = b"%d" % count
        data = json.mapping([(name.encode(), number)])
        self.output.write(_fields_line(kind, [("count", number), ("data", data)]))


def _counts(counts: dict[str, dict[str, int]]) -> bytes:
    return json.mapping([(kind.encode(), _numbers(names)) for kind, names in counts.items()])


def _numbers(named: dict[str, int]) -> bytes:
    return json.mapping(
        [(name.encode("utf-8", "surrogateescape"), json.number(count)) for name, count in named.items()]
    )


def _nothing() -> Tally:
    """The handler of an ``exit()`` that repeats an earlier request."""
    return Tally(lambda _count: None)


def _place(location: Location) -> list[tuple[str, bytes]]:
    return [
        ("filename", json.quoted(os.fsencode(location.file))),
        ("line", b"%d" % location.line),
        ("col", b"%d" % location.column),
    ]
