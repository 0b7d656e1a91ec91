"""Numbers of variable length (LEB128). Source: the DWARF 5 standard, 7.6."""

from __future__ import annotations

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
