"""Rows of ``row()`` as aligned text, JSON or CSV, and as typed values.

Rows that wait for ``print_rows()``, which sorts them by columns, are kept as records, so that the handler that prints
rows as they come prints them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.core.event_layout import RECORD_HEADER, EventSpec, RowMembers
from pytrace.core.value_tables import INTEGERS, JOINED_TEXTS, FlatLayout, RowTable, row_schema, row_tables
from pytrace.render import csv, json
from pytrace.render.events import Formatter, Piece, RowFormatter, RunHandler, Texts, reader
from pytrace.render.json import quoted
from pytrace.render.tables import Page, Table, TextTable, cell, visible
from pytrace.render.text import Values

if TYPE_CHECKING:
    from pytrace.render.text import Form
    from pytrace.runtime.output.renderer import Renderer

class Rows:
    """Rows and tables of a run."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        output = renderer.output
        height = output.height if not output.json and not output.csv and output.terminal else None
        self.page = Page(height, lambda: output.cuts)
        statements = [spec for spec in renderer.manifest.events if spec.kind == "row"]
        self.row_tables = row_tables((spec.id, row_schema(spec)) for spec in statements)
        """The table of each ``row()`` of the script, by the id of its event."""
        self.tables: dict[int, Table] = {}
        """Tables of rows whose first row was printed, by their numbers."""
        self.sorted = SortedRows(renderer)

    def handler(self, spec: EventSpec, *, quick: bool) -> RunHandler:
        """The handler of one place in the script: it prints rows, and passes them to :attr:`Renderer.keep_row`."""
        renderer = self._renderer
        return waiting(renderer, spec, keeping(renderer, spec, _printer(renderer, spec, quick=quick)))


def values(renderer: Renderer, spec: EventSpec) -> Callable[[bytes, int], Values]:
    """A function that returns the decoded row of the event at an offset, in the order of its schema.

    Its values compare with those of other statements of the table.
    """
    read = reader(FlatLayout.of(spec.layout), renderer.forms.decoders)
    columns = zip(row_schema(spec).columns, renderer.rows.row_tables[spec.id].schema.columns, strict=True)
    forms = [
        (index, renderer.forms.raw_texts.form(own.type))
        for index, (own, table) in enumerate(columns)
        if table.type == JOINED_TEXTS
    ]
    if not forms:
        return read

    def printed(data: bytes, offset: int) -> Values:
        row: Values = read(data, offset)
        texts = {index: form(row[index]) for index, form in forms}
        return tuple([texts.get(index, item) for index, item in enumerate(row)])

    return printed


def waiting(renderer: Renderer, spec: EventSpec, shown: RunHandler) -> RunHandler:
    """The handler *shown*; sorted rows reach it at ``print_rows()``."""
    if not spec.static_part(RowMembers).order:
        return shown
    return renderer.rows.sorted.keeping(spec, values(renderer, spec), shown)


