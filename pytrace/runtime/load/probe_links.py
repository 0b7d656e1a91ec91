"""What attachers share: options, outcomes, attachment to perf events; and the links and events of attached probes.

Those have the hits that the kernel did not run programs for, and are closed here. The kernel counts two kinds of
skipped hits:

- A program that is hit while it runs already on that CPU (or, for kprobes, tracepoints and perf events, while any such
  program runs) is not run: ``recursion_misses`` of ``struct bpf_prog_info`` (trampolines since 5.12, others since 6.7).
- A kprobe that is hit inside of another, and a kretprobe that has no room to remember one more call, is not run:
  ``missed`` of the link's information (since 6.7), or the third column of ``kprobe_profile`` for probes made
  through tracefs.

Each close waits for the kernel. When a program leaves a perf event the kernel waits for all programs that may still run
(``perf_event_detach_bpf_prog`` since 6.13), some hundredths of a second each time, but one wait serves all who wait at
that moment. So links are closed by many threads at once, and then events likewise.

The last event of a tracepoint waits under a global lock (``event_mutex`` in ``perf_trace_destroy``), so threads do not
help. But once its link is closed no program runs any more and nothing depends on when the event is closed. A BPF map of
perf events holds these files (``kernel/bpf/arraymap.c``); when the map is freed, a kernel worker closes them one after
the other.

Kernels without perf probe events have ``kprobe_events`` and ``uprobe_events`` of tracefs. A probe is made by writing
its definition, is a tracepoint from then on, and is removed by name. The names have the process id in them, so what a
killed tracer left behind can be told from what is in use: the next one that makes such a probe removes it.

A semaphore is a ``u16`` in the traced program's data that counts its tracers; while it is 0 the program skips the
probe. Uprobes before 4.20 keep no reference counters.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial

import msgspec
from msgspec.structs import replace

from pytrace.base.control_characters import printable_text
from pytrace.base.interruption import postponed
from pytrace.base.kernel_files import process_name
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapType, ProgramSpec, Target
from pytrace.core.probe_kinds import KPROBE, KRETPROBE, PidFilter, ProbeKind, UserTarget, known_kind
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.loader import has_feature
from pytrace.runtime.machine import bpf, fingerprints, perf, procfs

# ----------------------------------------------------------------------------------------------------- links and events


class SamplingClock(msgspec.Struct):
    """The clock event of one CPU, whose period is moved so that it cannot run in step with what it samples.

    Work that a timer begins is in the same place at each sample of the same frequency, and perf has no jitter. So the
    first phase is random, and the period is another one several times a second, by up to :data:`_MOVES` of *mean*
    (nanoseconds). Setting a period restarts it, so a part of one is lost each time; the next ones are shorter by what
    is behind the mean, which the number of samples keeps for that reason.
    """

    event: int
    mean: int
    every: int
    """Nanoseconds between two moves, about."""
    started: int = 0
    armed: int = 0
    """When the period was set, by the monotonic clock."""
    period: int = 0
    samples: int = 0
    """Number of samples until then."""
    due: int = 0

    def start(self, now: int) -> None:
        """Begin with a period of random length, for the phase."""
        self.started = now
        self._set(now, round(self.mean * (0.5 + _random_fraction())), 1)

    def move(self, now: int) -> None:
        """Set another period."""
        self.samples += (now - self.armed) // self.period
        behind = (now - self.started) / self.mean - self.samples
        count = max(1, round(self.every / self.mean * (0.75 + _random_fraction() / 2)))
        # Bounded: samples that cannot be made up for, after a suspension for example, are none of this CPU's time.
        if abs(behind) > 2 * count + 1:
            self.started, self.samples, behind = now, 0, 0.0
        share = count / max(count + behind, 1e-9)
        middle = self.mean * min(max(share, 1 - _MOST_CORRECTION), 1 + _MOST_CORRECTION)
        self._set(now, round(middle * (1 + _MOVES * (2 * _random_fraction() - 1))), count)

    def _set(self, now: int, period: int, count: int) -> None:
        perf.set_period(self.event, period)
        self.armed, self.period, self.due = now, period, now + period * count


_MOVES = 0.25
"""Maximum part of the mean by which a period is longer or shorter. Simulated with work at 100 Hz, sampled at 49 to 997
Hz: shares of 1,000 samples deviate 1.0 to 1.2 times as much as those of random moments; with 0.05 up to 3 times."""
_MOST_CORRECTION = 0.4
"""Maximum part of the mean by which a period makes up for samples that are missing."""
_MOVE_EVERY = 250_000_000
_CPUS_AT_ONCE = 32
"""A move takes some microseconds, and interrupts the CPU: with more CPUs than these each is moved less often."""


def _random_fraction() -> float:
    """A number from 0 to 1; ``random`` takes milliseconds to import."""
    return int.from_bytes(os.urandom(4)) / (1 << 32)


class CpuEvents(msgspec.Struct):
    """The perf events of one probe that belong to CPUs. The kernel ends such an event when its CPU goes offline.

    *attach* opens and links the event of a CPU. With *one* the probe has an event on any one CPU (``interval``), else
    on each that is online. *mean* is not 0 for a clock whose period is moved (:class:`SamplingClock`).
    """

    probe: str
    attach: Callable[[int, Opened], None]
    one: bool = False
    parts: dict[int, Opened] = msgspec.field(default_factory=dict)
    """Link and event by CPU."""
    mean: int = 0
    clocks: dict[int, SamplingClock] = msgspec.field(default_factory=dict)
    """By CPU."""

    def add(self, cpu: int) -> None:
        """Attach to a CPU, in place of what was attached to it before.

        Raises:
            OSError: the kernel refuses.
        """
        self.drop(cpu)
        part = Opened()
        try:
            self.attach(cpu, part)
            if self.mean:
                every = max(_MOVE_EVERY, _MOVE_EVERY * (len(self.parts) + 1) // _CPUS_AT_ONCE)
                self.clocks[cpu] = SamplingClock(part.events[0], self.mean, every)
                self.clocks[cpu].start(time.monotonic_ns())
            self.parts[cpu] = part
        except BaseException:
            self.clocks.pop(cpu, None)
            part.close()
            raise

    def drop(self, cpu: int) -> None:
        """Close what is attached to a CPU, if anything."""
        self.clocks.pop(cpu, None)
        part = self.parts.pop(cpu, None)
        if part is not None:
            part.close()

    def move(self, now: int) -> int:
        """Move the clocks that are due or nearly so. Returns when the next one is, in monotonic nanoseconds.

        Clocks of many CPUs are moved together, as each time that the tracer wakes up costs a third of a millisecond.
        A CPU that has gone offline takes its event along: its clock is moved no more.
        """
        for clock in self.clocks.values():
            if clock.due <= now + clock.every // 4 and now - clock.armed >= clock.period:
                try:
                    clock.move(time.monotonic_ns())
                except OSError:
                    clock.due = NEVER_DUE
        return min((clock.due for clock in self.clocks.values()), default=NEVER_DUE)


NEVER_DUE = 1 << 63


class Opened(msgspec.Struct):
    """Links, perf events and other clean-up steps of attached probes; the owner calls :meth:`close`."""

    links: list[int] = msgspec.field(default_factory=list)
    events: list[int] = msgspec.field(default_factory=list)
    idle_events: list[int] = msgspec.field(default_factory=list)
    """Events of tracepoints, which do nothing once their links are closed."""
    holder: int | None = None
    """An empty map for :func:`close_later`, made by :meth:`reserve`; None when there is none."""
    steps: list[Callable[[], object]] = msgspec.field(default_factory=list)
    """Called last to first, after links and events are closed."""
    traced: dict[str, str] = msgspec.field(default_factory=dict)
    """Kernel probes made through tracefs: name of the event and symbol of the program."""
    watched: dict[int, Opened] = msgspec.field(default_factory=dict)
    """Links and events of watchpoints by address: the script may remove them while others stay."""
    cpu_events: list[CpuEvents] = msgspec.field(default_factory=list)
    programs: dict[str, Opened] = msgspec.field(default_factory=dict)
    """What belongs to one program each, by its symbol: a program may be detached while others stay."""

    def parts(self) -> Iterator[Opened]:
        """This, and what belongs to programs."""
        yield self
        yield from self.programs.values()

    def detach(self, symbol: str) -> None:
        """Detach one program."""
        part = self.programs.pop(symbol, None)
        if part is not None:
            part.close()

    def take(self, other: Opened) -> None:
        """Become the owner of everything in *other*."""
        self.links += other.links
        self.events += other.events
        self.idle_events += other.idle_events
        self.steps += other.steps
        self.traced.update(other.traced)
        for address, part in other.watched.items():
            self.watchpoint(address).take(part)
        self.cpu_events += other.cpu_events
        if other.holder is not None:
            self.holder, other.holder = other.holder, None
        self.programs.update(other.programs)
        other.links, other.events, other.idle_events = [], [], []
        other.steps, other.traced, other.watched, other.cpu_events, other.programs = [], {}, {}, [], {}

    def watchpoint(self, address: int) -> Opened:
        """Links and events of the watchpoints on an address."""
        return self.watched.setdefault(address, Opened())

    def unwatch(self, address: int) -> None:
        """Detach the watchpoints on an address, if any."""
        for whole in self.parts():
            part = whole.watched.pop(address, None)
            if part is not None:
                part.close()

    def on_cpus(self) -> Iterator[CpuEvents]:
        """The probes whose events belong to CPUs."""
        for whole in self.parts():
            yield from whole.cpu_events
            for part in whole.watched.values():
                yield from part.cpu_events

    def reserve(self) -> None:
        """Create the map that a quick end needs: a run gives up the privilege to create any."""
        idle = sum(len(part.idle_events) for part in self.parts())
        if idle and self.holder is None:
            self.holder = _event_holder(idle)

    @postponed()
    def close(self) -> None:
        """Detach: programs first leave their events, then the events go, then the other steps follow."""
        closing = Opened()
        closing.take(self)
        for part in closing.programs.values():
            closing.take(part)
        for part in closing.watched.values():
            closing.take(part)
        for events in closing.cpu_events:
            events.clocks.clear()
            for part in events.parts.values():
                closing.take(part)
        close_all(closing.links)
        close_all(closing.events)
        close_later(closing.idle_events, closing.holder)
        for step in reversed(closing.steps):
            step()


_PERF_LINK, _KPROBE_MULTI_LINK = 7, 8
"""``BPF_LINK_TYPE_PERF_EVENT``, ``BPF_LINK_TYPE_KPROBE_MULTI``."""
_PERF_KPROBES = frozenset({3, 4})
"""``BPF_PERF_EVENT_KPROBE``, ``BPF_PERF_EVENT_KRETPROBE``."""

_LINK_INFO = 64


def link_misses(link: int) -> int:
    """Hits that the kprobes of a link missed; 0 for links of other types."""
    data = bpf.info(link, _LINK_INFO)
    (link_type,) = struct.unpack_from("=I", data)
    if link_type == _KPROBE_MULTI_LINK:
        return int(struct.unpack_from("=Q", data, 32)[0])
    if link_type == _PERF_LINK and struct.unpack_from("=I", data, 16)[0] in _PERF_KPROBES:
        return int(struct.unpack_from("=Q", data, 48)[0])
    return 0


def profile_misses(text: str) -> dict[str, int]:
    """Misses by event name, from the text of ``kprobe_profile`` (name, hits, misses)."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


