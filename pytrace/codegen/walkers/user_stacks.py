"""Unwinding of user stacks by unwind tables, stacks mixed of Python and native frames, stacks of visited tasks.

Each frame is one iteration of ``bpf_loop``, with registers in scratch memory, so the verifier checks a single frame.

``dw_ustack`` unwinds processes that were selected before, by tables alone. A stack that *chooses* (``stack_unwinding =
auto``) takes for each frame the table that covers its address, and the frame pointer where none does. It asks the
session for the tables of a process that it meets for the first time, and follows frame pointers alone until they are
there.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from pytrace.codegen.emit import memory, tasks
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, I64, Made, Memory, Number, Operand, Ptr, global_pointer
from pytrace.codegen.walkers import frame_pointers, program_filters, python_threads, unwinding
from pytrace.codegen.walkers.frame_pointers import CODE_64, LOWEST, NOWHERE, StackTruncation
from pytrace.codegen.walkers.known_stacks import KnownUserStacks
from pytrace.codegen.walkers.memory_images import MemoryImages
from pytrace.codegen.walkers.python_stacks import BY_CODE, UNPLACED, PythonStacks
from pytrace.codegen.walkers.unwinding import (
    ASK_FUNCTION,
    BP,
    CODE,
    COUNT,
    EXACT,
    IP,
    MEMORY,
    PLAIN,
    RBP_FIRST,
    RBP_PLACE,
    RBPS,
    SP,
    SPACE,
    SPACES,
    START,
    STATE_SIZE,
    TOLD,
    TRAMPOLINE,
    VALUES,
    VALUES_SIZE,
    Choice,
    FrameReads,
    UnwindStep,
    declare_asking,
    declare_tables,
)
from pytrace.core.diagnostics import TraceError
from pytrace.core.probe_kinds import Context
from pytrace.core.python_format import FRAME, Word
from pytrace.core.stack_formats import REGISTERS
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


class Parts(msgspec.Struct, frozen=True):
    """Scratch offsets of an unwound stack, of the stack pointers in its frames and after the last, and of their number
    (0: the process has no tables).
    """

    stack: int
    pointers: int
    count: int


_NATIVE, _WORD, _FRAMES, _INSIDE, _EXTRA, _AFTER = range(0, 48, 8)
"""Offsets of the state: index of the next native frame, of the next word of the runs, number of frames written, 1 in a
run, number of native frames of the loop that have no Python frame, 1 right after the loop's frame."""
_STATE_SIZE = 48


