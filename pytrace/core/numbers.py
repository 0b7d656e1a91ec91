"""Integers and booleans in text that is not script code: attach points, parameters, configuration values.

This is the wider form of the script's integers: ``0b101`` and a leading sign are understood here as well.
"""

from __future__ import annotations

import re

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


def parse_boolean(text: str) -> bool | None:
    """The boolean that *text* denotes (true/false, 1/0, on/off, yes/no in any case), or None."""
    return _BOOLEANS.get(text.lower())


_BOOLEANS = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}


def parse_flag(text: str) -> bool | None:
    """The value of a script's flag that *text* denotes (true/false, 1/0 in any case), or None."""
    return _FLAGS.get(text.lower())


_FLAGS = {"true": True, "1": True, "false": False, "0": False}
