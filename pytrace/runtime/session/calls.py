"""Calls of ``call:`` probes that have not returned: which are under way, during the run and at its end; which were
left.
"""

from __future__ import annotations

import errno
import math
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec

from pytrace.base import kernel_files
from pytrace.core.diagnostics import counted
from pytrace.core.failures import LEAST_AGE, CallTotals, UnderWay
from pytrace.core.manifest import Manifest, MapSpec
from pytrace.core.probe_kinds import (
    CALL,
    CALL_FRAMES,
    CALL_LEVELS,
    GOROUTINE_PROCESS_SHIFT,
    GOROUTINE_SHIFT,
    PROGRAM_CALL,
    PYTHON,
)
from pytrace.core.types import String, Tuple
from pytrace.runtime.load import map_reader
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
_EVERY, _SHARE = 1.0, 0.02
"""Seconds between two looks for calls of threads that have ended, and the part of a processor that these take."""


class _Record(msgspec.Struct, frozen=True, eq=False):
    """What a map has of a call that has not returned."""

    spec: MapSpec
    key: bytes
    began: int
    thread: int
    """Or process and number of a goroutine."""
    owner: int
    """Of a function of a program: the process, or process and memory of the goroutine."""
    place: int
    """The same: where its return address is, of Go the distance from the top of the goroutine's stack; 0 of others."""
    name: str

    @property
    def goroutine(self) -> int:
        """The process of the goroutine that calls; 0 where a thread does."""
        return self.owner >> GOROUTINE_PROCESS_SHIFT


class CallRecords:
    """The records of calls that have not returned, and which of these are under way.

    A call whose thread has ended, or whose frame is no longer on the stack of its thread, was left: by ``longjmp``, an
    exception, ``exec``. So was one that was entered before another one whose frame is further out. Others are under
    way. Of a thread that runs, the stack is not known. A goroutine that has ended, by a panic or ``runtime.Goexit``,
    and whose memory another one may have, has left its calls as well.
    """

    def __init__(self, loaded: LoadedScript) -> None:
        self._loaded, self._manifest = loaded, loaded.manifest
        self._specs = [(spec, spec.value) for spec in records_of(loaded.manifest) if isinstance(spec.value, Tuple)]

    def read(self) -> list[_Record]:
        """All records, in the order in which the calls began."""
        found = [record for spec, value in self._specs for record in self._of_map(spec, value)]
        found.sort(key=lambda record: record.began)
        return found

    def _of_map(self, spec: MapSpec, value: Tuple) -> Iterator[_Record]:
        descriptor = self._loaded.map_fd(spec.symbol)
        _, _, key_size, value_size, entries = bpf.map_info(descriptor)
        named = value.members[2] if self._manifest.calls_named else None
        for keys, values, count in map_reader.read_blocks(descriptor, key_size, value_size, entries):
            for index in range(count):
                key = keys[index * key_size : (index + 1) * key_size]
                at = index * value_size
                began, thread = struct.unpack_from("=QQ", values, at)
                # Of user functions: what has the process, and the place of the return address on the stack.
                owner, place = struct.unpack_from("=QQ", key) if spec.key_names == PROGRAM_CALL else (0, 0)
                name = spec.name.removeprefix("@")
                if isinstance(named, String):
                    own = values[at + 16 : at + 16 + named.size].partition(b"\0")[0].decode("utf-8", "surrogateescape")
                    # Of Python it is the function; the place before it is that of the probe.
                    name = f"{name.rpartition(':')[0]}:{own}" if spec.name.startswith(f"@{CALL}:{PYTHON}:") else own
                yield _Record(spec, key, began, thread, owner, place, name)

    def under_way(self, records: Sequence[_Record], killed: int = 0) -> Iterator[tuple[_Record, kernel_files.Thread]]:
        """Those of *records* that are under way, with their threads. *killed*: a process that counts as alive."""
        threads: dict[int, kernel_files.Thread | None] = {killed: _KILLED} if killed else {}
        further_in = _further_in(records)
        for record in records:
            if record.goroutine:
                place = record.place
                if record.goroutine == killed or not _left_goroutine(
                    record.owner, record.thread, place, self._manifest.goroutine_numbers
                ):
                    yield record, _KILLED
                continue
            if not _is_of_thread(record.spec):
                yield record, _KILLED
                continue
            number = killed if record.owner and record.owner == killed else record.thread
            if number not in threads:
                threads[number] = kernel_files.thread(number)
            thread = threads[number]
            if thread is None or thread.start > record.began or record.key in further_in:
                continue
            if not thread.has_left(record.place):
                yield record, thread

    def oldest(self, most: int) -> tuple[tuple[UnderWay, ...], int]:
        """At most *most* calls that have been under way for a while, the oldest first; and how many records are of
        younger ones of these.
        """
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        records = [record for record in self.read() if now - record.began >= LEAST_AGE]
        found: list[UnderWay] = []
        depths: dict[int, int] = {}
        for number, (record, thread) in enumerate(self.under_way(records)):
            if number == most:
                return tuple(found), len(records) - records.index(record)
            depth = depths[record.thread] = depths.get(record.thread, -1) + 1
            task, name = record.thread, thread.name
            if record.goroutine:
                task, name = record.goroutine, f"goroutine {record.thread & (1 << GOROUTINE_PROCESS_SHIFT) - 1}"
            call = record.name.removeprefix(f"{CALL}:")
            found.append(UnderWay(max(now - record.began, 0), task, name, call, depth))
        return tuple(found), 0

    def forget(self, record: _Record) -> None:
        """Remove a record, unless that of a new call is in its place."""
        descriptor = self._loaded.map_fd(record.spec.symbol)
        now = bpf.map_lookup(descriptor, record.key, bpf.map_info(descriptor)[3])
        if now is not None and struct.unpack_from("=Q", now)[0] == record.began:
            bpf.map_delete(descriptor, record.key)

    def forget_ended(self) -> int:
        """Remove the records of functions whose threads have ended, of goroutines their processes. Returns how many.

        Each process that ends in a function leaves one for ever, and there is room for so many.
        """
        alive: dict[int, kernel_files.Thread | None] = {}
        removed = 0
        for record in self.read():
            if not _is_of_function(record.spec):
                continue
            number = record.goroutine or record.thread
            if number not in alive:
                alive[number] = kernel_files.thread(number)
            thread = alive[number]
            if thread is None or thread.start > record.began:
                self.forget(record)
                removed += 1
        return removed


