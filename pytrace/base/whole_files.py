"""Atomic writing of files: the old content stays until the new content is complete."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str, mode: int = 0o666) -> Iterator[str]:
    """Give a temporary path to write to, which replaces *path* at the end of the block.

    *path* stays unchanged until then, and when the block fails or a signal interrupts it. Symbolic links are followed.
    A path that is not a regular file (``/dev/null``, a pipe) is given itself. *mode* is that of a new file, before the
    umask.

    Raises:
        OSError: the directory cannot be written.
    """
    if not replaceable(path):
        yield path
        return
    temporary = _temporary(path)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, mode & ~mask)
        os.replace(temporary, os.path.realpath(path))
    finally:
        # It does not exist any more after a successful replace.
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
        os.unlink(_temporary(path))
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _temporary(path: str) -> str:
    import tempfile  # few runs write files

    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.realpath(path)), prefix=".pytrace-")
    os.close(handle)
    return temporary


def write(path: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file atomically, also when a signal ends the process meanwhile.

    Raises:
        OSError: it cannot be written; the old content is unchanged.
    """
    from pytrace.base.interruption import held

    with held() if replaceable(path) else contextlib.nullcontext():
        with replacing(path, 0o777 if executable else 0o666) as place, open(place, "wb") as file:
            file.write(data)
