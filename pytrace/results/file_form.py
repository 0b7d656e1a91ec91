"""Snapshots as files: docs/snapshots.md describes the form.

A fixed header (mark, version, digest), and behind it one MessagePack document, compressed with Zstandard. The library
for that is imported when a snapshot is written or read, and not before.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from typing import BinaryIO, cast

from msgspec.structs import replace

from pytrace.base import whole_files
from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import message_pack, stored_document
from pytrace.results.columns import Reader, Writer, keys, pack_integers
from pytrace.results.message_pack import Cursor, Kind, Packed, Pages, Unpacked, cursors
from pytrace.results.snapshot import MapData, Run, SnapshotData, Table
from pytrace.results.stored_columns import Guard, Stored, StoredEntries, StoredRows, StoredTimes, integers
from pytrace.results.stored_types import type_from
from pytrace.results.values import Portable

SUFFIX = ".pts"
"""What names of snapshot files end with."""

MARK = b"\x89PTS\r\n\x1a\n"
"""The first bytes of a file. A transfer as text damages them, so that it is found out at once."""

VERSION = 1
"""Of the form. It grows when an older reader would misunderstand; readers ignore members that they do not know."""

_HEADER = struct.Struct("<8sHH32sQ")
"""Mark, version, zero, SHA-256 of all after the header, bytes of the document."""

_LEVEL = 3

_RUN = Run.__struct_fields__

_DAMAGE = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, struct.error)
"""What reading a document raises that no version of pytrace wrote."""


def to_bytes(snapshot: SnapshotData) -> bytes:
    """The file form of a snapshot."""
    import zstandard

    packed = message_pack.pack(_document(snapshot))
    data = zstandard.ZstdCompressor(level=_LEVEL).compress(packed)
    return _HEADER.pack(MARK, VERSION, 0, hashlib.sha256(data).digest(), len(packed)) + data


def write(snapshot: SnapshotData, path: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    data = to_bytes(snapshot)
    with whole_files.replacing(path) as place, open(place, "wb") as file:
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


@contextmanager
def opened(path: str, limit: int | None = None) -> Iterator[SnapshotData]:
    """As :func:`read`, but entries of maps and rows of tables are read from the file each time that they are gone
    through (:mod:`pytrace.results.stored_columns`), as long as the block lasts.
    """
    with ExitStack() as stack:
        try:
            file: BinaryIO = stack.enter_context(open(path, "rb"))
            size = os.fstat(file.fileno()).st_size
            head = file.read(len(MARK))
            if head == MARK and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                rest = file.read()
                file, size = BytesIO(rest), len(MARK) + len(rest)
            snapshot = _opened(file, head, size, path, limit, stack)
        except OSError as error:
            raise TraceError(f"cannot read {path!r}: {error.strerror}") from None
        yield snapshot


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
            raise _damaged(name, "its first bytes are not those of a snapshot")
        hint = "snapshots are written by pytrace --save, --save-every and pytrace merge"
        raise TraceError(f"{name!r} is not a snapshot", hints=(hint,))
    head = mark + file.read(_HEADER.size - len(mark))
    if len(head) < _HEADER.size:
        raise _damaged(name, f"it has {len(head)} bytes, less than its header")
    _, version, _, digest, length = _HEADER.unpack(head)
    if version != VERSION:
        raise TraceError(
            f"{name!r} has version {version} of the snapshot form; this pytrace reads version {VERSION}",
            hints=("read it with the pytrace that wrote it, or a newer one",),
        )
    stored_document.check_size(length, size - _HEADER.size, limit, name)
    with _guarded(name):
        return _snapshot(stored_document.unpacked(file, length, digest, stack), partial(_guarded, name))


@contextmanager
def _guarded(name: str) -> Iterator[None]:
    """Damage that is found in the block is reported as such."""
    try:
        yield
    except _DAMAGE as error:
        raise _damaged(name, str(error) or type(error).__name__) from None


def _damaged(name: str, why: str) -> TraceError:
    return TraceError(f"the snapshot {name!r} is damaged or truncated: {why}")


def _whole(snapshot: SnapshotData, name: str) -> SnapshotData:
    """A snapshot that was opened, in memory."""
    maps = {}
    for data in snapshot.maps.values():
        entries = dict(data.entries.items())
        if len(entries) != len(data.entries):
            raise _damaged(name, f"map {data.name} has {len(entries)} keys instead of {len(data.entries)}")
        times = None if data.times is None else dict(data.times.items())
        maps[data.name] = replace(data, entries=entries, times=times)
    tables = [replace(table, rows={run: list(rows) for run, rows in table.rows.items()}) for table in snapshot.tables]
    return replace(snapshot, maps=maps, tables=tuple(tables))


# ---------------------------------------------------------------------------------------------- to a document


def _document(snapshot: SnapshotData) -> dict[str, Packed]:
    writer = Writer()
    numbers = {run.identity: number for number, run in enumerate(snapshot.runs)}
    document: dict[str, Packed] = {
        "runs": [{name: getattr(run, name) for name in _RUN} for run in snapshot.runs],
        "maps": [_map_document(writer, data) for data in snapshot.maps.values()],
        "tables": [_table_document(writer, numbers, table) for table in snapshot.tables],
        "losses": snapshot.losses,
    }
    return {**document, **writer.tables()}


def _map_document(writer: Writer, data: MapData) -> dict[str, Packed]:
    document: dict[str, Packed] = {
        "name": data.name,
        "key": None if data.key is None else _type(data.key),
        "value": _type(data.value),
        "count": len(data.entries),
        "keys": None if data.key is None else writer.column(data.key, list(data.entries)),
        "values": writer.column(data.value, list(data.entries.values())),
        "help": data.help,
    }
    if data.times is not None:
        times = data.times
        # A time that a key lacks is that of the snapshot's end: the mark for it is -1.
        document["times"] = pack_integers([times.get(key, -1) for key in data.entries])
    return document


def _type(type_: types.Type) -> Packed:
    return cast(Packed, types.to_data(type_))


def _table_document(writer: Writer, numbers: dict[str, int], table: Table) -> dict[str, Packed]:
    return {
        "type": _type(table.type),
        "runs": [numbers[run] for run in table.rows],
        "rows": [writer.column(table.type, list(rows)) for rows in table.rows.values()],
        "dropped": table.dropped,
        "number": table.number,
    }


# ---------------------------------------------------------------------------------------------- from a document

def _snapshot(pages: Pages, guard: Guard) -> SnapshotData:
    places = Cursor(pages).members()
    reader = Reader(pages, places)
    same: dict[str, str] = {}
    runs = tuple(_run(cursor, same) for cursor in cursors(pages, places["runs"]))
    maps = [_map(reader, cursor, guard) for cursor in cursors(pages, places["maps"])]
    tables = tuple(_table(reader, runs, cursor, guard) for cursor in cursors(pages, places["tables"]))
    losses = {
        kind: {subject: _integer(count) for subject, count in _named(subjects).items()}
        for kind, subjects in _named(Cursor(pages, places["losses"]).value()).items()
    }
    return SnapshotData(runs, {data.name: data for data in maps}, tables, losses)


def _text(value: Unpacked) -> str:
    if type(value) is not str:
        raise ValueError("a text is missing")
    return value


def _integer(value: Unpacked) -> int:
    if type(value) is not int:
        raise ValueError("a number is missing")
    return value


def _named(value: Unpacked) -> dict[str, Unpacked]:
    if not isinstance(value, dict):
        raise ValueError("a map of names is missing")
    return value


def _listed(value: Unpacked) -> list[Unpacked]:
    if not isinstance(value, list):
        raise ValueError("a list is missing")
    return value


def _run(cursor: Cursor, same: dict[str, str]) -> Run:
    """A run; of equal texts in *same*, which many runs of a script on a host have, one is kept."""
    found = _named(cursor.value())

    def text(value: Unpacked) -> str:
        return same.setdefault(_text(value), _text(value))

    return Run(
        identity=_text(found["identity"]),
        host=text(found["host"]),
        kernel=text(found["kernel"]),
        machine=text(found["machine"]),
        script=text(found["script"]),
        script_hash=text(found["script_hash"]),
        parameters=tuple(map(text, _listed(found["parameters"]))),
        start=_integer(found["start"]),
        end=_integer(found["end"]),
        start_monotonic=_integer(found["start_monotonic"]),
        end_monotonic=_integer(found["end_monotonic"]),
        version=text(found["version"]),
    )


def _map(reader: Reader, cursor: Cursor, guard: Guard) -> MapData:
    pages, places = cursor.pages, cursor.members()

    def at(name: str) -> Cursor:
        return Cursor(pages, places[name])

    name, stored_key = at("name").text(), at("key").value()
    key = None if stored_key is None else type_from(stored_key)
    value = type_from(at("value").value())
    values = reader.column(value, at("values"))
    if key is None:
        names: Stored[Portable] = Stored(min(1, values.count), lambda _size: iter([[None]] * values.count))
    else:
        names = keys(reader.column(key, at("keys")))
    count = at("count").expect(Kind.INTEGER)
    if not names.count == values.count == count:
        raise ValueError(f"map {name} has {names.count} keys and {values.count} values instead of {count}")
    data = MapData(name, key, value, StoredEntries(names, values, guard), None, at("help").text())
    if "times" in places:
        times = integers(at("times"))
        if times.count != count:
            raise ValueError(f"map {name} has {times.count} times for {count} keys")
        data.times = StoredTimes(names, times, guard)
    return data


def _table(reader: Reader, runs: tuple[Run, ...], cursor: Cursor, guard: Guard) -> Table:
    found = cursor.members()
    pages = cursor.pages
    type_ = type_from(Cursor(pages, found["type"]).value())
    if not isinstance(type_, types.Record):
        raise ValueError("the columns of a table are no record")
    numbers = map(_integer, _listed(Cursor(pages, found["runs"]).value()))
    names = [runs[number].identity for number in numbers if number >= 0]
    rows = [StoredRows(reader.rows(type_, column), guard) for column in cursors(pages, found["rows"])]
    dropped, number = (Cursor(pages, found[name]).expect(Kind.INTEGER) for name in ("dropped", "number"))
    return Table(type_, dict(zip(names, rows, strict=True)), dropped, number)
