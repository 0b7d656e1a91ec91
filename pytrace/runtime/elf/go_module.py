"""``runtime.firstmoduledata`` of a Go program: where the parts are that its runtime needs, stripped programs included.

Source: ``src/runtime/symtab.go`` of Go (``moduledata``), 1.18 to 1.27. In position-independent programs the dynamic
linker writes its addresses, so they are read from the relocations.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile

TEXT = 22
"""Number of the word with the address that functions count from."""
_TYPES = 37
_OLD_FUNCTION_DATA, _FUNCTION_DATA, _NEW_FUNCTION_DATA = 38, 40, 43
_SECTIONS = (".go.module", ".noptrdata", ".data", ".data.rel.ro")
_RELOCATIONS = (".rela.dyn", ".rela")
_WORDS = 48
"""Words that are looked at."""
_MOST_RELOCATIONS, _MOST_CANDIDATES = 1 << 22, 64
"""Relocations that are looked at, and places with the address of the table."""


class GoModule(msgspec.Struct, frozen=True):
    """The first words of a ``moduledata``."""

    words: tuple[int, ...]

    def function_data(self, *, old: bool) -> int:
        """Address of what functions refer to (``gofunc``); *old* until 1.19."""
        if old:
            return self.words[_OLD_FUNCTION_DATA]
        # Since 1.27 the length of the types' descriptors is between the addresses where types start and end.
        types, after = self.words[_TYPES : _TYPES + 2]
        return self.words[_FUNCTION_DATA if after >= types else _NEW_FUNCTION_DATA]


def find(file: ElfFile, table: int, names: int) -> GoModule | None:
    """The module whose table of functions is at the address *table*, with the names at *names* in it.

    Both are addresses in its first two words.
    """
    start = struct.pack("<QQ", table, table + names)
    for name in _SECTIONS:
        section = file.section(name)
        data = b"" if section is None else bytes(file.contents(section))
        at = data.find(start)
        if at >= 0:
            return GoModule(struct.unpack(f"<{_WORDS}Q", data[at : at + 8 * _WORDS].ljust(8 * _WORDS, b"\0")))
    return _relocated(file, table, table + names)


def _relocated(file: ElfFile, table: int, names: int) -> GoModule | None:
    """The module in a file whose relocations have its addresses."""
    written: dict[int, int] = {}
    for name in _RELOCATIONS:
        section = file.section(name)
        rows = memoryview(b"") if section is None else file.contents(section, _MOST_RELOCATIONS * 24)
        rows = rows[: len(rows) // 24 * 24]
        # Of millions those that may be part of it are kept.
        starts = [at for at, _, value in struct.iter_unpack("<QQQ", rows) if value == table][:_MOST_CANDIDATES]
        near = {start + 8 * number for start in starts for number in range(_WORDS)}
        written.update((at, value) for at, _, value in struct.iter_unpack("<QQQ", rows) if at in near)
    place = next((at for at, value in written.items() if value == table and written.get(at + 8) == names), None)
    offset = None if place is None else file.file_offset(place)
    if place is None or offset is None:
        return None
    data = bytes(file.view[offset - file.base : offset - file.base + 8 * _WORDS]).ljust(8 * _WORDS, b"\0")
    words = struct.unpack(f"<{_WORDS}Q", data)
    return GoModule(tuple(written.get(place + 8 * number, word) for number, word in enumerate(words)))
