"""Text in scripts and of traced programs: bytes escaped as UTF-8, integers and booleans, printf formats, and ``*``
patterns over names of probes and symbols, of which there may be 100,000.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from pytrace.base.control_characters import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable

# --------------------------------------------------------------------------------------------------------- byte escapes

# Bytes of traced programs as UTF-8 text, without loss: `\xNN` stands for the byte NN.
#
# A backslash is unchanged unless it would start an escape; then it becomes `\x5c`. So replacing each `\xNN` by its
# byte restores the original bytes. CSV, tables of Arrow and labels of metrics use this form.


_ESCAPE = r"\\(?=x[0-9a-f]{2})"
_NOT_UTF8 = re.compile(rf"[\udc80-\udcff]|{_ESCAPE}")
_NOT_SHOWN = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\udc80-\udcff{UNSEEN}]|{_ESCAPE}")


def escaped_utf8(text: bytes) -> str:
    """*text* with bytes that are not UTF-8 escaped."""
    return _NOT_UTF8.sub(_escaped, text.decode("utf-8", "surrogateescape"))


def printable_utf8(text: bytes) -> bytes:
    """Like :func:`escaped_utf8`, but also escapes control characters other than tabs and line ends, and what is not
    seen (:data:`UNSEEN`).
    """
    return _NOT_SHOWN.sub(_escaped, text.decode("utf-8", "surrogateescape")).encode()


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in match.group().encode("utf-8", "surrogateescape"))


# -------------------------------------------------------------------------------------------------------------- numbers

# Integers, times and booleans in text that is not script code: attach points, parameters, configuration values.
#
# This is the wider form of the script's integers: `0b101` and a leading sign are understood here as well.


DURATIONS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
"""Nanoseconds of each duration suffix."""

LONGEST = 100
"""Maximum length of a number's text."""

_INTEGER = re.compile(
    r"""(?P<sign>[+-]?)
    (?: 0[xX](?P<hex>[0-9a-fA-F](?:_?[0-9a-fA-F])*)
      | 0[bB](?P<binary>[01](?:_?[01])*)
      | (?P<mantissa>[1-9])[eE](?P<exponent>[0-9]{1,2})
      | (?P<octal>0(?:_?[0-7])+)(?:[uU]?[lL]{0,2})
      | (?P<decimal>0|[1-9](?:_?[0-9])*)(?P<suffix>ns|us|ms|[smhd]|[uU]?[lL]{0,2})
    )""",
    re.VERBOSE,
)


def parse_integer(text: str) -> int | None:
    """The integer that the whole *text* denotes, or None.

    Decimal (with ``_``, a C suffix, or a duration suffix, for a result in nanoseconds), octal, hexadecimal, binary, or
    ``NeM``; with or without sign.
    """
    match = _INTEGER.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    sign = -1 if match["sign"] == "-" else 1
    if match["mantissa"]:
        power: int = 10 ** int(match["exponent"])
        return sign * int(match["mantissa"]) * power
    for group, base in (("hex", 16), ("binary", 2), ("octal", 8)):
        if match[group]:
            return sign * int(match[group].replace("_", ""), base)
    factor = DURATIONS.get(match["suffix"], 1)
    return sign * int(match["decimal"].replace("_", "")) * factor


NANOSECONDS = DURATIONS["s"]
LONGEST_TIME = 10 * 365 * DURATIONS["d"]
"""The longest time: ten years."""


def parse_time(text: str) -> int | None:
    """Nanoseconds; *text* is seconds, or a number with a unit, with decimals or without. None if it is no time."""
    number = text.rstrip("nsumhd")
    unit, (whole, _, part) = text[len(number) :] or "s", number.partition(".")
    if not (text.isascii() and (whole + part).isdigit() and len(text) < 30) or unit not in DURATIONS:
        value = parse_integer(text) if text[:1].isdigit() and text[-1:] in "smhd" else None
    else:
        value = int(whole or 0) * DURATIONS[unit] + int((part + "0" * 9)[:9]) * DURATIONS[unit] // NANOSECONDS
    return value if value is not None and value <= LONGEST_TIME else None


def parse_flag(text: str) -> bool | None:
    """The value of a script's flag that *text* denotes (true/false, 1/0 in any case), or None."""
    return _FLAGS.get(text.lower())


_FLAGS = {"true": True, "1": True, "false": False, "0": False}


# -------------------------------------------------------------------------------------------------------------- formats

# The conversions of printf formats, parsed here for the checker, the code generator and the runtime.
#
# A conversion is `%`, flags (`- + space # 0`), width, precision, length modifier and name; numbers may
# be `*`. A `%` that starts no conversion is text.


CONVERSION_NAMES = ("d", "i", "u", "o", "x", "X", "f", "F", "e", "E", "g", "G", "c", "p", "s", "r", "rx", "rh", "gr")
"""Supported conversions; the checker and the runtime have a row for each."""

UNSUPPORTED_CONVERSIONS = ("a", "A", "n")
"""Conversions of C that are recognised only to be rejected."""

_CONVERSION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?P<precision>\.(?:\d+|\*)?)?(?P<length>hh|h|ll|l|j|z|t|L)?"
    + f"(?P<name>{'|'.join(sorted((*CONVERSION_NAMES, *UNSUPPORTED_CONVERSIONS), key=len, reverse=True))}|%)".encode()
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


def parse_format(text: bytes) -> Format:
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


# --------------------------------------------------------------------------------------------------- patterns of names

def name_pattern(pattern: str) -> re.Pattern[str]:
    """A compiled expression whose ``fullmatch`` accepts what a ``*`` pattern does."""
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern accepts, in order."""
    if pattern == "*":
        return list(names)
    if "*" not in pattern:
        return [name for name in names if name == pattern]
    head, *middle, tail = pattern.split("*")
    if not middle:
        least = len(head) + len(tail)
        return [name for name in names if name.startswith(head) and name.endswith(tail) and len(name) >= least]
    accepts = name_pattern(pattern).fullmatch
    return [name for name in names if accepts(name)]
