"""Unwinding of user stacks by unwind tables (x86-64): ``dw_ustack``, and ``ustack`` with ``stack_unwinding``.

Each frame is one iteration of ``bpf_loop``, with registers in scratch memory, so the verifier checks a single frame.

``dw_ustack`` unwinds processes that were selected before, by tables alone. A stack that *chooses* (``stack_unwinding =
auto``) takes for each frame the table that covers its address, and the frame pointer where none does. It asks the
session for the tables of a process that it meets for the first time, and follows frame pointers alone until they are
there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.codegen.emit import stack_truncation
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, Memory, Number, Operand, Ptr, global_pointer
from pytrace.codegen.services import code_ahead, frame_pointers, function_exits, memory_images
from pytrace.codegen.services.unwind_tables import ASK_FUNCTION, SPACES, TOLD, declare, declare_asking
from pytrace.codegen.services.unwound_frame import (
    BP,
    CODE,
    COUNT,
    EXACT,
    IP,
    MEMORY,
    SP,
    SPACE,
    STATE_SIZE,
    VALUES,
    VALUES_SIZE,
    Choice,
    Frame,
    read_kernel,
)
from pytrace.core.diagnostics import TraceError
from pytrace.core.probes.kinds import Context
from pytrace.core.stacks.unwind_format import REGISTERS
from pytrace.core.types import Stack, StackMode
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import location

Node = nodes.Call | nodes.Identifier

_NEW = 1
"""``BPF_NOEXIST``: an update of an existing key fails."""
_NO_STACK, _NO_TABLES = -14, -61
"""``-EFAULT``, as the helpers return without a user stack, and ``-ENODATA``."""

_SITE, _CHOOSING = "dw_ustack", "ustack"
"""Names under which failures are counted, in place of a helper's."""
_POINTERS = {"ip": IP, "sp": SP, "cs": CODE}
"""Where registers that are no :data:`REGISTERS` are in the state."""
_USER_MODE = 3
"""Privilege level in the code segment of a user program."""


FRAME_SIZE = 8
"""Bytes of an address."""

_TASK = ("mm", "flags", "real_parent", "tgid")


def usable(e: Emitter, type_: Stack) -> bool:
    """Whether such a stack may be unwound by tables in this program; if not, ``ustack`` follows frame pointers."""
    unit, kernel = e.program.unit, e.script.kernel
    if not type_.user or type_.mode is StackMode.BUILD_ID or kernel.arch != "x86_64" or e.script.ahead is not None:
        return False
    if unit.kind.special or unit.kind.context is Context.ITERATOR or not kernel.feature("bpf_loop"):
        return False
    return e.tasks.has_members({"task_struct": _TASK})


class Parts(msgspec.Struct, frozen=True):
    """Scratch offsets of an unwound stack, of the stack pointers in its frames and after the last, and of their number
    (0: the process has no tables).
    """

    stack: int
    pointers: int
    count: int


def chosen(
    e: Emitter, node: Node, type_: Stack, entry: bool, otherwise: Callable[[Ptr], None], parts: Parts | None = None
) -> Memory:
    """Unwind by tables and frame pointers into scratch memory.

    Args:
        e: the emitter.
        node: the call.
        type_: its type, for which :func:`usable` holds.
        entry: the probe is at the first instruction of a function.
        otherwise: emits the walk of a process without tables, to an address in memory.
        parts: where to write the stack and its stack pointers, if the latter are needed.
    """
    if not e.script.unwinds and not e.script.asks:
        declare(e.module)
    if not e.script.asks:
        e.script.asks = True
        declare_asking(e.module)
    b, state = e.b, e.reserve(STATE_SIZE)
    # One frame more, to see whether there is one.
    out = e.reserve(type_.size + FRAME_SIZE) if parts is None else parts.stack
    plain, done = b.block(), b.block()
    if parts is not None:
        b.store(0, e.area(parts.count))
    pid = e.tasks.process_ids("tracer")[0]
    # Through memory: to the verifier the member is a pointer, which is no argument of a function that takes a number.
    space = b.through(e.tasks.member("mm", 64), e.area(state + MEMORY))
    b.jump_if(b.icmp("eq", space, 0), plain, likely=False)
    without = b.op("and", e.tasks.member("flags", 32), frame_pointers.WITHOUT_STACK)
    b.jump_if(b.truth(without), plain, likely=False)
    _registers(e, state)
    segment = b.op("and", b.load(e.area(state + CODE)), 0xFFFF)
    b.jump_unless(b.icmp("eq", segment, frame_pointers.CODE_64), plain, likely=True)
    known, unknown, ranges = b.block(), b.block(), b.register()
    b.branch(_find_space(e, ranges, pid, space), known, unknown, likely=True)
    b.start(unknown)
    _find_parents_space(e, b.helper(helpers.GET_CURRENT_TASK), ranges, known)
    b.call(ASK_FUNCTION, numbers=[pid, space])
    e.counter("stack_early", e.script.layout.site(_CHOOSING, location(node.span)))
    b.jump(plain)
    b.start(known)
    _unwind(e, node, type_, ranges, out, state, Choice(entry, e.reserve(code_ahead.SIZE)), parts)
    b.jump(done)
    b.start(plain)
    otherwise(e.area(out))
    b.jump(done)
    b.start(done)
    return Memory(e.area(out), type_)


