"""Sorting what is too much for memory: sorted runs in a temporary file, merged as they are read back."""

from __future__ import annotations

import heapq
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any, BinaryIO, TypeAlias, TypeVar

T = TypeVar("T")

RUN = 1 << 16
"""Items that are sorted in memory."""
CHUNK = 512
"""Items of a run that are in memory while runs are merged."""

Key: TypeAlias = Callable[[T], Any]

_Place: TypeAlias = tuple[int, int]
"""Where a chunk is in the file, and its bytes."""


def in_order(items: Iterable[T], key: Key[T]) -> Iterator[list[T]]:
    """The items, ordered by *key*, at most :data:`RUN` at a time."""
    blocks = batches(items, RUN)
    first = next(blocks, [])
    second = next(blocks, None)
    if second is None:
        first.sort(key=key)
        if first:
            yield first
        return
    with ExitStack() as opened:
        file: BinaryIO = opened.enter_context(tempfile.TemporaryFile(prefix="pytrace-"))
        runs: list[list[_Place]] = []
        for block in chain((first, second), blocks):
            block.sort(key=key)
            runs.append(_spilled(file, block))
        file.flush()
        yield from batches(heapq.merge(*(_read(file, places) for places in runs), key=key), CHUNK)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items, *size* at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _spilled(file: BinaryIO, block: list[T]) -> list[_Place]:
    """Write a run to the end of the file."""
    places = []
    for part in batches(block, CHUNK):
        data = pickle.dumps(part, pickle.HIGHEST_PROTOCOL)
        places.append((file.tell(), len(data)))
        file.write(data)
    return places


def _read(file: BinaryIO, places: list[_Place]) -> Iterator[Any]:
    for start, size in places:
        # Nobody else has this file: it has no name.
        yield from pickle.loads(os.pread(file.fileno(), size, start))
