"""Where the records of the event ring are: one pass over what has arrived.

Most of a flood is regular: events of one kind, or the same sequence of kinds again and again, as a probe with several
``printf`` sends it.  Looking at each record by itself costs several times what formatting costs when it is done for many
records at once.  So the pass looks for a sequence that repeats (of up to :data:`LONGEST` records; an event of one kind is
a sequence of one) and checks by strided reads of the header words how often it does.  What does not repeat is listed
record by record.  Either way each record is looked at a fixed number of times, whatever the order of kinds.
"""

from __future__ import annotations

from _thread import allocate_lock
from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import chain
from operator import itemgetter

BUSY = 1 << 31
DISCARD = 1 << 30
RECORD_HEADER = 8

WINDOW = 16
"""Records that are looked at one by one before the next search for a sequence that repeats."""
LONGEST = 8
"""Most records of a sequence; at most half a window."""
LEAST = 32
"""Records that repetitions must cover to be kept as such: each new sequence is compiled."""
_STRETCH_LARGEST = 1 << 10
_GUESS_LARGEST = 1 << 14


class Repeated:
    """A sequence of records that is there *count* times.

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
        """How many records these are."""
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
        end = self.offset + self.count * self.stride
        ranges = [range(self.offset + start, end + start, self.stride) for start in self.starts]
        return Listed(
            array("I", chain.from_iterable(zip(*ranges, strict=True))), array("I", self.identities * self.count)
        )


class Listed:
    """Records one by one: *places* of their payloads, *identities* of their events."""

    __slots__ = ("identities", "next", "places")

    def __init__(self, places: array[int], identities: array[int]) -> None:
        self.places = places
        self.identities = identities
        self.next = 0
        """The first one that is still to be handled."""

    @property
    def records(self) -> int:
        """How many records are still to be handled."""
        return len(self.places) - self.next

    @property
    def kinds(self) -> Sequence[int]:
        """Event ids that are among them."""
        return self.identities


Segment = Repeated | Listed


class Index:
    """Finds records in the data of a ring, which *words* shows. *fence* orders memory: it is acquired and released
    between reading a record's header and reading what the header says is complete."""

    def __init__(self, words: memoryview, fence: AbstractContextManager[object] | None = None) -> None:
        self._words = words
        self._fence = fence or allocate_lock()
        self._guess = WINDOW
        self._stretch = WINDOW
        self.visited = 0
        """How often a record was looked at."""

    def segments(self, start: int, end: int) -> tuple[list[Segment], int]:
        """The complete records from *start* on, up to the first one that is unfinished or starts at *end* or after it.

        Offsets in segments count from *start*. Also gives the place where the first record that is left out starts.
        """
        found: list[Segment] = []
        places: list[int] = []
        lengths: list[int] = []
        place = start
        while True:
            window = len(places)
            place, more = self._list(place, end, WINDOW, places, lengths)
            if not more:
                break
            sequence = self._sequence(places[window:], lengths[window:])
            repeated = None if sequence is None else self._repeated(start, places[window], end, sequence)
            if repeated is not None:
                del places[window:], lengths[window:]
                self._close(found, start, places)
                found.append(repeated)
                place = start + repeated.offset - RECORD_HEADER + repeated.count * repeated.stride
                places, lengths = [], []
                self._stretch = WINDOW
                continue
            place, more = self._list(place, end, self._stretch, places, lengths)
            self._stretch = min(2 * self._stretch, _STRETCH_LARGEST)
            if not more:
                break
        self._close(found, start, places)
        return found, place

    def _list(self, place: int, end: int, most: int, places: list[int], lengths: list[int]) -> tuple[int, bool]:
        """Note *most* records (some may be discarded ones); gives where the next starts, and whether so many are there."""
        words = self._words
        before = len(places)
        more = True
        for _ in range(most):
            if place >= end:
                more = False
                break
            word = words[place >> 2]
            if word < DISCARD:
                places.append(place)
                lengths.append(word)
            elif word & BUSY:
                more = False
                break
            place += ((word & ~DISCARD) + RECORD_HEADER + 7) & ~7
        self.visited += len(places) - before
        return place, more

    def _close(self, found: list[Segment], start: int, places: list[int]) -> None:
        """Make a segment of the records at *places*."""
        if not places:
            return
        identities = array("I", self._identities(places))
        shift = RECORD_HEADER - start
        found.append(Listed(array("I", [place + shift for place in places]), identities))

    def _identities(self, places: list[int]) -> tuple[int, ...]:
        with self._fence:
            if len(places) == 1:
                return (self._words[(places[0] + RECORD_HEADER) >> 2],)
            found: tuple[int, ...] = itemgetter(*[(place + RECORD_HEADER) >> 2 for place in places])(self._words)
            return found

    def _sequence(self, places: list[int], lengths: list[int]) -> list[tuple[int, int]] | None:
        """Length and event id of the records that a window repeats; None when it repeats nothing."""
        if len(places) < WINDOW:
            return None
        keys = list(zip(lengths, self._identities(places), strict=True))
        for period in range(1, LONGEST + 1):
            if keys[period:] == keys[:-period]:
                return keys[:period]
        return None

    def _repeated(self, start: int, place: int, end: int, sequence: list[tuple[int, int]]) -> Repeated | None:
        """How often *sequence* is there from *place* on; None when that is not worth while."""
        starts: list[int] = []
        stride = 0
        for length, _ in sequence:
            starts.append(stride)
            stride += (length + RECORD_HEADER + 7) & ~7
        count = self._repetitions(place, stride, (end - place) // stride, starts, sequence)
        if count * len(sequence) < LEAST:
            return None
        lengths, identities = zip(*sequence, strict=True)
        return Repeated(place - start + RECORD_HEADER, stride, count, identities, tuple(starts), lengths)

    def _repetitions(
        self, place: int, stride: int, room: int, starts: list[int], sequence: list[tuple[int, int]]
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
            for behind, (length, _) in zip(starts, sequence, strict=True):
                agreeing = min(agreeing, self._agreeing(first + behind, stride, guess, length))
            with self._fence:
                for behind, (_, identity) in zip(starts, sequence, strict=True):
                    agreeing = min(agreeing, self._agreeing(first + behind + RECORD_HEADER, stride, agreeing, identity))
            count += agreeing
            if agreeing < guess:
                self._guess = max(WINDOW, agreeing)
                break
            self._guess = min(2 * self._guess, most)
        return count

    def _agreeing(self, place: int, stride: int, count: int, value: int) -> int:
        """How many of *count* words, *stride* bytes from each other, are *value* before the first that is not."""
        if not count:
            return 0
        seen = self._words[place >> 2 : (place + (count - 1) * stride + 4) >> 2 : stride >> 2].tolist()
        self.visited += count
        if seen.count(value) == count:
            return count
        return next(index for index, other in enumerate(seen) if other != value)
