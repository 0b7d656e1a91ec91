"""``--follow``: programs that keep the set of followed processes in the kernel, and the check that uses it.

The process of ``-p`` or ``-c`` is known by its number in the tracer's pid namespace; what it forks, and what these fork
in turn, is in a hash by process number in the initial namespace.  It is filled at the fork itself, by the process that
forks, so the first instruction of the new one is followed.
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.builtins.process_family import process_ids
from pytrace.codegen.emitter import Emitter, Program, Script
from pytrace.codegen.ir import Value
from pytrace.codegen.layout import UNFOLLOWED
from pytrace.codegen.module import HASH, Module
from pytrace.compiled import ProgramSpec, Target
from pytrace.diagnostics import InternalError, TraceError
from pytrace.frontend import ast
from pytrace.frontend.checked import CheckedProgram, ProbeContext, ProbeUnit, location
from pytrace.probes import probe_kind

MAP = "followed"
ENTRIES = 32768
"""Tasks that are followed at one time; the default limit of a machine's process numbers."""

CATEGORY = "sched"
FORK, FREE = "sched_process_fork", "sched_process_free"
"""A task is born, in the context of its parent; the kernel forgets a task, a process's first thread last."""


def wanted(checked: CheckedProgram) -> bool:
    """Whether a program of the script checks for followed processes."""
    return any(unit.follow for unit in checked.units)


def declare(module: Module) -> None:
    """The set: one entry for each task."""
    module.map(MAP, {"type": HASH, "key_size": 4, "value_size": 4, "max_entries": ENTRIES})


def check(e: Emitter) -> Value:
    """``i1``: the current process is the one of ``-p`` or ``-c``, or descends from it."""
    itself = e.b.icmp("eq", process_ids(e, "tracer")[0], e.b.load(e.session("root")))
    first, other, done = e.b.current, e.b.block(), e.b.block()
    e.b.branch(itself, done, other)
    e.b.start(other)
    e.b.store(process_ids(e, "init")[0], e.cell, 32)
    found = e.b.number(e.b.is_null(e.b.helper("map_lookup_elem", f"@{MAP}", e.cell)))
    last = e.b.current
    e.b.jump(done)
    e.b.start(done)
    return e.b.icmp("eq", e.b.phi("i64", [("0", first), (found, last)]), "0")


def trackers(script: Script) -> tuple[ProgramSpec, ...]:
    """The programs that keep the set, with their code in the module."""
    return (_tracker(script, FORK, "child_pid", _add), _tracker(script, FREE, "pid", _remove))


def _tracker(script: Script, event: str, member: str, change: Callable[[Emitter, int], None]) -> ProgramSpec:
    kind = probe_kind("tracepoint")
    fields = script.kernel.tracepoint_fields(CATEGORY, event)
    number = next((item for item in fields or () if item.name == member), None)
    if kind is None:
        raise InternalError("there are no tracepoints in the probe table")
    if number is None:
        raise TraceError(f"--follow needs the tracepoint {CATEGORY}:{event} of the kernel")
    if script.ahead is not None:
        script.ahead.rely("tracepoint", CATEGORY, event, member, number.offset, number.size, number.declaration)
    if script.ahead is not None:
        script.ahead.rely("tracepoint", CATEGORY, event, member, number.offset, number.size, number.declaration)
    span = script.checked.units[0].span
    target = Target(f"tracepoint:{CATEGORY}:{event}", 0, {"category": CATEGORY, "event": event})
    body = ast.Block(span, ())
    unit = ProbeUnit(f"follow_{event}", -1, kind, (target,), ProbeContext(), body, span)
    program = Program(script, unit, -1, frozenset())
    text, scope = script.module.function(unit.symbol, ("*ctx",), span, section=f"pytrace/{unit.symbol}")
    e = Emitter(program, text, scope, span, 0, None)
    # 0 would keep the event from other users of the tracepoint.
    e.b.store("1", e.result)
    change(e, number.offset)
    e.b.jump(e.exit)
    e.finish()
    return ProgramSpec(unit.symbol, kind.name, -1, unit.targets, location(span), service=True)


def _add(e: Emitter, offset: int) -> None:
    on, off, full = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(check(e), on, off, likely=False)
    e.b.start(off)
    # The number may be that of a followed process that has ended, if the other program could not run at that moment.
    _remove(e, offset)
    e.b.jump(e.exit)
    e.b.start(on)
    # Threads come along: their numbers are those of no process.
    e.b.store(e.b.load(e.b.offset(e.context, offset), 32), e.cell, 32)
    value = e.b.alloca(8)
    e.b.store("1", value)
    failed = e.b.helper("map_update_elem", f"@{MAP}", e.cell, value, "0")
    e.b.branch(e.b.truth(failed), full, e.exit, likely=False)
    e.b.start(full)
    e.counter(*UNFOLLOWED)


def _remove(e: Emitter, offset: int) -> None:
    e.b.store(e.b.load(e.b.offset(e.context, offset), 32), e.cell, 32)
    e.b.helper("map_delete_elem", f"@{MAP}", e.cell)
