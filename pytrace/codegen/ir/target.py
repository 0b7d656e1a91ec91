"""LLVM: from IR text to optimised IR, assembly and ELF bytes, in process and in memory."""

from __future__ import annotations

import os
import resource
import sys
from functools import cache
from typing import NoReturn

import llvmlite.binding as llvm

from pytrace.core.diagnostics import InternalError, TraceError

TRIPLE = "bpfel" if sys.byteorder == "little" else "bpfeb"
CPU = "v3"
"""32-bit sub-registers and atomics with a result, which every kernel from 5.12 takes; v4 needs 6.6."""

MOST_STACK = 1 << 14
"""Frame size of one function that LLVM accepts."""


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # The generator checks stack use itself (codegen.analysis.stack_use): LLVM would abort the process.
    llvm.set_option("pytrace", f"-bpf-stack-size={MOST_STACK}")
    # BPFMIPeephole removes zero extensions that are still used in other blocks, and LLVM aborts ("Register use before
    # def!", seen with 22.1). Without it programs have 0.3 % more instructions.
    llvm.set_option("pytrace", "-disable-bpf-peephole")
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=CPU, opt=2, codemodel="default")


def parse(text: str, *, verify: bool = False) -> llvm.ModuleRef:
    """The module of IR *text*.

    Raises:
        InternalError: LLVM rejects it.
    """
    try:
        module = llvm.parse_assembly(text)
        if verify:
            module.verify()
    except RuntimeError as error:
        raise InternalError(f"the generated IR is not valid: {error}") from error
    return module


def optimise(module: llvm.ModuleRef) -> None:
    """Run the -O2 pipeline, the BPF target's own passes included."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)


def assembly(module: llvm.ModuleRef) -> str:
    """BPF assembly text."""
    return str(_machine().emit_assembly(module))


LARGE = 8000
"""Instructions of one function from which on LLVM may find a branch out of range, and abort the process."""



_LAYOUTS = ((), ("-disable-block-placement",))
"""LLVM options for large modules, tried in order until all branches are in range.

Placed by likelihood, what happens seldom lies after everything else; in order, it lies where it is branched to.
"""


def longest(text: str) -> int:
    """The line count of the longest function in IR *text*, an upper bound of its instructions before optimisation."""
    return max((part.partition("\n}\n")[0].count("\n") for part in text.split("\ndefine ")[1:]), default=0)


def elf(module: llvm.ModuleRef, lines: int = LARGE) -> bytes:
    """The ELF object of a module whose functions have at most *lines* lines of IR text.

    Raises:
        TraceError: a program is too long for BPF's branches.
    """
    if lines < LARGE or not _is_large(module):
        return bytes(_machine().emit_object(module))
    for options in _LAYOUTS:
        data = _in_a_child(module, options)
        if data is not None:
            return data
    raise TraceError(
        "a program of the script is too long: BPF branches reach 32767 instructions",
        hints=("split the probe's block in several, or unroll less",),
    )


def _is_large(module: llvm.ModuleRef) -> bool:
    return any(sum(1 for block in function.blocks for _ in block.instructions) > LARGE for function in module.functions)


def _in_a_child(module: llvm.ModuleRef, options: tuple[str, ...]) -> bytes | None:
    """The ELF object, emitted in a child process, as LLVM may abort; LLVM *options* are set there only.

    Raises:
        MemoryError: LLVM ran out of memory.
    """
    _machine()
    read, write = os.pipe()
    said = os.memfd_create("llvm", os.MFD_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(read)
        _emit(module, options, write, said)
    os.close(write)
    with open(read, "rb") as file, open(said, "rb") as messages:
        data = file.read()
        _, status = os.waitpid(child, 0)
        messages.seek(0)
        if status and _NO_MEMORY in messages.read():
            raise MemoryError
    return None if status else data


_NO_MEMORY = b"out of memory"
"""Start of the message of LLVM's ``report_bad_alloc_error``."""


def _emit(module: llvm.ModuleRef, options: tuple[str, ...], result: int, messages: int) -> NoReturn:
    """The child's side of :func:`_in_a_child`."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(messages, 2)
        for option in options:
            llvm.set_option("pytrace", option)
        with open(result, "wb") as file:
            file.write(_machine().emit_object(module))
        os._exit(0)
    except MemoryError:
        os.write(messages, _NO_MEMORY)
    finally:
        os._exit(1)


def llvm_version() -> str:
    """Version of llvmlite's LLVM (``22.1.0``)."""
    return ".".join(str(part) for part in llvm.llvm_version_info)
