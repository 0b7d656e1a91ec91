"""Requests: where the time between entry and return of a function went, of all, of the median and of the slowest.

A request is a stretch of a thread's time, so it has the thread's waits over the limit, and what whoever ended them did.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytrace.account.account import RequestPart, Requests, Step
from pytrace.account.causes import Cause
from pytrace.account.chains import Segment
from pytrace.account.frames import Place
from pytrace.account.reading import CPU, SHORT, Reading

SLOWEST = 0.01
"""The share of requests that are compared with those in the middle."""
_MIDDLE = 0.4, 0.6
"""The requests around the median: ranks by duration."""


class _Request(NamedTuple):
    duration: int
    tid: int
    begin: int


_Key = tuple[str, Place, str]


class _Spent:
    """What some requests have spent, by cause and place."""

    def __init__(self, reading: Reading, samples: Mapping[int, Sequence[tuple[int, Place]]]) -> None:
        self._reading, self._samples = reading, samples
        self.ns: dict[_Key, int] = defaultdict(int)
        self.causes: dict[_Key, Cause] = {}
        self.places: dict[_Key, Place] = {}
        self.waits: dict[_Key, list[Segment]] = defaultdict(list)
        self._cpu = 0
        self._sampled: dict[Place, int] = defaultdict(int)

    def add(self, request: _Request) -> None:
        """A request, and what its thread did."""
        end = request.begin + request.duration
        for segment in self._reading.timeline.states(request.tid, request.begin, end):
            length, wait = segment.end - segment.begin, segment.wait
            if wait is not None:
                cause = self._reading.cause_of(wait.state)
                place = self._reading.thread_place(request.tid, wait.state)
                key = self._count(cause, place, self._reading.about(wait.object, cause), length)
                self.waits[key].append(segment)
            else:
                self._cpu += segment.cpu
                self._count(SHORT, Place(""), "", length - segment.cpu)
        of_thread = self._samples.get(request.tid, ())
        first = bisect_left(of_thread, request.begin, key=lambda item: item[0])
        last = bisect_left(of_thread, end, key=lambda item: item[0])
        for _, place in of_thread[first:last]:
            self._sampled[place] += 1

    def finish(self) -> None:
        """Spread the time on a CPU of all over the places of their samples; without any the place is not known."""
        total = sum(self._sampled.values())
        for place, count in self._sampled.items():
            self._count(CPU, place, "", self._cpu * count // total)
        if not total:
            self._count(CPU, Place(""), "", self._cpu)

    def _count(self, cause: Cause, place: Place, about: str, ns: int) -> _Key:
        # One function is one place, whatever its lines.
        key = (cause.name, Place(place.function, place.file), about)
        self.places.setdefault(key, place)
        if ns:
            self.ns[key] += ns
            self.causes[key] = cause
        return key


def requests(reading: Reading, target: str) -> Requests:
    """The requests of a run."""
    found = sorted(_read(reading))
    if not found:
        return Requests(target, 0, 0, 0, 0, 0, 0, 0, 0, 0, ())
    count = len(found)
    slow = found[-max(1, math.ceil(count * SLOWEST)) :]
    first = min(int(count * _MIDDLE[0]), count - 1)
    middle = found[first : max(int(count * _MIDDLE[1]), first + 1)]
    samples = _samples(reading)
    all_spent, typical_spent, slow_spent = (_Spent(reading, samples) for _ in range(3))
    for group, spent in ((found, all_spent), (middle, typical_spent), (slow, slow_spent)):
        for request in group:
            spent.add(request)
        spent.finish()
    ns = sum(request.duration for request in found)
    parts = [
        RequestPart(
            all_spent.causes[key], all_spent.places[key], key[2], all_spent.ns[key] / max(ns, 1),
            typical_spent.ns.get(key, 0) // len(middle), slow_spent.ns.get(key, 0) // len(slow),
            _behind(reading, slow_spent.waits.get(key, ())),
        )
        for key in all_spent.ns
    ]  # fmt: skip
    durations = [request.duration for request in found]
    rank = [durations[min(count - 1, math.ceil(count * share) - 1)] for share in (0.5, 0.9, 0.99)]
    return Requests(
        target, count, ns, rank[0], rank[1], rank[2], durations[-1], len(slow),
        sum(request.duration for request in middle) // len(middle),
        sum(request.duration for request in slow) // len(slow), tuple(sorted(parts, key=lambda part: -part.more)),
    )  # fmt: skip


def _read(reading: Reading) -> Iterator[_Request]:
    spans = reading.timeline.spans
    for (tid, begin), end in reading.recorded("@request", list[tuple[tuple[int, int], int]]):
        if tid in spans and end > begin:
            yield _Request(end - begin, tid, begin)


def _samples(reading: Reading) -> dict[int, list[tuple[int, Place]]]:
    found: dict[int, list[tuple[int, Place]]] = defaultdict(list)
    for (tid, time), site in reading.recorded("@sample", list[tuple[tuple[int, int], int]]):
        found[tid].append((time, reading.place(site)))
    return {tid: sorted(items, key=lambda item: item[0]) for tid, items in found.items()}


def _behind(reading: Reading, waits: Sequence[Segment]) -> tuple[Step, ...]:
    return reading.steps(
        follower
        for segment in waits if segment.wait is not None
        for follower in reading.timeline.meanwhile(segment.tid, segment.wait)
    )  # fmt: skip
