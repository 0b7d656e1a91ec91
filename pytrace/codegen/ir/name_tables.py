"""Tables of names by number, which programs look up in read-only data."""

from __future__ import annotations

import os
import signal
from functools import cache

from pytrace.core.probes.system_calls import GENERIC, X86_64, names

_SYSCALLS = {"x86_64": X86_64, "aarch64": GENERIC, "riscv64": GENERIC, "loongarch64": GENERIC}

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


@cache
def errors() -> list[bytes]:
    """Descriptions of error numbers; the last row is for numbers beyond them."""
    descriptions = [_ERRORS.get(number) or os.strerror(number) for number in range(MAX_ERRNO + 1)]
    return [*(text.encode() for text in descriptions), b"Unknown error"]


@cache
def signals() -> list[bytes]:
    """Descriptions of signals; the last row is for numbers beyond them."""
    descriptions = [signal.strsignal(number) if number else None for number in range(MAX_SIGNAL + 1)]
    return [*((text or f"Unknown signal {number}").encode() for number, text in enumerate(descriptions)), b"N/A"]


@cache
def syscalls(machine: str) -> list[bytes]:
    """Names of system calls; the last row is for numbers beyond them."""
    rows = [name.encode() or b"Unknown syscall" for name in names(_SYSCALLS.get(machine, ""))]
    return [*rows, b"Unknown syscall"]
