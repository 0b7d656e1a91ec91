"""What depends on the machine: registers and calling convention, numbers of system calls, errors and signals."""

from __future__ import annotations

import os
import signal

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.system_calls import call_names


class Registers(msgspec.Struct, frozen=True):
    """One machine; *names* are in the order of ``struct pt_regs`` (``user_pt_regs`` on arm64 and s390x)."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    result: str
    stack: str
    pc: str
    stack_offset: int = 0
    """Bytes from the stack pointer at function entry to the first argument that is passed on the stack."""
    base: int = 0
    """Bytes before the first register."""
    aliases: tuple[tuple[str, str], ...] = ()

    def offset(self, name: str) -> int:
        """Byte offset of a register in the context.

        Raises:
            TraceError: the machine has no such register.
        """
        name = dict(self.aliases).get(name, name)
        if name not in self.names:
            names = ", ".join((*self.names, *(alias for alias, _ in self.aliases)))
            raise TraceError(f"this machine has no register '{name}'", hints=(f"registers: {names}",))
        return self.base + 8 * self.names.index(name)


_X86 = Registers(
    names=("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di",
           "orig_rax", "ip", "cs", "flags", "sp", "ss"),
    arguments=("di", "si", "dx", "cx", "r8", "r9"),
    result="ax",
    stack="sp",
    pc="ip",
    stack_offset=8,
    aliases=(("pc", "ip"), ("orig_ax", "orig_rax"), *((f"r{name}", name) for name in
             ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "flags"))),
)  # fmt: skip

_ARM64 = Registers(
    names=(*(f"r{n}" for n in range(31)), "sp", "pc", "pstate"),
    arguments=tuple(f"r{n}" for n in range(8)),
    result="r0",
    stack="sp",
    pc="pc",
    aliases=(*((f"x{n}", f"r{n}") for n in range(31)), ("lr", "r30"), ("fp", "r29")),
)

_S390X = Registers(
    names=("mask", "pc", *(f"r{n}" for n in range(16))),
    arguments=("r2", "r3", "r4", "r5", "r6"),
    result="r2",
    stack="r15",
    pc="pc",
    stack_offset=160,
    aliases=(("sp", "r15"),),
)

_RISCV = Registers(
    names=("pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", *(f"a{n}" for n in range(8)),
           *(f"s{n}" for n in range(2, 12)), "t3", "t4", "t5", "t6"),
    arguments=tuple(f"a{n}" for n in range(8)),
    result="a0",
    stack="sp",
    pc="pc",
)  # fmt: skip

_LOONGARCH = Registers(
    names=(*(f"r{n}" for n in range(32)), "orig_a0", "pc", "badv"),
    arguments=tuple(f"r{n}" for n in range(4, 12)),
    result="r4",
    stack="r3",
    pc="pc",
    aliases=(("sp", "r3"), ("ra", "r1")),
)

_PPC64 = Registers(
    names=(*(f"r{n}" for n in range(32)), "pc", "msr", "orig_r3", "ctr", "link", "xer", "ccr"),
    arguments=tuple(f"r{n}" for n in range(3, 11)),
    result="r3",
    stack="r1",
    pc="pc",
    stack_offset=96,
    aliases=(("sp", "r1"), ("nip", "pc")),
)

_MIPS64 = Registers(
    names=(*(f"r{n}" for n in range(32)), "status", "hi", "lo", "badvaddr", "cause", "pc"),
    arguments=tuple(f"r{n}" for n in range(4, 12)),
    result="r2",
    stack="r29",
    pc="pc",
    aliases=(("sp", "r29"),),
)

_MACHINES: dict[str, Registers] = {
    "x86_64": _X86,
    "aarch64": _ARM64,
    "arm64": _ARM64,
    "s390x": _S390X,
    "riscv64": _RISCV,
    "loongarch64": _LOONGARCH,
    "ppc64le": _PPC64,
    "ppc64": _PPC64,
    "mips64": _MIPS64,
}


def registers_of(machine: str) -> Registers:
    """The register table of a machine (its name as printed by ``uname -m``).

    Raises:
        TraceError: this machine is not supported.
    """
    registers = _MACHINES.get(machine)
    if registers is None:
        raise TraceError(f"function arguments and registers are not known on {machine}")
    return registers


MAX_ERRNO = 133
MAX_SIGNAL = 64


_ERRORS = {
    5: "I/O error", 9: "Bad file number", 11: "Try again (operation would block)", 12: "Out of memory",
    18: "Cross-device link", 23: "File table overflow", 25: "Not a typewriter",
    33: "Math argument out of domain of func", 34: "Math result not representable", 35: "Resource deadlock would occur",
    37: "No record locks available", 38: "Invalid system call number", 40: "Too many symbolic links encountered",
    41: "Unknown error", 58: "Unknown error", 74: "Not a data message", 84: "Illegal byte sequence",
    95: "Operation not supported on transport endpoint", 102: "Network dropped connection because of reset",
    122: "Quota exceeded", 125: "Operation Canceled",
}  # fmt: skip
"""Descriptions of bpftrace since 0.27 that differ from those of the C library."""


def errors() -> list[bytes]:
    """Descriptions of error numbers; the last row is for numbers beyond them."""
    descriptions = [_ERRORS.get(number) or os.strerror(number) for number in range(MAX_ERRNO + 1)]
    return [*(text.encode() for text in descriptions), b"Unknown error"]


def signals() -> list[bytes]:
    """Descriptions of signals; the last row is for numbers beyond them."""
    descriptions = [signal.strsignal(number) if number else None for number in range(MAX_SIGNAL + 1)]
    return [*((text or f"Unknown signal {number}").encode() for number, text in enumerate(descriptions)), b"N/A"]


def syscalls(machine: str) -> list[bytes]:
    """Names of system calls; the last row is for numbers beyond them."""
    rows = [name.encode() or b"Unknown syscall" for name in call_names(machine)]
    return [*rows, b"Unknown syscall"]