class _Join(msgspec.Struct, frozen=True):
    """Scratch offsets: the native stack, the runs and the state of their walk, the mixed stack and the state."""

    e: Emitter
    type: Stack
    parts: Parts
    runs: int
    walk: int
    out: int
    state: int

    def _inside(self, e: Emitter) -> _Join:
        """The same in the callback of a loop."""
        return _Join(e, self.type, self.parts, self.runs, self.walk, self.out, self.state)

    def emit(self, node: nodes.Call | nodes.Identifier) -> None:
        """Write the mixed stack."""
        e, b, limit = self.e, self.e.b, self.type.limit
        e.memory.zero(e.area(self.out), self.type.size)
        for offset in (_NATIVE, _WORD, _FRAMES, _INSIDE, _EXTRA, _AFTER):
            self._store(offset, 0)
        with b.when(b.icmp("ne", self._row(Word.LOOP_START), 0)):
            e.loops.run(node.span, limit, lambda inner, index: self._inside(inner).count_loop(index))
            # Each run has two words, and a last one that is empty may follow.
            extra = b.sub(self._load(_EXTRA), b.op("lshr", b.load(e.area(self.walk + python_threads.STATE_COUNT)), 1))
            self._store(_EXTRA, b.select(b.icmp("sgt", extra, 0), extra, 0))
        e.loops.run(node.span, 4 * (limit + 1), lambda inner, _index: self._inside(inner).step())
        count = self._load(_FRAMES)
        if frame_pointers.marks_truncation(node):
            # A truncated native stack lacks its outermost frames, however many Python's are in their place.
            native = b.icmp("ugt", b.load(e.area(self.parts.count)), limit)
            count = b.select(native, limit + 1, count)
            StackTruncation(e).count_truncated(node, self.type, count)
        else:
            count = b.select(b.icmp("ugt", count, limit), limit, count)
        b.store(count, e.area(self.out), 32)
        b.store(MemoryImages(e).of_stack(self.type), b.offset(e.area(self.out), 4), 32)

    def count_loop(self, index: Number) -> None:
        """Count a native frame of the loop: while a call of it begins or ends, its Python frame is not in the list."""
        b = self.e.b
        self._leave_unless(b.icmp("ult", index, b.load(self.e.area(self.parts.count))))
        with b.when(self._is_loop(index)):
            self._store(_EXTRA, b.add(self._load(_EXTRA), 1))

    def step(self) -> None:
        """Write a frame, or begin or end a run."""
        e, b = self.e, self.e.b
        self._leave_unless(b.icmp("ule", self._load(_FRAMES), self.type.limit))
        at, last = self._load(_WORD), 2 * self.type.limit + 1
        left = b.icmp("ult", at, b.load(e.area(self.walk + python_threads.STATE_COUNT)))
        word = b.select(left, b.load(self._entry(self.runs, at, last)), UNPLACED)
        with b.when(b.truth(self._load(_INSIDE))):
            with b.when(b.icmp("ult", word, FRAME - (1 << 64))):
                self._store(_INSIDE, 0)
                b.ret(0)
            self._store(_WORD, b.add(at, 1))
            self._write(word)
            b.ret(0)
        index = self._load(_NATIVE)
        with b.unless(b.icmp("ult", index, b.at_most(b.load(e.area(self.parts.count)), self.type.limit))):
            self._leave_unless(left)
            self._begin()
        native = b.block()
        top = b.load(self._entry(self.parts.pointers, index, self.type.limit))
        with b.when(b.both(b.truth(self._load(_AFTER)), b.truth(b.op("and", top, TRAMPOLINE)))):
            # The function that calls the loop for one Python function (-X perf) would be that once more.
            self._store(_NATIVE, b.add(index, 1))
            self._store(_AFTER, 0)
            b.ret(0)
        with b.when(b.icmp("eq", word, BY_CODE)):
            self._begin_by_code(index)
            b.jump(native)
        with b.when(b.icmp("ne", word, UNPLACED)):
            self._begin_by_place(index, word)
        b.jump(native)
        b.start(native)
        self._store(_AFTER, 0)
        self._store(_NATIVE, b.add(index, 1))
        self._write(b.load(self._frame(index)))

    def _begin_by_code(self, index: Number) -> None:
        """Begin the run if the native frame is one of the loop."""
        b = self.e.b
        with b.when(self._is_loop(index)):
            extra = self._load(_EXTRA)
            with b.when(b.icmp("eq", extra, 0)):
                self._store(_NATIVE, b.add(index, 1))
                self._begin()
            self._store(_EXTRA, b.sub(extra, 1))

    def _begin_by_place(self, index: Number, place: Number) -> None:
        """Begin the run if the native frame contains its place, or would have come before."""
        b, most = self.e.b, self.type.limit
        low, high = (b.load(self._entry(self.parts.pointers, at, most)) for at in (index, b.add(index, 1)))
        with b.when(b.icmp("ult", place, high)):
            inside = b.number(b.icmp("uge", place, low))
            self._store(_NATIVE, b.add(index, inside))
            self._store(_AFTER, inside)
            self._begin()
        with b.when(b.truth(self._row(Word.TAIL_CALLS))):
            self._leave_out_handler(index, place)

    def _leave_out_handler(self, index: Number, place: Number) -> None:
        """Leave out the native frame if its caller's contains the place."""
        b, caller = self.e.b, self.e.b.add(index, 1)
        known = b.icmp("ult", caller, b.load(self.e.area(self.parts.count)))
        end = b.load(self._entry(self.parts.pointers, b.add(caller, 1), self.type.limit + 1))
        with b.when(b.both(known, b.icmp("ult", place, end))):
            self._store(_NATIVE, caller)
            b.ret(0)

    def _begin(self) -> None:
        self._store(_INSIDE, 1)
        self._store(_WORD, self.e.b.add(self._load(_WORD), 1))
        self.e.b.ret(0)

    def _is_loop(self, index: Number) -> I1:
        """Whether a native frame is in the code of the loop. A return address may be after its end."""
        b = self.e.b
        address = b.sub(b.load(self._frame(index)), b.number(b.icmp("ne", index, 0)))
        hot, cold = (
            b.icmp("ult", b.sub(address, self._row(start)), b.sub(self._row(end), self._row(start)))
            for start, end in ((Word.LOOP_START, Word.LOOP_END), (Word.COLD_START, Word.COLD_END))
        )
        return b.either(hot, cold)

    # ------------------------------------------------------------------ primitives

    def _write(self, frame: Number) -> None:
        """Write a frame; of one more than the limit only its number."""
        count = self._load(_FRAMES)
        with self.e.b.when(self.e.b.icmp("ult", count, self.type.limit), likely=True):
            self.e.b.store(frame, self._entry(self.out + self.type.header, count, self.type.limit - 1))
        self._store(_FRAMES, self.e.b.add(count, 1))

    def _frame(self, index: Number) -> Ptr:
        return self._entry(self.parts.stack + self.type.header, index, self.type.limit - 1)

    def _entry(self, array: int, index: Number, last: int) -> Ptr:
        b = self.e.b
        return b.offset(self.e.area(array), b.op("shl", b.at_most(index, last), 3))

    def _row(self, word: Word) -> I64:
        return python_threads.row_word(self.e.b, self.e.area(self.walk), word)

    def _load(self, offset: int) -> I64:
        return self.e.b.load(self.e.area(self.state + offset))

    def _store(self, offset: int, value: Number) -> None:
        self.e.b.store(value, self.e.area(self.state + offset))

    def _leave_unless(self, condition: I1) -> None:
        with self.e.b.unless(condition, likely=True):
            self.e.loops.leave()


