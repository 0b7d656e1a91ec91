"""The kernel's events about devices (``NETLINK_KOBJECT_UEVENT``): here those of CPUs and modules that come and go.

A message is a line ``ACTION@/devices/…`` and its environment, separated by NULs (``lib/kobject_uevent.c``).
"""

from __future__ import annotations

import ctypes
import os
import re
import struct

from pytrace.runtime.machine import syscalls

_AF_NETLINK, _SOCK_RAW, _SOCK_NONBLOCK, _SOCK_CLOEXEC = 16, 3, 0o4000, 0o2000000
_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
_ADDRESS = struct.Struct("=HHII")
"""``struct sockaddr_nl``: family, padding, port, groups."""
_CPU = re.compile(rb"(online|offline)@/devices/system/cpu/cpu(\d+)\0")
_MODULE = re.compile(rb"(add|remove)@/module/([^/\0]+)\0")
_MOST = 8192
"""Bytes of a message: ``UEVENT_BUFFER_SIZE`` is 2048."""


def subscribe() -> int:
    """A descriptor from which :func:`read` reads; the caller closes it.

    Raises:
        OSError: the kernel refuses.
    """
    libc = syscalls.libc()
    descriptor = int(libc.socket(_AF_NETLINK, _SOCK_RAW | _SOCK_NONBLOCK | _SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT))
    if descriptor < 0:
        raise syscalls.failure(ctypes.get_errno(), "socket")
    address = _ADDRESS.pack(_AF_NETLINK, 0, 0, _KERNEL_GROUP)
    if libc.bind(descriptor, ctypes.c_char_p(address), len(address)):
        error = syscalls.failure(ctypes.get_errno(), "bind")
        os.close(descriptor)
        raise error
    return descriptor


def read(descriptor: int) -> tuple[list[tuple[int, bool]], list[tuple[str, bool]]]:
    """CPUs of the waiting messages and whether each came online, and modules and whether each was loaded.

    Raises:
        OSError: (ENOBUFS) messages were lost.
    """
    cpus: list[tuple[int, bool]] = []
    modules: list[tuple[str, bool]] = []
    while True:
        try:
            message = os.read(descriptor, _MOST)
        except BlockingIOError:
            return cpus, modules
        if found := _CPU.match(message):
            cpus.append((int(found[2]), found[1] == b"online"))
        elif found := _MODULE.match(message):
            modules.append((found[2].decode(), found[1] == b"add"))
