"""The part of MessagePack (https://msgpack.org) that snapshots are made of.

Two things of it no library has together: texts whose bytes are not all UTF-8 stay as they are, and a document is read
where it lies, a part at a time, so that reading takes no memory for what is only passed over. Sizes and counts that a
document claims are compared with what is left of it before anything is made of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

Packed: TypeAlias = "bool | int | float | str | bytes | Sequence[Packed] | Mapping[str, Packed] | None"
"""What can be packed."""

Unpacked: TypeAlias = "bool | int | float | str | bytes | list[Unpacked] | dict[str, Unpacked] | None"

DEEPEST = 64
"""Lists in lists that are read."""

WINDOW = 1 << 16
"""Bytes that are read at once."""

# ---------------------------------------------------------------------------------------------- packing


def pack(value: Packed) -> bytes:
    """A document.

    Raises:
        OverflowError: an integer has more than 64 bits.
    """
    parts: list[bytes] = []
    _pack(value, parts)
    return b"".join(parts)


def _pack(value: Packed, parts: list[bytes]) -> None:
    if value is None:
        parts.append(b"\xc0")
    elif isinstance(value, bool):
        parts.append(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        parts.append(_integer(value))
    elif isinstance(value, float):
        parts.append(struct.pack(">Bd", 0xCB, value))
    elif isinstance(value, str):
        parts += _text(value)
    elif isinstance(value, bytes):
        parts += (_sized(len(value), (0xC4, 0xC5, 0xC6)), value)
    elif isinstance(value, Mapping):
        parts.append(_head(len(value), 0x80, 16, (0xDE, 0xDF)))
        for name, item in value.items():
            parts += _text(name)
            _pack(item, parts)
    else:
        parts.append(_head(len(value), 0x90, 16, (0xDC, 0xDD)))
        for item in value:
            if type(item) is str:
                parts += _text(item)
            else:
                _pack(item, parts)


_SHORT = [bytes((0xA0 | size,)) for size in range(32)]


def _text(text: str) -> tuple[bytes, bytes]:
    data = text.encode("utf-8", "surrogateescape")
    return _SHORT[len(data)] if len(data) < 32 else _sized(len(data), (0xD9, 0xDA, 0xDB)), data


def _head(count: int, short: int, most: int, codes: tuple[int, int]) -> bytes:
    """The head of a list or map."""
    return bytes((short | count,)) if count < most else _sized(count, (0, *codes), least=2)


def _sized(size: int, codes: tuple[int, int, int], least: int = 1) -> bytes:
    """A code with the narrowest size of at least so many bytes."""
    for code, form, width in zip(codes, (">BB", ">BH", ">BI"), (1, 2, 4), strict=True):
        if width >= least and size < 1 << 8 * width:
            return struct.pack(form, code, size)
    raise OverflowError(f"{size} is more than a document can hold in one place")


_POSITIVE = (
    (0x80, ">B", None), (1 << 8, ">BB", 0xCC), (1 << 16, ">BH", 0xCD), (1 << 32, ">BI", 0xCE), (1 << 64, ">BQ", 0xCF),
)  # fmt: skip
_NEGATIVE = (
    (0x20, ">b", None), (1 << 7, ">Bb", 0xD0), (1 << 15, ">Bh", 0xD1), (1 << 31, ">Bi", 0xD2), (1 << 63, ">Bq", 0xD3),
)  # fmt: skip
"""Integers, or what they are below -1, below a bound: their form and code."""


def _integer(value: int) -> bytes:
    size, rows = (value, _POSITIVE) if value >= 0 else (-1 - value, _NEGATIVE)
    for bound, form, code in rows:
        if size < bound:
            return struct.pack(form, value) if code is None else struct.pack(form, code, value)
    raise OverflowError(f"{value} has more than 64 bits")


# ---------------------------------------------------------------------------------------------- reading


class Pages(Protocol):
    """The bytes of a document, wherever they are."""

    @property
    def size(self) -> int:
        """How many they are."""

    def read(self, start: int, size: int) -> bytes:
        """Those from *start* on, at most *size*."""


class Memory:
    """A document in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, size: int) -> bytes:
        """As :meth:`Pages.read`."""
        return self._data[start : start + size]


class Kind(Enum):
    """What stands at a place of a document."""

    NIL = "nothing"
    BOOL = "a truth value"
    INTEGER = "an integer"
    FLOAT = "a decimal number"
    TEXT = "a text"
    BYTES = "bytes"
    LIST = "a list"
    MAP = "a map"


_SIZES: dict[int, tuple[Kind, int]] = {
    0xC4: (Kind.BYTES, 1), 0xC5: (Kind.BYTES, 2), 0xC6: (Kind.BYTES, 4),
    0xD9: (Kind.TEXT, 1), 0xDA: (Kind.TEXT, 2), 0xDB: (Kind.TEXT, 4),
    0xDC: (Kind.LIST, 2), 0xDD: (Kind.LIST, 4), 0xDE: (Kind.MAP, 2), 0xDF: (Kind.MAP, 4),
}  # fmt: skip
"""Codes after which a size comes, and the bytes of the size."""

_LONGEST_SHORT = 2 + 255
"""Bytes of a text whose size is one byte at most."""

_NUMBERS = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip


