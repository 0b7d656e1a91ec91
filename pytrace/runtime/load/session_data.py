"""Session data: values that programs read from a section of their object, written before they run."""

from __future__ import annotations

import os
import struct
import time

from msgspec.structs import replace

from pytrace.core.manifest import EXITED, STOPPED, SessionData
from pytrace.core.options.process_filters import NOT_YET, PROCESS_MAP, UNROLLED, ProcessFilters
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf
from pytrace.runtime.machine.clocks import Clock, read_both

NEVER = (1 << 64) - 1
"""A deadline of the watchdog that is never reached."""


def stop(loaded: LoadedScript) -> None:
    """Have all programs return at once.

    Detaching takes long, and what it does would be traced by those that are detached last: maps would keep calls that
    have begun and not returned.
    """
    data = loaded.manifest.session
    if data is not None:
        struct.pack_into("=I", loaded.section(data.section), data.stopped, STOPPED)


def has_exited(loaded: LoadedScript) -> bool:
    """Whether an ``exit()`` has stopped the programs of all processes but the tracer's."""
    data = loaded.manifest.session
    return data is not None and struct.unpack_from("=I", loaded.section(data.section), data.stopped)[0] == EXITED


def exit_status(loaded: LoadedScript) -> int | None:
    """The status of an ``exit()`` for whose event there was no room; None without one."""
    data = loaded.manifest.session
    if data is None:
        return None
    (word,) = struct.unpack_from("=I", loaded.section(data.section), data.exit)
    return word - 1 if word else None


def fill(loaded: LoadedScript, options: RunOptions, command: int | None) -> None:
    """Write the session data that programs read: start of the run, clocks and processes."""
    data = loaded.manifest.session
    if data is None:
        return
    memory = loaded.section(data.section)
    struct.pack_into("=Q", memory, data.start, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    struct.pack_into("=Q", memory, data.cpid, command or 0)
    atomic, boot = read_both(time.CLOCK_TAI, time.CLOCK_BOOTTIME)
    struct.pack_into("=q", memory, data.tai, atomic - boot)
    struct.pack_into("=q", memory, data.wall, Clock().boot_offset)
    root = options.filters.pid if command is None else command
    struct.pack_into("=Q", memory, data.root, root or 0)
    struct.pack_into("=Q", memory, data.deadline, NEVER)
    struct.pack_into("=II", memory, data.own, os.getpid(), os.getpid())
    if options.filters != ProcessFilters():
        _fill_filters(loaded, data, options)


def add_own(loaded: LoadedScript, pid: int) -> None:
    """Note another process of the tracer: its live view."""
    data = loaded.manifest.session
    if data is not None:
        struct.pack_into("=I", loaded.section(data.section), data.own + 4, pid)


def _fill_filters(loaded: LoadedScript, data: SessionData, options: RunOptions) -> None:
    """Write the process filters that programs read."""
    memory, filters = loaded.section(data.section), options.filters
    if filters.exec_wait:
        struct.pack_into("=Q", memory, data.root, NOT_YET)
    # The process of an ahead-of-time file is a load-time value.
    if loaded.manifest.ahead is not None and len(filters.pids) < 2:
        filters = replace(filters, pids=())
    filters.pack(memory, data.filters)
    if filters.shape.pids <= UNROLLED:
        return
    descriptor = loaded.map_fd(PROCESS_MAP)
    for pid in filters.pids:
        bpf.map_update(descriptor, struct.pack("=I", pid), struct.pack("=I", 1))
