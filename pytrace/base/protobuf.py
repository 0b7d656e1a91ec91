"""Encoder of protocol buffer messages (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

_VARINT, _DOUBLE, _LENGTH = 0, 1, 2
"""Wire types."""
_WORD = (1 << 64) - 1


@lru_cache(maxsize=1 << 16)
def varint(number: int) -> bytes:
    """A 64-bit number as a varint; negative numbers in two's complement (``int64``)."""
    number &= _WORD
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    """A field of an integer, truth value or enumeration, zero too: proto2 distinguishes it from a missing field."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of type ``double``."""
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", value)


def data(field: int, value: bytes | str) -> bytes:
    """A field of text (which must be Unicode), bytes, or an encoded message."""
    content = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


class Message:
    """A message under construction; fields are encoded in the order of the calls.

    As in proto3, a number 0 and an empty string are omitted, except as elements of repeated fields (:meth:`packed`,
    and strings with *repeated*).
    """

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def number(self, field: int, value: int) -> None:
        """A field of type ``int64``, ``uint64`` or ``bool``."""
        if value:
            self._data += number(field, value)

    def packed(self, field: int, values: Iterable[int]) -> None:
        """A packed repeated field of type ``int64``, ``uint64`` or ``bool``."""
        packed = b"".join(map(varint, values))
        if packed:
            self._data += data(field, packed)

    def text(self, field: int, value: bytes, *, repeated: bool = False) -> None:
        """A field of type ``string`` (UTF-8) or ``bytes``."""
        if value or repeated:
            self._data += data(field, value)

    def message(self, field: int, value: Message) -> None:
        """A field that is a message."""
        self._data += data(field, bytes(value))
