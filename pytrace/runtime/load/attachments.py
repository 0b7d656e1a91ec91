"""Attaching: one attacher for each probe kind (:data:`ATTACHERS`); blocks run in the order of the script.

Here are those of kernel functions, tracepoints, perf events that count, and iterators; `user_probes` has the others.

kprobe and kretprobe have multi links, perf events, or the tracefs interface, whichever the kernel has; tracepoints perf
events with their number; rawtracepoint, fentry and fexit links without events; profile, interval, software, hardware
and watchpoint perf events with a program at each overflow. iter has a link from which files can be opened; reading such
a file runs the program for each object.

With ``--follow`` an iterator over tasks finds the existing descendants of a traced process. The programs that keep the
kernel's set of followed processes (``pytrace.codegen.walkers.service_programs``) run at forks, so they are attached
first. Then all processes are listed until there is no descendant that the set lacks: a process whose parent was not in
the set yet when it was forked is in the next list.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probe_kinds import (
    BPF_FILE_SYSTEM,
    FENTRY,
    FEXIT,
    HARDWARE,
    INTERVAL,
    ITER,
    KPROBE,
    KRETPROBE,
    PROFILE,
    PYTHON,
    PYTHONRET,
    RAW_TRACEPOINT,
    RAWTRACEPOINT,
    SOFTWARE,
    SYSTEM_CALLS,
    TRACEPOINT,
    UPROBE,
    URETPROBE,
    USDT,
    WATCHPOINT,
    CountedEventTarget,
    IteratorTarget,
    KernelFunctionTarget,
    TimerTarget,
    TracepointTarget,
    WatchpointTarget,
    known_kind,
    sampling_period,
)
from pytrace.runtime.load import probe_links
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.loader import ATTACH_TYPES
from pytrace.runtime.load.probe_links import (
    LIMITS,
    OF_ALL,
    Attached,
    Attacher,
    AttachOptions,
    CannotAttachError,
    Job,
    Opened,
    Outcome,
    RefusedTarget,
    attach_event,
    attach_event_everywhere,
    attach_event_on_cpus,
    attempt,
    failure_error,
    in_one_link,
    one_by_one,
)
from pytrace.runtime.machine import bpf, fingerprints, perf
from pytrace.runtime.machine.syscalls import ENOTSUPP, string_memory

if TYPE_CHECKING:
    from pytrace.runtime.machine.kernel_functions import Kallsyms

# ---------------------------------------------------------------------------------------------------- kprobe, kretprobe


_KPROBE_REASONS = {
    errno.ENOENT: "the kernel has no function of that name",
    errno.ESRCH: "the kernel has no function of that name that can be traced",
    errno.EINVAL: "the kernel does not allow a probe there (not traceable, on its blacklist, or not an instruction)",
    errno.EILSEQ: "the offset is not at the start of an instruction",
    errno.EADDRNOTAVAIL: "several functions have that name",
    errno.EOPNOTSUPP: "this kernel cannot probe that function",
    errno.EACCES: "no permission for a perf event, as in containers: use fentry, or several functions in one probe",
}


def attach_kprobe(job: Job, opened: Opened) -> list[Outcome]:
    """Attach a kprobe or kretprobe program to all its targets."""
    if not job.multi:
        return [attempt(_attach_kprobe_event, job, target, opened) for target in job.spec.targets]
    by_name = [target for target in job.spec.targets if _by_name(target.of(KernelFunctionTarget))]
    by_address = [target for target in job.spec.targets if not _by_name(target.of(KernelFunctionTarget))]
    outcomes = _attach_addresses(job, by_address, opened) if by_address else []
    if by_name:
        outcomes += in_one_link(job, by_name, lambda some: _link_symbols(job, some), _kprobe_failure, opened)
    return outcomes


def _by_name(place: KernelFunctionTarget) -> bool:
    """Whether the kernel finds a function by its name alone."""
    return place.address is None and not place.module and not place.shared


def _link_symbols(job: Job, targets: Sequence[Target]) -> int:
    return bpf.link_kprobe_multi(
        job.program,
        symbols=[target.of(KernelFunctionTarget).function for target in targets],
        cookies=[target.cookie for target in targets],
        returns=job.returns,
        session=job.multi == "kprobe_session",
    )


def _attach_addresses(job: Job, targets: Sequence[Target], opened: Opened) -> list[Outcome]:
    """The multi link takes names without their module, and of several functions of one name the first it finds: these
    go in by address.
    """
    places: list[Target] = []
    outcomes: list[Outcome] = []
    for target in targets:
        try:
            addresses = _addresses(target.of(KernelFunctionTarget))
        except CannotAttachError as error:
            outcomes.append(RefusedTarget(target, error.reason))
            continue
        places += [replace(target, place=KernelFunctionTarget(address=address)) for address in addresses]

    def link(some: Sequence[Target]) -> int:
        return bpf.link_kprobe_multi(
            job.program,
            addresses=[place.of(KernelFunctionTarget).address or 0 for place in some],
            cookies=[place.cookie for place in some],
            returns=job.returns,
            session=job.multi == "kprobe_session",
        )

    results = in_one_link(job, places, link, _kprobe_failure, opened) if places else []
    for target in targets:
        own = [result for result in results if result.target.cookie == target.cookie]
        if own:
            outcomes.append(_joined(job, target, own))
    return outcomes


def _joined(job: Job, target: Target, outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome for all functions of one name, of which the kernel may refuse some, as ftrace does not know them."""
    refused = [outcome for outcome in outcomes if isinstance(outcome, RefusedTarget)]
    if len(refused) == len(outcomes):
        return replace(refused[0], target=target)
    return Attached(job.spec, target, note=_some_refused(target, refused, len(outcomes)))


