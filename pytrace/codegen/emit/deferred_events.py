"""Events of tracepoints and kernel functions whose strings are read later.

Where a string is not resident, most such programs cannot wait for it: the event is kept in a map, and sent when its
strings have been read.  Kernels since 6.18 let the program schedule work of the task
(``bpf_task_work_schedule_resume``, kernel/bpf/helpers.c), which runs before the task returns to user mode and may
sleep.  Before that, events of the entry of a system call are completed when it returns, as the kernel has read its
arguments by then (:mod:`pytrace.codegen.services.call_returns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.codegen.emit import memory, user_memory
from pytrace.codegen.emit.current_task import task_field
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import I64, NULL, Made, Number, Operand, Ptr, global_pointer, pointer_parameter
from pytrace.core.event_layout import EventLayout
from pytrace.core.manifest import PENDING, MapType, Target
from pytrace.core.probes.kinds import FENTRY, FEXIT, KPROBE, KRETPROBE, RAWTRACEPOINT, TRACEPOINT
from pytrace.core.probes.targets import ENTER, RawTracepointTarget, TracepointTarget
from pytrace.frontend.syntax.typed_program import ContextField, ProbeArgument

ENTRIES = 64
"""Events that may wait at the same time: one for each call that has not returned."""

PLACES = 64
"""Places in a script whose events may wait for the return of a system call.

The key is the address of the task and the number of the place, and ``task_struct`` is aligned to 64 bytes at least
(``ARCH_MIN_TASKALIGN``).
"""

_KINDS = frozenset({TRACEPOINT, RAWTRACEPOINT, FENTRY, FEXIT, KPROBE, KRETPROBE})
"""Kinds of probes that a task runs into by itself."""

RETURNING = "returning_"
"""Prefix of the names of maps of events that wait for the return of a system call."""

_SCHEDULE = "bpf_task_work_schedule_resume"
_FIRST_FORM = f"{_SCHEDULE}_impl"
"""Its name before 7.0, which is left in the type information of later kernels, and takes a last argument of theirs."""
_PARAMETERS: tuple[str, ...] = ("task_struct", "bpf_task_work", "void *", "map callback")
_MM, _ADDRESSES = 8, 16
"""Offsets in the map's values of the address space and of the strings; the event follows."""
_RECORD = 8
"""Programs may read a tracepoint's record from here on (``tp_prog_is_valid_access``, kernel/trace/bpf_trace.c)."""
_TIME, _KEPT = 0, 16
"""Offsets in the map's values of the time of a hit whose body was postponed, and of what is kept of its context."""

_NOEXIST = 1
_NOWHERE = 1
"""An address that cannot be read and is not null."""


def sources(e: Emitter, layout: EventLayout, operands: Sequence[Operand]) -> list[Number]:
    """Addresses of the strings of an event; none if its strings cannot all be read later."""
    if e.completing or not (_has_task_work(e) or _at_return(e)):
        return []
    found = [operand for operand, tail in zip(operands, layout.tails, strict=True) if tail]
    addresses = [item.source for item in found if isinstance(item, Made) and item.source is not None]
    if len(addresses) != len(found) or user_memory.may_sleep(e):
        return []
    return addresses


def _has_task_work(e: Emitter) -> bool:
    """Whether the task can be given work. An ahead-of-time file has to run on kernels without it."""
    return e.program.unit.kind.name in _KINDS and e.script.ahead is None and e.script.kernel.feature("task_work")


def _at_return(e: Emitter) -> bool:
    """Whether this is the entry of a system call, and its return can be traced."""
    script = e.script
    if script.ahead is not None or len(script.returning) >= PLACES:
        return False
    return all(map(_enters, e.program.unit.targets)) and script.kernel.feature("call_return")


def _enters(target: Target) -> bool:
    place = target.place
    if isinstance(place, RawTracepointTarget):
        return place.event == ENTER
    return isinstance(place, TracepointTarget) and (
        place.call[0] == ENTER or (place.category, place.event) == ("raw_syscalls", ENTER)
    )


