"""Per-CPU scratch memory: values that do not fit the 512-byte stack.

A program's area is shared with the programs that cannot interrupt it on the same CPU.  The kernel runs programs of
kprobes, tracepoints and perf events one at a time on a CPU (``bpf_prog_active``); programs that the tracer runs
exclude each other.  Uprobe handlers can be preempted, and so can pinned iterators, which several processes may read at
once: their area has several copies, and a program claims one of them.  Tracing programs (fentry, raw tracepoints, other
iterators) may interrupt each other but never themselves, so each has an area of its own.
"""

from __future__ import annotations

import msgspec

from pytrace.core.probes.kinds import ProbeKind
from pytrace.frontend.syntax.typed_program import ProbeUnit

COPIES = 4
"""Copies of the area of preemptible programs: how many of these can run interleaved on one CPU."""

USER_AREA = "user"

CLAIM = 8
"""Size of the bitmap of copies in use, which precedes the copies."""


def area_name(kind: ProbeKind, symbol: str, *, pinned: bool = False, owner: str = "") -> str:
    """Name of the area that programs of *kind* use; *pinned* marks a pinned iterator.

    *owner* is the raw tracepoint program that stands in for tracepoints; those of system calls are parts of one
    program, which run one after the other.
    """
    if owner:
        return f"own.{owner}"
    if kind.special:
        return "special"
    if kind.user or pinned:
        return USER_AREA
    if kind.program_type == "tracing":
        return f"own.{symbol}"
    return "guarded"


def unit_area(unit: ProbeUnit) -> str:
    """Name of the area that the program of a unit uses."""
    owner = (unit.part_of or unit.symbol) if unit.raw_tracepoint else ""
    return area_name(unit.kind, unit.symbol, pinned=unit.pinned, owner=owner)


class Scratch(msgspec.Struct):
    """First-fit allocator of offsets in one area."""

    size: int = 0
    _free: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def allocate(self, size: int) -> int:
        """Offset of *size* bytes, 8-byte aligned."""
        size = (size + 7) & ~7
        for index, (offset, available) in enumerate(self._free):
            if available >= size:
                if available == size:
                    del self._free[index]
                else:
                    self._free[index] = (offset + size, available - size)
                return offset
        offset = self.size
        self.size += size
        return offset

    def release(self, offset: int, size: int) -> None:
        """Free memory from :meth:`allocate`."""
        size = (size + 7) & ~7
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self._free, (offset, size)]):
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged
