"""Rows: what ``row()`` prints, as aligned text, JSON or CSV, and as typed values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytrace.core import types
from pytrace.core.event_layout import EventSpec, FlatLayout, RowMembers
from pytrace.core.types.tables import JOINED_TEXTS, NUMBERS, RowTable
from pytrace.render import json
from pytrace.render.events.event_decoder import Formatter, RowFormatter, RunHandler, Texts, reader
from pytrace.render.events.printf import Piece
from pytrace.render.tables import Table, TextTable, cell, is_below, lines_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.render.decoders import Values
    from pytrace.runtime.output.context import Context


def values(context: Context, spec: EventSpec) -> Callable[[bytes, int], Values]:
    """A function that gives the decoded row of the event at an offset, in the order of its :attr:`EventSpec.schema`.

    Its values compare with those of other statements of the table.
    """
    read = reader(FlatLayout.of(spec.layout), context.decoders)
    columns = zip(spec.schema.columns, context.row_tables[spec.id].schema.columns, strict=True)
    forms = [
        (at, context.raw_texts.form(own.type)) for at, (own, table) in enumerate(columns) if table.type == JOINED_TEXTS
    ]
    if not forms:
        return read

    def printed(data: bytes, offset: int) -> Values:
        row: Values = read(data, offset)
        texts = {at: form(row[at]) for at, form in forms}
        return tuple([texts.get(at, item) for at, item in enumerate(row)])

    return printed


def handler(context: Context, spec: EventSpec, *, quick: bool) -> RunHandler:
    """What prints the rows of one place in the script, and keeps them where somebody wants them."""
    return waiting(context, spec, keeping(context, spec, _printer(context, spec, quick=quick)))


def waiting(context: Context, spec: EventSpec, shown: RunHandler) -> RunHandler:
    """The handler *shown*, for sorted rows at the time of ``print_rows()``."""
    if not spec.static_part(RowMembers).order:
        return shown
    return context.sorted_rows.keeping(spec, values(context, spec), shown)


def line(context: Context, spec: EventSpec) -> Callable[[bytes, int], bytes]:
    """``line(data, offset)``: a row as text on its own, the members with their names."""
    layout = FlatLayout.of(spec.layout)
    parts: list[bytes | Piece] = []
    for name, kind in zip(context.row_tables[spec.id].schema.names, layout.args, strict=True):
        parts += (b" " if parts else b"", name.encode() + b"=", Piece(b"%s", render=context.texts.form(kind)))
    return Formatter(layout, context.decoders, parts).one


def keeping(context: Context, spec: EventSpec, shown: RunHandler) -> RunHandler:
    """The handler *shown*, which also keeps rows where somebody wants them."""
    keep = context.keep_row
    if keep is None:
        return shown
    table, read = context.row_tables[spec.id], values(context, spec)

    def run(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
        for place in range(offset, offset + stride * count, stride):
            keep(table, read(data, place))
        shown(data, offset, length, stride, count)

    return run


def _printer(context: Context, spec: EventSpec, *, quick: bool) -> RunHandler:
    output = context.output
    if output.json:
        return Texts(_json(context, spec), output.extend, quick=quick)
    table = context.tables.get(number := context.row_tables[spec.id].number)
    if table is None:
        table = context.tables[number] = _table(context, context.row_tables[spec.id])
    make = _text if isinstance(table, TextTable) else _csv
    return Texts(make(context, spec, table), output.extend, quick=quick, table=table)


def _table(context: Context, row_table: RowTable) -> Table:
    if not context.output.csv:
        return TextTable(context.page, row_table.schema, _below(row_table))
    from pytrace.render import csv

    return Table(context.page, csv.heading(row_table.schema.names), csv.END)


def _below(row_table: RowTable) -> list[int]:
    """The columns whose values stand below their row, unless there are no others."""
    columns = row_table.schema.columns
    found = [at for at, column in enumerate(columns) if is_below(column.type)]
    return found if len(found) < len(columns) else []


# ---------------------------------------------------------------------------------------------- formats


def _text(context: Context, spec: EventSpec, table: Table) -> Formatter:
    assert isinstance(table, TextTable)
    layout = FlatLayout.of(spec.layout)
    pieces: list[bytes | Piece] = [
        _text_piece(context, kind, below=at in table.below) for at, kind in enumerate(layout.args)
    ]
    return RowFormatter(layout, context.decoders, pieces, table)


def _text_piece(context: Context, kind: types.Type, *, below: bool) -> Piece:
    if isinstance(kind, NUMBERS):
        return Piece(b"%d")
    texts = context.raw_texts  # tables have escapes of their own
    return Piece(b"%s", render=lines_below(texts.form(kind)) if below else cell(texts, kind))


def _csv(context: Context, spec: EventSpec, _table: Table) -> Formatter:
    from pytrace.render import csv

    layout = FlatLayout.of(spec.layout)
    parts: list[bytes | Piece] = []
    for kind in layout.args:
        form = csv.form(context.raw_texts, kind, alone=len(layout.args) == 1)
        parts += (b"," if parts else b"", Piece(b"%d") if form is None else Piece(b"%s", render=form))
    return Formatter(layout, context.decoders, [*parts, csv.END])


def _json(context: Context, spec: EventSpec) -> Formatter:
    number = context.row_tables[spec.id].number
    parts: list[bytes | Piece] = [json.ROW_START % number]
    parts += json.row_object(spec.static_part(RowMembers).names, spec.args, partial(_json_piece, context))
    return Formatter(FlatLayout.of(spec.layout), context.decoders, [*parts, json.ROW_END])


def _json_piece(context: Context, kind: types.Type) -> Piece:
    if isinstance(kind, types.Int) and kind.width <= 4:
        return Piece(b"%d")
    if isinstance(kind, types.String):
        return Piece(b'"%s"', render=json.escape)
    if isinstance(kind, types.Stack):
        return Piece(b"%s", render=json.frames(context.raw_texts.form(kind), kind))
    return Piece(b"%s", render=context.jsons.form(kind))
