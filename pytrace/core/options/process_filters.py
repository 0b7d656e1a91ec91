"""Process filters: the set of filters is part of the generated code, their values are data of the run.

Generated code reads the values from the session's data (``SessionData.filters``), so runs with other processes, users
or cgroups use the same code. :class:`FilterShape` lays them out, :meth:`ProcessFilters.pack` writes them.
"""

from __future__ import annotations

import struct

import msgspec

UNROLLED = 16
"""Maximum number of processes that are compared one by one; more are looked up in a map."""
MOST = 64
"""Maximum number of values of each other filter."""
MOST_PIDS = 65536
COMM = 16
"""TASK_COMM_LEN of include/linux/sched.h."""
FORKED_ONLY = 0x40
"""PF_FORKNOEXEC of include/linux/sched.h: flag of a task that has executed no program since it was forked."""
PROCESS_MAP = "wanted_processes"
"""Symbol of the map of processes, when there are more than :data:`UNROLLED`."""
OWN_THREADS = 2
"""Of a trace: the one that keeps the watchdog, and the one that is in a call of it."""
NOT_YET = 0xFFFFFFFF
"""Placeholder for the process that ``--exec-wait`` waits for; no process has this id."""


def places(count: int) -> int:
    """Number of slots for *count* values: a power of two, so that similar runs use the same code."""
    return 1 << (count - 1).bit_length() if count else 0


class FilterShape(msgspec.Struct, frozen=True):
    """The filters that code contains: the number of slots for values of each, 0 for no such filter."""

    pids: int = 0
    uids: int = 0
    comms: int = 0
    cgroups: int = 0
    namespaces: int = 0
    awaited: bool = False
    """``--exec-wait``."""
    threads: int = 0
    """Threads that are left out, whatever else holds: those of the tracer in a program that traces itself."""

    @property
    def any(self) -> bool:
        """Whether there is a filter other than ``-p``, which the kernel can apply itself."""
        return bool(self.uids or self.comms or self.cgroups or self.namespaces or self.awaited or self.threads)

    @property
    def listed(self) -> int:
        """Number of processes that are compared one by one."""
        return self.pids if self.pids <= UNROLLED else 0

    @property
    def uids_at(self) -> int:
        """Offset of the users, 8 bytes each; processes (8 bytes each) come first."""
        return 8 * self.listed

    @property
    def namespaces_at(self) -> int:
        """Offset of the network namespaces, 8 bytes each."""
        return self.uids_at + 8 * self.uids

    @property
    def comms_at(self) -> int:
        """Offset of the names, 16 bytes each."""
        return self.namespaces_at + 8 * self.namespaces

    @property
    def cgroups_at(self) -> int:
        """Offset of the cgroups: depth and id, 8 bytes each."""
        return self.comms_at + COMM * self.comms

    @property
    def awaited_at(self) -> int:
        """Offset of the program name of ``--exec-wait``."""
        return self.cgroups_at + 16 * self.cgroups

    @property
    def threads_at(self) -> int:
        """Offset of the threads that are left out, 8 bytes each; 0 for none."""
        return self.awaited_at + (COMM if self.awaited else 0)

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self.threads_at + 8 * self.threads

    def text(self) -> str:
        """The options, for messages; without a single ``-p``, which ahead-of-time files always accept."""
        counts = {"-p": self.pids if self.pids > 1 else 0, "--uid": self.uids, "--comm": self.comms,
                  "--cgroup": self.cgroups, "--netns": self.namespaces, "--exec-wait": int(self.awaited)}  # fmt: skip
        return ", ".join(f"{name} (up to {count})" if count > 1 else name for name, count in counts.items() if count)


class ProcessFilters(msgspec.Struct, frozen=True):
    """Values of the filters of one run: a process must match one value of each filter that has values."""

    pids: tuple[int, ...] = ()
    """The processes of ``-p``."""
    uids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    """Thread names, at most 15 bytes each."""
    cgroups: tuple[tuple[int, int], ...] = ()
    """Depth below the root of the hierarchy, and id."""
    namespaces: tuple[int, ...] = ()
    """Inode numbers of network namespaces."""
    exec_wait: str = ""
    without_own_threads: bool = False
    """Whether the threads that run pytrace are left out; the session writes which these are, while they do."""

    @property
    def pid(self) -> int | None:
        """The process of ``-p``, the first one when there are several; None without ``-p``."""
        return self.pids[0] if self.pids else None

    @property
    def shape(self) -> FilterShape:
        """The filters that the code must contain."""
        return FilterShape(
            places(len(self.pids)),
            places(len(self.uids)),
            places(len(self.comms)),
            places(len(self.cgroups)),
            places(len(self.namespaces)),
            bool(self.exec_wait),
            OWN_THREADS if self.without_own_threads else 0,
        )

    def pack(self, memory: memoryview | bytearray, offset: int) -> None:
        """Write the values to *memory* at *offset*; unused slots repeat the first value."""
        shape = self.shape
        if shape.listed:
            _numbers(memory, offset, self.pids, shape.listed)
        _numbers(memory, offset + shape.uids_at, self.uids, shape.uids)
        _numbers(memory, offset + shape.namespaces_at, self.namespaces, shape.namespaces)
        for number in range(shape.comms):
            name = self.comms[number if number < len(self.comms) else 0]
            struct.pack_into("16s", memory, offset + shape.comms_at + COMM * number, comm_bytes(name))
        for number in range(shape.cgroups):
            level, identity = self.cgroups[number if number < len(self.cgroups) else 0]
            struct.pack_into("=QQ", memory, offset + shape.cgroups_at + 16 * number, level, identity)
        if self.exec_wait:
            struct.pack_into("16s", memory, offset + shape.awaited_at, comm_bytes(self.exec_wait))


def comm_bytes(name: str) -> bytes:
    """*name* as the kernel stores it: truncated to 15 bytes."""
    return name.encode("utf-8", "surrogateescape")[: COMM - 1]


def _numbers(memory: memoryview | bytearray, offset: int, values: tuple[int, ...], count: int) -> None:
    struct.pack_into(f"={count}Q", memory, offset, *values, *values[:1] * (count - len(values)))
