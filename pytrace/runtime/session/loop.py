"""The loop of a run: begin, attach, wait for events and handle them, step by step."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.core.probes.kinds import BEGIN, BENCH, END, ITER, SELF, TEST
from pytrace.runtime.session.resources import Resources
from pytrace.runtime.session.services.losses import REPORT_EVERY

if TYPE_CHECKING:
    from pytrace.runtime.attach.attachments import Attached

OVER_AT_ONCE = frozenset({BEGIN, END, ITER})
"""Probe kinds that have done all they will ever do once everything is attached."""

_SESSION = "kprobe_session"


class RunLoop:
    """Starts a run, and handles its events until nothing is left to wait for."""

    def __init__(self, run: Resources) -> None:
        self._run = run
        self._over_at_once = run.options.command is None and run.kinds() <= OVER_AT_ONCE

    # ---- start

    def start(self) -> None:
        """Run begin probes, attach the others, and start tracing.

        Raises:
            TraceError: a probe could not be attached, or the command of ``-c`` not be run.
        """
        run = self._run
        dry = run.options.dry_run
        # Output of begin probes is shown after everything is attached: a heading that says so is then true, and readers
        # of the output get the number of attached probes first.
        for program in run.programs(BEGIN) if not dry else ():
            run.loaded.run(program.symbol)
        attached = run.probes.attach()
        iterators = [item.iterator for item in attached if item.iterator is not None]
        # Who waits for the notice that everything is attached may rely on what iterators note in maps, too. A command
        # of -c is to be one of the objects that they see: it runs before them.
        early = iterators and run.options.command is None and not dry
        texts = self._run_iterators(iterators) if early else None
        self._announce(attached)
        for service in run.services:
            service.attached()
        if not dry:
            self._begin(iterators, texts)

    def _begin(self, iterators: list[int], texts: list[bytes] | None) -> None:
        """All probes are attached: start tracing. *texts* is what iterators wrote, if they have run."""
        run = self._run
        with run.renderer.iterating() if texts is not None else ExitStack():
            self.drain()
        for text in texts or ():
            self._write_text(text)
        self._look_for_exit()
        if self._ended:
            return
        self._release_command()
        if texts is None and iterators:
            self._read_iterators(iterators)
        run.loop.watch(run.signals.fileno())
        for service in run.services:
            service.begin()
            for descriptor in service.descriptors:
                run.loop.watch(descriptor)

    def _release_command(self) -> None:
        """Let the command run; the libraries that its program is linked with are recorded before their code runs."""
        command = self._run.command
        if command.run_to_entry() and command.pid is not None:
            self._run.processes.add(command.pid)
        command.release()

    def _announce(self, attached: list[Attached]) -> None:
        run = self._run
        by_hand = sum(len(program.targets) for kind in (BEGIN, END, SELF) for program in run.programs(kind))
        # A probe may have several targets: a static function that was inlined, overloads of a name. Entry and return
        # of a function that share a kprobe session are one probe, as in bpftrace.
        counted = [item for item in attached if not (item.spec.part_of and item.spec.multi == _SESSION)]
        count = len({(item.spec.index, item.target.probe) for item in counted}) + by_hand
        if not count:
            modes = [kind for kind in (TEST, BENCH) if run.programs(kind)]
            hints = tuple(f"{kind}: probes run with --{kind}" for kind in modes)
            raise TraceError("no probe could be attached", hints=hints)
        run.renderer.attached(count)
        for item in attached:
            if item.note:
                run.output.message(f"{item.note}\n")

    # ---- iterators

    def _run_iterators(self, iterators: list[int]) -> list[bytes] | None:
        """Run iterators before anything is printed. Returns what they wrote; their events wait.

        An ``exit()`` of an iterator leaves out those that follow, one of a begin probe all: then the result is None.
        """
        from pytrace.runtime.attach import iterator

        texts: list[bytes] | None = None
        for link in iterators:
            self._run.ring.collect()
            if self._ended:
                break
            texts = [*(texts or ()), *iterator.read(link)]
        return texts

    def _read_iterators(self, iterators: list[int]) -> None:
        from pytrace.runtime.attach import iterator

        for link in iterators:
            with self._run.renderer.iterating():
                for text in iterator.read(link):
                    self._write_text(text)
                self.drain()
            self._look_for_exit()
            if self._ended:
                return

    def _write_text(self, text: bytes) -> None:
        self._run.renderer.write_text(self._run.renderer.printable(text))
        if self._run.output.congested:
            self._run.output.flush()

    # ---- steps

    def step(self, longest: float = REPORT_EVERY) -> bool:
        """Wait at most *longest* seconds for events, and handle them. Returns False when the run is over."""
        run = self._run
        services = run.services
        if run.options.dry_run or self._ended or self._over_at_once or any(service.over for service in services):
            return False
        for service in services:
            longest = service.pause(longest)
        ready = run.consumer.wait(run.loop, longest)
        # The tracer's own calls are over: what it does from now on is none of the time until exit().
        if run.probes.have_exited:
            for service in services:
                service.exited()
            run.probes.exited()
        for service in services:
            service.woken(ready)
        handled = run.consumer.turn()
        for service in services:
            service.work(handled)
        for _ in run.signals.take():
            self.run_programs(SELF)
        if any(service.over for service in services):
            return False
        self._look_for_exit()
        return True

    def drain(self) -> None:
        """Handle all events that have been sent so far, and flush their output."""
        self._run.consumer.drain()

    def run_dry(self) -> bool:
        """Detach the probes, and handle some of the events that were sent before. Returns whether there are more."""
        run = self._run
        run.probes.detach()
        return not run.options.dry_run and run.consumer.turn() > 0 and run.ring.pending

    def run_programs(self, kind: str) -> None:
        """Run the programs of *kind* in order, and print their events."""
        for program in self._run.programs(kind):
            # In a flood the ring may be full, and what the program prints would be lost.
            self._run.ring.collect()
            self._run.loaded.run(program.symbol)
            self.drain()
            self._look_for_exit()

    @property
    def _ended(self) -> bool:
        """Whether the script has called ``exit()``, the user asked for the end, or nobody reads the output."""
        run = self._run
        # Output before an exit() that was noticed may still be waiting.
        exiting = run.renderer.state.exit_requested or run.ring.noticed
        return exiting or run.requests.ending or run.output.broken

    def _look_for_exit(self) -> None:
        """Check for an ``exit()`` whose event did not fit the ring."""
        status = self._run.loaded.exit_status()
        if status is not None and not self._run.renderer.state.exit_requested:
            self._run.renderer.exit(status)
