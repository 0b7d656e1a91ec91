"""``dw_ustack``: unwinding of user stacks by unwind tables (x86-64).

Each frame is one iteration of ``bpf_loop``, with registers in scratch memory, so the verifier checks a single frame.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.codegen.aot import load_time_values
from pytrace.codegen.emit import contexts, events, loops, memory
from pytrace.codegen.emit.current_task import process_ids, task_field
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.function_text import Block
from pytrace.codegen.ir.ir_values import I1, I64, Number, Ptr, global_pointer
from pytrace.codegen.ir.operands import Memory, Operand
from pytrace.codegen.services.unwind_tables import RULE_FUNCTION, SPACES, TOLD, declare
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Stack
from pytrace.core.unwind_format import WHERE_RBP_POINTS, Rule
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import location

_NEW = 1
"""``BPF_NOEXIST``: an update of an existing key fails."""
_NO_STACK, _NO_TABLES = -14, -61
"""``-EFAULT``, as the helpers return without a user stack, and ``-ENODATA``."""

_SITE = "dw_ustack"
"""The name under which failures are counted, in place of a helper's."""
_IP, _SP, _BP, _SPACE, _COUNT = 0, 8, 16, 24, 32
"""Offsets of the unwinder's state: registers, ranges of the process, number of frames."""
_EXACT = 40
"""1 if ip is the current instruction, 0 if it is a return address, which may be after its function's end."""
_STATE_SIZE = 48

_SIGNAL_RBP, _SIGNAL_RSP, _SIGNAL_RIP = 120, 160, 168
"""Registers in the signal frame: ``uc_mcontext`` is 40 bytes into ``struct ucontext``, ``struct sigcontext`` next."""

_RETURN_PROBES = 64
"""Maximum nesting of uretprobed functions of a task: ``MAX_URETPROBE_DEPTH`` of the kernel."""

_USER_MODE = 3
"""Privilege level in the code segment of a user program."""


def stack(e: Emitter, node: nodes.Call | nodes.Identifier, type_: Stack) -> Operand:
    """Unwind the current task's user stack into scratch memory."""
    if not e.script.kernel.feature("bpf_loop"):
        hints = ("ustack() follows frame pointers",)
        raise TraceError("dw_ustack() needs a kernel with bpf_loop (Linux 5.17)", hints=hints)
    if not e.script.unwinds:
        e.script.unwinds = True
        declare(e.module)
    out, state = e.reserve(type_.size), e.reserve(_STATE_SIZE)
    target = e.area(out)
    memory.zero(e, target, type_.size)
    e.b.store(process_ids(e, "tracer")[0], e.b.offset(target, 4), 32)
    done = e.b.block()
    _start(e, node, target, state, done)
    site = e.script.layout.site(_SITE, location(node.span))
    loops.run(e, node.span, type_.limit, lambda inner, index: _Frame(inner, type_, out, state, site).emit(index))
    e.b.store(e.b.load(e.area(state + _COUNT)), e.area(out), 32)
    e.b.jump(done)
    e.b.start(done)
    return Memory(e.area(out), type_)


def _fail(e: Emitter, target: Ptr, code: int, done: Block) -> None:
    e.b.store(code, target, 32)
    e.b.jump(done)


def _start(e: Emitter, node: nodes.Call | nodes.Identifier, target: Ptr, state: int, done: Block) -> None:
    """Set up ranges and registers, or jump to *done* with an error in the stack."""
    b = e.b
    task = b.helper(helpers.GET_CURRENT_TASK)
    with b.unless(b.truth(_read_kernel(e, b.add(task, task_field(e, "mm"))))):
        _fail(e, target, _NO_STACK, done)
    space = b.register()
    has_tables, no_tables = b.block(), b.block()
    b.branch(_find_space(e, space, process_ids(e, "tracer")[0]), has_tables, no_tables, likely=True)
    b.start(no_tables)
    _find_parents_space(e, task, space, has_tables)
    _tell(e, node)
    _fail(e, target, _NO_TABLES, done)
    b.start(has_tables)
    b.store(b.load(space), e.area(state + _SPACE))
    b.store(0, e.area(state + _COUNT))
    b.store(1, e.area(state + _EXACT))
    _registers(e, state)


def _find_space(e: Emitter, space: Ptr, pid: Number) -> I1:
    """``i1``: the process has tables; *space* then contains the location of its ranges."""
    b = e.b
    b.store(0, space)
    b.store(pid, e.cell, 32)
    location = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(SPACES), e.cell)
    with b.unless(b.is_null(location), likely=False):
        b.store(b.load(location), space)
    return b.truth(b.load(space))


