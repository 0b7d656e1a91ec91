"""What a run watches beside events: its memory, the end of traced processes and of its time, changes of the machine
(CPUs, its clock, a suspension, modules and files that are probed), and its own heartbeat.

When the heartbeat stops, the programs of the run return at once (``codegen.walkers.program_filters``). A thread moves
their deadline forward. The loop of the run does not: it may print a million keys, read debug information or wait for a
slow reader of the output, and none of that is a reason to skip events. The thread stops with the process: when that is
stopped, swapped out or gets no processor time. It also stops beating when the thread of the run is stuck: it has
neither used processor time nor returned from a call for a while (a file system that hangs).
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from threading import Event, Lock, Thread, get_ident
from typing import TYPE_CHECKING, TextIO

import msgspec

from pytrace.base import cgroups, kernel_files
from pytrace.base.control_characters import printable_text
from pytrace.base.interruption import postponed
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, SessionData
from pytrace.core.options import NOT_YET, RunOptions, parse_memory, shown_memory
from pytrace.core.probe_kinds import KernelFunctionTarget
from pytrace.runtime.load.loaded_script import NEVER, LoadedScript, charged_bytes
from pytrace.runtime.machine import clocks, perf, procfs, syscalls
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.session.confinement import probed_files
from pytrace.runtime.session.services import EndOfRun, Gap, NoHeartbeat, Service

if TYPE_CHECKING:
    from pytrace.runtime.session.probes import Probes
    from pytrace.runtime.session.session import EventLoop
    from pytrace.runtime.stacks.lazy_symbols import LazySymbols


ATTACHING = 60.0
"""Seconds that attaching one more target may take: the kernel may wait for all processors meanwhile."""
LONGEST = 1.0
"""Maximum seconds between two beats."""
IDLE = 2.0
"""Seconds that the thread of the run may wait for at least: its waits for events take up to half of that."""
_STUCK_AGAIN = 0.05
"""Seconds between two checks whether a stuck thread runs again."""


class Heartbeat(NoHeartbeat):
    """Moves the deadline of *loaded* on by *seconds* from each beat; *stack* ends it.

    *embedded*: the thread of the run is that of another program, which may do nothing for as long as it likes.
    """

    def __init__(
        self, loaded: LoadedScript, data: SessionData, seconds: float, stack: ExitStack, *, embedded: bool
    ) -> None:
        memory = stack.enter_context(loaded.section(data.section)[data.deadline : data.deadline + 8])
        # The store must be one of eight bytes, which struct.pack_into does not promise.
        self._memory = stack.enter_context(memory.cast("Q"))
        self._tick = clocks.tick_length()
        self._seconds = seconds
        self._deadline = NEVER
        self._embedded = self._lenient = embedded
        self._clock = time.pthread_getcpuclockid(get_ident())
        self._used = 0
        self._progress = time.monotonic()
        """Processor time of the thread of the run, and when it was seen to change."""
        self._lock = Lock()
        self._over = Event()
        self._thread: Thread | None = None
        self._gaps: list[Gap] = []
        stack.callback(self.close)

    def beat(self, more: float = 0.0) -> None:
        """Move the deadline on, for *more* seconds longer than usual, and note if it had passed."""
        with self._lock:
            if self._over.is_set():
                return
            now = clocks.tick_count(self._tick)
            late, self._deadline = now - self._deadline, now + self._in_ticks(self._seconds + more)
            self._memory[0] = self._deadline
            if late > 0:
                self._gaps.append((time.time_ns() - late * self._tick, late * self._tick))

    def _in_ticks(self, seconds: float) -> int:
        return round((seconds + clocks.RESOLUTION) * 1_000_000_000 / self._tick)

    def attaching(self) -> None:
        """A target is about to be attached, or was attached."""
        self.beat(ATTACHING)

    def begin(self) -> None:
        """From now on a thread beats. It is not started earlier, so that it has the privileges of the run."""
        self.beat()
        if self._thread is not None:
            return
        thread = Thread(target=self._run, name="pytrace-heartbeat", daemon=True)
        thread.start()
        # One that could not be started (ulimit -u) cannot be waited for.
        self._thread = thread
        self.thread = thread.native_id or 0

    def stop(self) -> None:
        """The run ends: the kernel may take its time to detach probes.

        The thread ends before programs stop: a map of calls that have begun would keep the one that it waits in.
        """
        self.close()
        with self._lock:
            self._memory[0] = self._deadline = NEVER

    @postponed()  # an exception within Event.set() would leave its lock taken
    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def gaps(self) -> list[Gap]:
        """The gaps since the last call, all of them over: the caller's asking is a beat, too."""
        self.beat()
        with self._lock:
            ended, self._gaps = self._gaps, []
        return ended

    # ---- the thread

    def _run(self) -> None:
        every = min(LONGEST, self._seconds / 4)
        pause = every
        while not self._over.wait(pause):
            alive = self._alive()
            if alive:
                self.beat()
            pause = every if alive else _STUCK_AGAIN

    def _alive(self) -> bool:
        """Whether the thread of the run has worked a moment ago."""
        used, now = time.clock_gettime_ns(self._clock), time.monotonic()
        if used != self._used:
            self._used, self._progress = used, now
        return self._lenient or now - self._progress <= max(self._seconds, IDLE)


