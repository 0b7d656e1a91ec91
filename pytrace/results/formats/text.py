"""Format ``text``: tables of rows, and below them maps, both as a run prints them."""

from __future__ import annotations

from typing import BinaryIO

from pytrace.results.formats import row_tables
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers, encoded
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.runtime.output.render.map_printer import Shown


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write tables, and maps by name."""
    if options.about:
        from pytrace.results.formats import about

        file.write(encoded(about.text(snapshot)))
    printers = Printers()
    rows = row_tables.text(printers, snapshot)
    maps = b"".join([_map(printers, data) for _, data in sorted(snapshot.maps.items())])
    file.write(rows + b"\n" + maps if rows and maps else rows + maps)


def _map(printers: Printers, data: MapData) -> bytes:
    printer, entries = printers.printer(data), printers.entries(data)
    printer.sort(entries)
    return printer.entries_text(entries, Shown())
