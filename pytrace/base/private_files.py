"""Files that are cached between runs in the user's cache directory, and the checks of their ownership.

Their content is trusted: compiled programs, indexes, tables. Under ``sudo`` the cache directory may be that of the
invoking user, so a file is used only when it and its directory belong to the effective user and nobody else can write
to them. The file itself is checked as well, because the owner of a parent directory can replace what is below it.
"""

from __future__ import annotations

import hashlib
import os
import stat


def digest(data: bytes, size: int = 12) -> str:
    """Hexadecimal BLAKE2b digest of *data*, 2 * *size* characters long."""
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def directory(name: str) -> str:
    """The directory for one kind of files: ``$XDG_CACHE_HOME/pytrace/NAME`` or ``~/.cache/pytrace/NAME``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "pytrace", name)


def descriptor(path: str) -> int:
    """A descriptor of a private file; -1 when no file can be trusted."""
    try:
        if not _own(os.stat(os.path.dirname(path))):
            return -1
        file = open_private(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    if _own(os.fstat(file)):
        return file
    os.close(file)
    return -1


def open_private(path: str, flags: int) -> int:
    """An opener for ``open``: links are not followed, and new files get mode 0600."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _own(found: os.stat_result) -> bool:
    """Whether a file or directory is the user's, and nobody else can write to it."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def read(path: str) -> bytes | None:
    """What :func:`write` stored at *path*; None when there is no file that can be trusted."""
    try:
        if not _own(os.stat(os.path.dirname(path))):
            return None
        with open(path, "rb", opener=open_private) as file:
            return file.read() if _own(os.fstat(file.fileno())) else None
    except OSError:
        return None


def trim(folder: str, most: int) -> None:
    """Remove the oldest files of a directory of :func:`directory`, down to a number of them."""
    try:
        entries = list(os.scandir(folder))
        if len(entries) > most:
            entries.sort(key=lambda entry: entry.stat().st_mtime_ns)
            for entry in entries[: len(entries) - most]:
                os.unlink(entry.path)
    except OSError:
        # Another process may remove them at the same time.
        return


def write(path: str, *parts: bytes) -> bool:
    """Store bytes for later runs, atomically. Returns False when that is not possible, which only costs time."""
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, f".{name}.{os.getpid()}")
    if not make_directory(folder):
        return False
    from pytrace.base.interruption import held

    try:
        with held(), open(fresh, "xb", opener=open_private) as file:
            file.writelines(parts)
            file.flush()
            os.replace(fresh, path)
    except OSError:
        # Also one left by a killed process with the same pid.
        try:
            os.unlink(fresh)
        except OSError:
            return False
        return False
    return True


def make_directory(folder: str) -> bool:
    """Create a directory of :func:`directory` if needed. Returns False when its content could not be trusted."""
    try:
        # A home directory that does not exist (/nonexistent of system users) is not created.
        if not os.path.isdir(os.path.dirname(os.path.dirname(os.path.dirname(folder)))):
            return False
        os.makedirs(folder, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return is_private_directory(folder)


def is_private_directory(folder: str) -> bool:
    """Whether a directory exists and nobody but the user can write to it."""
    try:
        found = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and _own(found)
