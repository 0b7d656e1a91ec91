"""Wall time as text: ``strftime`` with fractions of a second."""

from __future__ import annotations

import re
import time
from functools import lru_cache

_SECOND = 1_000_000_000
_FRACTIONS = {"f": (6, 1_000), "k": (9, 1), "l": (3, 1_000_000)}
"""Conversions that ``strftime`` of the C library lacks or means otherwise: digits, and nanoseconds of the last one."""

_CONVERSION = re.compile(r"(?s)%(?:%|[-_0^#+]*[0-9]*[EO]?.)")


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
    for match in _CONVERSION.finditer(layout):
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
