"""The event ring: records are taken straight from the memory that the kernel writes them to.

Layout (``kernel/bpf/ringbuf.c``): one page with the consumer position, one with the producer position, then
the data, mapped twice in a row so that no record ever wraps. A record is a ``u32`` length with two flags, a
``u32`` page offset, and the payload, the whole rounded up to 8 bytes.

The ring is only some milliseconds of events long at full rate, and formatting is slower than tracing. So what has
arrived is first copied out to a backlog in ordinary memory, in pieces of :data:`COLLECT` bytes and with an index of
its records (:class:`Index`), which frees the ring at once; handlers then work through the backlog, and the ring is
looked at again between their slices. Events are lost only when the backlog has grown to its limit too.

Each record is indexed once and handled once, in slices: a slice is handed to the handler of its event kind, or, where
kinds take turns, to the handlers together (:class:`Handlers`): what repeats a sequence of kinds is decoded and
formatted by one function that is compiled for the sequence, the rest record by record, texts in the order of events.
Only events that do nothing but print a text are handled so, and only where no text takes long; all others (maps,
``exit()``, commands, stacks) are handed to their handlers one after another. How many events a slice has follows how
long the ones before took, so that the caller's *enough* is asked every few milliseconds.
"""

from __future__ import annotations

import mmap
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import RECORD_HEADER, WORD
from pytrace.render.events import RunHandler, Tally, Texts, sequence_formatter
from pytrace.runtime.machine import bpf

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
            places[0][1].settle_among(texts, places, again)
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


# ---------------------------------------------------------------------------------------------- index
# One pass over the records that have arrived.
#
# Most of a flood is regular: events of one kind, or the same sequence of kinds again and again, as a probe with several
# printf sends it. Looking at each record by itself costs as much as formatting it does when that is done for many
# records at once. So the pass looks for a sequence that repeats (of up to LONGEST records; events of one kind are a
# sequence of one) and checks by strided reads of the header words how often it does. What does not repeat is listed
# record by record. Either way each record is looked at a fixed number of times, whatever the order of kinds.

BUSY = 1 << 31
DISCARD = 1 << 30

WINDOW = 16
"""Records that are looked at one by one before the next search for a sequence that repeats."""
LONGEST = 8
"""Most records of a sequence; at most half a window."""
LEAST = 32
"""Records that repetitions must cover to be kept as such: each new sequence is compiled."""
_STRETCH_LARGEST = 1 << 10
_GUESS_LARGEST = 1 << 14