class MissReader:
    """Reads the misses of one script's programs, while its links and events in *opened* are open."""

    def __init__(self, loaded: LoadedScript, opened: Opened) -> None:
        self._loaded = loaded
        self._opened = opened
        self._indexes = {spec.symbol: index for index, spec in enumerate(loaded.manifest.programs)}
        self._programs = {bpf.prog_id(loaded.program_fd(symbol)): self._indexes[symbol] for symbol in loaded.symbols}
        # Programs that serve the script's ones (--follow) are written so that misses do not matter.
        services = {spec.symbol for spec in loaded.manifest.programs if spec.service}
        self._symbols = [symbol for symbol in loaded.symbols if symbol not in services]
        self._kernel_probes = [
            spec for spec in loaded.manifest.programs if spec.kind in (KPROBE, KRETPROBE) and not spec.part_of
        ]

    def totals(self) -> dict[tuple[str, int], int]:
        """Nonzero counts by kind (``recursion``, ``missed``) and program."""
        counts: dict[tuple[str, int], int] = {}
        for symbol in self._symbols:
            missed = bpf.recursion_misses(self._loaded.program_fd(symbol))
            if missed:
                counts["recursion", self._indexes[symbol]] = missed
        if self._kernel_probes:
            for index, missed in self._kprobes():
                counts["missed", index] = counts.get(("missed", index), 0) + missed
        return counts

    def _kprobes(self) -> list[tuple[int, int]]:
        counts = []
        for link in (link for part in self._opened.parts() for link in part.links):
            missed = link_misses(link)
            if missed:
                counts.append((self._programs[bpf.link_info(link)[2]], missed))
        traced = {name: symbol for part in self._opened.parts() for name, symbol in part.traced.items()}
        if traced:
            profile = self._profile()
            counts += [(self._indexes[symbol], profile.get(name, 0)) for name, symbol in traced.items()]
        return [(index, missed) for index, missed in counts if missed]

    def _profile(self) -> Mapping[str, int]:
        with open(f"{fingerprints.tracefs_root()}/kprobe_profile", encoding="utf-8") as file:
            return profile_misses(file.read())


