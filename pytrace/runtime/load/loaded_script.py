"""A script in the kernel: its programs, maps and data sections, its double-buffered maps, and the memory of its maps.

Of a double-buffered map one buffer is read and emptied while programs write to the other. Programs find the map in use
in an array of one map.  When the runtime puts the other one there, the kernel waits until all programs that may still
use the first one have ended (``maybe_wait_bpf_programs``), so its content is final.

The wait is a grace period of RCU: 13 ms on the developers' machine (250 Hz), whether it is idle or busy, and as long
by ``membarrier(2)`` (MEMBARRIER_CMD_GLOBAL), which waits for the same.  Running on each CPU in turn takes 0.1 ms, but
11 ms when all are busy, and says nothing of programs that can be preempted.  What else is quicker (closing a detached
mount has the kernel hurry, 0.05 ms) is no promise of any interface.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

import msgspec
from msgspec.structs import replace

from pytrace.base import kernel_files
from pytrace.core.diagnostics import InternalError, TraceError, did_you_mean
from pytrace.core.event_layout import Location
from pytrace.core.manifest import (
    EXITED,
    PER_CPU_TYPES,
    RATE_LINE,
    STOPPED,
    CompiledScript,
    Manifest,
    MapType,
    ProgramSpec,
    SessionData,
)
from pytrace.core.options import NOT_YET, PROCESS_MAP, UNROLLED, ProcessFilters, Rate, RunOptions
from pytrace.core.probe_kinds import INTERVAL, ITER, known_kind, probe_kind
from pytrace.runtime.machine import bpf
from pytrace.runtime.machine.clocks import Clock, read_both

NEVER = (1 << 64) - 1
"""A deadline of the watchdog that is never reached."""
HITS_AHEAD = 100_000_000
"""Nanoseconds by which hits may be ahead of their rate: bursts of a tenth of a second's hits."""
_FIRST = bytes(4)
LOG_HINT = "-v shows the full verifier log"


class LoadError(TraceError):
    """The kernel or libbpf refused to load a script.

    *program* is the spec that was refused (None when it was not one program), *location* the place in the script;
    *log* is the verifier's or libbpf's whole text, for ``-v`` and ``-d verifier``, and *cut* is set when the log did
    not fit in its buffer and lacks its end, in which the reason is.
    """

    def __init__(
        self,
        message: str,
        *,
        program: ProgramSpec | None = None,
        location: Location | None = None,
        log: str = "",
        cut: bool = False,
        hints: Iterable[str] = (),
    ) -> None:
        super().__init__(message, hints=hints)
        self.program = program
        self.location = location
        self.log = log
        self.cut = cut


