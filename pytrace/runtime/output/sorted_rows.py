"""Rows that wait for ``print_rows()``, which prints them in the order of columns.

They are kept as the records that came, so that what prints a row as it comes prints them too.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.event_layout import RECORD_HEADER, EventSpec, RowMembers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytrace.render.decoders import Values
    from pytrace.render.events.event_decoder import RunHandler
    from pytrace.runtime.output.context import Context

MOST_BYTES = 64 << 20
"""Bytes that waiting rows take at most; rows that come after are counted as lost."""

OVERHEAD = 128
"""Bytes that a row takes beside its record, about."""

_Entry = tuple["Values", int, int, int]
"""A row: the values of its columns, which statement sent it, the place of its record there, and its length."""


class _Statement(msgspec.Struct):
    """A ``row()`` whose rows wait."""

    read: Callable[[bytes, int], Values]
    shown: RunHandler
    records: bytearray = msgspec.field(default_factory=bytearray)
    places: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Where each record starts, and its length without header and padding."""


class _Table(msgspec.Struct):
    """Rows that are sorted together: of one table, by the same columns."""

    order: Sequence[int]
    statements: list[_Statement] = msgspec.field(default_factory=list)
    arrivals: list[int] = msgspec.field(default_factory=list)
    """The statement of each row, in the order in which the rows came."""


class SortedRows:
    """All rows of a run that wait."""

    def __init__(self, context: Context, most: int = MOST_BYTES) -> None:
        self._context = context
        self._tables: dict[tuple[int, tuple[int, ...]], _Table] = {}
        self._most = most
        self._bytes = 0
        self.lost = 0
        """Rows that did not fit."""

    @property
    def waiting(self) -> int:
        """How many rows wait."""
        return sum(len(table.arrivals) for table in self._tables.values())

    def keeping(self, spec: EventSpec, read: Callable[[bytes, int], Values], shown: RunHandler) -> RunHandler:
        """The handler of a place in the script: it keeps rows that *shown* prints later; *read* decodes one."""
        order = tuple(spec.static_part(RowMembers).order)
        table = self._tables.setdefault((self._context.row_tables[spec.id].number, order), _Table(order))
        number, statement = len(table.statements), _Statement(read, shown)
        table.statements.append(statement)

        def run(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
            size = RECORD_HEADER + _padded(length)
            fitting = min(count, max(0, self._most - self._bytes) // (size + OVERHEAD))
            self.lost += count - fitting
            self._bytes += fitting * (size + OVERHEAD)
            records, places = statement.records, statement.places
            for at in range(offset, offset + stride * fitting, stride):
                places.append((len(records) + RECORD_HEADER, length))
                records += _HEADER
                records += data[at : at + size - RECORD_HEADER].ljust(size - RECORD_HEADER, b"\0")
            table.arrivals += [number] * fitting

        return run

    def print(self, most: int = 0) -> None:
        """Print the first *most* rows (0: all) of each table, and forget all rows."""
        self._bytes = 0
        for table in self._tables.values():
            if not table.arrivals:
                continue
            if not self._context.output.json:
                # Each time is a table of its own, with a heading.
                self._context.page.last = None
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
    found = list(waiting[0]) if len(waiting) == 1 else [next(waiting[number]) for number in table.arrivals]
    found.sort(key=itemgetter(0))
    for column in reversed(table.order):
        at = abs(column) - 1
        # The values of one column are of one type, which compares; mypy sees any of them.
        found.sort(key=lambda entry, at=at: entry[0][at], reverse=column < 0)  # type: ignore[misc]
    return found


def _entries(number: int, statement: _Statement) -> Iterator[_Entry]:
    records, read = bytes(statement.records), statement.read
    for place, length in statement.places:
        yield read(records, place), number, place, length


def _show(table: _Table, entries: list[_Entry]) -> None:
    """Hand the rows to what prints them, those of one statement that are next to each other at once."""
    for (number, length), run in groupby(entries, key=itemgetter(1, 3)):
        statement = table.statements[number]
        size = RECORD_HEADER + _padded(length)
        starts = [entry[2] - RECORD_HEADER for entry in run]
        data = b"".join([statement.records[start : start + size] for start in starts])
        statement.shown(data, RECORD_HEADER, length, size, len(starts))
