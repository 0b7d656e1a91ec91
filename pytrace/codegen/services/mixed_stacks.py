"""``ustack`` with ``python_frames``: a native stack with Python's frames in place of those of the interpreter's loop.

The native frames are unwound with the stack pointer in each, and Python's frames are walked as runs
(:mod:`pytrace.codegen.services.python.stacks`). Both are then joined from the innermost frame on: a native frame whose
part of the stack contains the variable that a run names is the call of the loop that ran these frames, and they take
its place. No symbol is needed for that, and native frames that are missing leave Python's as they are. Before 3.11
there is no such variable, and a native frame in the code of the loop stands for one Python frame.

Where the handlers of instructions are functions (``--with-tail-call-interp``, since 3.14), the loop has called one of
them, which jumps to the next: theirs is the only frame between the loop's and those of C functions, and is left out.
One native frame more than the limit is unwound, so that the caller of each one that may be written is known.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from pytrace.codegen.emit import stack_truncation
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import I1, I64, Memory, Number, Operand, Ptr
from pytrace.codegen.services import memory_images, user_unwinding
from pytrace.codegen.services.python import records
from pytrace.codegen.services.python import stacks as python_stacks
from pytrace.codegen.services.python.stacks import BY_CODE, UNPLACED
from pytrace.codegen.services.unwound_frame import TRAMPOLINE
from pytrace.core.stacks.python_format import FRAME, Word
from pytrace.core.types import Stack, StackMode
from pytrace.frontend.syntax import nodes

_NATIVE, _WORD, _FRAMES, _INSIDE, _EXTRA, _AFTER = range(0, 48, 8)
"""Offsets of the state: index of the next native frame, of the next word of the runs, number of frames written, 1 in a
run, number of native frames of the loop that have no Python frame, 1 right after the loop's frame."""
_STATE_SIZE = 48


def usable(e: Emitter, type_: Stack) -> bool:
    """Whether such a stack has Python frames in this program, which have no addresses."""
    config = e.checked.config
    if not config.python_frames or config.stack_unwinding in {"frame_pointers", "tables"}:
        return False
    return type_.mode is not StackMode.RAW and user_unwinding.usable(e, type_)


def stack(
    e: Emitter, node: nodes.Call | nodes.Identifier, type_: Stack, entry: bool, otherwise: Callable[[Ptr], None]
) -> Operand:
    """Write the mixed stack to scratch memory; arguments as for :func:`user_unwinding.chosen`."""
    b, words = e.b, 2 * type_.limit + 2
    wide = replace(type_, limit=type_.limit + 1)
    runs, walk = e.reserve(8 * words), e.reserve(records.STATE_SIZE)
    parts = user_unwinding.Parts(e.reserve(wide.size), e.reserve(8 * (wide.limit + 1)), e.reserve(8))
    out, state = e.reserve(type_.size), e.reserve(_STATE_SIZE)
    python_stacks.runs(e, node, runs, words, walk)
    user_unwinding.chosen(e, node, wide, entry, otherwise, parts)
    native, mixed, done = b.block(), b.block(), b.block()
    b.branch(b.icmp("eq", b.load(e.area(walk + records.STATE_COUNT)), 0), native, mixed)
    b.start(native)
    with b.when(b.icmp("ugt", b.load(e.area(parts.count)), type_.limit)):
        if stack_truncation.marked(node):
            stack_truncation.add(e, node)
        else:
            b.store(type_.limit, e.area(parts.stack), 32)
    ends = [(e.area(parts.stack), b.block())]
    b.jump(ends[0][1])
    b.start(ends[0][1])
    b.jump(done)
    b.start(mixed)
    _Join(e, type_, parts, runs, walk, out, state).emit(node)
    ends.append((e.area(out), b.block()))
    b.jump(ends[1][1])
    b.start(ends[1][1])
    b.jump(done)
    b.start(done)
    return Memory(b.phi_pointer(ends), type_)


class _Join(msgspec.Struct, frozen=True):
    """Scratch offsets: the native stack, the runs and the state of their walk, the mixed stack and the state."""

    e: Emitter
    type: Stack
    parts: user_unwinding.Parts
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
            extra = b.sub(self._load(_EXTRA), b.op("lshr", b.load(e.area(self.walk + records.STATE_COUNT)), 1))
            self._store(_EXTRA, b.select(b.icmp("sgt", extra, 0), extra, 0))
        e.loops.run(node.span, 4 * (limit + 1), lambda inner, _index: self._inside(inner).step())
        count = self._load(_FRAMES)
        if stack_truncation.marked(node):
            # A truncated native stack lacks its outermost frames, however many Python's are in their place.
            native = b.icmp("ugt", b.load(e.area(self.parts.count)), limit)
            count = b.select(native, limit + 1, count)
            stack_truncation.tell(e, node, self.type, count)
        else:
            count = b.select(b.icmp("ugt", count, limit), limit, count)
        b.store(count, e.area(self.out), 32)
        b.store(memory_images.of_stack(e, self.type), b.offset(e.area(self.out), 4), 32)

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
        left = b.icmp("ult", at, b.load(e.area(self.walk + records.STATE_COUNT)))
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
        return records.row_word(self.e.b, self.e.area(self.walk), word)

    def _load(self, offset: int) -> I64:
        return self.e.b.load(self.e.area(self.state + offset))

    def _store(self, offset: int, value: Number) -> None:
        self.e.b.store(value, self.e.area(self.state + offset))

    def _leave_unless(self, condition: I1) -> None:
        with self.e.b.unless(condition, likely=True):
            self.e.loops.leave()
