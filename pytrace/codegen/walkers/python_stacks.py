"""``pystack``: stacks of CPython, walked from the thread state (x86-64), and the Python frames of a mixed stack.

Each frame is one iteration of ``bpf_loop``, with its state in scratch memory, so the verifier checks a single frame.
What is read is memory of the traced process: nothing of it is trusted. A thread state must name the thread's own thread
pointer, and a frame's code the type of code objects; else the stack ends there, and is counted.

A mixed stack (:mod:`pytrace.codegen.walkers.user_stacks`) needs to know which frames each call of the interpreter's
loop (``_PyEval_EvalFrameDefault``) has run. They are a *run* in the array that :func:`runs` writes: a word that tells
where the call's native frame is, then the frames, innermost first. Since 3.11 that is the address of a local variable
of the call, which the list of frames contains or is reached from. Before, each call runs one frame (:data:`BY_CODE`).
"""

from __future__ import annotations

from msgspec.structs import replace

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, I64, Memory, Number, Operand, Ptr
from pytrace.codegen.walkers import frame_pointers, python_threads
from pytrace.codegen.walkers.frame_pointers import StackTruncation
from pytrace.codegen.walkers.python_threads import Thread
from pytrace.core.diagnostics import TraceError
from pytrace.core.python_format import FRAME, INDEX_BITS, NONE, OWNED_BY_INTERPRETER, ROW, Word
from pytrace.core.types import Stack
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import location

_NO_STACK = -14
"""``-EFAULT``, as the helpers return without a user stack."""
_SITE = "pystack"
"""The name under which failures are counted, in place of a helper's."""
_TURNS = 4
"""Frames that are looked at for each one of the limit: between Python's frames are those of the interpreter itself."""
_INDEX = (1 << INDEX_BITS) - 1
_PLACES = (1 << 32) - 1

BY_CODE = 1
"""In place of an address: the native frame is one of the loop's code."""
UNPLACED = 0
"""The last run, if the walk ended before its end."""

_STATE_RUN = ROW + 16

_STATE_FRAME = ROW