def stack(e: Emitter, node: Node, type_: Stack) -> Operand:
    """Unwind the current task's user stack into scratch memory."""
    if not e.script.kernel.feature("bpf_loop"):
        hints = ("ustack() follows frame pointers",)
        raise TraceError("dw_ustack() needs a kernel with bpf_loop (Linux 5.17)", hints=hints)
    if not e.script.unwinds and not e.script.asks:
        declare(e.module)
    e.script.unwinds = True
    out, state = e.reserve(type_.size + FRAME_SIZE), e.reserve(STATE_SIZE)
    done = e.b.block()
    space = _start(e, node, out, type_, done)
    _registers(e, state)
    _unwind(e, node, type_, space, out, state, None)
    e.b.jump(done)
    e.b.start(done)
    return Memory(e.area(out), type_)


def _unwind(
    e: Emitter,
    node: Node,
    type_: Stack,
    space: Ptr,
    out: int,
    state: int,
    choice: Choice | None,
    parts: Parts | None = None,
) -> None:
    """Write the frames of a process, beginning with the registers in *state*; *space* contains where its ranges are."""
    b, target = e.b, e.area(out)
    e.memory.zero(target, type_.size)
    b.store(memory_images.of_stack(e, type_), b.offset(target, 4), 32)
    exact = 0 if function_exits.in_caller(e.program.unit) else 1
    for offset, value in ((SPACE, b.load(space)), (COUNT, 0), (EXACT, exact)):
        b.store(value, e.area(state + offset))
    site = e.script.layout.site(_SITE if choice is None else _CHOOSING, location(node.span))
    pointers = None if parts is None else parts.pointers
    # Where stack pointers are noted, the caller asks for one more frame.
    most = type_.limit + (parts is None and stack_truncation.marked(node))
    e.loops.run(
        node.span,
        most,
        lambda inner, index: Frame(inner, type_, most, out, state, site, choice, pointers).emit(index),
    )
    count = b.load(e.area(state + COUNT))
    if parts is None:
        stack_truncation.tell(e, node, type_, count)
    b.store(count, e.area(out), 32)
    if parts is not None:
        b.store(count, e.area(parts.count))
        last = b.op("shl", b.at_most(count, type_.limit), 3)
        b.store(b.load(e.area(state + SP)), b.offset(e.area(parts.pointers), last))


def _fail(e: Emitter, target: Ptr, code: int, done: Block) -> None:
    e.b.store(code, target, 32)
    e.b.jump(done)


def _start(e: Emitter, node: Node, out: int, type_: Stack, done: Block) -> Ptr:
    """A register that contains where the ranges of the process are, or jump to *done* with an error in the stack."""
    b, target = e.b, e.area(out)
    e.memory.zero(target, type_.size)
    b.store(memory_images.of_stack(e, type_), b.offset(target, 4), 32)
    task = b.helper(helpers.GET_CURRENT_TASK)
    with b.unless(b.truth(read_kernel(e, b.add(task, e.tasks.task_field("mm"))))):
        _fail(e, target, _NO_STACK, done)
    space = b.register()
    has_tables, no_tables = b.block(), b.block()
    b.branch(_find_space(e, space, e.tasks.process_ids("tracer")[0]), has_tables, no_tables, likely=True)
    b.start(no_tables)
    _find_parents_space(e, task, space, has_tables)
    _tell(e, node)
    _fail(e, target, _NO_TABLES, done)
    b.start(has_tables)
    return space


