"""Escaping of characters in traced data that a terminal would interpret (``\\x1b``) or not show.

These are C0 (below U+0020), DEL, C1 (U+0080 to U+009F), bytes that are not UTF-8, surrogates, and characters that have
no width or change the order of those around them: names that contain them would look like other names. Text of the
script or of pytrace itself is left unchanged.

Patterns are compiled when they are first used: these take 1.6 ms of each start, and most texts are printable ASCII,
which needs none.
"""

from __future__ import annotations

import re

UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U000e0000-\U000e0fff"
)
"""Inside of a set of a regular expression: default ignorable characters of Unicode but variation selectors, line and
paragraph separators, annotations."""
_NEVER = rf"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{UNSEEN}\ud800-\udfff"
_ANY = rf"[{_NEVER}\t\n\r]"
_BUT_LINE_ENDS = rf"[{_NEVER}]|\r(?!\n)"
_IN_MESSAGES = rf"(?m)(^\x1b\[(?:2|31|33)m|\x1b\[0m$)|{_BUT_LINE_ENDS}"
"""As :data:`_BUT_LINE_ENDS`; the first group matches the colours of pytrace's messages, which are of whole lines."""


def printable(data: bytes) -> bytes:
    r"""*data* with all control characters escaped, ``\n`` and ``\t`` included."""
    if data.isascii() and data.decode().isprintable():
        return data
    return _substituted(_ANY, data)


def printable_lines(data: bytes) -> bytes:
    """As :func:`printable`, for text of several lines: line ends and tabs stay."""
    if data.isascii() and _plain(data.decode()):
        return data
    return _substituted(_BUT_LINE_ENDS, data)


def printable_text(text: str) -> str:
    """As :func:`printable`, for text that may have surrogate escapes."""
    # Of others, some without width are printable for Unicode (U+3164).
    return text if text.isascii() and text.isprintable() else re.sub(_ANY, _escape, text)


def printable_message(text: str) -> str:
    """As :func:`printable_lines`, for a message of pytrace: colours stay as well."""
    if text.isascii() and _plain(text):
        return text
    return re.sub(_IN_MESSAGES, lambda match: match[1] or _escape(match), text)


def _plain(text: str) -> bool:
    """Whether lines of ASCII have no control characters."""
    return text.replace("\n", "").isprintable()


def _substituted(pattern: str, data: bytes) -> bytes:
    return re.sub(pattern, _escape, data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _escape(match: re.Match[str]) -> str:
    """The bytes of a character; of C1 its number, which is what a terminal takes for it."""
    character = match[0]
    if character <= "\x9f":
        return f"\\x{ord(character):02x}"
    if "\ud800" <= character <= "\udfff" and not "\udc80" <= character <= "\udcff":
        return f"\\u{ord(character):04x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
