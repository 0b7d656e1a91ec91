"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile

from pytrace.base.interruption import held


def write(path: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file; what is no regular file (``/dev/null``, a pipe) is written to and stays.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            file.write(data)
    else:
        _replace(os.path.realpath(path), data, 0o777 if executable else 0o666)


def _replace(path: str, data: bytes, mode: int) -> None:
    with held():
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".pytrace-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, mode & ~mask)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
