"""Histograms of large maps, in order."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import MapSpec
from pytrace.core.types import UINT64, Hist
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.sorted_buckets import SortedBuckets, sorted_buckets
from pytrace.render.maps.map_printer import Shown

SPEC = MapSpec("@", "m", "percpuhash", UINT64, Hist(), 10)


def made(rows: list[tuple[int, int, int]], shown: Shown) -> SortedBuckets:
    keys = b"".join(struct.pack("=QQ", key, bucket) for key, bucket, _ in rows)
    values = b"".join(struct.pack("=QQ", count, 1) for _, _, count in rows)
    found = sorted_buckets(SPEC, (keys, values, len(rows)), Decoders(), shown)
    assert found is not None
    found.fill([(keys[:16], values[:16], 1), (keys[16:], values[16:], len(rows) - 1)])
    return found


def test_rows_of_a_key_are_one_histogram() -> None:
    found = list(made([(3, 1, 4), (2, 5, 1), (3, 0, 0)], Shown()).entries())
    assert [key for key, _ in found] == [2, 3]
    counts = found[1][1]
    assert isinstance(counts, tuple)
    assert counts[:3] == (1, 5, 0)
    assert len(counts) == Hist().buckets
    assert [key for key, _ in made([(3, 1, 4), (2, 5, 1), (3, 0, 0)], Shown(order="-key", top=1)).entries()] == [2]


def test_a_bucket_that_the_type_does_not_have() -> None:
    with pytest.raises(InternalError, match="bucket 99"):
        made([(3, 1, 4), (2, 99, 1)], Shown())


def test_keys_with_one_bucket_and_with_several_are_ordered_alike() -> None:
    rows = [(key, 1 + key % 5, (key * 7) % 11 + 1) for key in range(20)]
    alone = [key for key, _ in made(rows, Shown()).entries()]
    assert alone == sorted(range(20), key=lambda key: ((key * 7) % 11 + 1, key))
    several = [key for key, _ in made([*rows, (5, 9, 100), (2, 10, 50)], Shown()).entries()]
    assert several == [key for key in alone if key not in (2, 5)] + [2, 5]
