"""Maps whose BPF map has digests of keys: joined with the map of their whole keys, and random words for the digests.

Programs insert the key of a digest before the digest itself, and never remove one, so each digest that is found has its
key.  See :mod:`pytrace.codegen.lower.map_access` for what a digest is.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import compress
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import DIGEST, MapType, RandomWords
from pytrace.runtime.machine import bpf

if TYPE_CHECKING:
    from pytrace.runtime.load.map_reader import Block

ZERO_SEED = 1 << 6
"""``BPF_F_ZERO_SEED``."""


def draw(section: memoryview, place: RandomWords) -> None:
    """Fill in the random words of a script that was just loaded, so that nobody can choose keys of the same digest."""
    section[place.offset : place.offset + place.size] = os.urandom(place.size)


@cache
def in_one_order() -> int:
    """The flag for maps of digests and of keys that makes the kernel keep both in the same order, 0 if it refuses.

    Otherwise each map has a random order. That is so because who chooses keys could choose those of one bucket: nobody
    can choose digests. The kernel wants CAP_SYS_ADMIN.
    """
    try:
        os.close(bpf.map_create(MapType.HASH, 4, 4, 1, flags=ZERO_SEED))
    except OSError:
        return 0
    return ZERO_SEED


def joined(name: str, rows: Iterable[Block], keys: Iterable[Block]) -> Iterator[Block]:
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
    for joined_block in (_alone if len(blocks[0][0]) == DIGEST * blocks[0][2] else _bucketed)(blocks, keys):
        with_key += joined_block[2]
        yield joined_block
    if with_key != count:
        raise InternalError(f"{count - with_key} of {count} rows of {name} have no key")


def _split(data: bytes, size: int) -> list[bytes]:
    return [part for (part,) in struct.iter_unpack(f"{size}s", data)]


def _alone(blocks: list[Block], keys: Iterable[Block]) -> Iterator[Block]:
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


def _bucketed(blocks: list[Block], keys: Iterable[Block]) -> Iterator[Block]:
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
