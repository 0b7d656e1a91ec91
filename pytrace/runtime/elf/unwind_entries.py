"""Where functions and parts of them start and end, by the entries of ``.eh_frame``: stripped files have them, too.

Source: the Linux Standard Base, "Exception Frame Header" and "The .eh_frame section".
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile

_FORM = b"\x01\x1b\x03\x3b"
"""Version 1, addresses of 4 bytes: relative to themselves, a number, relative to the header. All linkers write that."""


class UnwindEntries:
    """The code that the entries of one file are about."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file

    def extent(self, address: int) -> tuple[int, int] | None:
        """Start and end of the code at an address; None where no entry is about it."""
        at = bisect_right(self._rows, (address, 1 << 64)) - 1
        if at < 0:
            return None
        start, entry = self._rows[at]
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

    @cached_property
    def _rows(self) -> list[tuple[int, int]]:
        """Start of the code and address of each entry, by ``.eh_frame_hdr``, in order."""
        header = self._file.section(".eh_frame_hdr")
        data = bytes(self._file.contents(header)) if header is not None else b""
        if header is None or data[:4] != _FORM or len(data) < 12:
            return []
        count = min(int.from_bytes(data[8:12], "little"), (len(data) - 12) // 8)
        rows = struct.iter_unpack("<ii", data[12 : 12 + 8 * count])
        return sorted((header.address + start, header.address + entry) for start, entry in rows)

    def _size(self, entry: int, start: int) -> int:
        """Bytes of code of an entry (FDE); 0 if it has another form than those of compilers."""
        section = self._file.section(".eh_frame")
        if section is None or entry < section.address:
            return 0
        words = bytes(self._file.contents(section)[entry - section.address :][:16])
        if len(words) < 16:
            return 0
        _, _, distance, size = struct.unpack("<IIiI", words)
        return int(size) if entry + 8 + distance == start else 0
