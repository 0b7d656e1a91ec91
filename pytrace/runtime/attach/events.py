"""profile, interval, software, hardware and watchpoint: perf events that count, with a program at each overflow."""

from __future__ import annotations

import errno
import os

from pytrace.core.manifest import Target
from pytrace.core.probes.kinds import HARDWARE, INTERVAL, PROFILE, SOFTWARE, WATCHPOINT
from pytrace.core.probes.targets import CountedEventTarget, TimerTarget, WatchpointTarget, sampling_period
from pytrace.runtime.attach.base import (
    Attached,
    Attacher,
    CannotAttachError,
    Job,
    attach_event_everywhere,
    attach_event_on_cpus,
    one_by_one,
)
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.machine import perf

_REASONS = {
    errno.ENOENT: "this machine's CPU or kernel does not support that event",
    errno.EOPNOTSUPP: "this machine's CPU does not support that event (a virtual machine may hide it)",
    errno.ENODEV: "this machine's CPU does not support that event",
    errno.EINVAL: "the kernel does not accept that event, period or address",
    errno.ENOSPC: "all hardware breakpoints of the CPU are in use",
    errno.EBUSY: "the CPU's counters are in use",
    errno.ESRCH: "there is no such process",
    errno.EACCES: "no permission to measure this (see /proc/sys/kernel/perf_event_paranoid)",
}


def _timer(target: Target) -> perf.EventAttr:
    """A clock event: by frequency, or by period (the cpu-clock event counts nanoseconds)."""
    timer = target.of(TimerTarget)
    if timer.frequency:
        return perf.EventAttr(
            perf.EventType.SOFTWARE, perf.SOFTWARE_CPU_CLOCK, period=timer.frequency, frequency=True
        )
    return perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_CPU_CLOCK, period=timer.period_ns)


def _everywhere(job: Job, target: Target, attr: perf.EventAttr, opened: Opened, child: int | None = None) -> Attached:
    pids = job.options.event_pids or (() if child is None else (child,))
    try:
        attach_event_everywhere(job, attr, target, opened, pids)
    except OSError as error:
        raise _refusal(target, error) from None
    return Attached(job.spec, target)


_REFUSED = frozenset({errno.EPERM, errno.EACCES})


def _sampling(job: Job, target: Target, attr: perf.EventAttr, opened: Opened) -> Attached:
    """Attach to a clock: on every CPU, as programs compare the process; where those are refused, of each thread."""
    mean = sampling_period(target.place)
    if not mean:
        return _everywhere(job, target, attr, opened)
    refused = Opened()
    try:
        attach_event_on_cpus(job, attr, target, refused, mean=mean)
        opened.take(refused)
        return Attached(job.spec, target)
    except OSError as error:
        pids = () if job.options.awaits else job.options.pids
        if error.errno not in _REFUSED or not pids:
            raise _refusal(target, error) from None
        reason = error.strerror
    finally:
        refused.close()
    try:
        attach_event_everywhere(job, attr, target, opened, pids)
    except OSError as error:
        raise _refusal(target, error) from None
    note = f"{target.probe} samples threads, not CPUs ({reason}): short work of the process is under-represented"
    return Attached(job.spec, target, note=note)


def _refusal(target: Target, error: OSError) -> CannotAttachError:
    """The error for a refused event; the kernel limits the sampling rate."""
    most = perf.max_sample_rate()
    frequency = target.place.frequency if isinstance(target.place, TimerTarget) else 0
    if error.errno == errno.EINVAL and frequency > most:
        hint = f"sysctl kernel.perf_event_max_sample_rate allows {most} now; the kernel also lowers it under load"
        return CannotAttachError(f"the kernel samples at most {most} times a second", hints=(hint,), limit=True)
    reason = _REASONS.get(error.errno or 0, str(error.strerror))
    hints: tuple[str, ...] = ()
    if error.errno == errno.EPERM and reason == os.strerror(errno.EPERM):
        reason = "perf_event_open() is refused to this process"
        hints = ("a seccomp profile (of a container or a systemd unit) or kernel lockdown forbids it: pytrace --info",)
    return CannotAttachError(reason, hints=hints, limit=error.errno == errno.EBUSY)


@one_by_one
def _attach_profile(job: Job, target: Target, opened: Opened) -> Attached:
    """Attach to a timer on every CPU."""
    return _sampling(job, target, _timer(target), opened)


@one_by_one
def _attach_interval(job: Job, target: Target, opened: Opened) -> Attached:
    """Attach to a timer on one CPU."""
    try:
        attach_event_on_cpus(job, _timer(target), target, opened, one=True)
    except OSError as error:
        raise _refusal(target, error) from None
    return Attached(job.spec, target)


def _counter(event_type: perf.EventType) -> Attacher:
    """An attacher to counters of one type."""

    def attach(job: Job, target: Target, opened: Opened) -> Attached:
        event = target.of(CountedEventTarget)
        return _sampling(job, target, perf.EventAttr(event_type, event.config, period=event.period), opened)

    return one_by_one(attach)


@one_by_one
def _attach_watchpoint(job: Job, target: Target, opened: Opened) -> Attached:
    """Attach to a hardware breakpoint."""
    place = target.of(WatchpointTarget)
    attr = perf.breakpoint_attr(place.address, place.length, place.mode)
    # An address means something in one process only.
    return _everywhere(job, target, attr, opened.watchpoint(place.address), job.options.child)


ATTACHERS: dict[str, Attacher] = {
    PROFILE: _attach_profile,
    INTERVAL: _attach_interval,
    SOFTWARE: _counter(perf.EventType.SOFTWARE),
    HARDWARE: _counter(perf.EventType.HARDWARE),
    WATCHPOINT: _attach_watchpoint,
}
