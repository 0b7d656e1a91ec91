"""Reading and clearing maps: raw bytes, by batches of bpf(2) and from mapped data sections.

Everything here is correct while programs keep writing: a key is given at most once, and an update is either in a
value or not.  Per-CPU values come as the copies of all CPUs in a row, each rounded up to 8 bytes, and no matter
whether they lie in a per-CPU map or in a slot.

A BPF map that has digests of keys is joined with the map of their whole keys. Programs insert the key of a digest
before the digest itself, and never remove one, so each digest that is found has its key.  See
:mod:`pytrace.codegen.lower.map_access` for what a digest is.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import compress

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import EmptiedMap, PrintedMap
from pytrace.core.manifest import DIGEST, PER_CPU_TYPES, SLOT_FLAG, GlobalSlot, MapSpec
from pytrace.core.types import CHUNK_SIZE
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf, perf

Block = tuple[bytes, bytes, int]
"""Keys one after another, their values one after another, and how many they are."""

_BATCH_ELEMENTS = 4096
_BATCH_BYTES = 1 << 20
"""Most memory for the elements of one batch: stacks and the values of many CPUs are large."""


class MapReader:
    """Access to the maps of one loaded script, by their specs. *join* joins rows that are one to readers."""

    def __init__(
        self,
        loaded: LoadedScript,
        join: Callable[[MapSpec, Iterator[Block], Callable[[bytes], bytes | None]], Iterator[Block]] | None = None,
    ) -> None:
        self._loaded = loaded
        self._join = join
        self._sizes: dict[str, tuple[int, int, int, int]] = {}
        self._left: dict[str, int] = {}
        """By the symbol of a map of whole keys, at most how many of them are of rows that were removed."""

        self._chunks: dict[bytes, bytes] = {}
        """Chunks of stacks, which never change once they are in the map."""

    def chunk(self, digest: bytes) -> bytes | None:
        """A chunk of stacks by its digest (:data:`pytrace.core.types.CHUNK_SIZE`); None where it had no room."""
        known = self._chunks.get(digest)
        if known is None and (symbol := self._loaded.manifest.stack_chunks):
            known = bpf.map_lookup(self._loaded.map_fd(symbol), digest, CHUNK_SIZE)
            if known is not None:
                self._chunks[digest] = known
        return known

    # ---- keyed maps

    def items(self, spec: MapSpec) -> list[tuple[bytes, bytes]]:
        """All ``(key, value)`` pairs of a keyed map, in no order."""
        return paired(self.blocks(spec))

    def blocks(self, spec: MapSpec, *, clear: bool = False) -> Iterator[Block]:
        """Keys and values of a map, some thousand at a time; with *clear* the map is emptied in the same step.

        Of a double-buffered map each update is among these rows or stays in the map, whatever programs do meanwhile.
        """
        rows = self._rows(spec, clear)
        if spec.keys:
            rows = self._with_keys(spec, rows, clear)
        return rows if self._join is None else self._join(spec, rows, self.chunk)

    def _rows(self, spec: MapSpec, clear: bool) -> Iterator[Block]:
        """As :meth:`blocks`, with the keys of the BPF map."""
        if not clear:
            return self._blocks(spec, delete=False)
        twice = self._loaded.generations.get(spec.symbol) if spec.inner is not None else None
        if twice is None:
            return self._blocks(spec, delete=True)
        if twice.empty:
            return iter(())
        before = twice.flip()
        _, key_size, value_size, entries = self._size(spec)
        return read_blocks(before, key_size, value_size, entries, delete=True)

    def length(self, spec: MapSpec) -> int:
        """Number of keys."""
        return sum(count for _, _, count in self._rows(spec, clear=False))

    # ---- keyed maps with digests of keys

    def _with_keys(self, spec: MapSpec, rows: Iterator[Block], clear: bool) -> Iterator[Block]:
        """Rows with whole keys in place of digests; some of them may just have been taken out of the map."""
        yielded = 0
        for block in join_keys(spec.name, rows, self._keys(spec, delete=False)):
            yielded += block[2]
            yield block
        if clear:
            self._forget_keys(spec, yielded)

    def _keys(self, spec: MapSpec, *, delete: bool) -> Iterator[Block]:
        """Digests and whole keys."""
        return read_blocks(*self._keys_size(spec), delete=delete)

    def _keys_size(self, spec: MapSpec) -> tuple[int, int, int, int]:
        descriptor = self._loaded.map_fd(spec.keys)
        return descriptor, *bpf.map_info(descriptor)[2:5]

    def _forget_keys(self, spec: MapSpec, rows: int) -> None:
        """Remove whole keys after *rows* rows were removed, unless there is room for those that come until next time.

        A program may be about to insert a digest whose key it has seen in the map. When all these programs have ended,
        the keys of such digests are put back; programs that come later insert the key themselves. Of a map that only
        the user resets, a program may sleep, which nothing waits for: then the keys stay.
        """
        if not self._awaited(spec):
            return
        left = self._left[spec.keys] = self._left.get(spec.keys, 0) + rows
        if 2 * left <= self._keys_size(spec)[3] - self._size(spec)[3]:
            return
        gone = dict(paired(self._keys(spec, delete=True)))
        self._loaded.quiescence.wait()
        for name, _ in paired(self._rows(spec, clear=False)):
            whole = gone.get(name[:DIGEST])
            if whole is not None:
                self._put_back(spec, name, whole)
        self._left[spec.keys] = 0

    def _awaited(self, spec: MapSpec) -> bool:
        """Whether no program that may sleep uses the map: none does that the script clears."""
        manifest = self._loaded.manifest
        parts = (item.static for item in manifest.events)
        cleared = (part.map for part in parts if isinstance(part, EmptiedMap | PrintedMap))
        return spec.name in cleared or not any(program.sleepable for program in manifest.programs)

    def _put_back(self, spec: MapSpec, name: bytes, whole: bytes) -> None:
        try:
            bpf.map_update(self._keys_size(spec)[0], name[:DIGEST], whole)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            # Both maps are full of newer keys, and updates are being dropped and reported: so is this one.
            bpf.map_delete(self._size(spec)[0], name)

    # ---- single keys of the BPF map

    def lookup(self, spec: MapSpec, key: bytes) -> bytes | None:
        """The value of *key*, or None."""
        descriptor, _, value_size, _ = self._size(spec)
        return bpf.map_lookup(descriptor, key, value_size)

    def store(self, spec: MapSpec, key: bytes, value: bytes) -> None:
        """Set the value of *key*.

        Raises:
            OSError: the map is full (``E2BIG``).
        """
        bpf.map_update(self._size(spec)[0], key, value)

    def delete(self, spec: MapSpec, key: bytes) -> bool:
        """Remove *key*; False when it was not there."""
        return bpf.map_delete(self._size(spec)[0], key)

    # ---- unkeyed maps

    def slot(self, spec: MapSpec) -> tuple[bool, bytes]:
        """Whether an unkeyed map was ever written (on any CPU), and its value: all copies in a row."""
        return self._read_slot(spec, self._shift(spec))

    def slot_and_clear(self, spec: MapSpec) -> tuple[bool, bytes]:
        """As :meth:`slot`, and clears the map in the same step (see :meth:`blocks`)."""
        before = self._shift(spec)
        copy = self._read_slot(spec, before)
        if not copy[0]:
            return copy
        if self._flip(spec):
            copy = self._read_slot(spec, before)
        self._clear_slot(spec, before)
        return copy

    def _flip(self, spec: MapSpec) -> bool:
        """Have programs use the other copy, and wait until none uses this one; False when there is only one."""
        slot = spec.slot
        if slot is None or not slot.generation:
            return False
        self._loaded.section(slot.selector_section)[slot.selector] ^= 1
        self._loaded.quiescence.wait()
        return True

    def _shift(self, spec: MapSpec) -> int:
        """Offset of the copy that programs use now."""
        slot = spec.slot
        if slot is None or not slot.generation:
            return 0
        return slot.generation * (self._loaded.section(slot.selector_section)[slot.selector] & 1)

    def _read_slot(self, spec: MapSpec, shift: int) -> tuple[bool, bytes]:
        view, slot, size = self._slot(spec)
        written = False
        parts: list[bytes] = []
        for start in _starts(slot, shift):
            written |= view[start] != 0
            parts.append(bytes(view[start + SLOT_FLAG : start + SLOT_FLAG + size]))
        return written, b"".join(parts)

    def store_slot(self, spec: MapSpec, value: bytes) -> bool:
        """Set the value of a map without keys, which programs share. Returns whether it had one."""
        view, slot, _ = self._slot(spec)
        start = slot.offset + self._shift(spec)
        there = view[start] != 0
        view[start + SLOT_FLAG : start + SLOT_FLAG + len(value)] = value
        view[start] = 1
        return there

    # ---- both

    def clear(self, spec: MapSpec) -> None:
        """Make a map as if it had never been written."""
        if spec.slot is None:
            removed = sum(count for _, _, count in self._blocks(spec, delete=True))
            if spec.keys:
                self._forget_keys(spec, removed)
            return
        before = self._shift(spec)
        if self._read_slot(spec, before)[0]:
            self._flip(spec)
            self._clear_slot(spec, before)

    def _clear_slot(self, spec: MapSpec, shift: int) -> None:
        view, slot, size = self._slot(spec)
        for start in _starts(slot, shift):
            view[start : start + SLOT_FLAG + size] = bytes(SLOT_FLAG + size)

    def zero(self, spec: MapSpec) -> None:
        """Set all values of a map to zero; keys stay."""
        if spec.slot is not None:
            view, slot, size = self._slot(spec)
            before = self._shift(spec)
            if self._flip(spec):
                written, _ = self._read_slot(spec, before)
                self._clear_slot(spec, before)
                view[slot.offset + self._shift(spec)] |= written
                return
            for start in _starts(slot, before):
                view[start + SLOT_FLAG : start + SLOT_FLAG + size] = bytes(size)
            return
        descriptor, _, value_size, _ = self._size(spec)
        keys = [key for key, _ in paired(self._rows(spec, clear=False))]
        bpf.map_update_all(descriptor, keys, bytes(value_size))

    # ---- inside

    def _slot(self, spec: MapSpec) -> tuple[memoryview, GlobalSlot, int]:
        if spec.slot is None:
            raise InternalError(f"{spec.name} is not a slot")
        return self._loaded.section(spec.slot.section), spec.slot, round_up(spec.value.size)

    def _size(self, spec: MapSpec) -> tuple[int, int, int, int]:
        """Descriptor, key size, size of a whole value, entries."""
        sizes = self._sizes.get(spec.symbol)
        if sizes is None:
            twice = self._loaded.generations.get(spec.symbol)
            descriptor = self._loaded.map_fd(spec.symbol) if twice is None else twice.current
            map_type, _, key_size, value_size, entries = bpf.map_info(descriptor)
            if map_type in PER_CPU_TYPES:
                value_size = round_up(value_size) * len(perf.possible_cpus())
            sizes = self._sizes[spec.symbol] = descriptor, key_size, value_size, entries
        twice = self._loaded.generations.get(spec.symbol)
        return sizes if twice is None else (twice.current, *sizes[1:])

    def _blocks(self, spec: MapSpec, *, delete: bool) -> Iterator[Block]:
        descriptor, key_size, value_size, entries = self._size(spec)
        return read_blocks(descriptor, key_size, value_size, entries, delete=delete)


def round_up(size: int) -> int:
    """*size* as a multiple of 8: what one copy of a per-CPU value takes."""
    return (size + 7) & ~7


def _starts(slot: GlobalSlot, shift: int) -> range:
    first, step = slot.offset + shift, max(1, slot.stride)
    return range(first, first + max(1, slot.copies) * step, step)


def paired(blocks: Iterator[Block]) -> list[tuple[bytes, bytes]]:
    """Blocks as ``(key, value)`` pairs."""
    pairs: list[tuple[bytes, bytes]] = []
    for keys, values, count in blocks:
        split_keys = struct.iter_unpack(f"{len(keys) // count}s", keys)
        split_values = struct.iter_unpack(f"{len(values) // count}s", values)
        pairs.extend((key, value) for (key,), (value,) in zip(split_keys, split_values, strict=True))
    return pairs


def read_blocks(
    descriptor: int, key_size: int, value_size: int, entries: int, *, delete: bool = False
) -> Iterator[Block]:
    """All keys and values of a hash map, some thousand at a time, each key at most once, in no order.

    Args:
        descriptor: the map.
        key_size: bytes of a key.
        value_size: bytes of a value; for per-CPU maps of the values of all possible CPUs.
        entries: maximum number of keys in the map.
        delete: remove them from the map, with batches in the same step; then the blocks have to be read to the end.
    """
    capacity = min(entries, max(_BATCH_ELEMENTS // 64, min(_BATCH_ELEMENTS, _BATCH_BYTES // (key_size + value_size))))
    try:
        yield from _by_batches(descriptor, key_size, value_size, capacity, delete)
        return
    except OSError as error:
        if error.errno not in bpf.NO_BATCH:
            raise
    pairs = list(_by_keys(descriptor, key_size, value_size, entries))
    if delete:
        for key, _ in pairs:
            bpf.map_delete(descriptor, key)
    for start in range(0, len(pairs), _BATCH_ELEMENTS):
        keys, values = zip(*pairs[start : start + _BATCH_ELEMENTS], strict=True)
        yield b"".join(keys), b"".join(values), len(keys)


def _by_batches(
    descriptor: int, key_size: int, value_size: int, capacity: int, delete: bool
) -> Iterator[Block]:
    batch = bpf.MapBatch(descriptor, key_size, value_size, capacity)
    end = False
    while not end:
        try:
            count, end = batch.read(delete=delete)
        except OSError as error:
            # One bucket of the hash has more elements than were asked for.
            if error.errno != errno.ENOSPC:
                raise
            batch.grow()
            continue
        if count:
            with memoryview(batch.keys.data) as keys, memoryview(batch.values.data) as values:
                yield bytes(keys[: count * key_size]), bytes(values[: count * value_size]), count


def _by_keys(descriptor: int, key_size: int, value_size: int, entries: int) -> Iterator[tuple[bytes, bytes]]:
    """Walk by the get-next-key command, on kernels without batches.

    When a program deletes the key that the walk stands on, the kernel starts again at the first one: keys that
    come again are skipped, and the walk ends after as many steps as a full map can need.
    """
    seen: set[bytes] = set()
    key = bpf.map_next_key(descriptor, None, key_size)
    for _ in range(4 * entries):
        if key is None:
            return
        if key not in seen:
            seen.add(key)
            value = bpf.map_lookup(descriptor, key, value_size)
            if value is not None:
                yield key, value
        key = bpf.map_next_key(descriptor, key, key_size)


# ------------------------------------------------------------------------------------------------------ digests of keys


def join_keys(name: str, rows: Iterable[Block], keys: Iterable[Block]) -> Iterator[Block]:
    """The rows of a map with whole keys.

    Args:
        name: the map, for messages.
        rows: digests (and bucket numbers), and their values.
        keys: digests and their keys, of at least these; asked for after the last row.

    Raises:
        InternalError: there are rows without a key.
    """
    blocks = list(rows)
    if not blocks:
        return
    count = sum(block[2] for block in blocks)
    with_key = 0
    single = len(blocks[0][0]) == DIGEST * blocks[0][2]
    for joined_block in (_one_row_a_key if single else _several_rows_a_key)(blocks, keys):
        with_key += joined_block[2]
        yield joined_block
    if with_key != count:
        raise InternalError(f"{count - with_key} of {count} rows of {name} have no key")


def _split(data: bytes, size: int) -> list[bytes]:
    return [part for (part,) in struct.iter_unpack(f"{size}s", data)]


def _one_row_a_key(blocks: list[Block], keys: Iterable[Block]) -> Iterator[Block]:
    """A key has one row: columns are joined, as they are while both maps have the same order (:func:`in_one_order`)."""
    digests, values = b"".join(block[0] for block in blocks), b"".join(block[1] for block in blocks)
    size = len(values) * DIGEST // len(digests)
    blocks.clear()
    rows: dict[bytes, bytes] | None = None
    start = 0
    for names, whole, count in keys:
        if rows is None and names == digests[start * DIGEST : (start + count) * DIGEST]:
            yield whole, values[start * size : (start + count) * size], count
            start += count
            continue
        if rows is None:
            rest = _split(digests[start * DIGEST :], DIGEST), _split(values[start * size :], size)
            rows = dict(zip(*rest, strict=True))
        matches = list(map(rows.get, _split(names, DIGEST)))
        there = [value for value in matches if value is not None]
        if len(there) < count:
            whole = b"".join(compress(_split(whole, len(whole) // count), (value is not None for value in matches)))
        if there:
            yield whole, b"".join(there), len(there)


def _several_rows_a_key(blocks: list[Block], keys: Iterable[Block]) -> Iterator[Block]:
    """A key has several rows, with a bucket number each."""
    rows: dict[bytes, list[tuple[bytes, bytes]]] = {}
    while blocks:
        digests, values, count = blocks.pop()
        numbered = _split(digests, len(digests) // count)
        for digest, value in zip(numbered, _split(values, len(values) // count), strict=True):
            rows.setdefault(digest[:DIGEST], []).append((digest[DIGEST:], value))
    for digests, whole, count in keys:
        names, parts = [], []
        for digest, key in zip(_split(digests, DIGEST), _split(whole, len(whole) // count), strict=True):
            for bucket, value in rows.get(digest, ()):
                names.append(key + bucket)
                parts.append(value)
        if names:
            yield b"".join(names), b"".join(parts), len(names)
