"""Snapshots as files: docs/develop/snapshot-form.md describes the form.

After a fixed header comes a document, compressed with Zstandard: blocks of columns, and :class:`_Contents`, which says
what they are. All of it is encoded and decoded by msgspec, with types. The library for Zstandard is imported when a
snapshot is written or read, and not before.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import chain
from typing import IO, Annotated, Any, BinaryIO, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from pytrace.base import typed_json, whole_files
from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Record, Type
from pytrace.results import columns, stored_document
from pytrace.results.columns import Column, Form, Numbers, StoredCost, TablesReader, TablesWriter, raw, text, tuple_of
from pytrace.results.external_sort import batches
from pytrace.results.snapshot import MapData, Portable, Print, Run, SnapshotData, Table, Value
from pytrace.results.stored_document import BLOCK_ROWS, Block, Blocks, BlocksWriter, damaged, guarded

SUFFIX = ".pts"
"""The suffix of names of snapshot files."""

MARK = b"\x89PTS\r\n\x1a\n"
"""The first bytes of a file. A transfer as text damages them, so that it is found out at once."""

VERSION = 2
"""Of the form. It grows when an older reader would misunderstand; readers ignore members that they do not know."""

_HEADER = struct.Struct("<8sHH32sQQ")
"""Mark, version, zero, SHA-256 of all after the header, bytes of the document, and those of the contents at its end."""

_LEVEL = 3

_MAP_NAME = re.compile(rb"@\w*", re.ASCII)


# ---------------------------------------------------------------------------------------------- the contents


class _Origin(msgspec.Struct, frozen=True):
    """The properties that many runs have in common; texts are bytes, as they may be no UTF-8."""

    host: bytes
    kernel: bytes
    machine: bytes
    script: bytes
    script_hash: bytes
    parameters: tuple[bytes, ...]
    version: bytes
    text: bytes = b""
    target: bytes = b""


_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Run(msgspec.Struct, frozen=True, array_like=True):
    """A run; *origin* is a number in :attr:`_Contents.origins`."""

    identity: bytes
    origin: int
    start: _Time
    end: _Time
    start_monotonic: _Time
    end_monotonic: _Time
    gaps: tuple[tuple[_Time, _Time], ...] = ()
    clock: tuple[_Time, _Time] | None = None


class _Map(msgspec.Struct, frozen=True):
    """A map. The columns of a block: keys (not of a map without keys), values, and times if it is *timed*."""

    name: bytes
    key: msgspec.Raw
    value: msgspec.Raw
    timed: bool
    help: bytes
    blocks: tuple[Block, ...]
    mark: str = ""
    hidden: bool = False
    label: bytes = b""
    estimated: tuple[bytes, ...] = ()
    key_names: tuple[bytes, ...] = ()


class _Table(msgspec.Struct, frozen=True):
    """A table of rows; *runs* are numbers in :attr:`_Contents.runs`, with the blocks of each."""

    type: msgspec.Raw
    runs: tuple[tuple[int, tuple[Block, ...]], ...]
    dropped: _Count
    number: _Count


class _Contents(msgspec.Struct, frozen=True):
    """The contents of a document. Blocks lie one after another, from the start of the document, in the order of these
    fields.
    """

    maps: tuple[_Map, ...]
    tables: tuple[_Table, ...]
    frames: tuple[Block, ...]
    stacks: tuple[Block, ...]
    strings: tuple[Block, ...]
    origins: tuple[_Origin, ...]
    runs: tuple[_Run, ...]
    losses: dict[bytes, dict[bytes, int]]
    costs: tuple[StoredCost, ...] = ()
    prints: tuple[StoredPrint, ...] = ()
    """Their columns lie here and not in blocks: what is kept of them is little."""

    @property
    def rows(self) -> int:
        """Of all blocks."""
        tables = (blocks for table in self.tables for _, blocks in table.runs)
        every = (*(data.blocks for data in self.maps), *tables, self.frames, self.stacks, self.strings)
        return sum(block.rows for blocks in every for block in blocks)


# ---------------------------------------------------------------------------------------------- files


def to_bytes(snapshot: SnapshotData) -> bytes:
    """The file form of a snapshot."""
    writer = _Writer()
    contents = msgspec.msgpack.encode(writer.contents(snapshot))
    writer.document.add(contents)
    data = writer.document.compressed()
    digest = hashlib.sha256(data).digest()
    return _HEADER.pack(MARK, VERSION, 0, digest, writer.document.size, len(contents)) + data


def write(snapshot: SnapshotData, path: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    data = to_bytes(snapshot)
    with whole_files.replacing(path) as file:
        file.write(data)


def read(path: str, limit: int | None = None) -> SnapshotData:
    """The snapshot that a file holds, all of it in memory.

    Args:
        path: the file.
        limit: bytes of the largest document that is read; None: in proportion to the file
            (:mod:`pytrace.results.stored_document`).

    Raises:
        TraceError: the file cannot be read, is no snapshot, is damaged, comes from a newer pytrace, or unpacks to more
            than *limit*.
    """
    with opened(path, limit) as snapshot:
        return _whole(snapshot, path)


MOST_PIPED = 1 << 30
"""Bytes that are read of what is no file: somebody may write to a pipe without end."""


@contextmanager
def opened(path: str, limit: int | None = None) -> Iterator[SnapshotData]:
    """As :func:`read`, but entries of maps and rows of tables are read from the file each time that they are gone
    through (:mod:`pytrace.results.file_form`), as long as the block lasts.
    """
    with ExitStack() as stack:
        try:
            file: BinaryIO = stack.enter_context(open(path, "rb"))
            size = os.fstat(file.fileno()).st_size
            head = file.read(len(MARK))
            if head == MARK and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                rest = file.read(MOST_PIPED + 1)
                if len(rest) > MOST_PIPED:
                    hints = ("save it to a file",)
                    raise TraceError(f"{path!r} is no file, and has more than {MOST_PIPED >> 20} MiB", hints=hints)
                file, size = BytesIO(rest), len(MARK) + len(rest)
            snapshot = _opened(file, head, size, path, limit, stack)
        except IsADirectoryError:
            hints = (f"name the snapshots in it: {os.path.join(path, '*.pts')}",)
            raise TraceError(f"{path!r} is a folder", hints=hints) from None
        except OSError as error:
            raise TraceError(f"cannot read {path!r}: {error.strerror}") from None
        yield snapshot


def size_of(data: bytes) -> int:
    """Bytes of the document that the bytes of a file say to hold; 0 if they are no snapshot."""
    whole = data.startswith(MARK) and len(data) >= _HEADER.size
    return int(_HEADER.unpack(data[: _HEADER.size])[4]) if whole else 0


def from_bytes(data: bytes, name: str, limit: int | None = None) -> SnapshotData:
    """The snapshot that the bytes of a file hold; *name* is for messages.

    Raises:
        TraceError: as :func:`read`.
    """
    file = BytesIO(data)
    with ExitStack() as stack:
        return _whole(_opened(file, file.read(len(MARK)), len(data), name, limit, stack), name)


def _opened(file: BinaryIO, mark: bytes, size: int, name: str, limit: int | None, stack: ExitStack) -> SnapshotData:
    if mark != MARK:
        if MARK.startswith(mark) or mark[1:4] == MARK[1:4]:
            raise damaged(name, "its first bytes are not those of a snapshot")
        hint = "snapshots are written by pytrace --save, --save-every and pytrace merge"
        raise TraceError(f"{name!r} is not a snapshot", hints=(hint,))
    head = mark + file.read(_HEADER.size - len(mark))
    if len(head) < _HEADER.size:
        raise damaged(name, f"it has {len(head)} bytes, less than its header")
    _, version, _, digest, length, contents = _HEADER.unpack(head)
    if version != VERSION:
        raise _version_error(name, version)
    stored_document.check_size(length, size - _HEADER.size, limit, name)
    with guarded(name, "the document"):
        document = stored_document.unpacked(file, length, digest, stack)
    return _Opened(name, document, length - contents, size - _HEADER.size, limit).snapshot()


def _version_error(name: str, version: int) -> TraceError:
    if version < VERSION:
        hint = "save it again: this pytrace does not read it"
        return TraceError(f"{name!r} was saved by an earlier version of pytrace", hints=(hint,))
    return TraceError(
        f"{name!r} has version {version} of the snapshot form; this pytrace reads version {VERSION}",
        hints=("read it with the pytrace that wrote it, or a newer one",),
    )


def _whole(snapshot: SnapshotData, name: str) -> SnapshotData:
    """A snapshot that was opened, in memory."""
    maps = {}
    for data in snapshot.maps.values():
        entries = dict(data.entries.items())
        if len(entries) != len(data.entries):
            raise damaged(name, f"map {data.name} has {len(entries)} keys instead of {len(data.entries)}")
        times = None if data.times is None else dict(data.times.items())
        maps[data.name] = replace(data, entries=entries, times=times)
    tables = [replace(table, rows={run: list(rows) for run, rows in table.rows.items()}) for table in snapshot.tables]
    return replace(snapshot, maps=maps, tables=tuple(tables))


# ---------------------------------------------------------------------------------------------- writing


class _Writer:
    """Writes a document."""

    def __init__(self) -> None:
        self.document = BlocksWriter(_LEVEL)
        self._tables = TablesWriter()

    def contents(self, snapshot: SnapshotData) -> _Contents:
        """Write all blocks; what they are."""
        origins: dict[_Origin, int] = {}
        runs = tuple(_stored_run(run, origins) for run in snapshot.runs)
        numbers = {run.identity: number for number, run in enumerate(snapshot.runs)}
        maps = tuple(self._map(data) for data in snapshot.maps.values())
        prints = stored_prints(self._tables, snapshot)
        rows = tuple(self._table(numbers, table) for table in snapshot.tables)
        frames, stacks, strings = (self._blocks(*table) for table in self._tables.tables)
        losses = {
            raw(kind): {raw(subject): count for subject, count in subjects.items()}
            for kind, subjects in snapshot.losses.items()
        }
        costs = tuple(StoredCost.of(numbers[run], cost) for run, cost in snapshot.costs.items())
        return _Contents(maps, rows, frames, stacks, strings, tuple(origins), runs, losses, costs, prints)

    def _blocks(self, rows: Iterable[Any], pack: Callable[[Sequence[Any]], Any]) -> tuple[Block, ...]:
        document = self.document
        return tuple(block for batch in batches(rows, BLOCK_ROWS) for block in document.blocks(batch, pack))

    def _map(self, data: MapData) -> _Map:
        times = data.times

        def pack(entries: Sequence[tuple[Portable, Value]]) -> list[Column]:
            keys = [key for key, _ in entries]
            stored = _entry_columns(self._tables, data, entries)
            # A time that a key lacks is that of the snapshot's end: the mark for it is -1.
            return stored if times is None else [*stored, Numbers.of([times.get(key, -1) for key in keys])]

        blocks = self._blocks(data.entries.items(), pack)
        return _Map(
            raw(data.name), type_to(data.key), type_to(data.value), times is not None, raw(data.help), blocks,
            data.mark, data.hidden, raw(data.label), tuple(map(raw, data.estimated)),
            tuple(map(raw, data.key_names)),
        )  # fmt: skip

    def _table(self, numbers: dict[str, int], table: Table) -> _Table:
        runs = tuple(
            (numbers[run], self._blocks(rows, lambda batch: columns.pack(self._tables, table.type, batch)))
            for run, rows in table.rows.items()
        )
        return _Table(type_to(table.type), runs, table.dropped, table.number)


def _stored_run(run: Run, origins: dict[_Origin, int]) -> _Run:
    origin = _Origin(
        raw(run.host), raw(run.kernel), raw(run.machine), raw(run.script), raw(run.script_hash),
        tuple(map(raw, run.parameters)), raw(run.version), raw(run.text), raw(run.target),
    )  # fmt: skip
    number = origins.setdefault(origin, len(origins))
    return _Run(
        raw(run.identity), number, run.start, run.end, run.start_monotonic, run.end_monotonic, run.gaps, run.clock
    )


# ---------------------------------------------------------------------------------------------- reading


class _Opened:
    """A document whose maps and tables are read from it when they are gone through."""

    def __init__(self, name: str, document: IO[bytes], end: int, compressed: int, limit: int | None) -> None:
        self._name, self._compressed, self._limit = name, compressed, limit
        self._document = document
        self._end = end
        """Of the blocks, and where the contents start."""
        self._next = 0
        self._tables = TablesReader()

    def snapshot(self) -> SnapshotData:
        """The snapshot.

        Raises:
            TraceError: it is damaged.
        """
        with typed_json.DECODING, guarded(self._name, "its contents"):
            self._document.seek(max(0, self._end))
            contents = msgspec.msgpack.decode(self._document.read(), type=_Contents)
            stored_document.check_rows(contents.rows, self._compressed, self._limit, self._name)
            runs = _runs(contents)
            maps = [self._map(stored) for stored in contents.maps]
            tables = tuple(self._table(runs, stored) for stored in contents.tables)
            self._read_tables(contents)
            losses = {
                text(kind): {text(subject): count for subject, count in subjects.items()}
                for kind, subjects in contents.losses.items()
            }
            costs = {runs[stored.run].identity: stored.cost() for stored in contents.costs}
            prints = tuple(item.read(self._tables, maps) for item in contents.prints)
        return SnapshotData(runs, {data.name: data for data in maps}, tables, losses, costs=costs, prints=prints)

    def _blocks(self, subject: str, blocks: Sequence[Block], form: object) -> Blocks:
        """The next blocks of the document."""
        opened = Blocks(self._name, subject, self._document, self._next, blocks, form)
        self._next += sum(block.size for block in blocks)
        return opened

    def _read_tables(self, contents: _Contents) -> None:
        """Read the tables of frames, stacks and strings, whose blocks are the last of the document."""
        tables = self._tables
        frames = self._blocks("frames", contents.frames, columns.FRAMES)
        stacks = self._blocks("stacks", contents.stacks, columns.STACKS)
        strings = self._blocks("strings", contents.strings, columns.STRINGS)
        if self._next != self._end:
            raise ValueError(f"blocks of {self._next} bytes where there are {self._end}")
        steps: list[tuple[Blocks, Callable[[Any, int], list[Any]]]] = [
            (strings, tables.add_strings), (frames, tables.add_frames), (stacks, tables.add_stacks)
        ]  # fmt: skip
        for blocks, add in steps:
            for _ in blocks.read(add):
                pass

    def _map(self, stored: _Map) -> MapData:
        if not _MAP_NAME.fullmatch(stored.name):
            raise ValueError(f"{stored.name!r} is no name of a map")
        name, key, value = text(stored.name), type_from(stored.key, key=True), type_from(stored.value)
        if value is None:
            raise ValueError(f"map {name} has no values")
        parts = _entry_forms(key, value)
        form = tuple_of((*parts, Numbers) if stored.timed else parts)
        blocks = self._blocks(f"map {name}", stored.blocks, form)
        if key is None and blocks.rows > 1:
            raise ValueError(f"map {name} has {blocks.rows} values and no keys")
        entries = StoredEntries(blocks, self._tables, key, value)
        times = StoredTimes(blocks, self._tables, key, value) if stored.timed else None
        return MapData(
            name, key, value, entries, times, text(stored.help), stored.mark, stored.hidden, text(stored.label),
            tuple(map(text, stored.estimated)), tuple(map(text, stored.key_names)),
        )  # fmt: skip

    def _table(self, runs: Sequence[Run], stored: _Table) -> Table:
        type_ = type_from(stored.type)
        if not isinstance(type_, types.Record):
            raise ValueError("the columns of a table are no record")
        if not type_.members:
            raise ValueError("a table without columns")
        form, rows = columns.form(type_), {}
        for number, blocks in stored.runs:
            if not 0 <= number < len(runs) or runs[number].identity in rows:
                raise ValueError(f"rows of a run {number}")
            stored_rows = self._blocks(f"rows of table {stored.number}", blocks, form)
            rows[runs[number].identity] = StoredRows(stored_rows, self._tables, type_)
        return Table(type_, rows, stored.dropped, stored.number)


def _runs(contents: _Contents) -> tuple[Run, ...]:
    """All runs; those of one origin share its texts."""
    origins = [
        Run(
            "", text(origin.host), text(origin.kernel), text(origin.machine), text(origin.script),
            text(origin.script_hash), tuple(map(text, origin.parameters)), 0, 0, 0, 0, text(origin.version),
            text=text(origin.text), target=text(origin.target),
        )
        for origin in contents.origins
    ]  # fmt: skip
    if not all(0 <= run.origin < len(origins) for run in contents.runs):
        raise ValueError("a run has an origin that there is not")
    if len({run.identity for run in contents.runs}) != len(contents.runs):
        raise ValueError("two runs have one identity")
    return tuple(
        replace(
            origins[run.origin], identity=text(run.identity), start=run.start, end=run.end,
            start_monotonic=run.start_monotonic, end_monotonic=run.end_monotonic, gaps=run.gaps, clock=run.clock,
        )
        for run in contents.runs
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- stored columns


V = TypeVar("V")


class _StoredMapping(Mapping[Portable, V]):
    """Keys and values in the order of the file. Looking one up reads all of them to memory."""

    def __init__(self, blocks: Blocks, tables: TablesReader, key: Type | None, value: Type) -> None:
        self._blocks = blocks
        self._tables = tables
        self._key = key
        self._value = value
        self._known: dict[Portable, V] | None = None

    def _keys(self, parts: Any, count: int) -> list[Portable]:
        return _keys(self._tables, self._key, parts, count)

    def _values(self, parts: Any, count: int) -> list[V]:
        raise NotImplementedError

    def pairs(self) -> Iterator[tuple[Portable, V]]:
        """Keys with their values."""

        def unpack(parts: Any, count: int) -> list[tuple[Portable, V]]:
            return list(zip(self._keys(parts, count), self._values(parts, count), strict=True))

        return chain.from_iterable(self._blocks.read(unpack))

    def __len__(self) -> int:
        return self._blocks.rows

    def __iter__(self) -> Iterator[Portable]:
        return chain.from_iterable(self._blocks.read(self._keys))

    def items(self) -> ItemsView[Portable, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __getitem__(self, key: Portable) -> V:
        if self._known is None:
            self._known = dict(self.pairs())
        return self._known[key]


class _Items(ItemsView[Portable, V]):
    _mapping: _StoredMapping[V]

    def __iter__(self) -> Iterator[tuple[Portable, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    _mapping: _StoredMapping[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.pairs())


class StoredEntries(_StoredMapping[Value]):
    """Entries of a map."""

    def _values(self, parts: Any, count: int) -> list[Value]:
        return columns.unpack(self._tables, self._value, parts[self._key is not None], count)


class StoredTimes(_StoredMapping[int]):
    """Times of the keys of a map that have one of their own: those of the others are negative in the file."""

    def _values(self, parts: Any, count: int) -> list[int]:
        times: list[int] = parts[-1].values(count)
        return times

    def pairs(self) -> Iterator[tuple[Portable, int]]:
        """Keys with their times."""
        return ((key, time) for key, time in super().pairs() if time >= 0)

    def __len__(self) -> int:
        return sum(1 for _ in self.pairs())

    def __iter__(self) -> Iterator[Portable]:
        return (key for key, _ in self.pairs())


def _keys(tables: TablesReader, key: Type | None, parts: Any, count: int) -> list[Portable]:
    """The keys of entries, which are in the first of their columns."""
    if key is None:
        return [None] * count
    return cast("list[Portable]", columns.unpack(tables, key, parts[0], count))


class StoredRows(Collection[tuple[Portable, ...]]):
    """Rows of a table."""

    def __init__(self, blocks: Blocks, tables: TablesReader, type_: Record) -> None:
        self._blocks = blocks
        self._tables = tables
        self._type = type_

    def _rows(self, parts: Any, count: int) -> list[tuple[Portable, ...]]:
        return cast("list[tuple[Portable, ...]]", columns.unpack(self._tables, self._type, parts, count))

    def __len__(self) -> int:
        return self._blocks.rows

    def __iter__(self) -> Iterator[tuple[Portable, ...]]:
        return chain.from_iterable(self._blocks.read(self._rows))

    def __contains__(self, row: object) -> bool:
        return any(row == item for item in self)


# ---------------------------------------------------------------------------------------------- prints


def _entry_columns(tables: TablesWriter, data: MapData, entries: Sequence[tuple[Portable, Value]]) -> list[Column]:
    """The columns of keys (not of a map without keys) and values."""
    stored: list[Column] = []
    if data.key is not None:
        stored.append(columns.pack(tables, data.key, [key for key, _ in entries]))
    stored.append(columns.pack(tables, data.value, [value for _, value in entries]))
    return stored


def _entry_forms(key: Type | None, value: Type) -> list[Form]:
    """The types that msgspec decodes these columns as."""
    return [columns.form(type_) for type_ in (key, value) if type_ is not None]


def stored_prints(tables: TablesWriter, snapshot: SnapshotData) -> tuple[StoredPrint, ...]:
    """The prints of a snapshot in the form of the document."""
    numbers = {name: number for number, name in enumerate(snapshot.maps)}
    stored = []
    for item in snapshot.prints:
        parts = _entry_columns(tables, snapshot.maps[item.map], list(item.entries.items()))
        encoded = msgspec.Raw(msgspec.msgpack.encode(parts))
        number = numbers[item.map]
        stored.append(StoredPrint(number, item.time, item.cleared, item.number, len(item.entries), encoded))
    return tuple(stored)


class StoredPrint(msgspec.Struct, frozen=True):
    """What was printed of a map, which is given by its number in the document."""

    map: int
    time: int
    cleared: bool
    number: int
    rows: int
    columns: msgspec.Raw

    def read(self, tables: TablesReader, maps: Sequence[MapData]) -> Print:
        """What was printed.

        Raises:
            ValueError, LookupError: it is damaged.
        """
        if not 0 <= self.map < len(maps):
            raise ValueError(f"a print of map {self.map}, which there is not")
        data = maps[self.map]
        # Every value takes at least a byte.
        if not 0 <= self.rows <= (1 if data.key is None else len(memoryview(self.columns))):
            raise ValueError(f"a print of {data.name} has {self.rows} rows")
        parts = msgspec.msgpack.decode(self.columns, type=tuple_of(_entry_forms(data.key, data.value)))
        keys = _keys(tables, data.key, parts, self.rows)
        values = columns.unpack(tables, data.value, parts[-1], self.rows)
        return Print(data.name, self.time, dict(zip(keys, values, strict=True)), self.cleared, self.number)


# ---------------------------------------------------------------------------------------------- stored types


MOST_BYTES = 4 << 20
"""Of a stored type; that of the largest struct of the kernel takes a tenth."""

_MOST_BUCKETS = 1 << 14
"""Of a histogram; scripts can have 1,921."""
_MOST_INTERVALS = 1_000_000
"""Of a time series, as in scripts."""
_MOST_ELEMENTS = 1 << 16
"""Of an array: values of maps have at most 32 KiB for each CPU, and are printed at once."""
MOST_DIGITS = 9
"""Of a decimal number, as in scripts."""


def type_to(type_: types.Type | None) -> msgspec.Raw:
    """The stored form of a type: what msgspec makes of it, the texts as bytes."""
    data = None if type_ is None else _each(msgspec.to_builtins(types.settled(type_)), str, raw)
    return msgspec.Raw(msgspec.msgpack.encode(data))


def type_from(stored: msgspec.Raw, *, key: bool = False) -> types.Type | None:
    """The type that was stored, None for that of the keys of a map without keys.

    Raises:
        ValueError: it is none, or larger than a script can have it.
    """
    size = len(memoryview(stored))
    if size > MOST_BYTES:
        raise ValueError(f"a type of {size} bytes")
    data = _each(msgspec.msgpack.decode(stored), bytes, text)
    if data is None and key:
        return None
    try:
        type_ = types.decoded(types.Type, data)
    except msgspec.ValidationError as error:
        raise ValueError(f"a type is damaged: {error}") from error
    for part in types.parts((type_,)):
        if isinstance(part, _MAPPINGS) and (key or part is not type_):
            raise ValueError("a histogram or time series stands where none can be")
        if isinstance(part, types.Record) and len(part.names) != len(part.members):
            raise ValueError("the names of a record are not those of its members")
        _check_sizes(part)
    return type_


_MAPPINGS = (types.Hist, types.LHist, types.TSeries)
"""Types whose values cannot be keys, or members of tuples."""


def _each(data: Any, kind: type[Any], change: Any) -> Any:
    """Data of a type with all texts changed."""
    if isinstance(data, list | tuple):
        return [_each(item, kind, change) for item in data]
    return change(data) if isinstance(data, kind) else data


def _check_sizes(type_: types.Type) -> None:
    if isinstance(type_, types.Hist) and not 0 <= type_.bits < 64:
        raise ValueError(f"a histogram of {type_.bits} bits")
    if isinstance(type_, types.LHist) and type_.step < 1:
        raise ValueError(f"a histogram in steps of {type_.step}")
    if isinstance(type_, types.Hist | types.LHist) and not 0 < type_.buckets <= _MOST_BUCKETS:
        raise ValueError(f"a histogram of {type_.buckets} buckets")
    if isinstance(type_, types.TSeries) and not (0 < type_.count <= _MOST_INTERVALS and type_.interval > 0):
        raise ValueError(f"a time series of {type_.count} intervals")
    if isinstance(type_, types.Array) and not 0 <= type_.count <= _MOST_ELEMENTS:
        raise ValueError(f"an array of {type_.count} elements")
    if isinstance(type_, types.Fixed) and not (0 <= type_.digits <= MOST_DIGITS and type_.divisor > 0):
        raise ValueError(f"decimal numbers of {type_.digits} digits")
