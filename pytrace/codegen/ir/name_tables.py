"""Tables of names by number, which programs look up in read-only data."""

from __future__ import annotations

import os
import signal
from functools import cache

from pytrace.core.probes.syscall_numbers import GENERIC, X86_64
from pytrace.core.probes.system_calls import names

_SYSCALLS = {"x86_64": X86_64, "aarch64": GENERIC, "riscv64": GENERIC, "loongarch64": GENERIC}

MAX_ERRNO = 133
MAX_SIGNAL = 64


@cache
def errors() -> list[bytes]:
    """Descriptions of error numbers; the last row is for numbers beyond them."""
    return [*(os.strerror(number).encode() for number in range(MAX_ERRNO + 1)), b"Unknown error"]


@cache
def signals() -> list[bytes]:
    """Descriptions of signals; the last row is for numbers beyond them."""
    known = [signal.strsignal(number) if number else None for number in range(MAX_SIGNAL + 1)]
    return [*((text or "Unknown signal").encode() for text in known), b"Unknown signal"]


@cache
def syscalls(machine: str) -> list[bytes]:
    """Names of system calls; the last row is for numbers beyond them."""
    rows = [name.encode() or b"unknown" for name in names(_SYSCALLS.get(machine, ""))]
    return [*rows, b"unknown"]