# ---------------------------------------------------------------------------------------------- memory

TOLD = 256 << 20
"""Memory of maps that is reported before probes are attached."""
LEAST = 256 << 20
"""Minimum of the default limit: a tenth of a small machine's memory is too little for pytrace itself."""
MEMORY_EVERY = 1.0
"""Seconds between two checks of the memory of pytrace."""
_SHOWN = 3
"""Maximum number of parts that a message names."""

RING = "the event ring"
WAITING = "events that wait to be printed"
OWN = "pytrace itself with its symbol caches"
PROGRAMS = "variables and scratch memory of the programs"


def charged_by_symbol(descriptors: Mapping[str, Iterable[int]]) -> dict[str, int]:
    """Bytes by symbol that the kernel has charged."""
    return {symbol: sum(map(charged_bytes, several)) for symbol, several in descriptors.items()}


class MemoryWatch(Service):
    """Ends a run that exceeds *wanted*, a value of ``--max-memory``; empty for the default.

    The memory of a run is that of its maps, its event ring, and of pytrace with its symbol caches together. Maps and
    ring are allocated when they are loaded and do not grow: whether they fit is checked before that. The memory of
    pytrace itself is checked once a second; a run that exceeds its limit ends in order. In an embedding program only
    the events that wait to be handled count beside maps and ring: the rest is that program's.
    """

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
        charged = self._named(charged_by_symbol(script.fds_by_symbol()))
        # Kernels before 6.4 do not know the memory of a map exactly.
        self._maps = {name: max(size, charged.get(name, 0)) for name, size in self._maps.items()}
        self._ring, self._warn = ring, warn
        total = sum(self._maps.values())
        if total > TOLD:
            tell(f"Maps take {shown_memory(total)} of kernel memory: {_largest(self._maps)}\n")

    # ---- the run

    def woken(self, _ready: list[int]) -> None:
        """Check the memory once in :data:`MEMORY_EVERY` seconds."""
        now = time.monotonic()
        if now < self._next or self._over:
            return
        self._next = now + MEMORY_EVERY
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
            end.errors.append(f"the run was ended at its memory limit of {shown_memory(self.limit)} (--max-memory)")

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
        total = shown_memory(sum(parts.values()))
        return f"{total} of memory, more than {shown_memory(self.limit)} ({self._origin}): {_largest(parts)}"

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
    amount = parse_memory(wanted, total)
    if amount > total:
        return total, f"max_memory is {wanted}, but {whole} has {shown_memory(total)}"
    return amount, f"max_memory is {wanted}"


