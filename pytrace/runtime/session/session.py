"""The life cycle of a run: open, load, begin, attach, wait, end.

Everything that a session opens is closed by one :class:`ExitStack`, in order, also on Ctrl-C, on SIGTERM and when
attaching fails. A run always ends in the same way (after ``exit()``, a signal, the end of the traced process, or when
nothing is left to wait for): probes are detached, end probes run, waiting events are printed, then the maps.
"""

from __future__ import annotations

import gc
import os
import struct
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import TraceError
from pytrace.core.probes.kinds import BEGIN, BENCH, END, ITER, SELF, TEST, known_kind
from pytrace.runtime.load.counters import CounterReader, Key
from pytrace.runtime.load.loader import available_memory
from pytrace.runtime.output import messages
from pytrace.runtime.ring.reader import EventLoop, RingReader, backlog_limit
from pytrace.runtime.session import opening
from pytrace.runtime.session.consumer import Consumer
from pytrace.runtime.session.signals import Signals, SignalSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytrace.core.manifest import CompiledScript, ProgramSpec
    from pytrace.core.options.run_options import RunOptions
    from pytrace.results.snapshot import MapData, SnapshotData
    from pytrace.runtime.attach.attachments import Attached, Attachments
    from pytrace.runtime.attach.missed_hits import MissReader
    from pytrace.runtime.attach.opened import Opened
    from pytrace.runtime.capture.recording import Moment, Recording
    from pytrace.runtime.capture.row_keeper import RowKeeper
    from pytrace.runtime.session.child import Child
    from pytrace.runtime.session.embedding import Embedding
    from pytrace.runtime.session.service import Service

_NO_MAPS = "not all maps were printed because of the interrupt"
_NO_SNAPSHOT = "no snapshot was saved at the end because of the interrupt"

REPORT_EVERY = 1.0
"""Seconds between two looks at the counters of lost events."""


_OVER_AT_ONCE = frozenset({BEGIN, END, ITER})
"""Probe kinds that have done all they will ever do once everything is attached."""


def run(script: CompiledScript, options: RunOptions) -> int:
    """Run a script to its end.

    Returns:
        The exit status: that of the script's ``exit()``, else 0.

    Raises:
        TraceError: the kernel rejected a program or a probe, or the machine lacks a feature.
    """
    with ExitStack() as stack:
        session = Session(script, options, stack)
        if options.mode in (TEST, BENCH):
            from pytrace.runtime.session import test_runs

            return test_runs.run(session)
        return session.run()


