"""Go programs by the tables that their runtime needs, which stripped programs have too: functions, source lines,
inlined functions, the version that built them.

Source: of Go ``src/debug/gosym/pclntab.go`` and ``src/runtime/symtab.go`` (``.gopclntab`` in the formats 1.2, 1.16,
1.18 and 1.20; ``moduledata``, ``pcvalue``, ``funcfile``), ``symtabinl.go``, ``runtime2.go`` (``type g``) and
``src/debug/buildinfo``, 1.18 to 1.27. In position-independent programs the dynamic linker writes the addresses of
``moduledata``, so they are read from the relocations.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from pytrace.runtime.binaries.elf_file import ElfFile, SymbolTable, unsigned
from pytrace.runtime.binaries.function_places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

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


_KIND_NAME, _EXTRA_STAR, _TYPE_FLAGS = 40, 2, 20
"""In a type's descriptor: where the distance of its name is, the flag that its name has a star too many, and where
flags are (src/internal/abi/type.go, ``tflagExtraStar``)."""


def type_name(file: ElfFile, address: int, *, table: bool) -> str:
    """The name of the type whose descriptor (``abi.Type``) is at an address; with *table* of the type in an ``itab``.

    Empty where the file does not have it: some are made when the program runs.
    """
    try:
        if table:
            (address,) = struct.unpack("<Q", _at(file, address + 8, 8))
        (distance,) = struct.unpack("<i", _at(file, address + _KIND_NAME, 4))
        star = _at(file, address + _TYPE_FLAGS, 1)[0] & _EXTRA_STAR
        found = parsed(file)
        module = None if found is None else find(file, found[1].address, found[1].names)
        if module is None or distance <= 0:
            return ""
        data = _at(file, module.words[_TYPES] + distance, 2 + _LONGEST)
        length, start = unsigned(data, 1)
        name = data[start : start + min(length, _LONGEST)].decode(errors="replace")
    except (struct.error, IndexError):
        return ""
    return name[1:] if star else name


def _at(file: ElfFile, address: int, size: int) -> bytes:
    """Bytes at an address; fewer where the file ends, none where it has none."""
    offset = file.file_offset(address)
    return b"" if offset is None else bytes(file.view[offset - file.base : offset - file.base + size])


_MAGIC = b"\xff Go buildinf:"
_BUILD_FLAGS, _BUILD_TEXTS = 15, 32
_INLINE = 2
"""Flag: the version follows, with its length before it."""
_LONGEST = 100
_VERSION = re.compile(r"go1\.(\d+)")
_NUMBERS = {range(17, 23): 152, range(23, 25): 160, range(25, 28): 152}
"""Offset of ``goid`` in ``runtime.g``, by minor versions."""


def version(file: ElfFile) -> str:
    """``go1.24.4``; empty where the program does not say it."""
    section = file.section(".go.buildinfo")
    data = b"" if section is None else bytes(file.contents(section, _BUILD_TEXTS + _LONGEST))
    if not data.startswith(_MAGIC) or len(data) <= _BUILD_TEXTS or not data[_BUILD_FLAGS] & _INLINE:
        return ""
    try:
        length, at = unsigned(data, _BUILD_TEXTS)
    except IndexError:
        return ""
    return data[at : at + length].decode(errors="replace")


def goroutine_number(file: ElfFile) -> int | None:
    """Offset of ``goid`` in ``runtime.g``; None for versions that are not known."""
    match = _VERSION.match(version(file))
    minor = int(match[1]) if match is not None else 0
    return next((offset for versions, offset in _NUMBERS.items() if minor in versions), None)


_LINE_SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
"""Names of the section; the second one in position-independent programs that Go's own linker made."""

_BUILD_ID, _RELOCATED = ".note.go.buildid", ".data.rel.ro"
"""A section that every program with code of Go has, and where the C linker puts the table into."""
_HEAD = re.compile(rb"[\xfa\xf0\xf1\xfb]\xff\xff\xff\0\0[\1\2\4]\x08")

MOST_READ = 1 << 26
"""Bytes of a section that are read; that of Kubernetes has 30 MB."""

MOST_FUNCTIONS = 1 << 20
"""Functions of a table that are used; Kubernetes has 130,000."""

_GO12, _GO116, _GO118, _GO120 = 0xFFFFFFFB, 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
_OLD_FLAGS, _FLAGS = 37, 41
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


_DAMAGE = (struct.error, OverflowError)
"""Errors of :mod:`struct` for a place outside of the data, and for one that no offset can be."""


def functions(file: ElfFile) -> SymbolTable | None:
    """The functions of a Go program; None if it is none, or its table is of another format or damaged."""
    found = parsed(file)
    try:
        return None if found is None else _table(*found)
    except _DAMAGE:
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
    except _DAMAGE:
        return range(0)
    return range(layout.text + start, layout.text + end)


def is_program(path: str) -> bool:
    """Whether a file is a program of Go: it has a section for the table.

    Raises:
        OSError, TraceError: it is no ELF file, or cannot be read.
    """
    with ElfFile.open(path) as file:
        return any(file.section(name) is not None for name in _LINE_SECTIONS)


def parsed(file: ElfFile) -> tuple[memoryview, Layout] | None:
    """The table of a Go program, where it lies in the file, and where its parts are."""
    data, address = _found(file)
    try:
        layout = _layout(file, address, data) if data else None
        # An offset may be larger than any that can be asked for.
        if layout is None or max(layout.names, layout.functions, layout.steps, layout.units, layout.files) > len(data):
            return None
        return data, layout
    except _DAMAGE:
        return None


