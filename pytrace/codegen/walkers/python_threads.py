"""CPython as programs see it: threads, and the records of code objects that programs write for the session."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer, pointer_parameter
from pytrace.core.manifest import MapType, PythonMaps
from pytrace.core.python_format import (
    FILE,
    KEY,
    LONGEST,
    NAME,
    NONE,
    ROW,
    SLOT,
    SLOTS,
    TABLE,
    TSS_BLOCK,
    TSS_FIRST,
    TSS_MORE,
    UNIT,
    Word,
)
from pytrace.core.source import Span

PROCESSES, _CODES, NAMES, _CURSOR = "python_processes", "python_codes", "python_names", "python_cursor"
"""Symbols of the maps: rows of processes, records by key of a code object, the array of records, its end."""
MAPS = PythonMaps(PROCESSES, _CODES, NAMES, _CURSOR)
PROCESS_ENTRIES = 8192

_CODE_ENTRIES = 1 << 16
_MMAPABLE = 1 << 10
"""``BPF_F_MMAPABLE``: the session reads the array through a memory mapping."""
_NEW = 1
"""``BPF_NOEXIST``: an update of an existing key fails."""

HEAD_SIZE, BUFFER_SIZE = 240, 112
"""Most bytes of a code object that are read, and of a frame."""
STATE_COUNT = ROW + 8
STATE_LOOP = ROW + 24
STATE_KEY = ROW + 32
STATE_HEAD = STATE_KEY + KEY
STATE_BUFFER = STATE_HEAD + HEAD_SIZE
STATE_SIZE = STATE_BUFFER + BUFFER_SIZE

_KEY_GENERATION, KEY_CODE, _KEY_NAME, _KEY_FILE, _KEY_TABLE, _KEY_LINE, _KEY_DIGEST = range(0, KEY, 8)
_HASHED = 64
"""Bytes of file name (the last ones) and line table (the first ones) that are digested."""
_MULTIPLIER = 0x9E3779B97F4A7C15
_LENGTH, _HASH, _STATE = 16, 24, 32
"""Offsets in ``PyASCIIObject`` of ordinary builds: characters, cached hash, bit field of kind and form."""
_TABLE_SIZE, _TABLE_BYTES = 16, 32
"""Offsets in ``PyBytesObject`` of ordinary builds: ``ob_size``, ``ob_sval``."""
COMPACT, ASCII = 1 << 3, 1 << 4
"""Bits of a string's form, after its kind."""

CODE_FUNCTION, _RECORD_FUNCTION, _DIGEST_FUNCTION = "python_code", "python_record", "python_digest"


def declare(module: Module, span: Span) -> None:
    """Declare the maps and functions; these are at *span* in line information."""
    maps = {
        PROCESSES: {"type": MapType.HASH, "key_size": 4, "value_size": ROW, "max_entries": PROCESS_ENTRIES},
        _CODES: {"type": MapType.HASH, "key_size": KEY, "value_size": 8, "max_entries": _CODE_ENTRIES},
        _CURSOR: {"type": MapType.ARRAY, "key_size": 4, "value_size": 8, "max_entries": 1},
        NAMES: {
            "type": MapType.ARRAY, "key_size": 4, "value_size": SLOT, "max_entries": SLOTS, "map_flags": _MMAPABLE,
        },
    }  # fmt: skip
    for symbol, attributes in maps.items():
        module.map(symbol, attributes)
    _digest_function(module, span)
    _record_function(module, span)
    _code_function(module, span)


def row_word(b: Builder, state: Ptr, word: Word) -> I64:
    """A word of the process's row."""
    return b.load(b.offset(state, 8 * word))


def member(b: Builder, state: Ptr, object_: Number, offset: int) -> I64:
    """Address of an object's member that is after the header; *offset* is that of ordinary builds."""
    return b.add(object_, b.add(row_word(b, state, Word.HEADER_EXTRA), offset))


def form(b: Builder, state: Ptr, word: Number) -> I64:
    """The form of a string by the word that has its state: from the lowest bit on its kind, then other bits."""
    return b.op("lshr", word, row_word(b, state, Word.KIND_SHIFT))


