"""Python stacks: rows of the processes that programs walk (``pytrace.core.python_format``), kept while they run,
and names and lines of the functions in their frames.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError, counted, similar
from pytrace.core.python_format import (
    CALL_ROW_FORMAT,
    CHOSEN,
    FILE,
    FRAME,
    INDEX_BITS,
    LONGEST,
    NAME,
    NONE,
    RECORD,
    ROW_FORMAT,
    SLOT,
    SLOTS,
    UNIT,
    CallWord,
    Word,
)
from pytrace.runtime.binaries.elf_file import read_file
from pytrace.runtime.machine import bpf, procfs
from pytrace.runtime.stacks import python_interpreters
from pytrace.runtime.stacks.images import SymbolFrame
from pytrace.runtime.stacks.python_interpreters import EvalLoop, Interpreter, UnsupportedError, eval_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytrace.core.manifest import PythonChoice, PythonMaps
    from pytrace.runtime.binaries.elf_file import ElfFile, Result
    from pytrace.runtime.load.loaded_script import LoadedScript
    from pytrace.runtime.machine.procfs import Mapping


# ---------------------------------------------------------------------------------------------- line tables

# Lines of CPython's instructions by the tables of code objects.
#
# Sources: Objects/lnotab_notes.txt (3.9, 3.10) and Objects/locations.md (3.11 and later; InternalDocs/code_objects.md
# since 3.14). Positions are numbers of code units, of two bytes. A table that ends early, or has no line for a
# position, leads to the first line of the function.


_SIGNED = 128
_NO_LINE = -128
"""In 3.10: the instructions have no line."""
_NONE, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10
"""Codes of entries since 3.11; up to three more than the last, and lower ones, have a line delta of their own."""


def line_of(minor: int, table: bytes, first: int, index: int) -> int:
    """The line of the instruction at code unit *index* of a code object of CPython 3.*minor*; *first* is its first.

    *index* is negative before the first instruction.
    """
    if index < 0:
        return first
    if minor >= 11:
        return _by_locations(table, first, index)
    return _by_ranges(table, first, 2 * index) if minor == 10 else _by_steps(table, first, 2 * index)


def _signed(byte: int) -> int:
    return byte - 256 if byte >= _SIGNED else byte


def _by_steps(table: bytes, first: int, place: int) -> int:
    """3.9: pairs of steps, of the address and of the line."""
    address, result = 0, first
    for at in range(0, len(table) - 1, 2):
        address += table[at]
        if address > place:
            break
        result += _signed(table[at + 1])
    return result


def _by_ranges(table: bytes, first: int, place: int) -> int:
    """3.10: pairs of the length of a range and the step to its line from that before."""
    end, current = 0, first
    for at in range(0, len(table) - 1, 2):
        end += table[at]
        step = _signed(table[at + 1])
        current += 0 if step == _NO_LINE else step
        if place < end:
            return first if step == _NO_LINE else current
    return first


def _by_locations(table: bytes, first: int, index: int) -> int:
    """3.11 and later: entries of a byte with code and length, and what the code has after it."""
    at, end, current = 0, 0, first
    while at < len(table):
        head = table[at]
        code = head >> 3 & 15
        if code in (_LONG, _NO_COLUMNS):
            current += _delta(table, at + 1)
        elif _ONE_LINE <= code < _NO_COLUMNS:
            current += code - _ONE_LINE
        end += (head & 7) + 1
        if index < end:
            return first if code == _NONE else current
        at += 1
        # The first byte of an entry has the highest bit set, all others have not.
        while at < len(table) and not table[at] & 0x80:
            at += 1
    return first


def _delta(table: bytes, at: int) -> int:
    """A signed number in groups of six bits, the lowest first; bit 6 says that another follows."""
    value = shift = 0
    while at < len(table) and shift < 36:
        byte = table[at]
        value |= (byte & 63) << shift
        if not byte & 64:
            break
        at, shift = at + 1, shift + 6
    return -(value >> 1) if value & 1 else value >> 1


# ---------------------------------------------------------------------------------------------- functions

# Functions of Python frames, from the records that programs have made (``pytrace.core.python_format``).


_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
"""Forms of strings by bytes of a character (``PyUnicode_1BYTE_KIND`` …)."""
UNKNOWN = SymbolFrame("[unknown Python function]")
_PLACES = (1 << 32) - 1
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""A name may have any character; a line of output is a line."""


