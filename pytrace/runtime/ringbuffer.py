"""The event ring: records are taken straight from the memory that the kernel writes them to.

Layout (``kernel/bpf/ringbuf.c``): one page with the consumer position, one with the producer position, then
the data, mapped twice in a row so that no record ever wraps.  A record is a ``u32`` length with two flags, a
``u32`` page offset, and the payload, the whole rounded up to 8 bytes.

The ring is only some milliseconds of events long at full rate, and formatting is slower than tracing.  So what has
arrived is first copied out in one piece to a backlog in ordinary memory, which costs next to nothing for each record
and frees the ring at once; handlers then work through the backlog, and the ring is looked at again between
their slices.  Events are lost only when the backlog has grown to its limit too.

Records that follow each other with the same length and event id are handed over as one *run*, so a handler can decode
hundreds of them with one call into C.
"""

from __future__ import annotations

import mmap
import select
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from pytrace.diagnostics import InternalError
from pytrace.runtime import bpf
from pytrace.runtime.events import RunHandler

BUSY = 1 << 31
DISCARD = 1 << 30
RECORD_HEADER = 8

SLICE = 2048
"""Most records that a handler gets in one call; the ring is looked at between two calls."""

BACKLOG_LARGEST = 512 << 20
BACKLOG_SMALLEST = 4 << 20
_BACKLOG_SHARE = 8


