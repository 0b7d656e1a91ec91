"""System calls in the kernel's tracepoints: numbers, register offsets, and the flag of 32-bit calls.

A tracepoint ``syscalls:sys_enter_NAME`` is named after the kernel function of the system call, whose name differs from
that of the call for some (``SYSCALL_DEFINE`` in the kernel's sources, the tables of numbers of ``asm/unistd_64.h``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from pytrace.core.probes import syscall_numbers


class Abi(msgspec.Struct, frozen=True):
    """The calling convention of system calls, as offsets in ``struct pt_regs``.

    *number* is the offset of the number, a signed 32-bit integer; *arguments* are those of the arguments. *compat* is a
    member of ``struct thread_info`` and the bits in it that mark a 32-bit system call
    (``arch_trace_is_compat_syscall``). *members* of ``struct pt_regs`` must be at these offsets.
    """

    number: int
    arguments: tuple[int, ...]
    compat: tuple[str, int]
    members: tuple[tuple[str, int], ...]


ABIS: Mapping[str, Abi] = {
    # TS_COMPAT of arch/x86/include/asm/thread_info.h; arguments: di, si, dx, r10, r8, r9.
    "x86_64": Abi(
        120, (112, 104, 96, 56, 72, 64), ("status", 0x2), (("orig_ax", 120), ("di", 112), ("r10", 56), ("r9", 64))
    ),
    # TIF_32BIT of arch/arm64/include/asm/thread_info.h; arguments: orig_x0, x1 to x5.
    "aarch64": Abi(
        280, (272, 8, 16, 24, 32, 40), ("flags", 1 << 22), (("orig_x0", 272), ("syscallno", 280))
    ),
}
"""By machine, as ``uname -m`` names it."""

_FUNCTIONS = {
    "x86_64": {
        "stat": "newstat", "fstat": "newfstat", "lstat": "newlstat", "sendfile": "sendfile64", "uname": "newuname",
        "umount2": "umount",
    },
    "aarch64": {
        "fstat": "newfstat", "fstatat": "newfstatat", "sendfile": "sendfile64", "uname": "newuname",
        "umount2": "umount", "fadvise64": "fadvise64_64", "personality": "arm64_personality",
    },
}  # fmt: skip
"""System calls whose kernel function has another name; ``fadvise64_64`` and others are shared by all machines."""

_TABLES = {"x86_64": syscall_numbers.X86_64, "aarch64": syscall_numbers.GENERIC}


def names(table: str) -> list[str]:
    """The names of a table of :mod:`pytrace.core.probes.syscall_numbers` by number; empty for unused numbers."""
    by_number: list[str] = []
    for word in table.split():
        if word.startswith("@"):
            by_number.extend([""] * (int(word[1:]) - len(by_number)))
        else:
            by_number.append(word)
    return by_number


@cache
def numbers(machine: str) -> Mapping[str, int]:
    """The number of each system call of a machine, by the name of its tracepoints."""
    renamed = _FUNCTIONS.get(machine, {})
    table = names(_TABLES.get(machine, ""))
    return {renamed.get(name, name): number for number, name in enumerate(table) if name}
