"""The kinds of the BPF maps of keyed maps that are not declared.

Aggregations are per-CPU, so that no CPU waits for another. In a map with very many keys this costs more than it gains:
the kernel allocates, copies and frees keys x CPUs values (1.1 million counts on two CPUs: 0.7 s to create the map
instead of 0.03 s). Such a map is shared: an ordinary hash map with one value per key, to which all CPUs add atomically.
That is possible for sums only, and for maps that the script does not set to zero: zeroing replaces the element in the
hash map while another CPU may still be adding to the old one, which the kernel may already have reused for another key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.event_layout import EmptiedMap
from pytrace.core.types import Avg, Count, Hist, LHist, Stats, Sum, Type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytrace.core.event_layout import EventSpec

SUMS = (Count, Sum, Avg, Stats, Hist, LHist)
"""Aggregations that only add to their value or buckets."""

MANY_KEYS = 1 << 16
"""Minimum number of keys of a shared map: with fewer keys, CPUs often add to the same one at the same time."""

MUCH_MEMORY = 1 << 20
"""Minimum size of all per-CPU values, in bytes, for a map to be shared."""


def kind_of_undeclared(value: Type, entries: int, cpus: int, *, zeroed: bool) -> str:
    """The kind of a keyed map (:attr:`pytrace.core.manifest.MapSpec.kind`).

    Args:
        value: type of its values.
        entries: maximum number of keys.
        cpus: number of possible CPUs.
        zeroed: whether the script sets the map to zero.
    """
    if not value.aggregate:
        return "hash"
    many = entries >= MANY_KEYS and copies_size(value, entries, cpus) >= MUCH_MEMORY
    return "hash" if many and isinstance(value, SUMS) and not zeroed else "percpuhash"


def copies_size(value: Type, entries: int, cpus: int) -> int:
    """Size in bytes of the values of a full per-CPU map."""
    size = 8 if isinstance(value, Hist | LHist) else value.size
    return entries * cpus * size


def zeroed_maps(events: Iterable[EventSpec]) -> frozenset[str]:
    """Names of the maps that a script sets to zero, from the events that it sends."""
    return frozenset(spec.static_part(EmptiedMap).map for spec in events if spec.kind == "zero")
