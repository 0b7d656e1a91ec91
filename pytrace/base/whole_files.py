"""Atomic writing of files: the old content stays until the new content is complete."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX, _RANDOM = ".pytrace-", 8
"""How the names of temporary files start, and how many characters ``mkstemp`` adds."""
_ABANDONED = 3600
"""Age in seconds of a temporary file that nobody writes any more."""
_MOST_LINKS = 40


@contextlib.contextmanager
def replacing(path: str, mode: int = 0o666) -> Iterator[str]:
    """Give a temporary path to write to, which replaces *path* at the end of the block.

    *path* stays unchanged until then, and when the block fails or a signal interrupts it. Symbolic links are followed,
    except for those of other users in directories like ``/tmp``. A path that is not a regular file (``/dev/null``, a
    pipe) is given itself. *mode* is that of a new file, before the umask. The new content is on the disk before the
    old one is given up.

    Raises:
        OSError: the directory cannot be written, or *path* is a link that is not followed.
    """
    if not replaceable(path):
        yield path
        return
    target = target_of(path)
    _remove_abandoned(os.path.dirname(target))
    unnamed = _unnamed(os.path.dirname(target))
    if unnamed is not None:
        with os.fdopen(unnamed, "wb"):
            yield f"/proc/self/fd/{unnamed}"
            _give(unnamed, target, mode)
        return
    temporary = _temporary(target)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, mode & ~mask)
        _flush(temporary)
        os.replace(temporary, target)
    finally:
        # It does not exist any more after a successful replace.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _unnamed(folder: str) -> int | None:
    """A file without a name, of which nothing stays when its writer is killed; None where there are no such files."""
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        # Not all file systems have them (overlayfs before 6.1, NFS); what else is wrong the other way finds, too.
        return None
    if os.path.exists(f"/proc/self/fd/{file}"):
        return file
    os.close(file)
    return None


def _give(file: int, target: str, mode: int) -> None:
    """Give a file without a name that of *target*, by way of one that can replace it."""
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(file, mode & ~mask)
    os.fsync(file)
    temporary = _temporary(target)
    os.unlink(temporary)
    # With a directory given, link() follows the symbolic link, as linkat(2) with AT_SYMLINK_FOLLOW.
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
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return stat.S_ISREG(kind)


def check(path: str) -> None:
    """Check that :func:`replacing` can write to a path.

    Raises:
        OSError: it cannot.
    """
    if replaceable(path):
        os.unlink(_temporary(target_of(path)))
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _temporary(target: str) -> str:
    import tempfile  # few runs write files

    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=_PREFIX)
    os.close(handle)
    return temporary


def target_of(path: str) -> str:
    """The file that a path names, without links.

    The kernel does not follow links of other users in sticky directories that everybody can write to
    (``fs.protected_symlinks``), as they may lead root anywhere. Renaming over the target of a link would evade that.

    Raises:
        OSError: there is such a link.
    """
    at = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(at))
        at = os.path.join(folder, os.path.basename(at))
        try:
            link = os.readlink(at)
        except OSError:
            return at
        held, owner = os.stat(folder), os.lstat(at).st_uid
        if held.st_mode & stat.S_ISVTX and held.st_mode & stat.S_IWOTH and owner not in (os.geteuid(), held.st_uid):
            raise PermissionError(errno.EACCES, f"it is a link of user {owner}", at)
        at = os.path.join(folder, link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _flush(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _remove_abandoned(folder: str) -> None:
    """Remove temporary files of this user whose writer was killed some time ago."""
    before = time.time() - _ABANDONED
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and len(entry.name) == len(_PREFIX) + _RANDOM:
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                    os.unlink(entry.path)


def write(path: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file atomically, also when a signal ends the process meanwhile.

    Raises:
        OSError: it cannot be written; the old content is unchanged.
    """
    from pytrace.base.interruption import held

    with held() if replaceable(path) else contextlib.nullcontext():
        with replacing(path, 0o777 if executable else 0o666) as place, open(place, "wb") as file:
            file.write(data)
