"""LLVM: from IR text to optimised IR, assembly and ELF bytes, in process and in memory."""

from __future__ import annotations

import sys
from functools import cache

import llvmlite.binding as llvm

from pytrace.diagnostics import InternalError

TRIPLE = "bpfel" if sys.byteorder == "little" else "bpfeb"
CPU = "v3"
"""32-bit sub-registers and atomics with a result, which every kernel from 5.12 takes; v4 needs 6.6."""


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
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


def elf(module: llvm.ModuleRef) -> bytes:
    """ELF object bytes."""
    return bytes(_machine().emit_object(module))


def llvm_version() -> str:
    """Version of the LLVM that llvmlite brings (``22.1.0``)."""
    return ".".join(str(part) for part in llvm.llvm_version_info)
