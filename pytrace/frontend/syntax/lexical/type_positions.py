"""Where a type stands although an expression could: casts, operands of ``sizeof`` and its kin, arguments of calls."""

from __future__ import annotations

import re
from collections.abc import Callable

from pytrace.base.lazy_regex import late
from pytrace.core.builtins import builtin
from pytrace.frontend.syntax.lexical.lexer import LAYOUT
from pytrace.frontend.syntax.lexical.tokens import STRUCT_KEYWORDS, TYPE_NAMES

_SUFFIXES = rf"(?P<suffix>(?:{LAYOUT}(?:\*|\[{LAYOUT}[A-Za-z0-9_]*{LAYOUT}\]))*)"
_TYPE = re.compile(
    rf"{LAYOUT}(?P<word>[A-Za-z_][A-Za-z0-9_]*)(?:{LAYOUT}(?P<tag>[A-Za-z_][A-Za-z0-9_]*))?{_SUFFIXES}{LAYOUT}"
)
_EXPRESSION_START = late(rf'{LAYOUT}(?:[0-9A-Za-z_$@"(~]|!(?!=)|\*(?!=)|-(?![=>-])|&(?![&=])|\+\+|--[$@])')
_TYPEOF = re.compile(rf"{LAYOUT}typeof{LAYOUT}\(")
_OPEN_ENDED = re.compile(rf"(?:\*|\[{LAYOUT}\]){LAYOUT}$")


def _type_at(text: str, at: int) -> re.Match[str] | None:
    """What looks like a type at *at*: a name or ``struct X`` with suffixes."""
    match = _TYPE.match(text, at)
    if match is None or (match.group("tag") is not None) != (match.group("word") in STRUCT_KEYWORDS):
        return None
    return match


def is_cast(text: str, after: int) -> bool:
    """Whether the parenthesis that ends at *after* (its opening one) starts a cast.

    ``(name)`` in front of an expression is one unless the name is a builtin value, so that ``(pid) * 2`` is a product.
    """
    if _TYPEOF.match(text, after):
        return True
    match = _type_at(text, after)
    if match is None or text[match.end() : match.end() + 1] != ")":
        return False
    word = match.group("word")
    if word in STRUCT_KEYWORDS:
        return True
    row = builtin(word)
    if row is not None and word not in TYPE_NAMES:
        return False
    if word in TYPE_NAMES and _OPEN_ENDED.search(match.group("suffix")):
        return True
    return _EXPRESSION_START.match(text, match.end() + 1) is not None


def is_type_operand(text: str, after: int) -> bool:
    """Whether the operand of ``sizeof(`` and its kin is written as a type."""
    return _whole_type(text, after, lambda word, suffix: bool(suffix) and builtin(word) is None)


def is_type_argument(text: str, after: int) -> bool:
    """Whether an argument of a call is written as a type."""
    return _whole_type(text, after, lambda _word, suffix: bool(_OPEN_ENDED.search(suffix)))


def _whole_type(text: str, after: int, unknown: Callable[[str, str], bool]) -> bool:
    """Whether an operand is a type and nothing more; *unknown* decides about a word that is no known type's name."""
    if _TYPEOF.match(text, after):
        return True
    match = _type_at(text, after)
    if match is None or text[match.end() : match.end() + 1] not in (")", ","):
        return False
    word = match.group("word")
    return word in STRUCT_KEYWORDS or word in TYPE_NAMES or unknown(word, match.group("suffix"))