class Cursor:
    """A place in a document, which moves as it is read.

    All methods raise ValueError for what is not as it should be.
    """

    def __init__(self, pages: Pages, position: int = 0) -> None:
        self.pages = pages
        self.position = position
        self._window = b""
        self._start = 0

    def take(self, size: int) -> bytes:
        """The next *size* bytes."""
        at = self.position - self._start
        if at < 0 or at + size > len(self._window):
            if self.position + size > self.pages.size:
                raise ValueError("the document ends too early")
            self._window, self._start, at = self.pages.read(self.position, max(size, WINDOW)), self.position, 0
            if len(self._window) < size:
                raise ValueError("the document ends too early")
        self.position += size
        return self._window[at : at + size]

    def head(self) -> tuple[Kind, int]:
        """What comes next, and its size, its count or, of an integer or truth value, the value itself."""
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return Kind.INTEGER, code if code < 0x80 else code - 0x100
        if code < 0xC0:
            kind, size = (Kind.MAP, code & 15) if code < 0x90 else (Kind.LIST, code & 15)
            return self._fitting(*((kind, size) if code < 0xA0 else (Kind.TEXT, code & 31)))
        if code in _SIZES:
            kind, width = _SIZES[code]
            return self._fitting(kind, int.from_bytes(self.take(width), "big"))
        if code in _NUMBERS:
            form = _NUMBERS[code]
            return Kind.INTEGER, struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if code in (0xC2, 0xC3):
            return Kind.BOOL, code & 1
        if code in (0xCA, 0xCB):
            return Kind.FLOAT, 4 if code == 0xCA else 8
        if code == 0xC0:
            return Kind.NIL, 0
        raise ValueError(f"the document has an element of kind {code:#x}")

    def _fitting(self, kind: Kind, size: int) -> tuple[Kind, int]:
        if size * (2 if kind is Kind.MAP else 1) > self.pages.size - self.position:
            raise ValueError(f"{kind.value} of {size} in the {self.pages.size - self.position} bytes that are left")
        return kind, size

    def expect(self, kind: Kind) -> int:
        """The size, count or value of what comes next, which must be of a kind."""
        found, number = self.head()
        if found is not kind:
            raise ValueError(f"{found.value} where {kind.value} should be")
        return number

    def text(self) -> str:
        """The text that comes next."""
        return self.take(self.expect(Kind.TEXT)).decode("utf-8", "surrogateescape")

    def members(self) -> dict[str, int]:
        """The names of the map that comes next, and where the value of each is; all of it is passed over."""
        found = {}
        for _ in range(self.expect(Kind.MAP)):
            name = self.text()
            found[name] = self.position
            self.skip()
        return found

    def texts(self, count: int) -> list[bytes]:
        """The next *count* elements, which must be texts."""
        found: list[bytes] = []
        while len(found) < count:
            self._short_texts(found, count)
            if len(found) < count:
                found.append(self.take(self.expect(Kind.TEXT)))
        return found

    def _short_texts(self, found: list[bytes], count: int) -> None:
        """Those of them that have less than 256 bytes and are in the window."""
        window, at = self._window, self.position - self._start
        end = len(window) - 1
        while 0 <= at < end and len(found) < count:
            code = window[at]
            if 0xA0 <= code < 0xC0:
                start = at + 1
                after = start + (code & 31)
            elif code == 0xD9:
                start = at + 2
                after = start + window[at + 1]
            else:
                break
            if after > end + 1:
                break
            found.append(window[start:after])
            at = after
        self.position = self._start + at if at >= 0 else self.position

    def skip(self) -> None:
        """Pass over what comes next."""
        left = 1
        while left:
            kind, size = self.head()
            left -= 1
            if kind in (Kind.TEXT, Kind.BYTES, Kind.FLOAT):
                self.position += size
            elif kind is Kind.MAP:
                left += 2 * size
            elif kind is Kind.LIST:
                left += size
            if kind is Kind.LIST and size > 1:
                left -= self._skip_short_texts(size)
            if self.position > self.pages.size:
                raise ValueError("the document ends too early")

    def _skip_short_texts(self, count: int) -> int:
        """Pass over texts that a list begins with, as far as that is quick; how many they were."""
        passed = 0
        while passed < count:
            found: list[bytes] = []
            self._short_texts(found, min(count - passed, 1024))
            passed += len(found)
            if not found and not (self._start + len(self._window) - self.position < _LONGEST_SHORT and self._reload()):
                break
        return passed

    def _reload(self) -> bool:
        """Begin the window at the position; whether it has more than before."""
        if self.position - self._start <= 0 or self.position >= self.pages.size:
            return False
        self._window, self._start = self.pages.read(self.position, WINDOW), self.position
        return True

    def value(self, depth: int = 0) -> Unpacked:
        """What comes next, as it is; for what is known to be small."""
        kind, number = self.head()
        if depth > DEEPEST:
            raise ValueError(f"lists in lists, deeper than {DEEPEST}")
        if kind is Kind.TEXT:
            return self.take(number).decode("utf-8", "surrogateescape")
        if kind is Kind.BYTES:
            return self.take(number)
        if kind is Kind.LIST:
            return [self.value(depth + 1) for _ in range(number)]
        if kind is Kind.MAP:
            return {self.text(): self.value(depth + 1) for _ in range(number)}
        if kind is Kind.FLOAT:
            return float(struct.unpack(">f" if number == 4 else ">d", self.take(number))[0])
        return None if kind is Kind.NIL else bool(number) if kind is Kind.BOOL else number


def cursors(pages: Pages, position: int) -> Iterator[Cursor]:
    """A cursor at each element of the list at a position; elements are passed over by others."""
    cursor = Cursor(pages, position)
    for _ in range(cursor.expect(Kind.LIST)):
        yield Cursor(pages, cursor.position)
        cursor.skip()


def steps(count: int, size: int) -> Iterable[int]:
    """*count* as a sum of numbers of at most *size*, all but the last of which are *size*."""
    return (min(size, count - start) for start in range(0, count, size))