def backlog_limit(available: int) -> int:
    """Most bytes of events that wait for their output: an eighth of the *available* memory, within fixed limits."""
    return max(BACKLOG_SMALLEST, min(available // _BACKLOG_SHARE, BACKLOG_LARGEST))


class _Chunk:
    """Records that were copied out of the ring. *runs* are (offset of the payload, length, stride, count)."""

    __slots__ = ("data", "runs", "words")

    def __init__(self, data: bytes, runs: list[tuple[int, int, int, int]]) -> None:
        self.data = data
        self.runs = deque(runs)
        self.words = memoryview(data).cast("I")


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
        produced = mmap.mmap(map_fd, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        stack.callback(produced.close)
        self._size = size
        self._consumer = _view(stack, memoryview(consumer), "Q")
        everything = stack.enter_context(memoryview(produced))
        self._producer = _view(stack, everything[:page], "Q")
        self._data = stack.enter_context(everything[page:])
        self._words = stack.enter_context(self._data.cast("I"))
        self._position = self._consumer[0]
        self._backlog: deque[_Chunk] = deque()
        self._backlog_bytes = 0
        self._backlog_limit = backlog
        # Taking and releasing a lock orders memory on every machine: the kernel's stores that precede what we read
        # (position, header) must be seen before what we read next (header, payload), and our copy must be
        # done before the consumer position says so.
        self._fence = allocate_lock()
        self._guess = SLICE
        self.handling = 0
        """Events that a handler was given and has not returned from; it may have raised."""
        self.position = 0
        """How far the output was before that (*position* of :meth:`drain`)."""
        self.peak_backlog = 0
        """Most bytes that the backlog ever held."""

    def fileno(self) -> int:
        """The map's descriptor; it polls as readable while there are records."""
        return self._fd

    @property
    def pending(self) -> bool:
        """Whether there is something to drain, in the ring or in the backlog."""
        return bool(self._backlog) or self._producer[0] != self._position

    def drain(
        self, handlers: Sequence[RunHandler], limit: int | None = None, position: Callable[[], int] = int
    ) -> int:
        """Hand events to ``handlers[event id]``, in the order in which they were reserved; gives their number.

        Returns when nothing is left or, with *limit*, after about that many events. A handler may raise: its run counts
        as taken, and the next call goes on behind it. *position* tells how far the output is, for :attr:`position`.

        Raises:
            InternalError: an event has an id that *handlers* does not have.
        """
        total = 0
        while limit is None or total < limit:
            self._collect()
            if not self._backlog:
                break
            self.position = position()
            total += self._step(handlers, SLICE if limit is None else min(SLICE, limit - total))
        return total

    def discard(self) -> int:
        """Drop everything that waits; gives the number of events, without those of a handler that was interrupted."""
        dropped = 0
        self._backlog_bytes = 0
        self._collect()
        while self._backlog:
            dropped += sum(run[3] for chunk in self._backlog for run in chunk.runs)
            self._backlog.clear()
            self._backlog_bytes = 0
            self._collect()
        return dropped

    # ---- ring to backlog

    def _collect(self) -> None:
        """Copy all complete records to the backlog and give their room back to the kernel."""
        position = self._position
        waiting = self._producer[0] - position
        if not waiting or self._backlog_bytes >= self._backlog_limit:
            return
        with self._fence:
            start = position & (self._size - 1)
            runs, end = self._walk(start, start + waiting)
        if end == start:
            return
        with self._fence:
            data = bytes(self._data[start:end])
        chunks = (_Chunk(data, runs),) if runs else ()
        # Nothing is called between these two, so that no signal's exception comes between them.
        self._backlog += chunks
        self._position = position + (end - start)
        with self._fence:
            self._consumer[0] = self._position
        if runs:
            self._backlog_bytes += len(data)
            self.peak_backlog = max(self.peak_backlog, self._backlog_bytes)

    def _walk(self, start: int, end: int) -> tuple[list[tuple[int, int, int, int]], int]:
        """Runs of equal length from *start* up to the first unfinished record, and the place where that is.

        A guess that the next *n* records are as long as this one is checked with one strided read of the header
        words: if all of them agree, each is indeed a header, by induction. The guess grows while it holds.
        """
        words = self._words
        runs: list[tuple[int, int, int, int]] = []
        place, guess = start, 1
        while place < end:
            word = words[place >> 2]
            if word & BUSY:
                break
            step = ((word & ~DISCARD) + RECORD_HEADER + 7) & ~7
            count = min(guess, (end - place) // step)
            if count > 1:
                seen = words[place >> 2 : (place + count * step) >> 2 : step >> 2].tolist()
                agreeing = seen.count(word)
                if agreeing != count:
                    count = next(index for index, other in enumerate(seen) if other != word)
                guess = guess * 2 if agreeing == len(seen) else max(1, count)
            else:
                guess = 2
            if not word & DISCARD:
                first = place - start + RECORD_HEADER
                if runs and runs[-1][1] == word and runs[-1][0] + step * runs[-1][3] == first:
                    first, _, _, before = runs.pop()
                    runs.append((first, word, step, before + count))
                else:
                    runs.append((first, word, step, count))
            place += count * step
            if guess > 1 << 14:
                guess = 1 << 14
        return runs, place

    # ---- backlog to handlers

    def _step(self, handlers: Sequence[RunHandler], most: int) -> int:
        """Hand over one run, cut to *most* events and to events of one id."""
        chunk = self._backlog[0]
        offset, length, stride, count = chunk.runs[0]
        identity = chunk.words[offset >> 2]
        # As in _walk the guess follows what was met: kinds of events that alternate must not cost a long look each.
        taken = min(count, most, self._guess)
        if taken > 1:
            seen = chunk.words[offset >> 2 : (offset + taken * stride - RECORD_HEADER) >> 2 : stride >> 2].tolist()
            if seen.count(identity) != taken:
                taken = next(index for index, other in enumerate(seen) if other != identity)
        self._guess = min(SLICE, max(2, 2 * taken))
        # As in _collect: the events are either in the backlog or being handled, whenever a signal comes.
        self.handling = taken
        if taken < count:
            chunk.runs[0] = (offset + taken * stride, length, stride, count - taken)
        else:
            chunk.runs.popleft()
            if not chunk.runs:
                self._backlog.popleft()
                self._backlog_bytes -= len(chunk.data)
        if identity >= len(handlers):
            raise InternalError(f"event with unknown id {identity}; the script has {len(handlers)} kinds of events")
        handlers[identity](chunk.data, offset, length, stride, taken)
        self.handling = 0
        return taken


def _view(stack: ExitStack, whole: memoryview, code: str) -> memoryview:
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

    def watch(self, descriptor: int) -> None:
        """Also wake up when *descriptor* can be read."""
        self._poll.register(descriptor, select.EPOLLIN)

    def wait(self, timeout: float | None, drained: int = 0) -> list[int]:
        """Wait for at most *timeout* seconds; gives the ready descriptors among those of :meth:`watch`.

        *drained* is how many events the drain before gave; ``reader.pending`` tells afterwards whether to drain.
        """
        if drained >= self.BUSY_COUNT:
            self._listen(False)
            timeout = self.REST if timeout is None else min(timeout, self.REST)
        else:
            self._listen(True)
        ring = self._reader.fileno()
        return [descriptor for descriptor, _ in self._poll.poll(timeout) if descriptor != ring]

    def _listen(self, wanted: bool) -> None:
        if wanted != self._listening:
            self._poll.modify(self._reader.fileno(), select.EPOLLIN if wanted else 0)
            self._listening = wanted
