"""Functions of Go programs, by the table that their runtime needs (``.gopclntab``): stripped programs have it too.

Source: ``src/debug/gosym/pclntab.go`` and ``src/runtime/symtab.go`` of Go, formats 1.2, 1.16, 1.18 and 1.20.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from pytrace.runtime.elf.symbol_table import SymbolTable

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile, Section

SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
"""Names of the section; the second one in position-independent programs."""

MOST_READ = 1 << 28
"""Bytes of a section that are read; that of Kubernetes has 30 MB."""

_GO12, _GO116, _GO118, _GO120 = 0xFFFFFFFB, 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
_SYMBOL = struct.Struct("<IBBHQQ")
"""``Elf64_Sym``."""
_FUNCTION = 2
"""``STT_FUNC``."""


class Layout(msgspec.Struct, frozen=True):
    """Where the parts of a table are: addresses count from *text*, in words of *word* bytes.

    *steps* is where tables of values by address are, and *flags* the offset of a function's flags; else 0.
    """

    text: int
    word: int
    names: int
    functions: int
    name_at: int
    """Offset of the name in what is known of a function."""
    steps: int = 0
    flags: int = 0


def functions(file: ElfFile) -> SymbolTable | None:
    """The functions of a Go program; None if it is none, or its table is of another format or damaged."""
    found = parsed(file)
    try:
        return None if found is None else _table(*found)
    except struct.error:
        return None


def parsed(file: ElfFile) -> tuple[bytes, Layout] | None:
    """The table of a Go program, and where its parts are."""
    section = next((found for name in SECTIONS if (found := file.section(name)) is not None), None)
    if section is None:
        return None
    try:
        data = bytes(file.contents(section)[:MOST_READ])
        layout = _layout(file, section, data)
        return None if layout is None else (data, layout)
    except struct.error:
        return None


def _layout(file: ElfFile, section: Section, data: bytes) -> Layout | None:
    magic, _, _, word = struct.unpack_from("<IHBB", data)
    if word != 8:
        return None
    if magic == _GO12:
        return Layout(0, 8, 0, 16, 8)
    if magic == _GO116:
        names, _, _, _, start = struct.unpack_from("<5Q", data, 24)
        return Layout(0, 8, names, start, 8)
    if magic in (_GO118, _GO120):
        text, names, _, _, steps, start = struct.unpack_from("<6Q", data, 24)
        text = text or _relocated(file, section.address + 24)
        flags = 37 if magic == _GO118 else 41
        return Layout(text, 4, names, start, 4, steps, flags) if text else None
    return None


def _relocated(file: ElfFile, address: int) -> int:
    """What the dynamic linker adds the program's address to; 0 if it does not write there."""
    section = file.section(".rela.dyn")
    rows = b"" if section is None else bytes(file.contents(section))
    entries = struct.iter_unpack("<QQq", rows[: len(rows) // 24 * 24])
    return next((max(addend, 0) for place, _, addend in entries if place == address), 0)


def entries(data: bytes, layout: Layout) -> tuple[int, ...]:
    """Address and place of each function, in turns, then the end of the last one.

    Raises:
        struct.error: there are fewer than the table says.
    """
    (count,) = struct.unpack_from("<Q", data, 8)
    letter = "I" if layout.word == 4 else "Q"
    return struct.unpack_from(f"<{2 * min(count, len(data)) + 1}{letter}", data, layout.functions)


def _table(data: bytes, layout: Layout) -> SymbolTable:
    rows = entries(data, layout)
    # Places count from the start of the section in the oldest format, from that of the rows later.
    start = 0 if layout.functions == 16 else layout.functions
    name = struct.Struct("<I")
    symbols = bytearray()
    for at in range(0, len(rows) - 1, 2):
        address, size = layout.text + rows[at], max(rows[at + 2] - rows[at], 0)
        (offset,) = name.unpack_from(data, start + rows[at + 1] + layout.name_at)
        symbols += _SYMBOL.pack(offset, _FUNCTION, 0, 1, address, size)
    return SymbolTable(bytes(symbols), data[layout.names :], wide=True)
