"""Format ``json``: a line for each row and each map, as a run prints them with ``-f json``."""

from __future__ import annotations

from typing import BinaryIO

from pytrace.render.maps.map_printer import Shown
from pytrace.results.formats import row_tables
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import SnapshotData


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write rows, and maps by name."""
    if options.about:
        from pytrace.results.formats import about

        file.write(about.json_line(snapshot))
    printers = Printers()
    file.writelines(row_tables.json_lines(printers, snapshot))
    for _, data in sorted(snapshot.maps.items()):
        if data.entries:
            blocks, last = printers.in_order(data), printers.last_interval(data)
            file.writelines(printers.printer(data).entries_json_parts(blocks, Shown(), last))
