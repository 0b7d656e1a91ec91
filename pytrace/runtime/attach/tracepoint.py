"""tracepoint: a perf event with the tracepoint's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.probes.targets import RAW_TRACEPOINT, SYSTEM_CALLS, TracepointTarget
from pytrace.runtime.abi import bpf, perf
from pytrace.runtime.attach.base import (
    LIMITS,
    OF_ALL,
    Attached,
    CannotAttachError,
    Failure,
    Job,
    Outcome,
    attach_event,
    one_by_one,
)
from pytrace.runtime.host import fingerprints, tracefs

if TYPE_CHECKING:
    from pytrace.core.manifest import Target
    from pytrace.runtime.attach.opened import Opened


def _attach(job: Job, target: Target, opened: Opened) -> Attached:
    place = target.of(TracepointTarget)
    try:
        number = int(fingerprints.contents(f"{tracefs.root()}/events/{place.category}/{place.event}/id"))
    except FileNotFoundError:
        raise CannotAttachError(f"this kernel has no tracepoint {place.category}:{place.event}") from None
    # One CPU is enough: the program belongs to the tracepoint and runs wherever that is hit, whether or not the event
    # counts (perf_trace_run_bpf_submit). One that counts is added on its CPU, which is interrupted for that, and gets a
    # sample of each hit there.
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, number, period=1, flags=perf.FLAG_DISABLED)
    opened_event = perf.open_event(attr, cpu=job.cpu)
    attach_event(job, opened_event, target.cookie, opened, tracepoint=True)
    return Attached(job.spec, target)


_one_by_one = one_by_one(_attach)


def attach(job: Job, opened: Opened) -> list[Outcome]:
    """Attach to all targets: each has a perf event, except where a raw tracepoint serves it (or all system calls)."""
    return _attach_raw(job, opened) if job.multi in (SYSTEM_CALLS, RAW_TRACEPOINT) else _one_by_one(job, opened)


def _attach_raw(job: Job, opened: Opened) -> list[Outcome]:
    try:
        opened.links.append(bpf.raw_tracepoint_open(job.program))
    except OSError as error:
        if error.errno in OF_ALL:
            raise
        limit = error.errno in LIMITS
        return [Failure(target, str(error.strerror), limit=limit) for target in job.spec.targets]
    return [Attached(job.spec, target) for target in job.spec.targets]
