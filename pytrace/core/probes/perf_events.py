"""The events that perf counts by name: software events of the kernel and hardware events of the CPU."""

from __future__ import annotations

import msgspec


class PerfEvent(msgspec.Struct, frozen=True):
    """A perf event: its name, number (``PERF_COUNT_…`` of linux/perf_event.h), default period and alias."""

    name: str
    config: int
    period: int
    alias: str = ""


SOFTWARE = (
    PerfEvent("alignment-faults", 7, 1),
    PerfEvent("bpf-output", 10, 1),
    PerfEvent("context-switches", 3, 1000, "cs"),
    PerfEvent("cpu-clock", 0, 1_000_000, "cpu"),
    PerfEvent("cpu-migrations", 4, 1),
    PerfEvent("dummy", 9, 1),
    PerfEvent("emulation-faults", 8, 1),
    PerfEvent("major-faults", 6, 1),
    PerfEvent("minor-faults", 5, 100),
    PerfEvent("page-faults", 2, 100, "faults"),
    PerfEvent("task-clock", 1, 1),
)

HARDWARE = (
    PerfEvent("backend-stalls", 8, 1_000_000),
    PerfEvent("branch-instructions", 4, 100_000, "branches"),
    PerfEvent("branch-misses", 5, 100_000),
    PerfEvent("bus-cycles", 6, 100_000),
    PerfEvent("cache-misses", 3, 1_000_000),
    PerfEvent("cache-references", 2, 1_000_000),
    PerfEvent("cpu-cycles", 0, 1_000_000, "cycles"),
    PerfEvent("frontend-stalls", 7, 1_000_000),
    PerfEvent("instructions", 1, 1_000_000),
    PerfEvent("ref-cycles", 9, 1_000_000),
)


def names(events: tuple[PerfEvent, ...]) -> list[str]:
    """Names and aliases in order."""
    return sorted(name for event in events for name in (event.name, event.alias) if name)
