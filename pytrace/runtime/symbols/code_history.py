"""Functions that were compiled at run time, by address and time: code is replaced by other code at the same place.

Times are nanoseconds of ``CLOCK_MONOTONIC``. When a function came to its place is known as a range of times: that of a
jitdump record is one moment, a line of a perf map was written between two readings of the file.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Protocol
from weakref import WeakSet

import msgspec

LATEST = (1 << 63, 1 << 63)
"""The period of what is asked of the newest code."""

_MOST_REPLACED = 1024
"""Functions that one replaces with their history; more have lines of damaged files only."""

Period = tuple[int, int]
"""First and last moment at which something may have happened."""


MOST_TOGETHER = 1 << 22
"""Functions of all files that are remembered, some 150 MB."""
_BURST, _SHARE = 5.0, 0.1
"""Seconds of processor time in which files of one owner are read at once, and the share of the time for what they add:
each of many processes may have a file of some hundred thousand functions, all of them one file under many names.
"""


class Source(Protocol):
    """A file with names."""

    @property
    def functions(self) -> int:
        """Functions that are remembered."""


class Reading:
    """What all files with names of compiled code have taken."""

    def __init__(self) -> None:
        self.sources: WeakSet[Source] = WeakSet()
        """Files of which functions are remembered."""
        self._spent: dict[int, tuple[float, float]] = {}
        """By owner the seconds that are not paid for yet, and when that was so."""

    def refusal(self, owner: int) -> str:
        """Why a file of an owner is not read (on) now; empty if it is."""
        if self._unpaid(owner) > _BURST:
            return f"files of user {owner} took too much time"
        if sum(source.functions for source in self.sources) >= MOST_TOGETHER:
            return f"{MOST_TOGETHER} functions of such files are known already"
        return ""

    def charge(self, owner: int, seconds: float) -> None:
        """A file of an owner took processor time."""
        self._spent[owner] = self._unpaid(owner) + seconds, time.monotonic()

    def _unpaid(self, owner: int) -> float:
        spent, when = self._spent.get(owner, (0.0, 0.0))
        return max(0.0, spent - _SHARE * (time.monotonic() - when))


READING = Reading()


class Code(msgspec.Struct, frozen=True, gc=False):
    """A function, and where the text with its name is in the file: position and, if it is known, length."""

    start: int
    size: int
    text: int
    length: int = 0


class _Version(msgspec.Struct, frozen=True):
    """What is at a place (None: no function) since a moment in *since*, and what was there before."""

    code: Code | None
    since: Period
    before: _Version | None


class _Segment(msgspec.Struct, frozen=True):
    """Addresses with one history."""

    start: int
    end: int
    version: _Version


class CodeHistory:
    """The functions at each address since *begin*; of the time before, only what was there at *begin*.

    A function that other code overlaps is gone; with *keeps_heads* its part before that code stays.
    """

    def __init__(self, begin: int, *, keeps_heads: bool = False) -> None:
        self._begin = begin
        self._keeps_heads = keeps_heads
        self._segments: list[_Segment] = []
        self._starts: list[int] = []
        self.count = 0
        """How many functions were added."""

    def covers(self, address: int) -> bool:
        """True if code at an address was added."""
        return self._at(address) is not None

    def find(self, address: int, period: Period = LATEST) -> list[Code]:
        """The functions that may have been at an address at a moment of *period*, oldest first.

        Code that was added later only had not been noted by then: it is the first that was.
        """
        segment = self._at(address)
        if segment is None:
            return []
        first, last = period
        found: list[Code | None] = []
        version: _Version | None = segment.version
        oldest = None
        while version is not None:
            oldest = version.code
            if version.since[0] <= last:
                found.append(oldest)
            if version.since[1] <= first:
                break
            version = version.before
        return [code for code in reversed(found or [oldest]) if code is not None]

    def put(self, code: Code, since: Period) -> None:
        """Add a function that came after all that were added before, in place of those whose code it overwrites."""
        self._replace(code.start, code.start + code.size, code, since)
        self.count += 1

    def remove(self, start: int, end: int, since: Period) -> None:
        """The functions in an area are gone, as code was moved from there."""
        self._replace(start, end, None, since)

    def _replace(self, start: int, end: int, code: Code | None, since: Period) -> None:
        first, last = self._overlapped(start, end)
        old = self._segments[first:last]
        kept = since[1] > self._begin and len(old) <= _MOST_REPLACED
        pieces = self._heads(old, start, since if kept else None)
        at = start
        for segment in old if kept else ():
            left, right = max(segment.start, start), min(segment.end, end)
            if left >= right:
                continue
            if at < left:
                pieces += _part(at, left, code, since)
            pieces.append(_Segment(left, right, _Version(code, since, segment.version)))
            at = right
        pieces += _part(at, end, code, since)
        if kept:
            pieces += [
                _Segment(max(segment.start, end), segment.end, _ended(segment.version, since))
                for segment in old if segment.end > end
            ]  # fmt: skip
        self._segments[first:last] = pieces
        self._starts[first:last] = [segment.start for segment in pieces]

    def _heads(self, old: list[_Segment], start: int, since: Period | None) -> list[_Segment]:
        """The parts of replaced functions before *start*, which end at *since*; None when that does not matter."""
        heads = []
        for segment in old:
            if segment.start < start and (self._keeps_heads or since is not None):
                version = segment.version
                if not self._keeps_heads and since is not None:
                    version = _ended(version, since)
                heads.append(_Segment(segment.start, min(segment.end, start), version))
        return heads

    def _overlapped(self, start: int, end: int) -> tuple[int, int]:
        """Segments that overlap an area, and the others of the functions that do."""
        segments = self._segments
        first = bisect_right(self._starts, start) - 1
        if first < 0 or segments[first].end <= start:
            first += 1
        last = first
        while last < len(segments) and segments[last].start < end:
            last += 1
        if first < last:
            while first > 0 and _same(segments[first - 1], segments[first]):
                first -= 1
            while last < len(segments) and _same(segments[last - 1], segments[last]):
                last += 1
        return first, last

    def _at(self, address: int) -> _Segment | None:
        at = bisect_right(self._starts, address) - 1
        return self._segments[at] if at >= 0 and address < self._segments[at].end else None


def _part(start: int, end: int, code: Code | None, since: Period) -> list[_Segment]:
    """The part of a function where nothing was before."""
    return [_Segment(start, end, _Version(code, since, None))] if start < end and code is not None else []


def _same(one: _Segment, two: _Segment) -> bool:
    """True if two segments are parts of one function."""
    return one.version.code is not None and one.version.code is two.version.code


def _ended(version: _Version, since: Period) -> _Version:
    """No function is at a place since a moment."""
    return version if version.code is None else _Version(None, since, version)

