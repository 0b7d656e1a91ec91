"""Atomic writing of files: the old content stays until the new content is complete."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from typing import BinaryIO

from pytrace.base.interruption import held

_PREFIX, _RANDOM = ".pytrace-", 8
"""Prefix of the names of temporary files, and the number of characters that ``mkstemp`` adds."""
_ABANDONED = 3600
"""Age in seconds at which a temporary file is removed: its writer was killed."""
_MOST_LINKS = 40


@contextlib.contextmanager
def replacing(path: str, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a new file to write to, which replaces *path* at the end of the block.

    *path* stays unchanged until then, and if the block fails or a signal interrupts it. Symbolic links are followed,
    except for those of other users in directories like ``/tmp``. For a path that is not a regular file (``/dev/null``,
    a pipe), *path* itself is opened. *mode* is that of a new file, before the umask. The new content is synced to disk
    before it replaces the old one.

    Raises:
        OSError: the directory cannot be written, or *path* is a link that is not followed.
    """
    if not replaceable(path):
        with open(path, "wb", opener=lambda name, _: create(name)) as file:
            yield file
        return
    target = target_of(path)
    _remove_abandoned(os.path.dirname(target))
    unnamed = _unnamed(os.path.dirname(target))
    if unnamed is not None:
        with os.fdopen(unnamed, "wb") as file:
            yield file
            _complete(file, mode)
            _give(unnamed, target)
        return
    handle, temporary = _temporary(target)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            _complete(file, mode)
        os.replace(temporary, target)
    finally:
        # It no longer exists after a successful replace.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def create(path: str) -> int:
    """Open a file to write in place, which is truncated; a pipe or device is opened as it is. Returns its descriptor.

    Links are followed as by :func:`target_of`. In directories like ``/tmp`` no file or pipe of another user is opened
    (as the kernel has it by ``fs.protected_regular`` and ``fs.protected_fifos``): that user would read what is written.

    Raises:
        OSError: it cannot be written.
    """
    flags, target = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, target_of(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder) or not _is_shared(os.stat(folder)):
        return os.open(path, flags, 0o666)
    with contextlib.suppress(FileNotFoundError):
        _check_owner(target, os.lstat(target))
    descriptor = os.open(target, flags | os.O_NOFOLLOW, 0o666)
    try:
        _check_owner(target, os.fstat(descriptor))  # it may have been put there meanwhile
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_owner(target: str, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), os.stat(os.path.dirname(target)).st_uid):
        raise PermissionError(errno.EACCES, f"it belongs to user {status.st_uid}", target)


def _is_shared(folder: os.stat_result) -> bool:
    """Whether all users can write to a directory, each only own files (``/tmp``)."""
    return bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH)


def _unnamed(folder: str) -> int | None:
    """An unnamed file (``O_TMPFILE``), which vanishes if its writer is killed; None where not supported."""
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        # Not all file systems support these (overlayfs before 6.1, NFS); other errors recur with a named file.
        return None
    if os.path.exists(f"/proc/self/fd/{file}"):
        return file
    os.close(file)
    return None


def _complete(file: BinaryIO, mode: int) -> None:
    """Write what is buffered to the disk, and set the mode of a new file."""
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(file.fileno(), mode & ~mask)
    file.flush()
    os.fsync(file.fileno())


def _give(file: int, target: str) -> None:
    """Link an unnamed file to a temporary name, and rename it to *target*."""
    handle, temporary = _temporary(target)
    os.close(handle)
    os.unlink(temporary)
    # With a directory descriptor, os.link() follows the symbolic link, as linkat(2) with AT_SYMLINK_FOLLOW.
    descriptors = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.link(str(file), temporary, src_dir_fd=descriptors, follow_symlinks=True)
        os.replace(temporary, target)
    finally:
        os.close(descriptors)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def replaceable(path: str) -> bool:
    """Whether a path is a regular file or does not exist.

    Raises:
        IsADirectoryError: it is a directory.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return stat.S_ISREG(mode)


def check(path: str) -> None:
    """Check that :func:`replacing` can write to a path.

    Raises:
        OSError: it cannot.
    """
    if replaceable(path):
        handle, temporary = _temporary(target_of(path))
        os.close(handle)
        os.unlink(temporary)
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _temporary(target: str) -> tuple[int, str]:
    """Descriptor and path of a new file beside *target*."""
    import tempfile  # few runs write files

    return tempfile.mkstemp(dir=os.path.dirname(target), prefix=_PREFIX)


def target_of(path: str) -> str:
    """The file that a path names, with links resolved.

    The kernel does not follow links of other users in world-writable sticky directories (``fs.protected_symlinks``), as
    these can redirect root. Renaming over the target of a link would bypass that check.

    Raises:
        OSError: the path contains such a link.
    """
    current = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(current))
        current = os.path.join(folder, os.path.basename(current))
        try:
            link = os.readlink(current)
        except OSError:
            return current
        status, owner = os.stat(folder), os.lstat(current).st_uid
        if _is_shared(status) and owner not in (os.geteuid(), status.st_uid):
            raise PermissionError(errno.EACCES, f"it is a link of user {owner}", current)
        current = os.path.join(folder, link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _remove_abandoned(folder: str) -> None:
    """Remove old temporary files of this user, whose writers were killed."""
    before = time.time() - _ABANDONED
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and len(entry.name) == len(_PREFIX) + _RANDOM:
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                    os.unlink(entry.path)


def write(path: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file atomically, even if a signal ends the process meanwhile.

    Raises:
        OSError: it cannot be written; the old content is unchanged.
    """
    with held() if replaceable(path) else contextlib.nullcontext():
        with replacing(path, 0o777 if executable else 0o666) as file:
            file.write(data)