def _some_refused(target: Target, refused: Sequence[RefusedTarget], number: int) -> str:
    """The message where a probe is on some functions of a name only; empty where it is on all."""
    if not refused:
        return ""
    name = target.of(KernelFunctionTarget).function
    return f"{len(refused)} of {number} functions named {name} are not traced: {refused[0].reason}"


def _addresses(place: KernelFunctionTarget) -> list[int]:
    """Where a target's functions start; one, unless it is shared."""
    if place.address is not None:
        return [place.address]
    addresses = _kernel_symbols().addresses(place.function, place.module)
    if not addresses:
        raise CannotAttachError(_KPROBE_REASONS[errno.ENOENT])
    return addresses if place.shared else addresses[:1]


@cache
def _kernel_symbols() -> Kallsyms:
    from pytrace.runtime.machine.kernel_functions import Kallsyms  # few probes are attached by address

    return Kallsyms()


def _kprobe_failure(target: Target, error: OSError) -> RefusedTarget:
    return RefusedTarget(target, _kprobe_reason(error), _kprobe_hints(target, error))


def _kprobe_reason(error: OSError) -> str:
    return _KPROBE_REASONS.get(error.errno or 0, str(error.strerror))


def _kprobe_hints(target: Target, error: OSError) -> tuple[str, ...]:
    """How to probe one of several functions of the same name: by its address."""
    if error.errno != errno.EADDRNOTAVAIL:
        return ()
    kind = target.probe.partition(":")[0]
    name = target.of(KernelFunctionTarget).function
    addresses = _kernel_symbols().addresses(name)
    if not addresses:
        return (f"probe one of them by its address in /proc/kallsyms, with --unsafe: {kind}:0xADDRESS",)
    shown = " or ".join(f"{kind}:{address:#x}" for address in addresses[:4])
    return (f"probe one of them by its address, with --unsafe: {shown}",)


def _attach_kprobe_event(job: Job, target: Target, opened: Opened) -> Attached:
    place = target.of(KernelFunctionTarget)
    if place.shared:
        return _attach_each(job, target, _addresses(place), opened)
    try:
        _open_and_attach(job, target, place, opened)
    except OSError as error:
        # Static functions of several files, one of which alone can be traced.
        shared = error.errno == errno.EADDRNOTAVAIL and _by_name(place)
        addresses = _kernel_symbols().addresses(place.function) if shared else []
        if not addresses:
            raise CannotAttachError(_kprobe_reason(error), hints=_kprobe_hints(target, error)) from None
        return _attach_each(job, target, addresses, opened)
    return Attached(job.spec, target)


