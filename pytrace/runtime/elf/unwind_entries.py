"""Where functions and parts of them start and end, by the entries of ``.eh_frame``: stripped files have them, too.

Source: the Linux Standard Base, "Exception Frame Header" and "The .eh_frame section".
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.runtime.elf.file import SHT_NOBITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.runtime.elf.file import ElfFile

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