RUNNING = -errno.EBUSY
"""The error of a stack of a task that is on a CPU (``render.names``); none of the helpers returns it."""

_WORD = 8


class UserUnwinding(Part):
    """Unwinds user stacks."""

    def usable(self, type_: Stack) -> bool:
        """Whether such a stack may be unwound by tables in this program; if not, ``ustack`` follows frame pointers."""
        unit, kernel = self.program.unit, self.script.kernel
        if (
            not type_.user
            or type_.mode is StackMode.BUILD_ID
            or kernel.arch != "x86_64"
            or self.script.ahead is not None
        ):
            return False
        if unit.kind.special or unit.kind.context is Context.ITERATOR or not kernel.feature("bpf_loop"):
            return False
        return self.e.tasks.has_members({"task_struct": _TASK})

    def chosen(
        self, node: Node, type_: Stack, entry: bool, otherwise: Callable[[Ptr], None], parts: Parts | None = None
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
        if not self.script.unwinds and not self.script.asks:
            declare_tables(self.module)
        if not self.script.asks:
            self.script.asks = True
            declare_asking(self.module)
        b, state = self.b, self.e.reserve(STATE_SIZE)
        # One frame more, to see whether there is one.
        out = self.e.reserve(type_.size + FRAME_SIZE) if parts is None else parts.stack
        plain, done = b.block(), b.block()
        if parts is not None:
            b.store(0, self.e.area(parts.count))
        pid = self.e.tasks.process_ids("tracer")[0]
        space = self.e.tasks.pointer_member("mm")
        b.store(space, self.e.area(state + MEMORY))
        b.jump_if(b.icmp("eq", space, 0), plain, likely=False)
        without = b.op("and", self.e.tasks.member("flags", 32), frame_pointers.WITHOUT_STACK)
        b.jump_if(b.truth(without), plain, likely=False)
        self._registers(state)
        segment = b.op("and", b.load(self.e.area(state + CODE)), 0xFFFF)
        b.jump_unless(b.icmp("eq", segment, frame_pointers.CODE_64), plain, likely=True)
        known, unknown, ranges = b.block(), b.block(), b.register()
        b.branch(self._find_space(ranges, pid, space), known, unknown, likely=True)
        b.start(unknown)
        self._find_parents_space(b.helper(helpers.GET_CURRENT_TASK), ranges, known)
        b.call(ASK_FUNCTION, numbers=[pid, space])
        self.e.counter("stack_early", self.script.layout.site(_CHOOSING, location(node.span)))
        b.jump(plain)
        b.start(known)
        self._unwind(node, type_, ranges, out, state, Choice(entry, self.e.reserve(unwinding.CODE_STATE_SIZE)), parts)
        b.jump(done)
        b.start(plain)
        otherwise(self.e.area(out))
        b.jump(done)
        b.start(done)
        return Memory(self.e.area(out), type_)

    def stack(self, node: Node, type_: Stack) -> Operand:
        """Unwind the current task's user stack into scratch memory."""
        if not self.script.kernel.feature("bpf_loop"):
            hints = ("ustack() follows frame pointers",)
            raise TraceError("dw_ustack() needs a kernel with bpf_loop (Linux 5.17)", hints=hints)
        if not self.script.unwinds and not self.script.asks:
            declare_tables(self.module)
        self.script.unwinds = True
        out, state = self.e.reserve(type_.size + FRAME_SIZE), self.e.reserve(STATE_SIZE)
        done = self.b.block()
        space = self._start(node, out, type_, done)
        self._registers(state)
        self._unwind(node, type_, space, out, state, None)
        self.b.jump(done)
        self.b.start(done)
        return Memory(self.e.area(out), type_)

    def _unwind(
        self,
        node: Node,
        type_: Stack,
        space: Ptr,
        out: int,
        state: int,
        choice: Choice | None,
        parts: Parts | None = None,
    ) -> None:
        """Write the frames of a process, beginning with the registers in *state*; *space* contains where its
        ranges are.
        """
        b, target = self.b, self.e.area(out)
        self.e.memory.zero(target, type_.size)
        b.store(MemoryImages(self.e).of_stack(type_), b.offset(target, 4), 32)
        exact = 0 if program_filters.in_caller(self.program.unit) else 1
        start = b.load(self.e.area(state + SP))
        for offset, value in (
            (SPACE, b.load(space)), (COUNT, 0), (EXACT, exact), (START, start), (PLAIN, 1), (RBP_PLACE, RBP_FIRST),
            (RBPS, 0),
        ):  # fmt: skip
            b.store(value, self.e.area(state + offset))
        site = self.script.layout.site(_SITE if choice is None else _CHOOSING, location(node.span))
        # Where stack pointers are noted, the caller asks for one more frame.
        most = type_.limit + (parts is None and frame_pointers.marks_truncation(node))
        known = KnownUserStacks(self.e)
        pointers = self.e.reserve(known.pointers_size(most)) if parts is None else parts.pointers

        def walk() -> None:
            def step(inner: Emitter, index: I64) -> None:
                UnwindStep(inner, type_, most, out, state, site, choice, pointers).emit(index)

            self.e.loops.run(node.span, most, step)

        known.walk(b.offset(target, type_.header), state, pointers, most << 1 | exact, most, walk)
        count = b.load(self.e.area(state + COUNT))
        if parts is None:
            StackTruncation(self.e).count_truncated(node, type_, count)
        b.store(count, self.e.area(out), 32)
        if parts is not None:
            b.store(count, self.e.area(parts.count))
            last = b.op("shl", b.at_most(count, type_.limit), 3)
            b.store(b.load(self.e.area(state + SP)), b.offset(self.e.area(parts.pointers), last))

    def _fail(self, target: Ptr, code: int, done: Block) -> None:
        self.b.store(code, target, 32)
        self.b.jump(done)

    def _start(self, node: Node, out: int, type_: Stack, done: Block) -> Ptr:
        """A register that contains where the ranges of the process are, or jump to *done* with an error in the
        stack.
        """
        b, target = self.b, self.e.area(out)
        self.e.memory.zero(target, type_.size)
        b.store(MemoryImages(self.e).of_stack(type_), b.offset(target, 4), 32)
        task = b.helper(helpers.GET_CURRENT_TASK)
        with b.unless(b.truth(FrameReads(self.e).read_kernel(b.add(task, self.e.tasks.task_field("mm"))))):
            self._fail(target, _NO_STACK, done)
        space = b.register()
        has_tables, no_tables = b.block(), b.block()
        b.branch(self._find_space(space, self.e.tasks.process_ids("tracer")[0]), has_tables, no_tables, likely=True)
        b.start(no_tables)
        self._find_parents_space(task, space, has_tables)
        self._tell(node)
        self._fail(target, _NO_TABLES, done)
        b.start(has_tables)
        return space

    def _find_space(self, space: Ptr, pid: Number, memory: Number | None = None) -> I1:
        """``i1``: the process has tables; *space* then contains the location of its ranges.

        With *memory*, its address space, those of a program before execve(2) do not count.
        """
        b = self.b
        b.store(0, space)
        b.store(pid, self.e.cell, 32)
        location = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(SPACES), self.e.cell)
        with b.unless(b.is_null(location), likely=False):
            if memory is None:
                b.store(b.load(location), space)
            else:
                owner = b.offset(location, 8)
                with b.when(b.icmp("eq", b.load(owner), 0), likely=False):
                    b.store(memory, owner)
                b.store(b.select(b.icmp("eq", b.load(owner), memory), b.load(location), 0), space)
        return b.truth(b.load(space))

    def _find_parents_space(self, task: Number, space: Ptr, known: Block) -> None:
        """Continue at *known* if the process is a child, new to the session, of a process that has tables.

        Until it calls execve it has its parent's mappings, and its ``mm`` refers to the same ``exe_file``.
        """
        memory_type = self.script.kernel.struct("struct", "mm_struct")
        if self.script.kernel.pid_namespace is not None or memory_type is None:
            return
        b, file = self.b, self.e.load_time.struct_offset(memory_type, "exe_file")
        parent = FrameReads(self.e).read_kernel(b.add(task, self.e.tasks.task_field("real_parent")))
        files = [
            FrameReads(self.e).read_kernel(
                b.add(FrameReads(self.e).read_kernel(b.add(owner, self.e.tasks.task_field("mm"))), file)
            )
            for owner in (task, parent)
        ]
        other = b.block()
        b.jump_unless(b.icmp("eq", *files), other)
        number = b.op("and", FrameReads(self.e).read_kernel(b.add(parent, self.e.tasks.task_field("tgid"))), 0xFFFFFFFF)
        b.branch(self._find_space(space, number), known, other)
        b.start(other)

    def _tell(self, node: Node) -> None:
        """Count a process without tables, and report it the first time."""
        b = self.b
        self.e.counter("user_stack", self.script.layout.site(_SITE, location(node.span)))
        b.store(self.e.tasks.process_ids("tracer")[0], self.e.cell, 32)
        failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(TOLD), self.e.cell, self.e.cell, _NEW)
        with b.unless(b.truth(failed)):
            self.e.events.report(node, "no_dwarf")

    def _registers(self, state: int) -> None:
        """User registers: those of the context, or those saved at kernel entry."""
        b, row, table = self.b, self.program.unit.kind, self.e.probe.registers()
        done = b.block()
        if row.user or row.program_type == "perf_event":
            entered = b.block()
            if not row.user:
                level = b.op("and", self.e.probe.register("cs"), _USER_MODE)
                b.jump_unless(b.icmp("eq", level, _USER_MODE), entered)
            for name in (*REGISTERS, *_POINTERS):
                b.store(self.e.probe.register(name), self._value(state, table.offset(name)))
            b.jump(done)
            b.start(entered)
        if not row.user:
            # By one copy: LLVM would join loads from here and from a context, which the verifier rejects.
            saved = b.pointer(b.helper(helpers.TASK_PT_REGS, b.helper(helpers.GET_CURRENT_TASK_BTF)))
            b.helper(helpers.PROBE_READ_KERNEL, self._value(state, 0), VALUES_SIZE, b.address(saved))
        b.jump(done)
        b.start(done)
        for name, offset in (*_POINTERS.items(), ("bp", BP)):
            b.store(b.load(self._value(state, table.offset(name)), again=True), self.e.area(state + offset))
        if row.user and program_filters.in_caller(self.program.unit):
            # The function is left: its caller is the innermost frame, as at a return that the kernel sees.
            stack = b.load(self.e.area(state + SP))
            b.helper(helpers.PROBE_READ_USER, self.e.area(state + IP), 8, stack)
            b.store(b.add(stack, 8), self.e.area(state + SP))

    def _value(self, state: int, offset: int) -> Ptr:
        return self.e.area(state + VALUES + offset)


