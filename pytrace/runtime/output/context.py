"""What the handlers of events share: output, names, maps, and what they tell the session."""

from __future__ import annotations

import os
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import InternalError
from pytrace.render import json
from pytrace.runtime.output import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytrace.core.event_layout import EventSpec, Location
    from pytrace.core.manifest import Manifest, MapSpec
    from pytrace.core.types import Joined
    from pytrace.core.types.tables import RowTable
    from pytrace.render.decoders import Values
    from pytrace.render.forms import Decoders, JsonForms, TextForms
    from pytrace.render.maps.map_printer import Block, LargeMap, MapView, Reader, Shown
    from pytrace.render.names import Symbols
    from pytrace.render.tables import Page, Table
    from pytrace.render.text import Form
    from pytrace.runtime.host.clocks import Clock
    from pytrace.runtime.output.pcap import PcapWriter
    from pytrace.runtime.output.sorted_rows import SortedRows
    from pytrace.runtime.output.streams import Output


class RunState(msgspec.Struct):
    """What events ask of the session."""

    exit_requested: bool = False
    """``exit()`` was called: end probes run, then the maps print."""
    exit_code: int = 0
    timed: bool = False
    """A timer called ``exit()``: it was time to end."""
    errors: int = 0
    """How often ``errorf`` was called; a test that did has failed."""
    assertion_failed: bool = False
    """The end is not that of a run that went as its script wants: maps are not printed."""
    unwatched: list[int] = msgspec.field(default_factory=list)
    """Addresses whose watchpoints are to go; the session takes them out."""
    requests: EndRequests = msgspec.field(default_factory=EndRequests)
    """Requests of the user to end the run."""
    resumed: bool = False
    """What end probes print and run is waited for, although the user has asked for the end."""
    not_run: int = 0
    """Commands of ``system()`` that were not run because the user had asked for the end."""

    @property
    def hurry(self) -> bool:
        """Whether the user has asked for the end: waiting events are still printed, but commands are not run."""
        return self.requests.ending and not self.resumed


class RenderOptions(msgspec.Struct, frozen=True):
    """*quiet*: no notices of the tracer's own. *warnings*: show warnings (``--no-warnings`` does not).

    *namespace*: the open network namespace that interfaces are in, where that is not the tracer's. *printable*: the
    output is text or CSV on a terminal, so that control characters of traced data are shown as escapes.
    *tool*: the script is a shipped tool, whose messages are shown without their place in it.
    """

    quiet: bool = False
    warnings: bool = True
    namespace: int | None = None
    printable: bool = False
    tool: bool = False


