"""Where records are: found whole and in order whatever the order of kinds, and looked at a fixed number of times."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest

from pytrace.core.event_layout import RECORD_HEADER, WORD
from pytrace.runtime.ring.index import BUSY, DISCARD, LEAST, Index, Listed, Repeated, Segment
from tests.support.ring_work import counted
from tests.support.rows import each_row

SIZES = {0: 16, 1: 24, 2: 24, 3: 40, 4: 8, 5: 1000}
"""Payload of each kind of event; two are alike."""


def record(kind: int, extra: int = 0, flags: int = 0) -> bytes:
    size = SIZES[kind] + extra
    payload = struct.pack("=II", kind, extra) + b"\xee" * (size - 8)
    return struct.pack("=II", size | flags, 0) + payload + bytes(-size % 8)


def data_of(kinds: list[int]) -> bytes:
    return b"".join(map(record, kinds))


def listed(segments: list[Segment]) -> list[tuple[int, int]]:
    """Offset of the payload and event id of each record."""
    found = []
    for part in segments:
        if isinstance(part, Repeated):
            for number in range(part.count):
                first = part.offset + number * part.stride
                found += [(first + start, kind) for start, kind in zip(part.starts, part.identities, strict=True)]
        else:
            found += [
                (place * WORD + RECORD_HEADER, kind) for place, kind in zip(part.places, part.identities, strict=True)
            ]
    return found


def expected(kinds: list[int]) -> list[tuple[int, int]]:
    found, place = [], 0
    for kind in kinds:
        found.append((place + RECORD_HEADER, kind))
        place += len(record(kind))
    return found


def index(data: bytes) -> Index:
    return Index(memoryview(data).cast("I"))


CHOOSE = random.Random(1)
COUNT = 20_000
ORDERS = {
    "one kind": [0] * COUNT,
    "two in turn": [0, 1] * (COUNT // 2),
    "two of the same length in turn": [1, 2] * (COUNT // 2),
    "five in turn": [0, 1, 2, 3, 4] * (COUNT // 5),
    "eight in turn": [0, 0, 1, 0, 2, 2, 3, 4] * (COUNT // 8),
    "nine in turn": [0, 0, 0, 0, 0, 0, 0, 0, 1] * (COUNT // 9),
    "one in a thousand": ([0] * 999 + [3]) * (COUNT // 1000),
    "one in fifty": ([0] * 49 + [3]) * (COUNT // 50),
    "two at random": CHOOSE.choices([0, 1], k=COUNT),
    "five at random": CHOOSE.choices(range(5), k=COUNT),
    "runs of random length": [kind for _ in range(900) for kind in [CHOOSE.randrange(5)] * CHOOSE.randrange(40)],
    "sequences that change": [kind for _ in range(300) for kind in CHOOSE.choices(range(5), k=3) * CHOOSE.randrange(9)],
}


@each_row("name", ORDERS)
def test_each_record_is_found_once_and_looked_at_a_fixed_number_of_times(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = counted(monkeypatch)
    kinds = ORDERS[name]
    data = data_of(kinds)
    found = index(data)
    segments, end = found.segments(0, len(data))
    assert listed(segments) == expected(kinds)
    assert end == len(data)
    assert len(kinds) <= work.looks < 4 * len(kinds)


@pytest.mark.parametrize("name", ["one kind", "two in turn", "five in turn", "eight in turn"])
def test_what_repeats_is_one_segment(name: str) -> None:
    data = data_of(ORDERS[name])
    segments, _ = index(data).segments(0, len(data))
    assert isinstance(segments[0], Repeated)
    assert segments[0].records == len(ORDERS[name])


def test_few_repetitions_are_listed() -> None:
    data = data_of([0, 1] * (LEAST // 2 - 1))
    segments, _ = index(data).segments(0, len(data))
    assert [type(part) for part in segments] == [Listed]


def test_a_part_is_found_from_where_it_starts() -> None:
    kinds = ORDERS["five at random"][:1000]
    before, data = data_of([3, 5]), data_of(kinds)
    segments, end = index(before + data + data_of([5])).segments(len(before), len(before + data))
    assert listed(segments) == expected(kinds)
    assert end == len(before + data)


def test_the_record_at_the_end_of_a_part_belongs_to_it_as_a_whole() -> None:
    data = data_of([0, 5, 0])
    segments, end = index(data).segments(0, len(record(0)) + 8)
    assert listed(segments) == expected([0, 5])
    assert end == len(data_of([0, 5]))


@each_row("kinds", [[0] * 500, [0, 1] * 250, ORDERS["five at random"][:500]])
@each_row("place", [0, 3, 16, 200, 499])
def test_an_unfinished_record_ends_it_and_a_discarded_one_is_left_out(kinds: list[int], place: int) -> None:
    before = data_of(kinds[:place])
    data = before + record(1, flags=BUSY) + data_of(kinds[place:])
    segments, end = index(data).segments(0, len(data))
    assert listed(segments) == expected(kinds[:place])
    assert end == len(before)
    data = before + record(1, flags=DISCARD) + data_of(kinds[place:])
    segments, end = index(data).segments(0, len(data))
    assert [kind for _, kind in listed(segments)] == kinds
    assert end == len(data)


def test_lengths_that_vary_within_a_kind() -> None:
    extras = [CHOOSE.randrange(60) for _ in range(2000)]
    data = b"".join(record(0, extra) for extra in extras)
    segments, end = index(data).segments(0, len(data))
    places = listed(segments)
    assert len(places) == len(extras)
    assert [later - first for (first, _), (later, _) in pairwise(places)] == [
        len(record(0, extra)) for extra in extras[:-1]
    ]
    assert end == len(data)


def test_a_repeated_segment_listed_is_the_same() -> None:
    data = data_of([0, 1, 3] * 50)
    (part,), _ = index(data).segments(0, len(data))
    assert isinstance(part, Repeated)
    assert listed([part.listed()]) == expected([0, 1, 3] * 50)
