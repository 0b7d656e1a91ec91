"""One frame of :mod:`pytrace.codegen.services.user_unwinding`: the iteration that stores it and steps to its caller."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, number_parameter
from pytrace.codegen.services import code_ahead, frame_pointers
from pytrace.codegen.services.unwind_tables import ASK_FUNCTION, RULE_FUNCTION
from pytrace.core.stacks.unwind_format import REGISTERS, WHERE_RBP_POINTS, Rule
from pytrace.core.types import Stack

IP, SP, BP, SPACE, COUNT = 0, 8, 16, 24, 32
"""Offsets of the unwinder's state: registers, ranges of the process, number of frames."""
EXACT = 40
"""1 if ip is the current instruction, 0 if it is a return address, which may be after its function's end."""
MEMORY = 48
"""The address of the process's ``struct mm_struct``, if the stack chooses."""
CODE = 56
"""The code segment."""

_INTERRUPTED = (*(f"r{number}" for number in range(8, 16)), "di", "si", "bp", "bx", "dx", "ax", "cx", "sp", "ip")
"""Registers in the order of ``struct sigcontext``."""

VALUES = 64
"""``struct pt_regs`` of the innermost frame. Of one that a signal interrupted, :data:`REGISTERS` alone."""
VALUES_SIZE = 168
_SAVED = VALUES + VALUES_SIZE
"""Room for the registers in a signal frame."""
STATE_SIZE = _SAVED + 8 * len(_INTERRUPTED)

_SIGNAL = 40
"""Offset in the signal frame of ``uc_mcontext`` of ``struct ucontext``, which is one."""

TRAMPOLINE = 1
"""The bit of a frame's stack pointer in the array of them that marks a function which does nothing but call another."""
_ADD_MASK, _ADD_AND_RETURN, _POP_AND_RETURN = 0xFF_87FF_FFFF, 0xC3_00C4_8348, 0xC35D
"""``add $8n, %rsp; ret`` of less than 128 bytes, and ``pop %rbp; ret``."""


_RETURN_PROBES = 64
"""Maximum nesting of uretprobed functions of a task: ``MAX_URETPROBE_DEPTH`` of the kernel."""


def read_kernel(e: Emitter, address: Number) -> I64:
    """A word of kernel memory; 0 on a fault."""
    e.b.helper(helpers.PROBE_READ_KERNEL, e.cell, 8, address)
    return e.b.load(e.cell)


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
    first = e.load_time.struct_offset(task, "return_instances")
    return _Members(
        first, *(e.load_time.struct_offset(instance, name) for name in ("stack", "orig_ret_vaddr", "next"))
    )


def _original(e: Emitter, members: _Members) -> str:
    """A function of where a return address was that returns it; 0 if no uretprobe replaced it.

    The kernel keeps them in a list, innermost first, each with the stack pointer at the function's entry.
    """
    if e.script.original_function:
        return e.script.original_function
    e.script.original_function = "unwind_original"
    b = e.module.function(e.script.original_function, ("place",), None, apart=True)
    inner = Emitter(e.program, b, e.span, 0, None)
    instance = b.register()
    utask = read_kernel(inner, b.add(b.helper(helpers.GET_CURRENT_TASK), inner.tasks.task_field("utask")))
    b.store(read_kernel(inner, b.add(utask, members.first)), instance)

    def step(_index: I64, leave: Callable[[], None]) -> None:
        address = b.load(instance)
        other, found = b.block(), b.block()
        with b.unless(b.truth(address)):
            leave()
        at = read_kernel(inner, b.add(address, members.stack))
        b.branch(b.icmp("eq", at, number_parameter("place")), found, other)
        b.start(found)
        b.ret(read_kernel(inner, b.add(address, members.original)))
        b.start(other)
        b.store(read_kernel(inner, b.add(address, members.next)), instance)

    inner.loops.counted(_RETURN_PROBES, step)
    b.ret(0)
    return e.script.original_function


