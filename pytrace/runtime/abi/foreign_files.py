"""Files at paths that another user may have chosen: of traced programs, of containers, in ``/tmp``.

All readers of such files open them here (``tests/test_layering.py`` looks for others).

Access to a page of a mapping that the file no longer has ends the process (``SIGBUS``, mmap(2)). So only files are
mapped that nobody but root and this user can change; others are read.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import re
import stat
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi.syscalls import file_system_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

_IN_ROOT = re.compile(r"(/proc/\d+/root)/+(.+)")
_MOST_LINKS = 40
"""As many as the kernel follows (``MAXSYMLINKS``)."""

_OF_THE_KERNEL = frozenset((
    0x9FA0,  # proc
    0x62656572, 0x62656570,  # sysfs, configfs
    0x74726163, 0x64626720,  # tracefs, debugfs
    0x73636673, 0xF97CFF8C, 0x43415D53, 0x5A3C69F0,  # securityfs, selinuxfs, smackfs, apparmorfs
    0x27E0EB, 0x63677270, 0x7655821,  # cgroup, cgroup2, resctrl
    0xCAFE4A11,  # bpf
    0x6165676C, 0xDE5E81E4,  # pstore, efivarfs
    0x42494E4D, 0x65735543, 0x6C6F6F70,  # binfmt_misc, fusectl, binder
    0x19800202, 0x1CD1,  # mqueue, devpts
    0x6E736673, 0x50494446, 0x50495045, 0x534F434B, 0x9041934,  # nsfs, pidfs, pipefs, sockfs, anonymous inodes
    0x444D4142, 0x5345434D, 0x454D444D,  # dma_buf, secretmem, devmem
    0x67596969, 0x6E667364,  # rpc_pipefs, nfsd
    0x9FA1, 0x9FA2, 0xABBA1974,  # openprom, usbdevice, xenfs
))  # fmt: skip
"""File systems whose files are the kernel's answers (``include/uapi/linux/magic.h`` and ``fs/*``).

Many of those are regular files by ``fstat``, of no size, and reading has an effect, or waits for ever (``trace_pipe``).
"""


def open_regular(path: str, flags: int = 0) -> BinaryIO:
    """A regular file, opened to read with further *flags* of ``open``; no more is read than it has when it is opened.

    Nothing else is opened: opening a pipe waits for a writer, and opening a device can have an effect. What is judged
    is the file that was reached, by whatever path. Symbolic links of a path below ``/proc/PID/root`` are resolved
    inside of that root, as that process resolves them.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    descriptor = _found(path, flags & os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if file_system_type(descriptor) in _OF_THE_KERNEL:
            raise OSError(errno.EINVAL, "a file of the kernel, which is not read for others", path)
        return io.BufferedReader(_Sized(f"/proc/self/fd/{descriptor}", status.st_size))
    except BlockingIOError:
        raise OSError(errno.EAGAIN, "another process holds a lease of it", path) from None
    finally:
        os.close(descriptor)


class _Sized(io.FileIO):
    """A file that ends where its size says, though a file system may go on (that of a user, FUSE)."""

    def __init__(self, path: str, size: int) -> None:
        # A lease that its owner does not give up (F_SETLEASE in fcntl(2)) holds others up for 45 seconds.
        super().__init__(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        self._size = size

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        room = memoryview(buffer).cast("B")
        return super().readinto(room[: max(0, self._size - self.tell())])

    def readall(self) -> bytes:
        parts = []
        while part := self.read(min(_PIECE, max(0, self._size - self.tell()))):
            parts.append(part)
        return b"".join(parts)


@contextmanager
def kernel_path(path: str) -> Iterator[str]:
    """A path by which the kernel finds the same file as :func:`open_regular`, for the time of the block.

    The kernel follows links of a path below ``/proc/PID/root`` to files of our own root, so that whoever can change
    them would choose where a probe is put.

    Raises:
        OSError: there is no such file.
    """
    if _IN_ROOT.fullmatch(path) is None:
        yield path
        return
    descriptor = _found(path, 0)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _found(path: str, flags: int) -> int:
    """The file itself, not opened for anything (``O_PATH``)."""
    flags |= os.O_PATH | os.O_CLOEXEC
    match = _IN_ROOT.fullmatch(path)
    if match is None:
        return os.open(path, flags)
    try:
        return _inside(match[1], match[2], flags)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None


def _inside(root: str, path: str, flags: int) -> int:
    """A file below *root*, with all links resolved inside of that.

    It is what ``openat2(2)`` does with RESOLVE_IN_ROOT. That has its flags in memory, where no seccomp filter can see
    whether a file is opened to write, so it is refused in a run.
    """
    folders = [os.open(root, os.O_PATH | os.O_CLOEXEC)]
    waiting, links = path.split("/")[::-1], 0
    try:
        while waiting:
            part = waiting.pop()
            if part == "..":
                _close(folders, max(1, len(folders) - 1))
            elif part not in ("", "."):
                folders.append(os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folders[-1]))
            if not stat.S_ISLNK(os.fstat(folders[-1]).st_mode) or (not waiting and flags & os.O_NOFOLLOW):
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink("", dir_fd=folders[-1])
            _close(folders, 1 if target.startswith("/") else len(folders) - 1)
            waiting += target.split("/")[::-1]
        return folders.pop()
    finally:
        _close(folders, 0)


def _close(descriptors: list[int], kept: int) -> None:
    """Close all but the first *kept* descriptors."""
    while len(descriptors) > kept:
        os.close(descriptors.pop())


# ---------------------------------------------------------------------------------------------- contents


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
        TraceError: the file is empty, or has hardly anything but holes.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if not status.st_size:
            raise TraceError(f"{path} is empty")
        if status.st_size > _LARGE and status.st_blocks * 512 < status.st_size // 2:
            _check_holes(path, file.fileno(), status.st_size)
        end = status.st_size if size is None else min(start + size, status.st_size)
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
            return ReadFile(file.fileno(), start, max(0, end - start))
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    return memoryview(mapped)[start:end]


_LARGE = 16 << 20
"""Bytes from which on a file is looked at for holes."""
_MOST_HOLES = 10_000


def _check_holes(path: str, descriptor: int, size: int) -> None:
    """Refuse a file more than half of which are holes: its gigabytes cost who made it nothing, and are zeros.

    Blocks alone do not tell: file systems that compress have fewer, and some say late how many there are.
    """
    at = data = 0
    for _ in range(_MOST_HOLES):
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # ENXIO: the rest is a hole
            break
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        data, at = data + end - at, end
    if data < size // 2:
        raise TraceError(f"{path} is not read: of its {size >> 20} MiB only {data >> 20} MiB are on the disk")


def pieces(contents: Contents) -> Iterator[memoryview]:
    """All of it, a limited number of bytes at a time."""
    for start in range(0, len(contents), _PIECE):
        yield contents[start : start + _PIECE]
