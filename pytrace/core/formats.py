"""The conversions of printf formats, parsed here for the checker, the code generator and the runtime.

A conversion is ``%``, flags (``- + space # 0``), width, precision, length modifier and name; numbers may
be ``*``. A ``%`` that starts no conversion is text.
"""

from __future__ import annotations

import re

import msgspec

NAMES = ("d", "i", "u", "o", "x", "X", "f", "F", "e", "E", "g", "G", "c", "p", "s", "r", "rx", "rh", "gr")
"""Supported conversions; the checker and the runtime have a row for each."""

UNSUPPORTED = ("a", "A", "n")
"""Conversions of C that are recognised only to be rejected."""

WIDEST = 65_535
"""The greatest width and precision."""

_CONVERSION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?P<precision>\.(?:\d+|\*)?)?(?P<length>hh|h|ll|l|j|z|t|L)?"
    + f"(?P<name>{'|'.join(sorted((*NAMES, *UNSUPPORTED), key=len, reverse=True))}|%)".encode()
)
_STRAY = re.compile(rb"%[-+#0-9.*hljztL]*[!-$&-~]?")
"""The excerpt that messages show of a ``%`` that starts no conversion."""


class Conversion(msgspec.Struct, frozen=True):
    """One ``%…`` of a format, split into its parts."""

    name: str
    flags: str = ""
    width: str = ""
    precision: str = ""
    """Includes the dot."""
    length: str = ""

    @property
    def text(self) -> str:
        """The conversion as written."""
        return f"%{self.flags}{self.width}{self.precision}{self.length}{self.name}"

    @property
    def columns(self) -> int:
        """The minimum width; 0 when none is given or it is ``*`` (which takes no value here)."""
        return int(self.width) if self.width.isdigit() else 0

    @property
    def digits(self) -> int | None:
        """The precision: the least number of digits, the most bytes of a text; None when none is given, or ``.*``."""
        return int(self.precision[1:] or 0) if self.precision not in ("", ".*") else None


class Format(msgspec.Struct, frozen=True):
    """A parsed format: literal texts (``%%`` is ``%`` in them) and conversions, in order.

    *stray* are the offsets of each ``%`` that starts no conversion and is literal text.
    """

    parts: tuple[bytes | Conversion, ...]
    stray: tuple[str, ...] = ()

    @property
    def conversions(self) -> list[Conversion]:
        """The conversions, each of which takes a value."""
        return [part for part in self.parts if isinstance(part, Conversion)]

    @property
    def text(self) -> bytes:
        """The format with every ``%`` that starts no conversion doubled, as in the manifest."""
        return b"".join(
            part.text.encode() if isinstance(part, Conversion) else part.replace(b"%", b"%%") for part in self.parts
        )


def parse(text: bytes) -> Format:
    """Parse a format.

    Args:
        text: the format as in the script, with escapes resolved.

    Returns:
        Literal texts, none of them empty, and conversions, unsupported ones included.
    """
    parts: list[bytes | Conversion] = []
    stray: list[str] = []
    literal, offset = b"", 0
    while (percent := text.find(b"%", offset)) >= 0:
        literal += text[offset:percent]
        match = _CONVERSION.match(text, percent)
        if match is None:
            around = _STRAY.match(text, percent)
            stray.append((around[0] if around is not None else b"%").decode("utf-8", "surrogateescape"))
            literal, offset = literal + b"%", percent + 1
            continue
        offset = match.end()
        if match["name"] == b"%":
            literal += b"%"
            continue
        if literal:
            parts.append(literal)
        flags, width, precision, length, name = ((part or b"").decode() for part in match.groups())
        parts.append(Conversion(name, flags, width, precision, length))
        literal = b""
    literal += text[offset:]
    return Format((*parts, literal) if literal else tuple(parts), tuple(stray))
