"""Calls of ``call:`` probes that have not returned when a run ends: which are under way, which were left."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable

from pytrace.core.diagnostics import counted
from pytrace.core.failures import CallTotals
from pytrace.core.manifest import MapSpec
from pytrace.core.probe_kinds import CALL_FRAMES, CALL_LEVELS, GOROUTINE_PROCESS_SHIFT, GOROUTINE_SHIFT, PROGRAM_CALL
from pytrace.core.types import Tuple
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf
from pytrace.runtime.session.services import CounterReader, Service

_STACK_TOP, _STACK_POINTER = 8, 56
"""Offsets of ``stack.hi`` and ``sched.sp`` in ``runtime.g`` (src/runtime/runtime2.go, Go 1.17 to 1.27)."""
_STATUS = -8
"""Where ``atomicstatus`` is, from the number of the goroutine."""
_NONE, _RUNS, _DEAD = 0, 2, 6
_STATUS_BITS = 0xFFF
"""Without ``_Gscan``."""
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_START = 19
"""Field of ``/proc/TID/stat`` after the name: when the thread began, in ticks since boot (proc(5))."""


class Calls(Service):
    """Removes the calls that were left without a return, and counts all that a probe has seen.

    A call whose thread has ended, or whose frame is no longer on the stack of its thread, was left: by ``longjmp``, an
    exception, ``exec``. Others are under way. Of a thread that runs, the stack is not known. A goroutine that has
    ended, by a panic or ``runtime.Goexit``, and whose memory another one may have, has left its calls as well. The
    command *command* that a signal has ended, as a Ctrl-C does that ends the run, was in its calls until then:
    *status* returns its status. What each probe has seen is added to *totals*, and *tell* prints it, with *verbose*;
    *warn* says, always, that calls of a probe were entered and none returned.
    """

    def __init__(
        self,
        loaded: LoadedScript,
        command: int | None,
        status: Callable[[], int | None],
        tell: Callable[[str], None],
        warn: Callable[[str], None],
        totals: list[CallTotals],
        *,
        verbose: bool,
    ) -> None:
        self._loaded = loaded
        self._command = command
        self._status = status
        self._tell, self._warn, self._verbose = tell, warn, verbose
        self._totals = totals
        self._left = dict.fromkeys((spec.name for spec in loaded.manifest.call_maps), 0)
        self._under_way = dict(self._left)

    def stop(self) -> None:
        """Look at the calls that have not returned."""
        threads: dict[int, tuple[int, int] | None] = {}
        killed = self._command if self._command is not None and (self._status() or 0) < 0 else 0
        if killed:
            threads[killed] = (0, 0)
        for spec in self._loaded.manifest.call_maps:
            if isinstance(spec.value, Tuple) and spec.symbol and not spec.name.endswith((CALL_LEVELS, CALL_FRAMES)):
                self._look_at(spec, spec.value, threads, killed)

    def _look_at(
        self, spec: MapSpec, value: Tuple, threads: dict[int, tuple[int, int] | None], killed: int
    ) -> None:
        goroutines = self._loaded.manifest.goroutine_numbers
        descriptor, key_size = self._loaded.map_fd(spec.symbol), spec.key.size if spec.key is not None else 0
        # Of user functions: what has the process, and the place of the return address on the stack, which of Go is no
        # address.
        user = spec.key_names == PROGRAM_CALL
        key: bytes | None = None
        left: list[bytes] = []
        try:
            for _ in range(spec.max_entries):
                key = bpf.map_next_key(descriptor, key, key_size)
                record = bpf.map_lookup(descriptor, key, value.size) if key is not None else None
                if key is None:
                    break
                if record is None:
                    continue
                began, thread = struct.unpack_from("=QQ", record)
                owner, place = struct.unpack_from("=QQ", key) if user else (0, 0)
                if owner >> GOROUTINE_PROCESS_SHIFT:
                    process = owner >> GOROUTINE_PROCESS_SHIFT
                    if process != killed and _left_goroutine(owner, thread, place, goroutines):
                        left.append(key)
                    else:
                        self._under_way[spec.name] += 1
                    continue
                thread = killed if owner and owner == killed else thread
                if thread not in threads:
                    threads[thread] = _state(thread)
                state = threads[thread]
                if state is None or state[0] > began or (place > 1 << 32 and state[1] > place):
                    left.append(key)
                else:
                    self._under_way[spec.name] += 1
            self._left[spec.name] = sum(bpf.map_delete(descriptor, item) for item in left)
        except OSError:
            return

    def report(self) -> None:
        """Tell what each probe has seen, with ``-v``, and of which nothing was seen as no call returned."""
        totals = CounterReader(self._loaded).totals()
        before = len(self._loaded.manifest.maps)
        for number, spec in enumerate(self._loaded.manifest.call_maps, before):
            if spec.name not in self._left or spec.name.endswith((CALL_LEVELS, CALL_FRAMES)):
                continue
            entered, returned, begun, lost = (
                totals.get((kind, number), 0) for kind in ("call_entered", "call_returned", "call_begun", "map_full")
            )
            under_way = self._under_way[spec.name]
            left = max(0, entered - returned - lost - under_way)
            # The return of a call that was lost finds no entry either.
            before_it = max(0, begun - lost)
            of_probe = CallTotals(spec.name.removeprefix("@"), entered, returned, under_way, left, lost, before_it)
            self._totals.append(of_probe)
            if self._verbose:
                rest = f", {of_probe.rest}" if of_probe.rest else ""
                self._tell(f"{of_probe.probe}: {counted(entered, 'call')}, {returned} returned{rest}\n")
            elif of_probe.warning:
                self._warn(of_probe.warning)


def _left_goroutine(owner: int, thread: int, place: int, numbers: tuple[int, ...]) -> bool:
    """Whether a goroutine has left a call whose return address is *place* below the top of its stack.

    Args:
        owner: process and memory of the goroutine, as ``codegen.walkers.program_filters.CallParts`` packs them.
        thread: process and number of the goroutine at the entry.
        place: the distance.
        numbers: where in its memory its number may be.
    """
    process, low = owner >> GOROUTINE_PROCESS_SHIFT, (1 << GOROUTINE_PROCESS_SHIFT) - 1
    address, number = (owner & low) << GOROUTINE_SHIFT, thread & low
    try:
        with open(f"/proc/{process}/mem", "rb", buffering=0) as file:
            data = os.pread(file.fileno(), max(numbers, default=0) + 8, address)
    except ProcessLookupError:
        return True
    except OSError as error:
        # No memory: it has ended. Others may not be read.
        return isinstance(error, FileNotFoundError) or error.errno == errno.EIO
    if not data:
        return True
    for offset in numbers:
        if len(data) < offset + 8:
            continue
        own, status = (struct.unpack_from("=Q", data, offset)[0], struct.unpack_from("=I", data, offset + _STATUS)[0])
        if (own or owner & low) != number:
            continue
        top, pointer = (struct.unpack_from("=Q", data, at)[0] for at in (_STACK_TOP, _STACK_POINTER))
        status &= _STATUS_BITS
        return status in (_NONE, _DEAD) or (status != _RUNS and own != 0 and top - pointer < place)
    return bool(numbers)


def _state(thread: int) -> tuple[int, int] | None:
    """When a thread began, in nanoseconds since boot, and its stack pointer in user space (0: not known).

    None for a thread that has ended.
    """
    try:
        with open(f"/proc/{thread}/stat", "rb") as file:
            fields = file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) <= _START or fields[0] in (b"Z", b"X"):
        return None
    try:
        with open(f"/proc/{thread}/syscall", "rb") as file:
            words = file.read(4096).split()
        stack = int(words[-2], 16) if len(words) > 1 else 0
    except (OSError, ValueError):
        stack = 0
    # A tick is rounded down: no call of the thread is older.
    return int(fields[_START]) * _TICK, stack
