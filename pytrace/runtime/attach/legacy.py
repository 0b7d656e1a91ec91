"""Probes through ``kprobe_events`` and ``uprobe_events`` of tracefs, for kernels without the perf probe events.

A probe is made by writing its definition, is a tracepoint from then on, and is removed by name. The names have the
process id in them, so what a killed tracer left behind can be told from what is in use: the next one that makes such a
probe removes it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from functools import cache, partial
from typing import TYPE_CHECKING

from pytrace.runtime.abi import perf
from pytrace.runtime.host import fingerprints, tracefs

if TYPE_CHECKING:
    from pytrace.runtime.attach.opened import Opened

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
