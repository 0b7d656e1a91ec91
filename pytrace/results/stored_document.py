"""The document of a snapshot's file: decompressed to where it takes little memory, as far as its size is allowed, and
read block by block.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Annotated, Any, BinaryIO, TypeVar, cast

import msgspec

from pytrace.core.diagnostics import TraceError

LEAST_LIMIT = 8 << 20
"""Bytes of a document that are read of any file."""
RATIO = 100
"""Of a larger document so many bytes are read for each byte of the file."""
LEAST_ROWS = 1 << 20
"""Entries, rows, frames, stacks and texts that are read of any file: each takes 50 to 500 bytes of memory."""
_ROWS_RATIO = 4
"""Of a larger file so many are read for each of its bytes."""
IN_MEMORY = 8 << 20
"""Bytes of a document that are kept in memory; a larger one is in a temporary file."""

BLOCK_ROWS = 1 << 14
"""Rows of a block at most."""
BLOCK_BYTES = 1 << 20
"""Bytes of a block at most, unless it has one row."""

_CHUNK = 1 << 20
_MOST_WINDOW = 8 << 20
"""Bytes that decompression may look back; files are written with a quarter of that."""

_DAMAGE = (
    ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, msgspec.MsgspecError,
)  # fmt: skip
"""Errors from reading a damaged document; those of msgspec are no ValueErrors before 0.21."""

T = TypeVar("T")


class Block(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Some rows of a map or table."""

    rows: Annotated[int, msgspec.Meta(ge=1, le=BLOCK_ROWS)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    """Bytes."""


@contextmanager
def guarded(name: str, subject: str) -> Iterator[None]:
    """Report errors in the block as damage of the file *name*.

    Raises:
        TraceError: there is one.
    """
    try:
        yield
    except _DAMAGE as error:
        raise damaged(name, f"{subject}: {str(error) or type(error).__name__}") from None


def damaged(name: str, why: str) -> TraceError:
    """The error of a damaged file."""
    return TraceError(f"the snapshot {name!r} is damaged or truncated: {why}")


class Blocks(msgspec.Struct, frozen=True):
    """The blocks of one map or table, which are decoded each time that they are gone through."""

    file: str
    subject: str
    """File and subject as messages name them."""
    document: IO[bytes]
    start: int
    """Of the first in the document."""
    blocks: Sequence[Block]
    form: object
    """The type of their columns."""

    @property
    def rows(self) -> int:
        """Of all blocks."""
        return sum(block.rows for block in self.blocks)

    def read(self, unpack: Callable[[Any, int], list[T]]) -> Iterator[list[T]]:
        """The results of *unpack* for the columns of each block and the number of its rows.

        Raises:
            TraceError: a block is damaged.
        """
        decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self.form)
        start = self.start
        for number, block in enumerate(self.blocks, 1):
            with guarded(self.file, f"{self.subject}, block {number}"):
                if block.size > BLOCK_BYTES and block.rows > 1:
                    raise ValueError(f"{block.size} bytes of {block.rows} rows")
                self.document.seek(start)
                values = unpack(decoder.decode(self.document.read(block.size)), block.rows)
            yield values
            start += block.size


class BlocksWriter:
    """A document while it is written: compressed, block by block."""

    def __init__(self, level: int) -> None:
        import zstandard

        self.size = 0
        """Bytes of the document until now."""
        self._compressor = zstandard.ZstdCompressor(level=level).compressobj()
        self._parts: list[bytes] = []

    def add(self, data: bytes) -> int:
        """Append to the document; the number of bytes."""
        self._parts.append(self._compressor.compress(data))
        self.size += len(data)
        return len(data)

    def blocks(self, rows: Sequence[T], pack: Callable[[Sequence[T]], object]) -> Iterator[Block]:
        """Write rows, whose columns *pack* makes: one block, or several where it would be too large."""
        data = msgspec.msgpack.encode(pack(rows))
        if len(data) > BLOCK_BYTES and len(rows) > 1:
            half = len(rows) // 2
            yield from self.blocks(rows[:half], pack)
            yield from self.blocks(rows[half:], pack)
        else:
            yield Block(len(rows), self.add(data))

    def compressed(self) -> bytes:
        """All of it; the last thing to ask for."""
        return b"".join((*self._parts, self._compressor.flush()))


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
    _check(size, allowed, f"would unpack {compressed} bytes to {size}", name)


def check_rows(rows: int, compressed: int, limit: int | None, name: str) -> None:
    """Refuse a file with more *rows* than its size makes likely; with a *limit* each byte of it may be one.

    Raises:
        TraceError: it has.
    """
    allowed = max(LEAST_ROWS, _ROWS_RATIO * compressed) if limit is None else limit
    _check(rows, allowed, f"has {rows} rows in {compressed} bytes", name)


def _check(number: int, allowed: int, what: str, name: str) -> None:
    if number > allowed:
        hint = "--limit SIZE (4G, for example; limit= in Python) reads more, if you trust the file"
        raise TraceError(f"the snapshot {name!r} {what}; {allowed} are read", hints=(hint,))


def unpacked(file: BinaryIO, size: int, digest: bytes, opened: ExitStack) -> IO[bytes]:
    """The document of *size* bytes that the rest of a file holds, compressed; what it takes is closed by *opened*.

    Raises:
        ValueError: the digest or the size is not that of the content.
    """
    import zstandard

    source, written = _Hashed(file), 0
    target = opened.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY, prefix="pytrace-"))  # noqa: SIM115 - closed by it
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
    return target