def _find_parents_space(e: Emitter, task: Number, space: Ptr, known: Block) -> None:
    """Continue at *known* if the process is a child, new to the session, of a process that has tables.

    Until it calls execve it has its parent's mappings, and its ``mm`` refers to the same ``exe_file``.
    """
    memory_type = e.script.kernel.struct("struct", "mm_struct")
    if e.script.kernel.pid_namespace is not None or memory_type is None:
        return
    b, file = e.b, load_time_values.struct_offset(e, memory_type, "exe_file")
    parent = _read_kernel(e, b.add(task, task_field(e, "real_parent")))
    files = [
        _read_kernel(e, b.add(_read_kernel(e, b.add(owner, task_field(e, "mm"))), file)) for owner in (task, parent)
    ]
    other = b.block()
    b.jump_unless(b.icmp("eq", *files), other)
    number = b.op("and", _read_kernel(e, b.add(parent, task_field(e, "tgid"))), 0xFFFFFFFF)
    b.branch(_find_space(e, space, number), known, other)
    b.start(other)


def _tell(e: Emitter, node: nodes.Call | nodes.Identifier) -> None:
    """Count a process without tables, and report it the first time."""
    b = e.b
    e.counter("user_stack", e.script.layout.site(_SITE, location(node.span)))
    b.store(process_ids(e, "tracer")[0], e.cell, 32)
    failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(TOLD), e.cell, e.cell, _NEW)
    with b.unless(b.truth(failed)):
        events.report(e, node, "no_dwarf")


def _read_kernel(e: Emitter, address: Number) -> I64:
    """A word of kernel memory; 0 on a fault."""
    e.b.helper(helpers.PROBE_READ_KERNEL, e.cell, 8, address)
    return e.b.load(e.cell)


def _registers(e: Emitter, state: int) -> None:
    """User registers: those of the context, or those saved at kernel entry."""
    b, row = e.b, e.program.unit.kind
    if row.user:
        _store_registers(e, state, lambda name: contexts.register(e, name))
        return
    entered, done = b.block(), b.block()
    if row.program_type == "perf_event":
        level = b.op("and", contexts.register(e, "cs"), _USER_MODE)
        b.jump_unless(b.icmp("eq", level, _USER_MODE), entered)
        _store_registers(e, state, lambda name: contexts.register(e, name))
        b.jump(done)
        b.start(entered)
    saved = b.pointer(b.helper(helpers.TASK_PT_REGS, b.helper(helpers.GET_CURRENT_TASK_BTF)))
    table = contexts.registers(e)
    _store_registers(e, state, lambda name: b.load(b.offset(saved, table.offset(name))))
    b.jump(done)
    b.start(done)


def _store_registers(e: Emitter, state: int, read: Callable[[str], I64]) -> None:
    for name, offset in (("ip", _IP), ("sp", _SP), ("bp", _BP)):
        e.b.store(read(name), e.area(state + offset))


# ---------------------------------------------------------------------------------------------- one frame


class _Members(msgspec.Struct, frozen=True):
    """Member offsets of the kernel's list of replaced return addresses (``kernel/events/uprobes.c``)."""

    first: Number
    stack: Number
    original: Number
    next: Number


def _members(e: Emitter) -> _Members | None:
    task, instance = (e.script.kernel.struct("struct", name) for name in ("uprobe_task", "return_instance"))
    if task is None or instance is None:
        return None
    first = load_time_values.struct_offset(e, task, "return_instances")
    return _Members(
        first, *(load_time_values.struct_offset(e, instance, name) for name in ("stack", "orig_ret_vaddr", "next"))
    )


