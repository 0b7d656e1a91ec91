"""Interfaces of old kernels: probes through tracefs, and USDT semaphores that the tracer increments itself.

``kprobe_events`` and ``uprobe_events`` of tracefs serve kernels without the perf probe events.

A probe is made by writing its definition, is a tracepoint from then on, and is removed by name. The names have the
process id in them, so what a killed tracer left behind can be told from what is in use: the next one that makes such a
probe removes it.

A semaphore is a ``u16`` in the traced program's data that counts its tracers; while it is 0 the program skips the
probe. Uprobes before 4.20 keep no reference counters.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import struct
from functools import cache, partial

from pytrace.runtime.load.probe_links import CannotAttachError, Opened
from pytrace.runtime.machine import fingerprints, perf, procfs, tracefs

_numbers = itertools.count()

_LEFT = re.compile(rf"(?m)^[pr]\d*:(({fingerprints.TRACER}(\d+))/p\3_\d+) ")
"""A definition of ours: name with group, group, process."""


def open_kprobe(place: str, *, returns: bool, opened: Opened, symbol: str = "") -> int:
    """Define a kernel probe (*place* as in Documentation/trace/kprobetrace.rst) and open it as a perf event.

    *symbol* is the program that it is for, to tell whose hits were missed.
    """
    return _open("kprobe_events", place, returns, opened, symbol=symbol)


def open_uprobe(path: str, offset: int, semaphore: int, *, returns: bool, pid: int | None, opened: Opened) -> int:
    """Define a user probe and open it as a perf event.

    Args:
        path: the file that the kernel knows.
        offset: where in the file.
        semaphore: file offset of a reference counter, 0 for none.
        returns: at the return of the function that starts there.
        pid: the process; None for all.
        opened: removes the definition when it is closed.

    Returns:
        Descriptor of the event.
    """
    counter = f"({semaphore:#x})" if semaphore else ""
    return _open("uprobe_events", f"{path}:{offset:#x}{counter}", returns, opened, pid)


def _open(
    file: str, place: str, returns: bool, opened: Opened, pid: int | None = None, symbol: str = ""
) -> int:
    base = tracefs.root()
    # kprobe_profile shows names without their group, so they have the process id too.
    event = f"p{os.getpid()}_{next(_numbers)}"
    name = f"{fingerprints.TRACER}{os.getpid()}/{event}"
    sweep(f"{base}/{file}")
    _write(f"{base}/{file}", f"{'r' if returns else 'p'}:{name} {place}\n")
    opened.steps.append(partial(_write, f"{base}/{file}", f"-:{name}\n"))
    if symbol:
        opened.traced[event] = symbol
    with open(f"{base}/events/{name}/id", encoding="utf-8") as source:
        number = int(source.read())
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, number, period=1)
    if pid is not None:
        return perf.open_event(attr, pid=pid)
    return perf.open_event(attr, cpu=perf.online_cpus()[0])


@cache
def sweep(path: str) -> None:
    """Remove what tracers that are gone have left in a file of definitions; once in a process."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        found = _LEFT.findall(file.read())
    for name, _, process in found:
        if not os.path.exists(f"/proc/{process}"):
            # In use all the same (EBUSY) when the number is one of another pid namespace; or somebody else was faster.
            with contextlib.suppress(OSError):
                _write(path, f"-:{name}\n")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, text.encode(errors="surrogateescape"))
    finally:
        os.close(descriptor)


def raise_semaphore(path: str, offset: int, pid: int | None, *, everywhere: bool, opened: Opened) -> None:
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
