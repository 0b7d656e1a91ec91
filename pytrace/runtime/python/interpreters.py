"""CPython interpreters in binaries: version, layout, and where their variables are."""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pytrace.runtime.python import handlers
from pytrace.runtime.python.layouts import Layout, UnsupportedError, layout

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile

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
    if known.minor >= handlers.TAIL_CALLS_SINCE:
        return replace(found, tail_calls=handlers.are_functions(file))
    if known.frame_owner is not None:
        return found
    return replace(found, loop=_range(file, handlers.LOOP), cold=_range(file, f"{handlers.LOOP}.cold"))


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
