"""What ``row()`` statements sent, kept for snapshots: the newest rows of each table."""

from __future__ import annotations

from collections import deque
from typing import Any

from pytrace.core.types import Record
from pytrace.results.snapshot import Table
from pytrace.runtime.capture.portable import PortableForms, plain

KEPT = 65_536
"""Rows of each table that are kept unless told otherwise."""


class RowKeeper:
    """Keeps rows as they were decoded; statements whose records are equal share one table.

    Names (symbols, users) are resolved when a snapshot is taken.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._rows: dict[Record, deque[tuple[Any, ...]]] = {}
        self._seen: dict[Record, int] = {}

    def keep(self, record_type: Record, values: tuple[Any, ...]) -> None:
        """Keep one row: decoded values of the members of *record_type*; the oldest row goes when there are too many."""
        rows = self._rows.get(record_type)
        if rows is None:
            rows = self._rows[record_type] = deque(maxlen=self._most)
            self._seen[record_type] = 0
        rows.append(values)
        self._seen[record_type] += 1

    def tables(self, identity: str, forms: PortableForms) -> tuple[Table, ...]:
        """The rows as tables of the run *identity*, in the order in which their first rows came."""
        return tuple(
            Table(_plain(kind), {identity: list(map(forms.form(kind), rows))}, self._seen[kind] - len(rows))
            for kind, rows in self._rows.items()
        )


def _plain(kind: Record) -> Record:
    found = plain(kind)
    assert isinstance(found, Record)
    return found