class _Function(msgspec.Struct, frozen=True):
    name: str
    file: str
    minor: int
    first: int
    table: bytes

    def frame(self, index: int, *, lines: bool) -> SymbolFrame:
        """The frame at a code unit (-1: before the first)."""
        file, line = "", 0
        if lines:
            file, line = self.file, line_of(self.minor, self.table, self.first, index)
        return SymbolFrame(self.name, 2 * max(index, 0), self.file, file, line)


class PythonFunctions:
    """Resolves frames of Python stacks. It knows none until :meth:`start`."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self._records: mmap.mmap | bytes = b""
        self._functions: dict[int, _Function | None] = {}
        self._frames: dict[int, SymbolFrame] = {}

    def start(self, descriptor: int, stack: ExitStack) -> None:
        """Read the array of names from now on."""
        records = mmap.mmap(descriptor, SLOT * SLOTS, mmap.MAP_SHARED, mmap.PROT_READ)
        stack.callback(self._close, records)
        self._records = records

    def _close(self, records: mmap.mmap) -> None:
        self._records = b""
        records.close()

    def walk(
        self,
        maps: PythonMaps,
        pids: Iterable[int] | None,
        loaded: LoadedScript,
        stack: ExitStack,
        message: Callable[[str], None],
    ) -> Walker:
        """Find the interpreters of the processes whose Python stacks a run walks: *pids*, or all for None."""
        self.start(loaded.map_fd(maps.names), stack)
        calls = loaded.map_fd(maps.calls) if maps.calls else None
        walker = Walker(loaded.map_fd(maps.processes), message, everything=pids is None, calls=calls)
        for pid in procfs.process_ids() if pids is None else sorted(pids):
            walker.add(pid)
        return walker

    @staticmethod
    def has(address: int) -> bool:
        """True if a frame of a user stack is one of Python."""
        return bool(address & FRAME)

    def frame(self, address: int) -> SymbolFrame:
        """The function of a frame."""
        known = self._frames.get(address)
        if known is None:
            function = self._function(address >> INDEX_BITS & _PLACES)
            index = (address & (1 << INDEX_BITS) - 1) - 1
            known = UNKNOWN if function is None else function.frame(index, lines=self._lines)
            self._frames[address] = known
        return known

    def uncalled(self, choices: int, targets: Iterable[PythonChoice]) -> Iterator[str]:
        """A sentence for each target of which no function was called while others were, with those of its files.

        *choices* is the map of decisions, which has what the programs met.
        """
        met: dict[int, dict[int, int]] = {}
        key = None
        while (key := bpf.map_next_key(choices, key, 8)) is not None:
            value = bpf.map_lookup(choices, key, 8)
            place, number = struct.unpack("=II", key)
            if value is not None:
                met.setdefault(number, {})[place] = int.from_bytes(value, sys.byteorder)
        for target in targets:
            decisions = met.get(target.number, {})
            if not decisions or CHOSEN in decisions.values():
                continue
            functions = [found for place in decisions if (found := self._function(place)) is not None]
            yield _uncalled(target, functions)

    def _function(self, place: int) -> _Function | None:
        if not place:
            return None
        if place not in self._functions:
            start = (place - 1) * UNIT
            self._functions[place] = function(self._records[start : start + LONGEST])
        return self._functions[place]


_MOST_NAMED = 3


def _uncalled(target: PythonChoice, functions: Sequence[_Function]) -> str:
    file = "" if "*" in target.files else f" of {target.files[0]}"
    here = [item for item in functions if any(fnmatchcase(item.file, pattern) for pattern in target.files)]
    if not here:
        files = sorted({os.path.basename(item.file) for item in functions})
        near = similar(target.files[0], files) or files[:_MOST_NAMED]
        ran = f"{counted(len(files), 'other file')} ran: {_few(near, files)}"
        return f"no function of {target.files[0]} was called; {ran}"
    names = sorted({item.name for item in here if not item.name.startswith("<")})
    near = similar(target.function, names) or names[:_MOST_NAMED]
    others = f"; called were {_few(near, names)}" if names else ""
    return f"no function {target.function!r}{file} was called{others}"


def _few(chosen: Sequence[str], all_: Sequence[str]) -> str:
    left = len(all_) - len(chosen)
    return ", ".join(chosen) + (f" and {counted(left, 'other')}" if left else "")


def function(record: bytes) -> _Function | None:
    """The function of a record; None if there is none."""
    if len(record) < RECORD.size:
        return None
    minor, first, name_kind, name_length, file_kind, file_length, table_size, size = RECORD.unpack_from(record)[:8]
    body = record[RECORD.size : size]
    name, body = _string(body, name_kind, name_length, NAME)
    file, body = _string(body, file_kind, file_length, FILE)
    if not name:
        return None
    return _Function(name, file, minor, first, body[:table_size])


def _string(data: bytes, kind: int, length: int, limit: int) -> tuple[str, bytes]:
    """A string with *length* characters, of which the first *limit* bytes were copied; and what follows it."""
    size = min(min(length, limit) * kind, limit)
    text = data[:size].decode(_ENCODINGS.get(kind, "latin-1"), "replace")
    return text.translate(_CONTROLS), data[(size + 7) & ~7 :]


_MOST_TOUCHED = 16 << 20
_PIECE = 1 << 20
_WORD = (1 << 64) - 1
_NO_OPCODE = 255
_NEXT_SINCE = 13
"""A frame names the instruction that is to run next (``instr_ptr``), before the last one (``prev_instr``)."""
_PRECISE = 12
"""Before, a tool that traces lines comes first, and later RESUME may be the first instruction of all."""
_TAGGED_SIZE_SINCE = 12
"""``lv_tag`` of ``PyLongObject``, before a signed ``ob_size``."""

_MUSL = re.compile(r"ld-musl-.*\.so\.1|libc\.(musl-.*\.)?so(\.1)?")
"""Names of musl, which is a library and the dynamic loader."""

Identity = tuple[int, int]
"""Device and inode of a file."""


class _Place(msgspec.Struct, frozen=True):
    """Where a process has its interpreter: the file, and how far that lies above its linked addresses.

    *thread_values* is as in :class:`Interpreter`, of the C library in another file.
    """

    identity: Identity
    bias: int
    thread_values: int | None = None


class _Binary(msgspec.Struct):
    """A mapped file: its interpreter, if it has one, and addresses of its segments by position in the file."""

    interpreter: Interpreter | None = None
    segments: tuple[tuple[int, int, int], ...] = ()
    loop: EvalLoop | None = None
    problem: str = ""
    checked: bool = False
    reported: bool = False


def runs_python(pid: int) -> bool:
    """Whether a process has mapped a CPython, of whatever version."""
    files = [item for item in procfs.executable_mappings(procfs.read_maps(pid)) if item.inode]
    for item in files:
        if python_interpreters.may_have(item.path, program=item is files[0]):
            known = _read(pid, item)
            if known is not None and (known.interpreter is not None or known.problem):
                return True
    return False


_CURRENT = 16
"""Bytes from ``tstate_current`` to ``autoTSSkey`` in ``struct _gilstate_runtime_state`` of 3.9 to 3.11."""


def _interpreters(minor: int) -> tuple[int, int]:
    """Offsets of ``interpreters.head`` in ``_PyRuntime``, and of the first thread state in ``PyInterpreterState``."""
    return (40, 16) if minor >= _MORE_LOCKS else (32, 8)


_MORE_LOCKS = 11
"""Since 3.11 the runtime and the interpreters have one member more before these."""


class Walker:
    """Keeps the rows of processes. *message* is called with a text about an interpreter that cannot be read.

    *calls* is the map of the second rows, which probes of Python functions need.
    """

    def __init__(
        self, descriptor: int, message: Callable[[str], None], *, everything: bool, calls: int | None = None
    ) -> None:
        self._rows = descriptor
        self._calls = calls
        self._message = message
        self._everything = everything
        self._binaries: dict[Identity, _Binary] = {}
        self._libraries: dict[Identity, int | None] = {}
        """Of each file that may be musl where it has the values of keys."""
        self._known: dict[int, _Place | None] = {}
        """Of each process where its interpreter is; None when it has none."""
        self._generation = 0

    def add(self, pid: int) -> None:
        """Look for an interpreter in what a process has mapped now."""
        text = procfs.read_maps(pid)
        if not text:
            return
        found = self._find(pid, procfs.executable_mappings(text))
        if pid in self._known and found == self._known[pid]:
            return
        self._known[pid] = found
        self._put(pid, found)

    def update(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Update the rows by the events in ``MappingRecorder.changes``."""
        mapped: dict[int, None] = {}
        for what, pid, parent in changes:
            if what == "exit":
                mapped.pop(pid, None)
                self._forget(pid)
                continue
            if what == "exec":
                self._executed(pid)
            if pid in self._known or self._everything or (what == "fork" and parent in self._known):
                mapped[pid] = None
        for pid in mapped:
            self.add(pid)

    def _executed(self, pid: int) -> None:
        """Another program runs there: the same addresses are those of other objects."""
        if self._known.get(pid) is not None:
            self._known[pid] = None
            bpf.map_delete(self._rows, struct.pack("=I", pid))

    def _forget(self, pid: int) -> None:
        if self._known.pop(pid, None) is not None:
            bpf.map_delete(self._rows, struct.pack("=I", pid))

    # ---- one process

    def _find(self, pid: int, mappings: list[Mapping]) -> _Place | None:
        """Where the process has an interpreter."""
        files = [item for item in mappings if item.inode]
        for item in files:
            identity = (item.device, item.inode)
            if identity not in self._binaries:
                if not python_interpreters.may_have(item.path, program=item is files[0]):
                    continue
                known = _read(pid, item, calls=self._calls is not None)
                if known is None:
                    continue
                self._binaries[identity] = known
            binary = self._binaries[identity]
            bias = _bias(binary, item)
            place = None if bias is None else _Place(identity, bias, self._thread_values(pid, files))
            if binary.interpreter is not None and place is not None and not binary.checked:
                _check(pid, binary, _located(binary.interpreter, place), place.bias)
            if binary.problem and not binary.reported:
                binary.reported = True
                self._message(f"no Python stacks of {item.path} (process {pid}): {binary.problem}")
            if binary.interpreter is not None and place is not None:
                return place
        return None

    def _thread_values(self, pid: int, files: Iterable[Mapping]) -> int | None:
        """Where the process's musl, if it has one in a file of its own, keeps the values of keys."""
        for item in files:
            if _MUSL.fullmatch(os.path.basename(item.path)):
                identity = (item.device, item.inode)
                if identity not in self._libraries:
                    self._libraries[identity] = _thread_values(pid, item)
                return self._libraries[identity]
        return None

    def _put(self, pid: int, found: _Place | None) -> None:
        key = struct.pack("=I", pid)
        if found is None:
            bpf.map_delete(self._rows, key)
            return
        binary = self._binaries[found.identity]
        assert binary.interpreter is not None
        interpreter = _located(binary.interpreter, found)
        _touch(pid, found.identity)
        self._generation += 1
        try:
            if self._calls is not None:
                bpf.map_update(self._calls, key, call_row(interpreter, binary.loop, found.bias))
            bpf.map_update(self._rows, key, row(interpreter, found.bias, self._generation))
        except OSError as error:
            self._known.pop(pid, None)
            self._message(f"no Python stacks of process {pid}: {error.strerror}")


