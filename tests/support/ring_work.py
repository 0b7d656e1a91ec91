"""How much work reading the ring is, counted: a bound that no clock is needed for."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytrace.runtime.output.ring import Handlers, Index, RingReader


@dataclass
class Work:
    """*looks*: how often a record was looked at; *slices*: how many slices were handled."""

    looks: int = 0
    slices: int = 0


def counted(patch: pytest.MonkeyPatch) -> Work:
    """What indexes and readers do from now on."""
    work = Work()
    listing, agreeing, handling = Index._list, Index._agreeing, RingReader._slice

    def count_list(
        self: Index, words: memoryview, place: int, end: int, most: int, places: list[int]
    ) -> tuple[int, bool]:
        before = len(places)
        found = listing(self, words, place, end, most, places)
        work.looks += len(places) - before
        return found

    def count_agreeing(self: Index, words: memoryview, place: int, stride: int, count: int, value: int) -> int:
        work.looks += count
        return agreeing(self, words, place, stride, count, value)

    def count_slice(self: RingReader, handlers: Handlers, most: int) -> int:
        work.slices += 1
        return handling(self, handlers, most)

    patch.setattr(Index, "_list", count_list)
    patch.setattr(Index, "_agreeing", count_agreeing)
    patch.setattr(RingReader, "_slice", count_slice)
    return work
