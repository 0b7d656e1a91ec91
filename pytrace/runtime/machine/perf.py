"""perf_event_open(2) and the ioctls of perf events.

Layouts are those of ``struct perf_event_attr`` in ``include/uapi/linux/perf_event.h``.  Every function raises
:class:`OSError`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from enum import IntEnum
from functools import cache

import msgspec
from msgspec.structs import replace

from pytrace.base import kernel_files
from pytrace.runtime.machine import privileges, syscalls
from pytrace.runtime.machine.syscalls import Memory

ATTR_SIZE = 128
"""``PERF_ATTR_SIZE_VER7``: kernels accept shorter and, when the rest is zero, longer ones."""

FLAG_DISABLED = 1 << 0
FLAG_INHERIT = 1 << 1
_FLAG_FREQUENCY = 1 << 10
_FLAG_ENABLE_ON_EXEC = 1 << 12
FLAG_INHERIT_THREAD = 1 << 35
_FLAG_CLOEXEC = 8

_IOC_DISABLE = 0x2401
_IOC_SET_BPF = 0x40042408
_IOC_PERIOD = 0x40082404


class EventType(IntEnum):
    """``enum perf_type_id``."""

    HARDWARE = 0
    SOFTWARE = 1
    TRACEPOINT = 2
    RAW = 4
    BREAKPOINT = 5


SOFTWARE_CPU_CLOCK = 0
SOFTWARE_DUMMY = 9
SOFTWARE_BPF_OUTPUT = 10


class EventAttr(msgspec.Struct, frozen=True):
    """The members of ``struct perf_event_attr`` that pytrace sets.

    *config1* and *config2* share their memory with ``bp_addr``/``kprobe_func``/``uprobe_path`` and
    ``bp_len``/``probe_offset``. *period* is a frequency in Hz when *frequency* is set.
    """

    type: int
    config: int = 0
    period: int = 0
    frequency: bool = False
    wakeup: int = 0
    breakpoint_type: int = 0
    config1: int = 0
    config2: int = 0
    flags: int = 0

    def inheriting(self, *, threads_only: bool) -> EventAttr:
        """The same event, also for what the process starts later: threads, or processes too."""
        return replace(self, flags=self.flags | FLAG_INHERIT | (FLAG_INHERIT_THREAD if threads_only else 0))

    def beginning_at_exec(self) -> EventAttr:
        """The same event, which begins when its process executes the next program."""
        return replace(self, flags=self.flags | FLAG_DISABLED | _FLAG_ENABLE_ON_EXEC)

    def pack(self) -> bytes:
        """The C structure."""
        flags = (_FLAG_FREQUENCY if self.frequency else 0) | self.flags
        head = struct.pack(
            "=IIQQQQQIIQQ",
            self.type,
            ATTR_SIZE,
            self.config,
            self.period,
            0,
            0,
            flags,
            self.wakeup,
            self.breakpoint_type,
            self.config1,
            self.config2,
        )
        return head.ljust(ATTR_SIZE, b"\0")


_BREAKPOINT_BITS = {"r": 1, "w": 2, "x": 4}


def breakpoint_attr(address: int, length: int, mode: str) -> EventAttr:
    """A hardware breakpoint on *length* bytes; *mode* is made of the letters r, w and x."""
    bits = sum(_BREAKPOINT_BITS[letter] for letter in mode)
    # The kernel wants the width of an execution breakpoint to be that of a long.
    width = 8 if "x" in mode else length
    return EventAttr(EventType.BREAKPOINT, period=1, wakeup=1, breakpoint_type=bits, config1=address, config2=width)


def open_event(attr: EventAttr, *, pid: int = -1, cpu: int = -1) -> int:
    """Open a perf event of one process (or -1) on one CPU (or -1) and return its descriptor.

    Raises:
        OSError: the kernel refuses it; the text says which setting does, where one is known to.
    """
    memory = Memory(attr.pack())
    try:
        return syscalls.call("perf_event_open", memory.address, pid, cpu, -1, _FLAG_CLOEXEC)
    except PermissionError:
        reason = barred()
        if not reason:
            raise
        raise PermissionError(errno.EPERM, reason) from None


def barred() -> str:
    """Why this process may open no perf event at all, whatever other rights it has; empty when it may.

    Distributions (Debian, Ubuntu) patched levels above 2 into their kernels, which ask for CAP_SYS_ADMIN.
    """
    level = kernel_files.read_text("/proc/sys/kernel/perf_event_paranoid").strip()
    if level in ("", "-1", "0", "1", "2") or "CAP_SYS_ADMIN" in privileges.effective_capabilities():
        return ""
    setting = f"sysctl kernel.perf_event_paranoid is {level}; 2 allows them"
    return f"this kernel reserves perf events for CAP_SYS_ADMIN ({setting})"


def disable(event: int) -> None:
    """Stop counting."""
    fcntl.ioctl(event, _IOC_DISABLE, 0)


def set_period(event: int, period: int) -> None:
    """Begin a period of *event* anew, and make it and those after it *period* events (or nanoseconds) long."""
    fcntl.ioctl(event, _IOC_PERIOD, struct.pack("=Q", period))


def set_bpf(event: int, program: int) -> None:
    """Run *program* on each occurrence of *event*; lasts until the event is closed."""
    fcntl.ioctl(event, _IOC_SET_BPF, program)


@cache
def pmu_type(name: str) -> int | None:
    """The number of a dynamic PMU (``kprobe``, ``uprobe``), or None where the kernel lacks it.

    It stays until the next boot, and reading it runs a function that the script may trace (``type_show``).
    """
    try:
        with open(f"/sys/bus/event_source/devices/{name}/type", encoding="utf-8") as file:
            return int(file.read())
    except FileNotFoundError:
        return None


@cache
def pmu_bit(name: str, field: str) -> int:
    """The ``config`` mask that a PMU's one-bit format field stands for (``retprobe`` → 1)."""
    with open(f"/sys/bus/event_source/devices/{name}/format/{field}", encoding="utf-8") as file:
        return 1 << int(file.read().strip().removeprefix("config:"))


_MAX_STACK = "/proc/sys/kernel/perf_event_max_stack"


def max_stack() -> int:
    """``kernel.perf_event_max_stack``: the number of frames that the kernel walks; its default where it is hidden."""
    try:
        with open(_MAX_STACK, encoding="utf-8") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 127  # PERF_MAX_STACK_DEPTH of include/uapi/linux/perf_event.h


def max_sample_rate() -> int:
    """``kernel.perf_event_max_sample_rate``: the highest frequency of an event in Hz."""
    try:
        with open("/proc/sys/kernel/perf_event_max_sample_rate", encoding="utf-8") as file:
            return int(file.read())
    except FileNotFoundError:
        return 100_000


def online_cpus() -> list[int]:
    """Numbers of the CPUs that are online."""
    return _parse_cpu_list(kernel_files.read_text("/sys/devices/system/cpu/online")) or sorted(os.sched_getaffinity(0))


def possible_cpus() -> list[int]:
    """Numbers of the CPUs that may ever be online; values of per-CPU maps have a copy for each."""
    return _parse_cpu_list(kernel_files.read_text("/sys/devices/system/cpu/possible")) or list(
        range(os.cpu_count() or 1)
    )


def _parse_cpu_list(text: str) -> list[int]:
    """The numbers of a kernel CPU list (``0-3,8``)."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.extend(range(int(first), int(last or first) + 1))
    return cpus
