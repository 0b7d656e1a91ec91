"""Source lines of the user stacks in keyed maps, read while a run is idle, so that its end need not wait.

The same searches of the maps note when stacks with code that was compiled at run time were taken.

After the user has asked for the end, lines are read for a fraction of a second only. This service only reads ahead (see
:meth:`pytrace.runtime.symbols.symbolizer.Symbolizer.prepare`); printing resolves addresses as without it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Protocol

import msgspec

from pytrace.core import types
from pytrace.core.manifest import MapSpec
from pytrace.runtime.session.services.service import EndOfRun, Service
from pytrace.runtime.symbols.key_periods import Address, KeyPeriods

SLICE = 0.004
"""Seconds of reading between two turns of the consumer."""
REST = 0.004
"""Seconds between two slices: at least half of one CPU is left to others."""
FIRST, SHARE = 1.0, 50
"""Seconds until the maps are searched first; the time to the next search is a multiple of what one takes."""
LONGEST_SEARCH = 0.05
"""Seconds of CPU time: after a search that took longer, such large maps are not searched again before the end."""
_REMEMBERED = 1 << 16
"""Maximum number of addresses that are remembered as read."""

Block = tuple[bytes, bytes, int]


class Lines(Protocol):
    """The part of the symbolizer that reads source lines."""

    def prepare(self, addresses: Collection[Address]) -> Iterator[None]:
        """Read the source lines of addresses in short steps."""

    def wait_for(self, steps: Iterator[None], what: str) -> None:
        """Read to the end, while the user waits for it."""

    def keyed(self, periods: Mapping[Address, tuple[int, int]], searched: int, *, over: bool = False) -> None:
        """When stacks in keys of maps were taken."""

    def follow_code(self, pid: int) -> bool:
        """Read what a process has named of the code that it compiled; True if it has named any."""


class Reader(Protocol):
    """Reads maps (:class:`pytrace.runtime.load.map_reader.MapReader`)."""

    def blocks(self, spec: MapSpec) -> Iterator[Block]:
        """Keys and values of a map, some thousand at a time."""

    def chunk(self, digest: bytes) -> bytes | None:
        """A chunk of stacks by its digest."""


class ReadingAhead(Service):
    """Reads source lines for the keyed maps among *specs*.

    *saved*: the maps are part of a snapshot at the end, even if they are not printed.
    """

    def __init__(self, specs: Iterable[MapSpec], reader: Reader, lines: Lines, *, saved: bool = False) -> None:
        self._saved = saved
        self._lines = lines
        self._reader = reader
        self._maps = [(spec, places(spec)) for spec in specs if spec.key is not None]
        self._steps: Iterator[None] | None = None
        self._known: set[Address] = set()
        self._next = time.monotonic() + FIRST
        self._periods = KeyPeriods(lines.follow_code)

    def begin(self) -> None:
        """From now on stacks are taken."""
        self._lines.keyed({}, self._periods.begun)

    def pause(self, longest: float) -> float:
        """Seconds until there is something to read, at most *longest*."""
        if self._steps is not None:
            return min(longest, REST)
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, handled: int) -> None:
        """Read for a slice, when no events came."""
        if handled:
            return
        started = time.monotonic()
        if self._steps is None:
            if started >= self._next:
                before = time.thread_time()
                self._steps = self._lines.prepare(self._addresses())
                took = time.thread_time() - before
                self._next = started + max(FIRST, SHARE * took) if took < LONGEST_SEARCH else float("inf")
            return
        for _ in self._steps:
            if time.monotonic() - started > SLICE:
                return
        self._steps = None

    def finish(self, end: EndOfRun) -> None:
        """Read the remaining lines before the maps print."""
        if not end.print_maps and not self._saved:
            return
        self._steps = None
        self._known.clear()
        addresses = self._addresses(over=True)
        if addresses:
            self._lines.wait_for(self._lines.prepare(addresses), f"{len(addresses)} addresses in stacks")

    def _addresses(self, *, over: bool = False) -> list[Address]:
        """Addresses in the maps that were not read before. *over*: nothing is added to the maps any more."""
        by_process: dict[int, set[int]] = {}
        self._periods.begin()
        chunk = self._reader.chunk
        for spec, wanted in self._maps:
            collect(self._reader.blocks(spec), wanted, by_process, self._periods, spec.name.encode(), chunk)
        self._lines.keyed(self._periods.addresses, self._periods.begun, over=over)
        addresses = [
            address
            for process, numbers in by_process.items()
            for address in zip(repeat(process), sorted(numbers), strict=False)
            if address not in self._known
        ]
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known.update(addresses)
        return addresses


# ---------------------------------------------------------------------------------------------- addresses in maps


class Place(msgspec.Struct, frozen=True):
    """Offset in the key or (*in_value*) value of a user stack of at most *frames* frames, or of one address (0)."""

    in_value: bool
    start: int
    frames: int
    chunked: bool = False


def places(spec: MapSpec) -> list[Place]:
    """The places of a keyed map with user addresses that are shown by name, except for those inside of arrays."""
    found: list[Place] = []
    for in_value, type_ in ((False, spec.key), (True, spec.value)):
        for start, inner in _leaves(type_, 0) if type_ is not None else ():
            if isinstance(inner, types.Stack) and inner.user and inner.mode is not types.StackMode.BUILD_ID:
                found.append(Place(in_value, start, inner.limit, inner.chunked))
            elif isinstance(inner, types.USym):
                found.append(Place(in_value, start, 0))
    return found


def _leaves(type_: types.Type, start: int) -> Iterator[tuple[int, types.Type]]:
    if not isinstance(type_, types.Members):
        yield start, type_
        return
    for member, offset in zip(type_.members, type_.offsets, strict=True):
        yield from _leaves(member, start + offset)


def collect(
    blocks: Iterable[Block],
    wanted: Iterable[Place],
    addresses: dict[int, set[int]],
    periods: KeyPeriods,
    name: bytes,
    chunk: Callable[[bytes], bytes | None] = lambda _digest: None,
) -> None:
    """Add the user addresses of all rows of the map *name* to *addresses*, by process, and note their periods.

    *chunk* is that of :class:`pytrace.render.forms.Decoders`.
    """
    for keys, values, count in blocks:
        key_size, value_size = len(keys) // count, len(values) // count
        for place in wanted:
            rows = partial(_chunked, chunk=chunk) if place.chunked else _stacks if place.frames else _single
            data, step = (values, value_size) if place.in_value else (keys, key_size)
            for row, (process, found) in enumerate(rows(data, step, place)):
                addresses.setdefault(process, set()).update(found)
                if found and periods.wanted(process):
                    key = keys[row * key_size : (row + 1) * key_size]
                    periods.note(process, found, name + key, values[row * value_size : (row + 1) * value_size])


def _stacks(data: bytes, step: int, place: Place) -> Iterator[tuple[int, Sequence[int]]]:
    head, whole = struct.Struct("=iI").unpack_from, memoryview(data)
    for offset in range(place.start, len(data), step):
        frames, process = head(data, offset)
        start = offset + types.Stack.header
        yield process, whole[start : start + 8 * max(0, min(frames, place.frames))].cast("Q").tolist()


def _chunked(
    data: bytes, step: int, place: Place, chunk: Callable[[bytes], bytes | None]
) -> Iterator[tuple[int, Sequence[int]]]:
    from pytrace.render.values import chunked_stack  # few scripts have such stacks

    decode = chunked_stack(place.frames, chunk)
    for offset in range(place.start, len(data), step):
        process, frames, _ = decode(data, offset)
        yield process, [frame for frame in frames if frame != types.TRUNCATED]


def _single(data: bytes, step: int, place: Place) -> Iterator[tuple[int, Sequence[int]]]:
    read = struct.Struct("=QI").unpack_from
    for offset in range(place.start, len(data), step):
        address, process = read(data, offset)
        yield process, (address,)
