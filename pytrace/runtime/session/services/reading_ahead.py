"""Source lines of the user stacks in maps, read while a run has nothing else to do, so that its end need not wait.

Only the reading is done ahead (see :meth:`pytrace.runtime.symbols.symbolizer.Symbolizer.prepare`): what prints asks as
ever.
"""

from __future__ import annotations

import time
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from pytrace.render.forms import Decoders, JsonForms, TextForms
from pytrace.render.large_maps.addresses import collect, places
from pytrace.render.maps.map_printer import MapView, Reader
from pytrace.render.names import Frame, Names
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.host.host_names import HostNames
from pytrace.runtime.output.context import formatted, large_map
from pytrace.runtime.session.services.service import EndOfRun, Service

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pytrace.core.manifest import Manifest, MapSpec

SLICE = 0.004
"""Seconds of reading between two looks at what arrived."""
REST = 0.004
"""Seconds between two slices: half of one CPU is left to others at least."""
FIRST, SHARE = 1.0, 50
"""Seconds until the maps are looked at first; and how many times as long as a look takes passes until the next."""
LONGEST_LOOK = 0.05
"""Seconds of CPU time: once a look took longer, maps are so large that there is no other before the end."""
_REMEMBERED = 1 << 16
"""Addresses that are known to have been read."""

Address = tuple[int, int]
"""A process and an address in it."""


class Lines(Protocol):
    """What is needed of the symboliser."""

    def prepare(self, addresses: Collection[Address]) -> Iterator[None]:
        """Read the source lines of addresses in short steps."""

    def wait_for(self, steps: Iterator[None], what: str) -> None:
        """Read to the end, as somebody waits for it."""


class _Collector:
    """Stands for the symboliser while maps are gone through: notes the addresses that are asked for."""

    def __init__(self) -> None:
        self.found: dict[Address, None] = {}

    def kernel(self, _address: int, *, caller: bool = False) -> list[Frame]:  # noqa: ARG002 - the protocol's name
        return []

    def user(self, pid: int, address: int, *, caller: bool = False) -> list[Frame]:  # noqa: ARG002
        self.found[pid, address] = None
        return []

    def trampoline(self, _pid: int, _address: int) -> bool:
        return False


class ReadingAhead(Service):
    """Reads source lines for the maps *specs* of a run, which have user stacks (``opening.has_user_stacks``).

    *saved*: the maps are part of a snapshot at the end, even if they are not printed.
    """

    def __init__(
        self, manifest: Manifest, specs: Iterable[MapSpec], reader: Reader, lines: Lines, *, saved: bool = False
    ) -> None:
        self._saved = saved
        self._lines = lines
        self._reader = reader
        self._collector = _Collector()
        self._views = [self._view(manifest, spec, reader) for spec in specs]
        self._steps: Iterator[None] | None = None
        self._known: set[Address] = set()
        self._next = time.monotonic() + FIRST

    def _view(self, manifest: Manifest, spec: MapSpec, reader: Reader) -> MapView:
        texts = TextForms(Names(self._collector, Clock(), manifest.strings, HostNames()), formatted=formatted)
        return MapView(spec, reader, Decoders(), texts, JsonForms(texts), large_map)

    def pause(self, longest: float) -> float:
        """Seconds until there is something to read, at most *longest*."""
        if self._steps is not None:
            return min(longest, REST)
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, handled: int) -> None:
        """Read a little, when no events came and there is something to read."""
        if handled:
            return
        started = time.monotonic()
        if self._steps is None:
            if started >= self._next:
                before = time.thread_time()
                self._steps = self._lines.prepare(self._addresses())
                took = time.thread_time() - before
                self._next = started + max(FIRST, SHARE * took) if took < LONGEST_LOOK else float("inf")
            return
        for _ in self._steps:
            if time.monotonic() - started > SLICE:
                return
        self._steps = None

    def finish(self, end: EndOfRun) -> None:
        """Read what is left before the maps print."""
        if not end.print_maps and not self._saved:
            return
        self._steps = None
        self._known.clear()
        addresses = self._addresses()
        if addresses:
            self._lines.wait_for(self._lines.prepare(addresses), f"{len(addresses)} addresses in stacks")

    def _addresses(self) -> list[Address]:
        """Addresses in the maps that were not read before."""
        by_process: dict[int, set[int]] = {}
        for view in self._views:
            wanted = places(view.spec) if view.key_type is not None else None
            if wanted is None:
                view.text()
            else:
                collect(self._reader.blocks(view.spec), wanted, by_process)
        for process, some in by_process.items():
            self._collector.found.update(dict.fromkeys(zip(repeat(process), sorted(some), strict=False)))
        found = [address for address in self._collector.found if address not in self._known]
        self._collector.found.clear()
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known.update(found)
        return found