def _located(interpreter: Interpreter, place: _Place) -> Interpreter:
    """An interpreter as it is in a process."""
    if place.thread_values is None:
        return interpreter
    return replace(interpreter, thread_values=place.thread_values)


def _check(pid: int, binary: _Binary, interpreter: Interpreter, bias: int) -> None:
    """Check the layout with the first process of a binary that has threads."""
    try:
        binary.checked = python_interpreters.check(pid, interpreter, bias)
    except UnsupportedError as error:
        binary.problem, binary.interpreter = str(error), None
    except OSError:
        pass  # the process is gone


def row(interpreter: Interpreter, bias: int, generation: int) -> bytes:
    """The row of a process."""
    layout, keyed = interpreter.layout, interpreter.thread_state is None
    key_place = interpreter.runtime + bias + (layout.tss_key or 0) if keyed else 0
    loop, cold = (
        tuple(address + bias if address else 0 for address in places) for places in (interpreter.loop, interpreter.cold)
    )
    shift = None if layout.code_bytes is not None else 1 if layout.minor == 9 else 0
    words: dict[Word, int | None] = {
        Word.GENERATION: generation, Word.KEY_PLACE: key_place, Word.TLS: interpreter.thread_state or 0,
        Word.CODE_TYPE: interpreter.code_type + bias, Word.MINOR: layout.minor, Word.THREAD_ID: layout.thread_id,
        Word.THREAD_FRAME: layout.thread_frame, Word.CFRAME_FRAME: layout.cframe_frame,
        Word.FRAME_SIZE: layout.frame_size, Word.FRAME_PREVIOUS: layout.frame_previous,
        Word.FRAME_CODE: layout.frame_code, Word.FRAME_INSTRUCTION: layout.frame_instruction,
        Word.FRAME_OWNER: layout.frame_owner, Word.CODE_SIZE: layout.code_size, Word.CODE_NAME: layout.code_name,
        Word.CODE_SHORT_NAME: layout.code_short_name, Word.CODE_FILE: layout.code_file,
        Word.CODE_TABLE: layout.code_table, Word.CODE_LINE: layout.code_line, Word.CODE_VERSION: layout.code_version,
        Word.CODE_BYTES: layout.code_bytes, Word.INDEX_SHIFT: shift, Word.ASCII_SIZE: layout.ascii_size,
        Word.COMPACT_SIZE: layout.compact_size, Word.FRAME_ENTRY: layout.frame_entry,
        Word.CFRAME_PREVIOUS: layout.cframe_previous, Word.LOOP_START: loop[0], Word.LOOP_END: loop[1],
        Word.COLD_START: cold[0], Word.COLD_END: cold[1], Word.CODE_TRACEABLE: layout.code_traceable,
        Word.HEADER_EXTRA: layout.header_extra, Word.KIND_SHIFT: layout.kind_shift,
        Word.FRAME_TLBC: layout.frame_tlbc, Word.CODE_TLBC: layout.code_tlbc,
        Word.THREAD_VALUES: interpreter.thread_values, Word.TAIL_CALLS: int(interpreter.tail_calls),
        Word.CURRENT: key_place - _CURRENT if keyed else 0,
        Word.INTERPRETERS: interpreter.runtime + bias + _interpreters(layout.minor)[0] if keyed else 0,
        Word.INTERPRETER_THREADS: _interpreters(layout.minor)[1],
    }  # fmt: skip
    values = (words[word] for word in Word)
    return ROW_FORMAT.pack(*(NONE if value is None else value & _WORD for value in values))


