"""Contents of ELF files as slices: mapped, or read where another user may truncate the file meanwhile.

Access to a page of a mapping that the file no longer has ends the process (``SIGBUS``, mmap(2)). So only files are
mapped that nobody but root and this user can change.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi.foreign_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHERS_WRITE = 0o022
_PIECE = 1 << 24


class ReadFile:
    """Part of an open file, read whenever a slice of it is taken; slices end where the file ends at that moment."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        """Keeps a duplicate of *descriptor* until :meth:`release`, or until nothing refers to this any more."""
        self._start = start
        self._size = size
        self._descriptor = os.dup(descriptor)
        self.release = weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> memoryview:
        start, end, _ = part.indices(self._size)
        return memoryview(b"".join(self._pieces(start, end)))

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            piece = os.pread(self._descriptor, min(end - start, _PIECE), self._start + start)
            if not piece:
                return
            yield piece
            start += len(piece)


Contents = memoryview | ReadFile


def open_contents(path: str, start: int = 0, size: int | None = None) -> Contents:
    """*size* bytes (all without it) of a regular file from *start* on.

    Raises:
        TraceError: the file is empty.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if not status.st_size:
            raise TraceError(f"{path} is empty")
        end = status.st_size if size is None else min(start + size, status.st_size)
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
            return ReadFile(file.fileno(), start, max(0, end - start))
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    return memoryview(mapped)[start:end]


def pieces(contents: Contents) -> Iterator[memoryview]:
    """All of it, a limited number of bytes at a time."""
    for start in range(0, len(contents), _PIECE):
        yield contents[start : start + _PIECE]
