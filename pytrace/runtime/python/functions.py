"""Functions of Python frames, from the records that programs have made (``pytrace.core.stacks.python_format``)."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.stacks.python_format import FILE, FRAME, INDEX_BITS, LONGEST, NAME, RECORD, SLOT, SLOTS, UNIT
from pytrace.runtime.python import line_tables
from pytrace.runtime.symbols.images import Frame

if TYPE_CHECKING:
    from contextlib import ExitStack

_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
"""Forms of strings by bytes of a character (``PyUnicode_1BYTE_KIND`` …)."""
UNKNOWN = Frame("[unknown Python function]")
_PLACES = (1 << 32) - 1
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""A name may have any character; a line of output is a line."""


class _Function(msgspec.Struct, frozen=True):
    name: str
    file: str
    minor: int
    first: int
    table: bytes

    def frame(self, index: int, *, lines: bool) -> Frame:
        """The frame at a code unit (-1: before the first)."""
        file, line = "", 0
        if lines:
            file, line = self.file, line_tables.line(self.minor, self.table, self.first, index)
        return Frame(self.name, 2 * max(index, 0), self.file, file, line)


class PythonFunctions:
    """Resolves frames of Python stacks. It knows none until :meth:`start`."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self._records: mmap.mmap | bytes = b""
        self._functions: dict[int, _Function | None] = {}
        self._frames: dict[int, Frame] = {}

    def start(self, descriptor: int, stack: ExitStack) -> None:
        """Read the array of names from now on."""
        records = mmap.mmap(descriptor, SLOT * SLOTS, mmap.MAP_SHARED, mmap.PROT_READ)
        stack.callback(self._close, records)
        self._records = records

    def _close(self, records: mmap.mmap) -> None:
        self._records = b""
        records.close()

    @staticmethod
    def has(address: int) -> bool:
        """True if a frame of a user stack is one of Python."""
        return bool(address & FRAME)

    def frame(self, address: int) -> Frame:
        """The function of a frame."""
        known = self._frames.get(address)
        if known is None:
            function = self._function(address >> INDEX_BITS & _PLACES)
            index = (address & (1 << INDEX_BITS) - 1) - 1
            known = UNKNOWN if function is None else function.frame(index, lines=self._lines)
            self._frames[address] = known
        return known

    def _function(self, place: int) -> _Function | None:
        if not place:
            return None
        if place not in self._functions:
            start = (place - 1) * UNIT
            self._functions[place] = function(self._records[start : start + LONGEST])
        return self._functions[place]


def function(record: bytes) -> _Function | None:
    """The function of a record; None if there is none."""
    if len(record) < RECORD.size:
        return None
    minor, first, name_kind, name_length, file_kind, file_length, table_size, size = RECORD.unpack_from(record)[:8]
    body = record[RECORD.size : size]
    name, body = _string(body, name_kind, name_length, NAME)
    file, body = _string(body, file_kind, file_length, FILE)
    if not name:
        return None
    return _Function(name, file, minor, first, body[:table_size])


def _string(data: bytes, kind: int, length: int, limit: int) -> tuple[str, bytes]:
    """A string with *length* characters, of which the first *limit* bytes were copied; and what follows it."""
    size = min(min(length, limit) * kind, limit)
    text = data[:size].decode(_ENCODINGS.get(kind, "latin-1"), "replace")
    return text.translate(_CONTROLS), data[(size + 7) & ~7 :]
