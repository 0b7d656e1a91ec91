"""Raw system calls that Python has no function for: numbers by machine, and buffers that the kernel reads or fills."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import signal
import struct
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import no_files

if TYPE_CHECKING:
    from collections.abc import Callable


_EVERYWHERE = {
    "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip
_GENERIC = {**_EVERYWHERE, "statx": 291, "bpf": 280, "perf_event_open": 241, "seccomp": 277}

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {**_EVERYWHERE, "bpf": 321, "perf_event_open": 298, "uprobe": 336, "seccomp": 317, "statx": 332},
    "i686": {**_EVERYWHERE, "bpf": 357, "perf_event_open": 336, "statx": 383},
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
    "armv7l": {**_EVERYWHERE, "bpf": 386, "perf_event_open": 364, "statx": 397},
    "s390x": {**_EVERYWHERE, "bpf": 351, "perf_event_open": 331, "statx": 379},
    "ppc64le": {**_EVERYWHERE, "bpf": 361, "perf_event_open": 319, "statx": 383},
    "ppc64": {**_EVERYWHERE, "bpf": 361, "perf_event_open": 319, "statx": 383},
    "mips64": {
        "bpf": 5315, "perf_event_open": 5292, "statx": 5326,
        **{name: 5000 + value for name, value in _EVERYWHERE.items()},
    },
}
"""System call numbers (``arch/*/kernel/syscalls/*.tbl``) by ``uname -m``."""

ENOTSUPP = 524
"""An error number of the kernel's own (include/linux/errno.h), which leaves it all the same; ``errno`` lacks it."""


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process, with ``errno`` kept for :func:`ctypes.get_errno`."""
    return ctypes.CDLL(None, use_errno=True)


def function_address(name: str) -> int | None:
    """The address of a function in the libraries of this process, as the dynamic linker resolves it (dlsym(3))."""
    try:
        return ctypes.cast(libc()[name], ctypes.c_void_p).value
    except AttributeError:
        return None


def file_system_type(descriptor: int) -> int:
    """The number of the file system of an open file, ``f_type`` of fstatfs(2).

    Raises:
        OSError: the call failed.
    """
    answer = ctypes.create_string_buffer(256)  # struct statfs has up to 120 bytes
    fstatfs = libc().fstatfs
    fstatfs.argtypes = [ctypes.c_int, ctypes.c_char_p]
    if fstatfs(descriptor, answer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    # A word on all machines but one.
    kind = ctypes.c_uint if os.uname().machine == "s390x" else ctypes.c_ulong
    return int(kind.from_buffer(answer).value) & 0xFFFFFFFF


class FileFacts(msgspec.Struct, frozen=True):
    """Facts about a file that its file system is not asked for.

    *mount* is a number of its mount that no other one ever has; 0 before Linux 6.8.
    """

    mode: int
    inode: int
    device: int
    mount: int


_WORKING_DIRECTORY = -100
_EMPTY_PATH, _DONT_SYNC = 0x1000, 0x4000
_BASIC, _LASTING_MOUNT = 0x7FF, 0x4000
"""``STATX_BASIC_STATS``, ``STATX_MNT_ID_UNIQUE``."""
_STATX = struct.Struct("=I24xH2xQ96xIIQ")
"""Of ``struct statx``: mask, mode, inode, device, mount."""


def file_facts(descriptor: int = _WORKING_DIRECTORY, path: str = "") -> FileFacts:
    """Facts about an open file, or about the one at a path that is a link of ``/proc``, by statx(2).

    Unlike ``fstat`` it does not wait for a file system that does not answer.

    Raises:
        OSError: the call failed, as before Linux 4.11.
    """
    answer = ctypes.create_string_buffer(256)
    flags = _DONT_SYNC if path else _DONT_SYNC | _EMPTY_PATH
    name = path.encode("utf-8", "surrogateescape")
    if _statx()(number("statx"), descriptor, name, flags, _BASIC | _LASTING_MOUNT, answer):
        raise failure(ctypes.get_errno(), "statx")
    mask, mode, inode, major, minor, mount = _STATX.unpack_from(answer)
    return FileFacts(mode, inode, os.makedev(major, minor), mount if mask & _LASTING_MOUNT else 0)


@cache
def _statx() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.argtypes = [
        ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_char_p,
    ]  # fmt: skip
    function.restype = ctypes.c_long
    return function


@cache
def number(name: str) -> int:
    """The number of system call *name* on this machine.

    Raises:
        OSError: (ENOSYS) the machine is not in the table.
    """
    table = NUMBERS.get(machine())
    if table is None:
        raise OSError(errno.ENOSYS, f"no system call numbers for machine {machine()}")
    return table[name]


def machine() -> str:
    """The machine, as ``uname -m`` shows it."""
    return os.uname().machine


def failure(number: int, name: str) -> OSError:
    """The exception for a call of the C library that failed with an error number."""
    return OSError(number, f"{name}: {os.strerror(number)}")


def call(name: str, *arguments: int) -> int:
    """Make system call *name*; arguments are integers (addresses included), all passed as ``long``.

    Raises:
        OSError: the call failed; *filename* is empty and the text names the call.
        TraceError: too many open files. Nobody shall take that for something that the kernel lacks.
    """
    syscall = libc().syscall
    syscall.restype = ctypes.c_long
    result = int(syscall(ctypes.c_long(number(name)), *[ctypes.c_long(item) for item in arguments]))
    if result < 0:
        error = ctypes.get_errno()
        if error in (errno.EMFILE, errno.ENFILE):
            raise no_files(error)
        raise failure(error, name)
    return result


def ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    """Trace a process: what ptrace does for *request*.

    Raises:
        OSError: the call failed. A result of -1 alone may be a word of the traced process.
    """
    function = libc().ptrace
    function.restype = ctypes.c_long
    ctypes.set_errno(0)
    result = function(ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(address), ctypes.c_void_p(data))
    error = ctypes.get_errno()
    if result == -1 and error:
        raise failure(error, "ptrace")
    return int(result)


_PTRACE_GETEVENTMSG = 0x4201


def ptrace_event_message(thread: int) -> int:
    """What a stop of a traced thread is about (PTRACE_GETEVENTMSG): of a fork the new process.

    Raises:
        OSError: the thread has ended.
    """
    message = ctypes.c_ulong()
    ptrace(_PTRACE_GETEVENTMSG, thread, 0, ctypes.addressof(message))
    return message.value


def stop_thread(process: int, thread: int) -> None:
    """Send SIGSTOP to one thread (tgkill(2)), which its tracer takes before the others of its process see it.

    Raises:
        OSError: there is no such thread.
    """
    if libc().tgkill(process, thread, signal.SIGSTOP):
        raise failure(ctypes.get_errno(), "tgkill")


_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int) -> None:
    """Have the kernel send signal *number* to this process when its parent ends, however that ends (prctl(2))."""
    libc().prctl(ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(number), 0, 0, 0)


def enter_namespace(descriptor: int, kind: int) -> None:
    """Move this thread to an open namespace of a kind (``CLONE_NEW…``; setns(2), which Python has from 3.12 on).

    Raises:
        OSError: the kernel refuses.
    """
    if libc().setns(ctypes.c_int(descriptor), ctypes.c_int(kind)):
        raise failure(ctypes.get_errno(), "setns")


class Memory:
    """Bytes at a fixed address that a system call reads or fills.

    *address* stays valid for as long as this object lives, which is why callers keep it in a local name.
    """

    __slots__ = ("_array", "address", "data")

    def __init__(self, content: int | bytes | bytearray) -> None:
        self.data = bytearray(content)
        self._array = (ctypes.c_char * max(1, len(self.data))).from_buffer(self.data) if self.data else None
        self.address = ctypes.addressof(self._array) if self._array is not None else 0

    def text(self) -> str:
        """The bytes up to the first NUL, as text."""
        return self.data.split(b"\0", 1)[0].decode(errors="replace")


class ZeroedMemory:
    """Very many bytes that the kernel may fill; pages that nobody touches take no memory.

    *address* stays valid for as long as this object lives.
    """

    __slots__ = ("_array", "_data", "address")

    def __init__(self, size: int) -> None:
        self._data = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE)
        self._array = (ctypes.c_char * len(self._data)).from_buffer(self._data)
        self.address = ctypes.addressof(self._array)

    def text(self) -> str:
        """The bytes up to the first NUL, as text."""
        return self._data[:].split(b"\0", 1)[0].decode(errors="replace")


def string_memory(text: str | bytes) -> Memory:
    """A NUL-terminated C string."""
    return Memory((os.fsencode(text) if isinstance(text, str) else text) + b"\0")


# ---------------------------------------------------------------------------------------------- sorting


def can_sort_records() -> bool:
    """True if the C library has what :func:`sort_records` needs (glibc; musl from 1.2.3 on)."""
    return hasattr(libc(), "qsort_r")


def sort_records(data: bytearray, size: int) -> None:
    """Sort records of *size* bytes in place, as :func:`memcmp` compares them."""
    if not data:
        return
    library = libc()
    array = (ctypes.c_char * len(data)).from_buffer(data)
    function = library.qsort_r
    function.restype = None
    # The comparison gets the last argument as its third one: the number of bytes that memcmp compares.
    compare = ctypes.cast(library.memcmp, ctypes.c_void_p)
    function(
        ctypes.byref(array), ctypes.c_size_t(len(data) // size), ctypes.c_size_t(size), compare, ctypes.c_size_t(size)
    )


# ---------------------------------------------------------------------------------------------- events about devices
# NETLINK_KOBJECT_UEVENT: here those of CPUs and modules that come and go.

_AF_NETLINK, _SOCK_RAW, _SOCK_NONBLOCK, _SOCK_CLOEXEC = 16, 3, 0o4000, 0o2000000
_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
_NETLINK_ADDRESS = struct.Struct("=HHII")
"""``struct sockaddr_nl``: family, padding, port, groups."""
_CPU_EVENT = rb"(online|offline)@/devices/system/cpu/cpu(\d+)\0"
_MODULE_EVENT = rb"(add|remove)@/module/([^/\0]+)\0"
_LONGEST_EVENT = 8192
"""Bytes of a message: ``UEVENT_BUFFER_SIZE`` is 2048."""


def subscribe_device_events() -> int:
    """A descriptor from which :func:`read_device_events` reads; the caller closes it.

    Raises:
        OSError: the kernel refuses.
    """
    library = libc()
    descriptor = int(library.socket(_AF_NETLINK, _SOCK_RAW | _SOCK_NONBLOCK | _SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT))
    if descriptor < 0:
        raise failure(ctypes.get_errno(), "socket")
    address = _NETLINK_ADDRESS.pack(_AF_NETLINK, 0, 0, _KERNEL_GROUP)
    if library.bind(descriptor, ctypes.c_char_p(address), len(address)):
        error = failure(ctypes.get_errno(), "bind")
        os.close(descriptor)
        raise error
    return descriptor


def read_device_events(descriptor: int) -> tuple[list[tuple[int, bool]], list[tuple[str, bool]]]:
    """CPUs of the waiting messages and whether each came online, and modules and whether each was loaded.

    A message is a line ``ACTION@/devices/…`` and its environment, separated by NULs (``lib/kobject_uevent.c``).

    Raises:
        OSError: (ENOBUFS) messages were lost.
    """
    cpus: list[tuple[int, bool]] = []
    modules: list[tuple[str, bool]] = []
    while True:
        try:
            message = os.read(descriptor, _LONGEST_EVENT)
        except BlockingIOError:
            return cpus, modules
        if found := re.match(_CPU_EVENT, message):
            cpus.append((int(found[2]), found[1] == b"online"))
        elif found := re.match(_MODULE_EVENT, message):
            modules.append((found[2].decode(), found[1] == b"add"))
