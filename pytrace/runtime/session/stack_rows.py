"""User stacks and symbols in rows of maps: their source lines are read ahead, and rows with the same stacks joined."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.core.manifest import MapSpec
from pytrace.render.values import chunked_stack
from pytrace.runtime.session.services import EndOfRun, Service
from pytrace.runtime.stacks.compiled_code import Address, Period

if TYPE_CHECKING:
    from pytrace.runtime.load.map_reader import MapReader
    from pytrace.runtime.stacks.lazy_symbols import LazySymbols

SLICE = 0.004
"""Seconds of reading between two turns of the consumer."""
REST = 0.004
"""Seconds between two slices: at least half of one CPU is left to others."""
FIRST, SHARE = 1.0, 50
"""Seconds until the maps are searched first; the time to the next search is a multiple of what one takes."""
_LONGEST_SEARCH = 0.05
"""Seconds of CPU time: after a search that took longer, such large maps are not searched again before the end."""
_REMEMBERED = 1 << 16
"""Maximum number of addresses that are remembered as read."""

Block = tuple[bytes, bytes, int]

SLACK = 1_000_000
"""Nanoseconds from the taking of a stack until it is in a map."""


class KeyPeriods:
    """Notes when rows of maps appeared and changed. *compiles* says of a process whether it compiles code."""

    def __init__(self, compiles: Callable[[int], bool]) -> None:
        self._compiles = compiles
        self._asked: dict[int, bool] = {}
        self._rows: dict[int, tuple[int, Period]] = {}
        """By digest of a key: the digest of its value, and its period."""
        self._fresh: dict[int, tuple[int, Period]] = {}
        self.addresses: dict[Address, Period] = {}
        """The periods of all keys that have an address, as one."""
        self.begun = self._before = time.monotonic_ns()
        """When the last search began, and the one before it."""

    def begin(self) -> None:
        """A search of all maps begins."""
        self._before, self.begun = self.begun, time.monotonic_ns()
        self._rows, self._fresh = self._fresh, {}
        self._asked, self.addresses = {}, {}

    def wanted(self, process: int) -> bool:
        """True if the rows of a process are to be noted."""
        known = self._asked.get(process)
        if known is None:
            known = self._asked[process] = self._compiles(process)
        return known

    def note(self, process: int, addresses: Iterable[int], key: bytes, value: bytes) -> None:
        """A row with addresses of a process; *key* is with what tells its map from others."""
        digest, content = hash(key), hash(value)
        known = self._rows.get(digest)
        now = time.monotonic_ns()
        if known is None:
            period = self._before - SLACK, now
        elif known[0] != content:
            period = known[1][0], now
        else:
            period = known[1]
        self._fresh[digest] = content, period
        for address in addresses:
            first, last = self.addresses.get((process, address), period)
            self.addresses[process, address] = min(first, period[0]), max(last, period[1])


class ReadingAhead(Service):
    """Reads source lines of the user stacks in the keyed maps among *specs* while a run is idle: its end need not wait.

    The same searches of the maps note when stacks with code that was compiled at run time were taken. After the user
    has asked for the end, lines are read for a fraction of a second only. This service only reads ahead (see
    :meth:`pytrace.runtime.stacks.symbolizer.Symbolizer.prepare`); printing resolves addresses as without it.

    *saved*: the maps are part of a snapshot at the end, even if they are not printed.
    """

    def __init__(self, specs: Iterable[MapSpec], reader: MapReader, lines: LazySymbols, *, saved: bool = False) -> None:
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
                self._next = started + max(FIRST, SHARE * took) if took < _LONGEST_SEARCH else float("inf")
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


# ---------------------------------------------------------------------------------------------- places in rows


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
    decode = chunked_stack(place.frames, chunk)
    for offset in range(place.start, len(data), step):
        process, frames, _ = decode(data, offset)
        yield process, [frame for frame in frames if frame != types.TRUNCATED]


def _single(data: bytes, step: int, place: Place) -> Iterator[tuple[int, Sequence[int]]]:
    read = struct.Struct("=QI").unpack_from
    for offset in range(place.start, len(data), step):
        address, process = read(data, offset)
        yield process, (address,)


# ---------------------------------------------------------------------------------------------- rows that are alike

_EXTREMES = (types.Min, types.Max)
_ROWS = 4096
"""Joined rows of a block."""


class AlikeRows:
    """Joins rows of maps whose stacks are the same functions of one process, though it unloaded code in between.

    A stack in a key has the image of its process (``codegen.walkers.memory_images``), so a process that executes
    programs or unloads libraries has several keys for one stack. Such rows are joined while a map is read: they are
    those of processes with images, whose stacks and symbols are at the same places of the same files.
    """

    def __init__(self, symbols: LazySymbols) -> None:
        self._symbols = symbols

    def __call__(
        self, spec: MapSpec, blocks: Iterator[Block], chunk: Callable[[bytes], bytes | None] = lambda _digest: None
    ) -> Iterator[Block]:
        """The rows of a map; those that are alike are one. *chunk* is that of the map's reader."""
        if not isinstance(spec.value, types.SUMS + _EXTREMES):
            return blocks
        shown = [place for place in places(spec) if not place.in_value]
        join = _extreme if isinstance(spec.value, _EXTREMES) else _sum
        return _Joining(self._symbols, shown, join, chunk).run(blocks) if shown else blocks


