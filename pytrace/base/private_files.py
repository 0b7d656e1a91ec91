"""Files that are cached between runs under the user's cache directory, and who may have written them.

What is read back is believed: compiled programs, indexes, tables. Under ``sudo`` the cache directory may be that of the
user who called it, so a file counts only when it and its directory belong to the user that runs and nobody else may
write to them. The file itself is checked too, as who owns a directory further up can exchange what lies below.
"""

from __future__ import annotations

import contextlib
import os
import stat

try:
    # hashlib loads OpenSSL, which takes longer than all that is hashed at a start.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b


def digest(data: bytes, size: int = 12) -> str:
    """Text of 2 * *size* characters that stands for *data*."""
    return blake2b(data, digest_size=size).hexdigest()


def directory(name: str) -> str:
    """Where files of one sort are: ``$XDG_CACHE_HOME/pytrace/NAME`` or ``~/.cache/pytrace/NAME``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "pytrace", name)


def read(path: str) -> bytes | None:
    """What :func:`write` stored at *path*; None where there is nothing that can be believed."""
    try:
        if not _own(os.stat(os.path.dirname(path))):
            return None
        with open(path, "rb", opener=open_private) as file:
            return file.read() if _own(os.fstat(file.fileno())) else None
    except OSError:
        return None


def write(path: str, *parts: bytes) -> bool:
    """Store bytes for later runs, whole or not at all; False where it cannot be done, which only costs time."""
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
        # Also one that a killed process of the same number left: the next run finds its place free.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        return False
    return True


def make_directory(folder: str) -> bool:
    """Make a directory of :func:`directory` where it is not there; False where what is in it could not be believed."""
    try:
        # Whoever's home directory is not there (/nonexistent of system users) shall not get one.
        if not os.path.isdir(os.path.dirname(os.path.dirname(os.path.dirname(folder)))):
            return False
        os.makedirs(folder, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return is_private_directory(folder)


def is_private_directory(folder: str) -> bool:
    """Whether a directory is there that nobody but the user can write to."""
    try:
        found = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and _own(found)


def open_private(path: str, flags: int) -> int:
    """An opener for ``open``: no link is followed, and what is created is the user's alone."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
