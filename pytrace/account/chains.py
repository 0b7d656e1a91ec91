"""Chains of waits: what a thread did while another one waited for it, and the critical path of a command.

A wait is explained by the thread that ended it: by what that one did meanwhile, which may be a wait that a third one
ended. A wait that a device, a timer, the kernel or a thread outside of the trace ended is the end of a chain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

DEPTH = 8
"""The longest chain: waits for a wait for a wait …"""
MOST_STEPS = 200_000
"""Segments that all chains together may have: what is left out then is counted."""


class Wait(NamedTuple):
    """A wait of a thread that was longer than the limit, for whatever."""

    begin: int
    end: int
    state: int
    """As in ``account.bt``."""
    object: int
    by: int
    """The place of whoever ended it; 0 where that was not kept."""
    waker: int
    """Thread id of whoever ended it; 0 where nobody did."""
    cpu: int
    """CPU time of the thread until then, in nanoseconds."""


class Span(NamedTuple):
    """When a thread lived, and what it had run by then."""

    begin: int
    end: int
    cpu: int
    """CPU time at its beginning."""
    ran: int
    """CPU time at its end."""
    parent: int
    """The thread that created it within the trace, or 0."""


class Link(NamedTuple):
    """A thread that waits for another one."""

    tid: int
    state: int
    object: int
    by: int


class Segment(NamedTuple):
    """A part of a chain's end: what a thread did for so long."""

    tid: int
    begin: int
    end: int
    wait: Wait | None
    """None: it ran."""
    cpu: int
    """Of it on a CPU, where it ran."""
    chain: tuple[Link, ...]
    """Who waited for it, the outermost first."""


class Timeline:
    """Waits of threads by time.

    Args:
        waits: of each thread, in order.
        spans: of each thread.
        direct: places of those who end waits for themselves: interrupts and the kernel.
    """

    def __init__(self, waits: Mapping[int, Sequence[Wait]], spans: Mapping[int, Span], direct: Iterable[int]) -> None:
        self.waits, self.spans, self._direct = waits, spans, frozenset(direct)
        self._ends = {tid: [wait.end for wait in of_thread] for tid, of_thread in waits.items()}
        self._anchors = {tid: self._cpu_anchors(tid) for tid in spans}
        self._steps = 0
        self.left_out = 0
        """Nanoseconds that were not followed, as there are too many waits."""

    def _cpu_anchors(self, tid: int) -> tuple[list[int], list[int]]:
        span = self.spans[tid]
        points = [(span.begin, span.cpu)]
        for wait in self.waits.get(tid, ()):
            points += [(wait.begin, wait.cpu), (wait.end, wait.cpu)]
        points.append((span.end, max(span.ran, points[-1][1])))
        return [time for time, _ in points], [cpu for _, cpu in points]

    def _cpu_at(self, tid: int, time: int) -> int:
        """CPU time of a thread at a moment, evenly spread between the moments at which it is known."""
        times, values = self._anchors[tid]
        after = bisect_right(times, time)
        if after == 0:
            return values[0]
        if after == len(times):
            return values[-1]
        begin, end = times[after - 1], times[after]
        return values[after - 1] + (values[after] - values[after - 1]) * (time - begin) // max(end - begin, 1)

    def is_followed(self, wait: Wait) -> bool:
        """Whether a wait was ended by a thread whose time is known."""
        return wait.by != 0 and wait.waker in self.spans and wait.by not in self._direct

    def states(self, tid: int, begin: int, end: int) -> Iterator[Segment]:
        """What a thread itself did from *begin* to *end*."""
        for first, last, wait in self._stretches(tid, begin, end):
            yield self._ran(tid, first, last, ()) if wait is None else Segment(tid, first, last, wait, 0, ())

    def meanwhile(self, tid: int, wait: Wait) -> Iterator[Segment]:
        """What a wait of a thread was for: ends of its chains. Nothing where whoever ended it is not known."""
        if self.is_followed(wait):
            yield from self.path(wait.waker, wait.begin, wait.end, (Link(tid, wait.state, wait.object, wait.by),))

    def path(self, tid: int, begin: int, end: int, chain: tuple[Link, ...] = ()) -> Iterator[Segment]:
        """What a thread's time from *begin* to *end* went to, waits replaced by what whoever ended them did.

        Time before its beginning is that of the thread that created it.
        """
        lineage = []
        while begin < self.spans[tid].begin < end:
            lineage.append((tid, self.spans[tid].begin, end))
            tid, end, child = self.spans[tid].parent, self.spans[tid].begin, tid
            if tid not in self.spans or self.spans[tid].begin >= self.spans[child].begin:
                break
        else:
            lineage.append((tid, max(begin, self.spans[tid].begin), end))
        for member, first, last in reversed(lineage):
            yield from self._within(member, first, last, chain)

    def _within(self, tid: int, begin: int, end: int, chain: tuple[Link, ...]) -> Iterator[Segment]:
        for first, last, wait in self._stretches(tid, begin, end):
            if wait is None:
                yield self._ran(tid, first, last, chain)
                continue
            self._steps += 1
            if self._steps > MOST_STEPS:
                self.left_out += end - first
                return
            if len(chain) < DEPTH and self.is_followed(wait) and wait.waker != tid:
                link = Link(tid, wait.state, wait.object, wait.by)
                yield from self.path(wait.waker, first, last, (*chain, link))
            else:
                yield Segment(tid, first, last, wait, 0, chain)

    def _stretches(self, tid: int, begin: int, end: int) -> Iterator[tuple[int, int, Wait | None]]:
        """A thread's waits from *begin* to *end*, and the time between them (None)."""
        at, waits = begin, self.waits.get(tid, ())
        for wait in waits[bisect_right(self._ends.get(tid, ()), begin) :]:
            first, last = max(wait.begin, at), min(wait.end, end)
            if first >= end:
                break
            if first > at:
                yield at, first, None
            yield first, last, wait
            at = last
        if at < end:
            yield at, end, None

    def _ran(self, tid: int, begin: int, end: int, chain: tuple[Link, ...]) -> Segment:
        cpu = min(self._cpu_at(tid, end) - self._cpu_at(tid, begin), end - begin)
        return Segment(tid, begin, end, None, max(cpu, 0), chain)