def _attach_each(job: Job, target: Target, addresses: Sequence[int], opened: Opened) -> Attached:
    """The kernel takes no function by a name that several have, but each by its address."""
    offset = target.of(KernelFunctionTarget).offset
    refused: list[RefusedTarget] = []
    for address in addresses:
        try:
            _open_and_attach(job, target, KernelFunctionTarget(offset=offset, address=address), opened)
        except OSError as error:
            if error.errno in OF_ALL | LIMITS:
                raise
            refused.append(_kprobe_failure(target, error))
    if len(refused) == len(addresses):
        raise CannotAttachError(refused[0].reason, hints=refused[0].hints)
    return Attached(job.spec, target, note=_some_refused(target, refused, len(addresses)))


def _open_and_attach(job: Job, target: Target, place: KernelFunctionTarget, opened: Opened) -> None:
    if job.options.has("perf_kprobe") and not (job.returns and _misses_untold(job)):
        event = _open_kprobe(job, place)
    elif job.options.has("kprobe"):
        event = probe_links.open_kprobe(
            _definition_text(place), returns=job.returns, opened=opened, symbol=job.spec.symbol
        )
    else:
        raise CannotAttachError(
            "this kernel has no kprobes (CONFIG_KPROBES)",
            hints=("tracepoint, rawtracepoint and fentry probes need no kprobes; see --info",),
        )
    attach_event(job, event, target.cookie, opened)


def _misses_untold(job: Job) -> bool:
    """Whether this kernel keeps to itself how many returns a perf kretprobe missed (before 6.7): tracefs tells it."""
    if not job.options.has("kprobe") or job.options.has("link_missed"):
        return False
    # Without CAP_DAC_OVERRIDE only root may write there.
    return os.access(f"{fingerprints.tracefs_root()}/kprobe_events", os.W_OK, effective_ids=True)


def _open_kprobe(job: Job, place: KernelFunctionTarget) -> int:
    name = string_memory(place.function)
    by_address = not _by_name(place)
    config2 = _addresses(place)[0] + place.offset if by_address else place.offset
    kind = perf.pmu_type("kprobe")
    if kind is None:
        raise CannotAttachError("this kernel has no perf kprobes")
    attr = perf.EventAttr(
        kind,
        config=perf.pmu_bit("kprobe", "retprobe") if job.returns else 0,
        config1=0 if by_address else name.address,
        config2=config2,
    )
    return perf.open_event(attr, cpu=perf.online_cpus()[0])


def _definition_text(place: KernelFunctionTarget) -> str:
    """The probe's place as ``kprobe_events`` writes it."""
    if place.address is not None:
        return hex(place.address + place.offset)
    module = f"{place.module}:" if place.module else ""
    return f"{module}{place.function}" + (f"+{place.offset}" if place.offset else "")


# ----------------------------------------------------------------------------- tracepoint, rawtracepoint, fentry, fexit


@one_by_one
def _attach_tracepoint_event(job: Job, target: Target, opened: Opened) -> Attached:
    place = target.of(TracepointTarget)
    try:
        with open(f"{fingerprints.tracefs_root()}/events/{place.category}/{place.event}/id", "rb") as file:
            number = int(file.read())
    except FileNotFoundError:
        raise CannotAttachError(f"this kernel has no tracepoint {place.category}:{place.event}") from None
    # One CPU is enough: the program belongs to the tracepoint and runs wherever that is hit, whether or not the event
    # counts (perf_trace_run_bpf_submit). One that counts is added on its CPU, which is interrupted for that, and gets a
    # sample of each hit there.
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, number, period=1, flags=perf.FLAG_DISABLED)
    attach_event(job, perf.open_event(attr, cpu=job.cpu), target.cookie, opened, tracepoint=True)
    return Attached(job.spec, target)


def attach_tracepoint(job: Job, opened: Opened) -> list[Outcome]:
    """Attach to all targets: by a perf event each, or by one raw tracepoint (which may serve all system calls)."""
    raw = job.multi in (SYSTEM_CALLS, RAW_TRACEPOINT)
    return _attach_raw_tracepoint(job, opened) if raw else _attach_tracepoint_event(job, opened)


