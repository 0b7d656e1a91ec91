"""What ``row()`` statements sent, kept for snapshots: the newest rows of each table."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.types import Record, settled
from pytrace.render.forms import PortableForms
from pytrace.results.snapshot import Table

if TYPE_CHECKING:
    from pytrace.core.types.tables import RowTable
    from pytrace.render.decoders import Values

KEPT = 65_536
"""Rows of each table that are kept unless told otherwise."""


class _Rows(msgspec.Struct):
    table: RowTable
    kept: deque[Values]
    seen: int = 0


class RowKeeper:
    """Keeps rows as they were decoded, by their table.

    Names (symbols, users) are resolved when a snapshot is taken.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._rows: dict[int, _Rows] = {}

    def keep(self, table: RowTable, values: Values) -> None:
        """Keep one row: the decoded values of its columns; the oldest row goes when there are too many."""
        rows = self._rows.get(table.number)
        if rows is None:
            rows = self._rows[table.number] = _Rows(table, deque(maxlen=self._most))
        rows.kept.append(values)
        rows.seen += 1

    def tables(self, identity: str, forms: PortableForms) -> tuple[Table, ...]:
        """The rows as tables of the run *identity*, in the order in which their first rows came."""
        return tuple(_table(rows, identity, forms) for rows in self._rows.values())


def _table(rows: _Rows, identity: str, forms: PortableForms) -> Table:
    schema = rows.table.schema
    record = Record(schema.paths, tuple(column.type for column in schema.columns))
    kept = list(map(forms.row_form(record), rows.kept))
    type_ = settled(record)
    assert isinstance(type_, Record)
    return Table(type_, {identity: kept}, rows.seen - len(kept), rows.table.number)
