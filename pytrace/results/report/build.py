"""From snapshots to the document of a report: which picture shows which map."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

from pytrace.core import types
from pytrace.results.report import page, tables_data
from pytrace.results.report.document import Document, Part
from pytrace.results.report.flame_data import flame_part
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.stack_samples import is_profile

if TYPE_CHECKING:
    from pytrace.results.formats.portable_forms import Printers


def write(snapshot: SnapshotData, printers: Printers, about: Iterable[str], file: BinaryIO) -> None:
    """Write the page of one snapshot; *about* are lines about its runs.

    Raises:
        TraceError: the viewer was not bundled.
    """
    file.write(page.page(of_snapshot(snapshot, printers), snapshot.title, [snapshot], list(about)))


def of_snapshot(snapshot: SnapshotData, printers: Printers) -> Document:
    """The document of one snapshot: maps by name, then tables of rows."""
    document = Document()
    maps = (data for _, data in sorted(snapshot.maps.items()) if data.entries)
    document.parts.extend(_map(document, printers, data) for data in maps)
    for number, table in enumerate(snapshot.tables, 1):
        rows = chain.from_iterable(table.rows.get(run.identity, ()) for run in snapshot.runs)
        name = "rows" if len(snapshot.tables) == 1 else f"rows {number}"
        document.parts.append(tables_data.rows_part(document, printers, table, rows, name))
    return document


def _map(document: Document, printers: Printers, data: MapData) -> Part:
    if is_profile(data):
        return flame_part(document, data, None, printers.portable_text)
    if isinstance(data.value, types.Hist | types.LHist):
        return tables_data.histogram_part(document, printers, data)
    if isinstance(data.value, types.TSeries):
        return tables_data.series_part(document, printers, data)
    return tables_data.map_part(document, printers, data)
