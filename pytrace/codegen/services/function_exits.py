"""The returns of user functions at the instructions where these are left (:mod:`pytrace.core.probes.instructions`).

A function that jumps to another one has returned when that one does, with the stack pointer where it was at the jump.
The jump leaves a mark: for the process, this stack pointer and the function, the return address that is there. A return
of the other function that finds the mark, with the same address on the stack, is that of the function as well; others
end at once. A mark that an exception left behind is overwritten by the next jump from the same depth, or is not used:
another call at this depth has another return address.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Number, global_pointer
from pytrace.codegen.services import process_filters
from pytrace.codegen.services.service_programs import service_of
from pytrace.core.manifest import MapType, ProgramSpec
from pytrace.core.probes.kinds import UPROBE, URETPROBE, known_kind
from pytrace.core.probes.targets import ALWAYS, UserTarget, Way
from pytrace.core.types import UINT32, AddressSpace
from pytrace.frontend.syntax.typed_program import ProbeUnit

MARKS = "tail_calls"
MOST_MARKS = 16384
"""Jumps whose returns are awaited at the same time, by all threads; the oldest go when there are more."""

_CARRY, _PARITY, _ZERO, _SIGN, _OVERFLOW = 0, 2, 6, 7, 11
"""Bits of the flags."""


def declare(script: Script) -> None:
    """Declare the map of marks, if a function of the script's units needs it."""
    if any(place.way is Way.MARK for unit in script.checked.units for place in places(unit)):
        attributes = {"type": MapType.LRU_HASH, "key_size": 24, "value_size": 8, "max_entries": MOST_MARKS}
        script.module.map(MARKS, attributes)


def places(unit: ProbeUnit) -> list[UserTarget]:
    """The exits that a program is attached to; empty for one whose hits are all entries or returns."""
    if unit.kind.name != URETPROBE:
        return []
    targets = [target.of(UserTarget) for target in unit.targets]
    return targets if any(place.leaving is not None for place in targets) else []


def in_caller(unit: ProbeUnit) -> bool:
    """Whether the stack of a program begins in the caller: its function is left at the next instruction (x86-64).

    Stacks of returns of Go begin in the function.
    """
    exits = places(unit)
    return bool(exits) and not exits[0].go


_DEEPEST = 64
"""``MAX_URETPROBE_DEPTH`` of kernel/events/uprobes.c."""


def services(script: Script) -> tuple[ProgramSpec, ...]:
    """Programs that count the calls whose returns the kernel does not see: those of a task that has 64 already.

    They are at the entries of the functions whose return addresses the kernel replaces.
    """
    counted = [
        (number, unit)
        for number, unit in enumerate(script.checked.units)
        if unit.kind.name == URETPROBE and not places(unit)
    ]
    # Without such probes the kernel's types are not asked for: the facts of a host need not have them.
    if not counted or script.ahead is not None:
        return ()
    task, uprobes = (script.kernel.struct("struct", name) for name in ("task_struct", "uprobe_task"))
    if task is None or not task.find("utask") or uprobes is None or not uprobes.find("depth"):
        return ()
    return tuple(
        service_of(
            script, f"deep_{unit.symbol}", known_kind(UPROBE), unit.targets, 0, _count_deep(number, unit), unit.multi
        )
        for number, unit in counted
    )


def _count_deep(number: int, unit: ProbeUnit) -> Callable[[Emitter], None]:
    def write(e: Emitter) -> None:
        uprobes = e.tasks.read_word(
            e.b.add(e.b.helper(helpers.GET_CURRENT_TASK), e.tasks.kernel_field("task_struct", "utask"))
        )
        place = e.b.add(uprobes, e.tasks.kernel_field("uprobe_task", "depth"))
        depth = e.foreign.read_scalar(place, UINT32, AddressSpace.KERNEL).value
        e.b.jump_if(e.b.icmp("ult", depth, _DEEPEST), e.exit, likely=True)
        process_filters.check(e, unit)
        e.counter("deep_return", number)

    return write


