"""Sections with debug information: found by name, decompressed, each read when it is asked for.

Source: ``elf(5)`` for ``SHF_COMPRESSED``; ``.zdebug_*`` is the older form that GNU tools write for ``-gz=zlib-gnu``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Protocol

from pytrace.diagnostics import TraceError
from pytrace.runtime.elf import SHF_COMPRESSED, SHF_GROUP, ElfFile, Section

_ZLIB, _ZSTD = 1, 2
"""``ELFCOMPRESS_ZLIB``, ``ELFCOMPRESS_ZSTD``."""
_NOTHING = memoryview(b"")


class Sections(Protocol):
    """Where units find what belongs to them: a file, or a unit's parts of a package."""

    @property
    def path(self) -> str:
        """The file, for messages."""

    def section(self, name: str) -> memoryview:
        """Contents of ``.debug_NAME``, empty when there is none."""


class FileSections:
    """The debug sections of one ELF file; with *split*, those whose names end in ``.dwo``."""

    def __init__(self, elf: ElfFile, *, split: bool = False) -> None:
        self.elf = elf
        self._suffix = ".dwo" if split else ""
        self._read: dict[str, memoryview] = {}

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.elf.path

    def section(self, name: str) -> memoryview:
        """Contents of ``.debug_NAME``, empty when there is none.

        Raises:
            TraceError: it is compressed and damaged, or in a way that this machine has no library for.
        """
        known = self._read.get(name)
        if known is None:
            known = self._read[name] = self._find(f"debug_{name}{self._suffix}")
        return known

    def index(self, name: str) -> memoryview:
        """Contents of ``.debug_NAME`` as it is called in packages too, empty when there is none."""
        return self._find(f"debug_{name}")

    def _find(self, name: str) -> memoryview:
        found = [section for section in self.elf.sections if section.name in (f".{name}", f".z{name}")]
        if len(found) <= 1:
            return self._contents(found[0]) if found else _NOTHING
        # Object files, and `.dwo` files with them, have each type unit in a section of its own. References between
        # units count from the start of the one that is in no group.
        found.sort(key=lambda section: bool(section.flags & SHF_GROUP))
        return memoryview(b"".join(self._contents(section) for section in found))

    def _contents(self, section: Section) -> memoryview:
        data = self.elf.contents(section)
        if section.flags & SHF_COMPRESSED:
            kind, size, head = _compression(data, self.elf.wide)
        elif section.name.startswith(".z") and bytes(data[:4]) == b"ZLIB":
            kind, size, head = _ZLIB, int.from_bytes(data[4:12], "big"), 12
        else:
            return data
        try:
            return memoryview(_expanded(kind, data[head:], size))
        except (zlib.error, ValueError, MemoryError, OverflowError) as error:
            raise TraceError(f"{self.path}: {section.name} cannot be decompressed: {error}") from error


class SectionParts:
    """Parts of the sections of a package that belong to one unit; a section without a row is shared by all units."""

    def __init__(self, whole: Sections, rows: Mapping[str, tuple[int, int]], cut: frozenset[str]) -> None:
        self.path = whole.path
        self._whole = whole
        self._rows = rows
        self._cut = cut

    def section(self, name: str) -> memoryview:
        """Contents of ``.debug_NAME`` for this unit."""
        if name not in self._cut:
            return self._whole.section(name)
        start, size = self._rows.get(name, (0, 0))
        return self._whole.section(name)[start : start + size]


def _compression(data: memoryview, wide: bool) -> tuple[int, int, int]:
    """Method, size after decompression, and length of the header (``Elf64_Chdr``, ``Elf32_Chdr``)."""
    if wide:
        kind, size, _ = struct.unpack_from("<I4xQQ", data)
        return kind, size, 24
    kind, size, _ = struct.unpack_from("<III", data)
    return kind, size, 12


def _expanded(kind: int, data: memoryview, size: int) -> bytes:
    if kind == _ZLIB:
        return zlib.decompress(data, bufsize=max(size, 1))
    if kind == _ZSTD:
        from pytrace.runtime.zstd import decompress

        return decompress(bytes(data), size)
    raise ValueError(f"compression method {kind} is unknown")
