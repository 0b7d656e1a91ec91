"""Known calls on files, made by this process in a folder of the caller."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PAGE = mmap.PAGESIZE
DATA = b"x"


@dataclass(frozen=True)
class Made:
    """What was done: files in their order, and how much was written to and read from them."""

    files: tuple[Path, ...]
    sizes: tuple[int, ...] = ()
    calls: int = 0
    """Calls of ``read`` or ``write``, one for each file."""

    @property
    def bytes(self) -> int:
        return sum(self.sizes)


def create(folder: Path, sizes: Sequence[int], prefix: str = "file") -> Made:
    """A file for each size, written with one call of ``write`` each (none for size 0)."""
    files = tuple(folder / f"{prefix}{number}" for number in range(len(sizes)))
    for path, size in zip(files, sizes, strict=True):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        if size:
            assert os.write(handle, DATA * size) == size
        os.close(handle)
    return Made(files, tuple(sizes), sum(size > 0 for size in sizes))


def read(made: Made) -> Made:
    """Open, read with one call, and close each file."""
    for path, size in zip(made.files, made.sizes, strict=True):
        handle = os.open(path, os.O_RDONLY)
        if size:
            assert len(os.read(handle, size)) == size
        os.close(handle)
    return made


def rename(made: Made, suffix: str = ".new") -> Made:
    """Rename each file."""
    files = tuple(path.with_name(path.name + suffix) for path in made.files)
    for old, new in zip(made.files, files, strict=True):
        os.rename(old, new)
    return Made(files, made.sizes, made.calls)


def unlink(made: Made) -> Made:
    """Remove each file."""
    for path in made.files:
        os.unlink(path)
    return made


def open_some(folder: Path, good: int, missing: int) -> tuple[list[tuple[str, int]], list[str]]:
    """Open *good* files that are there and *missing* ones that are not; paths with descriptors, and paths."""
    opened = []
    for path in create(folder, [0] * good, "good").files:
        handle = os.open(path, os.O_RDONLY)
        opened.append((str(path), handle))
        os.close(handle)
    absent = [str(folder / f"missing{number}") for number in range(missing)]
    for name in absent:
        with suppress(FileNotFoundError):
            os.open(name, os.O_RDONLY)
    return opened, absent


def stat(folder: Path, good: int, missing: int) -> tuple[list[str], list[str]]:
    """``stat`` paths that are there and such that are not: directory look-ups that hit and that miss.

    Each name is looked up once: the second look-up of a missing one would be answered by its negative entry.
    """
    present = [str(path) for path in create(folder, [0] * good, "there").files]
    absent = [str(folder / f"absent{number}") for number in range(missing)]
    for name in (*present, *absent):
        with suppress(FileNotFoundError):
            os.stat(name)
    return present, absent


# ------------------------------------------------------------------------------------------------ page cache


def pages(path: Path, count: int) -> None:
    """A file of that many pages, on disk and not in the page cache."""
    with path.open("wb", buffering=0) as file:
        file.write(DATA * PAGE * count)
        os.fsync(file.fileno())
    drop(path)


def drop(path: Path) -> None:
    """Take the clean pages of a file out of the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_pages(path: Path) -> int:
    """Read a file page by page; how many there were. The first time after :func:`drop` they come from the disk."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return sum(1 for _ in iter(lambda: file.read(PAGE), b""))


def dirty_pages(path: Path, count: int) -> None:
    """Write that many pages of a file one by one, and leave it to others to write them to the disk."""
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(DATA * PAGE)


def synchronize(path: Path, times: int = 1) -> None:
    """Write a byte and call ``fsync``, that often."""
    with path.open("ab", buffering=0) as file:
        for _ in range(times):
            file.write(DATA)
            os.fsync(file.fileno())


def sync_calls(path: Path) -> list[str]:
    """Call ``sync``, ``fsync``, ``fdatasync`` and ``syncfs`` once each; their names in that order."""
    with path.open("ab", buffering=0) as file:
        file.write(DATA)
        os.sync()
        os.fsync(file.fileno())
        os.fdatasync(file.fileno())
        assert ctypes.CDLL(None).syncfs(file.fileno()) == 0
    return ["sync", "fsync", "fdatasync", "syncfs"]
