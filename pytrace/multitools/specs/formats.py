"""Formats of ``trace``: printf conversions and ``%K``, ``%U`` for kernel and user symbols."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from pytrace.core.diagnostics import counted
from pytrace.multitools.specs.problems import SpecText

_CONVERSION = re.compile(r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<length>hh|h|ll|l|z|j|)(?P<name>[a-zA-Z%]|)")
_NAMES = frozenset("diuoxXcpsKU")


class Conversion(msgspec.Struct, frozen=True):
    """A conversion of a format: its name, and its form in a script's format."""

    name: str
    text: str
    at: int


def conversions(spec: SpecText) -> list[Conversion]:
    """The conversions of a format (its text with quotes, as written by the user).

    Raises:
        TraceError: one is unknown.
    """
    result: list[Conversion] = []
    for match in _CONVERSION.finditer(spec.text):
        name = match["name"]
        if name == "%":
            continue
        if name not in _NAMES:
            hints = ("d i u o x X c p s, with l or ll for 64 bits; K and U are symbols of the kernel and of programs",)
            raise spec.error(f"unknown conversion {match[0]!r}", at=match.start(), length=len(match[0]), hints=hints)
        text = f"%{match['flags']}{match['width']}s" if name in "KU" else match[0]
        result.append(Conversion(name, text, match.start()))
    return result


def script_format(spec: SpecText) -> str:
    """The format for the script, without quotes."""
    return _CONVERSION.sub(
        lambda match: f"%{match['flags']}{match['width']}s" if match["name"] in ("K", "U") else match[0],
        spec.text[1:-1],
    )


def values(
    spec: SpecText, format_conversions: list[Conversion], expressions: list[str], string: Callable[[str], str]
) -> list[str]:
    """The script's values for the conversions of a format; *string* translates an address to the text there.

    Raises:
        TraceError: there are more or fewer values than conversions.
    """
    if len(format_conversions) != len(expressions):
        message = f"the format takes {counted(len(format_conversions), 'value')}, {len(expressions)} given"
        raise spec.error(message)
    result: list[str] = []
    for conversion, expression in zip(format_conversions, expressions, strict=True):
        if conversion.name == "s":
            result.append(string(expression))
        elif conversion.name in "KU":
            result.append(f"{'ksym' if conversion.name == 'K' else 'usym'}({expression})")
        else:
            result.append(expression)
    return result