_THREADS = 256
_STACK = 128 << 10
"""Bytes of stack of a thread that only closes files."""


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors, side by side when there are several."""
    waiting = deque(reversed(descriptors))
    if len(waiting) > 1:
        _close_by_threads(waiting)
    # The only one, or those that no thread could be started for.
    _close_some(waiting)


def _close_by_threads(waiting: deque[int]) -> None:
    before = threading.stack_size(_STACK)
    running: list[threading.Thread] = []
    try:
        for _ in range(min(len(waiting), _THREADS)):
            thread = threading.Thread(target=_close_some, args=(waiting,), daemon=True)
            thread.start()
            running.append(thread)
    except RuntimeError:
        # No more threads (ulimit -u, ulimit -v): the started ones close the rest.
        pass
    finally:
        threading.stack_size(before)
    for thread in running:
        thread.join()


def _close_some(waiting: deque[int]) -> None:
    while True:
        try:
            descriptor = waiting.popleft()
        except IndexError:
            return
        os.close(descriptor)


def close_later(events: Sequence[int], holder: int | None = None) -> None:
    """Have a kernel worker close perf events of tracepoints that no program is attached to.

    *holder* is a map with room for them, which is closed; without one it is made.
    """
    if holder is None and events:
        holder = _event_holder(len(events))
    if holder is None:
        close_all(events)
        return
    if not _hand_over(events, holder):
        os.close(holder)
        close_all(events)
        return
    for event in events:
        os.close(event)
    os.close(holder)


def _event_holder(entries: int) -> int | None:
    """A map for perf events; None if the kernel refuses."""
    try:
        return bpf.map_create(MapType.PERF_EVENT_ARRAY, 4, 4, entries, name="closing")
    except (OSError, TraceError):
        return None


def _hand_over(events: Sequence[int], holder: int) -> bool:
    """Put *events*, which are disabled, into a map. Returns whether the kernel took all."""
    try:
        for index, event in enumerate(events):
            perf.disable(event)
            bpf.map_update(holder, struct.pack("=I", index), struct.pack("=I", event))
    except OSError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------------ attaching


class AttachOptions(msgspec.Struct, frozen=True):
    """How to attach.

    *pids* are the processes of ``-p``, or that of ``-c``, for the kinds of probes whose filter is the kernel's
    (``PidFilter.ATTACH``), which are attached for each; with *follow* also the processes that it forks. *unbound*: user
    probes are attached for all processes once, where they are not :func:`bindable`, as programs compare those of ``-p``
    themselves, too. *child* is the process of ``-c``, and *interpreter* one that it has started, whose interpreter is
    probed for functions of Python. *awaits*: programs look for the process of ``--exec-wait`` and
    its children themselves. *missing_probes* is the config key. *disabled* are features to do without
    (``--no-feature``). *file_activation* is ``--usdt-file-activation``. *feature* answers whether the kernel has a
    feature. *progress* is called before the first target and after each one.
    """

    pids: tuple[int, ...] = ()
    awaits: bool = False
    follow: bool = False
    unbound: bool = False
    child: int | None = None
    interpreter: int | None = None
    missing_probes: str = "error"
    disabled: frozenset[str] = frozenset()
    file_activation: bool = False
    feature: Callable[[str], bool] = has_feature
    progress: Callable[[], object] = bool

    def has(self, name: str) -> bool:
        """Whether a kernel feature is there and wanted."""
        return name not in self.disabled and self.feature(name)

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes of ``-p``, or without them that of ``-c``, whatever other filters select."""
        return self.pids or (() if self.child is None else (self.child,))

    @property
    def uprobe_pid(self) -> int | None:
        """The process that user probes are bound to; none when programs look for processes themselves."""
        return None if self.follow or self.unbound or not self.pids else self.pids[0]

    @property
    def event_pids(self) -> tuple[int, ...]:
        """The processes whose perf events are wanted, and with *follow* those of what they fork, which inherits them.

        None when programs look for followed processes themselves: of those that run already (``-p``) any may have
        inherited an event or not.
        """
        return () if self.awaits or self.finds_descendants else self.pids

    @property
    def finds_descendants(self) -> bool:
        """Whether programs look for followed processes themselves, among those that run already.

        With ``-p``, and where the command of ``-c`` has started processes before probes are attached.
        """
        return self.follow and (self.child is None or self.interpreter is not None)

    def each(self, kind: ProbeKind) -> list[AttachOptions]:
        """These options for each process that programs of *kind* are attached for; perf events are for all at once."""
        apart = kind.pid_filter is PidFilter.ATTACH and kind.user and len(self.pids) > 1
        apart = apart and not self.follow and not self.unbound
        return [replace(self, pids=(pid,)) for pid in self.pids] if apart else [self]