class LoadedScript:
    """Programs and maps of one script in the kernel. Their descriptors belong to this object: do not close them.

    Args:
        script: the compiled script.
        stack: closes mappings of data sections.
        programs: descriptors of programs by symbol.
        maps: descriptors of maps by symbol; data sections by the name of the section.
        multi: by symbol, the multi link that a program was loaded for (as in :attr:`ProgramSpec.multi`), or nothing.
        generations: by symbol, the maps that are double-buffered.
    """

    def __init__(
        self,
        script: CompiledScript,
        stack: ExitStack,
        *,
        programs: Mapping[str, int],
        maps: Mapping[str, int],
        multi: Mapping[str, str],
        generations: Mapping[str, Generations],
    ) -> None:
        self.script = script
        self.manifest = script.manifest
        self.generations = generations
        self.quiescence = Quiescence(stack)
        self.gone = {spec.symbol for spec in script.manifest.programs if not spec.part_of} - programs.keys()
        """Symbols of programs that were not loaded: the program that they trace was unloaded meanwhile."""
        self._programs = programs
        self._maps = maps
        self._multi = multi
        self._sections: dict[str, memoryview] = {}
        self._stack = stack

    def program_fd(self, symbol: str) -> int:
        """Descriptor of a loaded program."""
        return _look_up(self._programs, symbol, "program")

    def map_fd(self, symbol: str) -> int:
        """Descriptor of a map by its ELF symbol."""
        return _look_up(self._maps, symbol, "map")

    def fds_by_symbol(self) -> dict[str, tuple[int, ...]]:
        """Descriptors of the maps by symbol; of double-buffered ones those of both buffers."""
        buffers = {symbol: several.descriptors for symbol, several in self.generations.items()}
        return {symbol: buffers.get(symbol, (descriptor,)) for symbol, descriptor in self._maps.items()}

    def multi(self, symbol: str) -> str:
        """The multi link that a program was loaded for, or nothing."""
        return self._multi.get(symbol, "")

    @property
    def symbols(self) -> list[str]:
        """Symbols of the loaded programs."""
        return list(self._programs)

    @property
    def map_fds(self) -> list[int]:
        """Descriptors of all maps, data sections and both buffers of double-buffered maps included."""
        buffers = [fd for generations in self.generations.values() for fd in generations.descriptors]
        return [*self._maps.values(), *buffers]

    def section(self, name: str) -> memoryview:
        """The mapped memory of a data section (``.data.slots``), shared with the programs and writable.

        Valid until the session's stack closes; slices of it keep the mapping alive.
        """
        view = self._sections.get(name)
        if view is None:
            view = self._sections[name] = self._map_section(name)
        return view

    def run(self, symbol: str) -> int:
        """Run a raw tracepoint program now (begin, end, self, test, bench). Returns the program's return value."""
        return bpf.prog_test_run(self.program_fd(symbol), bytes(8))

    def reserve(self) -> None:
        """Create the maps that are needed later: a run gives up the privilege to create any."""
        specs = self.manifest.maps
        if any(spec.keys or (spec.slot is not None and spec.slot.generation) for spec in specs):
            self.quiescence.reserve()

    # ---- values that programs read from a section, written before they run

    def fill_session_data(self, options: RunOptions, command: int | None) -> None:
        """Write the session data that programs read: start of the run, clocks and processes."""
        data = self.manifest.session
        if data is None:
            return
        memory = self.section(data.section)
        struct.pack_into("=Q", memory, data.start, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        struct.pack_into("=Q", memory, data.cpid, command or 0)
        atomic, boot = read_both(time.CLOCK_TAI, time.CLOCK_BOOTTIME)
        struct.pack_into("=q", memory, data.tai, atomic - boot)
        struct.pack_into("=q", memory, data.wall, Clock().boot_offset)
        root = options.filters.pid if command is None else command
        struct.pack_into("=Q", memory, data.root, root or 0)
        struct.pack_into("=Q", memory, data.deadline, NEVER)
        struct.pack_into("=III", memory, data.own, *[os.getpid()] * 3)
        if options.filters != ProcessFilters():
            self._fill_filters(data, options)

    def _fill_filters(self, data: SessionData, options: RunOptions) -> None:
        """Write the process filters that programs read."""
        memory, filters = self.section(data.section), options.filters
        if filters.exec_wait:
            struct.pack_into("=Q", memory, data.root, NOT_YET)
        # The process of an ahead-of-time file is a load-time value.
        if self.manifest.ahead is not None and len(filters.pids) < 2:
            filters = replace(filters, pids=())
        filters.pack(memory, data.filters)
        if filters.shape.pids <= UNROLLED:
            return
        descriptor = self.map_fd(PROCESS_MAP)
        for pid in filters.pids:
            bpf.map_update(descriptor, struct.pack("=I", pid), struct.pack("=I", 1))

    def limit_rates(self, rates: Sequence[Rate]) -> None:
        """Write the limit of each block of a script that has limits (``--max-rate``), before programs are attached.

        Raises:
            TraceError: the script was compiled without limits, or a pattern matches none of its probes.
        """
        limits = self.manifest.limits
        if limits is None and not rates:
            return
        blocks = limits_of_blocks(self.manifest, rates)
        if not blocks:
            return  # begin, end and timers alone
        if limits is None:
            raise TraceError(
                "the script was compiled without --max-rate, and cannot limit its rate",
                hints=("compile it with --max-rate, or with config = { max_rate = N }",),
            )
        memory = self.section(limits.section)
        for index, hits in blocks.items():
            each = max(1, round(1e9 / hits)) if hits else 0
            struct.pack_into("=QQ", memory, limits.offset + RATE_LINE * index, each, HITS_AHEAD)

    def add_own_processes(self, view: int, inspector: int | None) -> None:
        """Note the processes of the live view."""
        data = self.manifest.session
        if data is not None:
            struct.pack_into("=II", self.section(data.section), data.own + 4, view, inspector or view)

    def stop_programs(self) -> None:
        """Have all programs return at once.

        Detaching takes long, and what it does would be traced by those that are detached last: maps would keep calls
        that have begun and not returned.
        """
        data = self.manifest.session
        if data is not None:
            struct.pack_into("=I", self.section(data.section), data.stopped, STOPPED)

    def has_exited(self) -> bool:
        """Whether an ``exit()`` has stopped the programs of all processes but the tracer's."""
        data = self.manifest.session
        return data is not None and struct.unpack_from("=I", self.section(data.section), data.stopped)[0] == EXITED

    def exit_status(self) -> int | None:
        """The status of an ``exit()`` for whose event there was no room; None without one."""
        data = self.manifest.session
        if data is None:
            return None
        (word,) = struct.unpack_from("=I", self.section(data.section), data.exit)
        return word - 1 if word else None

    def _map_section(self, name: str) -> memoryview:
        descriptor = self.map_fd(name)
        size = bpf.map_info(descriptor)[3]
        rounded = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        mapped = mmap.mmap(descriptor, rounded, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._stack.callback(bpf.close_mapping, mapped)
        whole = self._stack.enter_context(memoryview(mapped))
        return self._stack.enter_context(whole[:size])


def _look_up(table: Mapping[str, int], symbol: str, kind: str) -> int:
    try:
        return table[symbol]
    except KeyError:
        raise InternalError(f"no {kind} {symbol!r} was loaded; there are {sorted(table)}") from None


def limits_of_blocks(manifest: Manifest, rates: Sequence[Rate]) -> dict[int, float]:
    """Hits per second of each block, 0 for no limit. The last pattern that matches counts, else the last of all.

    Raises:
        TraceError: a pattern matches no probe.
    """
    from fnmatch import fnmatchcase  # few runs limit rates

    probes: dict[int, list[str]] = {}
    for program in manifest.programs:
        if not known_kind(program.kind).special and program.kind not in (INTERVAL, ITER) and not program.service:
            probes.setdefault(program.index, []).extend(target.probe for target in program.targets)
    general = [float(manifest.config.max_rate), *(rate.hits for rate in rates if not rate.pattern)]
    limits = dict.fromkeys(probes, general[-1])
    for rate in rates:
        if not rate.pattern:
            continue
        # The full name of a probe kind in place of a short one.
        head, colon, rest = rate.pattern.partition(":")
        kind = probe_kind(head)
        pattern = rate.pattern if kind is None else f"{kind.name}{colon}{rest}"
        matching = [index for index, names in probes.items() if any(fnmatchcase(name, pattern) for name in names)]
        if not matching:
            names = sorted({name for each in probes.values() for name in each})
            raise TraceError(
                f"--max-rate {rate.pattern}: no probe of the script has such a name",
                hints=did_you_mean(rate.pattern, names) or tuple(f"it has {name}" for name in names[:3]),
            )
        limits.update(dict.fromkeys(matching, rate.hits))
    return limits


class Generations:
    """The two BPF maps of one map of the script; closed by *stack*.

    Args:
        sizes: type, key size and value size of both.
        entries: how many keys each holds.
        name: name of the maps in the kernel, followed by ``_0`` and ``_1``.
        stack: closes the maps.
        flags: ``BPF_F_…`` of both.
    """

    def __init__(
        self, sizes: tuple[int, int, int], entries: int, name: str, stack: ExitStack, flags: int = 0
    ) -> None:
        self._key_size = sizes[1]
        self._maps: list[int] = []
        for number in (0, 1):
            self._maps.append(bpf.map_create(*sizes, entries, flags=flags, name=f"{name[:13]}_{number}"))
            stack.callback(os.close, self._maps[number])
        self._outer = -1

    def start(self, outer: int) -> None:
        """Put the map in use into the loaded array."""
        self._outer = outer
        self._put()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of both maps."""
        return tuple(self._maps)

    @property
    def current(self) -> int:
        """The map that programs use."""
        return self._maps[0]

    @property
    def empty(self) -> bool:
        """Whether the map that programs use has no keys."""
        return bpf.map_next_key(self.current, None, self._key_size) is None

    def flip(self) -> int:
        """Switch programs to the other map. Returns the former one, when no program uses it any more."""
        self._maps.reverse()
        self._put()
        return self._maps[1]

    def _put(self) -> None:
        bpf.map_update(self._outer, _FIRST, struct.pack("=I", self.current))


class Quiescence:
    """Waits until all programs that run now have ended, by an update that makes the kernel wait for them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._held = self._outer = -1

    def reserve(self) -> None:
        """Create the maps that :meth:`wait` uses."""
        if self._outer < 0:
            self._held = bpf.map_create(MapType.ARRAY, 4, 4, 1, name="pytrace_wait")
            self._stack.callback(os.close, self._held)
            self._outer = bpf.map_create(MapType.ARRAY_OF_MAPS, 4, 4, 1, name="pytrace_waits", inner=self._held)
            self._stack.callback(os.close, self._outer)

    def wait(self) -> None:
        """Wait until all programs that run at the time of the call have ended."""
        self.reserve()
        bpf.map_update(self._outer, _FIRST, struct.pack("=I", self._held))


# ------------------------------------------------------------------------------------------------------- memory of maps


_ARRAYS = frozenset({MapType.ARRAY, MapType.PERCPU_ARRAY, MapType.ARRAY_OF_MAPS, MapType.PERF_EVENT_ARRAY})
_LRU = frozenset({MapType.LRU_HASH, MapType.LRU_PERCPU_HASH})
_ELEMENT = 48
"""Bytes of ``struct htab_elem`` before the key (kernel/bpf/hashtab.c)."""
_BUCKET = 16
"""Bytes of ``struct bucket``."""
_POINTER = 8


class MapSize(msgspec.Struct, frozen=True):
    """The parameters that decide what a map takes; *copies* maps of this kind."""

    symbol: str
    type: int
    key: int
    value: int
    entries: int
    copies: int = 1


def planned_bytes(size: MapSize, cpus: int) -> int:
    """Bytes that the kernel allocates for maps, as ``htab_map_mem_usage`` and ``array_map_mem_usage`` count them."""
    if size.type == MapType.RINGBUF:
        return size.copies * size.entries
    value = _whole_words(size.value) * (cpus if size.type in PER_CPU_TYPES else 1)
    if size.type in _ARRAYS:
        return size.copies * size.entries * (value + (_POINTER if size.type in PER_CPU_TYPES else 0))
    element = _ELEMENT + _whole_words(size.key) + value + (_POINTER if size.type in PER_CPU_TYPES else 0)
    # Each CPU has a spare element, unless those of the LRU list or of other CPUs serve as one.
    spare = 0 if size.type in _LRU | PER_CPU_TYPES else cpus
    buckets = 1 << (max(1, size.entries) - 1).bit_length()
    return size.copies * (element * (size.entries + spare) + _BUCKET * buckets)


def charged_bytes(descriptor: int) -> int:
    """Bytes that the kernel has charged for a map (``memlock`` of its ``fdinfo``); 0 where it does not say."""
    for line in kernel_files.read_text(f"/proc/self/fdinfo/{descriptor}").splitlines():
        if line.startswith("memlock:"):
            return int(line.split()[1])
    return 0


def _whole_words(size: int) -> int:
    return (size + 7) & ~7
