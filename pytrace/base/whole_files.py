"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str, mode: int = 0o666) -> Iterator[str]:
    """Gives a path to write to; when the block is done, what is there takes the place of *path*.

    Until then *path* stays as it is, and for good when the block fails or a signal breaks it off. A link is followed.
    What is no regular file (``/dev/null``, a pipe) is given as it is. *mode* is that of a new file, before the umask.

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
        # Gone when all went well.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def replaceable(path: str) -> bool:
    """Whether a path names a regular file, or nothing yet.

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
    """See whether :func:`replacing` will be able to write.

    Raises:
        OSError: it will not.
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
    """Write a file whole or not at all, also when the user ends the process meanwhile.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    from pytrace.base.interruption import held

    with held() if replaceable(path) else contextlib.nullcontext():
        with replacing(path, 0o777 if executable else 0o666) as place, open(place, "wb") as file:
            file.write(data)
