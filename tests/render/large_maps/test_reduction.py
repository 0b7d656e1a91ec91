"""Values of many keys reduced at once are what merging them one by one gives."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.types import INT8, INT64, UINT64, Avg, Count, Max, Min, Stats, String, Sum
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.reduction import reduction
from pytrace.render.value_types import merging_of
from tests.core.types.test_basic_types import SAMPLES
from tests.support.rows import each_row

KEYS = 40


@each_row("cpus", [1, 2, 3, 8])
@each_row("kind", [Count(), Sum(True), Sum(False), Avg(True), Avg(False), Stats(True), Min(True),
                                  Min(False), Max(True), Max(False), INT64, UINT64, INT8], ids=str)  # fmt: skip
def test_as_one_by_one(kind: Any, cpus: int) -> None:
    rng = random.Random(cpus)
    words = (kind.size + 7) // 8
    values = [
        struct.pack(f"={words * cpus}Q", *(rng.choice((0, 0, 1, 7, rng.getrandbits(59), rng.getrandbits(64)))
                                           for _ in range(words * cpus)))
        for _ in range(KEYS)
    ]  # fmt: skip
    if isinstance(kind, Count | Avg | Stats):
        # Counts do not come near 64 bits.
        values = [bytes(0 if at % (8 * words) == 8 * words - 1 else byte for at, byte in enumerate(value))
                  for value in values]  # fmt: skip
    decoders = Decoders()
    reduced = reduction(kind, len(values[0]), decoders)
    assert reduced is not None
    data = reduced.one(b"".join(values))
    merge = merging_of(kind).merge(kind, len(values[0]), decoders)
    decode = decoders.decoder(reduced.type)
    size = reduced.size
    found = [decode(data, at * size) for at in range(KEYS)]
    wanted = [merge(value) for value in values]
    if isinstance(kind, Min | Max):
        found = [(item[0], bool(item[1])) for item in found]  # type: ignore[index]
        wanted = [(item[0], bool(item[1])) for item in wanted]  # type: ignore[index]
    assert found == wanted
    rank = merging_of(kind).rank
    if reduced.ranks is not None:
        assert rank is not None
        assert list(reduced.ranks(data)) == [rank(item) for item in wanted]


def test_other_values_stay() -> None:
    reduced = reduction(String(5), 5, Decoders())
    assert reduced is not None
    assert reduced.one(b"abcdefghij") == b"abcdefghij"
    assert reduction(types.TSeries(1_000_000_000, 5, "max"), 24, Decoders()) is None


AGGREGATIONS = [kind for kind in SAMPLES.values() if isinstance(kind, types.Aggregate)]


@pytest.mark.parametrize("kind", AGGREGATIONS, ids=str)
def test_no_aggregation_keeps_the_value_of_one_processor(kind: types.Type) -> None:
    """It has a reduction that merges, or none: then entries are merged one by one."""
    size = 2 * (kind.size + 7) // 8 * 8
    reduced = reduction(kind, size, Decoders())
    assert reduced is None or reduced.size < size
