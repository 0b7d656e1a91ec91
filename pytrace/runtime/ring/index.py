"""Index of the records in the event ring: one pass over the records that have arrived.

Most of a flood is regular: events of one kind, or the same sequence of kinds again and again, as a probe with several
``printf`` sends it.  Looking at each record by itself costs as much as formatting it does when that is done for many
records at once.  So the pass looks for a sequence that repeats (of up to :data:`LONGEST` records; events of one kind
are a sequence of one) and checks by strided reads of the header words how often it does.  What does not repeat is
listed record by record.  Either way each record is looked at a fixed number of times, whatever the order of kinds.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import chain
from operator import itemgetter
from threading import Lock

from pytrace.core.event_layout import RECORD_HEADER, WORD

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