def _largest(parts: Mapping[str, int]) -> str:
    ordered = sorted((item for item in parts.items() if item[1]), key=lambda item: -item[1])
    texts = [f"{name} {shown_memory(size)}" for name, size in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        texts.append(f"others {shown_memory(sum(size for _, size in ordered[_SHOWN:]))}")
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


# ---------------------------------------------------------------------------------------------- the end of processes

EXEC_EVERY = 0.1
"""Seconds between two checks whether the program of ``--exec-wait`` was executed."""


class RunEnd(Service):
    """Ends the run when the processes of ``-p``, ``-c`` or ``--exec-wait`` have ended, or the time is over.

    *command* is the descriptor of the process of ``-c``, if there is one.

    Raises:
        TraceError: there is no such process.
    """

    def __init__(
        self, options: RunOptions, command: tuple[int, ...], loaded: LoadedScript, loop: EventLoop, stack: ExitStack
    ) -> None:
        self._stack = stack
        self._loaded = loaded
        self._duration = options.duration
        self._deadline: float | None = None
        self._waits = bool(options.filters.exec_wait)
        self._targets = set(command) or {_process(pid, stack) for pid in options.filters.pids}
        self._loop = loop
        self._over = False

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of the processes (pidfds)."""
        return tuple(self._targets)

    @property
    def over(self) -> bool:
        """Whether the processes have ended, or the time is over."""
        return self._over

    def begin(self) -> None:
        """The time of the run begins."""
        if self._duration is not None:
            self._deadline = time.monotonic() + self._duration

    def pause(self, longest: float) -> float:
        """Seconds until the time is over or the program has to be looked for, at most *longest*."""
        if self._waits:
            longest = min(longest, EXEC_EVERY)
        if self._deadline is not None:
            longest = min(longest, max(0.0, self._deadline - time.monotonic()))
        return longest

    def woken(self, ready: list[int]) -> None:
        """Check which processes have ended."""
        self._over = self._over or self._reached(ready)

    def _reached(self, ready: list[int]) -> bool:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return True
        if self._waits and self._executed():
            return True
        ended = self._targets.intersection(ready)
        if not ended:
            return False
        self._targets -= ended
        for descriptor in ended:
            self._loop.unwatch(descriptor)
        return not self._targets

    def _executed(self) -> bool:
        """Check whether the program of ``--exec-wait`` was executed. Returns whether its process has ended already."""
        data = self._loaded.manifest.session
        if data is None:
            return False
        (number,) = struct.unpack_from("=Q", self._loaded.section(data.section), data.root)
        if number == NOT_YET:
            return False
        self._waits = False
        try:
            descriptor = os.pidfd_open(number)
        except (OSError, OverflowError):
            return True
        self._stack.callback(os.close, descriptor)
        self._targets.add(descriptor)
        self._loop.watch(descriptor)
        return False


def _process(pid: int, stack: ExitStack) -> int:
    """A descriptor that becomes readable when a process has ended."""
    procfs.check_traceable(pid)
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        procfs.check_exists(pid)
        raise TraceError(f"cannot trace process {pid}: {error.strerror}") from error
    stack.callback(os.close, descriptor)
    return descriptor


# ---------------------------------------------------------------------------------------------- first threads

_SOON = 0.0005
"""Seconds between the first looks at a process whose first thread is ending: it may end whole, or another take its
place."""
_SETTLED = 1.0
"""Seconds after which a first thread has ended for good, and others go on."""
_LINKS_EVERY = 0.05
"""Seconds between later looks, and at links whose thread has no event."""


class _Bound(msgspec.Struct):
    """A process that user probes are bound to. *event* belongs to its first thread; -1 where that is not to be had."""

    pid: int
    event: int
    since: float = 0.0
    """When that thread ended or began to, or probes were last attached."""
    told: bool = False


class FirstThreads(Service):
    """Keeps user probes in processes whose first thread goes, and says what that costs.

    The kernel binds such probes to the task of the first thread, whose memory it compares when a file is mapped
    (``uprobe_multi_link_filter``, ``__uprobe_perf_filter``). When another thread executes a program, it takes over the
    number, and that task ends (``de_thread`` of fs/exec.c): the new program would have no probes. A perf event of the
    task hangs up at its end; one of the next task may not be opened any more, so its links are asked.
    """

    def __init__(
        self,
        probes: Probes,
        loop: EventLoop,
        warn: Callable[[str, tuple[str, ...]], None],
        stack: ExitStack,
        *,
        embedded: bool,
    ) -> None:
        self._probes = probes
        self._loop = loop
        self._warn = warn
        option = "follow=True" if embedded else "--follow"
        self._hints = (f"{option} keeps them, in all processes that run this code",)
        self._stack = stack
        self._processes: list[_Bound] = []
        self._by_links = False
        self._next = float("inf")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of the events."""
        return tuple(bound.event for bound in self._processes if bound.event >= 0)

    def attached(self) -> None:
        """Open an event for each process."""
        self._by_links = self._probes.bound_by_links and all(map(self._probes.bound_to, self._probes.bound))
        self._processes = [_Bound(pid, self._event(pid)) for pid in self._probes.bound]
        if any(bound.event < 0 for bound in self._processes):
            self._next = 0.0

    def _event(self, pid: int) -> int:
        try:
            attr = perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY)
            event = perf.open_event(attr, pid=pid)
        except OSError:
            return -1
        self._stack.callback(os.close, event)
        try:
            # An event without a ring is always hung up (perf_poll).
            self._stack.enter_context(mmap.mmap(event, 2 * mmap.PAGESIZE))
        except OSError:
            return -1
        return event

    def pause(self, longest: float) -> float:
        """Seconds until the next look, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def woken(self, ready: list[int]) -> None:
        """Look at processes whose first thread has ended, or at all that have no event (any more)."""
        now = time.monotonic()
        for bound in self._processes:
            if bound.event in ready:
                self._loop.unwatch(bound.event)
                bound.event, bound.since, self._next = -1, now, now
        if now < self._next:
            return
        for bound in [bound for bound in self._processes if bound.event < 0]:
            self._look(bound, now)
        waits = (min(_LINKS_EVERY, max(_SOON, (now - bound.since) / 4)) for bound in self._processes if bound.event < 0)
        self._next = time.monotonic() + min(waits, default=float("inf"))

    def _look(self, bound: _Bound, now: float) -> None:
        thread = procfs.live_thread(bound.pid)
        settled = now > bound.since + _SETTLED
        if not thread:
            if settled:
                self._processes.remove(bound)
        elif thread == bound.pid:
            self._look_at_links(bound)
        elif settled and not bound.told:
            bound.told = True
            what = "libraries that it opens from now on have no user probes"
            what = f": {what}" if self._by_links else ", and its user probes with it"
            self._warn(f"the first thread of {_shown(bound.pid)} has ended{what}", self._hints)
            if not self._by_links:
                self._processes.remove(bound)

    def _look_at_links(self, bound: _Bound) -> None:
        """Attach again to the thread that has taken over the number of its process, if one has."""
        if self._by_links and self._probes.bound_to(bound.pid):
            return
        what = "they end here"
        if self._by_links:
            failures = self._probes.bind_again(bound.pid)
            what = str(failures[0]) if failures else "they are attached again, and what it did meanwhile is not traced"
            bound.since, bound.told = time.monotonic(), False
        else:
            self._processes.remove(bound)
        text = f"a thread of {_shown(bound.pid)} executed a program, which ended its user probes"
        self._warn(f"{text}: {what}", self._hints)


def _shown(pid: int) -> str:
    return f"{pid} ({printable_text(kernel_files.process_name(pid))})"


# ---------------------------------------------------------------------------------------------- changes of the machine

_MOVES_APART = 0.025
"""Minimum seconds between two moves of sampling clocks; those that become due meanwhile are moved together."""


class SamplingClocks(Service):
    """Moves the periods of the clocks that sample CPUs (:class:`pytrace.runtime.load.probe_links.SamplingClock`)."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self._next = float("inf")

    def begin(self) -> None:
        """The phases of the clocks are random by now, and their next periods are due."""
        self._move()

    def pause(self, longest: float) -> float:
        """Seconds until the next move, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Move the clocks that are due."""
        if time.monotonic() >= self._next:
            self._move()

    def stop(self) -> None:
        """The run ends."""
        self._next = float("inf")

    def _move(self) -> None:
        due = self._probes.move_clocks(time.monotonic_ns()) / 1e9
        self._next = max(due, time.monotonic() + _MOVES_APART)


