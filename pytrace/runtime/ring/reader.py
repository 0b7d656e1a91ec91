"""The event ring: records are taken straight from the memory that the kernel writes them to.

Layout (``kernel/bpf/ringbuf.c``): one page with the consumer position, one with the producer position, then
the data, mapped twice in a row so that no record ever wraps.  A record is a ``u32`` length with two flags, a
``u32`` page offset, and the payload, the whole rounded up to 8 bytes.

The ring is only some milliseconds of events long at full rate, and formatting is slower than tracing.  So what has
arrived is first copied out to a backlog in ordinary memory, in pieces of :data:`COLLECT` bytes and with an index of its
records (:mod:`pytrace.runtime.ring.index`), which frees the ring at once; handlers then work through the backlog, and
the ring is looked at again between their slices.  Events are lost only when the backlog has grown to its limit too.

Each record is indexed once and handled once, in slices: a slice is handed to the handler of its event kind, or, where
kinds take turns, formatted together (:mod:`pytrace.runtime.ring.batches`).  How many events a slice has follows how
long the ones before took, so that the caller's *enough* is asked every few milliseconds.
"""

from __future__ import annotations

import mmap
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import cached_property
from threading import Lock

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import RECORD_HEADER, WORD
from pytrace.render.events.event_decoder import RunHandler
from pytrace.runtime.machine import bpf
from pytrace.runtime.ring.batches import Batches, Group
from pytrace.runtime.ring.index import Index, Listed, Repeated, Segment

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

BACKLOG_LARGEST = 64 << 20
BACKLOG_SMALLEST = 4 << 20
_BACKLOG_SHARE = 8

_LISTED_BYTES = 8
"""Bytes that the index takes for a record which is listed by itself."""


def backlog_limit(available: int) -> int:
    """Most bytes of events that wait for their output: an eighth of the *available* memory, within fixed limits."""
    return max(BACKLOG_SMALLEST, min(available // _BACKLOG_SHARE, BACKLOG_LARGEST))


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

    def __init__(self, map_fd: int, stack: ExitStack, *, backlog: int = BACKLOG_LARGEST) -> None:
        self._fd = map_fd
        size = bpf.map_info(map_fd)[4]
        page = mmap.PAGESIZE
        consumer = mmap.mmap(map_fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
        stack.callback(consumer.close)
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

    @cached_property
    def _batches(self) -> Batches:
        """Handles events of several kinds together; created when such events come."""
        return Batches()

    def _mapped(self, size: int) -> memoryview:
        """The page of the producer position and *size* bytes of data."""
        page = mmap.PAGESIZE
        mapped = mmap.mmap(self._fd, page + size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        self._stack.callback(mapped.close)
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
        handlers: Sequence[RunHandler],
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

    def _slice(self, handlers: Sequence[RunHandler], most: int) -> int:
        """Handle the first records of the backlog, *most* at most (but a repeated sequence as a whole)."""
        chunk = self._backlog[0]
        part = chunk.segments[0]
        if isinstance(part, Repeated):
            if len(part.identities) == 1:
                return self._run(handlers, chunk, part, most)
            group = self._batches.sequence(handlers, part)
            if group is not None:
                return self._group(group, chunk, part, most)
            part = chunk.segments[0] = part.listed()
        return self._mixture(handlers, chunk, part, most)

    # As in collect, nothing is called between noting what is handled and taking it out: the events are either in the
    # backlog or being handled, whenever a signal comes.

    def _run(self, handlers: Sequence[RunHandler], chunk: _Chunk, part: Repeated, most: int) -> int:
        """Hand over events of one kind that follow each other regularly."""
        (identity,), (length,) = part.identities, part.lengths
        handler = _handler(handlers, identity)
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

    def _mixture(self, handlers: Sequence[RunHandler], chunk: _Chunk, part: Listed, most: int) -> int:
        """Hand over records that are listed one by one: those in front that can be formatted together, or one."""
        first = part.next
        identities = part.identities[first : first + min(most, self._most.get(-1, _SLICE_FIRST))]
        together = self._batches.together(handlers, identities)
        places = part.places[first : first + max(1, together)]
        count = len(places)
        self.handling = count
        part.next = first + count
        self._trim(chunk)
        began = time.monotonic()
        if together:
            self._batches.handle(handlers, chunk.data, places, identities[:count])
            self._measure(-1, count, time.monotonic() - began)
        else:
            start = places[0] * WORD
            offset, length = start + RECORD_HEADER, int.from_bytes(chunk.data[start : start + WORD], sys.byteorder)
            _handler(handlers, identities[0])(chunk.data, offset, length, RECORD_HEADER, 1)
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


def _handler(handlers: Sequence[RunHandler], identity: int) -> RunHandler:
    if identity >= len(handlers):
        raise InternalError(f"event with unknown id {identity}; the script has {len(handlers)} kinds of events")
    return handlers[identity]


def _view(stack: ExitStack, whole: memoryview, code: str) -> memoryview:
    # The stub of memoryview.cast() wants the code as a literal.
    outer = stack.enter_context(whole)
    return stack.enter_context(outer.cast(code))  # type: ignore[call-overload]


class EventLoop:
    """Waits for events, and for other descriptors, with as few wake-ups as the rate allows.

    At a low rate the ring wakes the reader at its first record. At a high one that would mean a wake-up (and an
    interrupt on the traced side) for every handful of records, so after a full drain the ring is left alone for
    :attr:`REST` seconds, and only the other descriptors are waited for.
    """

    REST = 0.002
    BUSY_COUNT = 64
    """A drain of at least this many events means that the rate is high."""

    def __init__(self, reader: RingReader, stack: ExitStack) -> None:
        self._reader = reader
        self._poll = stack.enter_context(select.epoll())
        self._poll.register(reader.fileno(), select.EPOLLIN)
        self._listening = True
        self._full: int | None = None

    def fileno(self) -> int:
        """Readable when a wait would return."""
        return self._poll.fileno()

    @property
    def listening(self) -> bool:
        """Whether a record in the ring ends a wait."""
        return self._listening

    def watch(self, descriptor: int) -> None:
        """Also wake up when *descriptor* can be read."""
        self._poll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        """No longer wake up for *descriptor*."""
        self._poll.unregister(descriptor)

    def wait_for_room(self, descriptor: int | None) -> None:
        """Also wake up when *descriptor* can be written to (None: not any more)."""
        if descriptor != self._full:
            if self._full is not None:
                self._poll.unregister(self._full)
            if descriptor is not None:
                self._poll.register(descriptor, select.EPOLLOUT)
            self._full = descriptor

    def wait(self, timeout: float | None, drained: int = 0, *, events: bool = True) -> list[int]:
        """Wait for at most *timeout* seconds. Returns the ready descriptors among those of :meth:`watch`.

        *drained* is how many events the drain before gave; ``reader.pending`` tells afterwards whether to drain.
        Without *events* the ring is not waited for.
        """
        if events and drained >= self.BUSY_COUNT:
            self._listen(False)
            timeout = self.REST if timeout is None else min(timeout, self.REST)
        else:
            self._listen(events)
        others = (self._reader.fileno(), self._full)
        return [descriptor for descriptor, _ in self._poll.poll(timeout) if descriptor not in others]

    def _listen(self, wanted: bool) -> None:
        if wanted != self._listening:
            self._poll.modify(self._reader.fileno(), select.EPOLLIN if wanted else 0)
            self._listening = wanted
