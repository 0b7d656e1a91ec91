"""Format ``text``: maps as the end of a run prints them, below them tables of rows."""

from __future__ import annotations

from typing import BinaryIO

from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers, encoded
from pytrace.results.snapshot import SnapshotData, Table
from pytrace.runtime.output.render.map_printer import Shown


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write maps by name, and tables."""
    if options.about:
        from pytrace.results.formats import about

        file.write(encoded(about.text(snapshot)))
    printers = Printers()
    for _, data in sorted(snapshot.maps.items()):
        printer, entries = printers.printer(data), printers.entries(data)
        printer.sort(entries)
        file.write(printer.entries_text(entries, Shown()))
    file.writelines(_table(printers, snapshot, table) for table in snapshot.tables)


def _table(printers: Printers, snapshot: SnapshotData, table: Table) -> bytes:
    names = [name.encode().upper() for name in table.type.names]
    forms = [printers.portable_text(member) for member in table.type.members]
    lines = [names]
    for run in snapshot.runs:
        rows = table.rows.get(run.identity, ())
        lines += [[form(item) for form, item in zip(forms, row, strict=True)] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    return b"".join(
        b"  ".join(item.ljust(width) for item, width in zip(line, widths, strict=True)).rstrip() + b"\n"
        for line in lines
    )