def keeping(renderer: Renderer, spec: EventSpec, shown: RunHandler) -> RunHandler:
    """The handler *shown*, which also keeps rows where :attr:`Renderer.keep_row` is set."""
    keep = renderer.keep_row
    if keep is None:
        return shown
    table, read = renderer.rows.row_tables[spec.id], values(renderer, spec)

    def run(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
        for place in range(offset, offset + stride * count, stride):
            keep(table, read(data, place))
        shown(data, offset, length, stride, count)

    return run


def _printer(renderer: Renderer, spec: EventSpec, *, quick: bool) -> RunHandler:
    output = renderer.output
    if output.json:
        return Texts(_json(renderer, spec), output.extend, quick=quick)
    table = renderer.rows.tables.get(number := renderer.rows.row_tables[spec.id].number)
    if table is None:
        table = renderer.rows.tables[number] = _table(renderer, renderer.rows.row_tables[spec.id])
    make = _text if isinstance(table, TextTable) else _csv
    return Texts(make(renderer, spec, table), output.extend, quick=quick, table=table)


def _table(renderer: Renderer, row_table: RowTable) -> Table:
    if not renderer.output.csv:
        return TextTable(renderer.rows.page, row_table.schema, _below(row_table))
    return Table(renderer.rows.page, csv.heading(row_table.schema.names), csv.END)


def _is_below(type_: types.Type) -> bool:
    """True for values that are printed below their row: stacks, except those in one line."""
    return isinstance(type_, types.Stack) and not type_.mode.one_line


def _below(row_table: RowTable) -> list[int]:
    """The columns whose values stand below their row, unless there are no others."""
    columns = row_table.schema.columns
    below = [index for index, column in enumerate(columns) if _is_below(column.type)]
    return below if len(below) < len(columns) else []


# ---------------------------------------------------------------------------------------------- formats


def _text(renderer: Renderer, spec: EventSpec, table: Table) -> Formatter:
    assert isinstance(table, TextTable)
    layout = FlatLayout.of(spec.layout)
    pieces: list[bytes | Piece] = [
        _text_piece(renderer, type_, below=index in table.below) for index, type_ in enumerate(layout.args)
    ]
    return RowFormatter(layout, renderer.forms.decoders, pieces, table)


def _lines_below(form: Form) -> Form:
    """The frames of a stack, each on an indented line."""
    return lambda value: _indented(form(value).split(b"\n"))


def _text_piece(renderer: Renderer, type_: types.Type, *, below: bool) -> Piece:
    if isinstance(type_, INTEGERS):
        return Piece(b"%d")
    texts = renderer.forms.raw_texts  # tables have escapes of their own
    return Piece(b"%s", render=_lines_below(texts.form(type_)) if below else cell(texts, type_))


def _csv(renderer: Renderer, spec: EventSpec, _table: Table) -> Formatter:
    layout = FlatLayout.of(spec.layout)
    parts: list[bytes | Piece] = []
    for type_ in layout.args:
        form = csv.form(renderer.forms.raw_texts, type_, alone=len(layout.args) == 1)
        parts += (b"," if parts else b"", Piece(b"%d") if form is None else Piece(b"%s", render=form))
    return Formatter(layout, renderer.forms.decoders, [*parts, csv.END])


def _json(renderer: Renderer, spec: EventSpec) -> Formatter:
    number = renderer.rows.row_tables[spec.id].number
    parts: list[bytes | Piece] = [json.ROW_START % number]
    parts += json.row_object(spec.static_part(RowMembers).names, spec.args, partial(_json_piece, renderer))
    parts.append(b"%s\n" % json.ending(renderer.mark(spec)))
    return Formatter(FlatLayout.of(spec.layout), renderer.forms.decoders, parts)


def _frames(text: Form, type_: types.Stack) -> Form:
    """The frames of a stack as an array of texts, in the order in which they print."""
    end = b";" if type_.mode.one_line else b"\n"
    return lambda value: b"[%s]" % b", ".join([quoted(line.strip()) for line in text(value).split(end) if line.strip()])


def _json_piece(renderer: Renderer, type_: types.Type) -> Piece:
    if isinstance(type_, types.Int) and type_.width <= 4:
        return Piece(b"%d")
    if isinstance(type_, types.String):
        return Piece(b'"%s"', render=json.escape)
    if isinstance(type_, types.Stack):
        return Piece(b"%s", render=_frames(renderer.forms.raw_texts.form(type_), type_))
    return Piece(b"%s", render=renderer.forms.jsons.form(type_))


# ---------------------------------------------------------------------------------------------- sorted rows

MOST_BYTES = 64 << 20
"""Maximum size of waiting rows; rows that come after are counted as lost."""

OVERHEAD = 128
"""Approximate size of a row in bytes, without its record."""

_Entry = tuple["Values", int, int, int]
"""A row: values of its columns, index of its statement, offset of its record there, and length of the record."""


class _Statement(msgspec.Struct):
    """A ``row()`` whose rows wait."""

    read: Callable[[bytes, int], Values]
    shown: RunHandler
    records: bytearray = msgspec.field(default_factory=bytearray)
    places: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Start of each record, and its length without header and padding."""


class _Table(msgspec.Struct):
    """Rows that are sorted together: of one table, by the same columns."""

    order: Sequence[int]
    statements: list[_Statement] = msgspec.field(default_factory=list)
    arrivals: list[int] = msgspec.field(default_factory=list)
    """The statement of each row, in the order in which the rows came."""


class SortedRows:
    """All rows of a run that wait."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._tables: dict[tuple[int, tuple[int, ...]], _Table] = {}
        self._bytes = 0
        self.lost = 0
        """Rows that did not fit."""

    @property
    def waiting(self) -> int:
        """Number of waiting rows."""
        return sum(len(table.arrivals) for table in self._tables.values())

    def keeping(self, spec: EventSpec, read: Callable[[bytes, int], Values], shown: RunHandler) -> RunHandler:
        """A handler that keeps the rows of a place in the script, for *shown* to print later; *read* decodes one."""
        order = tuple(spec.static_part(RowMembers).order)
        table = self._tables.setdefault((self._renderer.rows.row_tables[spec.id].number, order), _Table(order))
        number, statement = len(table.statements), _Statement(read, shown)
        table.statements.append(statement)

        def run(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
            size = RECORD_HEADER + _padded(length)
            fitting = min(count, max(0, MOST_BYTES - self._bytes) // (size + OVERHEAD))
            self.lost += count - fitting
            self._bytes += fitting * (size + OVERHEAD)
            records, places = statement.records, statement.places
            for start in range(offset, offset + stride * fitting, stride):
                places.append((len(records) + RECORD_HEADER, length))
                records += _HEADER
                records += data[start : start + size - RECORD_HEADER].ljust(size - RECORD_HEADER, b"\0")
            table.arrivals += [number] * fitting

        return run

    def print(self, most: int = 0) -> None:
        """Print the first *most* rows (0: all) of each table, and forget all rows."""
        self._bytes = 0
        for table in self._tables.values():
            if not table.arrivals:
                continue
            if not self._renderer.output.json:
                # Each time is a table of its own, with a heading.
                self._renderer.rows.page.last = None
            entries = _in_order(table)
            _show(table, entries[:most] if most > 0 else entries)
            table.arrivals = []
            for statement in table.statements:
                statement.records, statement.places = bytearray(), []


_HEADER = bytes(RECORD_HEADER)


def _padded(length: int) -> int:
    return (length + 7) & ~7


def _in_order(table: _Table) -> list[_Entry]:
    """The rows by the columns of the order, then by the others from left to right, then as they came."""
    waiting = [_entries(number, statement) for number, statement in enumerate(table.statements)]
    entries = list(waiting[0]) if len(waiting) == 1 else [next(waiting[number]) for number in table.arrivals]
    entries.sort(key=itemgetter(0))
    for column in reversed(table.order):
        index = abs(column) - 1
        # The values of one column are of one type, which compares; mypy sees any of them.
        entries.sort(key=lambda entry, index=index: entry[0][index], reverse=column < 0)  # type: ignore[misc]
    return entries


def _entries(number: int, statement: _Statement) -> Iterator[_Entry]:
    records, read = bytes(statement.records), statement.read
    for place, length in statement.places:
        yield read(records, place), number, place, length


def _indented(lines: list[bytes]) -> bytes:
    return b"".join([b"    %s\n" % visible(line.strip()) for line in lines if line.strip()])


def _show(table: _Table, entries: list[_Entry]) -> None:
    """Print the rows: consecutive ones of one statement together."""
    for (number, length), run in groupby(entries, key=itemgetter(1, 3)):
        statement = table.statements[number]
        size = RECORD_HEADER + _padded(length)
        starts = [entry[2] - RECORD_HEADER for entry in run]
        data = b"".join([statement.records[start : start + size] for start in starts])
        statement.shown(data, RECORD_HEADER, length, size, len(starts))