def _found(file: ElfFile) -> tuple[memoryview, int]:
    """The table and its address; empty if there is none."""
    section = next((found for name in _LINE_SECTIONS if (found := file.section(name)) is not None), None)
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
        flags = _OLD_FLAGS if magic == _GO118 else _FLAGS
        return Layout(text, 4, names, start, 4, steps, flags, units, files, address) if text else None
    return None


def _start(file: ElfFile, address: int, names: int) -> int:
    """What functions count from, where the table does not say it: the dynamic linker would have to write it."""
    module = find(file, address, names)
    return 0 if module is None else module.words[TEXT]


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


_FILE_STEPS, _LINE_STEPS, _TABLES, _UNIT = 20, 24, 28, 32
"""Offsets of what is known of a function: places of its tables of files and lines, number of others, its unit."""
_INLINED_INDEX, _INLINED_TREE = 2, 3
"""``PCDATA_InlTreeIndex``, ``FUNCDATA_InlTree``."""
_OLD_CALL, _NEW_CALL = (20, 12, 16), (16, 4, 8)
"""Size of an entry of the tree, offsets in it of the name and of an instruction at the call (1.18; 1.20)."""
_NOWHERE = 0xFFFFFFFF
_DEEPEST = 64
"""Calls inlined into each other that are followed."""


class GoLines:
    """Functions and lines of the addresses of one program."""

    def __init__(self, file: ElfFile, data: memoryview, layout: Layout) -> None:
        self._file = file
        self._data = data
        self._layout = layout
        self._rows = entries(data, layout)
        self._starts = self._rows[:-1:2]
        self._after = layout.flags + 3
        """Offset of the places of further tables in what is known of a function."""
        self._call = _OLD_CALL if layout.flags == _OLD_FLAGS else _NEW_CALL

    @classmethod
    def read(cls, file: ElfFile) -> GoLines | None:
        """The lines of a program; None if it is not one of Go 1.18 or later, or its table is damaged."""
        found = parsed(file)
        try:
            return None if found is None or not found[1].flags else cls(file, *found)
        except _DAMAGE:
            return None

    def frames(self, address: int) -> list[Place]:
        """The functions of an address, inlined ones first; empty when it is not known."""
        try:
            return list(self._frames(address))
        except (*_DAMAGE, IndexError):
            return []

    def _frames(self, address: int) -> Iterator[Place]:
        at = bisect_right(self._starts, address - self._layout.text) - 1
        if at < 0 or address - self._layout.text >= self._rows[-1]:
            return
        info, start = self._layout.functions + self._rows[2 * at + 1], self._layout.text + self._starts[at]
        tree = self._tree(info)
        for _ in range(_DEEPEST):
            call = self._inlined(info, tree, start, address)
            if call is None:
                break
            name, inside = call
            yield Place(name, *self._line(info, start, address))
            address = start + inside
        yield Place(self._name(self._word(info + 4)), *self._line(info, start, address))

    def _word(self, at: int) -> int:
        (value,) = struct.unpack_from("<I", self._data, at)
        return int(value)

    def _name(self, offset: int) -> str:
        return self._text(self._layout.names + offset)

    def _text(self, at: int) -> str:
        size = 64
        while True:
            piece = bytes(self._data[at : at + size])
            end = piece.find(b"\0")
            if end >= 0 or len(piece) < size:
                return piece[:end].decode(errors="surrogateescape")
            size *= 4

    # ---- lines

    def _line(self, info: int, start: int, address: int) -> tuple[str, int]:
        number = self._value(self._word(info + _FILE_STEPS), start, address)
        line = self._value(self._word(info + _LINE_STEPS), start, address)
        if number < 0 or line <= 0:
            return "", 0
        name = self._word(self._layout.units + 4 * (self._word(info + _UNIT) + number))
        return ("", 0) if name == _NOWHERE else (self._text(self._layout.files + name), line)

    def _value(self, steps: int, start: int, address: int) -> int:
        """The value of a table at an address: pairs of differences, of which the first has a sign; -1 without one."""
        if not steps:
            return -1
        at, value, reached = self._layout.steps + steps, -1, start
        while True:
            change, at = unsigned(self._data, at)
            if not change and reached != start:
                return -1
            value += -(change >> 1) - 1 if change & 1 else change >> 1
            distance, at = unsigned(self._data, at)
            reached += distance
            if address < reached:
                return value

    # ---- inlined functions

    @cached_property
    def _trees(self) -> int:
        """Address from which the places of trees count; 0 when it is not known."""
        module = find(self._file, self._layout.address, self._layout.names)
        return 0 if module is None else module.function_data(old=self._call == _OLD_CALL)

    def _tree(self, info: int) -> int | None:
        """Place in the file of a function's tree of inlined calls."""
        tables = self._word(info + _TABLES)
        if self._data[info + self._after - 1] <= _INLINED_TREE or not self._trees:
            return None
        offset = self._word(info + self._after + 4 * (tables + _INLINED_TREE))
        return None if offset == _NOWHERE else self._file.file_offset(self._trees + offset)

    def _inlined(self, info: int, tree: int | None, start: int, address: int) -> tuple[str, int] | None:
        """Name of the innermost function that was inlined at an address, and where in the function its call is."""
        if tree is None or self._word(info + _TABLES) <= _INLINED_INDEX:
            return None
        index = self._value(self._word(info + self._after + 4 * _INLINED_INDEX), start, address)
        if index < 0:
            return None
        size, name, inside = self._call
        at = tree - self._file.base + index * size
        entry = bytes(self._file.view[at : at + size])
        offset, place = (struct.unpack_from("<i", entry, where)[0] for where in (name, inside))
        return self._name(offset), place
