"""The document of a snapshot's file, decompressed to where it takes little memory, as far as its size is allowed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import ExitStack
from io import BytesIO
from typing import BinaryIO, cast

from pytrace.core.diagnostics import TraceError
from pytrace.results.message_pack import Memory, Pages

LEAST_LIMIT = 32 << 20
"""Bytes of a document that are read of any file."""
RATIO = 100
"""Of a larger document so many bytes are read for each byte of the file."""
IN_MEMORY = 8 << 20
"""Bytes of a document that are kept in memory; a larger one is in a temporary file."""

_CHUNK = 1 << 20
_MOST_WINDOW = 8 << 20
"""Bytes that decompression may look back; files are written with a quarter of that."""


class _File:
    """A document in an open file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._descriptor = file.fileno()
        self.size = size

    def read(self, start: int, size: int) -> bytes:
        """As :meth:`pytrace.results.message_pack.Pages.read`."""
        return os.pread(self._descriptor, size, start)


class _Hashed:
    """A file whose digest is made as it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self.digest.update(data)
        return data


def check_size(size: int, compressed: int, limit: int | None, name: str) -> None:
    """Refuse a document of *size* bytes in *compressed* ones that is larger than *limit* or, without one, than usual.

    Raises:
        TraceError: it is.
    """
    allowed = max(LEAST_LIMIT, RATIO * compressed) if limit is None else limit
    if size > allowed:
        hint = "--limit SIZE (4G, for example; limit= in Python) reads more, if you trust the file"
        raise TraceError(
            f"the snapshot {name!r} would unpack {compressed} bytes to {size}; {allowed} are read", hints=(hint,)
        )


def unpacked(file: BinaryIO, size: int, digest: bytes, opened: ExitStack) -> Pages:
    """The document of *size* bytes that the rest of a file holds, compressed; what it takes is closed by *opened*.

    Raises:
        ValueError: the digest or the size is not that of the content.
    """
    import zstandard

    source, target, written = _Hashed(file), _target(size, opened), 0
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
        with decompressor.stream_reader(cast(BinaryIO, source), read_size=_CHUNK, closefd=False) as stream:
            while written <= size and (part := stream.read(_CHUNK)):
                written += target.write(part)
        failure = "" if written == size else f"its content is not the {size} bytes that it should be"
    except zstandard.ZstdError as error:
        failure = str(error)
    while source.read(_CHUNK):
        pass
    if source.digest.digest() != digest:
        raise ValueError("its digest does not fit its content")
    if failure:
        raise ValueError(failure)
    target.flush()
    return Memory(target.getvalue()) if isinstance(target, BytesIO) else _File(target, size)


def _target(size: int, opened: ExitStack) -> BinaryIO:
    if size <= IN_MEMORY:
        return BytesIO()
    return opened.enter_context(tempfile.TemporaryFile(prefix="pytrace-"))
