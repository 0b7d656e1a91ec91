"""Messages of Protocol Buffers (proto2), written field by field: https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

import struct

_VARINT, _DOUBLE, _LENGTH = 0, 1, 2
"""Wire types."""
_MASK = (1 << 64) - 1
_SMALL = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    """A number of up to 64 bits; negative ones in two's complement, as ``int32`` and ``int64`` have them."""
    if 0 <= value <= 0x7F:
        return _SMALL[value]
    value &= _MASK
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """A field of an integer, truth value or enumeration. Zero is written too: proto2 knows fields without a value."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of type ``double``."""
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", value)


def data(field: int, value: bytes | str) -> bytes:
    """A field of text (which must be Unicode), bytes, or a message that is written already."""
    content = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content
