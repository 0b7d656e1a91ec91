"""Events of several kinds that are handled together: one call for many records, and texts in the order of events.

What repeats a sequence of kinds is decoded and formatted by one function that is compiled for the sequence; what does
not is formatted record by record.  Only events that do nothing but print a text are handled so, and only where no text
takes long; all others (maps, ``exit()``, commands, stacks) are handed to their handlers one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from pytrace.runtime.ring.decoder import RunHandler, Tally, Texts, sequence_formatter
from pytrace.runtime.ring.index import RECORD_HEADER, WORD, Repeated

if TYPE_CHECKING:
    from pytrace.runtime.output.render.tables import Table

Group = Callable[[bytes, int, int], None]
"""``group(data, offset, count)``: handle a sequence of events that is there *count* times."""

SEQUENCES = 64
"""Most sequences that functions are compiled for; events of others are formatted record by record."""


class Batches:
    """What one run has compiled for sequences of kinds."""

    def __init__(self) -> None:
        self._groups: dict[tuple[tuple[int, ...], tuple[int, ...], int], tuple[list[RunHandler], Group]] = {}

    def sequence(self, handlers: Sequence[RunHandler], part: Repeated) -> Group | None:
        """What handles the sequence of *part*; None when its events have to be looked at one by one."""
        if max(part.identities) >= len(handlers):
            return None
        involved = [handlers[identity] for identity in part.identities]
        key = (part.identities, part.starts, part.stride)
        known = self._groups.get(key)
        # Handlers change: they are made with their first event, and after exit() there are others.
        if known is not None and known[0] == involved:
            return known[1]
        group = _tallies(involved) or _texts(involved, part)
        if group is not None and (known is not None or len(self._groups) < SEQUENCES):
            self._groups[key] = (involved, group)
            return group
        return None

    def together(self, handlers: Sequence[RunHandler], identities: Sequence[int]) -> int:
        """How many of the first events with these *identities* can be handled by one call of :meth:`handle`."""
        kinds = set(identities)
        single = {identity for identity in kinds if not _batched(handlers, identity)}
        if not single and _one_place([handlers[identity] for identity in kinds]):
            return len(identities)
        taken: dict[int, RunHandler] = {}
        for index, identity in enumerate(identities):
            if identity in single:
                return index
            if identity not in taken:
                taken[identity] = handlers[identity]
                if not _one_place(taken.values()):
                    return index
        return len(identities)

    def handle(
        self, handlers: Sequence[RunHandler], data: bytes, places: Sequence[int], identities: Sequence[int]
    ) -> None:
        """Handle the records at *places* (in words), all of them of kinds that :meth:`together` has counted."""
        kinds = set(identities)
        ones: list[Callable[[bytes, int], bytes]] = [_nothing] * (max(kinds) + 1)
        extend: Callable[[list[bytes]], None] | None = None
        table: Table | None = None
        for kind in kinds:
            handler = handlers[kind]
            if isinstance(handler, Texts):
                extend, ones[kind] = handler.extend, handler.formatter.listed
                table = handler.table or table
            elif isinstance(handler, Tally):
                handler.add(sum(identity == kind for identity in identities) if len(kinds) > 1 else len(identities))
        if extend is None:
            return
        texts = [ones[identity](data, place) for identity, place in zip(identities, places)]  # noqa: B905
        if table is not None:
            rows = {kind: handler for kind in kinds if isinstance(handler := handlers[kind], Texts) and handler.table}
            positions = [at for at, identity in enumerate(identities) if identity in rows]
            table.settle(
                texts, positions, lambda at: rows[identities[at]].careful(data, WORD * places[at] + RECORD_HEADER)
            )
        extend(texts)


def _nothing(_data: bytes, _offset: int) -> bytes:
    """What an event prints that is only counted."""
    return b""


def _one_place(handlers: Collection[RunHandler]) -> bool:
    """Whether the texts of these handlers can be printed by one call: to one place, rows of one table at most."""
    texts = [handler for handler in handlers if isinstance(handler, Texts)]
    tables = {id(handler.table) for handler in texts if handler.table is not None}
    return len(tables) < 2 and len({handler.extend for handler in texts}) < 2


def _batched(handlers: Sequence[RunHandler], identity: int) -> bool:
    if identity >= len(handlers):
        return False
    handler = handlers[identity]
    return isinstance(handler, Tally) or (isinstance(handler, Texts) and handler.quick)


def _tallies(involved: list[RunHandler]) -> Group | None:
    """What counts a sequence of events that are only counted."""
    tallies = [handler for handler in involved if isinstance(handler, Tally)]
    if len(tallies) < len(involved):
        return None

    def group(_data: bytes, _offset: int, count: int) -> None:
        for tally in tallies:
            tally.add(count)

    return group


def _texts(involved: list[RunHandler], part: Repeated) -> Group | None:
    """What prints a sequence of events of fixed length."""
    texts = [handler for handler in involved if isinstance(handler, Texts)]
    if len(texts) < len(involved) or not all(item.quick and item.formatter.fixed for item in texts):
        return None
    if not _one_place(involved):
        return None
    strides = [after - start for start, after in zip(part.starts, (*part.starts[1:], part.stride), strict=True)]
    run, extend = sequence_formatter([item.formatter for item in texts], strides), texts[0].extend
    table = next((item.table for item in texts if item.table is not None), None)
    if table is not None:
        return _rows(texts, part, run, table)

    def group(data: bytes, offset: int, count: int) -> None:
        extend(run(data, offset, count))

    return group


def _rows(
    texts: list[Texts], part: Repeated, run: Callable[[bytes, int, int], list[bytes]], table: Table
) -> Group:
    """What prints a sequence that has rows of *table*."""
    length, stride, extend = len(texts), part.stride, texts[0].extend
    within = [at for at, item in enumerate(texts) if item.table is not None]
    starts = [start - part.starts[0] for start in part.starts]

    def group(data: bytes, offset: int, count: int) -> None:
        def again(at: int) -> bytes:
            turn, place = divmod(at, length)
            return texts[place].careful(data, offset + turn * stride + starts[place])

        found = run(data, offset, count)
        positions = range(len(found)) if len(within) == length else [
            start + at for start in range(0, len(found), length) for at in within
        ]
        table.settle(found, positions, again)
        extend(found)

    return group
