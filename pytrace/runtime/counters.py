"""What the programs counted: lost events, full maps and the like, from the mapped counters of the manifest."""

from __future__ import annotations

import struct

from pytrace.compiled import Counters
from pytrace.runtime.loader import LoadedScript

Key = tuple[str, int]
"""Kind and subject of a counter, as in :attr:`pytrace.compiled.Counters.names`."""


class CounterReader:
    """Reads the counters of one loaded script; a script without counters has none that are not zero."""

    def __init__(self, loaded: LoadedScript) -> None:
        counters = loaded.manifest.counters
        self._layout: Counters | None = counters if counters is not None and counters.names else None
        self._memory = loaded.section(self._layout.section) if self._layout is not None else memoryview(b"")
        self._before: tuple[int, ...] = (0,) * (len(self._layout.names) if self._layout is not None else 0)

    def totals(self) -> dict[Key, int]:
        """All counters that are not zero, summed over the CPUs, in the manifest's order."""
        return self._named(self._sums())

    def news(self) -> dict[Key, int]:
        """What was counted since the last call of this method (or since the start)."""
        now = self._sums()
        changes = tuple(new - old for new, old in zip(now, self._before, strict=True))
        self._before = now
        return self._named(changes)

    def total(self, kind: str) -> int:
        """Sum of all counters of one kind (``lost``)."""
        return sum(value for (name, _), value in self.totals().items() if name == kind)

    def _named(self, values: tuple[int, ...]) -> dict[Key, int]:
        names = self._layout.names if self._layout is not None else ()
        return {key: value for key, value in zip(names, values, strict=True) if value}

    def _sums(self) -> tuple[int, ...]:
        layout = self._layout
        if layout is None or not layout.names:
            return ()
        row = struct.Struct(f"={len(layout.names)}Q")
        starts = range(layout.offset, layout.offset + layout.copies * layout.stride, max(1, layout.stride))
        return tuple(map(sum, zip(*(row.unpack_from(self._memory, start) for start in starts), strict=True)))