class _Frame(msgspec.Struct, frozen=True):
    """One iteration: store the frame, then step to its caller; ends the loop if there is none.

    *out* and *state* are scratch offsets of the stack and of the unwinder's state, *site* is the script location for
    which failures are counted.
    """

    e: Emitter
    kind: Stack
    out: int
    state: int
    site: int

    def emit(self, index: I64) -> None:
        """The body of the loop."""
        e, b = self.e, self.e.b
        place = b.at_most(index, self.kind.limit - 1)
        ip = self._load(_IP)
        b.store(ip, b.offset(e.area(self.out + self.kind.header), b.op("shl", place, 3)))
        self._store(_COUNT, b.add(place, 1))
        rule = self._rule(place, ip)
        base = b.op("and", rule, 15)
        self._leave_if(b.icmp("eq", base, Rule.LAST.value))
        self._cut_if(b.icmp("eq", base, Rule.NONE.value))
        with b.when(b.icmp("eq", base, Rule.SIGNAL.value), likely=False):
            self._signal_frame()
            b.ret(0)
        self._plain_frame(rule, base, ip)

    def _rule(self, place: Number, ip: Number) -> I64:
        """The rule at an address; if there is none, the address may be a return address replaced by a uretprobe."""
        b = self.e.b
        rule = b.register()
        b.store(self._find(b.sub(b.add(ip, self._load(_EXACT)), 1)), rule)
        members = _members(self.e)
        if members is None:
            return b.load(rule)
        done = b.block()
        b.jump_unless(b.icmp("eq", b.op("or", b.load(rule), self._load(_EXACT)), 0), done, likely=False)
        original = self._original(members)
        b.jump_unless(b.truth(original), done)
        b.store(original, b.offset(self.e.area(self.out + self.kind.header), b.op("shl", place, 3)))
        b.store(self._find(b.sub(original, 1)), rule)
        b.jump(done)
        b.start(done)
        return b.load(rule)

    def _find(self, address: Number) -> I64:
        return self.e.b.call(RULE_FUNCTION, numbers=[address, self._load(_SPACE)])

    def _original(self, members: _Members) -> I64:
        """The original return address of the frame just left; 0 if no uretprobe replaced it.

        The kernel keeps them in a list, innermost first, each with the stack pointer at the function's entry.
        """
        e, b = self.e, self.e.b
        original, instance = b.register(), b.register()
        b.store(0, original)
        task = b.helper(helpers.GET_CURRENT_TASK)
        utask = _read_kernel(e, b.add(task, task_field(e, "utask")))
        b.store(_read_kernel(e, b.add(utask, members.first)), instance)
        place = b.sub(self._load(_SP), 8)

        def step(_index: I64, leave: Callable[[], None]) -> None:
            address = b.load(instance)
            end, other = b.block(), b.block()
            b.jump_unless(b.truth(address), end)
            b.jump_unless(b.icmp("eq", _read_kernel(e, b.add(address, members.stack)), place), other)
            b.store(_read_kernel(e, b.add(address, members.original)), original)
            b.jump(end)
            b.start(end)
            leave()
            b.start(other)
            b.store(_read_kernel(e, b.add(address, members.next)), instance)

        loops.counted(e, _RETURN_PROBES, step)
        return b.load(original)

    def _load(self, offset: int) -> I64:
        return self.e.b.load(self.e.area(self.state + offset))

    def _store(self, offset: int, value: Number) -> None:
        self.e.b.store(value, self.e.area(self.state + offset))

    def _leave_if(self, condition: I1) -> None:
        with self.e.b.when(condition, likely=False):
            loops.leave(self.e)

    def _cut_if(self, condition: I1) -> None:
        """End with the frames so far, and count a truncated stack."""
        with self.e.b.when(condition, likely=False):
            self.e.counter("stack_cut", self.site)
            loops.leave(self.e)

    def _read(self, address: Number) -> I64:
        """A word of user memory; if it cannot be read, the stack is truncated."""
        failed = self.e.b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, address)
        self._cut_if(self.e.b.truth(failed))
        return self.e.b.load(self.e.cell)

    def _signal_frame(self) -> None:
        sp = self._load(_SP)
        for register, offset in ((_BP, _SIGNAL_RBP), (_IP, _SIGNAL_RIP), (_SP, _SIGNAL_RSP)):
            self._store(register, self._read(self.e.b.add(sp, offset)))
        self._store(_EXACT, 1)

    def _plain_frame(self, rule: Number, base: Number, ip: Number) -> None:
        b = self.e.b
        cfa = self._frame_address(rule, base, ip)
        # The stack grows down: a caller's frame that is not higher would make the walk loop.
        self._cut_if(b.icmp("ule", cfa, self._load(_SP)))
        caller = self._read(b.sub(cfa, 8))
        self._caller_rbp(b.op("and", b.op("lshr", rule, 4), 255), cfa)
        self._store(_SP, cfa)
        self._store(_IP, caller)
        self._store(_EXACT, 0)
        self._leave_if(b.icmp("eq", caller, 0))

    def _frame_address(self, rule: Number, base: Number, ip: Number) -> I64:
        """The canonical frame address (CFA) by the rule."""
        b, sp = self.e.b, self._load(_SP)
        distance = b.op("ashr", b.op("shl", rule, 32), 44)
        by_bp, in_memory = (
            b.either(b.icmp("eq", base, one.value), b.icmp("eq", base, other.value))
            for one, other in ((Rule.RBP, Rule.AT_RBP), (Rule.AT_RBP, Rule.AT_RSP))
        )
        cfa = b.register()
        b.store(b.add(b.select(by_bp, self._load(_BP), sp), b.op("shl", distance, 3)), cfa)
        other, done = b.block(), b.block()
        b.jump_unless(b.icmp("eq", base, Rule.PLT.value), other, likely=False)
        pushed = b.number(b.icmp("uge", b.op("and", ip, 15), distance))
        b.store(b.add(b.add(sp, 8), b.op("shl", pushed, 3)), cfa)
        b.jump(done)
        b.start(other)
        b.jump_unless(in_memory, done, likely=False)
        b.store(self._read(b.load(cfa)), cfa)
        b.jump(done)
        b.start(done)
        return b.load(cfa)

    def _caller_rbp(self, rule: Number, cfa: Number) -> None:
        b = self.e.b
        with b.when(b.truth(rule)):
            at_rbp = b.icmp("eq", rule, WHERE_RBP_POINTS)
            place = b.select(at_rbp, self._load(_BP), b.sub(cfa, b.op("shl", rule, 3)))
            self._store(_BP, self._read(place))
