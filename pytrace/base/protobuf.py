"""Encoder of protocol buffer messages (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_VARINT, _LENGTH = 0, 2
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
            self._data += varint(field << 3 | _VARINT)
            self._data += varint(value)

    def packed(self, field: int, values: Iterable[int]) -> None:
        """A packed repeated field of type ``int64``, ``uint64`` or ``bool``."""
        data = b"".join(map(varint, values))
        if data:
            self._put(field, data)

    def text(self, field: int, value: bytes, *, repeated: bool = False) -> None:
        """A field of type ``string`` (UTF-8) or ``bytes``."""
        if value or repeated:
            self._put(field, value)

    def message(self, field: int, value: Message) -> None:
        """A field that is a message."""
        self._put(field, bytes(value))

    def _put(self, field: int, data: bytes) -> None:
        self._data += varint(field << 3 | _LENGTH)
        self._data += varint(len(data))
        self._data += data
