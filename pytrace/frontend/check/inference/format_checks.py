"""Checks of values against the conversions of a printf format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.formats import UNSUPPORTED, Conversion, Format, parse
from pytrace.core.types import Bool, Buffer, Enum, Int, Pointer, Type, Void
from pytrace.frontend.check.inference.conversions import Flexible, Unknown, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.frontend.ast import nodes
    from pytrace.frontend.check.inference.checker import Checker


def _is_number(type_: Type) -> bool:
    return isinstance(type_, Int | Flexible | Bool | Pointer | Enum)


def _is_integer(type_: Type) -> bool:
    return isinstance(type_, Int | Flexible | Enum)


def _is_buffer(type_: Type) -> bool:
    return isinstance(type_, Buffer)


def _has_text(type_: Type) -> bool:
    return not isinstance(type_, Void) and not type_.aggregate


_NUMBERS = ("d", "i", "u", "o", "x", "X", "c", "p")

CONVERSIONS: dict[str, tuple[Callable[[Type], bool], str]] = {
    **dict.fromkeys(_NUMBERS, (_is_number, "an integer")),
    "gr": (_is_integer, "an integer of GFP flags"),
    "s": (_has_text, "a value"),
    "r": (_is_buffer, "a buffer"),
    "rx": (_is_buffer, "a buffer"),
    "rh": (_is_buffer, "a buffer"),
}
"""For each conversion, a test of accepted types and their name for messages."""


def check(
    checker: Checker, node: nodes.Expr, name: str, text: bytes, values: tuple[nodes.Expr, ...]
) -> Format | None:
    """Check the *values* of a call of *name* against its format; reports errors. Returns None after an error."""
    types = [checker.value(value) for value in values]
    format_ = parse(text)
    wanted = format_.conversions
    refused = next((item for item in wanted if item.name in UNSUPPORTED), None)
    if refused is not None:
        checker.error(f"{name}(): conversion {refused.text!r} is not supported", node.span)
        return None
    for part in format_.stray:
        checker.warn(
            f"{name}(): {part!r} is not a conversion: the % is printed as it is",
            node.span,
            hints=["write %% for a % sign"],
        )
    if len(wanted) != len(values):
        less = "not enough" if len(wanted) > len(values) else "too many"
        checker.error(
            f"{less} values for {name}(): the format takes {len(wanted)}, {len(values)} given",
            node.span,
            hints=_spaced_hints(wanted),
        )
        return None
    fine = True
    for conversion, type_ in zip(wanted, types, strict=True):
        test, what = CONVERSIONS[conversion.name]
        if not isinstance(type_, Unknown) and not test(type_):
            checker.error(f"{name}(): {conversion.text} takes {what}, not {settle(type_)}", node.span)
            fine = False
    return format_ if fine else None


def _spaced_hints(conversions: list[Conversion]) -> list[str]:
    """``100% done``: the space is a flag, and ``d`` the conversion."""
    spaced = next((item.text for item in conversions if " " in item.text), None)
    return [] if spaced is None else [f"{spaced!r} is a conversion; write %% for a % sign"]