def _attach_raw_tracepoint(job: Job, opened: Opened) -> list[Outcome]:
    try:
        opened.links.append(bpf.raw_tracepoint_open(job.program))
    except OSError as error:
        if error.errno in OF_ALL:
            raise
        limit = error.errno in LIMITS
        return [RefusedTarget(target, str(error.strerror), limit=limit) for target in job.spec.targets]
    return [Attached(job.spec, target) for target in job.spec.targets]


_TRACING_REASONS = {
    errno.ENOENT: "the function or tracepoint no longer exists in the kernel",
    errno.EBUSY: "something else that excludes BPF programs is already attached to this function",
    errno.E2BIG: "the kernel's limit of programs on this function is reached",
    ENOTSUPP: "this kernel cannot attach BPF programs to functions (no BPF trampolines)",
    errno.EOPNOTSUPP: "this kernel cannot attach BPF programs to functions (no BPF trampolines)",
}


@one_by_one
def _attach_tracing(job: Job, target: Target, opened: Opened) -> Attached:
    """Attach a tracing program, which was loaded for its one target and only needs a link."""
    if len(job.spec.targets) != 1:
        raise InternalError(f"{job.spec.symbol}: a tracing program is loaded for one target, not for many")
    kind = known_kind(job.spec.kind)
    try:
        if target.cookie and job.options.has("tracing_cookie"):
            link = bpf.link_tracing(job.program, ATTACH_TYPES[kind.attach_type], target.cookie)
        else:
            link = bpf.raw_tracepoint_open(job.program)
    except OSError as error:
        reason = _TRACING_REASONS.get(error.errno or 0, str(error.strerror))
        raise CannotAttachError(reason) from None
    opened.links.append(link)
    return Attached(job.spec, target)


# -------------------------------------------------------------------- profile, interval, software, hardware, watchpoint


_EVENT_REASONS = {
    errno.ENOENT: "this machine's CPU or kernel does not support that event",
    errno.EOPNOTSUPP: "this machine's CPU does not support that event (a virtual machine may hide it)",
    errno.ENODEV: "this machine's CPU does not support that event",
    errno.EINVAL: "the kernel does not accept that event, period or address",
    errno.ENOSPC: "all hardware breakpoints of the CPU are in use",
    errno.EBUSY: "the CPU's counters are in use",
    errno.ESRCH: "there is no such process",
    errno.EACCES: "no permission to measure this (see /proc/sys/kernel/perf_event_paranoid)",
}


def _clock_event(target: Target) -> perf.EventAttr:
    """A clock event: by frequency, or by period (the cpu-clock event counts nanoseconds)."""
    timer = target.of(TimerTarget)
    if timer.frequency:
        return perf.EventAttr(
            perf.EventType.SOFTWARE, perf.SOFTWARE_CPU_CLOCK, period=timer.frequency, frequency=True
        )
    return perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_CPU_CLOCK, period=timer.period_ns)


def _attach_everywhere(
    job: Job, target: Target, attr: perf.EventAttr, opened: Opened, pids: Sequence[int]
) -> Attached:
    try:
        attach_event_everywhere(job, attr, target, opened, pids)
    except OSError as error:
        raise _event_refusal(target, error) from None
    return Attached(job.spec, target)


_NOT_PERMITTED = frozenset({errno.EPERM, errno.EACCES})


def _attach_sampling(job: Job, target: Target, attr: perf.EventAttr, opened: Opened) -> Attached:
    """Attach to a clock: on every CPU, as programs compare the process; where those are refused, of each thread."""
    mean = sampling_period(target.place)
    if not mean:
        return _attach_everywhere(job, target, attr, opened, job.options.event_pids)
    refused = Opened()
    try:
        attach_event_on_cpus(job, attr, target, refused, mean=mean)
        opened.take(refused)
        return Attached(job.spec, target)
    except OSError as error:
        pids = () if job.options.awaits else job.options.pids
        if error.errno not in _NOT_PERMITTED or not pids:
            raise _event_refusal(target, error) from None
        reason = error.strerror
    finally:
        refused.close()
    try:
        attach_event_everywhere(job, attr, target, opened, pids)
    except OSError as error:
        raise _event_refusal(target, error) from None
    note = f"{target.probe} samples threads, not CPUs ({reason}): short work of the process is under-represented"
    return Attached(job.spec, target, note=note)


