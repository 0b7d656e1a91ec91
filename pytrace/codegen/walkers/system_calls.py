"""Programs of system calls: those that have several units, and those that complete events at the return."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.codegen.emit.program import Part, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import SHARED, program_section
from pytrace.codegen.ir.values import CONTEXT, I64, global_pointer
from pytrace.codegen.walkers.service_programs import service_program
from pytrace.core import system_calls as call_numbers
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probe_kinds import ENTER, EXIT, RAWTRACEPOINT, RawTracepointTarget
from pytrace.frontend.syntax.typed_program import ProbeUnit

PART = "_part"
"""Suffix of function names in a program of several units."""

_NUMBER = 8
"""Offset of the system call number in the context of the raw tracepoint ``sys_enter``."""


def call_programs(script: Script) -> None:
    """Emit the programs; the functions of the units have been emitted already."""
    owners = [unit for unit in script.checked.units if unit.calls and not unit.part_of]
    for owner in owners:
        _program(script, _units_of(script, owner.symbol))


def alone(script: Script, unit: ProbeUnit) -> bool:
    """Whether the function of *unit* is the only one of its program, and is called from one place."""
    units = _units_of(script, unit.part_of or unit.symbol) if unit.calls else []
    return len(units) == 1 and len(set(unit.calls)) == len(unit.calls)


def _units_of(script: Script, owner: str) -> list[ProbeUnit]:
    return [unit for unit in script.checked.units if unit.calls and owner in (unit.symbol, unit.part_of)]


def _program(script: Script, units: Sequence[ProbeUnit]) -> None:
    owner, abi = units[0], call_numbers.ABIS[script.kernel.arch]
    b = script.module.function(owner.symbol, ("*ctx",), owner.span, section=program_section(owner.symbol))
    context = b.unfolded(CONTEXT)
    if owner.raw_tracepoint == ENTER:
        number = b.load(b.offset(context, _NUMBER))
    else:
        number = b.load(b.offset(b.pointer(b.load(context)), abi.number), 32, signed=True)
    ways = _ways(units)
    blocks = {parts: b.block() for parts in ways.values()}
    leave = b.block()
    b.switch(number, [(call, blocks[parts]) for call, parts in ways.items()], leave)
    for parts, block in blocks.items():
        b.start(block)
        _run(script, b, abi, parts, leave)
    b.start(leave)
    b.ret(0)


def _ways(units: Sequence[ProbeUnit]) -> dict[int, tuple[str, ...]]:
    """The functions to call for each system call number, in script order."""
    parts: dict[int, tuple[str, ...]] = {}
    for unit in units:
        for call in unit.calls:
            parts[call] = (*parts.get(call, ()), f"{unit.symbol}{PART}")
    return parts


def _run(script: Script, b: Builder, abi: call_numbers.Abi, parts: Sequence[str], leave: Block) -> None:
    """Call functions, unless the system call is a 32-bit one."""
    mode = b.op("and", _thread_flags(script, b, abi), abi.compat[1])
    b.jump_unless(b.icmp("eq", mode, 0), leave, likely=True)
    for part in parts:
        b.call(part, [CONTEXT])
    b.jump(leave)


def _thread_flags(script: Script, b: Builder, abi: call_numbers.Abi) -> I64:
    """The flags in the current task's ``struct thread_info`` that mark 32-bit system calls."""
    task_struct, thread_info = (script.kernel.struct("struct", name) for name in ("task_struct", "thread_info"))
    member = None if task_struct is None else task_struct.find("thread_info")
    flags = None if thread_info is None else thread_info.find(abi.compat[0])
    if member is None or flags is None:
        raise InternalError("no thread_info, though system calls are traced by raw tracepoints")
    task = b.pointer(b.helper(helpers.GET_CURRENT_TASK_BTF))
    return b.load(b.offset(task, member.offset + flags.offset), 8 * flags.type.size)


_SYMBOL = "complete_events"


def return_service(script: Script) -> ProgramSpec:
    """The program of a script whose events wait for the return of system calls."""
    target = Target(f"{RAWTRACEPOINT}:{EXIT}", 0, RawTracepointTarget(EXIT, "vmlinux"))
    return service_program(script, _SYMBOL, target, 0, lambda e: CallReturns(e)._complete())


class CallReturns(Part):
    """Completes events at the return of system calls."""

    def _complete(self) -> None:
        waiting = self.b.offset(global_pointer(SHARED), self.script.layout.place_waiting())
        self.b.jump_unless(self.b.truth(self.b.load(waiting)), self.e.exit, likely=False)
        task = self.b.helper(helpers.GET_CURRENT_TASK)
        for number, (map_, function) in enumerate(self.script.returning):
            self.b.store(self.b.add(task, number), self.e.cell)
            value = self.b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(map_), self.e.cell)
            with self.b.unless(self.b.is_null(value)):
                self.b.call(function, [global_pointer(map_), self.e.cell, value])
                self.b.fetch("add", waiting, -1)
