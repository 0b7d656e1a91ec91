"""The state of a thread of CPython, found by BPF programs in the memory of its process (x86-64)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer
from pytrace.codegen.services.python import records
from pytrace.core.stacks.python_format import NONE, ROW, TSS_BLOCK, TSS_FIRST, TSS_MORE, Word

_INTERPRETER, _THREAD, _POINTER, _FOUND = range(0, 32, 8)
"""State of a search among interpreters: the interpreter, its next thread state, the thread pointer, the result."""
_SEARCH_SIZE = 32
_SEARCHED = 512
"""Thread states that are looked at."""
_NEXT = 8
"""Offset in ``PyThreadState`` of the next one of the interpreter, before 3.12."""
_TYPE = 8
"""Offset in ``PyObject`` of ordinary builds: the type."""


class Thread(msgspec.Struct, frozen=True):
    """The current thread. *state* is the scratch offset of the row of its process and what follows it
    (:mod:`.python_records`), *site* is where failures are counted.
    """

    e: Emitter
    state: int
    site: int

    def load_row(self, done: Block) -> None:
        """Copy the process's row to the state; jump to *done* if there is none."""
        self.e.b.copy(self.area(0), self.row(records.PROCESSES, done), ROW)

    def innermost(self, done: Block, *, waits: bool = False) -> tuple[I64, I64]:
        """The thread state, and the innermost frame; jumps to *done* if the thread runs no Python.

        *waits*: it may have given up the GIL.
        """
        b = self.e.b
        thread_pointer = self._thread_pointer()
        thread = self._thread_state(thread_pointer, done, waits)
        b.jump_if(b.icmp("eq", thread, 0), done)
        self.fail_unless(b.icmp("eq", self.user(b.add(thread, self.word(Word.THREAD_ID))), thread_pointer), done)
        return thread, self._frame(thread)

    def _frame(self, thread: Number) -> I64:
        """The innermost frame of a thread state; 0 if there is none."""
        b, frame = self.e.b, self.e.b.register()
        b.store(self.user(b.add(thread, self.word(Word.THREAD_FRAME))), frame)
        b.store(b.load(frame), self.area(records.STATE_LOOP))
        with b.when(b.icmp("ne", self.word(Word.CFRAME_FRAME), NONE)):
            b.store(self.user(b.add(b.load(frame), self.word(Word.CFRAME_FRAME))), frame)
        return b.load(frame)

    def row(self, rows: str, done: Block) -> Ptr:
        """The element in the map *rows* of the current process.

        While that is not known yet and runs the same program as its parent, it is the parent's.
        """
        b = self.e.b
        there, missing = b.block(), b.block()
        own = self._lookup(rows, self.e.tasks.process_ids("tracer")[0])
        first = b.block()
        b.branch(b.is_null(own), missing, first, likely=False)
        b.start(first)
        b.jump(there)
        b.start(missing)
        parent = self._forked_from(done)
        other = self._lookup(rows, parent)
        second = b.block()
        b.branch(b.is_null(other), done, second)
        b.start(second)
        b.jump(there)
        b.start(there)
        return b.phi_pointer([(own, first), (other, second)])

    def _lookup(self, rows: str, pid: Number) -> Ptr:
        b = self.e.b
        b.store(pid, self.e.cell, 32)
        return b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(rows), self.e.cell)

    def _forked_from(self, done: Block) -> Number:
        """The parent's process id, if it has the same program open; else there is no row."""
        e, b = self.e, self.e.b
        memory_type = e.script.kernel.struct("struct", "mm_struct")
        if e.script.kernel.pid_namespace is not None or memory_type is None:
            b.jump(done)
            b.start(b.block())
            return 0
        task, file = b.helper(helpers.GET_CURRENT_TASK), e.load_time.struct_offset(memory_type, "exe_file")
        parent = e.tasks.read_word(b.add(task, e.tasks.task_field("real_parent")))
        spaces = [e.tasks.read_word(b.add(owner, e.tasks.task_field("mm"))) for owner in (task, parent)]
        b.jump_if(b.icmp("eq", spaces[0], 0), done)
        b.jump_unless(b.icmp("eq", *(e.tasks.read_word(b.add(space, file)) for space in spaces)), done)
        return b.op("and", e.tasks.read_word(b.add(parent, e.tasks.task_field("tgid"))), 0xFFFFFFFF)

    def _thread_pointer(self) -> Number:
        """The thread's ``fs`` base, which points to its ``struct pthread``."""
        e, b = self.e, self.e.b
        thread = b.add(b.helper(helpers.GET_CURRENT_TASK), e.tasks.task_field("thread"))
        return e.tasks.read_word(b.add(thread, e.tasks.kernel_field("thread_struct", "fsbase")))

    def _thread_state(self, thread_pointer: Number, done: Block, waits: bool) -> I64:
        """The address of the ``PyThreadState``: of a TLS variable, or of a key of ``pthread_getspecific``; 0: none."""
        b, result = self.e.b, self.e.b.register()
        by_key, known = b.block(), b.block()
        b.jump_if(b.icmp("ne", self.word(Word.KEY_PLACE), 0), by_key)
        b.store(self.user(b.add(thread_pointer, self.word(Word.TLS))), result)
        b.jump(known)
        b.start(by_key)
        key_state = self.user(self.word(Word.KEY_PLACE))
        # int _is_initialized, then pthread_key_t _key: an interpreter that starts, or has ended, has no frames.
        b.jump_if(b.icmp("eq", b.op("and", key_state, 0xFFFFFFFF), 0), done)
        key = b.op("lshr", key_state, 32)
        by_blocks, block = b.block(), b.register()
        b.jump_if(b.icmp("eq", self.word(Word.THREAD_VALUES), NONE), by_blocks)
        values = self.user(b.add(thread_pointer, self.word(Word.THREAD_VALUES)))
        b.store(self.user(b.add(values, b.op("shl", key, 3))), result)
        b.jump(known)
        b.start(by_blocks)
        b.store(b.add(thread_pointer, TSS_FIRST), block)
        with b.unless(b.icmp("ult", key, TSS_BLOCK), likely=True):
            more = b.op("shl", b.op("udiv", key, TSS_BLOCK), 3)
            b.store(self.user(b.add(b.add(thread_pointer, TSS_MORE), more)), block)
        # struct pthread_key_data: sequence number, value.
        slot = b.op("shl", b.op("and", key, TSS_BLOCK - 1), 4)
        b.store(self.user(b.add(b.add(b.load(block), slot), 8)), result)
        b.jump(known)
        b.start(known)
        with b.when(b.icmp("ne", self.word(Word.CURRENT), 0), likely=False):
            self._of_interpreter(thread_pointer, result, waits)
        return b.load(result)

    def _of_interpreter(self, thread_pointer: Number, result: Ptr, waits: bool) -> None:
        """Replace the state by that of the interpreter that the thread runs (before 3.12).

        That is the current one if the thread has the GIL, else the newest interpreter in which it has a frame: one
        that is called by another interpreter was made later.
        """
        b, done = self.e.b, self.e.b.block()
        current = self.user(self.word(Word.CURRENT))
        with b.when(b.icmp("ne", current, 0)):
            owner = self.user(b.add(current, self.word(Word.THREAD_ID)))
            with b.when(b.icmp("eq", owner, thread_pointer)):
                b.store(current, result)
                b.jump(done)
        newest = self.user(self.word(Word.INTERPRETERS)) if waits else 0
        with b.when(b.icmp("ne", self.user(newest) if waits else 0, 0), likely=False):
            place = self.e.reserve(_SEARCH_SIZE)
            first = self.user(b.add(newest, self.word(Word.INTERPRETER_THREADS)))
            for offset, word in ((_INTERPRETER, newest), (_THREAD, first), (_POINTER, thread_pointer), (_FOUND, 0)):
                b.store(word, self.e.area(place + offset))
            span = self.e.program.unit.span
            self.e.loops.run(span, _SEARCHED, lambda inner, _index: replace(self, e=inner)._search(place))
            found = b.load(self.e.area(place + _FOUND))
            b.store(b.select(b.icmp("ne", found, 0), found, b.load(result)), result)
        b.jump(done)
        b.start(done)

    def _search(self, place: int) -> None:
        """Look at one thread state; ends the loop at one of this thread that has a frame."""
        e, b = self.e, self.e.b
        thread = b.load(e.area(place + _THREAD))
        with b.when(b.icmp("eq", thread, 0)):
            following = self.user(b.load(e.area(place + _INTERPRETER)))
            with b.when(b.icmp("eq", following, 0)):
                e.loops.leave()
            b.store(following, e.area(place + _INTERPRETER))
            b.store(self.user(b.add(following, self.word(Word.INTERPRETER_THREADS))), e.area(place + _THREAD))
            b.ret(0)
        owner = self.user(b.add(thread, self.word(Word.THREAD_ID)))
        with b.when(b.icmp("eq", owner, b.load(e.area(place + _POINTER)))):
            with b.when(b.icmp("ne", self._frame(thread), 0)):
                b.store(thread, e.area(place + _FOUND))
                e.loops.leave()
        b.store(self.user(b.add(thread, _NEXT)), e.area(place + _THREAD))

    # ------------------------------------------------------------------ primitives

    def area(self, offset: int) -> Ptr:
        """A place in the state."""
        return self.e.area(self.state + offset)

    def word(self, word: Word) -> I64:
        """A word of the process's row."""
        return records.row_word(self.e.b, self.area(0), word)

    def after_header(self, object_: Number, offset: int) -> I64:
        """Address of an object's member; *offset* is that of ordinary builds."""
        return records.member(self.e.b, self.area(0), object_, offset)

    def is_code(self) -> I1:
        """Whether the object that was read to the state is a code object."""
        b = self.e.b
        at = b.at_most(b.add(self.word(Word.HEADER_EXTRA), _TYPE), records.HEAD_SIZE - 8)
        type_ = b.load(b.offset(self.area(records.STATE_HEAD), at), again=True)
        return b.icmp("eq", type_, self.word(Word.CODE_TYPE))

    def unit_index(self, code: Number, instruction: Number) -> I64:
        """The number of the code unit at an address, for the frame and the code object that were read."""
        b, first = self.e.b, self.e.b.register()
        b.store(b.add(code, self.word(Word.CODE_BYTES)), first)
        with b.when(b.icmp("ne", self.word(Word.CODE_TLBC), NONE), likely=False):
            # struct _PyCodeArray: size, entries.
            copies = records.in_head(b, self.area(0), Word.CODE_TLBC)
            own = b.op("shl", self.member(Word.FRAME_TLBC, 32), 3)
            b.store(self.user(b.add(b.add(copies, 8), own)), first)
        return b.op("ashr", b.sub(instruction, b.load(first)), 1)

    def user(self, address: Number) -> I64:
        """A word of user memory; 0 if it cannot be read."""
        b = self.e.b
        b.store(0, self.e.cell)
        b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, address)
        return b.load(self.e.cell)

    def fail_unless(self, condition: I1, done: Block) -> None:
        """Without the thread state there is no stack, and it is counted."""
        with self.e.b.unless(condition, likely=True):
            self.e.counter("python_cut", self.site)
            self.e.b.jump(done)

    def member(self, word: Word, bits: int = 64) -> I64:
        """A member of the frame that was read."""
        b = self.e.b
        at = b.at_most(self.word(word), records.BUFFER_SIZE - 8)
        return b.load(b.offset(self.area(records.STATE_BUFFER), at), bits)