def _event_refusal(target: Target, error: OSError) -> CannotAttachError:
    """The error for a refused event; the kernel limits the sampling rate."""
    most = perf.max_sample_rate()
    frequency = target.place.frequency if isinstance(target.place, TimerTarget) else 0
    if error.errno == errno.EINVAL and frequency > most:
        hint = f"sysctl kernel.perf_event_max_sample_rate allows {most} now; the kernel also lowers it under load"
        return CannotAttachError(f"the kernel samples at most {most} times a second", hints=(hint,), limit=True)
    reason = _EVENT_REASONS.get(error.errno or 0, str(error.strerror))
    hints: tuple[str, ...] = ()
    if error.errno == errno.EPERM and reason == os.strerror(errno.EPERM):
        reason = "perf_event_open() is refused to this process"
        hints = ("a seccomp profile (of a container or a systemd unit) or kernel lockdown forbids it: pytrace --info",)
    return CannotAttachError(reason, hints=hints, limit=error.errno == errno.EBUSY)


@one_by_one
def _attach_profile(job: Job, target: Target, opened: Opened) -> Attached:
    """Attach to a timer on every CPU."""
    return _attach_sampling(job, target, _clock_event(target), opened)


@one_by_one
def _attach_interval(job: Job, target: Target, opened: Opened) -> Attached:
    """Attach to a timer on one CPU."""
    try:
        attach_event_on_cpus(job, _clock_event(target), target, opened, one=True)
    except OSError as error:
        raise _event_refusal(target, error) from None
    return Attached(job.spec, target)


def _counter(event_type: perf.EventType) -> Attacher:
    """An attacher to counters of one type."""

    def attach(job: Job, target: Target, opened: Opened) -> Attached:
        event = target.of(CountedEventTarget)
        return _attach_sampling(job, target, perf.EventAttr(event_type, event.config, period=event.period), opened)

    return one_by_one(attach)


@one_by_one
def _attach_watchpoint(job: Job, target: Target, opened: Opened) -> Attached:
    """Attach to a hardware breakpoint."""
    place = target.of(WatchpointTarget)
    attr = perf.breakpoint_attr(place.address, place.length, place.mode)
    # An address means something in one process only, whatever other filters select.
    pids = () if job.options.finds_descendants else job.options.processes
    return _attach_everywhere(job, target, attr, opened.watchpoint(place.address), pids)


# ----------------------------------------------------------------------------------------------------------------- iter


@one_by_one
def attach_iterator(job: Job, target: Target, opened: Opened) -> Attached:
    """Link an iterator, and pin the link if the probe names a file."""
    try:
        link = bpf.link_iter(job.program)
    except OSError as error:
        if error.errno in {errno.EBADF, errno.EINVAL}:
            reason = "it iterates over one map or cgroup, which a probe cannot name"
            raise CannotAttachError(reason) from None
        raise
    opened.links.append(link)
    pin = target.of(IteratorTarget).pin
    if not pin:
        return Attached(job.spec, target, iterator=link)
    path = pin if pin.startswith("/") else f"{BPF_FILE_SYSTEM}/{pin}"
    try:
        bpf.obj_pin(link, path)
    except OSError as error:
        raise CannotAttachError(_pin_reason(path, error)) from None
    return Attached(job.spec, target, note=f"{target.probe} is pinned; read {path} to run it")


def _pin_reason(path: str, error: OSError) -> str:
    if error.errno == errno.EEXIST:
        return f"{path} already exists"
    if error.errno in {errno.EPERM, errno.ENOENT, errno.EINVAL}:
        return f"cannot pin to {path}: its directory must be in a mounted bpffs (mount -t bpf bpf {BPF_FILE_SYSTEM})"
    if error.errno == errno.EACCES:
        return f"cannot pin to {path}: this user may not write there (root and CAP_DAC_OVERRIDE may)"
    return f"cannot pin to {path}: {error.strerror}"


