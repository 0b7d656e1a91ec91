"""Functions of Go programs, by the table that their runtime needs (``.gopclntab``): stripped programs have it too.

Source: ``src/debug/gosym/pclntab.go`` and ``src/runtime/symtab.go`` of Go, formats 1.2, 1.16, 1.18 and 1.20.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import msgspec

from pytrace.runtime.elf import go_module
from pytrace.runtime.elf.symbol_table import SymbolTable

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile

SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
"""Names of the section; the second one in position-independent programs that Go's own linker made."""

_BUILD_ID, _RELOCATED = ".note.go.buildid", ".data.rel.ro"
"""A section that every program with code of Go has, and where the C linker puts the table into."""
_HEAD = re.compile(rb"[\xfa\xf0\xf1\xfb]\xff\xff\xff\0\0[\1\2\4]\x08")

MOST_READ = 1 << 26
"""Bytes of a section that are read; that of Kubernetes has 30 MB."""

MOST_FUNCTIONS = 1 << 20
"""Functions of a table that are used; Kubernetes has 130,000."""

_GO12, _GO116, _GO118, _GO120 = 0xFFFFFFFB, 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
OLD_FLAGS, _FLAGS = 37, 41
"""Offset of a function's flags in what is known of it, until 1.19 and since 1.20."""
_SYMBOL = struct.Struct("<IBBHQQ")
"""``Elf64_Sym``."""
_FUNCTION = 2
"""``STT_FUNC``."""


class Layout(msgspec.Struct, frozen=True):
    """Where the parts of a table are: addresses count from *text*, in words of *word* bytes.

    *steps* is where tables of values by address are, *units* and *files* where names of source files are, *flags* the
    offset of a function's flags, *address* that of the table; else 0.
    """

    text: int
    word: int
    names: int
    functions: int
    name_at: int
    """Offset of the name in what is known of a function."""
    steps: int = 0
    flags: int = 0
    units: int = 0
    files: int = 0
    address: int = 0


def functions(file: ElfFile) -> SymbolTable | None:
    """The functions of a Go program; None if it is none, or its table is of another format or damaged."""
    found = parsed(file)
    try:
        return None if found is None else _table(*found)
    except struct.error:
        return None


def code(file: ElfFile) -> range:
    """The addresses of the code of Go in a program; empty if there is none, or its table is not understood."""
    found = parsed(file)
    if found is None:
        return range(0)
    data, layout = found
    word = struct.Struct("<I" if layout.word == 4 else "<Q")
    try:
        (count,) = struct.unpack_from("<Q", data, 8)
        (start,) = word.unpack_from(data, layout.functions)
        (end,) = word.unpack_from(data, layout.functions + 2 * min(count, len(data)) * word.size)
    except struct.error:
        return range(0)
    return range(layout.text + start, layout.text + end)


def parsed(file: ElfFile) -> tuple[memoryview, Layout] | None:
    """The table of a Go program, where it lies in the file, and where its parts are."""
    data, address = _found(file)
    try:
        layout = _layout(file, address, data) if data else None
        # An offset may be larger than any that can be asked for.
        if layout is None or max(layout.names, layout.functions, layout.steps, layout.units, layout.files) > len(data):
            return None
        return data, layout
    except struct.error:
        return None


def _found(file: ElfFile) -> tuple[memoryview, int]:
    """The table and its address; empty if there is none."""
    section = next((found for name in SECTIONS if (found := file.section(name)) is not None), None)
    if section is not None:
        return file.contents(section, MOST_READ), section.address
    section = file.section(_RELOCATED) if file.section(_BUILD_ID) is not None else None
    if section is not None:
        data = file.contents(section, MOST_READ)
        place = next((match.start() for match in _HEAD.finditer(data) if not match.start() % 8), None)
        if place is not None:
            return data[place:], section.address + place
    return memoryview(b""), 0


def _layout(file: ElfFile, address: int, data: memoryview) -> Layout | None:
    magic, _, _, word = struct.unpack_from("<IHBB", data)
    if word != 8:
        return None
    if magic == _GO12:
        return Layout(0, 8, 0, 16, 8)
    if magic == _GO116:
        names, _, _, _, start = struct.unpack_from("<5Q", data, 24)
        return Layout(0, 8, names, start, 8)
    if magic in (_GO118, _GO120):
        text, names, units, files, steps, start = struct.unpack_from("<6Q", data, 24)
        text = text or _start(file, address, names)
        flags = OLD_FLAGS if magic == _GO118 else _FLAGS
        return Layout(text, 4, names, start, 4, steps, flags, units, files, address) if text else None
    return None


def _start(file: ElfFile, address: int, names: int) -> int:
    """What functions count from, where the table does not say it: the dynamic linker would have to write it."""
    module = go_module.find(file, address, names)
    return 0 if module is None else module.words[go_module.TEXT]


def entries(data: bytes | memoryview, layout: Layout) -> tuple[int, ...]:
    """Address and place of each function, in turns, then the end of the last one.

    Raises:
        struct.error: there are fewer than the table says.
    """
    (count,) = struct.unpack_from("<Q", data, 8)
    letter = "I" if layout.word == 4 else "Q"
    return struct.unpack_from(f"<{2 * min(count, MOST_FUNCTIONS) + 1}{letter}", data, layout.functions)


def _table(data: bytes | memoryview, layout: Layout) -> SymbolTable:
    rows = entries(data, layout)
    # Places count from the start of the section in the oldest format, from that of the rows later.
    start = 0 if layout.functions == 16 else layout.functions
    name = struct.Struct("<I")
    symbols = bytearray()
    for at in range(0, len(rows) - 1, 2):
        address, size = layout.text + rows[at], max(rows[at + 2] - rows[at], 0)
        (offset,) = name.unpack_from(data, start + rows[at + 1] + layout.name_at)
        symbols += _SYMBOL.pack(offset, _FUNCTION, 0, 1, address, size)
    return SymbolTable(bytes(symbols), bytes(data[layout.names :]), wide=True)
