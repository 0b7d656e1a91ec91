"""The function that a return probe on a user function returns from, on kernels whose ``bpf_get_func_ip`` does not tell.

The kernel keeps an instance of ``struct return_instance`` for each probed call that has not returned, the innermost one
first (``kernel/events/uprobes.c``). Calls that an exception or ``longjmp`` left are still among them, so the one that
returns is found by where its return address was on the stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.codegen.emit import loops
from pytrace.codegen.emit.current_task import kernel_field, read_word
from pytrace.codegen.ir import helpers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.codegen.emit.emitter import Emitter
    from pytrace.codegen.ir.values import Number

INSTANCES = 16
"""So many instances are looked at."""


def told_by_helper(e: Emitter) -> bool:
    """Whether ``bpf_get_func_ip`` needs no substitute: on kernels whose instances have members of 6.13, or no types."""
    instance = e.script.kernel.struct("struct", "return_instance")
    task = e.script.kernel.struct("struct", "task_struct")
    if instance is None or task is None or task.find("utask") is None:
        return True
    return e.script.ahead is None and instance.find("cons_cnt") is not None


def address(e: Emitter, place: Number, otherwise: Number) -> Number:
    """Address of the function whose return address was at *place* of the stack; *otherwise* where there is none."""
    task = e.b.helper(helpers.GET_CURRENT_TASK)
    uprobes = read_word(e, e.b.add(task, kernel_field(e, "task_struct", "utask")))
    found, instance = e.b.register(), e.b.register()
    e.b.store(otherwise, found)
    e.b.store(_member(e, uprobes, "uprobe_task", "return_instances"), instance)

    def step(_index: Number, leave: Callable[[], None]) -> None:
        here = e.b.load(instance)
        same, other = e.b.block(), e.b.block()
        e.b.branch(e.b.icmp("eq", _member(e, here, "return_instance", "stack"), place), same, other)
        e.b.start(same)
        e.b.store(_member(e, here, "return_instance", "func"), found)
        leave()
        e.b.start(other)
        e.b.store(_member(e, here, "return_instance", "next"), instance)

    loops.counted(e, INSTANCES, step)
    return e.b.load(found)


def _member(e: Emitter, address: Number, owner: str, name: str) -> Number:
    return read_word(e, e.b.add(address, kernel_field(e, owner, name)))
