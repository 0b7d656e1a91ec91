"""CPython interpreters in binaries: version and layout, their instruction handlers and evaluation loop, checked against
the memory of processes.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Collection, Iterator
from functools import cache, cached_property

import msgspec
from msgspec.structs import asdict, replace

from pytrace.core import instructions
from pytrace.core.instructions import is_misread
from pytrace.core.python_format import TSS_BLOCK, TSS_FIRST, TSS_MORE
from pytrace.runtime.binaries.elf_file import ElfFile, UnwindEntries

# ---------------------------------------------------------------------------------------------- layouts

# Where the structures of each minor version of CPython have what stacks are read from.
#
# ``python_layouts.json`` has them, which ``scripts/generate-python-layouts`` writes from CPython's headers. Since 3.13
# an interpreter publishes most of them itself (``_Py_DebugOffsets``, Include/internal/pycore_debug_offsets.h), and
# these count: for them the file has the indexes of the words in that structure.


FILE = os.path.join(os.path.dirname(__file__), "python_layouts.json")
COOKIE = b"xdebugpy"
PUBLISHED_SINCE = 13
_VERSION, _FREE_THREADED = 1, 2
_WORDS = 256
_TYPE = 8
_MOST = 1 << 20
"""Offsets are less than this."""


class UnsupportedError(Exception):
    """An interpreter whose stacks cannot be read; its text says why."""


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Offsets in bytes; None where the version has no such member."""

    minor: int
    interpreters_head: int
    interpreter_next: int
    threads_head: int
    thread_next: int
    thread_id: int
    thread_frame: int
    frame_size: int
    frame_previous: int
    frame_code: int
    frame_instruction: int
    code_size: int
    code_name: int
    code_short_name: int
    code_file: int
    code_table: int
    code_line: int
    ascii_size: int
    compact_size: int
    free_threaded: bool = False
    object_type: int = _TYPE
    """In ``PyObject``: the type, after which the header ends."""
    kind_shift: int = 2
    """In the state of a string: the number of bits before its kind."""
    tss_key: int | None = None
    cframe_frame: int | None = None
    cframe_previous: int | None = None
    frame_entry: int | None = None
    frame_owner: int | None = None
    code_traceable: int | None = None
    code_version: int | None = None
    code_bytes: int | None = None
    code_tlbc: int | None = None
    frame_tlbc: int | None = None
    """Since 3.14 each thread of a free-threaded build runs a copy of the bytecode: the array of the copies in a code
    object, and in a frame the index of its one."""
    code_first: int | None = None
    code_arguments: int | None = None
    code_keywords: int | None = None
    code_flags: int | None = None
    code_locals: int | None = None
    code_local_names: int | None = None
    code_constants: int | None = None
    code_instrumentation: int | None = None
    thread_breaker: int | None = None
    tuple_items: int | None = None
    op_resume: int | None = None
    op_resume_quick: int | None = None
    op_resume_instrumented: int | None = None
    op_return: int | None = None
    op_generator: int | None = None
    op_return_instrumented: int | None = None
    op_constant: int | None = None
    op_constant_instrumented: int | None = None
    op_extended: int | None = None
    op_line: int | None = None
    code_monitoring: int | None = None
    monitoring_lines: int | None = None
    lines_data: int | None = None
    """Since 3.14, in what has the lines that are monitored: the entries, after the size of each."""

    @property
    def header_extra(self) -> int:
        """Bytes by which the header of an object is longer than that of ordinary builds."""
        return self.object_type - _TYPE


_Build = tuple[int, bool]
"""Minor version, whether it is free-threaded."""


@cache
def _rows() -> tuple[dict[_Build, Layout], dict[_Build, dict[str, int]]]:
    with open(FILE, "rb") as file:
        rows = msgspec.json.decode(file.read(), type=list[dict[str, int]])
    mark = "published "
    published = {
        _build(row): {name.removeprefix(mark): index for name, index in row.items() if name.startswith(mark)}
        for row in rows
    }
    return {_build(row): msgspec.convert(row, Layout, strict=False) for row in rows}, published


