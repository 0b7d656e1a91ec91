"""The life cycle of a run: resources, the consumer of events, and :class:`Session`: begins, attaches, waits, ends.

A run always ends in the same way: after ``exit()``, a signal, the end of the traced process, or when nothing is left to
wait for, probes are detached, end probes run, waiting events are printed, then maps and losses.
:mod:`pytrace.runtime.session.opening` opens the resources.

Events go from the ring to the output in turns of a few milliseconds. Between two the session looks at signals, at
``exit()`` and at the traced process, whatever arrives and whether or not the output is read. After the user has asked
for the end, waiting events are printed for :data:`ENDING` seconds, or :data:`_STUCK` where nobody reads them; the rest
is dropped and counted.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pytrace.base import terminal
from pytrace.base.interruption import EndRequests, raised_in_import
from pytrace.core.diagnostics import TraceError
from pytrace.core.failures import UNTRACED_CHILDREN, CallTotals
from pytrace.core.manifest import ProgramSpec
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import BEGIN, BENCH, END, ITER, SELF, TEST, PidFilter, known_kind
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.processes import Processes
from pytrace.runtime.session.services import REPORT_EVERY, EndOfRun, Key, Losses, NoHeartbeat, Service
from pytrace.runtime.session.signals import SignalSource
from pytrace.runtime.stacks.lazy_symbols import LazySymbols

if TYPE_CHECKING:
    from pytrace.core.costs import RunCost
    from pytrace.results.snapshot import MapData, SnapshotData
    from pytrace.runtime.load.probe_links import Attached
    from pytrace.runtime.output.handlers import Make
    from pytrace.runtime.session.child import Child
    from pytrace.runtime.session.costs import Costs
    from pytrace.runtime.session.snapshots import RowKeeper, Snapshots
    from pytrace.runtime.stacks.image_places import MetBinaries


TURN = 0.005
"""Approximate duration of a turn in seconds, without its last slice of events."""
LOOK_EVERY = 0.01
"""Maximum seconds between two checks of signals while the output has no room."""
ENDING = 0.3
"""Seconds for which waiting events are printed after the user has asked for the end and all probes are detached."""
_STUCK = 0.2
"""Seconds after which an output without room is not waited for any more then."""

UNPRINTED = ("unprinted", 0)


class EventLoop:
    """Waits for events, and for other descriptors, with as few wake-ups as the rate allows.

    At a low rate the ring wakes the reader at its first record. At a high one that would mean a wake-up (and an
    interrupt on the traced side) for every handful of records, so after a full drain the ring is left alone for
    :attr:`REST` seconds, and only the other descriptors are waited for.
    """

    REST = 0.002
    BUSY_COUNT = 64
    """A drain of at least this many events means that the rate is high."""

    def __init__(self, reader: RingReader, stack: ExitStack) -> None:
        self._reader = reader
        self._poll = stack.enter_context(select.epoll())
        self._poll.register(reader.fileno(), select.EPOLLIN)
        self._listening = True
        self._full: int | None = None

    def fileno(self) -> int:
        """Readable when a wait would return."""
        return self._poll.fileno()

    @property
    def listening(self) -> bool:
        """Whether a record in the ring ends a wait."""
        return self._listening

    def watch(self, descriptor: int) -> None:
        """Also wake up when *descriptor* can be read."""
        self._poll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        """No longer wake up for *descriptor*."""
        self._poll.unregister(descriptor)

    def wait_for_room(self, descriptor: int | None) -> None:
        """Also wake up when *descriptor* can be written to (None: not any more)."""
        if descriptor != self._full:
            if self._full is not None:
                self._poll.unregister(self._full)
            if descriptor is not None:
                self._poll.register(descriptor, select.EPOLLOUT)
            self._full = descriptor

    def wait(self, timeout: float | None, drained: int = 0, *, events: bool = True) -> list[int]:
        """Wait for at most *timeout* seconds. Returns the ready descriptors among those of :meth:`watch`.

        *drained* is how many events the drain before gave; ``reader.pending`` tells afterwards whether to drain.
        Without *events* the ring is not waited for.
        """
        if events and drained >= self.BUSY_COUNT:
            self._listen(False)
            timeout = self.REST if timeout is None else min(timeout, self.REST)
        else:
            self._listen(events)
        others = (self._reader.fileno(), self._full)
        return [descriptor for descriptor, _ in self._poll.poll(timeout) if descriptor not in others]

    def _listen(self, wanted: bool) -> None:
        if wanted != self._listening:
            self._poll.modify(self._reader.fileno(), select.EPOLLIN if wanted else 0)
            self._listening = wanted


class Consumer:
    """Hands events of *ring* to the handlers of *renderer*.

    *requests* says whether the user has asked for the end. *probes* are detached as soon as an ``exit()`` is seen,
    before the events that were sent earlier are handled, which may take long; not if one of these runs a command or
    reads a file, which may be traced, or look at what is attached (:meth:`finish_commands`).
    """

    def __init__(
        self,
        ring: RingReader,
        renderer: Renderer,
        output: Output,
        requests: EndRequests,
        probes: Probes,
        symbols: LazySymbols,
    ) -> None:
        self._ring = ring
        self._renderer = renderer
        self._output = output
        self._requests = requests
        self._probes = probes
        self._symbols = symbols
        self._deadline: float | None = None
        self._progress = (-1, -1)
        self._since = 0.0
        """The last progress of the output, and its time."""
        self._drained = 0
        self._more = False
        """Whether the last turn ended before everything was handled."""
        self._commands = renderer.kinds("system") | renderer.kinds("cat")
        ring.notice(renderer.kinds("exit"), self._exit_noticed)

    def _exit_noticed(self) -> None:
        if not self._ring.waiting(self._commands):
            self._probes.detach()

    def turn(self) -> int:
        """Handle waiting events for :data:`TURN` seconds, and write their output. Returns the number of events."""
        output = self._output
        output.advance()
        if output.congested:
            self._ring.collect()
            self._drained, self._more = 0, True
            return 0
        started = time.monotonic_ns()
        until = started / 1e9 + TURN
        self._more = False

        def enough() -> bool:
            self._more = time.monotonic() >= until or output.congested
            return self._more

        self._drained = self._ring.drain(self._renderer.handlers, None, lambda: output.accepted, enough)
        output.end_batch()
        if not self._more:
            self._symbols.drained(started)
        return self._drained

    def wait(self, loop: EventLoop, most: float) -> list[int]:
        """Wait for events or room in the output, at most *most* seconds. Returns the ready descriptors of *loop*."""
        output = self._output
        polls = output.waiting and not output.channel.unsure
        loop.wait_for_room(output.channel.fileno() if polls else None)
        if output.congested:
            return loop.wait(LOOK_EVERY, events=False)
        if output.waiting:
            most = min(most, LOOK_EVERY)
        return loop.wait(0 if self._more else most, self._drained)

    def drain(self) -> None:
        """Handle all events sent so far; after a request to end the run, as many as there is time for."""
        end = self._ring.produced
        while self._ring.handled < end and not self._late():
            if not self.turn() and not self._pause():
                break

    def finish_commands(self) -> None:
        """The run ends: handle the events sent so far as far as commands and files of scripts are among them.

        The probes are still attached then, as they were when the script asked for the command.
        """
        self._ring.collect()
        end = self._ring.produced
        while self._ring.waiting(self._commands) and self._ring.handled < end and not self._late():
            if not self.turn() and not self._pause():
                break

    def finish(self) -> None:
        """Handle all events that are left after detaching; drop and count those that there is no time for."""
        self._deadline = None
        while self._ring.pending or self._output.waiting:
            if self._late():
                self._ring.discard()
                self._output.drop(resume=True)
                break
            if not self.turn() and not self._pause():
                break

    def _pause(self) -> bool:
        """Wait for the reader of the output for a moment. Returns False when the output does not wait for it."""
        if not self._output.waiting:
            return False
        self._output.channel.wait(LOOK_EVERY)
        return True

    def _late(self) -> bool:
        if not self._requests.ending:
            return False
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + ENDING
        if (progress := self._output.progress) != self._progress:
            self._progress, self._since = progress, now
        return now > self._deadline or (self._output.waiting and now - self._since > _STUCK)

    # ---- what was left

    def break_off(self) -> None:
        """Drop and count all waiting events, at whatever point a handler was interrupted."""
        # It may have printed some of its events before.
        rest = max(0, self._ring.handling - (self._output.accepted - self._ring.position))
        self._output.left += rest
        self._ring.discard()
        self._output.drop()

    def totals(self) -> dict[tuple[str, int], int]:
        """Number of unprinted events, if any."""
        left = self._output.left + self._ring.discarded
        return {UNPRINTED: left} if left else {}


_OVER_AT_ONCE = frozenset({BEGIN, END, ITER})
"""Probe kinds that have done all they will ever do once everything is attached."""
_SESSION = "kprobe_session"
_NO_MAPS = "not all maps were printed because of the interrupt"
PATIENCE = 0.2
"""Seconds in which a page usually arrives from a disk."""
_SIGNALLED = 128
"""The status of a command that a signal ended is this and the number of the signal, as in shells."""


class Notices:
    """Notices and warnings on standard error, after the output before them."""

    def __init__(self, output: Output, options: RunOptions) -> None:
        self._output = output
        self._quiet = options.quiet
        self._verbose = options.verbose
        self._warnings = options.warnings

    def tell(self, text: str) -> None:
        """Print a notice, which ends its line itself, unless ``-q`` was given."""
        if not self._quiet:
            self._output.message(text)

    def detail(self, text: str) -> None:
        """Print a notice if ``-v`` was given."""
        if self._verbose:
            self.tell(text)

    def warn(self, text: str, hints: tuple[str, ...] = ()) -> None:
        """Print a warning, unless ``--no-warnings`` was given."""
        if self._warnings:
            self._output.message(f"WARNING: {text}\n" + "".join(f"HINT: {hint}\n" for hint in hints))


class NoCommand:
    """A run without ``-c``."""

    pid: None = None
    interpreter: None = None
    descriptors: tuple[int, ...] = ()
    had_children = False

    def stop_after_exec(self) -> None:
        """Do nothing."""

    def run_to_entry(self) -> bool:
        """Return False: there is no program."""
        return False

    def run_to_next_program(self) -> bool:
        """Return False: there is no program."""
        return False

    def run_to_interpreter(self, *, follow: bool, strict: bool) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""

    def poll(self) -> int | None:
        """Return None: nothing has ended."""
        return None


Command: TypeAlias = "Child | NoCommand"
"""The process of ``-c``."""


class Embedding(msgspec.Struct, frozen=True):
    """Replacements of standard output, of printing and of signals for a run inside another program."""

    output: Output
    handlers: Callable[[LazySymbols], Mapping[str, Make]]
    """Creates the handlers of each kind of event; the argument resolves addresses."""
    signals: SignalSource
    confined: bool = False
    """Whether the program gives up its privileges once everything is attached, as a run of the command does."""


class Resources(msgspec.Struct, kw_only=True, eq=False, dict=True):
    """The parts of one run. An :class:`ExitStack` closes what they have opened, the last one first."""

    options: RunOptions
    embedded: bool
    """Whether another program shows the results: then maps are not printed."""
    requests: EndRequests
    signals: SignalSource
    output: Output
    notices: Notices
    command: Command
    loaded: LoadedScript
    symbols: LazySymbols
    renderer: Renderer
    ring: RingReader
    loop: EventLoop
    consumer: Consumer
    processes: Processes
    probes: Probes
    losses: Losses
    heartbeat: NoHeartbeat = msgspec.field(default_factory=NoHeartbeat)
    rows: RowKeeper | None = None
    """Rows that were printed, where snapshots are taken."""
    costs: Costs | None = None
    """What the run costs, where that is measured."""
    services: list[Service] = msgspec.field(default_factory=list)
    """In the order in which each phase of the run calls them."""
    calls: list[CallTotals] = msgspec.field(default_factory=list)
    """Of the ``call:`` probes, at the end."""

    @cached_property
    def snapshots(self) -> Snapshots:
        """Takes snapshots of the run."""
        from pytrace.runtime.session.snapshots import Snapshots  # few runs are asked for any

        return Snapshots(self)

    def programs(self, kind: str) -> list[ProgramSpec]:
        """The script's programs of one probe kind, in source order."""
        return [program for program in self.loaded.manifest.programs if program.kind == kind and not program.service]

    def kinds(self) -> set[str]:
        """Probe kinds of the script's programs."""
        return {program.kind for program in self.loaded.manifest.programs if not program.service}


