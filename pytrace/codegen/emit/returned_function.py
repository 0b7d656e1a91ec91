"""Address of the traced function in a uretprobe, on kernels whose ``bpf_get_func_ip`` does not support these.

The kernel keeps a ``struct return_instance`` for each probed call that has not returned, innermost first
(``kernel/events/uprobes.c``). Calls that an exception or ``longjmp`` left are still listed, so the returning one is
identified by the stack address of its return address.
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit import loops
from pytrace.codegen.emit.current_task import kernel_field, read_word
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import Number

INSTANCES = 16
"""Maximum number of instances that are searched."""


def helper_suffices(e: Emitter) -> bool:
    """Whether to use only ``bpf_get_func_ip``: on kernels with the instances of Linux 6.13, or without BTF of these."""
    instance = e.script.kernel.struct("struct", "return_instance")
    task = e.script.kernel.struct("struct", "task_struct")
    if instance is None or task is None or task.find("utask") is None:
        return True
    return e.script.ahead is None and instance.find("cons_cnt") is not None


def address(e: Emitter, place: Number, otherwise: Number) -> Number:
    """Address of the function whose return address was at stack address *place*; *otherwise* if there is none."""
    task = e.b.helper(helpers.GET_CURRENT_TASK)
    uprobes = read_word(e, e.b.add(task, kernel_field(e, "task_struct", "utask")))
    function, instance = e.b.register(), e.b.register()
    e.b.store(otherwise, function)
    e.b.store(_member(e, uprobes, "uprobe_task", "return_instances"), instance)

    def step(_index: Number, leave: Callable[[], None]) -> None:
        current = e.b.load(instance)
        with e.b.when(e.b.icmp("eq", _member(e, current, "return_instance", "stack"), place)):
            e.b.store(_member(e, current, "return_instance", "func"), function)
            leave()
        e.b.store(_member(e, current, "return_instance", "next"), instance)

    loops.counted(e, INSTANCES, step)
    return e.b.load(function)


def _member(e: Emitter, address: Number, owner: str, name: str) -> Number:
    return read_word(e, e.b.add(address, kernel_field(e, owner, name)))