def defer(
    e: Emitter,
    pointer: Ptr,
    layout: EventLayout,
    addresses: Sequence[Number],
    room: int,
    complete: Callable[[Emitter, Ptr, Sequence[Number]], None],
) -> Number:
    """Keep an event until its strings can be read. Returns 1 if that succeeded, else 0.

    *pointer* is the event, of which only the fixed part is complete, *room* its whole size.
    ``complete(e, pointer, addresses)`` emits what reads the strings and sends the event.
    """
    start = _ADDRESSES + 8 * len(addresses)
    size = (start + room + 7) & ~7
    later = _has_task_work(e)
    symbol = _map(e, size, task_work=later)
    map_ = global_pointer(symbol)
    done = e.b.register()
    e.b.store(0, done)
    key = e.cell
    if later:
        # Unique: a CPU makes one at a time.
        e.b.store(e.b.op("or", e.b.op("shl", e.cpu, 48), e.b.low_bits(e.b.helper(helpers.KTIME_GET_NS), 48)), key)
    else:
        e.b.store(e.b.add(e.b.helper(helpers.GET_CURRENT_TASK), len(e.script.returning)), key)
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
            function = _completion(e, map_, start, len(addresses), complete, sleeps=later)
            if later:
                _schedule(e, value, map_, function, done)
            else:
                e.script.returning.append((symbol, function))
                e.b.fetch("add", e.b.offset(global_pointer(SHARED), e.script.layout.place_waiting()), 1)
                _kept(e, done)
    e.b.jump(on)
    e.b.start(on)
    return e.b.load(done)


def postpone(e: Emitter) -> None:
    """Keep the arguments of a system call until it returns, and end the program; go on where there is no room.

    In a script that has :data:`PLACES` before this body nothing is emitted, and the body keeps its place.

    The body of :attr:`~pytrace.codegen.emit.program.Program.late` then runs in the program's ``late_function``.
    """
    late, script, unit = e.program.late, e.script, e.program.unit
    assert late is not None
    if not e.program.late_function and len(script.returning) >= PLACES:
        # Another number would be the key of a task beside this one. What is unreadable is counted.
        return
    registers = script.kernel.struct("struct", "pt_regs") if unit.calls else None
    room = registers.size if registers is not None else _record_size(late.arguments)
    symbol = _map(e, (_KEPT + room + 7) & ~7, task_work=False)
    if not e.program.late_function:
        e.program.late_function = e.program.name("late")
        script.returning.append((symbol, e.program.late_function))
    number = [function for _, function in script.returning].index(e.program.late_function)
    map_, key = global_pointer(symbol), e.cell
    task = e.b.helper(helpers.GET_CURRENT_TASK)
    e.b.store(e.b.add(task, number), key)
    zeros = e.module.zeros((_KEPT + room + 7) & ~7)
    error = e.b.helper(helpers.MAP_UPDATE_ELEM, map_, key, zeros, _NOEXIST)
    with e.b.when(e.b.icmp("eq", e.b.fit(error, 32, signed=True), 0)):
        value = e.b.helper(helpers.MAP_LOOKUP_ELEM, map_, key)
        with e.b.unless(e.b.is_null(value)):
            e.b.store(_address_space(e), e.b.offset(value, _MM))
            e.b.store(e.b.helper(helpers.KTIME_GET_BOOT_NS), e.b.offset(value, _TIME))
            if registers is not None:
                source = e.launder(e.b.load(e.context))
                e.b.helper(helpers.PROBE_READ_KERNEL, e.b.offset(value, _KEPT), room, source)
            else:
                for offset in range(_RECORD, room, 8):
                    e.b.store(e.b.load(e.b.offset(e.context, offset)), e.b.offset(value, _KEPT + offset))
            e.b.fetch("add", e.b.offset(global_pointer(SHARED), script.layout.place_waiting()), 1)
            e.counter("unfinished", e.program.index)
            e.leave(None)


