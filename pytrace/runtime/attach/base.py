"""Shared by all attachers: options, results, and attachment to perf events."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probes.kinds import PidFilter, ProbeKind, known_kind
from pytrace.core.probes.targets import UserTarget
from pytrace.runtime.attach.opened import CpuEvents, Opened
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.loader import has_feature
from pytrace.runtime.machine import bpf, perf, procfs


class AttachOptions(msgspec.Struct, frozen=True):
    """How to attach.

    *pids* are the processes of ``-p``, or that of ``-c``, for the kinds of probes whose filter is the kernel's
    (``PidFilter.ATTACH``), which are attached for each; with *follow* also the processes that it forks. *unbound*: user
    probes are attached for all processes once, as programs compare those of ``-p`` themselves, too, and the kernel
    binds none to one whose first thread has ended (``uprobe_multi_link_filter`` of kernel/trace/bpf_trace.c,
    ``__uprobe_perf_filter``). *child* is the process of ``-c``. *awaits*: programs look for the process of
    ``--exec-wait`` and its children themselves. *missing_probes* is the config key.
    *disabled* are features to do without (``--no-feature``). *file_activation* is ``--usdt-file-activation``. *feature*
    answers whether the kernel has a feature. *progress* is called before the first target and after each one.
    """

    pids: tuple[int, ...] = ()
    awaits: bool = False
    follow: bool = False
    unbound: bool = False
    child: int | None = None
    missing_probes: str = "error"
    disabled: frozenset[str] = frozenset()
    file_activation: bool = False
    feature: Callable[[str], bool] = has_feature
    progress: Callable[[], object] = bool

    def has(self, name: str) -> bool:
        """Whether a kernel feature is there and wanted."""
        return name not in self.disabled and self.feature(name)

    @property
    def pid(self) -> int | None:
        """The first of *pids*; None for all processes."""
        return self.pids[0] if self.pids else None

    @property
    def uprobe_pid(self) -> int | None:
        """The process that user probes are bound to; none when programs look for processes themselves."""
        return None if self.follow or self.unbound else self.pid

    @property
    def event_pids(self) -> tuple[int, ...]:
        """The processes whose perf events are wanted, and with *follow* those of what they fork, which inherits them.

        None when programs look for followed processes themselves: of those that run already (``-p``) any may have
        inherited an event or not.
        """
        return () if self.awaits or (self.follow and self.child is None) else self.pids

    def each(self, kind: ProbeKind) -> list[AttachOptions]:
        """These options for each process that programs of *kind* are attached for; perf events are for all at once."""
        apart = kind.pid_filter is PidFilter.ATTACH and kind.user and len(self.pids) > 1
        apart = apart and not self.follow and not self.unbound
        return [replace(self, pids=(pid,)) for pid in self.pids] if apart else [self]


class Failure(msgspec.Struct, frozen=True):
    """One target that could not be attached, and why.

    *gone*: it is in a file or program that a pattern found and that is no longer there, as if it had gone before.
    *limit*: a limit of the machine is reached, so nothing is wrong with the target.
    """

    target: Target
    reason: str
    hints: tuple[str, ...] = ()
    gone: bool = False
    limit: bool = False

    def __str__(self) -> str:
        return f"cannot attach {self.target.probe}: {self.reason}"


class CannotAttachError(Exception):
    """Raised inside an attacher for one target; becomes a :class:`Failure`."""

    def __init__(self, reason: str, *, hints: Iterable[str] = (), gone: bool = False, limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hints = tuple(hints)
        self.gone = gone
        self.limit = limit


class Attached(msgspec.Struct, frozen=True):
    """One target that a program is attached to.

    *iterator* is the link of an ``iter`` probe that is to be read
    (:func:`pytrace.runtime.attach.iterator.read`).
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


Outcome = Attached | Failure
Attacher = Callable[[Job, Opened], list[Outcome]]
"""Attaches one program to all its targets and hands over what it opens; targets that fail leave nothing open."""

SingleAttacher = Callable[[Job, Target, Opened], Attached]


LIMITS = frozenset({errno.EAGAIN, errno.EDQUOT, errno.ENOSPC})
"""Error numbers of what there is too little of."""
OF_ALL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Error numbers that are about the whole machine or process: other targets would not fare better."""


def _number(error: BaseException | None) -> int | None:
    """The number of an error that the kernel gave.

    Raises:
        OSError: it is about the whole machine or process: other targets would not fare better.
    """
    if not isinstance(error, OSError):
        return None
    if error.errno in OF_ALL:
        raise error
    return error.errno


def one_by_one(attach: SingleAttacher) -> Attacher:
    """An attacher that makes one link for each target."""

    def attach_targets(job: Job, opened: Opened) -> list[Outcome]:
        return [attempt(attach, job, target, opened) for target in job.spec.targets]

    return attach_targets


def attempt(attach: SingleAttacher, job: Job, target: Target, opened: Opened) -> Outcome:
    """Attach one target; a failure closes what was opened for it."""
    own = Opened()
    try:
        done = attach(job, target, own)
        opened.take(own)
    except CannotAttachError as error:
        number = _number(error.__context__)
        return Failure(target, error.reason, error.hints, error.gone, error.limit or number in LIMITS)
    except OSError as error:
        return Failure(target, str(error.strerror or error), limit=_number(error) in LIMITS)
    finally:
        own.close()
    return done


Linker = Callable[[Sequence[Target]], int]


def in_one_link(
    job: Job,
    targets: Sequence[Target],
    link: Linker,
    explain: Callable[[Target, OSError], Failure],
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


def attach_event(
    job: Job, event: int, cookie: int, opened: Opened, *, tracepoint: bool = False, enabled: bool = True
) -> None:
    """Put the program on an open perf event, which is handed over: by a link, or by ioctl without cookie."""
    (opened.idle_events if tracepoint and job.by_link else opened.events).append(event)
    if job.by_link:
        opened.links.append(bpf.link_perf_event(job.program, event, cookie))
        return
    perf.set_bpf(event, job.program)
    if enabled:
        perf.enable(event)


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
        attach_event(job, event, target.cookie, opened, enabled=not begins_at_exec)


def threads(pid: int) -> list[int]:
    """Thread ids of a process.

    Raises:
        CannotAttachError: there is no such process.
    """
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        raise CannotAttachError(f"there is no process {pid}") from None


def failure_error(failures: Sequence[Failure]) -> TraceError:
    """The error for probes that could not be attached: the first in words, the number of the others."""
    first = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    if first.limit:
        return TraceError(f"{first}{more}", hints=first.hints)
    hints = (*first.hints, "config key missing_probes: warn or ignore continues without such probes")
    return TraceError(f"{first}{more}", hints=hints)
