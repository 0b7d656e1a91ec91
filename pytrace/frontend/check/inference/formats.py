"""printf formats: reading the conversions and checking values against them (reference section 19)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytrace.base.fast_dataclass import dataclass
from pytrace.core.types import Bool, Buffer, Enum, Int, Pointer, Type, Void
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.inference.conversions import Flexible, Unknown, settle

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker

MAX_ARGUMENTS = 127

_CONVERSION = re.compile(
    rb"%(?P<flags>-?\+? ?#?0?)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*)?)?(?P<length>hh|h|ll|l|j|z|t|L)?"
    rb"(?P<conversion>rx|rh|gr|[diuoxXcpsreEfFgGaAn%])"
)
_STRAY = re.compile(rb"%[-+#0-9.*hljztL]*[!-$&-~]?")
"""What a message shows of a ``%`` that starts no conversion."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """One ``%…`` of a format: its text and its conversion (``d``, ``s``, ``rx``, ``gr`` …)."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class Format:
    """A format as it is read: literal texts (``%%`` is ``%`` in them) and conversions, in order.

    *stray* are the places where a ``%`` starts no conversion; it is part of the literal text there.
    """

    parts: tuple[bytes | Conversion, ...]
    stray: tuple[str, ...] = ()

    @property
    def conversions(self) -> list[Conversion]:
        """The conversions, each of which takes a value."""
        return [part for part in self.parts if isinstance(part, Conversion)]

    @property
    def text(self) -> bytes:
        """The format as the runtime reads it: every ``%`` that starts no conversion is doubled."""
        return b"".join(
            part.text.encode() if isinstance(part, Conversion) else part.replace(b"%", b"%%") for part in self.parts
        )


class FormatError(Exception):
    """A format with a conversion that is not supported."""


def parse(text: bytes) -> Format:
    """Read a format.

    Raises:
        FormatError: a conversion is not supported.
    """
    parts: list[bytes | Conversion] = []
    stray: list[str] = []
    literal, at = b"", 0
    while (percent := text.find(b"%", at)) >= 0:
        literal += text[at:percent]
        match = _CONVERSION.match(text, percent)
        if match is None:
            around = _STRAY.match(text, percent)
            stray.append(_shown(around[0] if around is not None else b"%"))
            literal, at = literal + b"%", percent + 1
            continue
        at, name = match.end(), match["conversion"].decode()
        if name in _UNSUPPORTED:
            raise FormatError(f"conversion {_shown(match[0])!r} is not supported")
        if name == "%":
            literal += b"%"
        else:
            parts += [literal, Conversion(_shown(match[0]), name)]
            literal = b""
    return Format((*parts, literal + text[at:]), tuple(stray))


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


def check(
    checker: Checker, node: nodes.Expr, name: str, text: bytes, values: tuple[nodes.Expr, ...]
) -> Format | None:
    """Check the *values* of a call of *name* against its format; reports what does not fit, and gives None then."""
    kinds = [checker.value(value) for value in values]
    try:
        format_ = parse(text)
    except FormatError as problem:
        checker.error(f"{name}(): {problem}", node.span)
        return None
    for part in format_.stray:
        checker.warn(
            f"{name}(): {part!r} is no conversion: the % is taken as it is", node.span, hints=["write %% for a % sign"]
        )
    if len(values) > MAX_ARGUMENTS:
        checker.error(f"{name}() takes at most {MAX_ARGUMENTS} values, not {len(values)}", node.span)
        return None
    wanted = format_.conversions
    if len(wanted) != len(values):
        less = "not enough" if len(wanted) > len(values) else "too many"
        checker.error(
            f"{less} values for {name}(): the format takes {len(wanted)}, {len(values)} given",
            node.span,
            hints=_spaced_hints(wanted),
        )
        return None
    fine = True
    for conversion, kind in zip(wanted, kinds, strict=True):
        test, what = CONVERSIONS[conversion.name]
        if not isinstance(kind, Unknown) and not test(kind):
            checker.error(f"{name}(): {conversion.text} takes {what}, not {settle(kind)}", node.span)
            fine = False
    return format_ if fine else None


def _spaced_hints(conversions: list[Conversion]) -> list[str]:
    """``100% done``: the space is a flag, and ``d`` the conversion."""
    spaced = next((item.text for item in conversions if " " in item.text), None)
    return [] if spaced is None else [f"{spaced!r} is a conversion; write %% for a % sign"]
