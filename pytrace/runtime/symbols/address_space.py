"""What a process has mapped to execute, now or at the end of its life."""

from __future__ import annotations

import itertools
import os
import time
from bisect import bisect_right
from typing import TYPE_CHECKING

from pytrace.runtime.host import procfs
from pytrace.runtime.symbols.perf_map import PerfMap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytrace.runtime.host.procfs import Mapping

_RECHECK = 1.0
"""Seconds after which a process is asked again whether it still runs the same program."""
_REREAD = 0.05
"""Least seconds between two readings of a process's maps that a failed look-up asks for."""
_SERIALS = itertools.count()


class AddressSpace:
    """Executable mappings of one process.

    Rows are read from ``/proc``, or are added by :meth:`add` as the kernel reports them (see
    :mod:`pytrace.runtime.symbols.recorder`), and stay when the process ends. *previous* is what there was before the
    last ``execve``.
    """

    def __init__(self, pid: int, text: bytes | None = None) -> None:
        self.pid = pid
        self.serial = next(_SERIALS)
        """Never the same for two programs, also when one process ran both or the number was given again."""
        self.root = procfs.root_prefix(pid)
        self.previous: AddressSpace | None = None
        self.ended = False
        self.perf_map = PerfMap(pid)
        self._starts: list[int] = []
        self._rows: list[Mapping] = []
        self._unread = text
        self._identity = _identity(pid)
        self._read_at = self._checked_at = time.monotonic()

    @property
    def known(self) -> bool:
        """Whether anything is known about the process's memory."""
        self._parse()
        return bool(self._rows)

    def find(self, address: int) -> Mapping | None:
        """The mapping that holds an address; maps are read again when none does."""
        self._parse()
        now = time.monotonic()
        if not self.ended and now - self._checked_at > _RECHECK:
            self._check(now)
        found = self._find(address)
        if found is None and not self.ended and (not self._rows or now - self._read_at > _REREAD):
            self.read()
            found = self._find(address)
        if found is None and self.previous is not None:
            found = self.previous._find(address)
        return found

    def _find(self, address: int) -> Mapping | None:
        self._parse()
        at = bisect_right(self._starts, address) - 1
        return self._rows[at] if at >= 0 and address < self._rows[at].end else None

    def _parse(self) -> None:
        if self._unread is not None:
            text, self._unread = self._unread, None
            self._put(procfs.executable_mappings(text))

    def _put(self, rows: Iterable[Mapping]) -> None:
        self._rows = sorted(rows, key=lambda row: row.start)
        self._starts = [row.start for row in self._rows]

    def read(self) -> None:
        """Read ``/proc/PID/maps`` now; what is known stays when the process is gone."""
        self._read_at = time.monotonic()
        text = procfs.read_maps(self.pid)
        if text:
            self._unread = None
            self._put(procfs.executable_mappings(text))

    def _check(self, now: float) -> None:
        """A process may have called ``execve``, or ended and left its number to another one."""
        self._checked_at = now
        identity = _identity(self.pid)
        if identity and identity != self._identity:
            self._identity = identity
            self.start_program()
            self.read()

    # ---- as told by the kernel

    def add(self, row: Mapping) -> None:
        """A new mapping; it replaces what it overlaps."""
        self._parse()
        kept = [old for old in self._rows if old.end <= row.start or old.start >= row.end]
        self._put([*kept, row])

    def start_program(self) -> None:
        """``execve``: the mappings so far belong to the program before."""
        self._parse()
        before = AddressSpace.__new__(AddressSpace)
        before.__dict__.update(self.__dict__)
        before.previous = None
        before.ended = True
        self.previous = before
        self.serial = next(_SERIALS)
        self._unread = None
        self._put(())

    def fork(self, pid: int) -> AddressSpace:
        """The address space of a new child process."""
        self._parse()
        child = AddressSpace(pid)
        child._put(self._rows)
        return child

    @property
    def program(self) -> Mapping | None:
        """The first mapped file, which is the program's own."""
        self._parse()
        return next((row for row in self._rows if row.inode), None)


def _identity(pid: int) -> tuple[int, int, str] | None:
    """What changes when a process runs another program or its number is used again; None when it is gone."""
    try:
        status = os.stat(f"/proc/{pid}/exe")
        with open(f"/proc/{pid}/stat", "rb") as file:
            started = file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None
    return status.st_dev, status.st_ino, started
