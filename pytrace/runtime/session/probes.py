"""The probes of a run: attached, and detached at its end."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.base import terminal
from pytrace.base.interruption import deliver
from pytrace.core.diagnostics import TraceError
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import PidFilter, known_kind
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf, perf
from pytrace.runtime.session.processes import Processes
from pytrace.runtime.session.services import Key, NoHeartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytrace.core.manifest import ProgramSpec
    from pytrace.runtime.load.probe_links import Attached, AttachOptions, MissReader, Opened, RefusedTarget
    from pytrace.runtime.session.session import Notices


_MOST_LEFT_OUT = 5
"""Functions that are named."""

Moment = tuple[int, int]
"""Wall time and monotonic time, in nanoseconds."""


class Probes:
    """Attaches the probes of *loaded* once, and detaches them once; closing :attr:`links` does so, too.

    *command* is the process of ``-c``, and *interpreter* one that it has started, whose Python functions are probed.
    """

    def __init__(
        self,
        loaded: LoadedScript,
        options: RunOptions,
        command: int | None,
        processes: Processes,
        notices: Notices,
        heartbeat: NoHeartbeat,
        *,
        interpreter: int | None = None,
    ) -> None:
        self._loaded = loaded
        self._options = options
        self._command = command
        self._interpreter = interpreter
        self._processes = processes
        self._notices = notices
        self._heartbeat = heartbeat
        self.links = ExitStack()
        self._opened: list[Opened] = []
        self._miss_readers: list[MissReader] = []
        """Readers of skipped hits, as long as probes are attached."""
        self._missed: dict[Key, int] = {}
        self._kept: dict[Key, int] = {}
        """Of programs that were detached alone, the hits that their links had skipped."""
        self._started = _now()
        self._detached: Moment | None = None
        self._attach_options: AttachOptions | None = None
        self.untraced: dict[str, int] = {}
        """Children of the processes of ``-p`` that are not traced, by what the processes are called."""

    def attach(self) -> list[Attached]:
        """Attach the probes. A script whose programs are all run by hand needs nothing of what attaches.

        Raises:
            TraceError: a probe could not be attached.
        """
        attached: list[Attached] = []
        if not all(known_kind(program.kind).special for program in self._loaded.manifest.programs):
            attached = self._attach_all()
        self._started = _now()
        return attached

    def _attach_all(self) -> list[Attached]:
        from pytrace.runtime.load import attachments, probe_links  # not for begin and end alone

        manifest, options = self._loaded.manifest, self._options
        programs, pids = manifest.programs, options.filters.pids
        attached = count()
        # Other filters, of names or cgroups for example, select the processes in place of -c.
        command = () if self._command is None or options.filters.shape.any else (self._command,)
        with terminal.step("attaching probes", sum(len(program.targets) for program in programs)) as step:

            def attaching() -> None:
                deliver()
                self._heartbeat.attaching()
                step.done = next(attached)

            attach_options = probe_links.AttachOptions(
                pids=pids or command,
                follow=options.follow,
                unbound=not probe_links.bindable(pids),
                child=self._command,
                interpreter=self._interpreter,
                awaits=bool(options.filters.exec_wait),
                missing_probes=manifest.config.missing_probes,
                disabled=options.no_features,
                file_activation=options.usdt_file_activation,
                progress=attaching,
            )
            done = attachments.attach_all(self._loaded, programs, attach_options, self.links)
        self._attach_options = attach_options
        self._opened.append(done.opened)
        self._miss_readers.append(probe_links.MissReader(self._loaded, done.opened))
        roots = pids or (command if self._interpreter is not None else ())
        if roots and manifest.follow_map:
            self._follow_descendants(roots, done.include_descendants(roots, self._loaded.map_fd(manifest.follow_map)))
        if pids and not options.follow:
            children = probe_links.UntracedChildren.of(pids)
            if children is not None:
                self.untraced = {children.parents: children.count}
                for text in children.notices:
                    self._notices.tell(text)
        if attach_options.missing_probes == "warn":
            for failure in done.failures:
                self._notices.warn(str(failure), failure.hints)
        if done.left_out and attach_options.missing_probes != "ignore":
            self._tell_of_left_out([refused.target.probe for refused in done.left_out])
        return list(done.attached)

    def _tell_of_left_out(self, probes: Sequence[str]) -> None:
        """Name functions of patterns that are not traced, as the kernel refuses to probe their instructions."""
        names = ", ".join(probes[:_MOST_LEFT_OUT]) + (", …" if len(probes) > _MOST_LEFT_OUT else "")
        what = "1 function of a pattern is" if len(probes) == 1 else f"{len(probes)} functions of patterns are"
        self._notices.warn(f"{what} not traced, as the kernel cannot probe the instruction there: {names}")

    def _follow_descendants(self, pids: Sequence[int], added: tuple[list[int], int] | None) -> None:
        """With ``-p`` and ``--follow``: know the existing descendants of the processes, that programs know now, too."""
        written = ", ".join(map(str, pids[:8]))
        if added is None:
            text = f"processes that {written} forked earlier are not followed: the kernel has no task iterator"
            self._notices.warn(text)
            return
        descendants, left_out = added
        if left_out:
            self._notices.warn(
                f"{left_out} processes that {written} forked earlier are not followed: there are too many"
            )
        for pid in descendants:
            self._processes.add(pid)

    def missed(self) -> dict[Key, int]:
        """Hits that the kernel skipped, up to now or until the probes were detached."""
        for reader in self._miss_readers:
            self._missed = reader.totals()
        return {**self._missed, **self._kept}

    def renew(self, cpu: int, *, online: bool) -> tuple[list[str], list[str]]:
        """Attach the probes whose events belong to CPUs to one that came online, and move those of one that went.

        Returns:
            The probes, and sentences about those that could not be attached.
        """
        renewed: list[str] = []
        failures: list[str] = []
        for opened in self._opened:
            for events in opened.on_cpus():
                here = cpu in events.parts
                events.drop(cpu)
                if not online and not (events.one and here):
                    continue
                if online and events.one and not here and events.parts:
                    continue
                try:
                    events.add(cpu if online else perf.online_cpus()[0])
                    renewed.append(events.probe)
                except (OSError, TraceError) as error:
                    reason = error.message if isinstance(error, TraceError) else error.strerror
                    failures.append(f"{events.probe} does not observe it: {reason}")
        return renewed, failures

    def move_clocks(self, now: int) -> int:
        """Move the periods of sampling clocks that are due. Returns when the next is, in monotonic nanoseconds."""
        clocks = (events for opened in self._opened for events in opened.on_cpus() if events.mean)
        return min((events.move(now) for events in clocks), default=1 << 63)

    # ---- user probes of a process

    @property
    def bound(self) -> tuple[int, ...]:
        """The processes that the kernel binds user probes to, each by its first thread."""
        options = self._attach_options
        unbound = options is None or options.follow or options.unbound or not self._user_programs()
        return () if unbound or options is None else options.pids

    @property
    def bound_by_links(self) -> bool:
        """Whether these probes have multi links, which need no privilege to be made again."""
        return all(self._loaded.multi(program.symbol) for program in self._user_programs())

    def bound_to(self, pid: int) -> bool:
        """Whether the thread that the links of *pid* are bound to is there."""
        return any(bpf.uprobe_multi_process(link) == pid for part in self._parts() for link in part.links)

    def bind_again(self, pid: int) -> Sequence[RefusedTarget]:
        """Attach the user probes of *pid* to the thread that has its number now. Returns those that cannot be.

        The links of the thread that had it before go first: they install nothing in the new program, but programs run
        for them where others have (``uprobe_prog_run`` compares the ``signal_struct``, which stays).
        """
        from pytrace.runtime.load import attachments, probe_links  # it is there already

        assert self._attach_options is not None
        left: list[int] = []
        for part in self._parts():
            here = {link for link in part.links if bpf.uprobe_multi_process(link) == 0}
            part.links = [link for link in part.links if link not in here]
            left += here
        probe_links.close_all(left)
        options = replace(self._attach_options, pids=(pid,), child=pid, missing_probes="warn")
        done = attachments.attach_all(self._loaded, self._user_programs(), options, self.links)
        self._opened.append(done.opened)
        return done.failures

    def _parts(self) -> Iterator[Opened]:
        return (part for opened in self._opened for part in opened.parts())

    def _user_programs(self) -> list[ProgramSpec]:
        kinds = ((program, known_kind(program.kind)) for program in self._loaded.manifest.programs)
        return [program for program, kind in kinds if kind.user and kind.pid_filter is PidFilter.ATTACH]

    def unwatch(self, address: int) -> None:
        """Detach the watchpoints on *address*."""
        for opened in self._opened:
            opened.unwatch(address)

    def detach_program(self, index: int) -> None:
        """Detach one program; the others stay."""
        self._kept.update({key: count for key, count in self.missed().items() if key == ("missed", index)})
        for opened in self._opened:
            opened.detach(self._loaded.manifest.programs[index].symbol)

    @property
    def have_exited(self) -> bool:
        """Whether an ``exit()`` of the script has stopped all programs but those that see the tracer's own calls."""
        return self._loaded.has_exited()

    def exited(self) -> None:
        """After an ``exit()`` of the script programs stop for the tracer's threads, too, none of which is in a call."""
        self._heartbeat.stop()
        self._loaded.stop_programs()

    def detach(self) -> None:
        """Detach all probes, if they are attached. Programs return at once from the first moment on.

        The kernel detaches raw tracepoints without waiting for the programs that run on other CPUs, for milliseconds
        where a hypervisor takes a CPU away. This waits: end probes and printed maps have all of an event or nothing.
        """
        self._heartbeat.stop()
        self._loaded.stop_programs()
        self.missed()
        self._miss_readers.clear()
        with terminal.step("detaching probes"):
            self.links.close()
            if self._opened and self._detached is None:
                self._loaded.quiescence.wait()
        self._detached = self._detached or _now()

    def reserve(self) -> None:
        """Make what detaching needs, while it is allowed."""
        for opened in self._opened:
            opened.reserve()
        if self._opened:
            self._loaded.quiescence.reserve()

    @property
    def detach_by_files(self) -> bool:
        """Whether detaching writes to files: to remove probes of tracefs, to lower semaphores."""
        return any(part.steps for opened in self._opened for part in opened.parts())

    def depend_on(self, cpus: set[int]) -> bool:
        """Whether :meth:`renew` has something to attach again when one of *cpus* goes offline or comes online."""
        events = [events for opened in self._opened for events in opened.on_cpus()]
        return bool(cpus) and any(not item.one or item.parts.keys() & cpus for item in events)

    def period(self) -> tuple[Moment, Moment]:
        """Moments when the probes were attached, and when they were detached, or now."""
        return self._started, self._detached or _now()


def _now() -> Moment:
    """This moment, by the wall clock and the monotonic one."""
    return time.time_ns(), time.monotonic_ns()