def _build(row: dict[str, int]) -> _Build:
    return row["minor"], bool(row.get("free_threaded"))


def layout(minor: int, runtime: bytes) -> Layout:
    """The layout of CPython 3.*minor*; *runtime* are the first bytes of its ``_PyRuntime`` as they were linked.

    Raises:
        UnsupportedError: a version that is not known, or a build that differs.
    """
    known, published = _rows()
    row = known.get((minor, False))
    if row is None:
        minors = [number for number, _ in known]
        raise UnsupportedError(f"CPython 3.{minor} is not supported (3.{min(minors)} to 3.{max(minors)} are)")
    if minor < PUBLISHED_SINCE:
        return row
    words = struct.unpack_from(f"={_WORDS}Q", runtime.ljust(8 * _WORDS, b"\0"))
    if runtime[:8] != COOKIE or words[_VERSION] >> 16 != 0x300 + minor:
        raise UnsupportedError(f"its _PyRuntime does not begin with the offsets of CPython 3.{minor}")
    build = minor, bool(words[_FREE_THREADED])
    row = known[build]
    offsets = {name: words[index] for name, index in published[build].items()}
    wrong = next((name for name, offset in offsets.items() if offset >= _MOST), None)
    if wrong is not None:
        raise UnsupportedError(f"the offset that it publishes for {wrong} is {offsets[wrong]}")
    changed = replace(row, **offsets)
    if asdict(changed)["code_size"] > row.code_size or changed.frame_instruction + 8 > row.frame_size:
        raise UnsupportedError(f"its structures are larger than those of CPython 3.{minor}")
    return changed


# ---------------------------------------------------------------------------------------------- handlers

# Tables of the handlers of CPython's instructions: 256 addresses, by which each handler goes to the next one.
#
# Handlers are labels in ``_PyEval_EvalFrameDefault`` where CPython is built with computed gotos. Since 3.14 each may
# be a function of its own, which ends by a jump to the next one (``--with-tail-call-interp``): the loop calls
# ``start_frame``, which the compiler may inline, and the function of the current instruction has its frame in place of
# that one.


LOOP = "_PyEval_EvalFrameDefault"
_TAIL_CALLS_SINCE = 14
_HANDLERS = 256
FEWEST = 150
"""Handlers in a table that may be another one: those of ``switch`` that follow each other have up to 125."""
_TABLE_BY_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](....)", re.DOTALL)
"""``lea DISTANCE(%rip), %reg``."""
_TABLE_BY_INDEX = re.compile(
    rb"[\x8b\xff][\x04\x0c\x14\x1c\x24\x2c\x34\x3c][\xc5\xcd\xd5\xdd\xe5\xed\xf5\xfd](....)", re.DOTALL
)
"""``mov ADDRESS(,%reg,8), %reg`` and ``jmp *ADDRESS(,%reg,8)``, in programs at fixed addresses."""
_CALL = re.compile(rb"\xe8(....)", re.DOTALL)
_RELATIVE = 8
"""``R_X86_64_RELATIVE``."""
_MOST_RELOCATIONS = 1 << 20
_MOST_LOOP = 8192
"""Bytes of a loop that has not what the instructions do, and of ``start_frame``."""


