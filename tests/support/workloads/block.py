"""Direct I/O of known sizes and places: each call is one request to the disk."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.workloads.storage import Disk

SECTOR = 512


@dataclass(frozen=True)
class Request:
    """One request: bytes from the start of the disk, bytes, and whether it writes."""

    offset: int
    size: int
    write: bool = False

    @property
    def sector(self) -> int:
        return self.offset // SECTOR


def sequential(count: int, size: int = 4096, write: bool = False, start: int = 0) -> list[Request]:
    """Requests one after the other: each begins where the one before it ends."""
    return [Request(start + number * size, size, write) for number in range(count)]


def scattered(count: int, size: int = 4096, write: bool = False) -> list[Request]:
    """Requests of which none begins where the one before it ends."""
    return [Request((count - number) * 2 * size, size, write) for number in range(count)]


def perform(disk: Disk, requests: Sequence[Request]) -> int:
    """Make each request with ``O_DIRECT``, one at a time; the bytes."""
    handle = os.open(disk.path, os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, max(request.size for request in requests)) as memory:  # aligned, as O_DIRECT wants it
        try:
            for request in requests:
                with memoryview(memory)[: request.size] as part:
                    move = os.pwritev if request.write else os.preadv
                    assert move(handle, [part], request.offset) == request.size
        finally:
            os.close(handle)
    return sum(request.size for request in requests)


def synchronize(path: str) -> None:
    """Write a page to a block device and fsync it, which flushes the device's cache."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.pwrite(handle, bytes(4096), 0)
        os.fsync(handle)
    finally:
        os.close(handle)