class Choice(msgspec.Struct, frozen=True):
    """A stack that chooses; *entry*: the probe is at the first instruction of a function.

    *code* is the scratch offset of :mod:`pytrace.codegen.services.code_ahead`.
    """

    entry: bool
    code: int


class Frame(msgspec.Struct, frozen=True):
    """One iteration: store the frame, then step to its caller; ends the loop if there is none.

    At most *limit* frames are stored. *out* and *state* are scratch offsets of the stack and of the unwinder's state,
    *site* is the script location for which failures are counted. *choice* is None for unwinding by tables alone.
    *tops*, if any, is the scratch offset of an array to which the stack pointer in each frame is written.
    """

    e: Emitter
    kind: Stack
    limit: int
    out: int
    state: int
    site: int
    choice: Choice | None
    tops: int | None = None

    def emit(self, index: I64) -> None:
        """The body of the loop."""
        b = self.e.b
        place = b.at_most(index, self.limit - 1)
        ip = self._load(IP)
        b.store(ip, self._place(place))
        if self.tops is not None:
            b.store(self._load(SP), b.offset(self.e.area(self.tops), b.op("shl", place, 3)))
        self._store(COUNT, b.add(place, 1))
        rule = self._rule(place, ip)
        base = b.op("and", rule, 15)
        self._leave_if(b.icmp("eq", base, Rule.LAST.value))
        with b.when(self._either(base, Rule.FRAME, Rule.UNMAPPED), likely=False):
            with b.unless(b.truth(self._load(EXACT))):
                self._trampoline(place, ip)
        if self.choice is not None:
            self._without_table(self.choice, place, base)
            self._cut_if(b.icmp("eq", base, Rule.NONE.value))
        else:
            self._cut_if(b.either(b.icmp("eq", base, Rule.FRAME.value), b.icmp("uge", base, Rule.NONE.value)))
        with b.when(b.icmp("eq", base, Rule.SIGNAL.value), likely=False):
            self._signal_frame()
            b.ret(0)
        with b.when(self._either(base, Rule.RETURN, Rule.REGISTER), likely=False):
            self._by_registers(rule, base)
            b.ret(0)
        self._plain_frame(rule, base, ip)

    def _rule(self, place: Number, ip: Number) -> I64:
        """The rule at an address; if there is none, the address may be a return address replaced by a uretprobe."""
        b = self.e.b
        rule = b.register()
        b.store(self._find(b.sub(b.add(ip, self._load(EXACT)), 1)), rule)
        members = _members(self.e)
        if members is None:
            return b.load(rule)
        done = b.block()
        b.jump_unless(b.icmp("eq", b.load(rule), Rule.UNMAPPED.value), done, likely=False)
        b.jump_if(b.truth(self._load(EXACT)), done)
        original = b.call(_original(self.e, members), numbers=[b.sub(self._load(SP), 8)])
        b.jump_unless(b.truth(original), done)
        b.store(original, self._place(place))
        b.store(self._find(b.sub(original, 1)), rule)
        b.jump(done)
        b.start(done)
        return b.load(rule)

    def _without_table(self, choice: Choice, place: Number, base: Number) -> None:
        """Step by the frame pointer where no table covers the address.

        A return address outside of all code is none: the frame pointer before it was a number. The process may also
        have mapped new code, so its tables are asked for.
        """
        b = self.e.b
        with b.when(b.icmp("eq", base, Rule.UNMAPPED.value), likely=False):
            b.call(ASK_FUNCTION, numbers=[self.e.tasks.process_ids("tracer")[0], self._load(MEMORY)])
            with b.unless(b.truth(self._load(EXACT))):
                b.store(0, self._place(place))
                self._store(COUNT, place)
                self._cut()
        with b.when(self._either(base, Rule.FRAME, Rule.UNMAPPED), likely=False):
            with b.when(b.truth(self._load(EXACT)), likely=False):
                if choice.entry:
                    self._at_entry()
                    b.ret(0)
                else:
                    self._innermost(choice.code)
            self._by_frame_pointer()
            b.ret(0)

    def _trampoline(self, place: Number, ip: Number) -> None:
        """Step out of a function that returns right after the call, and keeps no frame: rbp is its caller's.

        ``python -X perf`` has one for each function (``Python/asm_trampoline.S``); later ones keep a frame.
        """
        b = self.e.b
        failed = b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, ip)
        with b.unless(b.truth(failed), likely=True):
            code = b.load(self.e.cell)
            plain = b.icmp("eq", b.op("and", code, _ADD_MASK), _ADD_AND_RETURN)
            if self.tops is not None:
                framed = b.icmp("eq", b.op("and", code, 0xFFFF), _POP_AND_RETURN)
                mark = b.number(b.either(plain, framed))
                top = b.offset(self.e.area(self.tops), b.op("shl", place, 3))
                b.store(b.op("or", self._load(SP), mark), top)
            with b.when(plain):
                returned = b.add(self._load(SP), b.op("and", b.op("lshr", code, 24), 0x78))
                self._store(IP, self._read(returned))
                self._store(SP, b.add(returned, 8))
                b.ret(0)

    def _either(self, base: Number, one: Rule, other: Rule) -> I1:
        return self.e.b.either(self.e.b.icmp("eq", base, one.value), self.e.b.icmp("eq", base, other.value))

    def _at_entry(self) -> None:
        """At the first instruction of a function the return address is on top of the stack."""
        sp = self._load(SP)
        self._store(IP, self._read(sp))
        self._store(SP, self.e.b.add(sp, 8))
        self._store(EXACT, 0)

    def _innermost(self, code: int) -> None:
        """The caller by the instructions ahead, if these say where the return address is."""
        b, e, sp = self.e.b, self.e, self._load(SP)
        code_ahead.find(e, e.span, code, self._load(IP), sp, self._load(BP))
        found, saved = (b.load(e.area(code + offset), again=True) for offset in (code_ahead.FOUND, code_ahead.SAVED))
        with b.unless(b.icmp("eq", found, code_ahead.NOWHERE)):
            with b.unless(b.icmp("eq", saved, code_ahead.NOWHERE)):
                self._store(BP, self._read(b.add(sp, saved)))
            place = b.add(sp, found)
            self._store(IP, self._read(place))
            self._store(SP, b.add(place, 8))
            self._store(EXACT, 0)
            b.ret(0)

    def _by_frame_pointer(self) -> None:
        """The caller by rbp; 0, and a frame that points to itself, end the stack.

        Go's system calls go on with the frames of another stack, which may lie anywhere.
        """
        b, fp = self.e.b, self._load(BP)
        self._leave_if(b.icmp("ult", fp, frame_pointers.LOWEST))
        caller = self._read(b.add(fp, 8))
        self._leave_if(b.icmp("eq", caller, 0))
        following = self._read(fp)
        self._store(BP, b.select(b.icmp("eq", following, fp), 0, following))
        self._store(IP, caller)
        self._store(SP, b.add(fp, frame_pointers.FRAME))
        self._store(EXACT, 0)

    def _place(self, place: Number) -> Ptr:
        """Where a frame is stored."""
        return self.e.b.offset(self.e.area(self.out + self.kind.header), self.e.b.op("shl", place, 3))

    def _find(self, address: Number) -> I64:
        return self.e.b.call(RULE_FUNCTION, numbers=[address, self._load(SPACE)])

    def _load(self, offset: int) -> I64:
        return self.e.b.load(self.e.area(self.state + offset))

    def _store(self, offset: int, value: Number) -> None:
        self.e.b.store(value, self.e.area(self.state + offset))

    def _leave_if(self, condition: I1) -> None:
        with self.e.b.when(condition, likely=False):
            self.e.loops.leave()

    def _cut_if(self, condition: I1) -> None:
        """End with the frames so far, and count a truncated stack."""
        with self.e.b.when(condition, likely=False):
            self._cut()

    def _cut(self) -> None:
        self.e.counter("stack_cut" if self.choice is None else "stack_end", self.site)
        self.e.loops.leave()

    def _read(self, address: Number) -> I64:
        """A word of user memory; if it cannot be read, the stack is truncated."""
        failed = self.e.b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, address)
        self._cut_if(self.e.b.truth(failed))
        return self.e.b.load(self.e.cell)

    def _signal_frame(self) -> None:
        b, saved = self.e.b, self.e.area(self.state + _SAVED)
        source = b.add(self._load(SP), _SIGNAL)
        self._cut_if(b.truth(b.helper(helpers.PROBE_READ_USER, saved, 8 * len(_INTERRUPTED), source)))
        values = {name: b.load(b.offset(saved, 8 * index), again=True) for index, name in enumerate(_INTERRUPTED)}
        for number, name in enumerate(REGISTERS):
            self._store(VALUES + 8 * number, values[name])
        for register, name in ((BP, "bp"), (SP, "sp"), (IP, "ip")):
            self._store(register, values[name])
        self._store(EXACT, 1)

    def _by_registers(self, rule: Number, base: Number) -> None:
        """The caller by a register that only an innermost frame has."""
        b, sp = self.e.b, self._load(SP)
        self._cut_if(b.icmp("eq", self._load(EXACT), 0))
        by_base = b.block()
        b.jump_if(b.icmp("eq", base, Rule.REGISTER.value), by_base)
        caller = self._value(b.op("lshr", rule, 4))
        self._store(SP, b.add(sp, b.op("shl", b.op("lshr", rule, 12), 3)))
        self._continue(caller)
        b.ret(0)
        b.start(by_base)
        distance = b.op("ashr", b.op("shl", rule, 32), 48)
        self._by_address(rule, b.add(self._value(b.op("lshr", rule, 12)), b.op("shl", distance, 3)))

    def _value(self, number: Number) -> I64:
        """The register of a number."""
        b = self.e.b
        place = b.op("shl", b.at_most(b.op("and", number, 15), len(REGISTERS) - 1), 3)
        return b.load(b.offset(self.e.area(self.state + VALUES), place))

    def _plain_frame(self, rule: Number, base: Number, ip: Number) -> None:
        self._by_address(rule, self._frame_address(rule, base, ip))

    def _by_address(self, rule: Number, cfa: Number) -> None:
        """The caller by the canonical frame address."""
        b = self.e.b
        # The stack grows down: a caller's frame that is not higher would make the walk loop.
        self._cut_if(b.icmp("ule", cfa, self._load(SP)))
        caller = self._read(b.sub(cfa, 8))
        self._caller_rbp(b.op("and", b.op("lshr", rule, 4), 255), cfa)
        self._store(SP, cfa)
        self._continue(caller)

    def _continue(self, caller: Number) -> None:
        """Go on at a return address."""
        self._store(IP, caller)
        self._store(EXACT, 0)
        self._leave_if(self.e.b.icmp("eq", caller, 0))

    def _frame_address(self, rule: Number, base: Number, ip: Number) -> I64:
        """The canonical frame address (CFA) by the rule."""
        b, sp = self.e.b, self._load(SP)
        distance = b.op("ashr", b.op("shl", rule, 32), 44)
        by_bp, in_memory = self._either(base, Rule.RBP, Rule.AT_RBP), self._either(base, Rule.AT_RBP, Rule.AT_RSP)
        cfa = b.register()
        b.store(b.add(b.select(by_bp, self._load(BP), sp), b.op("shl", distance, 3)), cfa)
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
            place = b.select(at_rbp, self._load(BP), b.sub(cfa, b.op("shl", rule, 3)))
            self._store(BP, self._read(place))