def bindable(pids: Iterable[int]) -> bool:
    """True if user probes can be bound to each process: the kernel binds none to one whose first thread has ended
    (``uprobe_multi_link_filter`` of kernel/trace/bpf_trace.c, ``__uprobe_perf_filter``).
    """
    return all(procfs.live_thread(pid) in (0, pid) for pid in pids)


_WORK_IN_CHILDREN = 4
"""How many times the CPU time of a process its children have where it is a server that leaves the work to them."""


class UntracedChildren(msgspec.Struct, frozen=True):
    """Children of the processes of ``-p`` that are not traced: a server of several processes works in its children."""

    parents: str
    """What the processes are called."""
    count: int
    notices: list[str]

    @classmethod
    def of(cls, pids: Sequence[int]) -> UntracedChildren | None:
        """Those that are not among *pids*, without this process and its ancestors; None where there are none."""
        own = {os.getpid(), *procfs.ancestors(os.getpid())}
        children = {child for pid in pids for child in procfs.children(pid)} - own - set(pids)
        if not children:
            return None
        named = named_processes(children)
        of = f"{pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
        what = "1 child process of {} is" if len(children) == 1 else f"{len(children)} child processes of {{}} are"
        notices = [f"{what.format(of)} not traced: --follow traces them, too{named and f' ({named})'}\n"]
        theirs, those = (sum(map(procfs.cpu_seconds, group)) for group in (children, pids))
        if theirs > 1 and theirs > _WORK_IN_CHILDREN * those:
            notices.append(f"They do the work: {theirs:.1f} s of CPU time so far, {of} {those:.1f} s\n")
        return cls(of, len(children), notices)