class MixedStacks(Part):
    """Joins frames of Python and of native code."""

    def usable(self, type_: Stack) -> bool:
        """Whether such a stack has Python frames in this program, which have no addresses."""
        config = self.checked.config
        if not config.python_frames or config.stack_unwinding in {"frame_pointers", "tables"}:
            return False
        return type_.mode is not StackMode.RAW and UserUnwinding(self.e).usable(type_)

    def stack(
        self, node: nodes.Call | nodes.Identifier, type_: Stack, entry: bool, otherwise: Callable[[Ptr], None]
    ) -> Operand:
        """Write the mixed stack to scratch memory; arguments as for :func:`user_unwinding.chosen`."""
        b, words = self.b, 2 * type_.limit + 2
        wide = replace(type_, limit=type_.limit + 1)
        runs, walk = self.e.reserve(8 * words), self.e.reserve(python_threads.STATE_SIZE)
        sizes = wide.size, KnownUserStacks.pointers_size(wide.limit), 8
        parts = Parts(*(self.e.reserve(size) for size in sizes))
        out, state = self.e.reserve(type_.size), self.e.reserve(_STATE_SIZE)
        PythonStacks(self.e).runs(node, runs, words, walk)
        UserUnwinding(self.e).chosen(node, wide, entry, otherwise, parts)
        native, mixed, done = b.block(), b.block(), b.block()
        b.branch(b.icmp("eq", b.load(self.e.area(walk + python_threads.STATE_COUNT)), 0), native, mixed)
        b.start(native)
        with b.when(b.icmp("ugt", b.load(self.e.area(parts.count)), type_.limit)):
            if frame_pointers.marks_truncation(node):
                StackTruncation(self.e).count(node)
            else:
                b.store(type_.limit, self.e.area(parts.stack), 32)
        ends = [(self.e.area(parts.stack), b.block())]
        b.jump(ends[0][1])
        b.start(ends[0][1])
        b.jump(done)
        b.start(mixed)
        _Join(self.e, type_, parts, runs, walk, out, state).emit(node)
        ends.append((self.e.area(out), b.block()))
        b.jump(ends[1][1])
        b.start(ends[1][1])
        b.jump(done)
        b.start(done)
        return Memory(b.phi_pointer(ends), type_)


