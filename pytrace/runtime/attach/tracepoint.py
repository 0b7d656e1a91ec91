"""tracepoint, rawtracepoint, fentry and fexit: perf events with a tracepoint's number, and links without events."""

from __future__ import annotations

import errno

from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import Target
from pytrace.core.probes.kinds import FENTRY, FEXIT, RAWTRACEPOINT, TRACEPOINT, known_kind
from pytrace.core.probes.targets import RAW_TRACEPOINT, SYSTEM_CALLS, TracepointTarget
from pytrace.runtime.attach.base import (
    LIMITS,
    OF_ALL,
    Attached,
    Attacher,
    CannotAttachError,
    Failure,
    Job,
    Outcome,
    attach_event,
    one_by_one,
)
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.load.loader import ATTACH_TYPES
from pytrace.runtime.machine import bpf, perf, tracefs
from pytrace.runtime.machine.syscalls import ENOTSUPP


@one_by_one
def _attach_events(job: Job, target: Target, opened: Opened) -> Attached:
    place = target.of(TracepointTarget)
    try:
        with open(f"{tracefs.root()}/events/{place.category}/{place.event}/id", "rb") as file:
            number = int(file.read())
    except FileNotFoundError:
        raise CannotAttachError(f"this kernel has no tracepoint {place.category}:{place.event}") from None
    # One CPU is enough: the program belongs to the tracepoint and runs wherever that is hit, whether or not the event
    # counts (perf_trace_run_bpf_submit). One that counts is added on its CPU, which is interrupted for that, and gets a
    # sample of each hit there.
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, number, period=1, flags=perf.FLAG_DISABLED)
    attach_event(job, perf.open_event(attr, cpu=job.cpu), target.cookie, opened, tracepoint=True)
    return Attached(job.spec, target)


def attach(job: Job, opened: Opened) -> list[Outcome]:
    """Attach to all targets: by a perf event each, or by one raw tracepoint (which may serve all system calls)."""
    return _attach_raw(job, opened) if job.multi in (SYSTEM_CALLS, RAW_TRACEPOINT) else _attach_events(job, opened)


def _attach_raw(job: Job, opened: Opened) -> list[Outcome]:
    try:
        opened.links.append(bpf.raw_tracepoint_open(job.program))
    except OSError as error:
        if error.errno in OF_ALL:
            raise
        limit = error.errno in LIMITS
        return [Failure(target, str(error.strerror), limit=limit) for target in job.spec.targets]
    return [Attached(job.spec, target) for target in job.spec.targets]


_REASONS = {
    errno.ENOENT: "the function or tracepoint no longer exists in the kernel",
    errno.EBUSY: "something else that excludes BPF programs is already attached to this function",
    errno.E2BIG: "the kernel's limit of programs on this function is reached",
    ENOTSUPP: "this kernel cannot attach BPF programs to functions (no BPF trampolines)",
    errno.EOPNOTSUPP: "this kernel cannot attach BPF programs to functions (no BPF trampolines)",
}


@one_by_one
def attach_tracing(job: Job, target: Target, opened: Opened) -> Attached:
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
        reason = _REASONS.get(error.errno or 0, str(error.strerror))
        raise CannotAttachError(reason) from None
    opened.links.append(link)
    return Attached(job.spec, target)


ATTACHERS: dict[str, Attacher] = {
    TRACEPOINT: attach,
    RAWTRACEPOINT: attach_tracing,
    FENTRY: attach_tracing,
    FEXIT: attach_tracing,
}