def by_target(e: Emitter, numbers: list[int]) -> Number:
    """The number of the target that was hit."""
    if len(set(numbers)) == 1:
        return numbers[0]
    # A power of two, so that the verifier sees that the index is inside.
    room = 1 << (len(numbers) - 1).bit_length()
    table = e.module.constant(struct.pack(f"<{len(numbers)}q", *numbers).ljust(8 * room, b"\0"))
    index = e.b.op("and", e.events.target_index(), room - 1)
    return e.b.load(e.b.offset(table, e.b.mul(index, 8)))


def distance(e: Emitter) -> Number:
    """How far from the start of its function the exit that was hit is; 0 where the kernel sees returns."""
    return by_target(e, [place.leaving or 0 for place in places(e.program.unit)] or [0])


def only_returns(e: Emitter) -> None:
    """End the program where its function has not returned."""
    exits = places(e.program.unit)
    if any(place.condition != ALWAYS for place in exits):
        _taken(e, [place.condition for place in exits])
    ways = {place.way for place in exits}
    if ways <= {Way.RETURN}:
        return
    b, way = e.b, by_target(e, [place.way for place in exits])
    if Way.JUMP in ways and e.program.unit.context.reads_result:
        e.end_early(b.icmp("ne", way, Way.JUMP.value), counted="tail_call")
    if Way.MARK in ways:
        _marked(e, way)
    b.new_prologue()


def _marked(e: Emitter, way: Number) -> None:
    b = e.b
    done, elsewhere = b.block(), b.block()
    b.jump_if(b.icmp("ult", way, Way.MARK.value), done, likely=True)
    key, returning = b.alloca(24), b.alloca(8)
    stack = e.probe.register(e.probe.registers().stack)
    # The process, not the thread: stacks of coroutines move to others.
    b.store(b.op("lshr", b.helper(helpers.GET_CURRENT_PID_TGID), 32), key)
    b.store(stack, b.offset(key, 8))
    b.store(b.sub(e.probe.register(e.probe.registers().pc), distance(e)), b.offset(key, 16))
    b.store(0, returning)
    if e.probe.registers().pc == "ip":
        b.helper(helpers.PROBE_READ_USER, returning, 8, stack)
    else:
        b.store(e.probe.register("r30"), returning)
    marks = global_pointer(MARKS)
    b.jump_if(b.icmp("eq", way, Way.ELSEWHERE.value), elsewhere)
    b.helper(helpers.MAP_UPDATE_ELEM, marks, key, returning, 0)
    e.end()
    b.start(elsewhere)
    mark = b.helper(helpers.MAP_LOOKUP_ELEM, marks, key)
    with b.when(b.is_null(mark), likely=True):
        e.end()
    address = b.load(mark)
    b.helper(helpers.MAP_DELETE_ELEM, marks, key)
    with b.unless(b.icmp("eq", address, b.load(returning, again=True)), likely=True):
        e.end()
    b.jump(done)
    b.start(done)


def _taken(e: Emitter, conditions: list[int]) -> None:
    """End the program at a conditional jump that is not taken (Intel manual, volume 1, appendix B)."""
    b = e.b
    condition = by_target(e, conditions)
    flags = e.probe.register("flags")

    def flag(number: int) -> Number:
        return b.op("and", b.op("lshr", flags, number), 1)

    carry, parity, zero, sign, overflow = map(flag, (_CARRY, _PARITY, _ZERO, _SIGN, _OVERFLOW))
    less = b.op("xor", sign, overflow)
    tests = (overflow, carry, zero, b.op("or", carry, zero), sign, parity, less, b.op("or", zero, less))
    all_tests: Number = 0
    for number, test in enumerate(tests):
        all_tests = b.op("or", all_tests, b.op("shl", test, number))
    chosen = b.op("lshr", all_tests, b.op("and", b.op("lshr", condition, 1), 7))
    # Odd conditions are the opposites of even ones.
    taken = b.op("and", b.op("xor", chosen, condition), 1)
    always = b.number(b.icmp("slt", condition, 0))
    e.end_early(b.truth(b.op("or", taken, always)))
