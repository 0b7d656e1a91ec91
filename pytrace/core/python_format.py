"""What programs and the session exchange about CPython interpreters (``codegen.walkers.python_stacks`` walks stacks,
``runtime.stacks`` says where and reads names).

A frame of a Python stack is a ``u64`` among the addresses of a user stack, with :data:`FRAME` set, which no user
address has; then the place of a *record* in units of :data:`UNIT` bytes (0: none could be made), then in the low
:data:`INDEX_BITS` bits the number of the code unit that runs, plus one (0: none yet).

Records are in the array of names, which is only ever appended to: a program copies name, file and line table of a code
object there when it first sees it, so a process that ended keeps its names. A record begins with :data:`RECORD`, then
the bytes of name, file name and line table, each padded to 8 bytes.
"""

from __future__ import annotations

import struct
from enum import IntEnum

FRAME = 1 << 63
INDEX_BITS = 24
UNIT = 16

SLOT = 1 << 20
"""Bytes of an element of the array of names; a record does not cross its end."""
SLOTS = 16
NAME, FILE, TABLE = 504, 1016, 65528
"""Most bytes of each part that are copied: less than a power of two, to which the verifier takes them."""
LONGEST = 64 + NAME + FILE + TABLE + 40
"""Bytes of the longest record, with what the verifier takes for possible."""

RECORD = struct.Struct("=8I4Q")
"""``u32`` minor version, first line, bytes of a character of the name, its characters, both of the file name, bytes
of the line table (as many as it has), size of the record; four ``u64`` are zero."""

KEY = 56
"""Bytes that identify a code object: process generation, addresses of the object, its name, file and line table, the
first line and version, a digest of the contents."""


REFUSED, CHOSEN = 1, 2
"""Decisions about a function (``u64``, by ``u32`` place of its record and ``u32`` number of the decision); for an
argument, the number of its variable is added to the second."""


class Word(IntEnum):
    """Words of a process's row: addresses in it, and offsets in its interpreter's objects. All are ``u64``.

    Offsets that a version does not have are :data:`NONE`.
    """

    GENERATION = 0
    """Never the same for two programs."""
    KEY_PLACE = 1
    """Address of ``_PyRuntime``'s ``autoTSSkey``; 0 when TLS has the thread state."""
    TLS = 2
    """Distance of the TLS variable of the thread state from the thread pointer."""
    CODE_TYPE = 3
    """Address of ``PyCode_Type``."""
    MINOR = 4
    THREAD_ID = 5
    """In ``PyThreadState``: the thread pointer (``pthread_self()``)."""
    THREAD_FRAME = 6
    """In ``PyThreadState``: the innermost frame, or the ``_PyCFrame`` that has it."""
    CFRAME_FRAME = 7
    FRAME_SIZE = 8
    FRAME_PREVIOUS = 9
    FRAME_CODE = 10
    FRAME_INSTRUCTION = 11
    """In a frame: the address of an instruction, or before 3.11 its index."""
    FRAME_OWNER = 12
    """In a frame: the byte that tells frames of the interpreter itself from Python's."""
    CODE_SIZE = 13
    CODE_NAME = 14
    CODE_SHORT_NAME = 15
    """``co_name``, which is interned."""
    CODE_FILE = 16
    CODE_TABLE = 17
    CODE_LINE = 18
    CODE_VERSION = 19
    """In a code object: a number that no other one of the interpreter has."""
    CODE_BYTES = 20
    """In a code object: the first instruction."""
    INDEX_SHIFT = 21
    """Before 3.11: bits by which the index of an instruction is more than that of a code unit."""
    ASCII_SIZE = 22
    COMPACT_SIZE = 23
    """Sizes of the headers of strings, ASCII ones and others."""
    FRAME_ENTRY = 24
    """In a frame of 3.11: the byte that is 1 if the loop of the interpreter was called for it."""
    CFRAME_PREVIOUS = 25
    """In a ``_PyCFrame`` of 3.11, which is a local variable of the loop: that of the call before."""
    LOOP_START = 26
    LOOP_END = 27
    """Addresses of ``_PyEval_EvalFrameDefault`` before 3.11, where each call of it runs one frame; else 0."""
    COLD_START = 28
    COLD_END = 29
    """Addresses of the part of it that the compiler moved away; 0 if there is none."""
    CODE_TRACEABLE = 30
    """In a code object of 3.11 and later: the number of code units before the first that is Python's."""
    HEADER_EXTRA = 31
    """Bytes by which the header of an object is longer than that of ordinary builds."""
    KIND_SHIFT = 32
    """In the state of a string: bits before its kind."""
    FRAME_TLBC = 33
    CODE_TLBC = 34
    """In a frame the index, and in a code object the array of the copies of its instructions that threads have."""
    THREAD_VALUES = 35
    """In musl's ``struct pthread``: the pointer to the values of keys."""
    TAIL_CALLS = 36
    """1 if the loop has called the function of the current instruction, which ends by a jump to the next one."""
    CURRENT = 37
    """Before 3.12, address of ``_PyRuntime``'s ``tstate_current``: the thread state that has the GIL. A thread has one
    for each interpreter that it has run, and the key only that of the first; 0 when TLS has the current one."""
    INTERPRETERS = 38
    """Before 3.12, address of the list of interpreters, the newest first; 0 when TLS has the current thread state."""
    INTERPRETER_THREADS = 39
    """In ``PyInterpreterState``: the list of its thread states. The next interpreter is its first member."""


