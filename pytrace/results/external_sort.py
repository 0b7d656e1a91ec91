"""Sorting of entries that do not fit memory: sorted runs in a temporary file, merged as they are read back.

Runs are written as the blocks of a snapshot's file (:mod:`pytrace.results.stored_document`), with their types.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from typing import BinaryIO, TypeAlias, TypeVar

import msgspec

from pytrace.core.types import Tuple
from pytrace.render.decoders import Value as Decoded
from pytrace.results import columns
from pytrace.results.stored_document import Block, Blocks
from pytrace.results.stored_tables import Column, TablesWriter
from pytrace.results.values import Value

T = TypeVar("T")
Row: TypeAlias = "tuple[Value, ...]"

RUN = 1 << 16
"""Items that are sorted in memory."""
CHUNK = 512
"""Items of a run that are in memory while runs are merged."""


def in_order(items: Iterable[Row], key: Callable[[Row], Decoded], type_: Tuple) -> Iterator[list[Row]]:
    """The portable values *items* of a type, ordered by *key*, at most :data:`RUN` at a time."""
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
        tables = TablesWriter()
        runs = [_spilled(file, sorted(block, key=key), tables, type_) for block in chain((first, second), blocks)]
        read_back = tables.reader()

        def unpack(column: Column, count: int) -> list[Row]:
            return [row for row in columns.unpack(read_back, type_, column, count) if isinstance(row, tuple)]

        yield from batches(heapq.merge(*(chain.from_iterable(run.read(unpack)) for run in runs), key=key), CHUNK)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items, *size* at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _spilled(file: BinaryIO, run: list[Row], tables: TablesWriter, type_: Tuple) -> Blocks:
    """Write a run to the end of the file."""
    start = file.seek(0, os.SEEK_END)
    parts = [(len(part), msgspec.msgpack.encode(columns.pack(tables, type_, part))) for part in batches(run, CHUNK)]
    file.writelines(data for _, data in parts)
    blocks = [Block(count, len(data)) for count, data in parts]
    return Blocks("of sorted entries", "entries", file, start, blocks, columns.form(type_))
