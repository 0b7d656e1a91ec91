"""Messages of Protocol Buffers (proto2), written field by field: https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

import struct

from pytrace.base.protobuf import varint

_VARINT, _DOUBLE, _LENGTH = 0, 1, 2
"""Wire types."""


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
