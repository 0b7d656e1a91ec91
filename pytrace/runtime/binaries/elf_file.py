"""ELF files: segments, sections, notes, symbols, links to debug files, unwind entries, LEB128 numbers.

A symbol table stays columns of integers that are sliced from the file in a few calls: a large library has more than
100,000 symbols, and only those that a question is about become objects. Entries of ``.eh_frame`` say where functions
and parts of them start and end; stripped files have them, too.

Source: ``elf(5)``; ``/usr/include/elf.h``; the Linux Standard Base, "Exception Frame Header" and "The .eh_frame
section"; the DWARF 5 standard, 7.6 (LEB128).
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zlib
from bisect import bisect_right
from contextlib import suppress
from functools import cache, cached_property
from itertools import compress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pytrace.base import cgroups, limited_process, typed_json
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine.foreign_files import (
    Contents,
    contents_of,
    is_regular,
    open_contents,
    open_regular,
    pieces,
    reopened,
    status_of,
    trusted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO, Self


_LONGEST = 7 * 64
"""Bits of a number. Assemblers pad numbers to some ten bytes."""


def unsigned(code: bytes | memoryview, at: int) -> tuple[int, int]:
    """ULEB128 and the position after it.

    Raises:
        IndexError: it has no end, or one only after so many bytes that reading them would take minutes.
    """
    byte = code[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = code[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _LONGEST:
            raise IndexError("a number without end")
    return value, at


def signed(code: bytes | memoryview, at: int) -> tuple[int, int]:
    """SLEB128 and the position after it."""
    start = at
    value, at = unsigned(code, at)
    sign = 1 << (7 * (at - start) - 1)
    return (value ^ sign) - sign, at


_Text = TypeVar("_Text", str, bytes)

CODE_TYPES = frozenset((2, 10))
"""``STT_FUNC`` and ``STT_GNU_IFUNC``."""
_INDIRECT = 10

MOST_SYMBOLS = 1 << 22
"""Symbols of one table that are used; a browser with all its local functions has a million."""
_LONGEST_NAME = 1 << 16
_MOST_SYMBOL_NAMES = 64 << 20
"""Bytes of names that may be taken out of any table, beside a multiple of what its strings have."""
_BATCH = 1024
_MOST_ALIASES = 4096
"""Symbols of one address that are looked at."""

_NOT_ZERO = b"\0" + b"\1" * 255


_THREAD_LOCAL = 6
"""``STT_TLS``."""


class Symbol(msgspec.Struct, frozen=True):
    """A function: its name, virtual address and size in bytes (0 where the table does not say).

    *indirect*: the code there is the resolver of an IFUNC symbol, which returns the address of the function.
    """

    name: str
    address: int
    size: int
    indirect: bool = False
    thread_local: bool = False
    """Each thread has its own; *address* is where it is in the thread's block."""


def within(pattern: str, excluded: bytes) -> bytes:
    """Source of a bytes expression for a ``*`` pattern.

    Args:
        pattern: only ``*`` is special in it.
        excluded: bytes that ``*`` does not match, as they are written inside of ``[…]``.
    """
    text = pattern.encode(errors="surrogateescape")
    return (rb"[^" + excluded + rb"]*").join(re.escape(part) for part in text.split(b"*"))


