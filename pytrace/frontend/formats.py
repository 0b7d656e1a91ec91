"""printf formats: reading the conversions and checking values against them (reference section 19)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytrace.dataclass import dataclass
from pytrace.frontend import ast
from pytrace.frontend.conversions import Flexible, Unknown, settle
from pytrace.types import Bool, Buffer, Enum, Int, Pointer, Type, Void

if TYPE_CHECKING:
    from pytrace.frontend.checker import Checker

MAX_ARGUMENTS = 127

_CONVERSION = re.compile(
    rb"%(?P<flags>-?\+? ?#?0?)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*)?)?(?P<length>hh|h|ll|l|j|z|t|L)?"
    rb"(?P<conversion>rx|rh|gr|[a-zA-Z%])?"
)


@dataclass(frozen=True, slots=True)
class Conversion:
    """One ``%…`` of a format: its text and its conversion (``d``, ``s``, ``rx``, ``gr`` …)."""

    text: str
    name: str


class FormatError(Exception):
    """A format that is not one."""


def parse(text: bytes) -> list[Conversion]:
    """The conversions of a format that take a value, in order.

    Raises:
        FormatError: a conversion is not complete, not known or not supported.
    """
    found = []
    at = text.find(b"%")
    while at >= 0:
        match = _CONVERSION.match(text, at)
        name = (match["conversion"] or b"").decode() if match is not None else ""
        if match is None or not name:
            raise FormatError(f"incomplete conversion {_shown(text[at:])!r}")
        shown = _shown(match[0])
        if name in _UNSUPPORTED:
            raise FormatError(f"conversion {shown!r} is not supported")
        if name != "%":
            if name not in CONVERSIONS:
                raise FormatError(f"unknown conversion {shown!r}")
            found.append(Conversion(shown, name))
        at = text.find(b"%", match.end())
    return found


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _is_number(kind: Type) -> bool:
    return isinstance(kind, Int | Flexible | Bool | Pointer | Enum)


def _is_integer(kind: Type) -> bool:
    return isinstance(kind, Int | Flexible | Enum)


def _is_buffer(kind: Type) -> bool:
    return isinstance(kind, Buffer)


def _has_text(kind: Type) -> bool:
    return not isinstance(kind, Void) and not kind.aggregate


_NUMBERS = ("d", "i", "u", "o", "x", "X", "c", "p")
_UNSUPPORTED = frozenset("eEfFgGaAn")

CONVERSIONS: dict[str, tuple[Callable[[Type], bool], str]] = {
    **dict.fromkeys(_NUMBERS, (_is_number, "an integer")),
    "gr": (_is_integer, "an integer of GFP flags"),
    "s": (_has_text, "a value"),
    "r": (_is_buffer, "a buffer"),
    "rx": (_is_buffer, "a buffer"),
    "rh": (_is_buffer, "a buffer"),
}
"""For each conversion what it takes: a test, and a name for messages."""


def check(checker: Checker, node: ast.Expr, name: str, text: bytes, values: tuple[ast.Expr, ...]) -> bool:
    """Check the *values* of a call of *name* against its format; reports what does not fit."""
    kinds = [checker.value(value) for value in values]
    try:
        wanted = parse(text)
    except FormatError as problem:
        checker.error(f"{name}(): {problem}", node.span)
        return False
    if len(values) > MAX_ARGUMENTS:
        checker.error(f"{name}() takes at most {MAX_ARGUMENTS} values, not {len(values)}", node.span)
        return False
    if len(wanted) != len(values):
        less = "not enough" if len(wanted) > len(values) else "too many"
        checker.error(f"{less} values for {name}(): the format takes {len(wanted)}, {len(values)} given", node.span)
        return False
    fine = True
    for conversion, kind in zip(wanted, kinds, strict=True):
        test, what = CONVERSIONS[conversion.name]
        if not isinstance(kind, Unknown) and not test(kind):
            checker.error(f"{name}(): {conversion.text} takes {what}, not {settle(kind)}", node.span)
            fine = False
    return fine