class VisitedStacks(Part):
    """Stacks of the tasks that an iterator visits."""

    def stack(self, node: Node, type_: Stack) -> Made:
        """The stack of the visited task."""

        def write(pointer: Ptr, _align: int) -> None:
            b = self.b
            frames, room = b.offset(pointer, type_.header), type_.limit * type_.frame_size
            if memory.inline(room, _WORD):
                b.clear(frames, room)
            else:
                b.helper(helpers.PROBE_READ_USER, frames, room, NOWHERE)
            count, process = b.register(), b.register()
            b.store(_NO_STACK, count)
            b.store(0, process)
            task = self.e.foreign.visited_task()
            with b.unless(b.is_null(task), likely=True):
                on_cpu = b.load(b.offset(task, self.e.tasks.known_field("task_struct", "on_cpu")), 32)
                running, sleeping, done = b.block(), b.block(), b.block()
                b.branch(b.truth(on_cpu), running, sleeping, likely=False)
                b.start(running)
                b.store(RUNNING, count)
                b.jump(done)
                b.start(sleeping)
                if type_.user:
                    b.store(tasks.OtherTask(self.e, self.e.launder(b.address(task))).process("tracer"), process)
                    self._walk(node, type_, task, frames, count)
                else:
                    b.store(self._of_kernel(node, type_, task, frames), count)
                b.jump(done)
                b.start(done)
            b.store(b.load(count), pointer, 32)
            b.store(b.load(process), b.offset(pointer, 4), 32)

        return Made(type_, write)

    def _of_kernel(self, node: Node, type_: Stack, task: Ptr, frames: Ptr) -> Number:
        """Write the frames of the kernel stack. Returns their number, or the helper's error."""
        b = self.b

        def get_stack(place: Ptr, limit: int) -> I64:
            length = b.helper(helpers.GET_TASK_STACK, task, place, limit * type_.frame_size, 0)
            # A task that has ended has no stack any more.
            with b.when(b.both(b.icmp("slt", length, 0), b.icmp("ne", length, _NO_STACK)), likely=False):
                self.e.events.failed_stack(node, "bpf_get_task_stack", "kernel_stack")
            return length

        length = get_stack(frames, type_.limit)
        count = b.select(b.icmp("slt", length, 0), length, b.op("udiv", length, type_.frame_size))
        return StackTruncation(self.e).of_kernel(node, type_, count, 0, get_stack)

    def _walk(self, node: Node, type_: Stack, task: Ptr, frames: Ptr, count: Ptr) -> None:
        """Write the frames of the user stack, and their number to *count*; nothing for threads of the kernel."""
        b, table = self.b, self.e.probe.registers()
        with b.when(b.truth(b.load(b.offset(task, self.e.tasks.known_field("task_struct", "mm"))))):
            if not self.e.foreign.may_sleep():
                # Programs with some maps may not.
                b.store(-errno.EOPNOTSUPP, count)
                self.e.events.failed_stack(node, "bpf_get_task_stack", "user_stack")
                return
            self.program.sleeps = True
            saved = b.pointer(b.helper(helpers.TASK_PT_REGS, b.address(task)))
            ip, fp, segment = (b.load(b.offset(saved, table.offset(name))) for name in ("ip", "bp", "cs"))
            record, place = b.alloca(2 * _WORD), b.register()
            b.store(fp, place)
            with b.when(b.icmp("eq", b.op("and", segment, 0xFFFF), CODE_64)):
                b.store(ip, frames)
                b.store(1, count)

                def read(leave: Callable[[], None]) -> None:
                    """Read the record at the frame pointer, and go on to the next one; *leave* where there is none."""
                    here = b.load(place)
                    with b.when(b.icmp("ult", here, LOWEST), likely=False):
                        leave()
                    error = b.helper(helpers.COPY_FROM_USER_TASK, record, 2 * _WORD, here, task, 0)
                    with b.unless(b.icmp("eq", b.fit(error, 32, signed=True), 0), likely=True):
                        leave()
                    following = b.load(record)
                    # A frame that points to itself is the last one, as for the current task.
                    b.store(b.select(b.icmp("eq", following, here), 0, following), place)

                def step(index: I64, leave: Callable[[], None]) -> None:
                    read(leave)
                    b.store(b.load(b.offset(record, _WORD)), b.offset(frames, b.op("shl", b.add(index, 1), 3)))
                    b.store(b.add(index, 2), count)

                if type_.limit > 1:
                    self.e.loops.counted(type_.limit - 1, step)
                if frame_pointers.marks_truncation(node):
                    with b.when(b.icmp("eq", b.load(count), type_.limit), likely=False):
                        ended = b.block()
                        read(lambda: b.jump(ended))
                        b.store(type_.limit + 1, count)
                        StackTruncation(self.e).count(node)
                        b.jump(ended)
                        b.start(ended)