NAMED_PROCESSES = 8


def named_processes(pids: Iterable[int]) -> str:
    """Processes by name, for messages: ``gunicorn 710, 711; sh 802``, of many the first and how many more there are."""
    names: dict[str, list[str]] = {}
    ordered = sorted(pids)
    for pid in ordered[:NAMED_PROCESSES]:
        if name := printable_text(process_name(pid)):
            names.setdefault(name, []).append(str(pid))
    texts = [f"{name} {', '.join(numbers)}" for name, numbers in names.items()]
    more = len(ordered) - NAMED_PROCESSES
    return "; ".join([*texts, *([f"{more} more"] if more > 0 and texts else ())])


class RefusedTarget(msgspec.Struct, frozen=True):
    """One target that could not be attached, and why.

    *gone*: it is in a file or program that a pattern found and that is no longer there, as if it had gone before.
    *limit*: a limit of the machine is reached, so nothing is wrong with the target. *left_out*: a pattern found it
    among others, and the kernel probes no such instruction.
    """

    target: Target
    reason: str
    hints: tuple[str, ...] = ()
    gone: bool = False
    limit: bool = False
    left_out: bool = False

    def __str__(self) -> str:
        return f"cannot attach {self.target.probe}: {self.reason}"


class CannotAttachError(Exception):
    """Raised inside an attacher for one target; becomes a :class:`RefusedTarget`."""

    def __init__(
        self,
        reason: str,
        *,
        hints: Iterable[str] = (),
        gone: bool = False,
        limit: bool = False,
        left_out: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hints = tuple(hints)
        self.gone = gone
        self.limit = limit
        self.left_out = left_out


class Attached(msgspec.Struct, frozen=True):
    """One target that a program is attached to.

    *iterator* is the link of an ``iter`` probe that is to be read
    (:func:`pytrace.runtime.machine.bpf.read_iterator`).
    *note* is a message for the user (where an iterator was pinned).
    """

    spec: ProgramSpec
    target: Target
    iterator: int | None = None
    note: str = ""


class Job(msgspec.Struct, frozen=True, dict=True):
    """One program to attach, with all that an attacher needs. *program* is the program's descriptor."""

    spec: ProgramSpec
    program: int
    options: AttachOptions
    loaded: LoadedScript

    @cached_property
    def cpu(self) -> int:
        """A CPU that is online."""
        return perf.online_cpus()[0]

    @cached_property
    def by_link(self) -> bool:
        """Whether programs are put on perf events by links, which have cookies."""
        return self.options.has("perf_link")

    @property
    def multi(self) -> str:
        """The multi link that the program was loaded for, or nothing."""
        return self.loaded.multi(self.spec.symbol)

    @property
    def returns(self) -> bool:
        """Whether the program runs when a function returns, by a return address that the kernel replaces."""
        places = [target.place for target in self.spec.targets]
        leaving = any(isinstance(place, UserTarget) and place.leaving is not None for place in places)
        return known_kind(self.spec.kind).returns and not leaving


Outcome = Attached | RefusedTarget
Attacher = Callable[[Job, Opened], list[Outcome]]
"""Attaches one program to all its targets and hands over what it opens; targets that fail leave nothing open."""

_SingleAttacher = Callable[[Job, Target, Opened], Attached]


LIMITS = frozenset({errno.EAGAIN, errno.EDQUOT, errno.ENOSPC})
"""Error numbers of what there is too little of."""
OF_ALL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Error numbers that are about the whole machine or process: other targets would not fare better."""


def _error_number(error: BaseException | None) -> int | None:
    """The number of an error that the kernel gave.

    Raises:
        OSError: it is about the whole machine or process: other targets would not fare better.
    """
    if not isinstance(error, OSError):
        return None
    if error.errno in OF_ALL:
        raise error
    return error.errno


def one_by_one(attach: _SingleAttacher) -> Attacher:
    """An attacher that makes one link for each target."""

    def attach_targets(job: Job, opened: Opened) -> list[Outcome]:
        return [attempt(attach, job, target, opened) for target in job.spec.targets]

    return attach_targets


def attempt(attach: _SingleAttacher, job: Job, target: Target, opened: Opened) -> Outcome:
    """Attach one target; a failure closes what was opened for it."""
    own = Opened()
    try:
        done = attach(job, target, own)
        opened.take(own)
    except CannotAttachError as error:
        number = _error_number(error.__context__)
        limit = error.limit or number in LIMITS
        return RefusedTarget(target, error.reason, error.hints, error.gone, limit, error.left_out)
    except OSError as error:
        return RefusedTarget(target, str(error.strerror or error), limit=_error_number(error) in LIMITS)
    finally:
        own.close()
    return done


Linker = Callable[[Sequence[Target]], int]


def in_one_link(
    job: Job,
    targets: Sequence[Target],
    link: Linker,
    explain: Callable[[Target, OSError], RefusedTarget],
    opened: Opened,
) -> list[Outcome]:
    """Attach many targets with one link; where the kernel refuses some, with as few links as the others need.

    A multi link fails as a whole and does not say by which target, so a refused set is halved until the
    culprits stand alone.

    Args:
        job: the program.
        targets: at least one.
        link: makes the link for some of the targets and returns its descriptor.
        explain: the failure of one target that the kernel refuses by itself.
        opened: takes over the links.

    Returns:
        The outcome of each target, in their order.

    Raises:
        OSError: (ENOMEM) the kernel's memory does not suffice, whatever the targets.
    """
    try:
        descriptor = link(targets)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        if len(targets) == 1:
            return [explain(targets[0], error)]
        middle = len(targets) // 2
        first = in_one_link(job, targets[:middle], link, explain, opened)
        return first + in_one_link(job, targets[middle:], link, explain, opened)
    opened.links.append(descriptor)
    return [Attached(job.spec, target) for target in targets]


def attach_event(job: Job, event: int, cookie: int, opened: Opened, *, tracepoint: bool = False) -> None:
    """Put the program on an open perf event, which is handed over: by a link, or by ioctl without cookie.

    The event counts as it was opened; a tracepoint's program runs whether it counts or not.
    """
    (opened.idle_events if tracepoint and job.by_link else opened.events).append(event)
    if job.by_link:
        opened.links.append(bpf.link_perf_event(job.program, event, cookie))
        return
    perf.set_bpf(event, job.program)


def attach_event_on_cpus(
    job: Job, attr: perf.EventAttr, target: Target, opened: Opened, *, one: bool = False, mean: int = 0
) -> None:
    """Put the program on an event of every online CPU, or of any one; *opened* can attach it to other CPUs later.

    *mean* is the period in nanoseconds of a clock whose period is moved.
    """

    def attach(cpu: int, part: Opened) -> None:
        attach_event(job, perf.open_event(attr, cpu=cpu), target.cookie, part)

    events = CpuEvents(target.probe, attach, one, mean=mean)
    opened.cpu_events.append(events)
    for cpu in perf.online_cpus():
        try:
            events.add(cpu)
        except OSError:
            if cpu in perf.online_cpus():
                raise
            continue  # it went offline in the meantime
        if one:
            return


def attach_event_everywhere(
    job: Job, attr: perf.EventAttr, target: Target, opened: Opened, pids: Sequence[int]
) -> None:
    """Put the program on an event of every thread of the processes *pids*; without any, of every online CPU.

    Threads that start later are covered because events are inherited; the kernel does that from the parent thread.
    """
    if not pids:
        attach_event_on_cpus(job, attr, target, opened)
        return
    attr = attr.inheriting(threads_only=not job.options.follow)
    # Until it executes its program, the child of -c is a copy of this process.
    child = job.options.child
    begins_at_exec = child is not None and child in pids and not procfs.has_executed(child)
    if begins_at_exec:
        attr = attr.beginning_at_exec()
    for thread in (thread for pid in pids for thread in threads(pid)):
        try:
            event = perf.open_event(attr, pid=thread)
        except ProcessLookupError:
            continue
        attach_event(job, event, target.cookie, opened)


def threads(pid: int) -> list[int]:
    """Thread ids of a process.

    Raises:
        CannotAttachError: there is no such process.
    """
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        raise CannotAttachError(f"there is no process {pid}") from None


def failure_error(failures: Sequence[RefusedTarget]) -> TraceError:
    """The error for probes that could not be attached: the first in words, the number of the others."""
    first = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    if first.limit:
        return TraceError(f"{first}{more}", hints=first.hints)
    hints = (*first.hints, "config key missing_probes: warn or ignore continues without such probes")
    return TraceError(f"{first}{more}", hints=hints)


_numbers = itertools.count()

_LEFT = rf"(?m)^[pr]\d*:(({fingerprints.TRACER}(\d+))/p\3_\d+) "
"""A definition of ours: name with group, group, process."""


def open_kprobe(place: str, *, returns: bool, opened: Opened, symbol: str = "") -> int:
    """Define a kernel probe (*place* as in Documentation/trace/kprobetrace.rst) and open it as a perf event.

    *symbol* is the program that it is for, to tell whose hits were missed.
    """
    return _open("kprobe_events", place, returns, opened, symbol=symbol)


def open_uprobe(path: str, offset: int, semaphore: int, *, returns: bool, pid: int | None, opened: Opened) -> int:
    """Define a user probe and open it as a perf event.

    Args:
        path: the file that the kernel knows.
        offset: where in the file.
        semaphore: file offset of a reference counter, 0 for none.
        returns: at the return of the function that starts there.
        pid: the process; None for all.
        opened: removes the definition when it is closed.

    Returns:
        Descriptor of the event.
    """
    counter = f"({semaphore:#x})" if semaphore else ""
    return _open("uprobe_events", f"{path}:{offset:#x}{counter}", returns, opened, pid)


def _open(
    file: str, place: str, returns: bool, opened: Opened, pid: int | None = None, symbol: str = ""
) -> int:
    base = fingerprints.tracefs_root()
    # kprobe_profile shows names without their group, so they have the process id too.
    event = f"p{os.getpid()}_{next(_numbers)}"
    name = f"{fingerprints.TRACER}{os.getpid()}/{event}"
    sweep(f"{base}/{file}")
    _write(f"{base}/{file}", f"{'r' if returns else 'p'}:{name} {place}\n")
    opened.steps.append(partial(_write, f"{base}/{file}", f"-:{name}\n"))
    if symbol:
        opened.traced[event] = symbol
    with open(f"{base}/events/{name}/id", encoding="utf-8") as source:
        number = int(source.read())
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, number, period=1)
    if pid is not None:
        return perf.open_event(attr, pid=pid)
    return perf.open_event(attr, cpu=perf.online_cpus()[0])


@cache
def sweep(path: str) -> None:
    """Remove what tracers that are gone have left in a file of definitions; once in a process."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        found = re.findall(_LEFT, file.read())
    for name, _, process in found:
        if not os.path.exists(f"/proc/{process}"):
            # In use all the same (EBUSY) when the number is one of another pid namespace; or somebody else was faster.
            with contextlib.suppress(OSError):
                _write(path, f"-:{name}\n")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, text.encode(errors="surrogateescape"))
    finally:
        os.close(descriptor)