class Repeated:
    """A sequence of records that is repeated *count* times.

    *offset* is where the first one's payload starts, *stride* the bytes from one repetition to the next; *identities*,
    *starts* (bytes from the sequence's first payload) and *lengths* are of the records of one repetition.
    """

    __slots__ = ("count", "identities", "lengths", "offset", "starts", "stride")

    def __init__(
        self, offset: int, stride: int, count: int, identities: tuple[int, ...], starts: tuple[int, ...],
        lengths: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.offset = offset
        self.stride = stride
        self.count = count
        self.identities = identities
        self.starts = starts
        self.lengths = lengths

    @property
    def records(self) -> int:
        """Number of records."""
        return self.count * len(self.identities)

    @property
    def kinds(self) -> Sequence[int]:
        """Event ids that are among them."""
        return self.identities

    def take(self, count: int) -> Repeated:
        """The first *count* repetitions; they are not in this object any more."""
        taken = Repeated(self.offset, self.stride, count, self.identities, self.starts, self.lengths)
        self.offset += count * self.stride
        self.count -= count
        return taken

    def listed(self) -> Listed:
        """The same records one by one."""
        first, stride = (self.offset - RECORD_HEADER) // WORD, self.stride // WORD
        starts = [first + start // WORD for start in self.starts]
        ranges = [range(start, start + self.count * stride, stride) for start in starts]
        return _listed(list(chain.from_iterable(zip(*ranges, strict=True))), list(self.identities * self.count))


_FEW = 64


def _listed(places: Sequence[int], identities: Sequence[int]) -> Listed:
    if len(places) <= _FEW:
        return Listed(places[:], identities)
    return Listed(array("I", places), array("I", identities))


class Listed:
    """Records one by one: *places* (where their headers are, in words of 4 bytes), *identities* of their events."""

    __slots__ = ("identities", "next", "places")

    def __init__(self, places: Sequence[int], identities: Sequence[int]) -> None:
        self.places = places
        self.identities = identities
        self.next = 0
        """The first one that is still to be handled."""

    @property
    def records(self) -> int:
        """Number of records that are still to be handled."""
        return len(self.places) - self.next

    @property
    def kinds(self) -> Sequence[int]:
        """Event ids that are among them."""
        return self.identities


Segment = Repeated | Listed


class Index:
    """Finds records in the data of a ring, which *words* shows. *fence* orders memory: it is acquired and released
    between reading a record's header and reading what the header says is complete.
    """

    def __init__(self, words: memoryview, fence: AbstractContextManager[object] | None = None) -> None:
        self._words = words
        self._fence = fence or Lock()
        self._steps: dict[int, int] = {}
        """Words from a record to the next one, by the first word of its header; only of complete records."""
        self._longest = 1
        self._guess = WINDOW
        self._stretch = WINDOW

    def look_at(self, words: memoryview) -> None:
        """Find records in *words* from now on, which show the same ring."""
        self._words = words

    def segments(self, start: int, end: int) -> tuple[list[Segment], int]:
        """The complete records from *start* on, up to the first one that is unfinished or starts at *end* or after it.

        Places in segments count from *start*. Also returns the offset of the first record that is not in a segment.
        """
        segments: list[Segment] = []
        words = self._words[start // WORD :]
        place, limit = 0, (end - start) // WORD
        places: list[int] = []
        more = True
        while more:
            window = len(places)
            place, more = self._list(words, place, limit, WINDOW, places)
            if not more:
                break
            repeated = self._repeated(words, places[window:], limit)
            if repeated is not None:
                del places[window:]
                self._close(segments, words, places)
                segments.append(repeated)
                place = (repeated.offset - RECORD_HEADER + repeated.count * repeated.stride) // WORD
                places = []
                self._stretch = WINDOW
                continue
            place, more = self._list(words, place, limit, self._stretch, places)
            self._stretch = min(2 * self._stretch, _STRETCH_LARGEST)
        self._close(segments, words, places)
        return segments, start + place * WORD

    def _list(self, words: memoryview, place: int, end: int, most: int, places: list[int]) -> tuple[int, bool]:
        """Append the places of *most* records. Returns the start of the next one, and whether there are that many."""
        steps, note = self._steps, places.append
        before = len(places)
        while (missing := before + most - len(places)) and place < end:
            # So many fit whatever their lengths, and none of them has to be compared with the end.
            sure = min(missing, (end - place) // self._longest) or 1
            try:
                for _ in range(sure):
                    step = steps[words[place]]
                    note(place)
                    place += step
            except KeyError:
                word = words[place]
                if word & BUSY:
                    break
                step = _step(word)
                if word & DISCARD:
                    place += step
                else:
                    steps[word] = step
                    self._longest = max(self._longest, step)
        return place, not missing

    def _close(self, segments: list[Segment], words: memoryview, places: list[int]) -> None:
        """Make a segment of the records at *places*."""
        if places:
            segments.append(_listed(places, self._identities(words, places)))

    def _identities(self, words: memoryview, places: list[int]) -> tuple[int, ...]:
        """Event ids of the records at *places*."""
        with self._fence:
            return _at(words[RECORD_HEADER // WORD :], places)

    def _repeated(self, words: memoryview, places: list[int], end: int) -> Repeated | None:
        """The sequence that the window of records at *places* repeats; None when it has too few repetitions."""
        if len(places) < WINDOW:
            return None
        keys = list(zip(_at(words, places), self._identities(words, places), strict=True))
        for period in range(1, LONGEST + 1):
            if keys[period:] == keys[:-period]:
                break
        else:
            return None
        sequence = keys[:period]
        starts: list[int] = []
        stride = 0
        for length, _ in sequence:
            starts.append(stride)
            stride += _step(length)
        count = self._repetitions(words, places[0], stride, (end - places[0]) // stride, starts, sequence)
        if count * period < LEAST:
            return None
        lengths, identities = zip(*sequence, strict=True)
        offset = places[0] * WORD + RECORD_HEADER
        return Repeated(offset, stride * WORD, count, identities, tuple(WORD * start for start in starts), lengths)

    def _repetitions(
        self, words: memoryview, place: int, stride: int, room: int, starts: list[int], sequence: list[tuple[int, int]]
    ) -> int:
        """How many repetitions there are, at most *room*.

        A guess that there are *n* more is checked with a strided read of the header words of each record of the
        sequence: if all of them agree, each is indeed a header, by induction. The guess grows while it holds.
        """
        count = 0
        most = _GUESS_LARGEST // len(sequence)
        while count < room:
            guess = agreeing = min(self._guess, room - count)
            first = place + count * stride
            for start, (length, _) in zip(starts, sequence, strict=True):
                agreeing = min(agreeing, self._agreeing(words, first + start, stride, guess, length))
            with self._fence:
                first += RECORD_HEADER // WORD
                for start, (_, identity) in zip(starts, sequence, strict=True):
                    agreeing = min(agreeing, self._agreeing(words, first + start, stride, agreeing, identity))
            count += agreeing
            if agreeing < guess:
                self._guess = max(WINDOW, agreeing)
                break
            self._guess = min(2 * self._guess, most)
        return count

    def _agreeing(self, words: memoryview, place: int, stride: int, count: int, value: int) -> int:
        """How many of *count* words, *stride* from each other, are *value* before the first that is not."""
        if not count:
            return 0
        seen = words[place : place + (count - 1) * stride + 1 : stride].tolist()
        if seen.count(value) == count:
            return count
        return next(index for index, other in enumerate(seen) if other != value)


def _step(word: int) -> int:
    """Words from a record with this header to the next one."""
    return (((word & ~DISCARD) + RECORD_HEADER + 7) & ~7) // WORD


def _at(words: memoryview, places: list[int]) -> tuple[int, ...]:
    if len(places) == 1:
        return (words[places[0]],)
    values: tuple[int, ...] = itemgetter(*places)(words)
    return values


# ---------------------------------------------------------------------------------------------- reader

SLICE = 2048
"""Maximum number of records that are handled together; the ring is drained between two slices."""
_SLICE_FIRST = 32
_SLICE_SECONDS = 0.002
"""A slice that takes longer than this makes the next one shorter."""

COLLECT = 1 << 19
"""Maximum number of bytes that are copied out of the ring at once."""

FIRST = 1 << 18
"""Bytes of the ring that are mapped at once. The kernel fills in all pages of a mapping, which takes milliseconds for a
whole ring; many runs end before that much was sent."""

_BACKLOG_LARGEST = 64 << 20
_BACKLOG_SMALLEST = 4 << 20
_BACKLOG_SHARE = 8

_LISTED_BYTES = 8
"""Bytes that the index takes for a record which is listed by itself."""


def backlog_limit(available: int) -> int:
    """Most bytes of events that wait for their output: an eighth of the *available* memory, within fixed limits."""
    return max(_BACKLOG_SMALLEST, min(available // _BACKLOG_SHARE, _BACKLOG_LARGEST))


class _Chunk:
    """Records that were copied out of the ring up to *position*."""

    __slots__ = ("data", "position", "segments", "size")

    def __init__(self, data: bytes, segments: list[Segment], position: int) -> None:
        self.data = data
        self.segments = deque(segments)
        self.position = position
        self.size = len(data) + sum(_LISTED_BYTES * part.records for part in segments if isinstance(part, Listed))


class RingReader:
    """Reads one ring buffer map; the mappings are closed by *stack*.

    Not for use by several threads.
    """

    def __init__(self, map_fd: int, stack: ExitStack, *, backlog: int = _BACKLOG_LARGEST) -> None:
        self._fd = map_fd
        size = bpf.map_info(map_fd)[4]
        page = mmap.PAGESIZE
        consumer = mmap.mmap(map_fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
        stack.callback(bpf.close_mapping, consumer)
        self._size = size
        self._consumer = _view(stack, memoryview(consumer), "Q")
        self._stack = stack
        mapped = self._mapped(min(FIRST, 2 * size))
        self._producer = _view(stack, mapped[:page], "Q")
        self._data = stack.enter_context(mapped[page:])
        self._position = self._consumer[0]
        self._backlog: deque[_Chunk] = deque()
        self._backlog_bytes = 0
        self._backlog_limit = backlog
        # Taking and releasing a lock orders memory on every machine: the kernel's stores that precede what we read
        # (position, header) must be seen before what we read next (header, payload), and our copy must be
        # done before the consumer position says so.
        self._fence = Lock()
        self.index = Index(stack.enter_context(self._data.cast("I")), self._fence)
        self._most: dict[int, int] = {}
        """How many events a slice of each kind may have; of kinds that take turns: under -1."""
        self._awaited: frozenset[int] = frozenset()
        self._tell: Callable[[], object] = bool
        self.noticed = False
        """Whether an event of :meth:`notice` has been copied out of the ring; it may still wait to be handled."""
        self.handling = 0
        """Events that a handler was given and has not returned from; it may have raised."""
        self.discarded = 0
        """Events that were dropped (:meth:`discard`)."""
        self.position = 0
        """How far the output was before that (*position* of :meth:`drain`)."""
        self.peak_backlog = 0
        """Maximum size of the backlog so far, with its index."""

    def _mapped(self, size: int) -> memoryview:
        """The page of the producer position and *size* bytes of data."""
        page = mmap.PAGESIZE
        mapped = mmap.mmap(self._fd, page + size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        self._stack.callback(bpf.close_mapping, mapped)
        return self._stack.enter_context(memoryview(mapped))

    def _reach(self, end: int) -> None:
        """Map all of the ring when its first bytes do not reach to *end*."""
        if end > len(self._data):
            data = self._stack.enter_context(self._mapped(2 * self._size)[mmap.PAGESIZE :])
            self.index.look_at(self._stack.enter_context(data.cast("I")))
            self._data = data

    def fileno(self) -> int:
        """The map's descriptor; it polls as readable while there are records."""
        return self._fd

    def notice(self, kinds: Collection[int], tell: Callable[[], object] = bool) -> None:
        """Set :attr:`noticed`, and call *tell*, when an event with an id among *kinds* has come, before it is handled.

        *tell* is called once; events before that one may still wait, too.
        """
        self._awaited, self._tell = frozenset(kinds), tell

    @property
    def backlog(self) -> int:
        """Bytes of events that were copied out of the ring and wait to be handled, with their index."""
        return self._backlog_bytes

    @property
    def pending(self) -> bool:
        """Whether there is something to drain, in the ring or in the backlog."""
        return bool(self._backlog) or self._producer[0] != self._position

    def waiting(self, kinds: Collection[int]) -> bool:
        """Whether an event with an id among *kinds* was copied out of the ring and waits to be handled.

        Near the front of the backlog also of an event that has been handled: the rest of its segment waits.
        """
        return any(kind in part.kinds for chunk in self._backlog for part in chunk.segments for kind in kinds)

    @property
    def produced(self) -> int:
        """The position up to which programs have written; :attr:`handled` reaches it later."""
        return self._producer[0]

    @property
    def handled(self) -> int:
        """The position up to which everything has been handled."""
        return self._backlog[0].position if self._backlog else self._position

    def drain(
        self,
        handlers: Handlers,
        limit: int | None = None,
        position: Callable[[], int] = int,
        enough: Callable[[], bool] = bool,
    ) -> int:
        """Hand events to ``handlers[event id]``, in the order in which they were reserved. Returns their number.

        Returns when nothing is left, when *enough* says so (it is asked after each slice), or, with *limit*, after
        about that many events. A handler may raise: its run counts as taken, and the next call goes on after it.
        *position* tells how far the output is, for :attr:`position`.

        Raises:
            InternalError: an event has an id that *handlers* does not have.
        """
        total = 0
        while limit is None or total < limit:
            self.collect()
            if not self._backlog:
                break
            self.position = position()
            total += self._slice(handlers, SLICE if limit is None else min(SLICE, limit - total))
            if enough():
                break
        return total

    def discard(self) -> None:
        """Drop all waiting events, and count them in :attr:`discarded`; not those of an interrupted handler."""
        waiting = sum(part.records for chunk in self._backlog for part in chunk.segments)
        # As in collect, nothing is called between counting events and giving them up.
        self.discarded += waiting
        self._backlog.clear()
        self._backlog_bytes = 0
        while waiting := self._producer[0] - self._position:
            with self._fence:
                start = self._position & (self._size - 1)
            self._reach(start + min(waiting, COLLECT))
            segments, end = self.index.segments(start, start + min(waiting, COLLECT))
            if end == start:
                break
            dropped = sum(part.records for part in segments)
            self.discarded += dropped
            self._position += end - start
            with self._fence:
                self._consumer[0] = self._position

    # ---- ring to backlog

    def collect(self) -> bool:
        """Copy complete records to the backlog, and give their room back to the kernel; whether there were any."""
        position = self._position
        waiting = min(self._producer[0] - position, COLLECT)
        if not waiting or self._backlog_bytes >= self._backlog_limit:
            return False
        with self._fence:
            start = position & (self._size - 1)
        self._reach(start + waiting)
        segments, end = self.index.segments(start, start + waiting)
        if end == start:
            return False
        with self._fence:
            data = bytes(self._data[start:end])
        chunk = _Chunk(data, segments, position)
        chunks = (chunk,) if segments else ()
        # Nothing is called between these two, so that no signal's exception comes between them.
        self._backlog += chunks
        self._position = position + (end - start)
        with self._fence:
            self._consumer[0] = self._position
        if segments:
            self._backlog_bytes += chunk.size
            self.peak_backlog = max(self.peak_backlog, self._backlog_bytes)
        if not self.noticed and any(kind in part.kinds for part in segments for kind in self._awaited):
            self.noticed = True
            self._tell()
        return True

    # ---- backlog to handlers

    def _slice(self, handlers: Handlers, most: int) -> int:
        """Handle the first records of the backlog, *most* at most (but a repeated sequence as a whole)."""
        chunk = self._backlog[0]
        part = chunk.segments[0]
        if isinstance(part, Repeated):
            if len(part.identities) == 1:
                return self._run(handlers, chunk, part, most)
            group = handlers.sequence(part.identities, part.starts, part.stride)
            if group is not None:
                return self._group(group, chunk, part, most)
            part = chunk.segments[0] = part.listed()
        return self._mixture(handlers, chunk, part, most)

    # As in collect, nothing is called between noting what is handled and taking it out: the events are either in the
    # backlog or being handled, whenever a signal comes.

    def _run(self, handlers: Handlers, chunk: _Chunk, part: Repeated, most: int) -> int:
        """Hand over events of one kind that follow each other regularly."""
        (identity,), (length,) = part.identities, part.lengths
        handler = handlers.of(identity)
        count = min(part.count, most, self._most.get(identity, _SLICE_FIRST))
        offset, stride = part.offset, part.stride
        self.handling = count
        part.offset = offset + count * stride
        part.count -= count
        self._trim(chunk)
        began = time.monotonic()
        handler(chunk.data, offset, length, stride, count)
        self._measure(identity, count, time.monotonic() - began)
        self.handling = 0
        return count

    def _group(self, group: Group, chunk: _Chunk, part: Repeated, most: int) -> int:
        """Hand over a sequence of kinds that is there again and again."""
        each = len(part.identities)
        count = min(part.count, max(1, min(most, self._most.get(-1, _SLICE_FIRST)) // each))
        offset, records = part.offset, count * each
        self.handling = records
        part.offset = offset + count * part.stride
        part.count -= count
        self._trim(chunk)
        began = time.monotonic()
        group(chunk.data, offset, count)
        self._measure(-1, records, time.monotonic() - began)
        self.handling = 0
        return records

    def _mixture(self, handlers: Handlers, chunk: _Chunk, part: Listed, most: int) -> int:
        """Hand over records that are listed one by one: those in front that can be formatted together, or one."""
        first = part.next
        identities = part.identities[first : first + min(most, self._most.get(-1, _SLICE_FIRST))]
        together = handlers.together(identities)
        places = part.places[first : first + max(1, together)]
        count = len(places)
        self.handling = count
        part.next = first + count
        self._trim(chunk)
        began = time.monotonic()
        if together:
            handlers.handle(chunk.data, places, identities[:count])
            self._measure(-1, count, time.monotonic() - began)
        else:
            start = places[0] * WORD
            offset, length = start + RECORD_HEADER, int.from_bytes(chunk.data[start : start + WORD], sys.byteorder)
            handlers.of(identities[0])(chunk.data, offset, length, RECORD_HEADER, 1)
        self.handling = 0
        return count

    def _trim(self, chunk: _Chunk) -> None:
        """The first segment of *chunk* was taken from: forget what is empty."""
        if not chunk.segments[0].records:
            chunk.segments.popleft()
            if not chunk.segments:
                self._backlog.popleft()
                self._backlog_bytes -= chunk.size

    def _measure(self, kind: int, count: int, seconds: float) -> None:
        """Let the next slice of *kind* take about as long as one should."""
        most = self._most.get(kind, _SLICE_FIRST)
        if seconds > _SLICE_SECONDS:
            # Perhaps another process had the CPU meanwhile.
            self._most[kind] = max(1, most // 4, int(count * _SLICE_SECONDS / seconds))
        elif 2 * count > most:
            self._most[kind] = min(2 * most, SLICE)


def _view(stack: ExitStack, whole: memoryview, code: str) -> memoryview:
    # The stub of memoryview.cast() wants the code as a literal.
    outer = stack.enter_context(whole)
    return stack.enter_context(outer.cast(code))  # type: ignore[call-overload]
