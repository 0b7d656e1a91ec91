"""Capabilities of this process: giving them up for good (capabilities(7), prctl(2)).

Capabilities belong to a thread: what is given up here stays with threads that were started before.
"""

from __future__ import annotations

import ctypes
import struct

from pytrace.runtime.machine import syscalls
from pytrace.runtime.machine.syscalls import Memory

_VERSION_3 = 0x20080522
"""``_LINUX_CAPABILITY_VERSION_3``: 64 bits in two words."""
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_SET_NO_NEW_PRIVS = 38
_LAST = 63


def permitted() -> int:
    """The permitted capabilities of this thread, a bit for each number."""
    header, data = Memory(struct.pack("=Ii", _VERSION_3, 0)), Memory(24)
    _check(syscalls.libc().capget(ctypes.c_void_p(header.address), ctypes.c_void_p(data.address)), "capget")
    words = struct.unpack("=6I", data.data)
    return int(words[1] | words[4] << 32)


def hold(effective: int, permitted_: int) -> None:
    """Hold these capabilities and no other; none is inheritable or ambient.

    Raises:
        OSError: the kernel refuses, as *permitted_* has one that was not held.
    """
    words = (effective & 0xFFFFFFFF, permitted_ & 0xFFFFFFFF, 0, effective >> 32, permitted_ >> 32, 0)
    header, data = Memory(struct.pack("=Ii", _VERSION_3, 0)), Memory(struct.pack("=6I", *words))
    _check(syscalls.libc().capset(ctypes.c_void_p(header.address), ctypes.c_void_p(data.address)), "capset")


def bound(kept: int) -> bool:
    """Remove all but *kept* from the bounding set; False where that is not allowed (it takes CAP_SETPCAP)."""
    for number in range(_LAST + 1):
        if kept >> number & 1 or _prctl(_PR_CAPBSET_READ, number) != 1:
            continue
        if _prctl(_PR_CAPBSET_DROP, number):
            return False
    return True


def gain_no_more() -> None:
    """Give this thread and all that it starts no privileges by ``execve`` any more (``no_new_privs``).

    Raises:
        OSError: the kernel refuses (before Linux 3.5).
    """
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl")


def _prctl(option: int, value: int) -> int:
    words = (ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)
    return int(syscalls.libc().prctl(ctypes.c_int(option), *words))


def _check(result: int, name: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise syscalls.failure(error, name)