class Session:
    """One run, for those who drive it: the command, and programs that embed it."""

    def __init__(self, run: Resources) -> None:
        self._run = run
        self._over_at_once = run.options.command is None and run.kinds() <= _OVER_AT_ONCE
        self._lost_exit: int | None = None
        self._summed_up = False

    def run(self) -> int:
        """Begin, attach, wait, end. Returns the exit status."""
        try:
            self.start()
            while self.step():
                pass
            return self.finish()
        except KeyboardInterrupt:
            self.break_off()
            raise
        except RuntimeError as error:
            if (interrupt := raised_in_import(error)) is None:
                raise
            self.break_off()
            raise interrupt from None

    # ---- start

    def start(self) -> None:
        """Run begin probes, attach the others, and start tracing.

        Raises:
            TraceError: a probe could not be attached, or the command of ``-c`` not be run.
        """
        if self._run.options.filters.without_own_threads:
            # Its thread would be seen as it starts, had it not been left out before probes are attached.
            self._run.heartbeat.begin()
            self.leave_out(threading.get_native_id())
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
        texts: list[bytes] | None = None
        for link in iterators:
            self._run.ring.collect()
            if self._ended:
                break
            texts = [*(texts or ()), *bpf.read_iterator(link)]
        return texts

    def _read_iterators(self, iterators: list[int]) -> None:

        for link in iterators:
            with self._run.renderer.iterating():
                for text in bpf.read_iterator(link):
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
            self._run_programs(SELF)
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

    def _run_programs(self, kind: str) -> None:
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
        exiting = run.renderer.state.exit_requested or run.ring.noticed or self._lost_exit is not None
        return exiting or run.requests.ending or run.output.broken

    def _look_for_exit(self) -> None:
        """Check for an ``exit()`` whose event did not fit the ring: all that is in there was sent before."""
        self._lost_exit = self._run.loaded.exit_status()

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`step` has something to do, unless :attr:`busy`."""
        return self._run.loop.fileno()

    @property
    def busy(self) -> bool:
        """Whether the event rate is so high that the ring is polled, without wake-ups."""
        return not self._run.loop.listening

    # ---- end

    def finish(self) -> int:
        """Detach, run end probes, handle remaining events, and print the maps. Returns the exit status.

        That is the one of the script's ``exit()``; with ``--exit-status`` that of the command, if that is 0.

        Raises:
            TraceError: a snapshot could not be saved.
        """
        run = self._run
        if not run.options.dry_run:
            run.consumer.finish_commands()
        for service in run.services:
            service.stop()
        self._explain_waiting()
        run.probes.detach()
        self._leave_waiting()
        run.symbols.hurry(run.output.message if not run.embedded and os.isatty(2) else None)
        if run.options.dry_run:
            run.ring.discard()
            # Nobody wants the events of a dry run.
            run.ring.discarded = 0
        else:
            self._handle_rest()
        totals = run.losses.report_gaps()
        run.renderer.losses(totals, ended=True)
        run.output.flush()
        totals = run.losses.totals()
        run.output.events_over = True
        with terminal.step("resolving symbols and writing what was traced"):
            errors = [] if run.options.dry_run else self._finish_maps()
        self._sum_up(totals)
        self._report_silence()
        status = self._command_status()
        for text in run.symbols.notices():
            run.notices.warn(text)
        for service in () if run.options.dry_run else run.services:
            service.report()
        if errors:
            raise TraceError("; ".join(errors))
        return run.renderer.state.exit_code or (status if run.options.exit_status else 0)

    def _explain_waiting(self) -> None:
        """Say why detaching takes long: the kernel waits for programs that wait for memory (``emit/memory``)."""
        run = self._run
        if names := self._still_waiting(user=True):
            text = f"a traced thread waits for memory in {', '.join(names)}: detaching waits for it"
            hint = "a file system may not answer; the tracer ends when the memory arrives or that thread is killed"
            run.notices.warn(text, hints=(hint, "--no-feature sleepable_uprobe lets no program wait"))
            run.output.flush()

    def _leave_waiting(self) -> None:
        """The kernel detaches programs of its functions while they wait for memory: what they go on to send is lost."""
        if names := self._still_waiting(user=False):
            text = f"a traced thread still waits for memory in {', '.join(names)}: its event is lost"
            self._run.notices.warn(text, hints=("--no-feature sleepable_fentry lets no such program wait",))

    def _still_waiting(self, *, user: bool) -> list[str]:
        """Names of the programs that wait for memory now and a moment later; of user probes, or of others."""
        losses = self._run.losses
        if not losses.waiting(user=user):
            return []
        time.sleep(PATIENCE)
        return losses.waiting(user=user)

    def _handle_rest(self) -> None:
        """Handle the events that wait, then run end probes."""
        run = self._run
        run.consumer.finish()
        if self._lost_exit is not None and not run.renderer.state.exit_requested:
            run.renderer.exit(self._lost_exit)
        run.renderer.resume()
        self._run_programs(END)
        run.consumer.finish()
        run.renderer.print_rows()

    def _finish_maps(self) -> list[str]:
        """Have services finish, even if the output is not read, and print the maps. Returns errors of services."""
        run = self._run
        # A run that ended with a failed assertion prints no maps.
        end = EndOfRun(print_maps=not run.embedded and not run.renderer.state.assertion_failed)
        for service in run.services:
            service.finish(end)
        if end.print_maps:
            run.renderer.print_maps()
            if run.output.gave_up and run.loaded.manifest.maps:
                run.notices.warn(_NO_MAPS)
        if not run.options.quiet:
            for line in (*end.found, *(f"wrote {file}" for file in end.written)):
                run.output.message(f"{line}\n")
        return end.errors

    def break_off(self) -> None:
        """The user asks again: report how many events are not printed, even if the output is not read."""
        run = self._run
        self._explain_waiting()
        run.probes.detach()
        self._leave_waiting()
        totals = run.losses.report_gaps()
        if not run.options.dry_run:
            for service in run.services:
                service.break_off()
        if run.output.events_over:
            run.output.drop()
            if run.loaded.manifest.maps:
                run.notices.warn(_NO_MAPS)
        else:
            run.consumer.break_off()
        if not self._summed_up:
            run.renderer.broken_off({**totals, **run.consumer.totals()})

    def _sum_up(self, totals: dict[Key, int]) -> None:
        """Report losses; on standard error if JSON output, which should contain them, is not read."""
        run = self._run
        run.renderer.summary(totals)
        if run.output.json:
            run.output.flush()
            if run.output.gave_up:
                run.renderer.broken_off(totals)
        self._summed_up = True

    def _report_silence(self) -> None:
        """At a terminal, report that no event came."""
        run = self._run
        output = run.output
        if output.json or output.csv or run.options.exports or run.options.live:
            return
        if run.renderer.printed_nothing and output.terminal:
            (_, start), (_, end) = run.probes.period()
            if not run.kinds() <= _OVER_AT_ONCE and not run.renderer.state.exit_code:
                run.notices.tell(f"No event in {(end - start) / 1e9:.1f} s\n")

    def _command_status(self) -> int:
        """Report how the command of ``-c`` ended: a failure always, else with ``-v``. Returns its status for a shell.

        A command that is still running has 0, and so has one that is not there.
        """
        run = self._run
        status = run.command.poll()
        if status is None:
            return 0
        bound = any(known_kind(program.kind).pid_filter is PidFilter.ATTACH for program in run.loaded.manifest.programs)
        chosen = run.options.follow or run.options.filters.shape.any
        if run.command.had_children and bound and not chosen:
            if run.embedded:
                run.notices.warn(UNTRACED_CHILDREN, ("follow=True traces them, too",))
            else:
                run.notices.tell(f"{UNTRACED_CHILDREN}: --follow traces them, too\n")
        # Ctrl-C ends the command, too.
        failed = status != 0 and not run.embedded and not run.requests.ending
        if run.options.verbose or failed:
            text = f"exited with status {status}" if status >= 0 else f"was killed by {_signal_name(-status)}"
            run.notices.tell(f"the command {text}\n")
        return status if status >= 0 else _SIGNALLED - status

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
            memory, offset = self._run.loaded.section(data.section), data.filters + filters.shape.threads_at
            struct.pack_into("=QQ", memory, offset, thread, self._run.heartbeat.thread)

    def losses(self) -> dict[str, dict[str, int]]:
        """Losses and failures so far: counts by kind and subject."""
        return self._run.losses.by_kind()

    def cost(self) -> RunCost | None:
        """The costs of the run so far; None where they are not measured."""
        return None if self._run.costs is None else self._run.costs.read()

    @property
    def met_binaries(self) -> MetBinaries | None:
        """Binaries in stacks of snapshots with places (``RunOptions.places``), also after the session was closed."""
        return self._run.symbols.met_binaries()

    @property
    def child_pid(self) -> int | None:
        """Process id of the command."""
        return self._run.command.pid

    @property
    def calls(self) -> tuple[CallTotals, ...]:
        """What each ``call:`` probe has seen, once the run has ended."""
        return tuple(self._run.calls)

    @property
    def child_had_children(self) -> bool:
        """Whether the command has ended, and had waited for processes that it started."""
        return self._run.command.had_children

    @property
    def child_status(self) -> int | None:
        """The command's exit status, as of :meth:`Child.poll`; None while it runs."""
        return self._run.command.poll()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
