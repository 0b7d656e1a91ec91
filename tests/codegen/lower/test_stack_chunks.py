"""Stacks in chunks: what programs store is what decoders read, and callers are stored once."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.manifest import MapType
from pytrace.core.stack_formats import CHUNK_FRAMES, CHUNK_LINK, CHUNK_MAP, CHUNK_SIZE
from pytrace.core.types import TRUNCATED
from pytrace.render.values import chunked_stack
from tests.codegen.running import machine
from tests.support.bpf_machine import BpfMap, Machine

GET_STACK = 67
LIMIT = 300


def walked(*stacks: list[int]) -> tuple[Machine, dict[bytes, bytes]]:
    """A program that ran once for each of these stacks, and the chunks that it stored."""
    found = machine(f"config = {{ max_stack_depth = {LIMIT} }} kprobe:f {{ @[kstack] = count(); }}")
    found.maps[found.names[CHUNK_MAP]] = BpfMap(MapType.HASH, CHUNK_LINK, CHUNK_SIZE)
    for depth in found.script.manifest.stack_depths:
        found.write(found.section(depth.section) + depth.offset, struct.pack("<QQ", depth.limit, 1024))

    def get_stack(_context: int, target: int, size: int, *_: int) -> int:
        frames = given[0]
        data = struct.pack(f"<{len(frames)}Q", *frames)[: size & 0xFFFFFFFF]
        found.write(target, data.ljust(size & 0xFFFFFFFF, b"\0"))
        return len(data)

    found.helpers[GET_STACK] = get_stack
    given = list(stacks)
    while given:
        found.run()
        given.pop(0)
    chunks = found.maps[found.names[CHUNK_MAP]].entries
    return found, {key: found.read(place, CHUNK_SIZE) for (key, _), place in chunks.items()}


@pytest.mark.parametrize("depth", [1, 2, 31, 32, 33, 63, 64, 65, 299, 300, 301, 400])
def test_frames_come_back(depth: int) -> None:
    frames = [1000 + 7 * index for index in range(depth)]
    found, chunks = walked(frames)
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    assert len(key) == 24
    assert len(chunks) == -(-min(depth, LIMIT) // CHUNK_FRAMES)
    process, read, error = chunked_stack(LIMIT, chunks.get)(key, 0)
    mark = [TRUNCATED] if depth > LIMIT else []
    assert (process, list(read), error) == (0, frames[:LIMIT] + mark, 0)


def test_callers_are_stored_once() -> None:
    """Chunks are counted from the root: one more call is one more chunk at most."""
    root = list(range(5000, 5000 + 4 * CHUNK_FRAMES))
    found, chunks = walked(*([1, *root[-length:]] for length in (128, 127, 96, 96)), [2, *root])
    assert len(found.entries("@")) == 4
    assert sorted(found.entries("@").values()) == [1, 1, 1, 2]
    # Of 4 whole chunks, innermost frames 1 and 2 above them, and of 95 and 97 frames' last chunks.
    assert len(chunks) < 4 + 4 * 2


def test_a_chunk_that_is_missing() -> None:
    """The frames before it are shown, with the mark."""
    frames = list(range(100, 100 + 80))
    found, chunks = walked(frames)
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    last = next(digest for digest, chunk in chunks.items() if not any(chunk[:16]))
    del chunks[last]
    assert list(chunked_stack(LIMIT, chunks.get)(key, 0)[1]) == [*frames[:48], TRUNCATED]
    assert chunked_stack(LIMIT, lambda _digest: None)(key, 0)[1] == (TRUNCATED,)
