"""Scripts as files: their text, or the compiled form that ``--aot`` and ``CompiledScript.save`` write."""

from __future__ import annotations

import os
import stat

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import is_compiled
from pytrace.core.source import Source

_EXAMINED = 8192
"""Number of bytes at the start of a file that are searched for zero bytes, which no text has."""


def text(path: str, name: str = "") -> Source:
    """The text of a script in a file; *name* is the script's name in messages, if that is not the path.

    Raises:
        OSError: the file cannot be read.
    """
    return Source(name or path, _decoded(_content(path)), path)


def read(path: str) -> tuple[Source, bytes | None]:
    """The script in a file, and the bytes of a compiled one.

    Raises:
        OSError: the file cannot be read.
        TraceError: it is no script.
    """
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise TraceError(f"{path} is a directory, not a script")
    return from_bytes(path, _content(path), os.path.abspath(path))


def from_bytes(name: str, data: bytes, path: str | None = None) -> tuple[Source, bytes | None]:
    """The script in *data*, and *data* itself when that is a compiled one.

    Args:
        name: the name of the script in messages.
        data: the content of its file.
        path: the path of that file; None for standard input.

    Raises:
        TraceError: it is no script.
    """
    if is_compiled(data):
        return Source(name, "", path), data
    if b"\0" in data[:_EXAMINED]:
        hints = (f"-c {name} runs a program and traces it",) if path and data.startswith(b"\x7fELF") else ()
        raise TraceError(f"{name!r} is not a script: there are zero bytes in it", hints=hints)
    return Source(name, _decoded(data), path), None


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _decoded(data: bytes) -> str:
    """The text of a script: bytes that are no UTF-8 are surrogates; some editors begin it with a byte order mark."""
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