class _Walk(Thread, frozen=True):
    """*frames* is the scratch offset of what is written, at most *limit* words."""

    frames: int
    limit: int
    runs: bool = False
    marked: bool = False
    """If there are more than *limit* frames, the count is one more."""

    def inside(self, e: Emitter) -> _Walk:
        """The same in the callback of a loop."""
        return replace(self, e=e)

    # ------------------------------------------------------------------ start

    def start(self, done: Block) -> None:
        """Find the process's row and the thread's innermost frame, or jump to *done*: there is no Python stack."""
        self.load_row(done)
        self.e.b.store(0, self.area(python_threads.STATE_COUNT))
        _, frame = self.innermost(done, waits=True)
        self.e.b.store(frame, self.area(_STATE_FRAME))
        if self.runs:
            self._begin_run(0)

    # ------------------------------------------------------------------ one frame

    def step(self) -> None:
        """One iteration: store the frame, then step to its caller; ends the loop if there is none."""
        b, buffer = self.e.b, self.area(python_threads.STATE_BUFFER)
        frame = b.load(self.area(_STATE_FRAME))
        self._leave_if(b.icmp("eq", frame, 0))
        size = b.at_most(self.word(Word.FRAME_SIZE), python_threads.BUFFER_SIZE)
        self._cut_if(b.truth(b.helper(helpers.PROBE_READ_USER, buffer, size, frame)))
        previous = self.member(Word.FRAME_PREVIOUS)
        b.store(previous, self.area(_STATE_FRAME))
        with b.when(b.icmp("ne", self.word(Word.FRAME_OWNER), NONE)):
            owner = self.member(Word.FRAME_OWNER, 8)
            with b.when(b.icmp("uge", owner, OWNED_BY_INTERPRETER)):
                if self.runs:
                    self._end_run(frame)
                b.ret(0)
        # Since 3.14 the low bits of the reference are tags (_PyStackRef).
        code = b.op("and", self.member(Word.FRAME_CODE), -8)
        instruction = self.member(Word.FRAME_INSTRUCTION)
        head = self.area(python_threads.STATE_HEAD)
        length = b.at_most(self.word(Word.CODE_SIZE), python_threads.HEAD_SIZE)
        self._cut_if(b.truth(b.helper(helpers.PROBE_READ_USER, head, length, code)))
        with b.unless(self.is_code(), likely=True):
            self._cut()
        index = self._index(code, instruction)
        self._skip_shim(index)
        b.store(code, self.area(python_threads.STATE_KEY + python_threads.KEY_CODE))
        record = b.call(python_threads.CODE_FUNCTION, [self.area(0)])
        with b.when(b.icmp("eq", record, 0), likely=False):
            self.e.counter("python_names", self.site)
        value = b.op("or", b.op("shl", b.op("and", record, _PLACES), INDEX_BITS), index)
        place = b.load(self.area(python_threads.STATE_COUNT))
        if self.marked:
            with b.when(b.icmp("uge", place, self.limit), likely=False):
                b.store(self.limit + 1, self.area(python_threads.STATE_COUNT))
                self.e.loops.leave()
        b.store(b.op("or", value, FRAME - (1 << 64)), self._place(place))
        b.store(b.add(place, 1), self.area(python_threads.STATE_COUNT))
        if self.runs:
            self._end_run_of_loop()
        if not self.marked:
            self._leave_if(b.icmp("uge", b.load(self.area(python_threads.STATE_COUNT)), self.limit))

    def _skip_shim(self, index: Number) -> None:
        """Go on to the next frame if this is ``_Py_InitCleanup`` (3.12 and later), which calls ``__init__``.

        Its code object has one string as name and file name, and no instruction that is Python's.
        """
        b, state = self.e.b, self.area(0)
        with b.when(b.icmp("ne", self.word(Word.CODE_TRACEABLE), NONE)):
            name, file = (python_threads.in_head(b, state, word) for word in (Word.CODE_SHORT_NAME, Word.CODE_FILE))
            with b.when(b.icmp("eq", name, file), likely=False):
                traceable = python_threads.in_head(b, state, Word.CODE_TRACEABLE, 32)
                with b.when(b.icmp("ule", index, traceable)):
                    b.ret(0)

    # ------------------------------------------------------------------ runs

    def _begin_run(self, place: Number) -> None:
        b = self.e.b
        b.store(UNPLACED, self._place(place))
        b.store(place, self.area(_STATE_RUN))
        b.store(b.add(place, 1), self.area(python_threads.STATE_COUNT))

    def _end_run(self, mark: Number) -> None:
        """What was stored since its begin is a run, unless that is nothing: the loop begins or ends."""
        b = self.e.b
        run, count = b.load(self.area(_STATE_RUN)), b.load(self.area(python_threads.STATE_COUNT))
        with b.when(b.icmp("ugt", count, b.add(run, 1))):
            b.store(mark, self._place(run))
            self._leave_if(b.icmp("uge", count, self.limit))
            self._begin_run(count)

    def _end_run_of_loop(self) -> None:
        """Before 3.12: the frame that was stored may be the one that the loop was called for."""
        b, entry, on = self.e.b, self.word(Word.FRAME_ENTRY), self.e.b.block()
        by_code, by_cframe = b.block(), b.block()
        b.jump_if(b.icmp("ne", self.word(Word.LOOP_START), 0), by_code)
        b.branch(b.icmp("eq", entry, NONE), on, by_cframe)
        b.start(by_cframe)
        b.jump_if(b.icmp("eq", self.member(Word.FRAME_ENTRY, 8), 0), on)
        cframe = b.load(self.area(python_threads.STATE_LOOP))
        b.store(self.user(b.add(cframe, self.word(Word.CFRAME_PREVIOUS))), self.area(python_threads.STATE_LOOP))
        self._end_run(cframe)
        b.jump(on)
        b.start(by_code)
        self._end_run(BY_CODE)
        b.jump(on)
        b.start(on)

    def _place(self, index: Number) -> Ptr:
        """Where a word is stored."""
        b = self.e.b
        return b.offset(self.e.area(self.frames), b.op("shl", b.at_most(index, self.limit - 1), 3))

    def _index(self, code: Number, instruction: I64) -> I64:
        """The number of the code unit that runs, plus one; 0 before the first."""
        b, index = self.e.b, self.e.b.register()
        by_address, done = b.block(), b.block()
        b.jump_if(b.icmp("eq", self.word(Word.INDEX_SHIFT), NONE), by_address)
        signed = b.op("ashr", b.op("shl", instruction, 32), 32)
        b.store(b.op("ashr", signed, b.op("and", self.word(Word.INDEX_SHIFT), 1)), index)
        b.jump(done)
        b.start(by_address)
        b.store(self.unit_index(code, instruction), index)
        b.jump(done)
        b.start(done)
        number = b.add(b.load(index), 1)
        return b.select(b.icmp("ult", number, _INDEX), number, 0)

    def _leave_if(self, condition: I1) -> None:
        with self.e.b.when(condition, likely=False):
            self.e.loops.leave()

    def _cut_if(self, condition: I1) -> None:
        """End with the frames so far, and count a truncated stack."""
        with self.e.b.when(condition, likely=False):
            self._cut()

    def _cut(self) -> None:
        self.e.counter("python_cut", self.site)
        self.e.loops.leave()


