"""LLVM itself: parsing, optimising and compiling IR text for the BPF target; the stack that programs need."""

from __future__ import annotations

import os
import re
import resource
import struct
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import NoReturn

from llvmlite.binding import ModuleRef, TargetMachine
from llvmlite.binding.context import ContextRef

from pytrace.base.interruption import postponed
from pytrace.core.diagnostics import InternalError, TraceError, memory_is_limited, no_memory, resource_limit

TRIPLE = "bpfel" if sys.byteorder == "little" else "bpfeb"
CPU = "v3"
"""Has 32-bit sub-registers and fetching atomics; supported by every kernel since 5.12 (v4 needs 6.6)."""

_MOST_STACK = 1 << 14
"""Frame size of one function that LLVM accepts."""

# Functions that make or free an object of llvmlite postpone Ctrl-C: one that is interrupted half-made is freed with an
# error, or freed twice, and an interrupt in its ``__del__`` is lost. They are single calls of LLVM, which no signal
# interrupts anyway.


def _llvm() -> ModuleType:
    """Llvmlite's binding. It is imported late: where memory is limited only the child of :func:`_in_a_child` has it."""
    import llvmlite.binding

    binding: ModuleType = llvmlite.binding
    return binding


@cache
@postponed()
def _machine() -> TargetMachine:
    llvm = _llvm()
    # The generator checks stack use itself (:func:`stack_needed`): LLVM would abort the process.
    llvm.set_option("pytrace", f"-bpf-stack-size={_MOST_STACK}")
    # BPFMIPeephole removes zero extensions that are still used in other blocks, and LLVM aborts ("Register use before
    # def!", seen with 22.1). Without it programs have 0.3 % more instructions.
    llvm.set_option("pytrace", "-disable-bpf-peephole")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=CPU, opt=2, codemodel="default")


@cache
@postponed()
def _context() -> ContextRef:
    return _llvm().get_global_context()


@postponed()
def parse(text: str, *, verify: bool = False) -> ModuleRef:
    """Parse IR *text* into a module.

    Raises:
        InternalError: LLVM rejects it.
    """
    try:
        module = _llvm().parse_assembly(text, _context())
        if verify:
            module.verify()
    except RuntimeError as error:
        raise InternalError(f"the generated IR is not valid: {error}") from error
    return module


@contextmanager
def parsed(text: str, *, verify: bool = False) -> Iterator[ModuleRef]:
    """A module of :func:`parse`, freed at the end of the block."""
    module = parse(text, verify=verify)
    try:
        yield module
    finally:
        with postponed():
            module.close()


@postponed()
def optimise(module: ModuleRef) -> None:
    """Run the -O2 pipeline without vectorisation, the BPF target's own passes included."""
    llvm = _llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)


@postponed()
def assembly(module: ModuleRef) -> str:
    """BPF assembly text."""
    return str(_machine().emit_assembly(module))


LARGE = 8000
"""Instructions of one function above which a branch may be out of range, for which LLVM aborts the process."""

_LAYOUTS = ((), ("-disable-block-placement",))
"""LLVM options for large modules, tried in order until all branches are in range.

Block placement moves unlikely blocks to the end of the function; without it they stay near their branches.
"""


def longest(text: str) -> int:
    """The line count of the longest function in IR *text*, an upper bound of its instructions before optimisation."""
    return max((part.partition("\n}\n")[0].count("\n") for part in text.split("\ndefine ")[1:]), default=0)


def compiled(text: str) -> bytes:
    """Compile IR *text* to an optimised ELF object.

    Raises:
        InternalError: LLVM rejects the text.
        MemoryError: LLVM ran out of memory.
        TraceError: a program is too long for BPF's branches.
    """
    if memory_is_limited():
        # LLVM aborts the process when it runs out of memory.
        data = _in_a_child(lambda: _compiled(text))
        if data is not None:
            return data
    return _compiled(text)


def _compiled(text: str) -> bytes:
    with parsed(text) as module:
        optimise(module)
        return elf(module, longest(text))


@postponed()
def _object(module: ModuleRef) -> bytes:
    return bytes(_machine().emit_object(module))


def elf(module: ModuleRef, lines: int = LARGE) -> bytes:
    """The ELF object of a module whose functions have at most *lines* lines of IR text.

    Raises:
        TraceError: a program is too long for BPF's branches.
    """
    if lines < LARGE or not _is_large(module):
        return _object(module)
    for options in _LAYOUTS:
        data = _in_a_child(partial(_with_options, module, options))
        if data is not None:
            return data
    raise TraceError(
        "a program of the script is too long: BPF branches reach 32767 instructions",
        hints=("split the probe's block in several, or unroll less",),
    )


def _is_large(module: ModuleRef) -> bool:
    # A line of optimised IR is an instruction, a label, or a debug record.
    return longest(str(module)) > LARGE