def in_head(b: Builder, state: Ptr, word: Word, bits: int = 64) -> I64:
    """A member of the code object that was read."""
    at = b.at_most(row_word(b, state, word), HEAD_SIZE - 8)
    return b.load(b.offset(b.offset(state, STATE_HEAD), at), bits)


# ---------------------------------------------------------------------------------------------- identity


def _state_function(module: Module, name: str, span: Span) -> tuple[Builder, Ptr]:
    """A global function of a state that the verifier checks once, and the state."""
    b = module.function(name, ("*state",), span, apart=True, sizes={"state": STATE_SIZE})
    return b, pointer_parameter("state")


def _code_function(module: Module, span: Span) -> None:
    """``python_code(state)``: the record of the code object that was read, in units plus one; 0 if none can be made.

    A record is complete before its key is in the map. Two CPUs may make one each: the first key counts.
    """
    # Not global: Linux 6.1 takes no key from memory that a global function was handed (``map_key_value_types``).
    b, state = module.function(CODE_FUNCTION, ("*state",), span), pointer_parameter("state")
    key, value = b.offset(state, STATE_KEY), b.alloca(8)
    none = b.block()
    b.store(row_word(b, state, Word.GENERATION), b.offset(key, _KEY_GENERATION))
    for word, place in ((Word.CODE_NAME, _KEY_NAME), (Word.CODE_FILE, _KEY_FILE), (Word.CODE_TABLE, _KEY_TABLE)):
        b.store(in_head(b, state, word), b.offset(key, place))
    version = b.register()
    b.store(0, version)
    with b.when(b.icmp("ne", row_word(b, state, Word.CODE_VERSION), NONE)):
        b.store(in_head(b, state, Word.CODE_VERSION, 32), version)
    line = in_head(b, state, Word.CODE_LINE, 32)
    b.store(b.op("or", line, b.op("shl", b.load(version), 32)), b.offset(key, _KEY_LINE))
    b.store(0, b.offset(key, _KEY_DIGEST))
    with b.when(b.icmp("eq", b.load(version), 0)):
        b.store(b.call(_DIGEST_FUNCTION, [state]), b.offset(key, _KEY_DIGEST))
    _return_known(b, key)
    record = b.call(_RECORD_FUNCTION, [state])
    b.jump_if(b.icmp("eq", record, 0), none, likely=False)
    b.store(record, value)
    failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(_CODES), key, value, _NEW)
    with b.when(b.truth(failed), likely=False):
        _return_known(b, key)
    b.ret(record)
    b.start(none)
    b.ret(0)


def _return_known(b: Builder, key: Ptr) -> None:
    found = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(_CODES), key)
    with b.unless(b.is_null(found)):
        b.ret(b.load(found))


def _digest_function(module: Module, span: Span) -> None:
    """``python_digest(state)``: of the contents of name, file name and line table.

    Without it a program that compiles and drops code again and again would show the names of code that was at the same
    addresses before.
    """
    b, state = _state_function(module, _DIGEST_FUNCTION, span)
    buffer, result = b.offset(state, STATE_BUFFER), b.register()
    b.store(0, result)

    def mix(value: Number) -> None:
        mixed = b.mul(b.op("xor", b.load(result), value), _MULTIPLIER)
        b.store(b.op("xor", mixed, b.op("lshr", mixed, 29)), result)

    def contents(size: Number, data: Number) -> None:
        b.clear(buffer, _HASHED)
        b.helper(helpers.PROBE_READ_USER, buffer, size, data)
        for offset in range(0, _HASHED, 8):
            mix(b.load(b.offset(buffer, offset), again=True))

    name = in_head(b, state, Word.CODE_SHORT_NAME)
    _read(b, buffer, 8, member(b, state, name, _HASH))
    mix(b.load(buffer, again=True))
    size, data = string(b, state, in_head(b, state, Word.CODE_FILE), FILE)[2:]
    mix(size)
    tail = b.at_most(size, _HASHED)
    contents(tail, b.sub(b.add(data, size), tail))
    table = in_head(b, state, Word.CODE_TABLE)
    _read(b, buffer, 8, member(b, state, table, _TABLE_SIZE))
    size = b.load(buffer, again=True)
    mix(size)
    contents(b.at_most(size, _HASHED), member(b, state, table, _TABLE_BYTES))
    b.ret(b.load(result))


