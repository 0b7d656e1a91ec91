"""Escaping of control characters in traced data, which a terminal would interpret (``\\x1b``).

These are C0 (below U+0020), DEL, and C1 (U+0080 to U+009F), the latter also as single bytes that are not UTF-8. Text
of the script or of pytrace itself is left unchanged.
"""

from __future__ import annotations

import re

_C1_BYTES = "\udc80-\udc9f"
_ANY = re.compile(rf"[\x00-\x1f\x7f-\x9f{_C1_BYTES}]")
_BUT_LINE_ENDS = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_C1_BYTES}]|\r(?!\n)")
_IN_MESSAGES = re.compile(rf"(\x1b\[(?:\d|3\d)?m)|{_BUT_LINE_ENDS.pattern}")
"""As :data:`_BUT_LINE_ENDS`; the first group matches colours, which messages contain."""


def printable(data: bytes) -> bytes:
    r"""*data* with all control characters escaped, ``\n`` and ``\t`` included."""
    if data.isascii() and data.decode().isprintable():
        return data
    return _substituted(_ANY, data)


def printable_lines(data: bytes) -> bytes:
    """As :func:`printable`, for text of several lines: line ends and tabs stay."""
    return _substituted(_BUT_LINE_ENDS, data)


def printable_message(text: str) -> str:
    """As :func:`printable_lines`, for a message of pytrace: colours stay as well."""
    return _IN_MESSAGES.sub(lambda match: match[1] or _escape(match), text)


def _substituted(pattern: re.Pattern[str], data: bytes) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    return pattern.sub(_escape, text).encode("utf-8", "surrogateescape")


def _escape(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]) & 0xFF:02x}"
