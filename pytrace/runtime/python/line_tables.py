"""Lines of CPython's instructions by the tables of code objects.

Sources: Objects/lnotab_notes.txt (3.9, 3.10) and Objects/locations.md (3.11 and later; InternalDocs/code_objects.md
since 3.14). Positions are numbers of code units, of two bytes. A table that ends early, or has no line for a position,
leads to the first line of the function.
"""

from __future__ import annotations

_SIGNED = 128
_NO_LINE = -128
"""In 3.10: the instructions have no line."""
_NONE, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10
"""Codes of entries since 3.11; up to three more than the last, and lower ones, have a line delta of their own."""


def line(minor: int, table: bytes, first: int, index: int) -> int:
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