def _find_space(e: Emitter, space: Ptr, pid: Number, memory: Number | None = None) -> I1:
    """``i1``: the process has tables; *space* then contains the location of its ranges.

    With *memory*, its address space, those of a program before execve(2) do not count.
    """
    b = e.b
    b.store(0, space)
    b.store(pid, e.cell, 32)
    location = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(SPACES), e.cell)
    with b.unless(b.is_null(location), likely=False):
        if memory is None:
            b.store(b.load(location), space)
        else:
            owner = b.offset(location, 8)
            with b.when(b.icmp("eq", b.load(owner), 0), likely=False):
                b.store(memory, owner)
            b.store(b.select(b.icmp("eq", b.load(owner), memory), b.load(location), 0), space)
    return b.truth(b.load(space))


def _find_parents_space(e: Emitter, task: Number, space: Ptr, known: Block) -> None:
    """Continue at *known* if the process is a child, new to the session, of a process that has tables.

    Until it calls execve it has its parent's mappings, and its ``mm`` refers to the same ``exe_file``.
    """
    memory_type = e.script.kernel.struct("struct", "mm_struct")
    if e.script.kernel.pid_namespace is not None or memory_type is None:
        return
    b, file = e.b, e.load_time.struct_offset(memory_type, "exe_file")
    parent = read_kernel(e, b.add(task, e.tasks.task_field("real_parent")))
    files = [
        read_kernel(e, b.add(read_kernel(e, b.add(owner, e.tasks.task_field("mm"))), file)) for owner in (task, parent)
    ]
    other = b.block()
    b.jump_unless(b.icmp("eq", *files), other)
    number = b.op("and", read_kernel(e, b.add(parent, e.tasks.task_field("tgid"))), 0xFFFFFFFF)
    b.branch(_find_space(e, space, number), known, other)
    b.start(other)


def _tell(e: Emitter, node: Node) -> None:
    """Count a process without tables, and report it the first time."""
    b = e.b
    e.counter("user_stack", e.script.layout.site(_SITE, location(node.span)))
    b.store(e.tasks.process_ids("tracer")[0], e.cell, 32)
    failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(TOLD), e.cell, e.cell, _NEW)
    with b.unless(b.truth(failed)):
        e.events.report(node, "no_dwarf")


def _registers(e: Emitter, state: int) -> None:
    """User registers: those of the context, or those saved at kernel entry."""
    b, row, table = e.b, e.program.unit.kind, e.probe.registers()
    done = b.block()
    if row.user or row.program_type == "perf_event":
        entered = b.block()
        if not row.user:
            level = b.op("and", e.probe.register("cs"), _USER_MODE)
            b.jump_unless(b.icmp("eq", level, _USER_MODE), entered)
        for name in (*REGISTERS, *_POINTERS):
            b.store(e.probe.register(name), _value(e, state, table.offset(name)))
        b.jump(done)
        b.start(entered)
    if not row.user:
        # By one copy: LLVM would join loads from here and from a context, which the verifier rejects.
        saved = b.pointer(b.helper(helpers.TASK_PT_REGS, b.helper(helpers.GET_CURRENT_TASK_BTF)))
        b.helper(helpers.PROBE_READ_KERNEL, _value(e, state, 0), VALUES_SIZE, b.address(saved))
    b.jump(done)
    b.start(done)
    for name, offset in (*_POINTERS.items(), ("bp", BP)):
        b.store(b.load(_value(e, state, table.offset(name)), again=True), e.area(state + offset))
    if row.user and function_exits.in_caller(e.program.unit):
        # The function is left: its caller is the innermost frame, as at a return that the kernel sees.
        stack = b.load(e.area(state + SP))
        b.helper(helpers.PROBE_READ_USER, e.area(state + IP), 8, stack)
        b.store(b.add(stack, 8), e.area(state + SP))


def _value(e: Emitter, state: int, offset: int) -> Ptr:
    return e.area(state + VALUES + offset)
