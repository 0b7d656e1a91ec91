"""``--max-memory``: the memory of a run, of its maps, its event ring, and of pytrace with its symbol caches together.

Maps and ring are allocated when they are loaded and do not grow: whether they fit is checked before that. The memory of
pytrace itself is checked once a second; a run that exceeds its limit ends in order. In an embedding program only the
events that wait to be handled count beside maps and ring: the rest is that program's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from pytrace.base import cgroups, kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.core.options import memory_sizes
from pytrace.core.options.memory_sizes import shown
from pytrace.runtime.load import loaded_script
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.session.services.service import EndOfRun, Service

TOLD = 256 << 20
"""Memory of maps that is reported before probes are attached."""
LEAST = 256 << 20
"""Minimum of the default limit: a tenth of a small machine's memory is too little for pytrace itself."""
EVERY = 1.0
"""Seconds between two checks of the memory of pytrace."""
_SHOWN = 3
"""Maximum number of parts that a message names."""

RING = "the event ring"
WAITING = "events that wait to be printed"
OWN = "pytrace itself with its symbol caches"
PROGRAMS = "variables and scratch memory of the programs"


class MemoryWatch(Service):
    """Ends a run that exceeds *wanted*, a value of ``--max-memory``; empty for the default."""

    def __init__(self, wanted: str, manifest: Manifest, *, embedded: bool) -> None:
        self.limit, self._origin = limit(wanted)
        self._manifest = manifest
        self._embedded = embedded
        self._maps: dict[str, int] = {}
        self._ring: RingReader | None = None
        self._warn: Callable[[str], object] = str
        self._next = 0.0
        self._over = False

    # ---- loading

    def admit(self, planned: Mapping[str, int]) -> None:
        """Check whether maps of the *planned* sizes may be created.

        Raises:
            TraceError: they do not fit.
        """
        self._maps = self._named(planned)
        parts = self._parts()
        if sum(parts.values()) > self.limit:
            text = f"the script needs {self._told(parts)}"
            raise TraceError(text, hints=(self._advice(max(parts, key=lambda name: parts[name])),))

    def loaded(
        self, script: LoadedScript, ring: RingReader, tell: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        """After loading: report the memory of maps by *tell*, if it is much."""
        charged = self._named(loaded_script.charged_by_symbol(script.fds_by_symbol()))
        # Kernels before 6.4 do not know the memory of a map exactly.
        self._maps = {name: max(size, charged.get(name, 0)) for name, size in self._maps.items()}
        self._ring, self._warn = ring, warn
        total = sum(self._maps.values())
        if total > TOLD:
            tell(f"Maps take {shown(total)} of kernel memory: {_largest(self._maps)}\n")

    # ---- the run

    def woken(self, _ready: list[int]) -> None:
        """Check the memory once in :data:`EVERY` seconds."""
        now = time.monotonic()
        if now < self._next or self._over:
            return
        self._next = now + EVERY
        parts = self._parts()
        if sum(parts.values()) > self.limit:
            self._over = True
            self._warn(f"the run ends, as it takes {self._told(parts)}")

    @property
    def over(self) -> bool:
        """Whether the limit has been passed."""
        return self._over

    def finish(self, end: EndOfRun) -> None:
        """The status of a run that passed its limit is that of an error."""
        if self._over:
            end.errors.append(f"the run was ended at its memory limit of {shown(self.limit)} (--max-memory)")

    # ---- parts

    def _parts(self) -> dict[str, int]:
        waiting = 0 if self._ring is None else self._ring.backlog
        own = 0 if self._embedded else max(0, own_memory() - waiting)
        return {**self._maps, WAITING: waiting, OWN: own}

    def _named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """*sizes* by the names that the script has for maps."""
        names = {self._manifest.ring: RING}
        for spec in self._manifest.maps:
            names |= dict.fromkeys(filter(None, (spec.symbol, spec.keys)), spec.name)
        if unwind := self._manifest.unwind:
            names |= dict.fromkeys((unwind.spaces, unwind.ranges, unwind.rows), "unwind tables")
        if python := self._manifest.python:
            maps = (python.processes, python.codes, python.names, python.cursor)
            names |= dict.fromkeys(maps, "names of Python functions")
        named: dict[str, int] = {}
        for symbol, size in sizes.items():
            name = names.get(symbol, PROGRAMS)
            named[name] = named.get(name, 0) + size
        return named

    def _told(self, parts: Mapping[str, int]) -> str:
        total = shown(sum(parts.values()))
        return f"{total} of memory, more than {shown(self.limit)} ({self._origin}): {_largest(parts)}"

    def _advice(self, name: str) -> str:
        more = "or allow more with --max-memory (512M, 2G, 10%)"
        spec = next((item for item in self._manifest.maps if item.name == name), None)
        if spec is not None:
            return f"{name} has room for {spec.max_entries} keys: lower max_map_keys, declare it with fewer, {more}"
        advice = {RING: "lower perf_rb_pages", "unwind tables": "unwind fewer processes", PROGRAMS: "lower max_strlen"}
        return f"{advice[name]}, {more}" if name in advice else "allow more with --max-memory (512M, 2G, 10%)"


def limit(wanted: str) -> tuple[int, str]:
    """The limit in bytes, and where it comes from."""
    total, whole = machine_memory()
    if not wanted:
        return max(total // 10, min(LEAST, total // 2)), f"the default is a tenth of the memory of {whole}"
    amount = memory_sizes.parse(wanted, total)
    if amount > total:
        return total, f"max_memory is {wanted}, but {whole} has {shown(total)}"
    return amount, f"max_memory is {wanted}"


def _largest(parts: Mapping[str, int]) -> str:
    ordered = sorted((item for item in parts.items() if item[1]), key=lambda item: -item[1])
    texts = [f"{name} {shown(size)}" for name, size in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        texts.append(f"others {shown(sum(size for _, size in ordered[_SHOWN:]))}")
    return ", ".join(texts)


def own_memory() -> int:
    """Bytes of this process in memory that are not of files or shared, as mapped rings are."""
    _, resident, shared, *_ = kernel_files.read_text("/proc/self/statm").split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def machine_memory() -> tuple[int, str]:
    """The memory of the machine, or the limit of this process's cgroup where that is less, in bytes; and its name."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = cgroups.memory_limit()
    if allowed is None or allowed.size >= total:
        return total, "this machine"
    return allowed.size, "this memory cgroup"
