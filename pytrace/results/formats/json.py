"""Format ``json``: a line for each map, as the end of a run prints it with ``-f json``, and a line for each row."""

from __future__ import annotations

from typing import BinaryIO

from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import SnapshotData, Table
from pytrace.runtime.output.render import json
from pytrace.runtime.output.render.map_printer import Shown


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write maps by name, and rows."""
    if options.about:
        from pytrace.results.formats import about

        file.write(about.json_line(snapshot))
    printers = Printers()
    for _, data in sorted(snapshot.maps.items()):
        printer, entries = printers.printer(data), printers.entries(data)
        printer.sort(entries)
        file.write(printer.entries_json(entries, Shown()))
    for table in snapshot.tables:
        _rows(printers, snapshot, table, file)


def _rows(printers: Printers, snapshot: SnapshotData, table: Table, file: BinaryIO) -> None:
    form = printers.portable_json(table.type)
    for run in snapshot.runs:
        file.writelines(json.line("row", form(row)) for row in table.rows.get(run.identity, ()))