def _read(b: Builder, target: Ptr, size: Number, address: Number) -> I64:
    """Read user memory; what cannot be read is zero. Returns the helper's result."""
    return b.helper(helpers.PROBE_READ_USER, target, size, address)


# ---------------------------------------------------------------------------------------------- records


def string(b: Builder, state: Ptr, address: I64, limit: int) -> tuple[I64, I64, I64, I64]:
    """Kind and characters of a string, its bytes, at most *limit*, and where they are.

    Only *compact* strings have them there; identifiers and names of files are.
    """
    buffer = b.offset(state, STATE_BUFFER)
    _read(b, buffer, _STATE + 8 - _LENGTH, member(b, state, address, _LENGTH))
    length = b.load(buffer, again=True)
    bits = form(b, state, b.load(b.offset(buffer, _STATE - _LENGTH), 32, again=True))
    kind, compact, ascii_ = b.op("and", bits, 7), b.op("and", bits, COMPACT), b.op("and", bits, ASCII)
    wide = b.select(b.truth(compact), b.mul(b.at_most(length, limit), kind), 0)
    sizes = row_word(b, state, Word.ASCII_SIZE), row_word(b, state, Word.COMPACT_SIZE)
    return kind, length, b.at_most(wide, limit), b.add(address, b.select(b.truth(ascii_), *sizes))


def _known(b: Builder, place: Ptr, size: Number, limit: int) -> I64:
    """The same size, at most *limit*, of which the verifier knows no more than that, rounded up to a power of two.

    It goes through memory: else each way in which it came about would be followed apart, through all of what comes
    after, as would each way of the next size.
    """
    return b.op("and", b.through(size, place), limit | 7)


def _padded(b: Builder, size: Number) -> I64:
    return b.op("and", b.add(size, 7), -8)


def _record_function(module: Module, span: Span) -> None:
    """``python_record(state)``: copy what names the code object that was read to the array of names."""
    b, state = _state_function(module, _RECORD_FUNCTION, span)
    buffer = b.offset(state, STATE_BUFFER)
    none = b.block()
    name_kind, name_length, name_size, name = string(b, state, in_head(b, state, Word.CODE_NAME), NAME)
    file_kind, file_length, file_size, file = string(b, state, in_head(b, state, Word.CODE_FILE), FILE)
    table = in_head(b, state, Word.CODE_TABLE)
    _read(b, buffer, 8, member(b, state, table, _TABLE_SIZE))
    table_whole = b.load(buffer, again=True)
    name_size, file_size = _known(b, buffer, name_size, NAME), _known(b, buffer, file_size, FILE)
    table_size = _known(b, buffer, b.at_most(table_whole, TABLE), TABLE)
    name_room, file_room = _padded(b, name_size), _padded(b, file_size)
    size = b.op("and", b.add(b.add(b.add(64 + 15, name_room), file_room), _padded(b, table_size)), -UNIT)
    offset = _allocate(b, size, none)
    place = _place(b, offset, none)
    lines = member(b, state, table, _TABLE_BYTES)
    failed = b.helper(helpers.PROBE_READ_USER, b.offset(place, 64), name_size, name)
    after_name = b.offset(b.offset(place, 64), name_room)
    failed = b.op("or", failed, b.helper(helpers.PROBE_READ_USER, after_name, file_size, file))
    after_file = b.offset(after_name, file_room)
    failed = b.op("or", failed, b.helper(helpers.PROBE_READ_USER, after_file, table_size, lines))
    b.jump_if(b.truth(b.op("or", failed, b.number(b.icmp("eq", name_size, 0)))), none, likely=False)
    words: tuple[Number, ...] = (
        row_word(b, state, Word.MINOR), in_head(b, state, Word.CODE_LINE, 32), name_kind, name_length, file_kind,
        file_length, table_whole, size,
    )  # fmt: skip
    for index, value in enumerate(words):
        b.store(value, b.offset(place, 4 * index), 32)
    b.ret(b.add(b.op("lshr", offset, 4), 1))
    b.start(none)
    b.ret(0)


