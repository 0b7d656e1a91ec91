"""Lost events and failures of a run: their counts, and the messages about them."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Protocol

from pytrace.core.manifest import HITS, Counters
from pytrace.core.probes.kinds import known_kind
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.output import messages
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.services.service import Service

Key = tuple[str, int]
"""Kind and subject of a counter, as in :attr:`pytrace.core.manifest.Counters.names`."""


class CounterReader:
    """Reads the counters of one loaded script, if it has any."""

    def __init__(self, loaded: LoadedScript) -> None:
        counters = loaded.manifest.counters
        self._layout: Counters | None = counters if counters is not None and counters.names else None
        self._memory = loaded.section(self._layout.section) if self._layout is not None else memoryview(b"")

    def totals(self) -> dict[Key, int]:
        """Nonzero counters, summed over the CPUs, in the manifest's order."""
        layout = self._layout
        if layout is None:
            return {}
        row = struct.Struct(f"={len(layout.names)}Q")
        step = max(1, layout.stride)
        starts = range(layout.offset, layout.offset + layout.copies * step, step)
        sums = map(sum, zip(*(row.unpack_from(self._memory, start) for start in starts), strict=True))
        # What is subtracted on another CPU than it was added on leaves a negative number there.
        return {key: value & _WORD for key, value in zip(layout.names, sums, strict=True) if value & _WORD}

    def losses(self) -> dict[Key, int]:
        """:meth:`totals` without what is no failure."""
        return {key: value for key, value in self.totals().items() if key[0] not in _NO_FAILURES}


WAITING = "waiting"
"""Kind of the counters of programs that wait for memory: how many do so now, which is no loss."""

STACKS = {
    "stack_early": "followed frame pointers, before the unwind tables of their process were read",
    "stack_end": "were truncated at code without unwind tables and frame pointers",
}
"""Kinds of counters of a ``ustack`` that chooses how it unwinds, which are told with ``-v``."""

_NO_FAILURES = (HITS, WAITING, *STACKS)
_WORD = (1 << 64) - 1


REPORT_EVERY = 1.0
"""Seconds between two readings of the counters of lost events."""


class Missed(Protocol):
    """Attached probes, whose skipped hits the kernel counts."""

    def missed(self) -> dict[Key, int]:
        """Hits of probes that the kernel skipped."""


class Unprinted(Protocol):
    """The consumer of events, which counts those that it drops."""

    def totals(self) -> dict[Key, int]:
        """Events that were left unprinted."""


Gap = tuple[int, int]
"""A time in which programs returned at once: wall time and duration, in nanoseconds."""

SKIPPED = "skipped"
"""Counter of hits that the watchdog of programs skipped, by program."""


class NoHeartbeat(Service):
    """The heartbeat of a run whose programs have no watchdog, or one that is switched off."""

    thread = 0
    """The id of the thread that beats; 0 for none."""

    def attaching(self) -> None:
        """A target is about to be attached, or was attached."""

    def gaps(self) -> list[Gap]:
        """Times in which programs returned at once, since the last call."""
        return []


class Losses(Service):
    """Counts of losses and failures by kind and subject; those that are new are reported while the run goes on."""

    def __init__(
        self,
        loaded: LoadedScript,
        probes: Missed,
        consumer: Unprinted,
        renderer: Renderer,
        output: Output,
        heartbeat: NoHeartbeat,
        tell: Callable[[str], None],
    ) -> None:
        self._counters = CounterReader(loaded)
        self._manifest = loaded.manifest
        self._probes = probes
        self._consumer = consumer
        self._renderer = renderer
        self._output = output
        self._heartbeat = heartbeat
        self._tell = tell
        self._next = 0.0
        self._skipped: dict[Key, int] = {}
        self.gaps: list[Gap] = []
        """Times in which programs skipped hits, as far as they have been reported."""

    def traced(self) -> dict[Key, int]:
        """Losses so far, as counted by programs and the kernel."""
        return {**self._counters.losses(), **self._probes.missed()}

    def waiting(self, *, user: bool) -> list[str]:
        """Names of the programs that wait for memory in a traced thread now: of user probes, or of others."""
        programs = self._manifest.programs
        return [
            messages.subject_name(self._manifest, "lost", subject)
            for kind, subject in self._counters.totals()
            if kind == WAITING and known_kind(programs[subject].kind).user == user
        ]

    def totals(self) -> dict[Key, int]:
        """Losses so far, unprinted events included."""
        return {**self.traced(), **self._consumer.totals()}

    def by_kind(self) -> dict[str, dict[str, int]]:
        """Losses so far: counts by kind, and by the name of the subject."""
        return messages.by_kind(self._manifest, self.totals())

    def woken(self, _ready: list[int]) -> None:
        """Report new losses, once in :data:`REPORT_EVERY` seconds."""
        now = time.monotonic()
        # A message follows the output before it; do not wait for a slow reader here.
        if now >= self._next and self._output.advance():
            self._next = now + REPORT_EVERY
            totals = self.report_gaps()
            # A call that is under way may still return.
            self._renderer.losses({key: count for key, count in totals.items() if key[0] != "unfinished"})

    def report_gaps(self) -> dict[Key, int]:
        """Report the times, since the last call, in which programs skipped hits. Returns the losses so far."""
        # A gap that is known is over, so that all that was skipped in it has been counted. Counters are read until no
        # gap began and ended meanwhile, whose hits would be told with an earlier one, and itself not at all.
        gaps = self._heartbeat.gaps()
        totals = self.traced()
        while more := self._heartbeat.gaps():
            gaps += more
            totals = self.traced()
        skipped = {key: count for key, count in totals.items() if key[0] == SKIPPED}
        fresh = {key: count - self._skipped.get(key, 0) for key, count in skipped.items()}
        if gaps and any(fresh.values()):
            self._skipped = skipped
            self.gaps += gaps
            self._renderer.gaps(gaps, fresh)
        return totals

    def report(self) -> None:
        """Tell how user stacks were unwound."""
        counts: dict[str, int] = {}
        for (kind, _), count in self._counters.totals().items():
            counts[kind] = counts.get(kind, 0) + count
        for kind, text in STACKS.items():
            if counts.get(kind):
                self._tell(f"{counts[kind]} user stacks {text}\n")

    def report_all(self) -> None:
        """Report all losses, at the end of ``--test`` and ``--bench``."""
        totals = self.traced()
        self._renderer.losses(totals, ended=True)
        self._renderer.summary(totals)