class Session:
    """One run of one compiled script. The constructor loads its programs; *stack* closes what the session opens."""

    def __init__(
        self, script: CompiledScript, options: RunOptions, stack: ExitStack, embedding: Embedding | None = None
    ) -> None:
        manifest = script.manifest
        self.options = options
        self._embedding = embedding
        self._by_kind = _by_kind(manifest.programs)
        opening.raise_limits(manifest)
        self._requests = EndRequests()
        self._symbols = opening.symbols(manifest.config, options, self._requests)
        self._signals: SignalSource = (
            embedding.signals
            if embedding is not None
            else stack.enter_context(Signals(self._requests, self._symbols.give_up_lines))
        )
        self._namespace = opening.namespace(options, stack)
        self.output = opening.output(options, self._requests, stack) if embedding is None else embedding.output
        self._saving = opening.saving(manifest, options, self.snapshot, self._warn)
        metrics = opening.metrics(options, manifest.config, self.snapshot, self._tell, stack)
        self._services: list[Service] = [service for service in (self._saving, metrics) if service is not None]
        command = options.command
        self._child = None if command is None else opening.child(command, stack, self._namespace, embedding is None)
        unwound = opening.unwound(manifest, options, self._child)
        self.loaded = opening.programs(script, options, unwound, stack)
        opening.fill_session_data(self.loaded, options, self._child)
        self._counters = CounterReader(self.loaded)
        stack.callback(self._symbols.close)
        self._unwinder = None if unwound is None else unwound.start(self.loaded, stack, self._warn)
        self._ahead = opening.reading_ahead(self.loaded, options, self._symbols)
        opening.follow_mappings(manifest, options, self._child, self._symbols, self._warn)
        self.rows: RowKeeper | None = None if self._saving is None and embedding is None else opening.rows()
        """Where rows are kept for snapshots; None when none are."""
        self.renderer = opening.renderer(
            self.loaded,
            options,
            self.output,
            self._symbols,
            self._namespace,
            stack,
            self._requests,
            None if embedding is None else embedding.handlers(self._symbols),
            None if self.rows is None else self.rows.keep,
        )
        backlog = backlog_limit(available_memory())
        self._ring = RingReader(self.loaded.map_fd(manifest.ring), stack, backlog=backlog)
        self._consumer = Consumer(
            self._ring, self.renderer, self.output, self._requests, self._unwatch, self._detach
        )
        self._misses: MissReader | None = None
        self._missed: dict[Key, int] = {}
        self._loop = EventLoop(self._ring, stack)
        self._links = stack.enter_context(ExitStack())
        self._opened: Opened | None = None
        self._recording: Recording | None = None
        self._started: Moment = opening.moment()
        self._detached: Moment | None = None
        self._next_report = 0.0
        self._summed_up = False
        self._end = opening.run_end(options, self._child, self.loaded, stack)
        self._end_reached = False
        if self._child is None:
            self.renderer.no_child()
        self._signals.begin()

    def programs(self, kind: str) -> list[ProgramSpec]:
        """Programs of one probe kind, in source order."""
        return self._by_kind.get(kind, [])

    @property
    def _over_at_once(self) -> bool:
        """Whether no probe can fire after attaching, and there is no child to wait for."""
        return self.options.command is None and not set(self._by_kind) - _OVER_AT_ONCE

    def _tell(self, text: str) -> None:
        if not self.options.quiet:
            self.output.message(text)

    def _warn(self, text: str) -> None:
        if self.options.warnings:
            self.output.message(f"WARNING: {text}\n")

    def _release_child(self, child: Child) -> None:
        """Let the child run; the libraries that its program is linked with are recorded before their code runs."""
        if self._unwinder is not None and child.run_to_entry():
            self._unwinder.add(child.pid)
        child.release()

    # ---- for embedding programs

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`step` has something to do, unless :attr:`busy`."""
        return self._loop.fileno()

    @property
    def busy(self) -> bool:
        """Whether the event rate is so high that the ring is polled, without wake-ups."""
        return not self._loop.listening

    @property
    def child_pid(self) -> int | None:
        """Process id of the command."""
        return None if self._child is None else self._child.pid

    @property
    def child_status(self) -> int | None:
        """The command's exit status, as of :meth:`Child.poll`; None while it runs."""
        return None if self._child is None else self._child.poll()

    def run_dry(self) -> bool:
        """Detach, and handle some of what was sent before; whether there is more. :meth:`finish` handles the rest."""
        self._detach()
        return not self.options.dry_run and self._consumer.turn() > 0 and self._ring.pending

    def losses(self) -> dict[str, dict[str, int]]:
        """Losses and failures so far: counts by kind and subject."""
        return messages.by_kind(self.loaded.manifest, {**self._totals(), **self._consumer.totals()})

    # ---- the run

    def run(self) -> int:
        """Begin, attach, wait, end; the exit status."""
        try:
            self.start()
            while self.step():
                pass
            return self.finish()
        except KeyboardInterrupt:
            self._break_off()
            raise

    def _break_off(self) -> None:
        """A second signal: report how many events are not printed, even if the output is not read."""
        totals = self._detach()
        if self._saving is not None and not self._saving.finished and not self.options.dry_run:
            self._warn(_NO_SNAPSHOT)
        if self.output.events_over:
            self.output.drop()
            if self.loaded.manifest.maps:
                self._warn(_NO_MAPS)
        else:
            self._consumer.break_off()
        if not self._summed_up:
            self.renderer.broken_off({**totals, **self._consumer.totals()})

    def _detach(self) -> dict[Key, int]:
        """Detach all probes. Returns the losses, without those that end probes can still add to."""
        if self._misses is not None:
            self._missed, self._misses = self._misses.totals(), None
        self._links.close()
        self._detached = self._detached or opening.moment()
        return self._totals()

    def start(self) -> None:
        """Run begin probes, attach the others, and start tracing.

        Raises:
            TraceError: a probe could not be attached, or the command of ``-c`` not be run.
        """
        dry = self.options.dry_run
        # Output of begin probes is shown after everything is attached: a heading that says so is then true, and readers
        # of the output get the number of attached probes first.
        for program in self.programs(BEGIN) if not dry else ():
            self.loaded.run(program.symbol)
        attached = self._attach()
        self._started = opening.moment()
        iterators = [item.iterator for item in attached if item.iterator is not None]
        # Who waits for the notice that everything is attached may rely on what iterators note in maps, too. A command
        # of -c is to be one of the objects that they see: it runs before them.
        early = iterators and self._child is None and not dry
        texts = self._run_iterators(iterators) if early else None
        self._announce(attached)
        for service in self._services:
            service.begin()
        if not dry:
            self._go_on(iterators, texts)

    def _go_on(self, iterators: list[int], texts: list[bytes] | None) -> None:
        """All probes are attached: start tracing. *texts* is what iterators wrote, if they have run."""
        with self.renderer.iterating() if texts is not None else ExitStack():
            self.drain()
        for text in texts or ():
            self._write_text(text)
        self._look_for_exit()
        if self._ended:
            return
        if self._child is not None:
            self._release_child(self._child)
        if texts is None and iterators:
            self._read_iterators(iterators)
        self._loop.watch(self._signals.fileno())
        if self._end is not None:
            self._end.start(self._loop)
        for service in self._services:
            for descriptor in service.descriptors:
                self._loop.watch(descriptor)
        for descriptor in self._symbols.descriptors:
            self._loop.watch(descriptor)
        if self._embedding is None and not gc.isenabled():
            # Objects allocated so far are long-lived; from here on there may be garbage.
            gc.freeze()
            gc.enable()

    @property
    def _ended(self) -> bool:
        return self._exiting or self._requests.ending or self.output.broken

    @property
    def _exiting(self) -> bool:
        """Whether the script called ``exit()``; earlier output may still be waiting."""
        return self.renderer.state.exit_requested or self._ring.noticed

    def _run_all(self, kind: str) -> None:
        """Run the programs of *kind* in order, and print their events."""
        for program in self.programs(kind):
            self.loaded.run(program.symbol)
            self.drain()
            self._look_for_exit()

    def _attach(self) -> list[Attached]:
        """Attach the probes; a script whose programs all run by hand does without what attaches."""
        if all(known_kind(program.kind).special for program in self.loaded.manifest.programs):
            return []
        from pytrace.runtime.attach import attachments
        from pytrace.runtime.attach.missed_hits import MissReader

        config, options = self.loaded.manifest.config, self.options
        followed = (self._child.pid,) if self._child is not None and options.follow else ()
        attach_options = attachments.AttachOptions(
            pids=options.filters.pids or followed,
            follow=options.follow,
            child=self._child.pid if self._child is not None else None,
            awaits=bool(options.filters.exec_wait),
            missing_probes=config.missing_probes,
            disabled=options.disabled,
            file_activation=options.usdt_file_activation,
        )
        done = attachments.attach_all(self.loaded, self.loaded.manifest.programs, attach_options, self._links)
        self._opened = done.opened
        self._misses = MissReader(self.loaded, done.opened)
        self._follow_descendants(done)
        if done.failures and attach_options.missing_probes == "warn" and options.warnings:
            for failure in done.failures:
                self.output.message(f"WARNING: {failure}\n" + "".join(f"HINT: {hint}\n" for hint in failure.hints))
        return list(done.attached)

    def _follow_descendants(self, done: Attachments) -> None:
        """With ``-p`` and ``--follow``: add the existing descendants of the processes."""
        followed, pids = self.loaded.manifest.follow_map, self.options.filters.pids
        if not followed or not pids:
            return
        written = ", ".join(map(str, pids[:8]))
        lister = next((item.iterator for item in done.services if item.iterator is not None), None)
        if lister is None:
            self._warn(f"processes that {written} forked earlier are not followed: the kernel has no task iterator")
            return
        from pytrace.runtime.session import followed_processes

        found, left_out = followed_processes.include(pids, lister, self.loaded.map_fd(followed))
        if left_out:
            self._warn(f"{left_out} processes that {written} forked earlier are not followed: there are too many")
        if self._unwinder is not None:
            for number in found:
                self._unwinder.add(number)

    def _announce(self, attached: list[Attached]) -> None:
        by_hand = sum(
            len(program.targets)
            for kind in (BEGIN, END, SELF)
            for program in self.programs(kind)
        )
        # A probe may have several targets: a static function that was inlined, overloads of a name.
        count = len({(item.spec.index, item.target.probe) for item in attached}) + by_hand
        if not count:
            raise TraceError("no probe could be attached", hints=_mode_hints(self))
        self.renderer.attached(count)
        for item in attached:
            if item.note:
                self.output.message(f"{item.note}\n")
        if self._embedding is None and _somebody_waits():
            from pytrace.runtime.session import notify

            notify.attached_hooks()
            notify.systemd("READY=1")

    def _run_iterators(self, iterators: list[int]) -> list[bytes] | None:
        """Run iterators before anything is printed; gives what they wrote, their events wait.

        An ``exit()`` of an iterator leaves out those that follow, one of a begin probe all: then the result is None.
        """
        from pytrace.runtime.attach import iterator

        texts: list[bytes] | None = None
        for link in iterators:
            self._ring.collect()
            if self._ended:
                break
            texts = [*(texts or ()), *iterator.read(link)]
        return texts

    def _read_iterators(self, iterators: list[int]) -> None:
        from pytrace.runtime.attach import iterator

        for link in iterators:
            with self.renderer.iterating():
                for text in iterator.read(link):
                    self._write_text(text)
                self.drain()
            self._look_for_exit()
            if self._ended:
                return

    def _write_text(self, text: bytes) -> None:
        self.renderer.write_text(text)
        if self.output.congested:
            self.output.flush()

    def step(self, longest: float = REPORT_EVERY) -> bool:
        """Wait at most *longest* seconds for events, and handle them. Returns False when the run is over."""
        if self.options.dry_run or self._ended or self._over_at_once or self._end_reached:
            return False
        if self._ahead is not None:
            longest = self._ahead.pause(longest)
        for service in self._services:
            longest = service.pause(longest)
        if self._end is not None:
            longest = self._end.pause(longest)
        ready = self._consumer.wait(self._loop, longest)
        self._symbols.poll()
        if self._unwinder is not None:
            self._unwinder.update(self._symbols.changes())
        self._report_losses()
        if not self._consumer.turn() and self._ahead is not None:
            self._ahead.work()
        for service in self._services:
            service.work()
        for _ in self._signals.take():
            self._run_all(SELF)
        if self._end is not None and self._end.reached(ready):
            self._end_reached = True
            return False
        self._look_for_exit()
        return True

    def _look_for_exit(self) -> None:
        """Check for an ``exit()`` whose event did not fit the ring."""
        data = self.loaded.manifest.session
        if data is not None:
            (word,) = struct.unpack_from("=Q", self.loaded.section(data.section), data.exit)
            if word:
                self.renderer.exit(word - 1)

    def drain(self) -> None:
        """Handle all events that have been sent so far, and flush their output."""
        self._consumer.drain()

    def _unwatch(self, addresses: list[int]) -> None:
        while addresses:
            address = addresses.pop()
            if self._opened is not None:
                self._opened.unwatch(address)

    def report_losses(self) -> None:
        """Report losses at the end of an embedded run."""
        totals = self._totals()
        self.renderer.losses(totals, ended=True)
        self.renderer.summary(totals)

    def _report_losses(self) -> None:
        now = time.monotonic()
        # A message follows the output before it; do not wait for a slow reader here.
        if now >= self._next_report and self.output.advance():
            self._next_report = now + REPORT_EVERY
            self.renderer.losses(self._totals())

    def _totals(self) -> dict[Key, int]:
        """All losses so far, as counted by programs and the kernel."""
        missed = self._misses.totals() if self._misses is not None else self._missed
        return {**self._counters.totals(), **missed}

    # ---- snapshots

    def snapshot(self) -> SnapshotData:
        """A snapshot of the run: during the run, or after it until the session is closed."""
        recording = self._record()
        totals = self.renderer.all_losses({**self._totals(), **self._consumer.totals()})
        losses = messages.by_kind(self.loaded.manifest, totals)
        end = self._detached or opening.moment()
        taken = recording.snapshot(self._started, end, losses, self.rows, self._collect)
        if self._detached:
            taken.read = {}  # maps that nothing changes any more are of the moment of the end
        return taken

    def last_snapshot(self) -> SnapshotData:
        """Detach all probes, and take a snapshot of what is there then."""
        self._detach()
        return self.snapshot()

    def map_data(self, name: str) -> MapData:
        """The current content of the map *name*."""
        return self._record().map_data(name, self._collect)

    def _record(self) -> Recording:
        from pytrace.runtime.capture.recording import Recording

        self._symbols.poll()
        if self._recording is None:
            renderer, manifest = self.renderer, self.loaded.manifest
            self._recording = Recording(manifest, self.options, renderer.views(), renderer.texts, self._symbols)
        return self._recording

    def _collect(self) -> None:
        """Free the ring for new events; the collected ones are handled later."""
        while self._ring.collect():
            pass

    # ---- the end

    def _tell_child(self) -> None:
        """With ``-v``: report how the ``-c`` process ended."""
        status = self._child.poll() if self._child is not None and self.options.verbose else None
        if status is not None:
            self.output.message(f"the command {_status_text(status)}\n")

    def _tell_silence(self) -> None:
        """Tell somebody at a terminal that nothing was printed because nothing happened."""
        output = self.output
        if output.json or output.csv or self.options.exports:
            return
        if self.renderer.printed_nothing and output.terminal:
            end = self._detached or opening.moment()
            if set(self._by_kind) - _OVER_AT_ONCE and not self.renderer.state.exit_code:
                self._tell(f"No event in {(end[1] - self._started[1]) / 1e9:.1f} s\n")

    def _sum_up(self, totals: dict[Key, int]) -> None:
        """Report losses; on standard error if JSON output, which should contain them, is not read."""
        self.renderer.summary(totals)
        if self.output.json:
            self.output.flush()
            if self.output.gave_up:
                self.renderer.broken_off(totals)

    def finish(self) -> int:
        """Detach, run end probes, handle remaining events, and print the maps. Returns the exit status."""
        if self._embedding is None and _somebody_waits():
            from pytrace.runtime.session import notify

            notify.systemd("STOPPING=1")
        before = self._detach()
        self._symbols.hurry(self.output.message if self._embedding is None and os.isatty(2) else None)
        if self.options.dry_run:
            self._ring.discard()
        else:
            self._consumer.finish()
            self.renderer.resume()
            self._run_all(END)
            self._consumer.finish()
            self.renderer.print_rows()
        totals = {**before, **self._counters.totals()}
        self.renderer.losses(totals, ended=True)
        self.output.flush()
        totals |= self._consumer.totals()
        self.output.events_over = True
        unsaved = ""
        if not self.options.dry_run and self._embedding is None:
            unsaved = self._finish_maps()
        self._sum_up(totals)
        self._summed_up = True
        self._tell_silence()
        self._tell_child()
        for text in self._symbols.notices():
            self._warn(text)
        if unsaved:
            raise TraceError(unsaved)
        return self.renderer.state.exit_code

    def _finish_maps(self) -> str:
        """Save the snapshot, even if the output is not read, and print the maps.

        Returns the errors of saving.
        """
        # A run that ended with a failed assertion prints no maps.
        shown = not self.renderer.state.assertion_failed
        if self._ahead is not None and (shown or self._saving is not None):
            self._ahead.finish()
        unsaved = "" if self._saving is None else self._saving.finish()
        # What could not be written in another format is not lost.
        if shown and (self._saving is None or not self._saving.exported):
            self.renderer.print_maps()
            if self.output.gave_up and self.loaded.manifest.maps:
                self._warn(_NO_MAPS)
        return unsaved


def _status_text(status: int) -> str:
    return f"exited with status {status}" if status >= 0 else f"was killed by signal {-status}"


def _mode_hints(session: Session) -> tuple[str, ...]:
    return tuple(
        f"{kind}: probes run with --{kind}" for kind in (TEST, BENCH) if session.programs(kind)
    )


def _somebody_waits() -> bool:
    """Whether a variable of those that ``notify`` reads may be set; it is not imported by most starts."""
    return any("NOTIFY" in name for name in os.environ)


def _by_kind(programs: Iterable[ProgramSpec]) -> dict[str, list[ProgramSpec]]:
    found: dict[str, list[ProgramSpec]] = {}
    for program in programs:
        if not program.service:
            found.setdefault(program.kind, []).append(program)
    return found