def read_ahead(e: Emitter, strings: Sequence[tuple[Number, int]]) -> None:
    """Postpone the hit if a string (address, capacity) cannot be read: effects of the body precede its own read."""
    for address, capacity in strings:
        with e.temporaries():
            error = e.b.helper(helpers.PROBE_READ_USER_STR, e.scratch(capacity), capacity, address)
        with e.b.when(e.b.icmp("slt", error, 0), likely=False):
            with e.b.when(e.b.truth(address)):
                postpone(e)


def _record_size(arguments: Sequence[ProbeArgument]) -> int:
    """Bytes of a tracepoint's record up to the last of *arguments*, in words."""
    ends = [item.place.offset + item.type.size for item in arguments if isinstance(item.place, ContextField)]
    return (max(ends, default=8) + 7) & ~7


def run_kept(e: Emitter, function: str, program: int) -> None:
    """In the function of a kept hit: run its body, which *function* has, unless the memory is another one since."""
    value = pointer_parameter("value")
    same = e.b.icmp("eq", _address_space(e), e.b.load(e.b.offset(value, _MM)))
    with e.b.when(same, likely=True):
        e.b.call(function, [pointer_parameter("map"), pointer_parameter("key"), value])
        e.counter("unfinished", program, -1)
    e.b.helper(helpers.MAP_DELETE_ELEM, pointer_parameter("map"), pointer_parameter("key"))


def kept_age(e: Emitter) -> Number:
    """Nanoseconds since the hit that is run now was kept; 0 in the program that is hit."""
    if e.kept is None:
        return 0
    kept = e.b.load(e.b.offset(e.kept, _TIME - _KEPT))
    return e.b.sub(e.b.helper(helpers.KTIME_GET_BOOT_NS), kept)


def kept_context(e: Emitter) -> Ptr:
    """In the function that has the body of kept hits: the place of the registers, or the record."""
    return e.b.offset(pointer_parameter("value"), _KEPT)


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
    _kept(e, done)
    e.b.jump(on)
    e.b.start(bad)
    e.b.helper(helpers.MAP_DELETE_ELEM, map_, e.cell)
    e.b.jump(on)
    e.b.start(on)


def _kept(e: Emitter, done: Ptr) -> None:
    e.b.store(1, done)
    e.counter("unfinished", e.program.index)


def _map(e: Emitter, size: int, *, task_work: bool) -> str:
    """The map of waiting events with values of *size* bytes."""
    symbol = f"{PENDING if task_work else RETURNING}{size}"
    if symbol not in e.script.pending:
        e.script.pending.add(symbol)
        if task_work:
            e.module.map(symbol, {"type": MapType.HASH, "max_entries": ENTRIES}, size)
        else:
            sizes = {"key_size": 8, "value_size": size, "max_entries": ENTRIES}
            e.module.map(symbol, {"type": MapType.HASH, **sizes})
    return symbol


def _address_space(e: Emitter) -> I64:
    """``current->mm``: another one after exec, when addresses of before mean nothing."""
    cell = e.b.alloca(8)
    task = e.b.helper(helpers.GET_CURRENT_TASK)
    e.b.helper(helpers.PROBE_READ_KERNEL, cell, 8, e.b.add(task, task_field(e, "mm")))
    return e.b.load(cell)


def _completion(
    e: Emitter,
    map_: Ptr,
    start: int,
    strings: int,
    complete: Callable[[Emitter, Ptr, Sequence[Number]], None],
    *,
    sleeps: bool,
) -> str:
    """The function that completes a kept event, in the form of a callback of a map's element."""
    name = e.program.name("complete")
    b = e.module.function(name, ("*map", "*key", "*value"), e.span)
    inner = Emitter(e.program, b, e.span, 0, None)
    inner.completing, inner.task_work = True, sleeps
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
