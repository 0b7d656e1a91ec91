"""Maps that are double-buffered, so that one can be read and emptied while programs write to the other.

Programs find the map in use in an array of one map.  When the runtime puts the other one there, the kernel waits until
all programs that may still use the first one have ended (``maybe_wait_bpf_programs``), so what is read then
is final.

The wait is a grace period of RCU: 13 ms on the developers' machine (250 Hz), whether it is idle or busy, and as long
by ``membarrier(2)`` (MEMBARRIER_CMD_GLOBAL), which waits for the same.  Running on each CPU in turn takes 0.1 ms, but
11 ms when all are busy, and says nothing of programs that can be preempted.  What else is quicker (closing a detached
mount has the kernel hurry, 0.05 ms) is no promise of any interface.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from pytrace.core.manifest import MapType
from pytrace.runtime.abi import bpf_maps

if TYPE_CHECKING:
    from contextlib import ExitStack

_FIRST = bytes(4)


class Generations:
    """The two BPF maps of one map of the script; closed by *stack*.

    Args:
        sizes: type, key size and value size of both.
        entries: how many keys each holds.
        name: for those who look at the kernel's maps.
        stack: closes the maps.
        flags: ``BPF_F_…`` of both.
    """

    def __init__(
        self, sizes: tuple[int, int, int], entries: int, name: str, stack: ExitStack, flags: int = 0
    ) -> None:
        self._key_size = sizes[1]
        self._maps: list[int] = []
        for number in (0, 1):
            self._maps.append(bpf_maps.create(*sizes, entries, flags=flags, name=f"{name[:13]}_{number}"))
            stack.callback(os.close, self._maps[number])
        self._outer = -1

    def start(self, outer: int) -> None:
        """Put the map in use into the loaded array."""
        self._outer = outer
        self._put()

    @property
    def current(self) -> int:
        """The map that programs use."""
        return self._maps[0]

    @property
    def empty(self) -> bool:
        """Whether nothing is in the map that programs use."""
        return bpf_maps.next_key(self.current, None, self._key_size) is None

    def flip(self) -> int:
        """Have programs use the other map, and wait until none uses the one that this gives."""
        self._maps.reverse()
        self._put()
        return self._maps[1]

    def _put(self) -> None:
        bpf_maps.update(self._outer, _FIRST, struct.pack("=I", self.current))


class Quiescence:
    """Waits until all programs that run now have ended, by an update that makes the kernel wait for them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._held = self._outer = -1

    def wait(self) -> None:
        """Return when no program is left that ran at the time of the call."""
        if self._outer < 0:
            self._held = bpf_maps.create(MapType.ARRAY, 4, 4, 1, name="pytrace_wait")
            self._stack.callback(os.close, self._held)
            self._outer = bpf_maps.create(MapType.ARRAY_OF_MAPS, 4, 4, 1, name="pytrace_waits", inner=self._held)
            self._stack.callback(os.close, self._outer)
        bpf_maps.update(self._outer, _FIRST, struct.pack("=I", self._held))
