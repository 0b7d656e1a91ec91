"""Rows of maps whose stacks are the same functions of one process, though the process unloaded code in between.

A stack in a key has the image of its process (``codegen.walkers.memory_images``), so a process that executes programs
or unloads libraries has several keys for one stack. Such rows are joined while a map is read: they are those of
processes with images, whose stacks and symbols are at the same places of the same files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

from pytrace.core import types
from pytrace.core.manifest import MapSpec
from pytrace.render.values import chunked_stack
from pytrace.runtime.session.services.reading_ahead import Block, Place, places

_SUMS = types.Count | types.Sum | types.Avg | types.Stats | types.Hist | types.LHist
_EXTREMES = types.Min | types.Max
_ROWS = 4096
"""Joined rows of a block."""


class Symbols(Protocol):
    """The part of the symbolizer that knows images."""

    def owner(self, process: int) -> int:
        """The process id of an image, or of a process that has images; 0 for others, and for unknown images."""

    def origin(self, process: int, address: int) -> tuple[object, ...]:
        """What two addresses have in common that have the same name: a place in a file, or that they are one address
        of one image.
        """


class AlikeRows:
    """Joins rows of maps as they are read."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols

    def __call__(
        self, spec: MapSpec, blocks: Iterator[Block], chunk: Callable[[bytes], bytes | None] = lambda _digest: None
    ) -> Iterator[Block]:
        """The rows of a map; those that are alike are one. *chunk* is that of the map's reader."""
        if not isinstance(spec.value, _SUMS | _EXTREMES):
            return blocks
        shown = [place for place in places(spec) if not place.in_value]
        join = _extreme if isinstance(spec.value, _EXTREMES) else _sum
        return _Joining(self._symbols, shown, join, chunk).run(blocks) if shown else blocks


Join = Callable[[bytes, bytes], bytes]


class _Joining:
    """One reading of one map."""

    def __init__(
        self, symbols: Symbols, shown: list[Place], join: Join, chunk: Callable[[bytes], bytes | None]
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

