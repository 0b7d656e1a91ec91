"""The life cycle of a run: open, load, begin, attach, wait, end.

Everything that a run opens (``opening``, ``resources``) is closed by one :class:`ExitStack`, in order, also on Ctrl-C,
on SIGTERM and when attaching fails. A run always ends in the same way (``ending``): after ``exit()``, a signal, the end
of the traced process, or when nothing is left to wait for, probes are detached, end probes run, waiting events are
printed, then the maps.
"""

from __future__ import annotations

import os
import struct
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.core.manifest import CompiledScript
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.kinds import BENCH, TEST
from pytrace.runtime.session import opening
from pytrace.runtime.session.ending import Ending
from pytrace.runtime.session.loop import RunLoop
from pytrace.runtime.session.resources import Resources
from pytrace.runtime.session.services.losses import REPORT_EVERY, NoHeartbeat

if TYPE_CHECKING:
    from pytrace.core.costs import RunCost
    from pytrace.results.snapshot import MapData, SnapshotData
    from pytrace.runtime.session.resources import Embedding
    from pytrace.runtime.symbols.met_binaries import MetBinaries


def run(script: CompiledScript, options: RunOptions) -> int:
    """Run a script to its end.

    Returns:
        The exit status: that of the script's ``exit()``, else 0.

    Raises:
        TraceError: the kernel rejected a program or a probe, or the machine lacks a feature.
    """
    if options.mode == "run" and not (options.yes or options.tool or options.dry_run) and os.isatty(0) and os.isatty(2):
        from pytrace.runtime.session import hot_probes  # nobody can answer elsewhere

        hot_probes.confirm(script, options)
    with ExitStack() as stack:
        opened = opening.open_run(script, options, stack)
        if options.mode in (TEST, BENCH):
            from pytrace.runtime.session import test_runs

            return test_runs.run(opened)
        return Session(opened).run()


class Session:
    """One run, for those who drive it: the command, and programs that embed it."""

    def __init__(self, run: Resources) -> None:
        self._run = run
        self._loop = RunLoop(run)
        self._ending = Ending(run, self._loop)

    @classmethod
    def open(
        cls, script: CompiledScript, options: RunOptions, stack: ExitStack, embedding: Embedding | None = None
    ) -> Session:
        """Load the programs of a script; *stack* closes what the session opens.

        Raises:
            TraceError: the kernel rejected a program, or the machine lacks a feature.
        """
        return cls(opening.open_run(script, options, stack, embedding))

    def run(self) -> int:
        """Begin, attach, wait, end. Returns the exit status."""
        try:
            self.start()
            while self.step():
                pass
            return self.finish()
        except KeyboardInterrupt:
            self._ending.break_off()
            raise

    # ---- step by step

    def start(self) -> None:
        """Run begin probes, attach the others, and start tracing.

        Raises:
            TraceError: a probe could not be attached, or the command of ``-c`` not be run.
        """
        if self._run.options.filters.without_own_threads:
            # Its thread would be seen as it starts, had it not been left out before probes are attached.
            next((item for item in self._run.services if isinstance(item, NoHeartbeat)), NoHeartbeat()).begin()
            self.leave_out(threading.get_native_id())
        self._loop.start()

    def step(self, longest: float = REPORT_EVERY) -> bool:
        """Wait at most *longest* seconds for events, and handle them. Returns False when the run is over."""
        return self._loop.step(longest)

    def drain(self) -> None:
        """Handle all events that have been sent so far."""
        self._loop.drain()

    def run_dry(self) -> bool:
        """Detach the probes, and handle some of the events that were sent before. Returns whether there are more."""
        return self._loop.run_dry()

    def finish(self) -> int:
        """Detach, run end probes, handle remaining events, and print the maps. Returns the exit status."""
        return self._ending.finish()

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`step` has something to do, unless :attr:`busy`."""
        return self._run.loop.fileno()

    @property
    def busy(self) -> bool:
        """Whether the event rate is so high that the ring is polled, without wake-ups."""
        return not self._run.loop.listening

    # ---- results

    def snapshot(self) -> SnapshotData:
        """A snapshot of the run: during the run, or after it until the session is closed."""
        return self._run.snapshots.take()

    def last_snapshot(self) -> SnapshotData:
        """Detach all probes, and take a snapshot of what is there then."""
        self._run.probes.detach()
        return self.snapshot()

    def map_data(self, name: str) -> MapData:
        """The current content of the map *name*."""
        return self._run.snapshots.map_data(name)

    def element(self, name: str, key: bytes) -> MapData | None:
        """The value of one key of a map; None for one that takes more than a look-up (digests of keys, buckets)."""
        return self._run.snapshots.element(name, key)

    def change(self, name: str, key: bytes | None, value: bytes | None) -> bool:
        """Store *value* at *key* of a map, or remove the key; without both empty the map.

        Returns:
            whether the key was there (or the map was emptied).
        """
        return self._run.snapshots.change(name, key, value)

    def leave_out(self, thread: int) -> None:
        """Have programs leave out *thread*, which runs pytrace (0: none does), where the filters ask for that."""
        filters, data = self._run.options.filters, self._run.loaded.manifest.session
        if filters.without_own_threads and data is not None:
            keeper = next((item.thread for item in self._run.services if isinstance(item, NoHeartbeat)), 0)
            memory = self._run.loaded.section(data.section)
            struct.pack_into("=QQ", memory, data.filters + filters.shape.threads_at, thread, keeper)

    def losses(self) -> dict[str, dict[str, int]]:
        """Losses and failures so far: counts by kind and subject."""
        return self._run.losses.by_kind()

    def cost(self) -> RunCost | None:
        """The costs of the run so far; None where they are not measured."""
        return self._run.snapshots.cost()

    @property
    def met_binaries(self) -> MetBinaries | None:
        """Binaries in stacks of snapshots with places (``RunOptions.places``), also after the session was closed."""
        return self._run.symbols.met_binaries()

    @property
    def child_pid(self) -> int | None:
        """Process id of the command."""
        return self._run.command.pid

    @property
    def child_status(self) -> int | None:
        """The command's exit status, as of :meth:`Child.poll`; None while it runs."""
        return self._run.command.poll()