_ROW = struct.Struct("=IIII")
_KEY, _VALUE = struct.Struct("=I"), struct.pack("=I", 1)


class Task(NamedTuple):
    """A process: its id and its parent's in the initial pid namespace, its id in the tracer's one."""

    process: int
    parent: int
    number: int


def include_descendants(roots: Sequence[int], link: int, followed: int) -> tuple[list[int], int]:
    """Put the descendants of *roots* into the map *followed*.

    Args:
        roots: processes, as the tracer numbers them.
        link: the iterator's link.
        followed: descriptor of the set.

    Returns:
        The descendants as the tracer numbers them, and the number of those that did not fit the map.
    """
    added: set[int] = set()
    refused: set[int] = set()
    while True:
        tasks = _read_tasks(link)
        family = descendants(roots, tasks)
        # The set forgets a process when the kernel does, which may have been before it was put in.
        for process in added - {task.process for task in tasks}:
            bpf.map_delete(followed, _KEY.pack(process))
            added.discard(process)
        known = refused | {item.process for item in family if _is_followed(followed, item.process)}
        new = [item.process for item in family if item.process not in known]
        if not new:
            return [item.number for item in family if item.process not in refused], len(refused)
        for process in new:
            (added if _follow(followed, process) else refused).add(process)


def descendants(roots: Sequence[int], tasks: Iterable[Task]) -> list[Task]:
    """Those of *tasks* that descend from those that the tracer numbers *roots*, parents first."""
    children: dict[int, list[Task]] = {}
    starts = []
    for task in tasks:
        children.setdefault(task.parent, []).append(task)
        if task.number in roots:
            starts.append(task.process)
    family = [child for start in starts for child in children.get(start, ())]
    for task in family:
        family += children.get(task.process, ())
    # One of the roots may descend from another.
    return list(dict.fromkeys(family))


def _read_tasks(link: int) -> list[Task]:
    return [Task(*row[:3]) for row in _ROW.iter_unpack(b"".join(bpf.read_iterator(link)))]


def _is_followed(followed: int, process: int) -> bool:
    return bpf.map_lookup(followed, _KEY.pack(process), _KEY.size) is not None


def _follow(followed: int, process: int) -> bool:
    try:
        bpf.map_update(followed, _KEY.pack(process), _VALUE)
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        return False
    return True


KERNEL_ATTACHERS: dict[str, Attacher] = {
    KPROBE: attach_kprobe,
    KRETPROBE: attach_kprobe,
    TRACEPOINT: attach_tracepoint,
    RAWTRACEPOINT: _attach_tracing,
    FENTRY: _attach_tracing,
    FEXIT: _attach_tracing,
    PROFILE: _attach_profile,
    INTERVAL: _attach_interval,
    SOFTWARE: _counter(perf.EventType.SOFTWARE),
    HARDWARE: _counter(perf.EventType.HARDWARE),
    WATCHPOINT: _attach_watchpoint,
    ITER: attach_iterator,
}


def _user_attacher(kind: str) -> Attacher:
    from pytrace.runtime.load import user_probes  # user probes alone

    return user_probes.ATTACHERS[kind]


ATTACHERS: dict[str, Callable[[str], Attacher]] = {
    **dict.fromkeys(KERNEL_ATTACHERS, KERNEL_ATTACHERS.__getitem__),
    **dict.fromkeys((UPROBE, URETPROBE, USDT, PYTHON, PYTHONRET), _user_attacher),
}
"""The attacher of each probe kind. Kinds that the session runs (begin, end, self, test, bench) attach to nothing."""