class HandlerTables:
    """Finds tables in a binary by the code that refers to them."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file

    def referred(self, start: int, code: bytes) -> Iterator[list[int]]:
        """Tables of addresses of code that code refers to, which begins at an address."""
        candidates = {
            start + match.end() + distance
            for match in _TABLE_BY_LEA.finditer(code)
            for (distance,) in struct.iter_unpack("=i", match[1])
        }
        candidates |= {struct.unpack("=I", match[1])[0] for match in _TABLE_BY_INDEX.finditer(code)}
        for address in sorted(candidates):
            table = self._read(address)
            if table:
                yield table

    def _read(self, address: int) -> list[int]:
        """The addresses in a table; empty when there is none."""
        data = self.data(address, 8 * _HANDLERS)
        if address % 8 or len(data) != 8 * _HANDLERS:
            return []
        words = [word for (word,) in struct.iter_unpack("=Q", data)]
        handlers = [self._relocated.get(address + 8 * index, word) for index, word in enumerate(words)]
        return handlers if all(map(self.executable, handlers)) else []

    def executable(self, address: int) -> bool:
        """Whether there is code at an address."""
        return any(
            one.executable and one.address <= address < one.address + one.file_size for one in self._file.segments
        )

    def data(self, address: int, size: int) -> bytes:
        """Bytes at an address; empty when none are in the file."""
        offset = self._file.file_offset(address)
        return b"" if offset is None else bytes(self._file.view[offset : offset + size])

    @cached_property
    def _relocated(self) -> dict[int, int]:
        """Words that are relocated to addresses of the file itself, by their address."""
        section = self._file.section(".rela.dyn")
        if section is None:
            return {}
        data = self._file.contents(section, 24 * _MOST_RELOCATIONS)
        rows = struct.iter_unpack("=QQq", data[: len(data) // 24 * 24])
        return {offset: addend for offset, kind, addend in rows if kind == _RELATIVE}


def are_functions(file: ElfFile) -> bool:
    """Whether each handler is a function, by unwind tables, which stripped files have as well."""
    symbol = file.any_symbol(LOOP)
    if symbol is None or not 0 < symbol.size < _MOST_LOOP:
        return False
    starts, tables = set(UnwindEntries(file)), HandlerTables(file)
    code = tables.data(symbol.address, symbol.size)
    places = {symbol.address}
    for match in _CALL.finditer(code):
        places.add(symbol.address + match.end() + int.from_bytes(match[1], "little", signed=True))
    found = (table for place in places & starts for table in tables.referred(place, tables.data(place, _MOST_LOOP)))
    return any(len(set(table)) >= FEWEST and starts.issuperset(table) for table in found)


# ---------------------------------------------------------------------------------------------- interpreters

# CPython interpreters in binaries: version, layout, and where their variables are.


_RUNTIME_BYTES = 2048
"""Bytes of ``_PyRuntime`` that are read: the published offsets are less."""
_NAMED = re.compile(r"python", re.IGNORECASE)
_THREAD_STATE = "PyGILState_GetThisThreadState"
"""Returns the state also of a thread that does not hold the global interpreter lock, as in a system call."""
_OLD_LOOP = "PyEval_EvalFrameEx"
"""The evaluation loop of CPython 2.5 to 3.5; later a function that calls it. Before 3.7 there is no ``_PyRuntime``."""
OBJECTS = ("_Py_NoneStruct", "PyBool_Type", "PyCell_Type", "PyFloat_Type")
_LOCAL_EXEC = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x64\x48\x8b\x04\x25(....)\xc3", re.DOTALL)
"""``endbr64; mov %fs:OFFSET, %rax; ret``: a TLS variable of the program itself (ELF TLS ABI, local exec)."""
_GET_VALUE = "pthread_getspecific"
_OWN_DESCRIPTOR = re.compile(rb"\x64\x48\x8b([\x04\x0c\x14\x1c\x24\x2c\x34\x3c])\x25\0\0\0\0", re.DOTALL)
"""``mov %fs:0, %reg``, as musl finds the ``struct pthread`` of a thread; glibc has another copy, at 16."""
_MEMBER = re.compile(rb"\x48\x8b(?:([\x40-\x7f])(.)|([\x80-\xbf])(....))", re.DOTALL)
"""``mov OFFSET(%reg), %reg``, with an offset of one byte or of four."""
_MOST_CODE = 48


class Interpreter(msgspec.Struct, frozen=True):
    """A CPython in a binary; addresses are those of the file as it was linked."""

    layout: Layout
    runtime: int
    code_type: int
    thread_state: int | None
    """Distance of the TLS variable that has the thread state, where there is no key."""
    loop: tuple[int, int] = (0, 0)
    """Start and end of ``_PyEval_EvalFrameDefault``, before 3.11."""
    cold: tuple[int, int] = (0, 0)
    """Those of the part of it that the compiler has moved away."""
    objects: tuple[int, ...] = ()
    """Addresses of :data:`OBJECTS`; empty if one is missing."""
    thread_values: int | None = None
    """With musl: offset in ``struct pthread`` of the pointer to the values of keys."""
    tail_calls: bool = False
    """The handlers of instructions are functions (``--with-tail-call-interp``, since 3.14)."""


def may_have(path: str, *, program: bool) -> bool:
    """Whether a mapped file may have an interpreter: a program, or what is named after Python."""
    return program or bool(_NAMED.search(os.path.basename(path)))


def interpreter(file: ElfFile) -> Interpreter | None:
    """The interpreter in a binary; None when there is none.

    Raises:
        UnsupportedError: its stacks cannot be read.
        TraceError: the file is damaged.
    """
    runtime, code_type = file.any_symbol("_PyRuntime"), file.any_symbol("PyCode_Type")
    if code_type is None:
        return None
    if runtime is None:
        # A program may have a copy of a library's PyCode_Type (R_X86_64_COPY), but no function of it.
        if file.any_symbol(_OLD_LOOP) is not None:
            raise UnsupportedError("it is a CPython before 3.7 (3.9 and later are supported)")
        return None
    known = layout(_minor(file), _data(file, runtime.address, _RUNTIME_BYTES))
    distance = None if known.tss_key is not None else _thread_state(file)
    symbols = [file.any_symbol(name) for name in OBJECTS]
    objects = tuple(symbol.address for symbol in symbols if symbol is not None)
    if len(objects) < len(OBJECTS):
        objects = ()
    values = thread_values(file) if distance is None else None
    found = Interpreter(
        known, runtime.address, code_type.address, distance, objects=objects, thread_values=values
    )
    if known.minor >= _TAIL_CALLS_SINCE:
        return replace(found, tail_calls=are_functions(file))
    if known.frame_owner is not None:
        return found
    return replace(found, loop=_range(file, LOOP), cold=_range(file, f"{LOOP}.cold"))


def _range(file: ElfFile, function: str) -> tuple[int, int]:
    symbol = file.any_symbol(function)
    return (0, 0) if symbol is None else (symbol.address, symbol.address + symbol.size)


def _minor(file: ElfFile) -> int:
    """The minor version: 3.11 and later have it as data; before, by functions that others lack."""
    version = file.any_symbol("Py_Version")
    if version is not None:
        data = _data(file, version.address, 8)
        number = struct.unpack("=Q", data)[0] if len(data) == 8 else 0
        if number >> 24 != 3:
            raise UnsupportedError("its Py_Version is not that of CPython 3")
        return int(number >> 16 & 0xFF)
    if file.any_symbol("Py_Is") is not None:
        return 10
    if file.any_symbol("PyObject_GC_IsTracked") is not None:
        return 9
    raise UnsupportedError("it is a CPython before 3.9 (3.9 and later are supported)")


def _data(file: ElfFile, address: int, size: int) -> bytes:
    offset = file.file_offset(address)
    return b"" if offset is None else bytes(file.view[offset : offset + size])


def _thread_state(file: ElfFile) -> int:
    function = file.any_symbol(_THREAD_STATE)
    match = None if function is None else _LOCAL_EXEC.match(_data(file, function.address, 16))
    if match is None:
        raise UnsupportedError("where it keeps the state of a thread is not known (only programs are supported that "
                               "contain it, and no libpython of CPython 3.15)")  # fmt: skip
    return int(struct.unpack("<i", match[1])[0])


def thread_values(file: ElfFile) -> int | None:
    """Where musl, if it is in a file, has the pointer to the values of a thread's keys (``tsd`` of ``struct pthread``).

    It is what ``pthread_getspecific`` reads first of the descriptor. None if that is another library's.
    """
    function = file.any_symbol(_GET_VALUE)
    if function is None:
        return None
    code = _data(file, function.address, min(function.size, _MOST_CODE))
    own = _OWN_DESCRIPTOR.search(code)
    if own is None:
        return None
    register = own[1][0] >> 3
    for match in _MEMBER.finditer(code, own.end()):
        operands, offset = (match[1], match[2]) if match[1] else (match[3], match[4])
        if operands[0] & 7 == register:
            return int.from_bytes(offset, "little", signed=True)
    return None


# ---------------------------------------------------------------------------------------------- checking

# Checks a layout against the memory of a running interpreter: its threads must be where the layout says.


_MOST_THREADS, _MOST_FRAMES = 256, 64
_TRIES = 20
"""A process that runs changes what is read: one try must succeed."""
_PAUSE = 0.002
_OWNED_BY_INTERPRETER = 3


class _Memory:
    """Memory of a process; reads of what is not mapped raise ``OSError``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def word(self, address: int) -> int:
        data = self.bytes(address, 8)
        return int(struct.unpack("=Q", data)[0])

    def bytes(self, address: int, size: int) -> bytes:
        if not 0 < address < 1 << 47:
            raise OSError("no user address")
        data = os.pread(self._descriptor, size, address)
        if len(data) != size:
            raise OSError("truncated read")
        return data


