"""Sections with debug information, as pyelftools takes them: found by name, decompressed, each read when it is used.

Source: ``elf(5)`` for ``SHF_COMPRESSED``; ``.zdebug_*`` is the older form that GNU tools write for ``-gz=zlib-gnu``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from io import BytesIO
from typing import Protocol

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from pytrace.diagnostics import TraceError
from pytrace.runtime.elf import SHF_COMPRESSED, SHF_GROUP, SHT_NOBITS, ElfFile

_ZSTD = 2
"""``ELFCOMPRESS_ZSTD``."""


class DebugSection:
    """A section, or the part of one that belongs to a unit.

    Stands where pyelftools has a ``DebugSectionDescriptor``, which has all contents from the start.
    """

    def __init__(self, name: str, read: Callable[[], bytes]) -> None:
        self.name = name
        self.address = self.global_offset = 0
        self._read = read

    @cached_property
    def data(self) -> bytes:
        """The contents; empty for a section that is not there.

        Raises:
            TraceError: it is compressed and damaged, or in a way that this machine has no library for.
        """
        return self._read()

    @cached_property
    def stream(self) -> BytesIO:
        """The contents to read from, at any place."""
        return BytesIO(self.data)

    @property
    def size(self) -> int:
        """Length of the contents."""
        return len(self.data)


class Sections(Protocol):
    """Where units find what belongs to them: a file, or a unit's parts of a package."""

    @property
    def path(self) -> str:
        """The file, for messages."""

    @property
    def address_size(self) -> int:
        """Bytes of an address on the file's machine."""

    def section(self, name: str) -> DebugSection:
        """``.debug_NAME``, an empty one when it is not there."""


class FileSections:
    """The debug sections of one ELF file; with *split*, those whose names end in ``.dwo``."""

    def __init__(self, elf: ElfFile, *, split: bool = False) -> None:
        self.elf = elf
        self.path = elf.path
        self.address_size = 8 if elf.wide else 4
        self._suffix = ".dwo" if split else ""
        self._known: dict[str, DebugSection] = {}

    @cached_property
    def _file(self) -> ELFFile:
        # A mapping can be read like a file.
        return ELFFile(self.elf.view.obj)  # type: ignore[arg-type]

    def section(self, name: str) -> DebugSection:
        """``.debug_NAME``, an empty one when it is not there."""
        return self._section(f"debug_{name}{self._suffix}")

    def index(self, name: str) -> DebugSection:
        """``.debug_NAME`` as it is called in packages too, an empty one when it is not there."""
        return self._section(f"debug_{name}")

    def _section(self, name: str) -> DebugSection:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = DebugSection(name, lambda: self._find(name))
        return known

    def _find(self, name: str) -> bytes:
        sections = self.elf.sections
        found = [number for number, section in enumerate(sections) if section.name in (f".{name}", f".z{name}")]
        # Object files, and `.dwo` files with them, have each type unit in a section of its own. References between
        # units count from the start of the one that is in no group.
        found.sort(key=lambda number: bool(sections[number].flags & SHF_GROUP))
        return b"".join(self._contents(number) for number in found)

    def _contents(self, number: int) -> bytes:
        section = self.elf.sections[number]
        if section.type == SHT_NOBITS:
            return b""
        stored = self.elf.contents(section)
        try:
            # pyelftools 0.33 decompresses zlib alone, and of `.zdebug_*` all sections of a file or none.
            if section.flags & SHF_COMPRESSED and int.from_bytes(stored[:4], "little") == _ZSTD:
                return _zstd(stored, self.elf.wide)
            if section.name.startswith(".z") and bytes(stored[:4]) == b"ZLIB":
                return zlib.decompress(stored[12:])
            return self._file.get_section(number).data()
        except (zlib.error, ELFError, ValueError, MemoryError, OverflowError) as error:
            raise TraceError(f"{self.path}: {section.name} cannot be decompressed: {error}") from error


class SectionParts:
    """Parts of the sections of a package that belong to one unit; a section without a row is shared by all units."""

    def __init__(self, whole: Sections, rows: Mapping[str, tuple[int, int]], cut: frozenset[str]) -> None:
        self.path = whole.path
        self.address_size = whole.address_size
        self._whole = whole
        self._rows = rows
        self._cut = cut

    def section(self, name: str) -> DebugSection:
        """``.debug_NAME`` as far as it belongs to this unit."""
        whole = self._whole.section(name)
        if name not in self._cut:
            return whole
        start, size = self._rows.get(name, (0, 0))
        return DebugSection(name, lambda: whole.data[start : start + size])


def _zstd(stored: memoryview, wide: bool) -> bytes:
    """Contents behind an ``Elf64_Chdr`` or ``Elf32_Chdr``; the second of its three words is the size of them."""
    from pytrace.runtime.zstd import decompress

    word = 8 if wide else 4
    return decompress(bytes(stored[3 * word :]), int.from_bytes(stored[word : 2 * word], "little"))