class CallWord(IntEnum):
    """Words of the second row of a process, which probes of Python functions read: offsets and addresses, ``u64``."""

    CODE_FIRST = 0
    """In a code object: the number of its first RESUME."""
    FIRST_SLACK = 1
    """1 if a frame names the instruction that is to run next, 0 if it names the last one that ran."""
    ENTRY_SLACK = 2
    """1 if a frame may name its first RESUME already when that runs."""
    CODE_MONITORING = 3
    MONITORING_LINES = 4
    """In a code object, and in what it refers to: pairs of what INSTRUMENTED_LINE replaces, and another number."""
    CODE_ARGUMENTS = 5
    CODE_KEYWORDS = 6
    CODE_FLAGS = 7
    CODE_LOCALS = 8
    """In a code object: the number of variables, which come before the values in a frame."""
    CODE_LOCAL_NAMES = 9
    CODE_CONSTANTS = 10
    CODE_INSTRUMENTATION = 11
    THREAD_BREAKER = 12
    """In a code object and in ``PyThreadState``: the version of what monitors the code; RESUME runs again after a
    change."""
    TUPLE_ITEMS = 13
    OPCODES = 14
    """A byte for each of RETURN_VALUE, RETURN_CONST, both when instrumented, EXTENDED_ARG, INSTRUMENTED_LINE; 255 where
    there is none.
    """
    FRAME_REGISTER = 15
    """The number, as instructions have it, of the register with the frame where a function ends."""
    NO_VALUE = 16
    """Address of ``None``."""
    BOOL_TYPE = 17
    CELL_TYPE = 18
    SIGNED_SIZE = 19
    """1 if the sign of an ``int`` is that of its size (before 3.12)."""
    LINES_DATA = 20
    """Where the entries of lines begin that are monitored; before them is the size of each. NONE: two bytes each."""
    FLOAT_TYPE = 21


CALL_ROW = 8 * len(CallWord)
CALL_ROW_FORMAT = struct.Struct(f"={len(CallWord)}Q")

NONE = (1 << 64) - 1
ROW = 8 * len(Word)
ROW_FORMAT = struct.Struct(f"={len(Word)}Q")

OWNED_BY_INTERPRETER = 3
"""``owner`` of frames that are not Python's, and higher (3.12: ``FRAME_OWNED_BY_CSTACK``, 3.14:
``FRAME_OWNED_BY_INTERPRETER``)."""

TSS_FIRST, TSS_MORE, TSS_BLOCK = 0x310, 0x510, 32
"""In glibc's ``struct pthread`` of x86-64 (nptl/descr.h): ``specific_1stblock``, ``specific``, keys of a block."""
