"""Memory of BPF maps: what a map will take, and what the kernel charges for it.

The kernel allocates hash and array maps as a whole when they are created (no map of pytrace has BPF_F_NO_PREALLOC), so
this memory does not grow during a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pytrace.base import kernel_files
from pytrace.core.manifest import PER_CPU_TYPES, MapType
from pytrace.runtime.machine import perf

_ARRAYS = frozenset({MapType.ARRAY, MapType.PERCPU_ARRAY, MapType.ARRAY_OF_MAPS, MapType.PERF_EVENT_ARRAY})
_LRU = frozenset({MapType.LRU_HASH, MapType.LRU_PERCPU_HASH})
_ELEMENT = 48
"""Bytes of ``struct htab_elem`` before the key (kernel/bpf/hashtab.c)."""
_BUCKET = 16
"""Bytes of ``struct bucket``."""
_POINTER = 8


class MapSize(msgspec.Struct, frozen=True):
    """The parameters that decide what a map takes; *copies* maps of this kind."""

    symbol: str
    type: int
    key: int
    value: int
    entries: int
    copies: int = 1


def planned(size: MapSize, cpus: int) -> int:
    """Bytes that the kernel allocates for maps, as ``htab_map_mem_usage`` and ``array_map_mem_usage`` count them."""
    if size.type == MapType.RINGBUF:
        return size.copies * size.entries
    value = _up(size.value) * (cpus if size.type in PER_CPU_TYPES else 1)
    if size.type in _ARRAYS:
        return size.copies * size.entries * (value + (_POINTER if size.type in PER_CPU_TYPES else 0))
    element = _ELEMENT + _up(size.key) + value + (_POINTER if size.type in PER_CPU_TYPES else 0)
    # Each CPU has a spare element, unless those of the LRU list or of other CPUs serve as one.
    spare = 0 if size.type in _LRU | PER_CPU_TYPES else cpus
    buckets = 1 << (max(1, size.entries) - 1).bit_length()
    return size.copies * (element * (size.entries + spare) + _BUCKET * buckets)


def of_all(sizes: Iterable[MapSize]) -> dict[str, int]:
    """Bytes by symbol."""
    cpus = len(perf.possible_cpus())
    return {size.symbol: planned(size, cpus) for size in sizes}


def of_loaded(descriptors: Mapping[str, Iterable[int]]) -> dict[str, int]:
    """Bytes by symbol that the kernel has charged."""
    return {symbol: sum(map(charged, several)) for symbol, several in descriptors.items()}


def charged(descriptor: int) -> int:
    """Bytes that the kernel has charged for a map (``memlock`` of its ``fdinfo``); 0 where it does not say."""
    for line in kernel_files.read_text(f"/proc/self/fdinfo/{descriptor}").splitlines():
        if line.startswith("memlock:"):
            return int(line.split()[1])
    return 0


def _up(size: int) -> int:
    return (size + 7) & ~7
