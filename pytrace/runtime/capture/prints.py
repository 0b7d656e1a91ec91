"""What a script prints of its maps while it runs, kept for snapshots."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.render.portable import Held
from pytrace.render.value_types import ROWS
from pytrace.results.snapshot import Print
from pytrace.runtime.capture.maps import portable

if TYPE_CHECKING:
    from pytrace.render.forms import PortableForms
    from pytrace.render.maps.map_printer import Entry, MapView

MOST = 1 << 21
"""Numbers of all prints that are kept: the older ones of a map go when there are more."""


class _Kept(msgspec.Struct):
    time: int
    entries: list[Entry]
    div: int
    cleared: bool
    number: int


class _Printed(msgspec.Struct):
    view: MapView
    kept: deque[_Kept]
    count: int = 0


class PrintKeeper:
    """Keeps the entries of prints as they were decoded; names are resolved when a snapshot is taken."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._size = 0
        self._maps: dict[str, _Printed] = {}

    def keeps(self, view: MapView) -> bool:
        """True for maps of histograms and of numbers; of those by stack the end is shown."""
        row = ROWS[type(view.value_type)]
        by_stack = view.key_type is not None and any(
            isinstance(part, types.Stack) for part in types.parts((view.key_type,))
        )
        return (row.held is Held.COUNTS or row.number) and not by_stack

    def keep(self, view: MapView, entries: list[Entry], *, div: int, clear: bool) -> None:
        """Keep one print of a map, which *clear* emptied; older ones go when there are too many."""
        printed = self._maps.get(view.name)
        if printed is None:
            printed = self._maps[view.name] = _Printed(view, deque())
        printed.count += 1
        printed.kept.append(_Kept(time.time_ns(), entries, div, clear, printed.count))
        self._size += _size(entries)
        while self._size > self._most and len(printed.kept) > 1:
            self._size -= _size(printed.kept.popleft().entries)

    def emptied(self, name: str) -> None:
        """A map was emptied, or set to zero."""
        if name in self._maps:
            self._maps[name].kept[-1].cleared = True

    def prints(self, forms: PortableForms) -> tuple[Print, ...]:
        """All prints, by their times."""
        prints = [
            Print(name, kept.time, portable(printed.view.spec, kept.entries, forms, div=kept.div), kept.cleared,
                  kept.number)
            for name, printed in self._maps.items()
            for kept in printed.kept
        ]  # fmt: skip
        return tuple(sorted(prints, key=lambda item: item.time))


def _size(entries: list[Entry]) -> int:
    return 1 + sum(len(value) if isinstance(value, tuple) else 1 for _, value in entries)
