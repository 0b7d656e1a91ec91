"""Files that are cached between runs: compiled programs, indexes, tables.

There is a directory for each kind of file (:func:`pytrace.base.private_folders.cache_folder`). A file contains a digest
of its content and name; one that is damaged, or that another user could have written, is removed and created again.
Files are replaced atomically. They are not synced to disk: after a power failure, the digest detects lost content.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable

from pytrace.base.interruption import held
from pytrace.base.private_folders import Folder, cache_bases, cache_folder, note, private

_MAGIC = b"PTCACHE1"
_DIGEST = 32

_TEMPORARY = ".new-"
_ABANDONED = 3600
"""Age in seconds at which a temporary file is removed: its writer was killed."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of this process or machine, not of a file."""


def digest(data: bytes, size: int = 12) -> str:
    """Hexadecimal BLAKE2b digest of *data*, 2 * *size* characters long."""
    return digest_of((data,), size)


def digest_of(pieces: Iterable[bytes | memoryview], size: int = 12) -> str:
    """The digest of *pieces* one after the other."""
    state = hashlib.blake2b(digest_size=size)
    for piece in pieces:
        state.update(piece)
    return state.hexdigest()


def directory(kind: str) -> str:
    """The path of the directory of a kind of files, for messages and tests."""
    try:
        with cache_folder(kind) as folder:
            return folder.path
    except OSError:
        return f"{next(iter(cache_bases()), '')}/pytrace/{kind}"


def read(kind: str, name: str) -> bytes | None:
    """Contents that :func:`write` stored; None if there is no file that is intact and trusted."""
    try:
        with cache_folder(kind) as folder:
            return _read(folder, kind, name)
    except OSError:
        return None


def _read(folder: Folder, kind: str, name: str) -> bytes | None:
    try:
        with open(os.open(name, _FLAGS, dir_fd=folder.descriptor), "rb") as file:
            status = os.fstat(file.fileno())
            trusted = private(status) and stat.S_ISREG(status.st_mode)
            data = file.read() if trusted else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        # A link (ELOOP), a directory, a socket (ENXIO), another user's (EACCES), a bad sector (EIO).
        if error.errno not in _LIMITS:
            discard(folder, name, error.strerror or str(error))
        return None
    head, body = data[: len(_MAGIC) + _DIGEST], data[len(_MAGIC) + _DIGEST :]
    if head == _head(kind, name, body):
        return body
    discard(folder, name, "it is damaged" if trusted else "it is not a regular file of this user alone")
    return None


def _head(kind: str, name: str, body: bytes) -> bytes:
    hasher = hashlib.blake2b(f"{kind}/{name}\0".encode(errors="surrogateescape"), digest_size=_DIGEST)
    hasher.update(body)
    return _MAGIC + hasher.digest()


def write(kind: str, name: str, *parts: bytes) -> bool:
    """Store bytes for later runs, atomically. Returns False if that is not possible, which only costs time."""
    try:
        with cache_folder(kind, create=True) as folder:
            body = b"".join(parts)
            replace(folder, name, (_head(kind, name, body), body))
            remove_abandoned(folder)
    except OSError:
        return False
    return True


def replace(
    folder: Folder, name: str, parts: Iterable[bytes], check: Callable[[str], object] = len
) -> None:
    """Create or replace a file of a private directory atomically.

    *check* is called with the path of the new file before it gets its name, and raises an error for a wrong one.

    Raises:
        OSError: it cannot be written.
    """
    fresh = temporary_name()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with held():
        try:
            with open(os.open(fresh, flags, 0o600, dir_fd=folder.descriptor), "wb") as file:
                file.writelines(parts)
            check(f"{folder.path}/{fresh}")
            os.replace(fresh, name, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh, dir_fd=folder.descriptor)
            raise


def temporary_name() -> str:
    """A name for a new entry, which :func:`remove_abandoned` removes if its writer was killed."""
    return f"{_TEMPORARY}{os.urandom(8).hex()}"


def discard(folder: Folder, name: str, reason: str) -> None:
    """Remove an entry of a private directory, whatever its type, and report that with ``-v``."""
    try:
        _remove(folder, name)
    except FileNotFoundError:
        return
    except OSError as error:
        note(f"cached file {folder.path}/{name} is not used: {reason} (it cannot be removed: {error.strerror})")
        return
    note(f"cached file {folder.path}/{name} was removed: {reason}")


def _remove(folder: Folder, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder.descriptor)
    except IsADirectoryError:
        import shutil

        # Does not follow links on its way down, as the platform has directory descriptors.
        shutil.rmtree(name, dir_fd=folder.descriptor)


def remove_abandoned(folder: Folder) -> None:
    """Remove old temporary files, whose writers were killed."""
    before = time.time() - _ABANDONED
    with os.scandir(folder.descriptor) as entries:
        temporary = [entry for entry in entries if entry.name.startswith(_TEMPORARY)]
    for entry in temporary:
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < before:
                _remove(folder, entry.name)


def trim(kind: str, most: int, prefix: str = "") -> None:
    """Remove the oldest files of a kind whose names begin with *prefix*, except for the newest *most*."""
    with contextlib.suppress(OSError), cache_folder(kind) as folder:
        with os.scandir(folder.descriptor) as entries:
            matching = [entry for entry in entries if entry.name.startswith(prefix) and entry.name[0] != "."]
        if len(matching) > most:
            matching.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
            for entry in matching[: len(matching) - most]:
                with contextlib.suppress(FileNotFoundError):  # another process may remove it at the same time
                    os.unlink(entry.name, dir_fd=folder.descriptor)
