"""The kinds of the BPF maps of keyed maps that are not declared.

Aggregations have a copy of each value for each CPU, in which no CPU waits for another. Of a map with very many keys
this takes more than the updates gain: the kernel allocates, copies and frees keys x CPUs copies (1.1 million counts on
two CPUs: 0.7 s to create the map, in place of 0.03 s). Such a map is shared: an ordinary hash map with one value for
each key, to which all CPUs add atomically. That suits sums only, and it needs maps that are not set to zero: the kernel
replaces the element of a hash map then, while a CPU may still be adding to it, which then may be another key's element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.event_layout import EmptiedMap
from pytrace.core.types import Avg, Count, Hist, LHist, Stats, Sum, Type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytrace.core.event_layout import EventSpec

SUMS = (Count, Sum, Avg, Stats, Hist, LHist)
"""Aggregations whose values, or buckets, are only ever added to."""

MANY_KEYS = 1 << 16
"""Keys from which on a map may be shared: with fewer, CPUs more often add to the same key at the same time."""

MUCH_MEMORY = 1 << 20
"""Bytes of all copies from which on a map may be shared."""


def kind_of_undeclared(value: Type, entries: int, cpus: int, *, zeroed: bool) -> str:
    """The kind of a keyed map (:attr:`pytrace.core.manifest.MapSpec.kind`).

    Args:
        value: type of its values.
        entries: most keys.
        cpus: how many CPUs there may be.
        zeroed: whether the script sets the map to zero.
    """
    if not value.aggregate:
        return "hash"
    many = entries >= MANY_KEYS and copies_size(value, entries, cpus) >= MUCH_MEMORY
    return "hash" if many and isinstance(value, SUMS) and not zeroed else "percpuhash"


def copies_size(value: Type, entries: int, cpus: int) -> int:
    """Bytes of the values of a full map with a copy for each CPU."""
    size = 8 if isinstance(value, Hist | LHist) else value.size
    return entries * cpus * size


def zeroed_maps(events: Iterable[EventSpec]) -> frozenset[str]:
    """Names of the maps that a script sets to zero, by the events that it sends."""
    return frozenset(spec.static_part(EmptiedMap).map for spec in events if spec.kind == "zero")
