"""Programs return at once after ``exit()``, while they are detached, and without a tracer that runs (the watchdog).

The tracer moves a deadline in the session data on as long as it runs (:mod:`pytrace.runtime.session.heartbeat`). A
program that runs after it counts the hit as skipped and does nothing else. The clock is the tick of the timer, as the
verifier replaces ``bpf_jiffies64`` by a load where programs are compiled by the kernel's JIT: the check is two loads
from memory that other CPUs rarely write, and a comparison.
"""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.storage import SESSION
from pytrace.codegen.ir import helpers
from pytrace.core.manifest import EXITED
from pytrace.core.probes import system_calls as call_numbers
from pytrace.core.probes.kinds import Context
from pytrace.core.probes.targets import ENTER, ProbeTarget, RawTracepointTarget, TracepointTarget

_NUMBER = 8
"""Offset of the system call number, in records of its tracepoints as in the context of the raw one."""

SKIPPED = "skipped"
"""Counter of a program's hits that the watchdog skipped."""


def check(e: Emitter) -> None:
    """End the program after ``exit()`` and after the deadline.

    It comes after the process filters, so that only hits of the traced processes are counted, and before the predicate,
    which may be of any length. Programs that the tracer itself runs, or a reader of an iterator, have no such check,
    and neither have empty ones, which have nothing to skip.
    """
    unit, kind = e.program.unit, e.program.unit.kind
    if kind.special or kind.context is Context.ITERATOR or not (unit.body.statements or unit.body.value):
        return
    _unless_own_thread_ends(e)
    _unless_stopped(e, calls=kind.context is not Context.PERF_EVENT)
    now = e.b.helper(helpers.JIFFIES64)
    e.end_early(e.b.icmp("ule", now, e.b.load(e.session(SESSION.deadline))), counted=SKIPPED)


def _unless_own_thread_ends(e: Emitter) -> None:
    """End the program at the ``exit`` of a thread of the tracer.

    The call has no return, and bpftrace has no such threads: a map of calls that have begun would keep one for each.
    """
    number = call_numbers.numbers(e.script.kernel.arch).get("exit")
    if number is None or not any(_enters_exit(target.place) for target in e.program.unit.targets):
        return
    b = e.b
    with b.when(b.icmp("eq", b.load(b.offset(e.context, _NUMBER), 32), number), likely=False):
        process, _ = e.tasks.process_ids("tracer")
        with b.when(b.icmp("eq", process, b.load(e.session(SESSION.own), 32))):
            e.end()
    b.new_prologue()


def _enters_exit(place: ProbeTarget) -> bool:
    if isinstance(place, RawTracepointTarget):
        return place.event == ENTER
    return isinstance(place, TracepointTarget) and (
        place.call == (ENTER, "exit") or (place.category, place.event) == ("raw_syscalls", ENTER)
    )


def _unless_stopped(e: Emitter, *, calls: bool) -> None:
    """End the program after ``exit()``.

    The tracer waits for events in a system call then, whose return is seen: a map of calls that have begun would keep
    it. *calls*: the program may see such returns, unlike one of a timer, which meets any process by chance.
    """
    b = e.b
    stopped = b.load(e.session(SESSION.stopped), 32)
    if not calls:
        e.end_early(b.icmp("eq", stopped, 0))
        return
    with b.unless(b.icmp("eq", stopped, 0), likely=True):
        process, _ = e.tasks.process_ids("tracer")
        own = b.icmp("eq", process, b.load(e.session(SESSION.own), 32))
        with b.unless(b.both(own, b.icmp("eq", stopped, EXITED)), likely=False):
            e.end()
    b.new_prologue()
