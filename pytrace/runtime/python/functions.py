"""Names and lines of Python functions in stacks."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.stacks.python_format import FILE, FRAME, INDEX_BITS, LONGEST, NAME, RECORD, SLOT, SLOTS, UNIT
from pytrace.runtime.symbols.images import Frame

if TYPE_CHECKING:
    from contextlib import ExitStack


# ---------------------------------------------------------------------------------------------- line tables

# Lines of CPython's instructions by the tables of code objects.
#
# Sources: Objects/lnotab_notes.txt (3.9, 3.10) and Objects/locations.md (3.11 and later; InternalDocs/code_objects.md
# since 3.14). Positions are numbers of code units, of two bytes. A table that ends early, or has no line for a
# position, leads to the first line of the function.


_SIGNED = 128
_NO_LINE = -128
"""In 3.10: the instructions have no line."""
_NONE, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10
"""Codes of entries since 3.11; up to three more than the last, and lower ones, have a line delta of their own."""


def line_of(minor: int, table: bytes, first: int, index: int) -> int:
    """The line of the instruction at code unit *index* of a code object of CPython 3.*minor*; *first* is its first.

    *index* is negative before the first instruction.
    """
    if index < 0:
        return first
    if minor >= 11:
        return _by_locations(table, first, index)
    return _by_ranges(table, first, 2 * index) if minor == 10 else _by_steps(table, first, 2 * index)


def _signed(byte: int) -> int:
    return byte - 256 if byte >= _SIGNED else byte


def _by_steps(table: bytes, first: int, place: int) -> int:
    """3.9: pairs of steps, of the address and of the line."""
    address, result = 0, first
    for at in range(0, len(table) - 1, 2):
        address += table[at]
        if address > place:
            break
        result += _signed(table[at + 1])
    return result


def _by_ranges(table: bytes, first: int, place: int) -> int:
    """3.10: pairs of the length of a range and the step to its line from that before."""
    end, current = 0, first
    for at in range(0, len(table) - 1, 2):
        end += table[at]
        step = _signed(table[at + 1])
        current += 0 if step == _NO_LINE else step
        if place < end:
            return first if step == _NO_LINE else current
    return first


def _by_locations(table: bytes, first: int, index: int) -> int:
    """3.11 and later: entries of a byte with code and length, and what the code has after it."""
    at, end, current = 0, 0, first
    while at < len(table):
        head = table[at]
        code = head >> 3 & 15
        if code in (_LONG, _NO_COLUMNS):
            current += _delta(table, at + 1)
        elif _ONE_LINE <= code < _NO_COLUMNS:
            current += code - _ONE_LINE
        end += (head & 7) + 1
        if index < end:
            return first if code == _NONE else current
        at += 1
        # The first byte of an entry has the highest bit set, all others have not.
        while at < len(table) and not table[at] & 0x80:
            at += 1
    return first


def _delta(table: bytes, at: int) -> int:
    """A signed number in groups of six bits, the lowest first; bit 6 says that another follows."""
    value = shift = 0
    while at < len(table) and shift < 36:
        byte = table[at]
        value |= (byte & 63) << shift
        if not byte & 64:
            break
        at, shift = at + 1, shift + 6
    return -(value >> 1) if value & 1 else value >> 1


# ---------------------------------------------------------------------------------------------- functions

# Functions of Python frames, from the records that programs have made (``pytrace.core.stacks.python_format``).


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
            file, line = self.file, line_of(self.minor, self.table, self.first, index)
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