def raise_semaphore(path: str, offset: int, pid: int | None, *, everywhere: bool, opened: Opened) -> None:
    """Raise a semaphore.

    Args:
        path: the file with the probe.
        offset: where the semaphore lies in the file.
        pid: the process; None for all that map the file, if *everywhere*.
        everywhere: whether all processes may be searched (``--usdt-file-activation``).
        opened: lowers what was raised when it is closed.

    Raises:
        CannotAttachError: no process is named, or none maps the file.
    """
    if pid is None and not everywhere:
        raise CannotAttachError(
            "this probe has a semaphore, and the kernel cannot raise it", hints=("use -p or --usdt-file-activation",)
        )
    found = [pid] if pid is not None else procfs.process_ids()
    raised = 0
    for number in found:
        for address in _addresses(path, offset, number):
            if _add(number, address, 1):
                opened.steps.append(partial(_add, number, address, -1))
                raised += 1
    if not raised:
        raise CannotAttachError("no process that could be reached has mapped the file of this probe's semaphore")


def _addresses(path: str, offset: int, pid: int) -> list[int]:
    """Where a file offset lies in a process (its private, writable mapping)."""
    rows = procfs.writable_mappings(procfs.read_maps(pid))
    covering = [row for row in rows if row.offset <= offset < row.offset + row.end - row.start]
    return [row.start + offset - row.offset for row in covering if _maps(pid, row, path)]


def _maps(pid: int, row: procfs.Mapping, path: str) -> bool:
    """Whether a range is of that very file: numbers of inodes are those of other files on other file systems."""
    try:
        return os.path.samefile(path, f"/proc/{pid}/map_files/{row.start:x}-{row.end:x}")
    except OSError:
        return False


def _add(pid: int, address: int, change: int) -> bool:
    """Add to a semaphore; False when the process is gone or its memory cannot be written."""
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    except OSError:
        return False
    try:
        data = os.pread(descriptor, 2, address)
        if len(data) < 2:
            return False  # the process has given up its memory
        value = struct.unpack("=H", data)[0]
        os.pwrite(descriptor, struct.pack("=H", (value + change) & 0xFFFF), address)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
