"""Names of functions that processes compiled at run time, by the time at which their addresses were seen.

Keys of maps have no times, nor have events. Searches of the maps while the run goes on say when a key was there first
and when its value changed last (:mod:`pytrace.runtime.symbols.key_periods`); an event came after the ring
buffer was last empty. Where several functions were at an address in that time, each may have been the one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytrace.runtime.symbols.image_places import is_generated
from pytrace.runtime.symbols.images import Frame

if TYPE_CHECKING:
    from collections.abc import Mapping as Table

    from pytrace.runtime.machine.procfs import Mapping
    from pytrace.runtime.symbols.address_space import AddressSpace
    from pytrace.runtime.symbols.code_history import Period

JIT = "[JIT]"
"""In place of the name of a function that was compiled at run time and has none."""
MOST_NAMES = 3
"""Functions that an address is shown as; where more were, it is shown as :data:`JIT`."""
_SLACK = 1_000_000
"""Nanoseconds from the taking of a stack until it is in the ring buffer or in a map."""


class CompiledCode:
    """Resolves addresses in code that is in no file. *unreadable* gets why names are missing, by what they are of."""

    def __init__(self, unreadable: dict[str, str]) -> None:
        self._unreadable = unreadable
        self._drained = time.monotonic_ns()
        self._searched: int | None = None
        self._over = False
        self._periods: Table[tuple[int, int], Period] = {}

    def drained(self, moment: int) -> None:
        """All events up to a moment were handled."""
        self._drained = moment

    def keyed(self, periods: Table[tuple[int, int], Period], searched: int, *, over: bool = False) -> None:
        """Addresses (process, address) in keys of maps, and when their stacks were taken; the maps were searched since
        the moment *searched*. *over*: there are no more events.
        """
        self._periods, self._searched, self._over = periods, searched, over

    def follow(self, space: AddressSpace) -> bool:
        """Read what a process has named since the last call, as that says when; True if it has named any code."""
        if not any(is_generated(row) for row in space.mappings):
            return False
        dump = space.jit_dump
        for names in (dump, space.perf_map):
            if names is not None:
                names.read_on()
        return any(names is not None and not names.empty for names in (space.perf_map, dump))

    def frame(self, process: int, space: AddressSpace, mapping: Mapping, address: int, caller: bool) -> Frame:
        """The function at an address: by jitdump, by perf map, else :data:`JIT`. *caller*: it is that of a call, one
        before the address in the stack. *process* is the number in the stack.
        """
        module = mapping.path or "[jit]"
        functions = self._functions(process, space, address, address + caller)
        if functions and len(functions) <= MOST_NAMES:
            return Frame(" or ".join(name for name, _ in functions), functions[-1][1] + caller, module)
        for names in (space.perf_map, space.jit_dump):
            if names is not None and names.problem:
                self._unreadable[f"names of functions that process {space.pid} compiled"] = names.problem
        if functions or is_generated(mapping):
            return Frame(JIT, address + caller - mapping.start, module)
        return Frame("", module=mapping.path)

    def _functions(self, process: int, space: AddressSpace, address: int, seen: int) -> list[tuple[str, int]]:
        """Names of the functions that an address, which is *seen* in stacks, may be of, oldest first, with offsets."""
        found: dict[str, int] = {}
        dump, names = space.jit_dump, space.perf_map
        for period in self._seen(process, seen):
            for source in (dump, names):
                functions = source.find(address, period) if source is not None else []
                if functions:
                    found.update(functions)
                    break
        return list(found.items())

    def _seen(self, process: int, address: int) -> list[Period]:
        """When stacks that have an address were taken."""
        known = self._periods.get((process, address))
        if known is not None and self._over:
            return [known]
        # Until the run is over it may also be that of an event, or of a key that has changed since the search.
        late = self._drained if self._searched is None else self._searched
        return [*([known] if known is not None else ()), (late - _SLACK, time.monotonic_ns())]
