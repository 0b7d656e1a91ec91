"""Files at paths that another user may have chosen: of traced programs, of containers, in ``/tmp``.

All readers of such files open them here (``tests/test_layering.py`` looks for others).

Only a limited process (:mod:`pytrace.base.limited_process`) touches a file system of a user, which may never answer
(FUSE): it looks up the path there, and copies the file into memory, or is left behind.

Access to a page of a mapping that the file no longer has ends the process (``SIGBUS``, mmap(2)). So only files are
mapped that nobody but root and this user can change; others are read, but for limited processes, which may end.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import re
import stat
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from pytrace.base import kernel_files, limited_process, typed_json
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine.syscalls import file_facts, file_system_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

_IN_ROOT = re.compile(r"(/proc/\d+/root)/+(.+)", re.DOTALL)
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
    inside of that root, as that process resolves them. A file system that may not answer is waited for
    :data:`PATIENCE` seconds, and :func:`status_of` has the facts about the file there.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    try:
        descriptor = _found(path, flags & os.O_NOFOLLOW)
    except _WaitsError as there:
        return _opened_there(path, flags, there.mount)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if file_system_type(descriptor) in _OF_THE_KERNEL:
            raise OSError(errno.EINVAL, "a file of the kernel, which is not read for others", path)
        return io.BufferedReader(_Sized(f"/proc/self/fd/{descriptor}", status))
    except BlockingIOError:
        raise OSError(errno.EAGAIN, "another process holds a lease of it", path) from None
    finally:
        os.close(descriptor)


class Status(msgspec.Struct, frozen=True):
    """Facts about an open file, as ``os.stat_result`` names them; *waits*: its file system may not answer."""

    st_dev: int
    st_ino: int
    st_mode: int
    st_uid: int
    st_size: int
    st_mtime_ns: int
    waits: bool = False


def status_of(file: BinaryIO) -> Status:
    """The facts about a file of :func:`open_regular` when it was opened; those of the original, for a copy."""
    raw = getattr(file, "raw", None)
    assert isinstance(raw, _Sized)
    return raw.status


def _status(status: os.stat_result, *, waits: bool = False) -> Status:
    return Status(
        status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns, waits
    )


def reopened(descriptor: int, status: Status) -> BinaryIO:
    """A file that another process has opened, which is closed with it."""
    return io.BufferedReader(_Sized(os.dup(descriptor), status))


def own(status: Status) -> bool:
    """True if nobody but root and this user can have written a file: it may be believed, and is mapped.

    What counts is the file that was reached, not its path. A file system with a server says what it likes.
    """
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & _OTHERS_WRITE and not status.waits


def trusted(path: str, status: Status) -> bool:
    """True if a file is our :func:`own`, and no container's: that is its image's, whoever seems to own it.

    Services with a mount namespace of their own (systemd's) have our files.
    """
    match = _OF_PROCESS.match(path) if own(status) else None
    if match is None:
        return own(status)
    try:
        if match[2] is None:
            # By a mapping of the process, or as its program.
            process = match[1]
            here = os.readlink(f"{process}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
            return here and os.readlink(f"{process}/root") == "/"
        same = look(f"/{match[2]}")
    except OSError:
        return False
    return (same.st_dev, same.st_ino) == (status.st_dev, status.st_ino)


_OF_PROCESS = re.compile(r"(/proc/\d+)/(?:root/+(.+))?", re.DOTALL)


class _Sized(io.FileIO):
    """A file that ends where its size says, though a file system may go on (that of a user, FUSE)."""

    def __init__(self, path: str | int, status: os.stat_result | Status) -> None:
        # A lease that its owner does not give up (F_SETLEASE in fcntl(2)) holds others up for 45 seconds.
        if isinstance(path, int):
            super().__init__(path, "rb")
        else:
            super().__init__(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        self.status = status if isinstance(status, Status) else _status(status)
        self._size = self.status.st_size

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
    try:
        descriptor = _found(path, 0)
    except _WaitsError:
        raise OSError(errno.EOPNOTSUPP, "it is on a file system of a user (FUSE), which may not answer", path) from None
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def look(path: str, flags: int = 0) -> Status:
    """The facts about what is at a path, which is found as :func:`open_regular` finds it.

    Raises:
        OSError: there is nothing.
    """
    try:
        descriptor = _found(path, flags & os.O_NOFOLLOW)
    except _WaitsError as there:
        return _ask(_Question(path, flags, look=True), there.mount)[0]
    try:
        return _status(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def is_regular(path: str) -> bool:
    """True if there is a regular file at a path, which is found as :func:`open_regular` finds it."""
    try:
        return stat.S_ISREG(look(path).st_mode)
    except OSError:
        return False


class _WaitsError(Exception):
    """Something on a file system that may not answer is on the way; it has a *mount*, as :class:`FileFacts`."""

    def __init__(self, mount: int) -> None:
        super().__init__()
        self.mount = mount


def _found(path: str, flags: int) -> int:
    """The file itself, not opened for anything (``O_PATH``).

    Raises:
        OSError: there is none.
        _WaitsError: it is on a file system that may not answer, or the way leads through one, outside of a limited
            process.
    """
    if not path:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    match = _IN_ROOT.fullmatch(path)
    flags |= os.O_PATH | os.O_CLOEXEC
    try:
        if match is not None:
            return _inside(match[1], match[2], flags, closed=True)
        folder, _, name = path.rpartition("/")
        plain = folder.startswith("/") and name not in ("", ".", "..")
        if plain and _steady.get(folder, 0.0) > time.monotonic():
            found = _last(path, flags)
            if found is not None:
                return found
        own_folders = [plain]
        found = _inside("/" if path.startswith("/") else ".", path, flags, closed=False, own_folders=own_folders)
        if own_folders[0]:
            if len(_steady) >= _MOST_KNOWN:
                _steady.clear()
            _steady[folder] = time.monotonic() + _LASTS
        return found
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None


_steady: dict[str, float] = {}
"""Folders to which nobody but root and this user can change the way, and until when that is believed."""
_LASTS = 10.0
_MOST_KNOWN = 4096


def _last(path: str, flags: int) -> int | None:
    """The file at a path whose folder is known; None for a link that is to be followed."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW)
    try:
        mode = _judged(descriptor, "/")
    except BaseException:
        os.close(descriptor)
        raise
    if not stat.S_ISLNK(mode) or flags & os.O_NOFOLLOW:
        return descriptor
    os.close(descriptor)
    return None


def _inside(root: str, path: str, flags: int, *, closed: bool, own_folders: list[bool] | None = None) -> int:
    """A file below *root*; *closed*: with all links resolved inside of that.

    The item of *own_folders* becomes false if others can change the way to the folder that the path has at its end.

    It is what ``openat2(2)`` does with RESOLVE_IN_ROOT. That has its flags in memory, where no seccomp filter can see
    whether a file is opened to write, so it is refused in a run.
    """
    folders = [os.open(root, os.O_PATH | os.O_CLOEXEC)]
    waiting, links = path.split("/")[::-1], 0
    try:
        mode = _judged(folders[0], root)
        while waiting:
            part = waiting.pop()
            if part == ".." and closed:
                _close(folders, max(1, len(folders) - 1))
            elif part not in ("", "."):
                if waiting and own_folders is not None:
                    own_folders[0] &= own(_status(os.fstat(folders[-1])))
                folders.append(os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folders[-1]))
                mode = _judged(folders[-1], root)
            if not stat.S_ISLNK(mode) or (not waiting and flags & os.O_NOFOLLOW):
                if not closed and len(folders) > _NEEDED:
                    os.close(folders.pop(0))
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if not closed:
                _check_link(*folders[-2:])
                # Of its folder, as 9p answers ELOOP about a link.
                if file_system_type(folders[-2]) == _PROC:
                    # It may be one to an open file or a program, which no path leads to.
                    folders.append(os.open(part, os.O_PATH | os.O_CLOEXEC, dir_fd=folders[-2]))
                    mode = _judged(folders[-1], root)
                    continue
            target = os.readlink("", dir_fd=folders[-1])
            if not target.startswith("/"):
                _close(folders, len(folders) - 1)
            elif closed:
                _close(folders, 1)
            else:
                _close(folders, 0)
                folders.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
            mode = _judged(folders[-1], root)
            waiting += target.split("/")[::-1]
        return folders.pop()
    finally:
        _close(folders, 0)


