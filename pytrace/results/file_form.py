"""Snapshots as files: docs/snapshots.md describes the form.

A fixed header (mark, version, digest), and behind it one MessagePack document, compressed with Zstandard. The libraries
for both are imported when a snapshot is written or read, and not before.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from pytrace.base import whole_files
from pytrace.base.fast_dataclass import fields
from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.columns import Column, Reader, Writer, keys, listed, named, pack_integers, unpack_integers
from pytrace.results.snapshot import MapData, Run, SnapshotData, Table
from pytrace.results.values import Portable

SUFFIX = ".pts"
"""What names of snapshot files end with."""

MARK = b"\x89PTS\r\n\x1a\n"
"""The first bytes of a file. A transfer as text damages them, so that it is found out at once."""

VERSION = 1
"""Of the form. It grows when an older reader would misunderstand; readers ignore members that they do not know."""

LARGEST = 1 << 32
"""Bytes of the largest document that is read: what claims to be longer is refused before anything is made of it."""

_HEADER = struct.Struct("<8sHH32sQ")
"""Mark, version, zero, SHA-256 of all after the header, bytes of the document."""

_LEVEL = 3
_CHUNK = 1 << 20

_RUN = tuple(item.name for item in fields(Run))

_DAMAGE = (ValueError, LookupError, TypeError, OverflowError, AttributeError, RecursionError, struct.error)
"""What reading a document raises that no version of pytrace wrote."""


def to_bytes(snapshot: SnapshotData) -> bytes:
    """The file form of a snapshot."""
    import msgpack
    import zstandard

    packed: bytes = msgpack.packb(_document(snapshot), unicode_errors="surrogateescape")
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


def read(path: str) -> SnapshotData:
    """The snapshot that a file holds.

    Raises:
        TraceError: the file cannot be read, is no snapshot, is damaged, or comes from a newer pytrace.
    """
    try:
        with open(path, "rb") as file:
            # Of what is no snapshot, perhaps without an end, no more is read.
            head = file.read(len(MARK))
            return from_bytes(head + file.read() if head == MARK else head, path)
    except OSError as error:
        raise TraceError(f"cannot read {path!r}: {error.strerror}") from None


def from_bytes(data: bytes, name: str) -> SnapshotData:
    """The snapshot that the bytes of a file hold; *name* is for messages.

    Raises:
        TraceError: as :func:`read`.
    """
    if not data.startswith(MARK):
        if MARK.startswith(data[: len(MARK)]) or data[1:4] == MARK[1:4]:
            raise _damaged(name, "its first bytes are not those of a snapshot")
        hint = "snapshots are written by pytrace --save, --save-every and pytrace merge"
        raise TraceError(f"{name!r} is not a snapshot", hints=(hint,))
    if len(data) < _HEADER.size:
        raise _damaged(name, f"it has {len(data)} bytes, less than its header")
    _, version, _, digest, size = _HEADER.unpack_from(data)
    if version != VERSION:
        raise TraceError(
            f"{name!r} has version {version} of the snapshot form; this pytrace reads version {VERSION}",
            hints=("read it with the pytrace that wrote it, or a newer one",),
        )
    compressed = memoryview(data)[_HEADER.size :]
    if hashlib.sha256(compressed).digest() != digest:
        raise _damaged(name, "its digest does not fit its content")
    if size > LARGEST:
        raise _damaged(name, f"it claims to hold {size} bytes, more than the {LARGEST} that are read")
    try:
        return _snapshot(_unpacked(compressed, size))
    except _DAMAGE as error:
        raise _damaged(name, str(error) or type(error).__name__) from None


def _damaged(name: str, why: str) -> TraceError:
    return TraceError(f"the snapshot {name!r} is damaged or truncated: {why}")


def _unpacked(compressed: memoryview, size: int) -> dict[str, Column]:
    """The document; memory is taken as its content needs it, whatever sizes are claimed."""
    import msgpack
    import zstandard

    packed = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(compressed) as stream:
            while len(packed) <= size and (part := stream.read(_CHUNK)):
                packed += part
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(packed) != size:
        raise ValueError(f"its content is not the {size} bytes that it should be")
    try:
        return named(msgpack.unpackb(packed, unicode_errors="surrogateescape", strict_map_key=True))
    except (msgpack.UnpackException, msgpack.StackError) as error:
        raise ValueError(str(error) or "no MessagePack") from None


# ---------------------------------------------------------------------------------------------- to a document


def _document(snapshot: SnapshotData) -> dict[str, object]:
    writer = Writer()
    numbers = {run.identity: number for number, run in enumerate(snapshot.runs)}
    document: dict[str, object] = {
        "runs": [{name: getattr(run, name) for name in _RUN} for run in snapshot.runs],
        "maps": [_map_document(writer, data) for data in snapshot.maps.values()],
        "tables": [_table_document(writer, numbers, table) for table in snapshot.tables],
        "losses": snapshot.losses,
    }
    return {**document, **writer.tables()}


def _map_document(writer: Writer, data: MapData) -> dict[str, object]:
    document: dict[str, object] = {
        "name": data.name,
        "key": None if data.key is None else types.to_data(data.key),
        "value": types.to_data(data.value),
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


def _table_document(writer: Writer, numbers: dict[str, int], table: Table) -> dict[str, object]:
    return {
        "type": types.to_data(table.type),
        "runs": [numbers[run] for run in table.rows],
        "rows": [writer.column(table.type, rows) for rows in table.rows.values()],
        "dropped": table.dropped,
        "number": table.number,
    }


# ---------------------------------------------------------------------------------------------- from a document


def _snapshot(document: dict[str, Column]) -> SnapshotData:
    reader = Reader(document)
    runs = tuple(_run(named(found)) for found in listed(document["runs"]))
    maps = [_map(reader, named(found)) for found in listed(document["maps"])]
    tables = tuple(_table(reader, runs, named(found)) for found in listed(document["tables"]))
    losses = {
        _text(kind): {_text(subject): _integer(count) for subject, count in named(subjects).items()}
        for kind, subjects in named(document["losses"]).items()
    }
    return SnapshotData(runs, {data.name: data for data in maps}, tables, losses)


def _text(value: Column) -> str:
    if type(value) is not str:
        raise ValueError("a text is missing")
    return value


def _integer(value: Column) -> int:
    if type(value) is not int:
        raise ValueError("a number is missing")
    return value


def _run(found: dict[str, Column]) -> Run:
    return Run(
        identity=_text(found["identity"]),
        host=_text(found["host"]),
        kernel=_text(found["kernel"]),
        machine=_text(found["machine"]),
        script=_text(found["script"]),
        script_hash=_text(found["script_hash"]),
        parameters=tuple(map(_text, listed(found["parameters"]))),
        start=_integer(found["start"]),
        end=_integer(found["end"]),
        start_monotonic=_integer(found["start_monotonic"]),
        end_monotonic=_integer(found["end_monotonic"]),
        version=_text(found["version"]),
    )


def _map(reader: Reader, found: dict[str, Column]) -> MapData:
    name = _text(found["name"])
    key = None if found["key"] is None else types.from_data(listed(found["key"]))
    value = types.from_data(listed(found["value"]))
    values = reader.column(value, found["values"])
    names: Sequence[Portable] = [None] * min(1, len(values)) if key is None else keys(reader.column(key, found["keys"]))
    entries = dict(zip(names, values, strict=True))
    if len(entries) != (count := _integer(found["count"])):
        raise ValueError(f"map {name} has {len(entries)} keys instead of {count}")
    data = MapData(name, key, value, entries, None, _text(found["help"]))
    if "times" in found:
        times = zip(names, unpack_integers(found["times"]), strict=True)
        data.times = {name: time for name, time in times if time >= 0}
    return data


def _table(reader: Reader, runs: tuple[Run, ...], found: dict[str, Column]) -> Table:
    type_ = types.from_data(listed(found["type"]))
    if not isinstance(type_, types.Record):
        raise ValueError("the columns of a table are no record")
    names = [runs[_integer(number)].identity for number in listed(found["runs"])]
    rows = [reader.rows(type_, column) for column in listed(found["rows"])]
    by_run = dict(zip(names, rows, strict=True))
    return Table(type_, by_run, _integer(found["dropped"]), _integer(found["number"]))