def call_row(interpreter: Interpreter, loop: EvalLoop | None, bias: int) -> bytes:
    """The second row of a process, for probes of Python functions; those of versions without them are not read."""
    layout = interpreter.layout
    opcodes = (
        layout.op_return, layout.op_constant, layout.op_return_instrumented, layout.op_constant_instrumented,
        layout.op_extended, layout.op_line,
    )  # fmt: skip
    packed = int.from_bytes(bytes(_NO_OPCODE if opcode is None else opcode for opcode in opcodes), "little")
    objects = [address + bias for address in interpreter.objects] or [NONE] * len(python_interpreters.OBJECTS)
    words: dict[CallWord, int | None] = {
        CallWord.CODE_FIRST: layout.code_first, CallWord.FIRST_SLACK: int(layout.minor >= _NEXT_SINCE),
        CallWord.CODE_ARGUMENTS: layout.code_arguments, CallWord.CODE_KEYWORDS: layout.code_keywords,
        CallWord.CODE_FLAGS: layout.code_flags, CallWord.CODE_LOCALS: layout.code_locals,
        CallWord.CODE_LOCAL_NAMES: layout.code_local_names, CallWord.CODE_CONSTANTS: layout.code_constants,
        CallWord.CODE_INSTRUMENTATION: layout.code_instrumentation, CallWord.THREAD_BREAKER: layout.thread_breaker,
        CallWord.TUPLE_ITEMS: layout.tuple_items, CallWord.OPCODES: packed,
        CallWord.FRAME_REGISTER: None if loop is None else loop.register, CallWord.NO_VALUE: objects[0],
        CallWord.BOOL_TYPE: objects[1], CallWord.CELL_TYPE: objects[2], CallWord.FLOAT_TYPE: objects[3],
        CallWord.ENTRY_SLACK: int(layout.minor != _PRECISE), CallWord.CODE_MONITORING: layout.code_monitoring,
        CallWord.MONITORING_LINES: layout.monitoring_lines,
        CallWord.SIGNED_SIZE: int(layout.minor < _TAGGED_SIZE_SINCE), CallWord.LINES_DATA: layout.lines_data,
    }  # fmt: skip
    return CALL_ROW_FORMAT.pack(*(NONE if words[word] is None else words[word] for word in CallWord))


