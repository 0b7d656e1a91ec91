"""Format ``text``: tables of rows, and below them maps, both as a run prints them."""

from __future__ import annotations

from typing import BinaryIO

from pytrace.render.maps.map_printer import Shown
from pytrace.render.portable import encoded
from pytrace.results.formats import row_tables
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import SnapshotData


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write tables, and maps by name."""
    if options.about:
        from pytrace.results.formats import about

        file.writelines(encoded(line) for line in about.lines(snapshot))
    printers = Printers()
    gap = b""
    for part in row_tables.text(printers, snapshot):
        file.write(part)
        gap = b"\n"
    for _, data in sorted(snapshot.maps.items()):
        printer, last = printers.printer(data), printers.last_interval(data)
        for entries in printers.in_order(data):
            file.write(gap + printer.entries_text(entries, Shown(), last))
            gap = b""