class Context:
    """Shared by the handlers of one run. *on_exit* is called when the script calls ``exit()``."""

    def __init__(
        self,
        manifest: Manifest,
        output: Output,
        symbols: Symbols,
        reader: Reader,
        clock: Clock,
        options: RenderOptions,
        state: RunState,
        on_exit: Callable[[], None],
        keep_row: Callable[[RowTable, Values], None] | None = None,
    ) -> None:
        self.manifest = manifest
        self.config = manifest.config
        self.output = output
        self.clock = clock
        self.options = options
        self.state = state
        self.refused: set[tuple[str, int]] = set()
        """Maps that rejected an update, and why, as far as reported: the number is counted elsewhere."""
        self.undeleted: set[Location] = set()
        """Places whose delete() found no key, as far as reported."""
        self.writers: dict[str, PcapWriter] = {}
        self.tables: dict[int, Table] = {}
        """Tables of rows whose first row was printed, by their numbers."""
        self.keep_row = keep_row
        """Called with each decoded row, which is printed, too."""
        self._symbols = symbols
        self._on_exit = on_exit
        self._reader = reader
        self._views: dict[str, MapView] = {}
        self._specs: dict[str, MapSpec] = {item.name: item for item in manifest.maps}

    @cached_property
    def decoders(self) -> Decoders:
        """Decoders of values."""
        from pytrace.render.forms import Decoders

        trailer = self.config.str_trunc_trailer.encode("utf-8", "surrogateescape")
        return Decoders(trailer, self.config.max_strlen)

    @cached_property
    def texts(self) -> TextForms:
        """Text forms of values as the output wants them, with the names that this run has resolved."""
        from pytrace.render.forms import TextForms

        if not self.options.printable:
            return self.raw_texts
        return TextForms(self.raw_texts.names, formatted=formatted, printable=True)

    @cached_property
    def raw_texts(self) -> TextForms:
        """As :attr:`texts`, without escapes: for JSON and tables, which have their own, and for snapshots."""
        from pytrace.render.forms import TextForms
        from pytrace.render.names import Names  # nor these
        from pytrace.runtime.host.host_names import HostNames

        names = Names(self._symbols, self.clock, self.manifest.strings, HostNames(self.options.namespace))
        return TextForms(names, formatted=formatted)

    def printable(self, data: bytes) -> bytes:
        """Traced *data* that is printed with line ends, as the output wants it."""
        if not self.options.printable:
            return data
        from pytrace.base import control_characters  # only on terminals

        return control_characters.printable_lines(data)

    @cached_property
    def jsons(self) -> JsonForms:
        """JSON forms of values."""
        from pytrace.render.forms import JsonForms

        return JsonForms(self.raw_texts)

    @cached_property
    def row_tables(self) -> dict[int, RowTable]:
        """The table of each ``row()`` of the script, by the id of its event."""
        from pytrace.core.types.tables import row_tables  # few scripts need it

        return row_tables((spec.id, spec.schema) for spec in self.manifest.events if spec.kind == "row")

    @cached_property
    def page(self) -> Page:
        """What headings of tables share."""
        from pytrace.render.tables import Page  # few scripts need it

        output = self.output
        height = output.height if not output.json and not output.csv and output.terminal else None
        return Page(height, lambda: output.cuts)

    @cached_property
    def sorted_rows(self) -> SortedRows:
        """Rows that wait for ``print_rows()``."""
        from pytrace.runtime.output.sorted_rows import SortedRows  # few scripts need it

        return SortedRows(self)

    @cached_property
    def extend_text(self) -> Callable[[list[bytes]], None]:
        """Prints texts that are rows of no table."""
        return self.output.beside if self.output.csv else self.output.extend

    @property
    def has_sorted_rows(self) -> bool:
        """Whether a row was kept for ``print_rows()``."""
        return "sorted_rows" in self.__dict__

    def write_text(self, text: bytes) -> None:
        """Print a text that is no row of a table."""
        if self.output.csv:
            self.output.beside([text])
        else:
            self.output.write(text)

    def map_form(self, view: MapView) -> Callable[..., bytes]:
        """How a map is printed: ``form(shown, always=…)``."""
        if self.output.csv:
            from pytrace.render.maps import map_tables

            return partial(map_tables.entries, view, self.page)
        return view.json if self.output.json else view.text

    def map_parts(self, view: MapView) -> Iterator[bytes]:
        """What :meth:`map_form` prints, a part at a time."""
        if self.output.csv:
            return iter((self.map_form(view)(),))
        return view.json_parts() if self.output.json else view.text_parts()

    def quantiles_form(self, view: MapView) -> Callable[[Sequence[str]], bytes]:
        """How percentiles of a map are printed."""
        if self.output.csv:
            from pytrace.render.maps import map_tables

            return partial(map_tables.quantiles, view, self.page)
        return view.quantiles_json if self.output.json else view.quantiles_text

    def view(self, name: str) -> MapView:
        """The view of a map of the script."""
        found = self._views.get(name)
        if found is None:
            spec = self._specs.get(name)
            if spec is None:
                raise InternalError(f"an event names {name}, a map that the script does not have")
            from pytrace.render.maps.map_printer import MapView  # only scripts with maps need it

            texts = self.raw_texts if self.output.csv else self.texts  # tables have escapes of their own
            found = self._views[name] = MapView(spec, self._reader, self.decoders, texts, self.jsons, large_map)
        return found

    def end(self, code: int, *, timed: bool = False) -> None:
        """The script called ``exit(code)``, *timed*: in a timer."""
        self.state.exit_requested = True
        self.state.timed = timed
        self.state.exit_code = code & 0xFF
        self._on_exit()

    # ---- messages

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
            self.output.write(json.fields_line(kind, members))
            return
        said = text.decode("utf-8", "surrogateescape")
        if self.options.tool and kind in _OF_SCRIPTS:
            found = messages.plain(severity, said, colour=self.output.colour)
        else:
            found = messages.located(severity, said, spec.location, spec.expansion, colour=self.output.colour)
        self.output.message(found + (f"HINT: {hint}\n" if hint else ""))

    def warn(self, spec: EventSpec, text: str) -> None:
        """A warning of the runtime itself about a place in the script."""
        if self.options.warnings:
            colour = self.output.colour
            self.output.message(messages.located("WARNING", text, spec.location, spec.expansion, colour=colour))


_OF_SCRIPTS = ("errorf", "warnf")
"""Kinds of messages whose text is the script's."""


def _place(location: Location) -> list[tuple[str, bytes]]:
    return [
        ("filename", json.quoted(os.fsencode(location.file))),
        ("line", b"%d" % location.line),
        ("col", b"%d" % location.column),
    ]


def large_map(view: MapView, block: Block, shown: Shown) -> LargeMap | None:
    """How a map with very many keys is printed; *block* has some of them."""
    from pytrace.render.large_maps import printing  # few runs have such maps
    from pytrace.runtime.abi import sorting

    return printing.large_map(view, block, shown, sorting.sort_records if sorting.available() else None)


def formatted(kind: Joined, forms: TextForms) -> Form:
    """The form of what ``sprintf`` formats."""
    from pytrace.render.events import printf  # few scripts need it

    return printf.of_values(kind, forms)