def _read(pid: int, item: Mapping, *, calls: bool = False) -> _Binary | None:
    """What a mapped file has: a damaged one nothing; None when the process is gone, and its files with it.

    *calls*: also the places in the evaluation loop, where there are some.
    """

    def read(file: ElfFile) -> _Binary:
        code = [one for one in file.segments if one.executable]
        segments = tuple((one.offset, one.file_size, one.address) for one in code)
        try:
            found = python_interpreters.interpreter(file)
        except UnsupportedError as error:
            return _Binary(problem=str(error))
        return _Binary(found, segments, _loop(file, found) if calls and found is not None else None)

    try:
        return _of_file(pid, item, read, _Binary)
    except TraceError:
        return _Binary()


def _of_file(pid: int, item: Mapping, read: Callable[[ElfFile], Result], type_: type[Result]) -> Result | None:
    """What *read* returns for a mapped file, of *type_*; None when the process is gone, and its files with it.

    Raises:
        TraceError: the file is damaged, or takes too much.
    """
    # The file under the mapping is the right one even when another has its name by now.
    mapped = f"/proc/{procfs.entry(pid)}/map_files/{item.start:x}-{item.end:x}"
    for path in (mapped, procfs.root_prefix(pid) + item.path):
        with suppress(OSError):
            return read_file(path, read, type_)
    return None