def _allocate(b: Builder, size: Number, none: Block) -> I64:
    """The offset of *size* bytes in the array of names, where the longest record fits an element."""
    key, result = b.alloca(8), b.register()
    fits = b.block()
    b.store(0, key)
    cursor = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(_CURSOR), key)
    b.jump_if(b.is_null(cursor), none, likely=False)
    b.jump_if(b.icmp("uge", b.load(cursor, again=True), SLOT * SLOTS), none, likely=False)
    for skipped in (0, LONGEST):  # what does not fit before the end of an element skips the rest of it
        b.store(b.add(b.fetch("add", cursor, b.add(size, skipped)), skipped), result)
        b.jump_if(b.icmp("ule", b.op("and", b.load(result), SLOT - 1), SLOT - LONGEST), fits)
    b.jump(none)
    b.start(fits)
    return b.load(result)


def _place(b: Builder, offset: I64, none: Block) -> Ptr:
    key = b.alloca(8)
    b.store(b.op("lshr", offset, 20), key, 32)
    element = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(NAMES), key)
    b.jump_if(b.is_null(element), none, likely=False)
    return b.offset(element, b.at_most(b.op("and", offset, SLOT - 1), SLOT - LONGEST))


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
        self.e.b.copy(self.area(0), self.row(PROCESSES, done), ROW)

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
        b.store(b.load(frame), self.area(STATE_LOOP))
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
        other = self._of_parent(rows, done)
        second = b.current
        b.jump(there)
        b.start(there)
        return b.phi_pointer([(own, first), (other, second)])

    def _lookup(self, rows: str, pid: Number) -> Ptr:
        b = self.e.b
        b.store(pid, self.e.cell, 32)
        return b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(rows), self.e.cell)

    def _of_parent(self, rows: str, done: Block) -> Ptr:
        """The element of the parent if it has one, and the same program open; else continues at *done*."""
        e, b = self.e, self.e.b
        memory_type = e.script.kernel.struct("struct", "mm_struct")
        if e.script.kernel.pid_namespace is not None or memory_type is None:
            b.jump(done)
            b.start(b.block())
            return b.pointer(0)
        task, file = b.helper(helpers.GET_CURRENT_TASK), e.load_time.struct_offset(memory_type, "exe_file")
        parent = e.tasks.read_word(b.add(task, e.tasks.task_field("real_parent")))
        number = b.op("and", e.tasks.read_word(b.add(parent, e.tasks.task_field("tgid"))), 0xFFFFFFFF)
        # Most processes are none of Python's, and have such parents: that is asked first.
        found = self._lookup(rows, number)
        b.jump_if(b.is_null(found), done)
        spaces = [e.tasks.read_word(b.add(owner, e.tasks.task_field("mm"))) for owner in (task, parent)]
        b.jump_if(b.icmp("eq", spaces[0], 0), done)
        b.jump_unless(b.icmp("eq", *(e.tasks.read_word(b.add(space, file)) for space in spaces)), done)
        return found

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
        return row_word(self.e.b, self.area(0), word)

    def after_header(self, object_: Number, offset: int) -> I64:
        """Address of an object's member; *offset* is that of ordinary builds."""
        return member(self.e.b, self.area(0), object_, offset)

    def is_code(self) -> I1:
        """Whether the object that was read to the state is a code object."""
        b = self.e.b
        at = b.at_most(b.add(self.word(Word.HEADER_EXTRA), _TYPE), HEAD_SIZE - 8)
        type_ = b.load(b.offset(self.area(STATE_HEAD), at), again=True)
        return b.icmp("eq", type_, self.word(Word.CODE_TYPE))

    def unit_index(self, code: Number, instruction: Number) -> I64:
        """The number of the code unit at an address, for the frame and the code object that were read."""
        b, first = self.e.b, self.e.b.register()
        b.store(b.add(code, self.word(Word.CODE_BYTES)), first)
        with b.when(b.icmp("ne", self.word(Word.CODE_TLBC), NONE), likely=False):
            # struct _PyCodeArray: size, entries.
            copies = in_head(b, self.area(0), Word.CODE_TLBC)
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
        at = b.at_most(self.word(word), BUFFER_SIZE - 8)
        return b.load(b.offset(self.area(STATE_BUFFER), at), bits)
