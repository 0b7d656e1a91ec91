"""The version of Go that built a program, and what follows from it where there is no debug information.

Source: ``src/debug/buildinfo`` of Go, 1.18 and later; ``type g`` of ``src/runtime/runtime2.go``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytrace.runtime.elf.leb128 import unsigned

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile

_MAGIC = b"\xff Go buildinf:"
_FLAGS, _TEXTS = 15, 32
_INLINE = 2
"""Flag: the version follows, with its length before it."""
_LONGEST = 100
_VERSION = re.compile(r"go1\.(\d+)")
_NUMBERS = {range(17, 23): 152, range(23, 25): 160, range(25, 28): 152}
"""Offset of ``goid`` in ``runtime.g``, by minor versions."""


def version(file: ElfFile) -> str:
    """``go1.24.4``; empty where the program does not say it."""
    section = file.section(".go.buildinfo")
    data = b"" if section is None else bytes(file.contents(section, _TEXTS + _LONGEST))
    if not data.startswith(_MAGIC) or len(data) <= _TEXTS or not data[_FLAGS] & _INLINE:
        return ""
    try:
        length, at = unsigned(data, _TEXTS)
    except IndexError:
        return ""
    return data[at : at + length].decode(errors="replace")


def goroutine_number(file: ElfFile) -> int | None:
    """Offset of ``goid`` in ``runtime.g``; None for versions that are not known."""
    match = _VERSION.match(version(file))
    minor = int(match[1]) if match is not None else 0
    return next((offset for versions, offset in _NUMBERS.items() if minor in versions), None)
