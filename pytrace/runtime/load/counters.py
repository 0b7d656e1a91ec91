"""What the programs counted: lost events, full maps and the like, from the mapped counters of the manifest."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.core.manifest import Counters
    from pytrace.runtime.load.loader import LoadedScript

Key = tuple[str, int]
"""Kind and subject of a counter, as in :attr:`pytrace.core.manifest.Counters.names`."""


class CounterReader:
    """Reads the counters of one loaded script; a script without counters has none that are not zero."""

    def __init__(self, loaded: LoadedScript) -> None:
        counters = loaded.manifest.counters
        self._layout: Counters | None = counters if counters is not None and counters.names else None
        self._memory = loaded.section(self._layout.section) if self._layout is not None else memoryview(b"")

    def totals(self) -> dict[Key, int]:
        """All counters that are not zero, summed over the CPUs, in the manifest's order."""
        layout = self._layout
        if layout is None:
            return {}
        row = struct.Struct(f"={len(layout.names)}Q")
        step = max(1, layout.stride)
        starts = range(layout.offset, layout.offset + layout.copies * step, step)
        sums = map(sum, zip(*(row.unpack_from(self._memory, start) for start in starts), strict=True))
        return {key: value for key, value in zip(layout.names, sums, strict=True) if value}
