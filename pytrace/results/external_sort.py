"""Entries that do not fit memory: sorted runs in a temporary file, merged as they are read back; and parts by key.

Both are written as the blocks of a snapshot's file (:mod:`pytrace.results.stored_document`), with their types.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, TypeVar

import msgspec

from pytrace.core.types import Tuple
from pytrace.results import columns
from pytrace.results.columns import Column, TablesReader, TablesWriter
from pytrace.results.snapshot import Portable, Value
from pytrace.results.stored_document import Block, Blocks

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

T = TypeVar("T")
Row: TypeAlias = "tuple[Value, ...]"

RUN = 1 << 16
"""Items that are sorted in memory."""
CHUNK = 512
"""Items of a run that are in memory while runs are merged."""


def is_large(entries: Mapping[Portable, Value]) -> bool:
    """Whether entries are to be sorted in files: they lie in one already, and are many.

    Those of a run are in memory, and its process may not write files.
    """
    return not isinstance(entries, dict) and len(entries) > RUN


def in_order(items: Iterable[Row], key: Callable[[Row], SupportsRichComparison], type_: Tuple) -> Iterator[list[Row]]:
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


@contextmanager
def parted(items: Iterable[Row], part: Callable[[Row], int], number: int, type_: Tuple) -> Iterator[list[Part]]:
    """The portable values *items* of a type in *number* files, each in that which *part* says, while a block lasts."""
    with ExitStack() as opened:
        files = [opened.enter_context(tempfile.TemporaryFile(prefix="pytrace-")) for _ in range(number)]
        written: list[list[Block]] = [[] for _ in range(number)]
        waiting: list[list[Row]] = [[] for _ in range(number)]
        tables = TablesWriter()

        def write(place: int) -> None:
            data = msgspec.msgpack.encode(columns.pack(tables, type_, waiting[place]))
            files[place].write(data)
            written[place].append(Block(len(waiting[place]), len(data)))
            waiting[place].clear()

        for item in items:
            place = part(item)
            waiting[place].append(item)
            if len(waiting[place]) == CHUNK:
                write(place)
        for place in range(number):
            if waiting[place]:
                write(place)
        form, reader = columns.form(type_), tables.reader()
        yield [
            Part(Blocks("of parts", "entries", file, 0, blocks, form), reader, type_)
            for file, blocks in zip(files, written, strict=True)
        ]


class Part(msgspec.Struct, frozen=True):
    """Rows that :func:`parted` wrote to one file."""

    blocks: Blocks
    reader: TablesReader
    type: Tuple

    def rows(self) -> Iterator[Row]:
        """The rows, in the order in which they came."""

        def unpack(column: Column, count: int) -> list[Row]:
            return [row for row in columns.unpack(self.reader, self.type, column, count) if isinstance(row, tuple)]

        return chain.from_iterable(self.blocks.read(unpack))


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