class Attachments(msgspec.Struct, frozen=True):
    """Result of :func:`attach_all`."""

    attached: tuple[Attached, ...]
    failures: tuple[RefusedTarget, ...]
    """Empty unless the config key missing_probes is ``warn`` or ``ignore``."""
    opened: Opened
    """The links; the *stack* of :func:`attach_all` closes them."""
    left_out: tuple[RefusedTarget, ...] = ()
    """Functions of patterns whose instructions the kernel does not probe."""
    services: tuple[Attached, ...] = ()
    """Targets of programs that serve the script's ones."""

    def include_descendants(self, roots: Sequence[int], followed: int) -> tuple[list[int], int] | None:
        """As :func:`include_descendants`; None where the kernel has no iterator over tasks."""
        lister = next((item.iterator for item in self.services if item.iterator is not None), None)
        return None if lister is None else include_descendants(roots, lister, followed)


def attach_all(
    loaded: LoadedScript, programs: Iterable[ProgramSpec], options: AttachOptions, stack: ExitStack
) -> Attachments:
    """Attach *programs* to all their targets; *stack* detaches them.

    Raises:
        TraceError: a target could not be attached and ``options.missing_probes`` is ``error``.
    """
    attached: list[Attached] = []
    services: list[Attached] = []
    failures: list[RefusedTarget] = []
    gone: list[RefusedTarget] = []
    left_out: list[RefusedTarget] = []
    opened = Opened()
    stack.callback(opened.close)
    wanted = list(programs)
    parts: dict[str, list[ProgramSpec]] = {}
    for spec in wanted:
        if spec.part_of:
            parts.setdefault(spec.part_of, []).append(spec)
    options.progress()
    for spec in _attach_order(wanted):
        if spec.symbol in loaded.gone:
            gone += [RefusedTarget(target, "the program no longer exists", gone=True) for target in spec.targets]
            continue
        own = opened.programs.setdefault(spec.symbol, Opened())
        for outcome in _with_parts(spec, _outcomes(spec, options, loaded, own), parts.get(spec.symbol, ())):
            options.progress()
            if isinstance(outcome, RefusedTarget):
                (gone if outcome.gone else left_out if outcome.left_out else failures).append(outcome)
            elif spec.service:
                services.append(outcome)
            else:
                attached.append(outcome)
        if failures and (options.missing_probes == "error" or spec.service):
            raise failure_error(failures)
    if (gone or left_out) and not attached:
        failures += gone + left_out
        left_out = []
        if options.missing_probes == "error":
            raise failure_error(failures)
    return Attachments(tuple(attached), tuple(failures), opened, tuple(left_out), tuple(services))


def _outcomes(
    spec: ProgramSpec, options: AttachOptions, loaded: LoadedScript, opened: Opened
) -> Iterator[Outcome]:
    """Attach one program to all its targets, and where the kernel filters by process, for each process of ``-p``."""
    attacher, program = ATTACHERS[spec.kind](spec.kind), loaded.program_fd(spec.symbol)
    for each in options.each(known_kind(spec.kind)):
        yield from attacher(Job(spec, program, each, loaded), opened)


def _with_parts(
    spec: ProgramSpec, outcomes: Iterable[Outcome], parts: Sequence[ProgramSpec]
) -> Iterator[Outcome]:
    """The outcomes of a program, and those of the programs whose code it contains."""
    last: Outcome | None = None
    for last in outcomes:
        yield last
        if isinstance(last, Attached) and spec.multi != SYSTEM_CALLS:
            yield from (Attached(part, part.targets[last.target.cookie]) for part in parts)
    if last is None or spec.multi != SYSTEM_CALLS:
        return
    for part in parts:
        for target in part.targets:
            yield Attached(part, target) if isinstance(last, Attached) else replace(last, target=target)


def _attach_order(programs: Iterable[ProgramSpec]) -> list[ProgramSpec]:
    """The programs that attach somewhere, in the order in which they have to.

    The kernel runs the programs on one event in the order of attachment for some kinds, and in the reverse one for
    others (``ProbeKind.backwards``). Programs that serve the others attach first.
    """
    services: list[ProgramSpec] = []
    forward: list[ProgramSpec] = []
    backward: list[ProgramSpec] = []
    for spec in programs:
        kind = known_kind(spec.kind)
        if spec.service:
            services.append(spec)
        elif not kind.special and not spec.part_of:
            (backward if kind.backwards else forward).append(spec)
    return services + forward + backward[::-1]