LOOK_EVERY = 1.0
"""Seconds between two looks at the clocks."""
_FILES_EVERY = 5.0
"""Seconds between two looks at the probed files."""
_AGAIN = "start pytrace again to trace the new one"
STEP = 500_000_000
"""Nanoseconds: a smaller change within a second is that of a clock that is corrected slowly, or of two readings."""


class MachineChanges(Service):
    """Looks for changes of the machine, and reports them by *warn*.

    The kernel ends perf events of a CPU that goes offline, and does not begin them again. Their probes are attached
    again, or what they do not observe is reported. A file that is replaced is another one for the kernel, and kprobes
    of a module end with it (other probes keep it loaded), which is reported too.

    *pids* are the processes of ``-p``.
    """

    def __init__(
        self,
        probes: Probes,
        symbols: LazySymbols,
        loop: EventLoop,
        manifest: Manifest,
        pids: Iterable[int],
        warn: Callable[[str, tuple[str, ...]], None],
        stack: ExitStack,
    ) -> None:
        self._probes = probes
        self._symbols = symbols
        self._loop = loop
        self._pids = tuple(pids)
        self._warn = warn
        self._events = _subscribed(stack)
        self._online: set[int] = set()
        self._files: dict[str, tuple[int, ...]] = dict.fromkeys(probed_files(manifest), ())
        self._functions = probed_functions(manifest)
        self._unloaded: set[str] = set()
        self._kernel_symbols = _opened_symbols(stack) if self._functions else None
        self._clocks = (0, 0)
        self._next = self._next_files = float("inf")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptor of the kernel's events."""
        return () if self._events is None else (self._events,)

    def attached(self) -> None:
        """Remember the state in which the probes were attached."""
        self._files = {path: _identity(path) for path in self._files}
        for pid in self._pids if self._files else ():
            for path in sorted(_outdated(pid, self._files)):
                hint = "probes attach to the file that has the name now; restart the process"
                self._warn(f"process {pid} runs an older {path}, which was replaced or removed", (hint,))
        self._online = set(perf.online_cpus())
        self._clocks = _clocks()
        self._next, self._next_files = time.monotonic() + LOOK_EVERY, time.monotonic() + _FILES_EVERY

    def woken(self, ready: list[int]) -> None:
        """Look at what has changed, when the kernel says so or it is time."""
        if self._events in ready:
            self._read_events()
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LOOK_EVERY
            self._look_at_cpus()
            self._look_at_clocks()
        if now >= self._next_files:
            self._next_files = now + _FILES_EVERY
            self._look_at_files()

    def stop(self) -> None:
        """Look for the last time."""
        self._look_at_clocks()
        self._look_at_files()

    # ---- CPUs

    def _read_events(self) -> None:
        assert self._events is not None
        try:
            cpus, modules = syscalls.read_device_events(self._events)
        except OSError:
            # There were more than the socket holds.
            self._renew("CPUs went offline and came back", perf.online_cpus())
            return
        for cpu, online in cpus:
            self._renew(f"CPU {cpu} {'came online' if online else 'went offline'}", [cpu], online=online)
        for module, loaded in modules:
            self._module_changed(module, loaded=loaded)

    def _look_at_cpus(self) -> None:
        """Without events, for example in a user namespace, CPUs are looked for."""
        if self._events is not None:
            return
        before, self._online = self._online, set(perf.online_cpus())
        for cpu in sorted(before ^ self._online):
            online = cpu in self._online
            self._renew(f"CPU {cpu} {'came online' if online else 'went offline'}", [cpu], online=online)

    def _renew(self, what: str, cpus: Iterable[int], *, online: bool = True) -> None:
        probes: dict[str, None] = {}
        failures: dict[str, None] = {}
        for cpu in cpus:
            renewed, failed = self._probes.renew(cpu, online=online)
            probes |= dict.fromkeys(renewed)
            failures |= dict.fromkeys(failed)
            for descriptor in self._symbols.renew(cpu) if online else ():
                self._loop.watch(descriptor)
        if probes:
            first, *others = probes
            named = f"{first} and {len(others)} more were" if others else f"{first} was"
            self._warn(f"{what}: {named} attached again", ())
        for failure in failures:
            self._warn(f"{what}: {failure}", ())

    # ---- modules

    def _module_changed(self, module: str, *, loaded: bool) -> None:
        if loaded:
            if module in self._unloaded:
                self._warn(f"module {module} was loaded again, but its probes are not", (_AGAIN,))
            return
        if self._kernel_symbols is None:
            return
        gone = self._functions - _known(self._functions, self._kernel_symbols)
        self._functions -= gone
        if gone:
            self._unloaded.add(module)
            first, *others = sorted(gone)
            named = f"{first} and {len(others)} more" if others else first
            self._warn(f"module {module} was unloaded: kprobes of {named} ended with it", ())

    # ---- clocks

    def _look_at_clocks(self) -> None:
        before, self._clocks = self._clocks, _clocks()
        wall, asleep = (now - then for now, then in zip(self._clocks, before, strict=True))
        if asleep > STEP:
            what = f"the machine was suspended for {asleep / 1e9:.1f} s"
            self._warn(what, ())
            # All CPUs but one went offline, without events.
            self._renew(what, perf.online_cpus())
        if abs(wall) > STEP:
            way = "forward" if wall > 0 else "back"
            hint = "wall times of this run are those of the clock at its start"
            self._warn(f"the clock was set {way} by {abs(wall) / 1e9:.1f} s", (hint,))

    # ---- files

    def _look_at_files(self) -> None:
        for path, before in list(self._files.items()):
            now = _identity(path)
            if now == before or not before:
                continue
            del self._files[path]
            if now[:2] == before[:2]:
                text = f"{path} was overwritten while it was traced: probes in it may be at wrong instructions"
            else:
                what = "replaced" if now else "removed"
                text = f"{path} was {what} while it was traced: only the old file is observed"
            self._warn(text, (_AGAIN,) if now else ())


