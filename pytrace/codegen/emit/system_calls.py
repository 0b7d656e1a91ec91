"""System calls at a raw tracepoint: registers, result, and the index of the target that fired."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.ir_values import I64, Ptr
from pytrace.core.probes.system_calls import ABIS, Abi
from pytrace.frontend.ast.typed_program import ProbeUnit

RESULT = 8
"""Offset of the system call's result in the context of the raw tracepoint ``sys_exit``."""


def abi(e: Emitter) -> Abi:
    """The system call ABI of the machine."""
    return ABIS[e.script.kernel.arch]


def registers(e: Emitter) -> Ptr:
    """The ``struct pt_regs`` of the system call, which the verifier knows by type."""
    return e.b.pointer(e.b.load(e.context))


def register(e: Emitter, offset: int, size: int = 8, *, signed: bool = False) -> I64:
    """The value at *offset* in ``struct pt_regs``."""
    return e.b.load(e.b.offset(registers(e), offset), 8 * size, signed)


def target_index(e: Emitter, unit: ProbeUnit) -> I64:
    """Index of the current system call among the targets of *unit*."""
    most = max(unit.calls)
    indexes = dict(zip(unit.calls, range(len(unit.calls)), strict=True))
    table = b"".join(indexes.get(number, 0).to_bytes(2, "little") for number in range(most + 1))
    number = e.b.at_most(register(e, abi(e).number, 4), most)
    return e.b.load(e.b.offset(e.module.constant(table), e.b.mul(number, 2)), 16)