_PROC = 0x9FA0
_NEEDED = 2
"""A file and the folder that it is in."""


def _check_link(folder: int, link: int) -> None:
    """Refuse a link of another user in a folder like ``/tmp``, as the kernel does (``fs.protected_symlinks``)."""
    status, owner = os.fstat(folder), os.fstat(link).st_uid
    shared = status.st_mode & stat.S_ISVTX and status.st_mode & stat.S_IWOTH
    if shared and owner not in (os.geteuid(), status.st_uid):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


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
        self.descriptor = os.dup(descriptor)
        self.release = weakref.finalize(self, os.close, self.descriptor)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> memoryview:
        start, end, _ = part.indices(self._size)
        return memoryview(b"".join(self._pieces(start, end)))

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            piece = os.pread(self.descriptor, min(end - start, _PIECE), self._start + start)
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
        return contents_of(file, path, start, size)


def contents_of(file: BinaryIO, path: str, start: int = 0, size: int | None = None) -> Contents:
    """The same of a file that is open; it may be closed then. Errors: :func:`open_contents`."""
    status = status_of(file)
    if not status.st_size:
        raise TraceError(f"{path} is empty")
    if status.st_size > _LARGE and os.fstat(file.fileno()).st_blocks * 512 < status.st_size // 2:
        _check_holes(path, file.fileno(), status.st_size)
    end = status.st_size if size is None else min(start + size, status.st_size)
    if not limited_process.inside() and not trusted(path, status):
        return ReadFile(file.fileno(), start, max(0, end - start))
    if limited_process.inside():
        # Pages of the file are no memory that it takes.
        limited_process.allow(status.st_size)
    # It may have become larger or smaller since it was opened.
    length = status.st_size if limited_process.inside() else 0
    try:
        # Shared: the kernel writes the breakpoints of uprobes into private mappings, of whatever process (valid_vma).
        mapped = mmap.mmap(file.fileno(), length, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    except ValueError:
        raise TraceError(f"{path} was truncated while it was opened") from None
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


# ---------------------------------------------------------------------------------------------- files that wait


_WAITING = re.compile(r"fuse(\..*)?")
"""Types of file systems that anybody's server may answer for, by their names in ``mountinfo``."""
_MOST_MOUNTS = 4 << 20
"""Characters of ``mountinfo`` that are read: a user may have 100,000 mounts with long names."""
_known: dict[int, bool] = {}
"""Whether mounts wait, by their lasting numbers."""

PATIENCE = 2.0
"""Seconds that a file system with a server is waited for."""
_MOST_COPIED, _MOST_COPIES = 128 << 20, 256 << 20
"""Bytes of one file that is copied, and of all copies that are open."""
_COPY = "pytrace-copy"
_SECONDS = 2.0


def _judged(descriptor: int, root: str) -> int:
    """The mode of a file on the way.

    Raises:
        _WaitsError: its file system may not answer.
    """
    if limited_process.inside():
        return os.fstat(descriptor).st_mode
    try:
        facts = file_facts(descriptor)
    except OSError:
        return os.fstat(descriptor).st_mode  # an old kernel
    # A disk with a file system that the kernel has needs nobody; others have no device of their own.
    if not os.major(facts.device) and _waits(descriptor, facts.mount, root):
        raise _WaitsError(facts.mount)
    return facts.mode


def _waits(descriptor: int, mount: int, root: str) -> bool:
    """Whether the file system of an open file may not answer, by its type; one that is mounted nowhere may."""
    known = _known.get(mount) if mount else None
    if known is not None:
        return known
    # The mount has its number for as long as the file is open.
    words = kernel_files.read_text(f"/proc/self/fdinfo/{descriptor}").split()
    number = words[words.index("mnt_id:") + 1] if "mnt_id:" in words else ""
    found = ""
    other = root.removesuffix("/root") if root.startswith("/proc/") else "/proc/self"
    for process in dict.fromkeys((other, "/proc/self")):
        text = kernel_files.read_text(f"{process}/mountinfo", _MOST_MOUNTS)
        match = re.search(rf"(?m)^{number} .*? - (\S+) ", text) if number else None
        if match is not None:
            found = match[1]
            break
    waits = not found or _WAITING.fullmatch(found) is not None
    if mount:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[mount] = waits
    return waits


class _Question(msgspec.Struct, frozen=True):
    """What the limited process is asked: to open a file, or only to *look* at it."""

    path: str
    flags: int
    look: bool = False
    room: int = 0
    """Bytes that may be copied."""


class _Reply(msgspec.Struct, frozen=True):
    """A file's facts, or an error number and its text."""

    status: Status | None
    error: int = 0
    text: str = ""


def _serve(request: bytes, _descriptors: list[int]) -> tuple[bytes, list[int]]:
    question = typed_json.decode(request, _Question)
    try:
        status, descriptors = _answered(question)
        return typed_json.encode(_Reply(status)), descriptors
    except OSError as error:
        return typed_json.encode(_Reply(None, error.errno or errno.EIO, error.strerror or "")), []


def _answered(question: _Question) -> tuple[Status, list[int]]:
    """In the limited process: the file, which is copied from a file system that may not answer later."""
    if question.look:
        descriptor = _found(question.path, question.flags & os.O_NOFOLLOW)
        try:
            return _status(os.fstat(descriptor), waits=True), []
        finally:
            os.close(descriptor)
    with open_regular(question.path, question.flags) as file:
        # Who owns it, and when it was changed, is what its server says.
        status = _status(os.fstat(file.fileno()), waits=True)
        if status.st_size > question.room:
            text = f"of files on a file system of a user {question.room >> 20} MiB are read"
            raise OSError(errno.EFBIG, text, question.path)
        copy = os.memfd_create(_COPY)
        while piece := file.read(_COPY_PIECE):
            os.write(copy, piece)
        return status, [copy]


_COPY_PIECE = 1 << 20
_opener = limited_process.LimitedProcess(
    _serve, limited_process.Limits(memory=_MOST_COPIES, patience=PATIENCE, total=30.0)
)
"""The one process for all such files: it is started when there is one."""


def close() -> None:
    """End that process, if there is one; the next such file starts another."""
    _opener.close()


_silent: set[int] = set()
"""Mounts that did not answer, which are asked no more."""


def _ask(question: _Question, mount: int) -> tuple[Status, list[int]]:
    """What the limited process answers about a file on a mount.

    Raises:
        OSError: there is no such file, or its file system does not answer.
    """
    if mount in _silent:
        raise OSError(errno.ETIMEDOUT, "its file system does not answer", question.path)
    try:
        data, descriptors = _opener.call(typed_json.encode(question), seconds=_SECONDS)
        reply = typed_json.decode(data, _Reply)
    except (limited_process.LimitError, limited_process.LostError) as error:
        if mount:
            _silent.add(mount)
        raise OSError(errno.ETIMEDOUT, str(error), question.path) from None
    if reply.status is None:
        raise OSError(reply.error, reply.text or os.strerror(reply.error), question.path)
    return reply.status, descriptors


def _opened_there(path: str, flags: int, mount: int) -> BinaryIO:
    room = min(_MOST_COPIED, _MOST_COPIES - _copied())
    status, (descriptor, *_) = _ask(_Question(path, flags & os.O_NOFOLLOW, room=max(0, room)), mount)
    os.lseek(descriptor, 0, os.SEEK_SET)
    size = os.fstat(descriptor).st_size
    return io.BufferedReader(_Sized(descriptor, msgspec.structs.replace(status, st_size=min(size, status.st_size))))


def _copied() -> int:
    """Bytes of all copies that are open."""
    sizes = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"/memfd:{_COPY}"):
                status = os.fstat(int(name))
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())
