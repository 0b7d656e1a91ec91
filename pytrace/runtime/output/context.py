"""Context of event handlers: output, forms of values, names, maps, and messages about places in the script."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from pytrace.base import control_characters
from pytrace.core.diagnostics import InternalError
from pytrace.core.types.tables import row_tables
from pytrace.render import json
from pytrace.render.events import printf
from pytrace.render.forms import Decoders, JsonForms, TextForms
from pytrace.render.maps import map_tables
from pytrace.render.maps.map_printer import MapView
from pytrace.render.names import Names
from pytrace.render.tables import Page
from pytrace.runtime.host.host_names import HostNames
from pytrace.runtime.output import messages
from pytrace.runtime.output.rows import SortedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytrace.core.event_layout import EventSpec, Location
    from pytrace.core.manifest import Manifest, MapSpec
    from pytrace.core.types.tables import RowTable
    from pytrace.render.decoders import Values
    from pytrace.render.maps.map_printer import Block, LargeMap, Reader, Shown
    from pytrace.render.names import Symbols
    from pytrace.render.tables import Table
    from pytrace.runtime.host.clocks import Clock
    from pytrace.runtime.output.handlers import PcapWriter
    from pytrace.runtime.output.run_state import RenderOptions, RunState
    from pytrace.runtime.output.streams import Output


class Context:
    """What the handlers of one run share. *keep_row* is called with each decoded row, which is printed, too."""

    def __init__(
        self,
        manifest: Manifest,
        output: Output,
        symbols: Symbols,
        reader: Reader,
        clock: Clock,
        options: RenderOptions,
        state: RunState,
        keep_row: Callable[[RowTable, Values], None] | None = None,
    ) -> None:
        self.manifest = manifest
        self.config = manifest.config
        self.output = output
        self.clock = clock
        self.options = options
        self.state = state
        self.refused: set[tuple[str, int]] = set()
        """Reported failures of map updates, by map and error number; all of them are counted elsewhere."""
        self.undeleted: set[Location] = set()
        """Reported locations of ``delete()`` of missing keys."""
        self.writers: dict[str, PcapWriter] = {}
        self.tables: dict[int, Table] = {}
        """Tables of rows whose first row was printed, by their numbers."""
        self.keep_row = keep_row
        trailer = self.config.str_trunc_trailer.encode("utf-8", "surrogateescape")
        self.decoders = Decoders(trailer, self.config.max_strlen)
        names = Names(symbols, clock, manifest.strings, HostNames(options.namespace))
        self.raw_texts = TextForms(names, formatted=printf.of_values)
        """Text forms without escapes: for JSON and tables, which have their own, and for snapshots."""
        self.texts = (
            TextForms(names, formatted=printf.of_values, printable=True) if options.printable else self.raw_texts
        )
        self.jsons = JsonForms(self.raw_texts)
        self.row_tables = row_tables((spec.id, spec.schema) for spec in manifest.events if spec.kind == "row")
        """The table of each ``row()`` of the script, by the id of its event."""
        height = output.height if not output.json and not output.csv and output.terminal else None
        self.page = Page(height, lambda: output.cuts)
        self.sorted_rows = SortedRows(self)
        self._reader = reader
        self._views: dict[str, MapView] = {}
        self._specs: dict[str, MapSpec] = {item.name: item for item in manifest.maps}

    def printable(self, data: bytes) -> bytes:
        """Traced *data* with line ends, in the form of the output: with escapes on a terminal."""
        return control_characters.printable_lines(data) if self.options.printable else data

    @property
    def extend_text(self) -> Callable[[list[bytes]], None]:
        """Prints texts that are rows of no table."""
        return self.output.beside if self.output.csv else self.output.extend

    def write_text(self, text: bytes) -> None:
        """Print a text that is no row of a table."""
        self.extend_text([text])

    def map_form(self, view: MapView) -> Callable[..., bytes]:
        """The printer of a map: ``form(shown, always=…)``."""
        if self.output.csv:
            return partial(map_tables.entries, view, self.page)
        return view.json if self.output.json else view.text

    def map_parts(self, view: MapView) -> Iterator[bytes]:
        """The text of :meth:`map_form` in parts."""
        if self.output.csv:
            return iter((self.map_form(view)(),))
        return view.json_parts() if self.output.json else view.text_parts()

    def quantiles_form(self, view: MapView) -> Callable[[Sequence[str]], bytes]:
        """The printer of percentiles of a map."""
        if self.output.csv:
            return partial(map_tables.quantiles, view, self.page)
        return view.quantiles_json if self.output.json else view.quantiles_text

    def view(self, name: str) -> MapView:
        """The view of a map of the script."""
        view = self._views.get(name)
        if view is None:
            spec = self._specs.get(name)
            if spec is None:
                raise InternalError(f"an event names {name}, a map that the script does not have")
            texts = self.raw_texts if self.output.csv else self.texts  # tables have escapes of their own
            view = self._views[name] = MapView(spec, self._reader, self.decoders, texts, self.jsons, large_map)
        return view

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


_OF_SCRIPTS = ("errorf", "warnf")
"""Kinds of messages whose text is the script's."""


def _place(location: Location) -> list[tuple[str, bytes]]:
    return [
        ("filename", json.quoted(os.fsencode(location.file))),
        ("line", b"%d" % location.line),
        ("col", b"%d" % location.column),
    ]


def large_map(view: MapView, block: Block, shown: Shown) -> LargeMap | None:
    """The printer of a map with very many keys; *block* has some of them."""
    from pytrace.render.large_maps import printing  # few runs have such maps
    from pytrace.runtime.abi import sorting

    return printing.large_map(view, block, shown, sorting.sort_records if sorting.available() else None)