class _ThreadValues(msgspec.Struct):
    """Of a musl: what :func:`interpreters.thread_values` finds."""

    offset: int | None = None


def _thread_values(pid: int, item: Mapping) -> int | None:
    """The same of a mapped file; None of a damaged one."""
    try:
        found = _of_file(pid, item, lambda file: _ThreadValues(python_interpreters.thread_values(file)), _ThreadValues)
    except TraceError:
        return None
    return None if found is None else found.offset


def _loop(file: ElfFile, found: Interpreter) -> EvalLoop | None:
    """The places in the evaluation loop; probes of functions have said why if there are none."""
    try:
        return eval_loop(file, found.layout)
    except UnsupportedError:
        return None


def _bias(binary: _Binary, item: Mapping) -> int | None:
    """Distance of a mapping from the addresses as they were linked."""
    for offset, size, address in binary.segments:
        start = offset & -mmap.PAGESIZE
        if start <= item.offset < offset + size:
            return item.start - (address + item.offset - offset)
    return None


def _touch(pid: int, identity: Identity) -> None:
    """Map the pages of the interpreter's data, which programs that trace cannot do: its frozen modules are in there."""
    with suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for item in procfs.writable_mappings(procfs.read_maps(pid)):
            if (item.device, item.inode) == identity and item.end - item.start <= _MOST_TOUCHED:
                for start in range(item.start, item.end, _PIECE):
                    os.pread(memory.fileno(), min(_PIECE, item.end - start), start)
