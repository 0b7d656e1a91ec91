"""Events of several kinds that are handled together: one call for many records, and texts in the order of events.

What repeats a sequence of kinds is decoded and formatted by one function that is compiled for the sequence; what does
not is formatted record by record.  Only events that do nothing but print a text are handled so, and only where no text
takes long; all others (maps, ``exit()``, commands, stacks) are handed to their handlers one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import RECORD_HEADER, WORD
from pytrace.render.events import RunHandler, Tally, Texts, sequence_formatter

if TYPE_CHECKING:
    from pytrace.render.tables import Again

Group = Callable[[bytes, int, int], None]
"""``group(data, offset, count)``: handle *count* repetitions of a sequence of events."""

SEQUENCES = 64
"""Maximum number of compiled sequences; events of others are formatted record by record."""


class Handlers(list[RunHandler]):
    """The handler of each event id, and the functions that were compiled for sequences of them."""

    def __init__(self, handlers: Iterable[RunHandler] = ()) -> None:
        super().__init__(handlers)
        self._groups: dict[tuple[tuple[int, ...], tuple[int, ...], int], tuple[list[RunHandler], Group]] = {}

    def of(self, identity: int) -> RunHandler:
        """The handler of an event id.

        Raises:
            InternalError: the script has no such event.
        """
        if identity >= len(self):
            raise InternalError(f"event with unknown id {identity}; the script has {len(self)} kinds of events")
        return self[identity]

    def sequence(self, identities: tuple[int, ...], starts: tuple[int, ...], stride: int) -> Group | None:
        """The function for a sequence of events; None when its events have to be handled one by one.

        Each repetition takes *stride* bytes, in which the payloads begin at *starts*.
        """
        if max(identities) >= len(self):
            return None
        involved = [self[identity] for identity in identities]
        key = (identities, starts, stride)
        known = self._groups.get(key)
        # Handlers change: they are made with their first event, and after exit() there are others.
        if known is not None and known[0] == involved:
            return known[1]
        group = _tallies(involved) or _texts(involved, starts, stride)
        if group is not None and (known is not None or len(self._groups) < SEQUENCES):
            self._groups[key] = (involved, group)
            return group
        return None

    def together(self, identities: Sequence[int]) -> int:
        """How many of the first events with these *identities* can be handled by one call of :meth:`handle`."""
        single = {identity for identity in set(identities) if not self._batched(identity)}
        if not single:
            return len(identities)
        return next(index for index, identity in enumerate(identities) if identity in single)

    def _batched(self, identity: int) -> bool:
        if identity >= len(self):
            return False
        handler = self[identity]
        return isinstance(handler, Tally) or (isinstance(handler, Texts) and handler.quick)

    def handle(self, data: bytes, places: Sequence[int], identities: Sequence[int]) -> None:
        """Handle the records at *places* (in words), all of them of kinds that :meth:`together` has counted."""
        kinds = set(identities)
        ones: list[Callable[[bytes, int], bytes]] = [_nothing] * (max(kinds) + 1)
        printing: dict[int, Texts] = {}
        for kind in kinds:
            handler = self[kind]
            if isinstance(handler, Texts):
                printing[kind], ones[kind] = handler, handler.formatter.listed
            elif isinstance(handler, Tally):
                handler.add(sum(identity == kind for identity in identities) if len(kinds) > 1 else len(identities))
        if not printing:
            return
        texts = [ones[identity](data, place) for identity, place in zip(identities, places)]  # noqa: B905
        if not _plain(list(printing.values())):
            _deliver(
                texts,
                [printing.get(identity) for identity in identities],
                lambda index: printing[identities[index]].careful(data, WORD * places[index] + RECORD_HEADER),
            )
        else:
            next(iter(printing.values())).extend(texts)


def _nothing(_data: bytes, _offset: int) -> bytes:
    """The text of an event that is only counted."""
    return b""


def _plain(handlers: Sequence[Texts]) -> bool:
    """Whether texts are printed as they are, to one place."""
    extend = handlers[0].extend
    return all(handler.table is None and handler.extend == extend for handler in handlers)


def _deliver(texts: list[bytes], of: Sequence[Texts | None], again: Again) -> None:
    """Print *texts*, each the way of its handler in *of* (None for an empty one); *again* as tables want it."""
    tables = {id(item.table): item.table for item in set(of) if item is not None and item.table is not None}
    if tables:
        places = [(index, item.table) for index, item in enumerate(of) if item is not None and item.table is not None]
        if len(tables) == 1:
            places[0][1].settle(texts, [index for index, _ in places], again)
        else:
            from pytrace.render.tables import settle  # loaded with the first table

            settle(texts, places, again)
    extends = list(dict.fromkeys(item.extend for item in of if item is not None))
    if len(extends) == 1:
        extends[0](texts)
        return
    for extend in extends:
        extend([text for text, item in zip(texts, of, strict=True) if item is not None and item.extend == extend])


def _tallies(involved: list[RunHandler]) -> Group | None:
    """The function for a sequence of events that are only counted."""
    tallies = [handler for handler in involved if isinstance(handler, Tally)]
    if len(tallies) < len(involved):
        return None

    def group(_data: bytes, _offset: int, count: int) -> None:
        for tally in tallies:
            tally.add(count)

    return group


def _texts(involved: list[RunHandler], starts: tuple[int, ...], stride: int) -> Group | None:
    """The function that prints a sequence of events of fixed length."""
    texts = [handler for handler in involved if isinstance(handler, Texts)]
    if len(texts) < len(involved) or not all(item.quick and item.formatter.fixed for item in texts):
        return None
    strides = [after - start for start, after in zip(starts, (*starts[1:], stride), strict=True)]
    run, extend = sequence_formatter([item.formatter for item in texts], strides), texts[0].extend
    if not _plain(texts):
        return _rows(texts, starts, stride, run)

    def group(data: bytes, offset: int, count: int) -> None:
        extend(run(data, offset, count))

    return group


def _rows(
    texts: list[Texts], starts: tuple[int, ...], stride: int, run: Callable[[bytes, int, int], list[bytes]]
) -> Group:
    """The function that prints a sequence with rows of tables, or with texts for several outputs."""
    length, extend = len(texts), texts[0].extend
    tables = {id(item.table): item.table for item in texts if item.table is not None}
    table = next(iter(tables.values())) if len(tables) == 1 and len({item.extend for item in texts}) == 1 else None
    within = [index for index, item in enumerate(texts) if item.table is not None]

    def group(data: bytes, offset: int, count: int) -> None:
        def again(index: int) -> bytes:
            turn, place = divmod(index, length)
            return texts[place].careful(data, offset + turn * stride + starts[place] - starts[0])

        lines = run(data, offset, count)
        if table is None:
            _deliver(lines, texts * count, again)
            return
        rows = [range(index, len(lines), length) for index in within]
        table.settle(lines, rows[0] if len(rows) == 1 else sorted(index for every in rows for index in every), again)
        extend(lines)

    return group
