"""Columns of ELF symbol tables, cut out of the file in a few calls, and the names of functions for listings.

A large library has more than 100,000 symbols: nothing here runs Python code for each of them that it can do without.

Source: ``elf(5)``; ``/usr/include/elf.h``.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import compress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile, Section

CODE_TYPES = frozenset((2, 10))
"""``STT_FUNC`` and ``STT_GNU_IFUNC``."""

_NOT_ZERO = b"\0" + b"\1" * 255


def record_size(wide: bool) -> int:
    """Bytes of a symbol in a table of one ELF class."""
    return 24 if wide else 16


def defined(data: memoryview, wide: bool, types: frozenset[int] | None) -> bytes:
    """For each record 1 where it is a symbol of one of these types (None for all) that is defined here, else 0."""
    record = record_size(wide)
    info, owner = (4, 6) if wide else (12, 14)
    wanted = bytes(types is None or kind & 15 in types for kind in range(256))
    fitting = int.from_bytes(bytes(data[info::record]).translate(wanted))
    # Number 0 is the section of what is defined elsewhere.
    low, high = (int.from_bytes(bytes(data[at::record]).translate(_NOT_ZERO)) for at in (owner, owner + 1))
    return (fitting & (low | high)).to_bytes(len(data) // record)


def function_names(file: ElfFile, section: Section) -> list[str]:
    """Names of the functions that a symbol table defines, without symbol versions, in no order.

    They are read straight from the mapped file: nothing of it is copied but the names.
    """
    data = file.contents(section)
    record = record_size(file.wide)
    data = data[: len(data) // record * record]
    chosen = compress(data.cast("I")[:: record // 4], defined(data, file.wide, CODE_TYPES))
    # Texts are cheaper to sort than bytes; in this encoding a byte and its character have the same place.
    text = str(file.contents(file.linked(section)), "latin-1")
    # In the order of the file memory is read once and in order.
    offsets = sorted(chosen)
    find = text.find
    names = [text[at : find("\0", at)] for at in offsets]
    _remove_versions(text, offsets, names)
    if not text.isascii():
        return [name.encode("latin-1").decode(errors="surrogateescape") for name in names]
    return names


def _remove_versions(text: str, offsets: list[int], names: list[str]) -> None:
    """Truncate those *names*, which start at *offsets*, that have an ``@``: few tables have any, and few of them."""
    at = text.find("@")
    while at >= 0:
        begin = text.rfind("\0", 0, at)
        # Strings may share their tails, so several names may have this end.
        last = bisect_right(offsets, at)
        while last and offsets[last - 1] > begin:
            last -= 1
            names[last] = text[offsets[last] : at]
        end = text.find("\0", at)
        at = text.find("@", end) if end > 0 else -1
