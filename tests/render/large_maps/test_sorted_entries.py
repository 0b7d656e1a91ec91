"""Entries of large maps, decoded, in order."""

from __future__ import annotations

import struct
from itertools import chain

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import MapSpec
from pytrace.core.types import INT64, UINT64, Count, Hist
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.sorted_entries import Entry, SortedBuckets, SortedEntries, sorted_buckets, sorted_entries
from pytrace.render.maps.map_printer import Shown

KEYS, VALUES = struct.pack("=4q", 5, -6, 7, 8), struct.pack("=8Q", 1, 1, 2, 0, 0, 1, 9, 9)


def listed(entries: SortedEntries | SortedBuckets) -> list[Entry]:
    return list(chain.from_iterable(entries.entries()))


def test_entries_by_value_then_key() -> None:
    spec = MapSpec("@", "m", "percpuhash", INT64, Count(), 10)
    for shown, wanted in (
        (Shown(), [(7, 1), (-6, 2), (5, 2), (8, 18)]),
        (Shown(top=2), [(5, 2), (8, 18)]),
        (Shown(order="-key", top=3), [(7, 1), (5, 2), (-6, 2)]),
    ):
        found = sorted_entries(spec, (KEYS, VALUES, 4), Decoders(), shown, None)
        assert found is not None
        found.fill([(KEYS[:16], VALUES[:32], 2), (KEYS[16:], VALUES[32:], 2)])
        assert listed(found) == wanted


def test_types_without_such_an_order_go_the_other_way() -> None:
    kind = types.Struct("struct", "s", 8, (types.Field("a", UINT64, 0),))
    assert sorted_entries(MapSpec("@", "m", "hash", kind, INT64, 9), (KEYS, KEYS, 4), Decoders(), Shown(), None) is None
    by_value = Shown(order="value")
    spec = MapSpec("@", "m", "hash", INT64, kind, 9)
    assert sorted_entries(spec, (KEYS, KEYS, 4), Decoders(), by_value, None) is None
    assert sorted_entries(spec, (KEYS, KEYS, 4), Decoders(), Shown(), None) is not None


# ---------------------------------------------------------------------------------------------- histograms

SPEC = MapSpec("@", "m", "percpuhash", UINT64, Hist(), 10)


def made(rows: list[tuple[int, int, int]], shown: Shown) -> SortedBuckets:
    keys = b"".join(struct.pack("=QQ", key, bucket) for key, bucket, _ in rows)
    values = b"".join(struct.pack("=QQ", count, 1) for _, _, count in rows)
    found = sorted_buckets(SPEC, (keys, values, len(rows)), Decoders(), shown)
    assert found is not None
    found.fill([(keys[:16], values[:16], 1), (keys[16:], values[16:], len(rows) - 1)])
    return found


def test_rows_of_a_key_are_one_histogram() -> None:
    found = listed(made([(3, 1, 4), (2, 5, 1), (3, 0, 0)], Shown()))
    assert [key for key, _ in found] == [2, 3]
    counts = found[1][1]
    assert isinstance(counts, tuple)
    assert counts[:3] == (1, 5, 0)
    assert len(counts) == Hist().buckets
    assert [key for key, _ in listed(made([(3, 1, 4), (2, 5, 1), (3, 0, 0)], Shown(order="-key", top=1)))] == [2]


def test_a_bucket_that_the_type_does_not_have() -> None:
    with pytest.raises(InternalError, match="bucket 99"):
        made([(3, 1, 4), (2, 99, 1)], Shown())


def test_keys_with_one_bucket_and_with_several_are_ordered_alike() -> None:
    rows = [(key, 1 + key % 5, (key * 7) % 11 + 1) for key in range(20)]
    alone = [key for key, _ in listed(made(rows, Shown()))]
    assert alone == sorted(range(20), key=lambda key: ((key * 7) % 11 + 1, key))
    several = [key for key, _ in listed(made([*rows, (5, 9, 100), (2, 10, 50)], Shown()))]
    assert several == [key for key in alone if key not in (2, 5)] + [2, 5]
