"""The program that completes events when their system calls return, on kernels where tasks cannot be given work.

It runs at the return of every system call of the machine, and looks for the task's events where any event waits.
"""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import global_pointer
from pytrace.codegen.services.service_programs import service_program
from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probes.kinds import RAWTRACEPOINT
from pytrace.core.probes.targets import EXIT, RawTracepointTarget

_SYMBOL = "complete_events"


def services(script: Script) -> tuple[ProgramSpec, ...]:
    """The program, if events of the script wait for the return of system calls."""
    if not script.returning:
        return ()
    target = Target(f"{RAWTRACEPOINT}:{EXIT}", 0, RawTracepointTarget(EXIT, "vmlinux"))
    return (service_program(script, _SYMBOL, target, 0, _complete),)


def _complete(e: Emitter) -> None:
    waiting = e.b.offset(global_pointer(SHARED), e.script.layout.place_waiting())
    e.b.jump_unless(e.b.truth(e.b.load(waiting)), e.exit, likely=False)
    task = e.b.helper(helpers.GET_CURRENT_TASK)
    for number, (map_, function) in enumerate(e.script.returning):
        e.b.store(e.b.add(task, number), e.cell)
        value = e.b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(map_), e.cell)
        with e.b.unless(e.b.is_null(value)):
            e.b.call(function, [global_pointer(map_), e.cell, value])
            e.b.fetch("add", waiting, -1)
