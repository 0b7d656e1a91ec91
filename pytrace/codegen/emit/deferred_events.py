"""Events of tracepoints and kernel functions whose strings are read when the task returns to user mode.

Where a string is not resident, most such programs cannot wait for it.  Kernels since 6.18 let it schedule
work of the task (``bpf_task_work_schedule_resume``, kernel/bpf/helpers.c), which runs before the task returns to
user mode and may sleep: the event is kept in a map, and the callback reads its strings and sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.codegen.emit import memory, user_memory
from pytrace.codegen.emit.current_task import task_field
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import I64, NULL, Number, Ptr, global_pointer, pointer_parameter
from pytrace.codegen.ir.operands import Made, Operand
from pytrace.core.event_layout import EventLayout
from pytrace.core.manifest import PENDING, MapType
from pytrace.core.probes.kinds import FENTRY, FEXIT, KPROBE, KRETPROBE, RAWTRACEPOINT, TRACEPOINT

ENTRIES = 64
"""Events that may wait at the same time: one for each call that has not returned."""

_KINDS = frozenset({TRACEPOINT, RAWTRACEPOINT, FENTRY, FEXIT, KPROBE, KRETPROBE})
"""Kinds of probes that a task runs into by itself."""

_SCHEDULE = "bpf_task_work_schedule_resume"
_FIRST_FORM = f"{_SCHEDULE}_impl"
"""Its name before 7.0, which is left in the type information of later kernels, and takes a last argument of theirs."""
_PARAMETERS: tuple[str, ...] = ("task_struct", "bpf_task_work", "void *", "map callback")
_MM, _ADDRESSES = 8, 16
"""Offsets in the map's values of the address space and of the strings; the event follows."""

_NOEXIST = 1
_NOWHERE = 1
"""An address that cannot be read and is not null."""


def sources(e: Emitter, layout: EventLayout, operands: Sequence[Operand]) -> list[Number]:
    """Addresses of the strings of an event; none if its strings cannot all be read later."""
    if e.program.unit.kind.name not in _KINDS or e.task_work or e.script.ahead is not None:
        return []
    found = [operand for operand, tail in zip(operands, layout.tails, strict=True) if tail]
    addresses = [item.source for item in found if isinstance(item, Made) and item.source is not None]
    if len(addresses) != len(found) or user_memory.may_sleep(e):
        return []
    return addresses if e.script.kernel.feature("task_work") else []


def defer(
    e: Emitter,
    pointer: Ptr,
    layout: EventLayout,
    addresses: Sequence[Number],
    room: int,
    complete: Callable[[Emitter, Ptr, Sequence[Number]], None],
) -> Number:
    """Keep an event until the task returns to user mode. Returns 1 if that succeeded, else 0.

    *pointer* is the event, of which only the fixed part is complete, *room* its whole size.
    ``complete(e, pointer, addresses)`` emits what reads the strings and sends the event.
    """
    start = _ADDRESSES + 8 * len(addresses)
    size = (start + room + 7) & ~7
    map_ = _map(e, size)
    done = e.b.register()
    e.b.store(0, done)
    key = e.cell
    # Unique: a CPU makes one at a time.
    e.b.store(e.b.op("or", e.b.op("shl", e.cpu, 48), e.b.low_bits(e.b.helper(helpers.KTIME_GET_NS), 48)), key)
    space = _address_space(e)
    # Threads of the kernel, which have none, never return to user mode.
    on = e.b.block()
    e.b.jump_unless(e.b.truth(space), on)
    error = e.b.helper(helpers.MAP_UPDATE_ELEM, map_, key, e.module.zeros(size), _NOEXIST)
    with e.b.when(e.b.icmp("eq", e.b.fit(error, 32, signed=True), 0)):
        value = e.b.helper(helpers.MAP_LOOKUP_ELEM, map_, key)
        with e.b.unless(e.b.is_null(value)):
            e.b.store(space, e.b.offset(value, _MM))
            for index, address in enumerate(addresses):
                e.b.store(address, e.b.offset(value, _ADDRESSES + 8 * index))
            memory.copy(e, e.b.offset(value, start), pointer, layout.fixed_size)
            _schedule(e, value, map_, _callback(e, map_, start, len(addresses), complete), done)
    e.b.jump(on)
    e.b.start(on)
    return e.b.load(done)


def _schedule(e: Emitter, value: Ptr, map_: Ptr, callback: str, done: Ptr) -> None:
    task = e.b.pointer(e.b.helper(helpers.GET_CURRENT_TASK_BTF))
    passed = [task, value, map_, global_pointer(callback)]
    name, types = _SCHEDULE, _PARAMETERS
    if e.script.kernel.function(name) is None:
        name, types = _FIRST_FORM, (*types, "void *")
        passed.append(NULL)
    e.module.kernel_function(name, types, "int")
    error = e.b.kernel_call(name, passed)
    good, bad, on = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.icmp("eq", error, 0), good, bad)
    e.b.start(good)
    e.b.store(1, done)
    e.counter("unfinished", e.program.index)
    e.b.jump(on)
    e.b.start(bad)
    e.b.helper(helpers.MAP_DELETE_ELEM, map_, e.cell)
    e.b.jump(on)
    e.b.start(on)


def _map(e: Emitter, size: int) -> Ptr:
    """The map of waiting events with values of *size* bytes."""
    symbol = f"{PENDING}{size}"
    if symbol not in e.script.pending:
        e.script.pending.add(symbol)
        e.module.map(symbol, {"type": MapType.HASH, "max_entries": ENTRIES}, size)
    return global_pointer(symbol)


def _address_space(e: Emitter) -> I64:
    """``current->mm``: another one after exec, when addresses of before mean nothing."""
    cell = e.b.alloca(8)
    task = e.b.helper(helpers.GET_CURRENT_TASK)
    e.b.helper(helpers.PROBE_READ_KERNEL, cell, 8, e.b.add(task, task_field(e, "mm")))
    return e.b.load(cell)


def _callback(
    e: Emitter, map_: Ptr, start: int, strings: int, complete: Callable[[Emitter, Ptr, Sequence[Number]], None]
) -> str:
    name = e.program.name("complete")
    b = e.module.function(name, ("*map", "*key", "*value"), e.span)
    inner = Emitter(e.program, b, e.span, 0, None)
    inner.task_work = True
    inner.node = e.node
    value = pointer_parameter("value")
    same = b.icmp("eq", _address_space(inner), b.load(b.offset(value, _MM)))
    addresses = [
        b.select(same, b.load(b.offset(value, _ADDRESSES + 8 * index)), _NOWHERE) for index in range(strings)
    ]
    complete(inner, b.offset(value, start), addresses)
    inner.counter("unfinished", e.program.index, -1)
    b.helper(helpers.MAP_DELETE_ELEM, map_, pointer_parameter("key"))
    b.ret(0)
    return name
