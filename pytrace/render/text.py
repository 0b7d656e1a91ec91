"""Decoded values and their text: the names that all output shares, texts that depend on no type, and wall times.

A form takes a decoded value (:mod:`pytrace.render.value_kind`) and returns bytes: strings of traced programs are
printed as they are, in any encoding. Every start imports this module.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Never, TypeAlias, TypeVar, cast

Memory = bytes | bytearray | memoryview
Value: TypeAlias = "int | float | bytes | tuple[Value, ...]"
"""A decoded value."""
Values: TypeAlias = "tuple[Value, ...]"
Decode = Callable[[Memory, int], Value]
"""From memory and an offset to a decoded value."""
Form = Callable[[Value], bytes]

Made = TypeVar("Made")

_CODES = {(1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q",
          (1, False): "B", (2, False): "H", (4, False): "I", (8, False): "Q"}  # fmt: skip


def integer_code(width: int, signed: bool) -> str:
    """The :mod:`struct` code of an integer of 1, 2, 4 or 8 bytes."""
    return _CODES[width, signed]


def for_any(form: Callable[[Never], Made]) -> Callable[[Value], Made]:
    """*form* as it is called: with decoded values, which are those of its own type."""
    return cast("Callable[[Value], Made]", form)


class Bars(Enum):
    """How the bars of histograms are drawn."""

    SIGNS = "signs"
    """``@``, as bpftrace draws them."""
    COLOUR = "colour"
    """Eighths of block characters, in colour."""


def map_title(name: str, mark: str) -> str:
    """The name of a map, after what is said of its values (``estimate``, ``sample``), if anything is."""
    return f"{mark} {name}" if mark else name


def encoded(text: str) -> bytes:
    """Text as the bytes that it had on the machine of the run."""
    return text.encode("utf-8", "surrogateescape")


def joined_members(forms: list[Form], comma: bytes) -> Callable[[Values], bytes]:
    """The texts of members with *comma* between them."""
    if len(forms) == 2:
        first, second = forms

        def pair(value: Values) -> bytes:
            return b"%s%s%s" % (first(value[0]), comma, second(value[1]))

        return pair
    return lambda value: comma.join([form(item) for form, item in zip(forms, value, strict=True)])


def named_members(
    names: Sequence[str], forms: Sequence[Callable[[Never], bytes]], comma: bytes, *, compact: bool
) -> Callable[[Sequence[Value]], bytes]:
    """The text of members with their names, as records have it."""
    if not names:
        return lambda _value: b"{}"
    equals, opening, closing = (b"=", b"{", b"}") if compact else (b" = ", b"{ ", b" }")
    encoded = [name.encode(errors="surrogateescape") for name in names]
    parts = [(b".%s%s" % (name, equals), for_any(form)) for name, form in zip(encoded, forms, strict=True)]

    def text(value: Sequence[Value]) -> bytes:
        inner = comma.join([label + form(item) for (label, form), item in zip(parts, value, strict=True)])
        return opening + inner + closing

    return text


# ---------------------------------------------------------------------------------------------- buffers


_BYTES = tuple(bytes((code,)) if 32 <= code <= 126 else b"\\x%02x" % code for code in range(256))


def escaped(data: bytes) -> bytes:
    """``%r``: printable ASCII as it is, other bytes as ``\\xNN``."""
    if data.isascii() and data.decode().isprintable():
        return data
    return b"".join([_BYTES[code] for code in data])


# --------------------------------------------------------------------------------------------------------------- times

_SECOND = 1_000_000_000
_FRACTIONS = {"f": (6, 1_000), "k": (9, 1), "l": (3, 1_000_000)}
"""Conversions that ``strftime`` of the C library lacks or means otherwise: digits, and nanoseconds of the last one."""


def strftime(layout: str, wall: int) -> bytes:
    """*wall* (nanoseconds since 1970) in local time, by the C library's conversions and three more.

    ``%f`` are microseconds (6 digits), ``%k`` nanoseconds (9 digits), ``%l`` milliseconds (3 digits).
    """
    second, rest = divmod(wall, _SECOND)
    parts = []
    for text, fraction in _split(layout):
        if fraction:
            digits, unit = _FRACTIONS[fraction]
            parts.append(b"%0*d" % (digits, rest // unit))
        else:
            parts.append(_calendar(text, second))
    return b"".join(parts)


@lru_cache(maxsize=256)
def _split(layout: str) -> tuple[tuple[str, str], ...]:
    """The layout as pieces for the C library and conversions of our own between them."""
    pieces: list[tuple[str, str]] = []
    start = 0
    for match in re.finditer(r"(?s)%(?:%|[-_0^#+]*[0-9]*[EO]?.)", layout):
        letter = match.group()[1:]
        if letter in _FRACTIONS:
            if match.start() > start:
                pieces.append((layout[start : match.start()], ""))
            pieces.append(("", letter))
            start = match.end()
    if start < len(layout):
        pieces.append((layout[start:], ""))
    return tuple(pieces)


@lru_cache(maxsize=1024)
def _calendar(layout: str, second: int) -> bytes:
    return time.strftime(layout, time.localtime(second)).encode("utf-8", "surrogateescape")