class SymbolTable:
    """The defined symbols of some types (None for all) in one symbol table, as parallel columns.

    A column is cut out of the table when it is first needed: names alone do not need the others, or any order.
    """

    def __init__(
        self,
        data: bytes,
        strings: bytes,
        wide: bool,
        types: frozenset[int] | None = CODE_TYPES,
        sections: Iterable[tuple[int, int]] = (),
    ) -> None:
        """*sections* are the addresses of the file's sections: a symbol without a size ends where its section does."""
        self._sections = sorted(sections)
        self.problem = ""
        """Why not all symbols are here."""
        self._strings = strings
        self._wide = wide
        self._record = record_size(wide)
        self._data = memoryview(data)[: len(data) // self._record * self._record]
        self._defined = defined(self._data, wide, types)

    @classmethod
    def read(
        cls, file: ElfFile, section: Section, types: frozenset[int] | None = CODE_TYPES
    ) -> SymbolTable:
        """The symbols of a section."""
        most = MOST_SYMBOLS * record_size(file.wide)
        linked = file.linked(section)
        for item, size in ((section, min(section.size, most)), (linked, linked.size)):
            file.check_size(item, size)
        strings = bytes(file.contents(linked))
        check_strings(file, strings)
        loaded = [(item.address, item.address + item.size) for item in file.sections if item.address and item.size]
        table = cls(bytes(file.contents(section, most)), strings, file.wide, types, loaded)
        if section.size > most:
            table.problem = f"only the first {MOST_SYMBOLS} symbols of {file.path} are used"
        return table

    def _column(self, words: Iterable[int]) -> list[int]:
        return list(compress(words, self._defined))

    @cached_property
    def _words(self) -> tuple[memoryview[int], memoryview[int], memoryview[int]]:
        """Places of names, addresses and sizes, by record."""
        words = self._data.cast("Q") if self._wide else self._data.cast("I")
        step = self._record // words.itemsize
        return self._data.cast("I")[:: self._record // 4], words[1::step], words[2::step]

    @cached_property
    def _sorted(self) -> tuple[list[int], list[int]]:
        """Addresses in order, and the records that have them."""
        addresses = self._words[1].tolist()
        records = self._column(range(len(self._defined)))
        records.sort(key=addresses.__getitem__)
        return list(map(addresses.__getitem__, records)), records

    def __len__(self) -> int:
        return self._defined.count(1)

    @property
    def addresses(self) -> list[int]:
        """Where the functions start, in order."""
        return self._sorted[0]

    def symbol(self, index: int) -> Symbol:
        """The symbol at a position in order of address."""
        names, addresses, sizes = self._words
        record = self._sorted[1][index]
        kind = self._data[record * self._record + (4 if self._wide else 12)] & 15
        name = self._name(names[record])
        return Symbol(name, addresses[record], sizes[record], kind == _INDIRECT, kind == _THREAD_LOCAL)

    def _name(self, offset: int) -> str:
        strings = self._strings
        name = strings[offset : strings.find(b"\0", offset)]
        if b"@" in name:
            # `.symtab` has versions in its names (malloc@@GLIBC_2.2.5), `.dynsym` has them elsewhere.
            name = name.partition(b"@")[0]
        return name.decode("utf-8", "surrogateescape")

    def names(self) -> list[bytes]:
        """All names, as they are in the file, in order of address."""
        places = list(map(self._words[0].__getitem__, self._sorted[1]))
        strings, find = self._strings, self._strings.find
        return _texts(places, len(strings), lambda part: [strings[at : find(b"\0", at)] for at in part])

    def match(self, pattern: str) -> list[Symbol]:
        """Functions whose name a ``*`` pattern accepts."""
        if "*" not in pattern:
            return [self.symbol(i) for i in self._named(pattern.encode(errors="surrogateescape"))]
        accepts = re.compile(within(pattern, rb"@") + rb"(?:@.*)?").fullmatch
        return [self.symbol(i) for i, name in enumerate(self.names()) if accepts(name)]

    def _named(self, name: bytes) -> list[int]:
        """Positions of the symbols of one name: search the strings, then the column for the places found."""
        wanted = set()
        for needle in (name + b"\0", name + b"@"):
            at = self._strings.find(needle)
            while at >= 0:
                # Strings may share their tails, so the place before need not end another string.
                wanted.add(at)
                at = self._strings.find(needle, at + 1)
        if not wanted:
            return []
        return [i for i, at in enumerate(map(self._words[0].__getitem__, self._sorted[1])) if at in wanted]

    def covering(self, address: int) -> Symbol | None:
        """The function that covers an address.

        One without a size reaches to the next symbol, and not beyond its section: what comes after ``_init`` are stubs
        of other libraries. Of aliases the one whose name comes first without leading
        underscores is taken, so that the answer does not depend on the linker's order.
        """
        addresses, records = self._sorted
        sizes = self._words[2]
        at = bisect_right(addresses, address) - 1
        # A short function may lie inside a longer one; go back to one that reaches far enough.
        for index in range(at, max(-1, at - 16), -1):
            size = sizes[records[index]]
            if address < addresses[index] + size or (
                not size and index == at and self._in_one_section(addresses[index], address)
            ):
                alone = not index or addresses[index - 1] != addresses[index]
                return self.symbol(index) if alone else self._best_alias(index, address)
        return None

    def _in_one_section(self, start: int, address: int) -> bool:
        """True unless a section ends between two addresses."""
        at = bisect_right(self._sections, (start, 1 << 64)) - 1
        return at < 0 or not self._sections[at][0] <= start < self._sections[at][1] <= address

    def _best_alias(self, index: int, address: int) -> Symbol:
        addresses = self.addresses
        start = addresses[index]
        first = index
        while first and addresses[first - 1] == start:
            first -= 1
        # Of a hostile file there may be a million, each with a long name.
        aliases = map(self.symbol, range(max(first, index - _MOST_ALIASES), index + 1))
        return min(aliases, key=lambda symbol: (
            address >= start + symbol.size, len(symbol.name) - len(symbol.name.lstrip("_")), symbol.name,
        ))  # fmt: skip


def check_strings(file: ElfFile, strings: str | bytes) -> None:
    """Refuse strings of which one is longer than any name: each of the symbols could be all of it.

    Raises:
        TraceError: they have one.
    """
    at = 0
    while at + _LONGEST_NAME < len(strings):
        reached = at + _LONGEST_NAME
        at = (strings.rfind("\0", at, reached) if isinstance(strings, str) else strings.rfind(b"\0", at, reached)) + 1
        if not at:
            raise TraceError(f"{file.path} is damaged: a name in it has more than {_LONGEST_NAME} bytes")


def _texts(places: Sequence[int], size: int, cut: Callable[[Sequence[int]], list[_Text]]) -> list[_Text]:
    """What *cut* returns for all places in strings of a size.

    Raises:
        TraceError: names overlap so much that they are many times as long as the strings.
    """
    texts: list[_Text] = []
    room = 16 * size + _MOST_SYMBOL_NAMES
    for start in range(0, len(places), _BATCH):
        part = cut(places[start : start + _BATCH])
        room -= sum(map(len, part))
        if room < 0:
            raise TraceError("a symbol table is damaged: its names overlap")
        texts += part
    return texts


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
    record = record_size(file.wide)
    data = file.contents(section, MOST_SYMBOLS * record)
    data = data[: len(data) // record * record]
    chosen = compress(data.cast("I")[:: record // 4], defined(data, file.wide, CODE_TYPES))
    # In this encoding a byte and its character have the same place.
    linked = file.linked(section)
    file.check_size(linked, linked.size)
    text = str(file.contents(linked), "latin-1")
    check_strings(file, text)
    find = text.find
    names = _texts(list(chosen), len(text), lambda part: [text[at : find("\0", at)] for at in part])
    if "@" in text:
        names = [name.partition("@")[0] for name in names]
    if not text.isascii():
        return [name.encode("latin-1").decode(errors="surrogateescape") for name in names]
    return names


Result = TypeVar("Result")

SHT_SYMTAB, _SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
PT_LOAD, _PF_X = 1, 1
EM_X86_64, EM_AARCH64 = 62, 183
_ELSEWHERE = 0xFFFF
"""``SHN_XINDEX``."""

_MOST_HEADERS = 1 << 18
"""Sections or segments; object files with a section for each function have some 10,000."""
_MOST_SEGMENTS = 4096
"""Segments that are loaded; each address is looked for in all of them. Usual files have four."""
_LONGEST_HEADER = 256
_MOST_NAMES = 64 << 20
"""Bytes of the names of all sections."""
MOST_NOTES = 4 << 20
_MOST_LINK = 4096 + 64
"""Bytes of a section with the name of a file (``PATH_MAX``) and a checksum or build id."""
_MOST_MINI = 64 << 20
"""Bytes of an unpacked ``.gnu_debugdata``; those of Fedora's libraries have less than 2 MB."""
_MOST_COPIED = 1 << 30


@cache
def most_copied() -> int:
    """Bytes of a file's sections that are copied into memory, or unpacked: a share of the memory of the machine."""
    allowed = cgroups.memory_limit()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(_MOST_COPIED, (total if allowed is None else min(total, allowed.size)) // 16)


_QUOTED = 200


def quoted(text: str, most: int = _QUOTED) -> str:
    """At most so many characters of a text that others chose, for a message: its beginning and its end."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - most // 2 + 1 :]}"


class Section(msgspec.Struct, frozen=True):
    """A section header; *link* is the number of the section that belongs to it (a symbol table's strings)."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


class Segment(msgspec.Struct, frozen=True):
    """A program header of type ``PT_LOAD``."""

    offset: int
    address: int
    file_size: int
    memory_size: int
    executable: bool


def address_of(segments: Iterable[Segment], position: int) -> int | None:
    """Virtual address of a position in a file with these segments."""
    found = None
    for segment in segments:
        if segment.offset <= position < segment.offset + segment.file_size:
            # Segments may share a page of the file; the one that is executed is meant.
            if segment.executable:
                return segment.address + position - segment.offset
            found = segment if found is None else found
    return None if found is None else found.address + position - found.offset


class _Layout(msgspec.Struct, frozen=True):
    """Offsets in one ELF class: positions in the file header, and record layouts as ``struct`` formats."""

    header: str
    section: str
    segment: str
    segment_order: tuple[int, ...]


# Sections start with name, type, flags, address, offset, size and link. The order of segments is: type, flags, offset,
# address, file size, memory size.
_LAYOUTS = {
    1: _Layout("16xHHIIIIIHHHHHH", "IIIIIIIIII", "IIIIIIII", (0, 6, 1, 2, 4, 5)),
    2: _Layout("16xHHIQQQIHHHHHH", "IIQQQQIIQQ", "IIQQQQQQ", (0, 1, 2, 3, 5, 6)),
}


_PORTABLE = (
    "compiled code of .NET has names with DOTNET_PerfMapEnabled=1, that of its libraries with DOTNET_ReadyToRun=0, too"
)
"""Of a file of the form of Windows, which .NET maps as it is."""


class ElfFile:
    """One ELF file. *path* may name a library inside an archive: ``base.apk!/lib/arm64/libfoo.so``.

    *base* is where the ELF data starts in the file that uprobes attach to (not 0 only inside archives).
    """

    def __init__(self, data: bytes | Contents, path: str, base: int = 0) -> None:
        self.path = path
        self.base = base
        self.view: Contents = memoryview(data) if isinstance(data, bytes) else data
        head = bytes(self.view[:64])
        if len(head) < 16 or head[:4] != b"\x7fELF":
            if head[:2] == b"MZ":
                raise TraceError(_PORTABLE)
            raise TraceError(f"{path} is not an ELF file")
        layout = _LAYOUTS.get(head[4])
        if layout is None or head[5] != 1:
            raise TraceError(f"{path} is an ELF file of a class or byte order that this machine does not run")
        self._layout = layout
        self._copied: dict[int, int] = {}
        """Bytes of the sections that were copied or unpacked, by where they are in the file."""
        self.wide = head[4] == 2
        size = struct.calcsize("<" + layout.header)
        if len(head) < size:
            raise TraceError(f"{path} is truncated: it has {len(head)} bytes, and an ELF header {size}")
        header = struct.unpack_from("<" + layout.header, head)
        self.type, self.machine, _, self.entry = header[:4]
        self._segments_at, self._sections_at = header[4:6]
        self._segment_size, self._segment_count, self._section_size, self._section_count, self._names = header[8:13]

    @classmethod
    def open(cls, path: str) -> Self:
        """Open an ELF file, or a stored member of a zip archive (``ARCHIVE!/MEMBER``).

        Raises:
            TraceError: not an ELF file.
            OSError: the file cannot be read.
        """
        archive, separator, member = path.partition("!/")
        if not separator:
            return cls(open_contents(path), path)
        start, size = archive_member(archive, member)
        return cls(open_contents(archive, start, size), path, base=start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the mapping or descriptor, unless something else refers to it."""
        source = self.view.obj if isinstance(self.view, memoryview) else None
        self.view.release()
        if isinstance(source, mmap.mmap):
            with suppress(BufferError):
                source.close()

    # ---- structure

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that are loaded into memory."""
        segments = []
        for row in self._rows(self._layout.segment, self._segments_at, self._segment_size, self._segment_count):
            kind, flags, offset, address, file_size, memory_size = (row[i] for i in self._layout.segment_order)
            if kind == PT_LOAD:
                segments.append(Segment(offset, address, file_size, memory_size, bool(flags & _PF_X)))
        if len(segments) > _MOST_SEGMENTS:
            raise TraceError(f"{self.path} is damaged: {len(segments)} parts of it are loaded")
        return tuple(segments)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections in order (none in a stripped-down file)."""
        rows = self._section_rows()
        if not rows:
            return ()
        # Numbers that do not fit into the header are in the first section.
        names = rows[0][6] if self._names == _ELSEWHERE else self._names
        if names >= len(rows):
            raise TraceError(f"{self.path} is damaged: the names of its {len(rows)} sections are in section {names}")
        strings_at, strings_size = rows[names][4:6]
        if strings_size > _MOST_NAMES:
            raise TraceError(f"{self.path} is damaged: the names of its sections have {strings_size} bytes")
        strings = bytes(self.view[strings_at : strings_at + strings_size])
        sections, length = [], 0
        for row in rows:
            name, *rest = row[:7]
            title = strings[name : strings.find(b"\0", name)].decode(errors="replace")
            length += len(title)
            if length > _MOST_NAMES:
                raise TraceError(f"{self.path} is damaged: the names of its sections overlap")
            sections.append(Section(title, *rest))
        return tuple(sections)

    def _section_rows(self) -> list[tuple[int, ...]]:
        if not self._sections_at:
            return []
        count = self._section_count
        if not count:
            # There are too many for the header: the first one's size is their number.
            first = self._rows(self._layout.section, self._sections_at, self._section_size, 1)
            count = first[0][5]
        return self._rows(self._layout.section, self._sections_at, self._section_size, count)

    def linked(self, section: Section) -> Section:
        """The section that belongs to another one.

        Raises:
            TraceError: there is none of that number.
        """
        if section.link >= len(self.sections):
            raise TraceError(f"{self.path} is damaged: {quoted(section.name)} belongs to section {section.link}, "
                             f"and there are {len(self.sections)}")
        return self.sections[section.link]

    def _rows(self, layout: str, at: int, size: int, count: int) -> list[tuple[int, ...]]:
        record = struct.Struct("<" + layout)
        if count > _MOST_HEADERS or size > _LONGEST_HEADER:
            raise TraceError(f"{self.path} is damaged: it has {count} headers of {size} bytes")
        rows = self.view[at : at + size * count]
        if len(rows) < size * count or (count and size < record.size):
            raise TraceError(f"{self.path} is truncated: its headers are outside the file")
        return [record.unpack_from(rows, number * size) for number in range(count)]

    def section(self, name: str) -> Section | None:
        """The first section of a name."""
        return next((section for section in self.sections if section.name == name), None)

    def contents(self, section: Section, most: int | None = None) -> memoryview:
        """Bytes of a section, the first *most* of them; empty when it has none in the file.

        Raises:
            TraceError: it is outside of the file, or would take too much memory.
        """
        if section.type == SHT_NOBITS:
            return memoryview(b"")
        if section.offset + section.size > len(self.view):
            raise TraceError(f"{self.path} is truncated: its section {quoted(section.name)} is outside the file")
        size = section.size if most is None else min(section.size, most)
        if not isinstance(self.view, memoryview):
            self.check_size(section, size)
        return self.view[section.offset : section.offset + size]

    def check_size(self, section: Section, size: int) -> None:
        """Refuse to have *size* bytes of a section in memory, with those of other sections, where that is too much.

        Raises:
            TraceError: it is too much.
        """
        self._copied[section.offset] = size
        most = most_copied() if isinstance(self.view, memoryview) else min(MEMORY, most_copied())
        if sum(self._copied.values()) > most:
            del self._copied[section.offset]
            raise TraceError(
                f"{self.path}: {quoted(section.name)} is not read: its {size >> 20} MiB are more than what a file may "
                f"take ({most >> 20} MiB)"
            )

    # ---- addresses

    def file_offset(self, address: int) -> int | None:
        """Position in the file of a virtual address, None when no segment loads it."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.file_size:
                return self.base + segment.offset + address - segment.address
        return None

    def address_at(self, offset: int) -> int | None:
        """Virtual address of a position in the file (of the archive, for a member of one)."""
        return address_of(self.segments, offset - self.base)

    # ---- symbols

    @cached_property
    def tables(self) -> tuple[SymbolTable, ...]:
        """Functions of ``.symtab`` and ``.dynsym``, whichever there are."""
        return tuple(SymbolTable.read(self, section) for section in self.symbol_sections)

    @cached_property
    def symbol_sections(self) -> tuple[Section, ...]:
        """``.symtab`` and ``.dynsym``, whichever there are."""
        return tuple(section for section in self.sections if section.type in (SHT_SYMTAB, SHT_DYNSYM))

    def any_symbol(self, name: str) -> Symbol | None:
        """A symbol of any type (functions, variables, labels); None when it is not defined here."""
        for section in self.symbol_sections:
            symbols = SymbolTable.read(self, section, types=None).match(name)
            if symbols:
                return symbols[0]
        return None

    @cached_property
    def imported_names(self) -> frozenset[str]:
        """Names of what the dynamic linker takes from other files."""
        section = next((section for section in self.sections if section.type == SHT_DYNSYM), None)
        if section is None:
            return frozenset()
        record = record_size(self.wide)
        data = self.contents(section, MOST_SYMBOLS * record)
        data = data[: len(data) // record * record]
        elsewhere = (not here for here in defined(data, self.wide, None))
        linked = self.linked(section)
        self.check_size(linked, linked.size)
        strings = bytes(self.contents(linked))
        check_strings(self, strings)
        places = list(compress(data.cast("I")[:: record // 4], elsewhere))
        names = _texts(places, len(strings), lambda part: [strings[at : strings.find(b"\0", at)] for at in part])
        return frozenset(name.decode(errors="surrogateescape") for name in names if name)

    @cached_property
    def mini_debug_info(self) -> ElfFile | None:
        """The ELF file in ``.gnu_debugdata``: a compressed symbol table of functions (Fedora)."""
        section = self.section(".gnu_debugdata")
        if section is None:
            return None
        import lzma

        unpacker = lzma.LZMADecompressor(memlimit=2 * _MOST_MINI)
        try:
            data = unpacker.decompress(self.contents(section, _MOST_MINI), _MOST_MINI)
        except lzma.LZMAError as error:
            raise TraceError(f"{self.path}: .gnu_debugdata is damaged: {error}") from error
        if not unpacker.eof:
            raise TraceError(f"{self.path}: .gnu_debugdata is damaged: it has no end in {len(data)} bytes")
        return ElfFile(data, f"{self.path}(.gnu_debugdata)")

    # ---- notes and links

    @cached_property
    def build_id(self) -> str:
        """Hexadecimal GNU build id, empty when there is none."""
        own = self.section(".note.gnu.build-id")
        # The vdso has it among others in ".note".
        sections = [own] if own is not None else [item for item in self.sections if item.type == _SHT_NOTE]
        notes = (note for section in sections for note in self.notes(section))
        return next((body.hex() for owner, kind, body in notes if owner == b"GNU" and kind == 3), "")

    def notes(self, section: Section) -> list[tuple[bytes, int, bytes]]:
        """``(owner, type, body)`` of the notes of a section."""
        return parse_notes(bytes(self.contents(section, MOST_NOTES)))

    @cached_property
    def debug_link(self) -> tuple[str, int] | None:
        """Name and CRC32 of the separate debug file (``.gnu_debuglink``)."""
        section = self.section(".gnu_debuglink")
        if section is None:
            return None
        data = bytes(self.contents(section, _MOST_LINK))
        end = data.find(b"\0")
        place = end + 4 & ~3
        if end < 0 or place + 4 > len(data):
            # What cannot be read leads nowhere; the build id may.
            return None
        (checksum,) = struct.unpack_from("<I", data, place)
        name = data[:end].decode(errors="surrogateescape")
        # It is a base name: with a path, a program could have any file opened.
        return (name, checksum) if name not in ("", ".", "..") and "/" not in name else None

    @cached_property
    def supplement_link(self) -> tuple[str, str] | None:
        """Name and build id (hexadecimal) of the file that this one shares debug information with (``dwz -m``)."""
        old, new = self.section(".gnu_debugaltlink"), self.section(".debug_sup")
        if old is not None:
            name, _, build_id = bytes(self.contents(old, _MOST_LINK)).partition(b"\0")
        elif new is not None:
            # Version (2 bytes), whether this is the supplementary file itself, name, length and bytes of its id.
            data = bytes(self.contents(new, _MOST_LINK))
            name, _, build_id = data[3:].partition(b"\0")
            build_id = build_id[1:]
            if data[2:3] != b"\0":
                return None
        else:
            return None
        return name.decode(errors="surrogateescape"), build_id.hex()

    def checksum(self) -> int:
        """CRC32 of the whole file, as debug links have it."""
        checksum = 0
        for piece in pieces(self.view):
            checksum = zlib.crc32(piece, checksum)
        return checksum


def parse_notes(data: bytes) -> list[tuple[bytes, int, bytes]]:
    """``(owner, type, body)`` of notes in a row, as a section or ``/sys/kernel/notes`` has them."""
    notes, at = [], 0
    while at + 12 <= len(data):
        owner_size, size, kind = struct.unpack_from("<III", data, at)
        body = at + 12 + (owner_size + 3 & ~3)
        notes.append((data[at + 12 : at + 12 + owner_size].rstrip(b"\0"), kind, data[body : body + size]))
        at = body + (size + 3 & ~3)
    return notes


# ---------------------------------------------------------------------------------------------- archives


def archive_member(archive: str, member: str) -> tuple[int, int]:
    """Where a stored member of a zip archive lies: offset and size.

    Raises:
        TraceError: no such member, or it is compressed (uprobes need the code as it is in the file).
    """
    import zipfile

    try:
        with open_regular(archive) as file, zipfile.ZipFile(file) as opened:
            entry = opened.getinfo(member)
            file.seek(entry.header_offset)
            head = file.read(30)
    except KeyError:
        raise TraceError(f"{archive} has no member {member}") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise TraceError(f"{archive} cannot be read as an archive: {error}") from error
    if entry.compress_type != zipfile.ZIP_STORED:
        raise TraceError(f"{member} is compressed in {archive}; only stored libraries can be probed")
    if len(head) < 30:
        raise TraceError(f"{archive} is truncated: {member} is outside the file")
    name_size, extra_size = struct.unpack_from("<HH", head, 26)
    return entry.header_offset + 30 + name_size + extra_size, entry.file_size


def attach_path(path: str) -> str:
    """The file that uprobes of a binary attach to: the archive, for a member of one."""
    return path.partition("!/")[0]


def is_elf(path: str) -> bool:
    """True if a file (or a member of an archive) is an ELF program or library."""
    if "!/" in path:
        return is_regular(attach_path(path))
    try:
        with open_regular(path) as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and len(head) == 18 and head[16] in (2, 3)


# ---------------------------------------------------------------------------------------------- files of others


MEMORY, PATIENCE, TOTAL = 256 << 20, 10.0, 30.0
"""Bytes, seconds without progress, and all seconds that processes which read files of others may take."""
_TASKS = limited_process.LimitedTasks(limited_process.Limits(memory=MEMORY, patience=PATIENCE, total=TOTAL))


def read_file(path: str, read: Callable[[ElfFile], Result], type_: type[Result], seconds: float = 2.0) -> Result:
    """What *read* returns of an ELF file, which must be of *type_*; a limited process reads one of others.

    Raises:
        TraceError: not an ELF file, damaged, or it takes too much.
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        status = status_of(file)

        def result(opened: BinaryIO) -> Result:
            with ElfFile(contents_of(opened, path), path) as elf:
                return read(elf)

        if limited_process.inside() or trusted(path, status):
            return result(file)

        def task(descriptors: list[int]) -> bytes:
            try:
                return b"+" + typed_json.encode(result(reopened(descriptors[0], status)))
            except TraceError as error:
                return b"-" + error.message.encode("utf-8", "surrogateescape")

        try:
            answer = _TASKS.run(task, [file.fileno()], seconds)
            if answer[:1] == b"+":
                return typed_json.decode(answer[1:], type_)
        except (limited_process.LimitError, msgspec.ValidationError) as error:
            raise TraceError(f"{path} is not read: {error}") from None
    raise TraceError(answer[1:].decode("utf-8", "surrogateescape"))


_MOST_ENTRIES = 1 << 22
"""Entries that are looked at; a browser has a million."""
_FORM = b"\x01\x1b\x03\x3b"
"""Version 1, addresses of 4 bytes: relative to themselves, a number, relative to the header. All linkers write that."""
_ROWS = 12
"""Where the rows are in the section: after that, the place of ``.eh_frame`` and their number."""


class UnwindEntries:
    """The code that the entries of one file are about."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file

    def extent(self, address: int) -> tuple[int, int] | None:
        """Start and end of the code at an address; None where no entry is about it."""
        base, rows = self._table
        at = bisect_right(range(len(rows) // 8), address - base, key=lambda number: self._row(number)[0]) - 1
        if at < 0:
            return None
        start, entry = (base + distance for distance in self._row(at))
        end = start + self._size(entry, start)
        return (start, end) if start <= address < end else None

    def starts(self, address: int) -> bool:
        """Whether the code of an entry starts at an address."""
        extent = self.extent(address)
        return extent is not None and extent[0] == address

    def size(self, address: int) -> int:
        """Bytes from an address to the end of its code; 0 where that is not known."""
        extent = self.extent(address)
        return 0 if extent is None else extent[1] - address

    def __iter__(self) -> Iterator[int]:
        """Where code of entries starts."""
        base, rows = self._table
        return (base + start for start, _ in struct.iter_unpack("<ii", rows))

    @cached_property
    def _table(self) -> tuple[int, memoryview]:
        """The address that distances count from, and the rows of ``.eh_frame_hdr``: distances of the code and of its
        entry, in order of the code, as unwinders search for them.
        """
        header = self._file.section(".eh_frame_hdr")
        data = memoryview(b"") if header is None else self._file.contents(header, _ROWS + 8 * _MOST_ENTRIES)
        if header is None or data[: len(_FORM)] != _FORM or len(data) < _ROWS:
            return 0, memoryview(b"")
        count = min(int.from_bytes(data[_ROWS - 4 : _ROWS], "little"), (len(data) - _ROWS) // 8)
        return header.address, data[_ROWS : _ROWS + 8 * count]

    def _row(self, number: int) -> tuple[int, int]:
        start, entry = struct.unpack_from("<ii", self._table[1], 8 * number)
        return start, entry

    def _size(self, entry: int, start: int) -> int:
        """Bytes of code of an entry (FDE); 0 if it has another form than those of compilers."""
        section = self._file.section(".eh_frame")
        inside = -1 if section is None or section.type == SHT_NOBITS else entry - section.address
        if section is None or not 0 <= inside < section.size:
            return 0
        at = section.offset + inside
        words = bytes(self._file.view[at : at + 16])
        if len(words) < 16:
            return 0
        _, _, distance, size = struct.unpack("<IIiI", words)
        return int(size) if entry + 8 + distance == start else 0