def check(pid: int, interpreter: Interpreter, bias: int) -> bool:
    """Check the layout of an interpreter that lies *bias* above its linked addresses in a process.

    Returns False if there is nothing to check yet: it is starting, or has no threads.

    Raises:
        UnsupportedError: its structures are not where the layout says.
        OSError: the process is gone, or may not be read.
    """
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        memory, problem = _Memory(descriptor), ""
        for _ in range(_TRIES):
            try:
                return _Check(memory, interpreter, bias).run()
            except (OSError, ValueError) as error:
                problem = str(error)
            time.sleep(_PAUSE)
        os.stat(f"/proc/{pid}/mem")
        raise UnsupportedError(f"its structures differ from those of CPython 3.{interpreter.layout.minor} ({problem})")
    finally:
        os.close(descriptor)


class _Check:
    def __init__(self, memory: _Memory, interpreter: Interpreter, bias: int) -> None:
        self._memory = memory
        self._layout = interpreter.layout
        self._runtime = interpreter.runtime + bias
        self._code_type = interpreter.code_type + bias
        self._distance, self._values = interpreter.thread_state, interpreter.thread_values

    def run(self) -> bool:
        word, layout = self._memory.word, self._layout
        head = word(self._runtime + layout.interpreters_head)
        if not head:
            return False
        thread = word(head + layout.threads_head)
        found = False
        for _ in range(_MOST_THREADS):
            if not thread:
                break
            found = self._thread(thread) or found
            thread = word(thread + layout.thread_next)
        return found

    def _thread(self, thread: int) -> bool:
        """Check one thread; False if it has no system thread yet."""
        pointer = self._memory.word(thread + self._layout.thread_id)
        if not pointer:
            return False
        current = self._current(pointer)
        if not current:
            return False
        if self._memory.word(current + self._layout.thread_id) != pointer:
            raise ValueError("the thread's own state is another one's")
        self._frames(current)
        return True

    def _current(self, pointer: int) -> int:
        """The thread state that the thread itself finds."""
        word = self._memory.word
        if self._distance is not None:
            return word(pointer + self._distance)
        assert self._layout.tss_key is not None
        state = word(self._runtime + self._layout.tss_key)
        if not state & 0xFFFFFFFF:
            return 0
        block, key = pointer + TSS_FIRST, state >> 32
        if self._values is not None:
            return word(word(pointer + self._values) + 8 * key)
        if key >= TSS_BLOCK:
            block = word(pointer + TSS_MORE + 8 * (key // TSS_BLOCK))
        return word(block + 16 * (key % TSS_BLOCK) + 8)

    def _frames(self, thread: int) -> None:
        word, layout = self._memory.word, self._layout
        frame = word(thread + layout.thread_frame)
        if layout.cframe_frame is not None:
            frame = word(frame + layout.cframe_frame)
        for _ in range(_MOST_FRAMES):
            if not frame:
                return
            owner = 0 if layout.frame_owner is None else self._memory.bytes(frame + layout.frame_owner, 1)[0]
            if owner < _OWNED_BY_INTERPRETER:
                code = word(frame + layout.frame_code) & -8
                if word(code + layout.object_type) != self._code_type:
                    raise ValueError("a frame has no code object")
            frame = word(frame + layout.frame_previous)


# ---------------------------------------------------------------------------------------------- eval loop

# Places in CPython's evaluation loop where functions begin and end, for probes of Python functions (3.11 and later).
#
# Calls from Python to Python do not enter ``_PyEval_EvalFrameDefault`` again, so a probe there would miss them. But
# each function's code begins with the instruction RESUME, whose handler is found by the loop's table of handlers. What
# ends:
#
# * since 3.12 each frame is handed to ``_PyEval_FrameClearAndPop``, by RETURN_VALUE and by exceptions that leave it;
# * in 3.11 a frame that began in a call from C is not. But the loop looks at ``is_entry`` of each frame that ends, in
#   three places of its source: RETURN_VALUE, the end by an exception (``exit_unwind``), and RETURN_GENERATOR, whose
#   frame
#   only makes a generator. Another number of places, by a compiler's doing, is refused.


_CLEAR = {12: "_PyEvalFrameClearAndPop"}
_CLEAR_LATER = "_PyEval_FrameClearAndPop"
_CLEAR_SINCE = 12
_FEWEST = 100
"""Handlers in the loop itself; the compiler moves those that seldom run elsewhere."""
_MOST_INSTRUCTIONS = 64
_SI = 6
"""The number of the register of the second parameter."""
_IS_ENTRY = re.compile(rb"(?=(\x41?\x80([\x78-\x7b\x7d-\x7f])(.)\x00))", re.DOTALL)
"""``cmpb $0, OFFSET(%reg)``, at every place: one may begin inside of what looks like another."""
_WIDE, _STORE, _CALL_SIZE, _JUMPS = 0x48, 0x89, 0xE8, (0xE9, 0xEB)
"""The prefix of 64-bit operands, and opcodes: ``mov`` from a register, ``call``, ``jmp``."""
_ENDS = frozenset({0xC3, 0xFF})
"""``ret``, and ``jmp`` to what a register has (or a call of such, which handlers do not begin with)."""
_HIGH = 0x41
"""The prefix of registers from r8 on as base."""
_REGISTER, _SIB = 3, 4
"""Values of a ModRM byte's fields: the operand is a register; a byte with the base follows."""


class EvalLoop(msgspec.Struct, frozen=True):
    """Offsets in the file: handlers of RESUME, and where frames end. *register* is the number (in instructions) of the
    register that has the frame there.
    """

    entries: tuple[int, ...]
    ends: tuple[int, ...]
    register: int


def eval_loop(file: ElfFile, layout: Layout) -> EvalLoop:
    """The places of an interpreter.

    Raises:
        UnsupportedError: they are not known for its version, or cannot be found in this build.
    """
    if layout.op_resume is None or layout.op_return is None:
        raise UnsupportedError(
            f"functions of CPython 3.{layout.minor} cannot be probed (those of 3.11 to 3.14 can)"
        )
    if layout.code_tlbc is not None:
        # RESUME runs again in a thread that gets its copy of the code.
        raise UnsupportedError("functions of free-threaded builds since CPython 3.14 cannot be probed")
    if layout.minor >= _TAIL_CALLS_SINCE and are_functions(file):
        # A faster form of RESUME jumps to the function of RESUME, which counts the call again.
        raise UnsupportedError("functions of builds with the tail-calling interpreter cannot be probed")
    found = _Loop(file, layout)
    resumes = (layout.op_resume, layout.op_resume_quick, layout.op_resume_instrumented)
    entries = [found.handler(number) for number in resumes if number is not None]
    ends, register = found.ends() if layout.minor < _CLEAR_SINCE else ([found.clear()], _SI)
    return EvalLoop(tuple(map(found.offset, entries)), tuple(map(found.offset, ends)), register)


class _Loop:
    def __init__(self, file: ElfFile, layout: Layout) -> None:
        symbol = file.any_symbol(LOOP)
        if symbol is None or not symbol.size:
            raise UnsupportedError(f"it has no symbol {LOOP}")
        self._file, self._layout = file, layout
        self._start, self._end = symbol.address, symbol.address + symbol.size
        self._all = HandlerTables(file)
        self._code = self._all.data(self._start, symbol.size)
        self._table = self._find_table()

    def offset(self, address: int) -> int:
        """Position in the file of an address in its code."""
        place = self._file.file_offset(address)
        if place is None or not self._all.executable(address):
            raise UnsupportedError(f"its code at {address:#x} is not in the file")
        if is_misread(self._all.data(address, 16)):
            raise UnsupportedError(f"the kernel would misread its code at {address:#x}")
        return place

    def handler(self, number: int) -> int:
        """Address of the handler of an instruction, which no other instruction has."""
        address = self._table[number]
        if self._table.count(address) != 1:
            raise UnsupportedError(f"instruction {number} shares its handler with others")
        return address

    def ends(self) -> tuple[list[int], int]:
        """Where the loop looks at ``is_entry`` of a frame that ends, and the number of the register with the frame."""
        assert self._layout.op_return is not None
        assert self._layout.op_generator is not None
        places: dict[int, int] = {}
        for match in _IS_ENTRY.finditer(self._code):
            start = match.start(1)
            if match[3][0] == self._layout.frame_entry and self._is_instruction(start):
                places[self._start + start] = match[2][0] & 7 | (match[1][0] == _HIGH) << 3
        generator = self._first_of(self.handler(self._layout.op_generator), places)
        value = self._first_of(self.handler(self._layout.op_return), places)
        registers = set(places.values())
        if len(places) != 3 or value is None or generator in (None, value) or len(registers) != 1:
            raise UnsupportedError("where its functions end was not found: its code is not compiled as expected")
        return [place for place in places if place != generator], registers.pop()

    def _first_of(self, handler: int, places: Collection[int]) -> int | None:
        """The first of some places in the straight code of a handler."""
        return next((place for place, _ in self._straight(handler) if place in places), None)

    def clear(self) -> int:
        """Address of the function that each frame which ends is handed to, as the second parameter.

        The handlers of instructions that return call it before any other function, and so does something else: the end
        by an exception.
        """
        layout = self._layout
        symbol = self._file.any_symbol(_CLEAR.get(layout.minor, _CLEAR_LATER))
        numbers = [number for number in (layout.op_return, layout.op_constant) if number is not None]
        calls = [self._first_call(self.handler(number)) for number in numbers]
        targets = {target for _, target, _ in calls}
        (target,) = targets if len(targets) == 1 else (0,)
        known = symbol is not None and (target == symbol.address or self._in_plt(target))
        passed = symbol is None and all(registers.get(_SI) for _, _, registers in calls)
        if not (target and (known or passed)) or not self._callers(target) - {place for place, _, _ in calls}:
            raise UnsupportedError("where its functions end was not found: its code is not compiled as expected")
        return target if symbol is None else symbol.address

    def _callers(self, target: int) -> set[int]:
        """Where the loop calls a function."""
        places = (self._start + match.start() for match in re.finditer(rb"\xe8", self._code))
        ends = ((place, struct.unpack("=i", self._all.data(place + 1, 4))[0]) for place in places)
        return {place for place, distance in ends if place + 5 + distance == target}

    # ---- the table

    def _find_table(self) -> list[int]:
        """The table of handlers, which the code refers to: that of the function, or parts that were moved away."""
        tables = self._tables(self._start, self._code)
        if not tables:
            segments = [one for one in self._file.segments if one.executable]
            code = ((one.address, self._all.data(one.address, one.file_size)) for one in segments)
            tables = [table for address, data in code for table in self._tables(address, data, moved=True)]
        if len(tables) != 1:
            what = "no table" if not tables else f"{len(tables)} tables"
            raise UnsupportedError(f"its evaluation loop has {what} of handlers (probes need one with computed gotos)")
        return tables[0]

    def _tables(self, start: int, code: bytes, *, moved: bool = False) -> list[list[int]]:
        """Tables of handlers that code refers to, which begins at an address; *moved*: that of other functions, too."""
        return [
            table
            for table in self._all.referred(start, code)
            if len({handler for handler in table if moved or self._start <= handler < self._end})
            >= (FEWEST if moved else _FEWEST)
        ]

    # ---- code

    def _first_call(self, address: int) -> tuple[int, int, dict[int, bool]]:
        """The first call in straight code: its place, the function, and of registers, whether they have the frame.

        The frame is in the register at whose distance the handler stores the address of the instruction.
        """
        frame = -1
        passed: dict[int, bool] = {}
        for place, code in self._straight(address):
            if code[0] == _CALL_SIZE:
                return place, place + 5 + int.from_bytes(code[1:5], "little", signed=True), passed
            if len(code) >= 3 and code[0] & 0xF8 == _WIDE and code[1] == _STORE:
                mode, source = code[2] >> 6, code[2] >> 3 & 7 | (code[0] & 4) << 1
                base = code[3 if mode == 1 and code[2] & 7 == _SIB else 2] & 7 | (code[0] & 1) << 3
                if mode == 1 and code[-1] == self._layout.frame_instruction:
                    frame = base
                elif mode == _REGISTER:
                    passed[base] = source == frame
        raise UnsupportedError("the handler of RETURN_VALUE calls nothing")

    def _is_instruction(self, offset: int) -> bool:
        """Whether an instruction begins there: what looks like one inside of another is none.

        The nearest handler before it is read; the loop's 31,000 instructions take a second.
        """
        at = max([0, *(start for address in self._table if 0 <= (start := address - self._start) <= offset)])
        try:
            while at < offset:
                at += instructions.instruction_length(self._code, at, "x86_64")
        except instructions.BadCodeError as error:
            raise UnsupportedError(f"its code cannot be read: {error}") from None
        return at == offset

    def _straight(self, address: int) -> Iterator[tuple[int, bytes]]:
        """Instructions from an address on, through jumps; conditional ones are not taken."""
        for _ in range(_MOST_INSTRUCTIONS):
            code = self._all.data(address, 16)
            try:
                code = code[: instructions.instruction_length(code, 0, "x86_64")]
            except instructions.BadCodeError as error:
                raise UnsupportedError(f"its code cannot be read: {error}") from None
            if code[0] in _JUMPS:
                address += len(code) + int.from_bytes(code[1:], "little", signed=True)
                continue
            yield address, code
            if code[0] in _ENDS:
                return
            address += len(code)

    def _in_plt(self, address: int) -> bool:
        sections = [section for section in self._file.sections if section.name.startswith(".plt")]
        return any(section.address <= address < section.address + section.size for section in sections)
