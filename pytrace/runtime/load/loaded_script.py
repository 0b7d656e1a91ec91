"""A script in the kernel: its programs, maps and data sections, and its double-buffered maps.

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
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import CompiledScript, MapType
from pytrace.runtime.machine import bpf

_FIRST = bytes(4)


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

    def _map_section(self, name: str) -> memoryview:
        descriptor = self.map_fd(name)
        size = bpf.map_info(descriptor)[3]
        rounded = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        mapped = mmap.mmap(descriptor, rounded, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._stack.callback(_close_mapping, mapped)
        whole = self._stack.enter_context(memoryview(mapped))
        return self._stack.enter_context(whole[:size])


def _look_up(table: Mapping[str, int], symbol: str, kind: str) -> int:
    try:
        return table[symbol]
    except KeyError:
        raise InternalError(f"no {kind} {symbol!r} was loaded; there are {sorted(table)}") from None


def _close_mapping(mapped: mmap.mmap) -> None:
    # While a slice of the section exists, the memory stays mapped.
    with suppress(BufferError):
        mapped.close()


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
