"""USDT semaphores raised by hand, on kernels whose uprobes keep no reference counters (before 4.20).

A semaphore is a ``u16`` in the traced program's data that counts its tracers; while it is 0 the program skips the
probe.
"""

from __future__ import annotations

import os
import struct
from functools import partial
from typing import TYPE_CHECKING

from pytrace.runtime.attach.base import CannotAttachError
from pytrace.runtime.host import procfs

if TYPE_CHECKING:
    from pytrace.runtime.attach.opened import Opened


def raise_by_hand(path: str, offset: int, pid: int | None, *, everywhere: bool, opened: Opened) -> None:
    """Raise a semaphore.

    Args:
        path: the file with the probe.
        offset: where the semaphore lies in the file.
        pid: the process; None for all that map the file, if *everywhere*.
        everywhere: whether all processes may be searched (``--usdt-file-activation``).
        opened: lowers what was raised when it is closed.

    Raises:
        CannotAttachError: no process is named, or none maps the file.
    """
    if pid is None and not everywhere:
        raise CannotAttachError(
            "this probe has a semaphore, and the kernel cannot raise it", hints=("use -p or --usdt-file-activation",)
        )
    found = [pid] if pid is not None else procfs.process_ids()
    raised = 0
    for number in found:
        for address in _addresses(path, offset, number):
            if _add(number, address, 1):
                opened.steps.append(partial(_add, number, address, -1))
                raised += 1
    if not raised:
        raise CannotAttachError("no process that could be reached has mapped the file of this probe's semaphore")


def _addresses(path: str, offset: int, pid: int) -> list[int]:
    """Where a file offset lies in a process (its private, writable mapping)."""
    rows = procfs.writable_mappings(procfs.read_maps(pid))
    covering = [row for row in rows if row.offset <= offset < row.offset + row.end - row.start]
    return [row.start + offset - row.offset for row in covering if _maps(pid, row, path)]


def _maps(pid: int, row: procfs.Mapping, path: str) -> bool:
    """Whether a range is of that very file: numbers of inodes are those of other files on other file systems."""
    try:
        return os.path.samefile(path, f"/proc/{pid}/map_files/{row.start:x}-{row.end:x}")
    except OSError:
        return False


def _add(pid: int, address: int, change: int) -> bool:
    """Add to a semaphore; False when the process is gone or its memory cannot be written."""
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    except OSError:
        return False
    try:
        data = os.pread(descriptor, 2, address)
        if len(data) < 2:
            return False  # the process has given up its memory
        value = struct.unpack("=H", data)[0]
        os.pwrite(descriptor, struct.pack("=H", (value + change) & 0xFFFF), address)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
