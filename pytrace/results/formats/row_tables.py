"""Tables of rows as ``row()`` prints them in a run: each table as a whole, in it the rows of each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pytrace.core.types import Type
from pytrace.core.types.tables import Column, TableSchema
from pytrace.render import json
from pytrace.render.decoders import Value as Decoded
from pytrace.render.decoders import for_any
from pytrace.render.tables import Cell, Page, TextTable, cell
from pytrace.results import external_sort
from pytrace.results.formats.portable_forms import PortableForm, Printers
from pytrace.results.snapshot import SnapshotData, Table
from pytrace.results.values import Portable

Row = Sequence[Portable]


def rows(snapshot: SnapshotData, table: Table) -> Iterator[Row]:
    """The rows of a table: those of each run in the order of their arrival, runs in their order."""
    for run in snapshot.runs:
        yield from table.rows.get(run.identity, ())


def schema(table: Table) -> TableSchema:
    """The columns of a table."""
    return TableSchema(tuple(map(Column.of, table.type.names, table.type.members)))


def numbers(snapshot: SnapshotData) -> list[int]:
    """What the tables of a snapshot are called: as in the script, or, after scripts were merged, from 1 in order."""
    found = [table.number for table in snapshot.tables]
    return found if len(set(found)) == len(found) else list(range(1, len(found) + 1))


ROWS = 4096
"""Rows of a table that are formatted at once."""


def text(printers: Printers, snapshot: SnapshotData) -> Iterator[bytes]:
    """All tables as aligned text, with an empty line before each but the first."""
    page = Page()
    for table in snapshot.tables:
        yield from _text(printers, page, snapshot, table)


def _text(printers: Printers, page: Page, snapshot: SnapshotData, table: Table) -> Iterator[bytes]:
    columns = schema(table).columns
    shown = TextTable(page, TableSchema(columns))
    forms = [_cell(printers, column) for column in columns]

    def blocks() -> Iterator[tuple[list[bytes], list[list[Cell]]]]:
        for block in external_sort.batches(rows(snapshot, table), ROWS):
            values = [[form(item) for form, item in zip(forms, row, strict=True)] for row in block]
            yield list(map(shown.row, values)), values

    # The columns grow as rows are formatted; all are to have the width of the widest.
    for lines, values in blocks():
        shown.clean(lines, range(len(lines)), partial(_careful, shown, values))
    for lines, values in blocks():
        shown.settle(lines, range(len(lines)), partial(_careful, shown, values))
        yield b"".join(lines)


def _careful(shown: TextTable, values: Sequence[Sequence[Cell]], at: int) -> bytes:
    return shown.careful_row(values[at])


def _cell(printers: Printers, column: Column) -> Callable[[Portable], Cell]:
    kind = column.type
    if column.number:
        return printers.portable(kind, _number)
    return printers.portable(kind, cell(printers.texts, kind) or for_any(bytes))


def _number(value: Decoded) -> int:
    assert isinstance(value, int)
    return value


def json_lines(printers: Printers, snapshot: SnapshotData) -> Iterator[bytes]:
    """A line for each row."""
    for number, table in zip(numbers(snapshot), snapshot.tables, strict=True):
        start, form = json.ROW_START % number, _object(printers, table.type.names, table.type.members)
        for row in rows(snapshot, table):
            yield start + form(row) + json.ROW_END


def _object(printers: Printers, names: Sequence[str], kinds: Sequence[Type]) -> Callable[[Row], bytes]:
    parts: list[bytes | PortableForm] = list(json.row_object(names, kinds, printers.portable_json))

    def form(row: Row) -> bytes:
        values = iter(row)
        return b"".join([part if isinstance(part, bytes) else part(next(values)) for part in parts])

    return form
