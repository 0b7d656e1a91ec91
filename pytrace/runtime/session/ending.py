"""The end of a run: probes are detached, end probes run, waiting events are printed, then maps and losses."""

from __future__ import annotations

import os
import signal
import time

from pytrace.base import progress
from pytrace.core.diagnostics import TraceError
from pytrace.core.probes.kinds import END, PidFilter, known_kind
from pytrace.runtime.session.loop import OVER_AT_ONCE, RunLoop
from pytrace.runtime.session.resources import Resources
from pytrace.runtime.session.services.losses import Key
from pytrace.runtime.session.services.service import EndOfRun

_NO_MAPS = "not all maps were printed because of the interrupt"


PATIENCE = 0.2
"""Seconds in which a page usually arrives from a disk."""

SIGNALLED = 128
"""The status of a command that a signal ended is this and the number of the signal, as in shells."""


class Ending:
    """Ends a run in order (:meth:`finish`), or at once (:meth:`break_off`), even in the middle of an orderly end."""

    def __init__(self, run: Resources, loop: RunLoop) -> None:
        self._run = run
        self._loop = loop
        self._summed_up = False

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
        with progress.step("resolving symbols and writing what was traced"):
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
        """Say why detaching takes long: the kernel waits for programs that wait for memory (``emit/user_memory``)."""
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
        run.renderer.resume()
        self._loop.run_programs(END)
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
            if not run.kinds() <= OVER_AT_ONCE and not run.renderer.state.exit_code:
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
            text = "processes that the command started were not traced"
            if run.embedded:
                run.notices.warn(text, ("follow=True traces them, too",))
            else:
                run.notices.tell(f"{text}: --follow traces them, too\n")
        # Ctrl-C ends the command, too.
        failed = status != 0 and not run.embedded and not run.requests.ending
        if run.options.verbose or failed:
            text = f"exited with status {status}" if status >= 0 else f"was killed by {_signal_name(-status)}"
            run.notices.tell(f"the command {text}\n")
        return status if status >= 0 else SIGNALLED - status


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
