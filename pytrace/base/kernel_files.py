"""Small text files of the kernel, as those of ``/proc`` and ``/sys``."""

from __future__ import annotations

import os
from typing import NamedTuple

_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_START = 19
"""Field of ``/proc/TID/stat`` after the name: when the thread began, in ticks since boot (proc(5))."""
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
    before, _, after = read_text(f"/proc/{number}/stat").rpartition(")")
    fields = after.split()
    if len(fields) <= _START or fields[0] in ("Z", "X"):
        return None
    words = read_text(f"/proc/{number}/syscall").split()
    stack = int(words[-2], 16) if len(words) > 1 else 0
    return Thread(before.partition("(")[2], int(fields[_START]) * _TICK, stack)


def process_state(pid: int) -> str:
    """The state of a process as ``ps`` shows it (``R``, ``S``, ``D`` …, proc(5)); empty when it has gone."""
    return read_text(f"/proc/{pid}/stat").rpartition(") ")[2][:1]


def lines(content: str) -> list[str]:
    """The lines of a file of the kernel, which end with a newline and nothing else.

    The kernel escapes newlines in names (of threads, cgroups, mount points, files) and leaves other characters that
    :meth:`str.splitlines` and text files take for line ends, so a name could pass for a line.
    """
    return content.removesuffix("\n").split("\n") if content else []