Join = Callable[[bytes, bytes], bytes]


class _Joining:
    """One reading of one map."""

    def __init__(
        self, symbols: LazySymbols, shown: list[Place], join: Join, chunk: Callable[[bytes], bytes | None]
    ) -> None:
        self._symbols, self._shown, self._join, self._chunk = symbols, shown, join, chunk
        self._owners: dict[int, int] = {}
        self._origins: dict[tuple[int, int], tuple[object, ...]] = {}
        self._firsts: dict[tuple[object, ...], bytes] = {}

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Rows of processes without images at once, then the others."""
        held: dict[bytes, bytes] = {}
        for keys, values, count in blocks:
            chosen = self._chosen(keys, count)
            if not chosen:
                yield keys, values, count
                continue
            key_size, value_size = len(keys) // count, len(values) // count
            for row in chosen:
                key = self._alike(keys[row * key_size : (row + 1) * key_size])
                value = values[row * value_size : (row + 1) * value_size]
                held[key] = self._join(held[key], value) if key in held else value
            rest = [row for row in range(count) if row not in chosen]
            if rest:
                yield (
                    b"".join(keys[row * key_size : (row + 1) * key_size] for row in rest),
                    b"".join(values[row * value_size : (row + 1) * value_size] for row in rest),
                    len(rest),
                )
        rows = list(held.items())
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            yield b"".join(key for key, _ in part), b"".join(value for _, value in part), len(part)

    def _chosen(self, keys: bytes, count: int) -> set[int]:
        """The rows of processes with images."""
        size, chosen = len(keys) // count, set[int]()
        for place in self._shown:
            at = place.start + _process_at(place)
            for row, (process,) in enumerate(struct.iter_unpack(f"={at}xI{size - at - 4}x", keys)):
                owner = self._owners.get(process)
                if owner is None:
                    owner = self._owners[process] = self._symbols.owner(process)
                if owner:
                    chosen.add(row)
        return chosen

    def _alike(self, key: bytes) -> bytes:
        """The key with each stack and symbol as it was first in a row that is alike."""
        for place in self._shown:
            start, (process,) = place.start, struct.unpack_from("=I", key, place.start + _process_at(place))
            owner = self._owners[process]
            if not owner:
                continue
            if place.chunked:
                _, addresses, count = chunked_stack(place.frames, self._chunk)(key, start)
                end = start + types.Stack(True, chunked=True).size
            elif place.frames:
                (count,) = struct.unpack_from("=i", key, start)
                first, number = start + types.Stack.header, max(0, min(count, place.frames))
                addresses, end = struct.unpack_from(f"={number}Q", key, first), first + 8 * place.frames
            else:
                count, end = 0, start + types.USym().size
                addresses = struct.unpack_from("=Q", key, start)
            alike = (owner, place.start, count, *(self._origin(process, address) for address in addresses))
            # Return addresses are named by the byte before them, which is in the same mapping or else in none.
            known = self._firsts.setdefault(alike, key[start:end])
            key = key[:start] + known + key[end:]
        return key

    def _origin(self, process: int, address: int) -> tuple[object, ...]:
        if address == types.TRUNCATED:
            return ()
        known = self._origins.get((process, address))
        if known is None:
            known = self._origins[process, address] = self._symbols.origin(process, address)
        return known


def _process_at(place: Place) -> int:
    """Where the process is in a stack, or in a symbol."""
    return 4 if place.frames else 8


def _sum(first: bytes, second: bytes) -> bytes:
    code = f"={len(first) // 8}Q"
    pairs = zip(struct.unpack(code, first), struct.unpack(code, second), strict=True)
    return struct.pack(code, *((one + two) & ((1 << 64) - 1) for one, two in pairs))


def _extreme(first: bytes, second: bytes) -> bytes:
    """Of each CPU the greater rank; a copy that is not set does not count."""
    ones, twos = (tuple(struct.iter_unpack("=QQ", value)) for value in (first, second))
    return b"".join(
        struct.pack("=QQ", *max((one[1] != 0, one), (two[1] != 0, two))[1]) for one, two in zip(ones, twos, strict=True)
    )
