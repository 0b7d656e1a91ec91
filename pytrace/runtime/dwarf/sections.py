"""Sections with debug information, as pyelftools takes them: found by name, decompressed, each read when it is used.

What is not compressed stays in the mapped file: of a library's hundreds of megabytes only those pages become memory
that questions are about.

Source: ``elf(5)`` for ``SHF_COMPRESSED``; ``.zdebug_*`` is the older form that GNU tools write for ``-gz=zlib-gnu``.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import IO, TYPE_CHECKING, Protocol, cast

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.elf.file import SHF_COMPRESSED, SHF_GROUP, SHT_NOBITS, ElfFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Buffer = bytes | bytearray | memoryview

_ZLIB, _ZSTD = 1, 2
"""``ELFCOMPRESS_ZLIB``, ``ELFCOMPRESS_ZSTD``."""
_CHUNK = 1 << 20
"""Most bytes that are decompressed at once."""
_INPUT = 1 << 16
_MOST_RATIO = 100
"""What debug information becomes by decompression at most, as a multiple; 3 to 10 are usual, and 1,032 possible."""


class ViewStream:
    """A view of memory to read from like a file, without a copy of all of it; what pyelftools wants of streams."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, fewer at the end."""
        start = self._at
        end = len(self._view) if size < 0 else start + size
        data = bytes(self._view[start:end])
        self._at = start + len(data)
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place: from the start, from here (1) or from the end (2)."""
        base = (0, self._at, len(self._view))[whence]
        if base + offset < 0:
            raise ValueError(f"there is nothing at {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The place that is read next."""
        return self._at


class DebugSection:
    """A section, or the part of one that belongs to a unit.

    Stands where pyelftools has a ``DebugSectionDescriptor``, which has all contents from the start.
    """

    def __init__(self, name: str, read: Callable[[], Buffer]) -> None:
        self.name = name
        self.address = self.global_offset = 0
        self._read = read

    @cached_property
    def data(self) -> memoryview:
        """The contents; empty for a section that is not there.

        Raises:
            TraceError: it is compressed and damaged, or by an unknown method.
        """
        return memoryview(self._read())

    @cached_property
    def stream(self) -> IO[bytes]:
        """The contents to read from, at any place."""
        return cast(IO[bytes], ViewStream(self.data))

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
        self._damaged: dict[str, str] = {}

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

    def _find(self, name: str) -> Buffer:
        """The contents; what was wrong with them is not tried again for each question."""
        problem = self._damaged.get(name)
        if problem is not None:
            raise TraceError(problem)
        try:
            return self._read(name)
        except TraceError as error:
            self._damaged[name] = error.message
            raise

    def _read(self, name: str) -> Buffer:
        sections = self.elf.sections
        numbers = [number for number, section in enumerate(sections) if section.name in (f".{name}", f".z{name}")]
        # Object files, and `.dwo` files with them, have each type unit in a section of its own. References between
        # units count from the start of the one that is in no group.
        numbers.sort(key=lambda number: bool(sections[number].flags & SHF_GROUP))
        if len(numbers) == 1:
            return self._contents(numbers[0])
        return b"".join(self._contents(number) for number in numbers)

    def _contents(self, number: int) -> Buffer:
        section = self.elf.sections[number]
        if section.type == SHT_NOBITS:
            return b""
        stored = self.elf.contents(section)
        try:
            if section.flags & SHF_COMPRESSED:
                method, size, at = _compression(stored, self.elf.wide)
            elif section.name.startswith(".z") and bytes(stored[:4]) == b"ZLIB":
                method, size, at = _ZLIB, int.from_bytes(stored[4:12], "big"), 12
            else:
                return stored
            self.elf.check_size(section, size)
            if size > max(_MOST_RATIO * len(stored), _CHUNK):
                raise ValueError(f"{len(stored)} bytes cannot be {size} of debug information")
            return _from_zstd(stored[at:], size) if method == _ZSTD else _from_zlib(stored[at:], size)
        except (zlib.error, ValueError, MemoryError, OverflowError) as error:
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


def _compression(stored: memoryview, wide: bool) -> tuple[int, int, int]:
    """The method, the size of the contents and where they begin, of an ``Elf64_Chdr`` or ``Elf32_Chdr``."""
    word = 8 if wide else 4
    method, size = int.from_bytes(stored[:4], "little"), int.from_bytes(stored[word : 2 * word], "little")
    if method not in (_ZLIB, _ZSTD):
        raise ValueError(f"the method has the number {method}, which is unknown")
    return method, size, 3 * word


def _from_zlib(data: memoryview, size: int) -> bytearray:
    # No more than the header says: a damaged or malicious one must not fill memory.
    contents, unpacker = bytearray(), zlib.decompressobj()
    for start in range(0, len(data), _INPUT):
        room = size - len(contents)
        if room <= 0 or unpacker.eof:
            break
        contents += unpacker.decompress(data[start : start + _INPUT], room)
    return contents


def _from_zstd(data: memoryview, size: int) -> bytearray:
    """At most *size* bytes of one or more frames; memory is taken as their content needs it, whatever is claimed."""
    import zstandard  # few files have such sections

    contents = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
            while part := stream.read(min(size - len(contents), _CHUNK)):
                contents += part
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    return contents
