"""Context of event handlers: output, forms of values, names, maps, and messages about places in the script."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.base import control_characters
from pytrace.core.event_layout import EventSpec, Location
from pytrace.core.manifest import Manifest
from pytrace.render import json
from pytrace.render.decoders import Values
from pytrace.render.events import printf
from pytrace.render.forms import Decoders, JsonForms, TextForms
from pytrace.render.names import Names, Symbols
from pytrace.render.text import Bars
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.machine.host_names import HostNames
from pytrace.runtime.output import messages
from pytrace.runtime.output.run_state import RenderOptions, RunState
from pytrace.runtime.output.streams import Output

if TYPE_CHECKING:
    from pytrace.core.types.tables import RowTable
    from pytrace.render.maps.map_printer import Reader
    from pytrace.runtime.output.handlers import PcapWriter
    from pytrace.runtime.output.map_output import MapOutput
    from pytrace.runtime.output.rows import Rows


class Context:
    """Shared by the handlers of one run. *keep_row* is called with each decoded row, which is printed, too."""

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
        self.keep_row = keep_row
        trailer = self.config.str_trunc_trailer.encode("utf-8", "surrogateescape")
        self.decoders = Decoders(trailer, self.config.max_strlen, reader.chunk)
        names = Names(symbols, clock, manifest.strings, HostNames(options.namespace))
        self.raw_texts = TextForms(names, formatted=printf.of_values)
        """Text forms without escapes: for JSON and tables, which have their own, and for snapshots."""
        self.texts = (
            TextForms(names, formatted=printf.of_values, printable=options.printable, bars=options.bars)
            if options.printable or options.bars is not Bars.SIGNS
            else self.raw_texts
        )
        self.jsons = JsonForms(self.raw_texts)
        self._reader = reader

    @cached_property
    def message_texts(self) -> TextForms:
        """Text forms of values in messages, with escapes where these go to a terminal: line ends, too."""
        if not self.output.escapes or self.output.json:
            return self.raw_texts
        return TextForms(self.raw_texts.names, formatted=printf.of_values, printable=True)

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
        """The mark of an event whose program is sampled (``runtime.output.marks``), as of now."""
        return self.state.event_marks.get(spec.id, "")

    @property
    def extend_text(self) -> Callable[[list[bytes]], None]:
        """Prints texts that are rows of no table."""
        return self.output.beside if self.output.csv else self.output.extend

    def write_text(self, text: bytes) -> None:
        """Print a text that is no row of a table."""
        self.extend_text([text])

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