def _with_options(module: ModuleRef, options: tuple[str, ...]) -> bytes:
    """Emit the ELF object with LLVM *options*, which stay set for the rest of the process."""
    for option in options:
        _llvm().set_option("pytrace", option)
    return _object(module)


def _in_a_child(emit: Callable[[], bytes]) -> bytes | None:
    """Run *emit* in a child process, as LLVM may abort. Returns its result, or None if LLVM aborted.

    Raises:
        MemoryError: LLVM ran out of memory.
    """
    if not memory_is_limited():
        _machine()
    read, write = os.pipe()
    said = os.memfd_create("llvm", os.MFD_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(read)
        _emit(emit, write, said)
    os.close(write)
    with open(read, "rb") as file, open(said, "rb") as messages:
        data = file.read()
        _, status = os.waitpid(child, 0)
        messages.seek(0)
        text = messages.read()
        if status and any(message in text for message in _NO_MEMORY):
            raise MemoryError
    return None if status else data


_NO_MEMORY = (b"out of memory", b"std::bad_alloc")
"""Prefixes of the messages of LLVM's ``report_bad_alloc_error`` and of the C++ library."""


def _emit(emit: Callable[[], bytes], result: int, messages: int) -> NoReturn:
    """The child's side of :func:`_in_a_child`."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(messages, 2)
        with open(result, "wb") as file:
            file.write(emit())
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  (the parent tries it itself, and reports what is wrong)
        limit = resource_limit(error)
        if limit is not None and limit.message == no_memory().message:
            os.write(messages, _NO_MEMORY[0])
    finally:
        os._exit(1)


def llvm_version() -> str:
    """Version of llvmlite's LLVM (``22.1.0``)."""
    return ".".join(str(part) for part in _llvm().llvm_version_info)


STACK_LIMIT = 512
"""``MAX_BPF_STACK``."""

_STACK_STEP = 32
"""The verifier rounds the stack size of a function up to a multiple of this (of 16 if the program is JIT-compiled)."""

_SECTION = struct.Struct("=IIQQQQIIQQ")
_SYMBOL_ENTRY = struct.Struct("=IBBHQQ")
_INSTRUCTION = struct.Struct("=BBhi")
_SYMTAB, _FUNCTION = 2, 2
_LOAD, _STORES = 1, (2, 3)
_MOVE, _ADD = 0xBF, 0x07
_FRAME = 10
"""The register that points to the end of the frame."""


_SYMBOL = re.compile(r"@(\w+)")


def callees(text: str, names: Container[str]) -> dict[str, set[str]]:
    """The functions that each of *names* calls or passes to the kernel as a callback, in the IR *text* of a module."""
    calls: dict[str, set[str]] = {}
    for part in text.split("\ndefine ")[1:]:
        head, _, rest = part.partition("(")
        body = rest.partition("\n}\n")[0]
        name = head.rpartition("@")[2]
        if name in names:
            calls[name] = {callee for callee in _SYMBOL.findall(body) if callee in names}
    return calls


def stack_needed(elf: bytes, text: str) -> int:
    """Upper bound of the stack use of the deepest call chain, in bytes.

    *text* is the IR, which has the call graph; it is used only if all functions together exceed the limit.
    """
    frames = {name: _frame(code) for name, code in _functions(elf)}
    total = sum(frames.values())
    if total <= STACK_LIMIT:
        return total
    calls = callees(text, frames)

    def depth(name: str) -> int:
        return frames[name] + max((depth(callee) for callee in calls.get(name, ())), default=0)

    return max(map(depth, frames))


def _functions(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and code of each function of an object file."""
    (start,) = struct.unpack_from("=Q", elf, 40)
    step, count = struct.unpack_from("=HH", elf, 58)
    sections = [_SECTION.unpack_from(elf, start + name_offset * step) for name_offset in range(count)]
    table = next(section for section in sections if section[1] == _SYMTAB)
    names = sections[table[6]][4]
    for name, info, _, index, value, size in _SYMBOL_ENTRY.iter_unpack(elf[table[4] : table[4] + table[5]]):
        if info & 15 == _FUNCTION and 0 < index < count:
            name_offset = names + name
            begin = sections[index][4] + value
            yield elf[name_offset : elf.index(b"\0", name_offset)].decode(), elf[begin : begin + size]


def _frame(code: bytes) -> int:
    """Bytes of stack that the verifier counts for a function: up to the lowest offset that its code uses, rounded."""
    lowest, copied = 0, -1
    for operation, registers, offset, number in _INSTRUCTION.iter_unpack(code):
        low, high = registers & 15, registers >> 4
        target, source = (low, high) if sys.byteorder == "little" else (high, low)
        instruction_class = operation & 7
        if (instruction_class == _LOAD and source == _FRAME) or (instruction_class in _STORES and target == _FRAME):
            lowest = min(lowest, offset)
        elif operation == _ADD and target == copied:
            lowest = min(lowest, number)
        copied = target if operation == _MOVE and source == _FRAME else -1
    return max(_STACK_STEP, -(lowest // _STACK_STEP) * _STACK_STEP)