def records_of(manifest: Manifest) -> list[MapSpec]:
    """The maps that have records of calls."""
    return [
        spec for spec in manifest.call_maps if spec.symbol and not spec.name.endswith((CALL_LEVELS, CALL_FRAMES))
    ]


def _is_of_function(spec: MapSpec) -> bool:
    """Whether calls are of functions of programs or of Python."""
    return spec.key_names[:1] == PROGRAM_CALL[:1]


def _is_of_thread(spec: MapSpec) -> bool:
    """Whether calls end with their threads: those of a pair with ``same()``, such as requests to disks, need not."""
    return not spec.key_names or not _OF_THREADS.isdisjoint(spec.key_names)


_OF_THREADS = frozenset(("thread", "tid", "pid", *PROGRAM_CALL))
_KILLED = kernel_files.Thread("", 0, 0)
"""A thread of which nothing is known."""


def _further_in(records: Sequence[_Record]) -> set[bytes]:
    """The keys of calls of programs that a later call of their thread was entered further out than: they were left."""
    stacks: dict[int, list[_Record]] = {}
    found: set[bytes] = set()
    for record in records:
        if not record.place or record.goroutine:
            continue
        stack = stacks.setdefault(record.thread, [])
        # A function that another one has jumped to has the same place.
        while stack and 0 < record.place - stack[-1].place < kernel_files.ONE_STACK:
            found.add(stack.pop().key)
        stack.append(record)
    return found


class Calls(Service):
    """Removes the calls that were left without a return, and counts all that a probe has seen.

    The command *command* that a signal has ended, as a Ctrl-C does that ends the run, was in its calls until then:
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
        self._records = CallRecords(loaded)
        self._command = command
        self._status = status
        self._tell, self._warn, self._verbose = tell, warn, verbose
        self._totals = totals
        specs = records_of(loaded.manifest)
        self._next = time.monotonic() + _EVERY if any(map(_is_of_function, specs)) else math.inf
        self._under_way = dict.fromkeys((spec.name for spec in records_of(loaded.manifest)), 0)

    def pause(self, longest: float) -> float:
        """Seconds until threads are looked for, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Remove the calls of threads that have ended now and then."""
        if time.monotonic() < self._next:
            return
        used, removed = time.thread_time(), 0
        with suppress(OSError):
            removed = self._records.forget_ended()
        # Where there were some, there will be more, and the map must not be full of them.
        pause = _EVERY if removed else max(_EVERY, (time.thread_time() - used) / _SHARE)
        self._next = time.monotonic() + pause

    def stop(self) -> None:
        """Look at the calls that have not returned."""
        killed = self._command if self._command is not None and (self._status() or 0) < 0 else 0
        try:
            records = self._records.read()
            under_way = {id(record) for record, _ in self._records.under_way(records, killed)}
            for record in records:
                if id(record) in under_way:
                    self._under_way[record.spec.name] += 1
                else:
                    self._records.forget(record)
        except OSError:
            return

    def report(self) -> None:
        """Tell what each probe has seen, with ``-v``, and of which nothing was seen as no call returned."""
        totals = CounterReader(self._loaded).totals()
        before = len(self._loaded.manifest.maps)
        for number, spec in enumerate(self._loaded.manifest.call_maps, before):
            if spec.name not in self._under_way:
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
