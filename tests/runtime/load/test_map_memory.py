"""What maps take: the kernel's own sums, and what it charges."""

from __future__ import annotations

import os

import pytest

from pytrace.core.manifest import MapType
from pytrace.runtime.abi import bpf_maps, perf
from pytrace.runtime.load import map_memory
from pytrace.runtime.load.map_memory import MapSize

SIZES = (
    MapSize("hash", MapType.HASH, 8, 8, 4096),
    MapSize("few", MapType.HASH, 4, 8, 1),
    MapSize("large", MapType.HASH, 16, 100, 100_000),
    MapSize("percpu", MapType.PERCPU_HASH, 8, 8, 50_000),
    MapSize("lru", MapType.LRU_HASH, 8, 8, 50_000),
    MapSize("percpu_lru", MapType.LRU_PERCPU_HASH, 24, 16, 7000),
    MapSize("array", MapType.ARRAY, 4, 8, 1000),
    MapSize("percpu_array", MapType.PERCPU_ARRAY, 4, 20, 1000),
)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (MapSize("m", MapType.HASH, 8, 8, 1024), (48 + 8 + 8) * (1024 + 4) + 16 * 1024),
        (MapSize("m", MapType.HASH, 5, 3, 1000), (48 + 8 + 8) * (1000 + 4) + 16 * 1024),
        (MapSize("m", MapType.HASH, 8, 8, 1024, 2), 2 * ((48 + 8 + 8) * (1024 + 4) + 16 * 1024)),
        (MapSize("m", MapType.PERCPU_HASH, 8, 12, 1024), (48 + 8 + 8 + 4 * 16) * 1024 + 16 * 1024),
        (MapSize("m", MapType.LRU_HASH, 8, 8, 1024), (48 + 8 + 8) * 1024 + 16 * 1024),
        (MapSize("m", MapType.ARRAY, 4, 5, 10), 80),
        (MapSize("m", MapType.RINGBUF, 0, 0, 1 << 20), 1 << 20),
    ],
)
def test_memory_by_type(size: MapSize, expected: int) -> None:
    assert map_memory.planned(size, 4) == expected


@pytest.mark.kernel
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.symbol)
def test_it_is_what_the_kernel_charges(size: MapSize) -> None:
    descriptor = bpf_maps.create(size.type, size.key, size.value, size.entries, name="charged")
    try:
        charged = map_memory.charged(descriptor)
    finally:
        os.close(descriptor)
    if not charged:
        pytest.skip("this kernel does not say what a map takes")
    assert 0 <= charged - map_memory.planned(size, len(perf.possible_cpus())) < 1500, "but for the map's own struct"


def test_several_maps_of_one_symbol_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_memory.kernel_files, "read_text", lambda path: f"x:\t1\nmemlock:\t{path[-1]}0\n")
    assert map_memory.of_loaded({"a": (3,), "b": (4, 5)}) == {"a": 30, "b": 90}
    monkeypatch.setattr(map_memory.kernel_files, "read_text", lambda _path: "")
    assert map_memory.of_loaded({"a": (3,)}) == {"a": 0}