def probed_functions(manifest: Manifest) -> set[str]:
    """Names of kernel functions with kprobes, which hold no module."""
    targets = (target.place for program in manifest.programs for target in program.targets)
    return {place.function for place in targets if isinstance(place, KernelFunctionTarget) and place.function}


def _opened_symbols(stack: ExitStack) -> TextIO | None:
    """The kernel's symbols: opened early, as a run that is confined opens no more files. None where they are hidden."""
    try:
        return stack.enter_context(open("/proc/kallsyms", encoding="ascii", errors="replace"))
    except OSError:
        return None


def _known(names: set[str], symbols: TextIO) -> set[str]:
    """Those of *names* that the kernel and its loaded modules have now."""
    symbols.seek(0)
    return names.intersection(line.split(maxsplit=3)[2] for line in symbols)


def _subscribed(stack: ExitStack) -> int | None:
    try:
        descriptor = syscalls.subscribe_device_events()
    except OSError:
        # Without them the list of CPUs is read.
        return None
    stack.callback(os.close, descriptor)
    return descriptor


def _identity(path: str) -> tuple[int, ...]:
    """Device, number, size and time of change of a file; nothing when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _outdated(pid: int, files: Iterable[str]) -> set[str]:
    """Those of *files* of which a process has mapped a deleted one of the same name, and not the one of now."""
    if procfs.root_prefix(pid):
        return set()
    # A name may have what other functions take for the end of a line.
    rows = (line.split(maxsplit=5) for line in procfs.read_maps(pid).split(b"\n"))
    mapped = {row[5] for row in rows if len(row) == 6}
    names = {path: os.fsencode(os.path.realpath(path)) for path in files}
    return {path for path, name in names.items() if name + b" (deleted)" in mapped and name not in mapped}


def _clocks() -> tuple[int, int]:
    """Wall time and boot time, in nanoseconds: minus boot time, and minus the time without suspensions."""
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.time_ns() - boot, boot - time.monotonic_ns()
