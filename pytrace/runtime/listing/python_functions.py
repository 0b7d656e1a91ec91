"""``-l python:FILE.py:PATTERN``: the functions of a Python file, by compiling its source; nothing of it is executed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine.foreign_files import open_regular
from pytrace.runtime.machine.name_patterns import matching

_MOST = 16 << 20
"""Bytes of a source that are read."""
_HIDDEN = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Code that is not written as a function."""
_VARIADIC, _VARIADIC_KEYWORDS = 4, 8
"""``CO_VARARGS``, ``CO_VARKEYWORDS``."""


def functions(path: str, pattern: str) -> list[str]:
    """Qualified names of the functions in a file that match a pattern.

    Raises:
        TraceError: it cannot be read, or is no Python source.
    """
    return matching(pattern, list(_signatures(path)))


def parameters(path: str, function: str) -> list[str]:
    """Names of a function's parameters; empty when the file has no such function."""
    try:
        return list(_signatures(path).get(function, ()))
    except TraceError:
        return []


def _signatures(path: str) -> dict[str, tuple[str, ...]]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    return _compiled(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _compiled(path: str, _changed: int, _size: int) -> dict[str, tuple[str, ...]]:
    try:
        with open_regular(path) as file:
            code = compile(file.read(_MOST), path, "exec", dont_inherit=True)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TraceError(f"{path} is no Python source: {error}") from None
    return dict(_found(code))


def _found(code: CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Functions, classes and the module itself: all of them are called."""
    waiting = [code]
    while waiting:
        one = waiting.pop(0)
        flags = one.co_flags
        count = one.co_argcount + one.co_kwonlyargcount + bool(flags & _VARIADIC) + bool(flags & _VARIADIC_KEYWORDS)
        if not one.co_qualname.endswith(_HIDDEN):
            yield one.co_qualname, one.co_varnames[:count]
        waiting[:0] = [constant for constant in one.co_consts if isinstance(constant, CodeType)]