class PythonStacks(Part):
    """Walks stacks of Python."""

    def stack(self, node: nodes.Call | nodes.Identifier, type_: Stack) -> Operand:
        """Walk the current thread's Python frames into scratch memory."""
        if not self.script.kernel.feature("bpf_loop"):
            raise TraceError("pystack needs a kernel with bpf_loop (Linux 5.17)")
        out, state = self.e.reserve(type_.size), self.e.reserve(python_threads.STATE_SIZE)
        target, marked = self.e.area(out), frame_pointers.marks_truncation(node)
        self.e.memory.zero(target, type_.size)
        self.b.store(_NO_STACK, target, 32)
        self.b.store(self.e.tasks.process_ids("tracer")[0], self.b.offset(target, 4), 32)
        walk = _Walk(self.e, state, self._site(node), out + type_.header, type_.limit, marked=marked)
        done = self._walk(node, walk, _TURNS * (type_.limit + marked))
        count = self.b.load(self.e.area(state + python_threads.STATE_COUNT))
        self.b.store(count, self.e.area(out), 32)
        StackTruncation(self.e).count_truncated(node, type_, count)
        self.b.jump(done)
        self.b.start(done)
        return Memory(self.e.area(out), type_)

    def runs(self, node: nodes.Call | nodes.Identifier, out: int, limit: int, state: int) -> None:
        """Write at most *limit* words to *out*: the current thread's Python frames as runs.

        The number of words is in *state* then; 0: there are none.
        """
        self.b.store(0, self.e.area(state + python_threads.STATE_COUNT))
        done = self._walk(node, _Walk(self.e, state, self._site(node), out, limit, runs=True), _TURNS * limit)
        self.b.jump(done)
        self.b.start(done)

    def _site(self, node: nodes.Call | nodes.Identifier) -> int:
        return self.script.layout.site(_SITE, location(node.span))

    def _walk(self, node: nodes.Call | nodes.Identifier, walk: _Walk, turns: int) -> Block:
        """Emit the walk. Returns the block where it goes on when there is no Python stack."""
        if not self.script.walks_python:
            self.script.walks_python = True
            python_threads.declare(self.module, node.span)
        done = self.b.block()
        walk.start(done)
        self.e.loops.run(node.span, turns, lambda inner, _index: walk.inside(inner).step())
        return done
