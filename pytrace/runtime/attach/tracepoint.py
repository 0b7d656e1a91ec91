"""tracepoint: a perf event with the tracepoint's number."""

from __future__ import annotations

from pytrace.core.manifest import Target
from pytrace.core.probes.targets import TracepointTarget
from pytrace.runtime.abi import perf
from pytrace.runtime.attach.base import Attached, CannotAttachError, Job, attach_event, one_by_one
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.host import tracefs


def _attach(job: Job, target: Target, opened: Opened) -> Attached:
    place = target.of(TracepointTarget)
    try:
        with open(f"{tracefs.root()}/events/{place.category}/{place.event}/id", encoding="utf-8") as file:
            number = int(file.read())
    except FileNotFoundError:
        raise CannotAttachError(f"this kernel has no tracepoint {place.category}:{place.event}") from None
    # One CPU is enough: the program belongs to the tracepoint and runs wherever that is hit.
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, number, period=1)
    opened_event = perf.open_event(attr, cpu=perf.online_cpus()[0])
    attach_event(job, opened_event, target.cookie, opened, tracepoint=True)
    return Attached(job.spec, target)


attach = one_by_one(_attach)
