"""Small text files of the kernel, as those of ``/proc`` and ``/sys``."""

from __future__ import annotations

import os
from typing import NamedTuple

ENDED = ("Z", "X")
"""States of processes and threads that have ended."""
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
ONE_STACK = 8 << 20
"""Places further apart are of two stacks (of coroutines, of signal handlers): neither tells about the other."""


def read_text(path: str, most: int = -1) -> str:
    """The text of a file, its first *most* characters; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read(most)
    except OSError:
        return ""


def process_name(pid: int | str) -> str:
    """What the kernel calls a process (``comm``), with U+FFFD for bytes that are no UTF-8; empty when it has gone."""
    name = read_text(f"/proc/{pid}/comm").removesuffix("\n")
    return name.encode(errors="surrogateescape").decode(errors="replace")


class Statistics(NamedTuple):
    """``/proc/PID/stat`` of a process or thread (proc(5))."""

    name: str
    state: str
    """As ``ps`` shows it: ``R``, ``S``, ``D`` …"""
    parent: int
    flags: int
    """Of the kernel: ``PF_FORKNOEXEC`` …"""
    faults_of_children: int
    """Minor page faults of children that have been waited for."""
    ticks: int
    """Of processor time, in user space and in the kernel."""
    threads: int
    start: int
    """In ticks since boot."""
    pages: int
    """Resident ones."""


def statistics(process: int | str, root: str = "/proc") -> Statistics | None:
    """The statistics of a process, or of the thread ``PID/task/TID``; None of one that has gone."""
    # The name may contain anything, parentheses and newlines, too.
    before, _, after = read_text(f"{root}/{process}/stat").rpartition(")")
    fields = after.split()
    if len(fields) < 22:
        return None
    parent, flags, faults, user, system, threads, start, pages = (int(fields[n]) for n in (1, 6, 8, 11, 12, 17, 19, 21))
    return Statistics(before.partition("(")[2], fields[0], parent, flags, faults, user + system, threads, start, pages)


class Thread(NamedTuple):
    """A thread that has not ended."""

    name: str
    start: int
    """When it began, in nanoseconds since boot; a tick is rounded down, so nothing that it does is older."""
    stack: int
    """Its stack pointer in user space; 0 while it runs, or where this process may not look."""

    def has_left(self, place: int) -> bool:
        """Whether it has left the call whose return address is at *place* (0: not known), as that is off its stack."""
        return bool(place) and 0 < self.stack - place < ONE_STACK


def thread(number: int) -> Thread | None:
    """A thread by its number; None for one that has ended."""
    found = statistics(number)
    if found is None or found.state in ENDED:
        return None
    words = read_text(f"/proc/{number}/syscall").split()
    stack = int(words[-2], 16) if len(words) > 1 else 0
    return Thread(found.name, found.start * _TICK, stack)


def process_state(pid: int) -> str:
    """The state of a process (:attr:`Statistics.state`); empty when it has gone."""
    found = statistics(pid)
    return found.state if found else ""


def lines(content: str) -> list[str]:
    """The lines of a file of the kernel, which end with a newline and nothing else.

    The kernel escapes newlines in names (of threads, cgroups, mount points, files) and leaves other characters that
    :meth:`str.splitlines` and text files take for line ends, so a name could pass for a line.
    """
    return content.removesuffix("\n").split("\n") if content else []
