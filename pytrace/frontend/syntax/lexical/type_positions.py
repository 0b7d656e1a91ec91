"""Recognises types where expressions are possible: casts, operands of ``sizeof`` and other queries, arguments of calls.

The functions look ahead and consume no token.
"""

from __future__ import annotations

from pytrace.core.builtins import bare_builtin
from pytrace.frontend.syntax.lexical.lexer import Lexer
from pytrace.frontend.syntax.lexical.tokens import KEYWORDS, LITERALS, STRUCT_KEYWORDS, TYPE_NAMES

_EXPRESSION_STARTS = frozenset(
    {*LITERALS, *KEYWORDS.values(), "LPAREN", "BNOT", "NOT", "TIMES", "MINUS", "BAND", "INCREMENT"}
)


class _TypeAhead:
    """A possible type: a name or ``struct X``, followed by any number of ``*`` and ``[…]``."""

    __slots__ = ("end", "open_ended", "suffixed", "word")

    def __init__(self, word: str, end: int, *, suffixed: bool, open_ended: bool) -> None:
        self.word = word
        self.end = end
        """Index of the token that follows it."""
        self.suffixed = suffixed
        self.open_ended = open_ended
        """Whether the last suffix is ``*`` or ``[]``."""

    @property
    def certain(self) -> bool:
        """Whether its first word makes it a type regardless of context."""
        return self.word in STRUCT_KEYWORDS or self.word in TYPE_NAMES


def _type_ahead(lexer: Lexer) -> _TypeAhead | None:
    first = lexer.peek()
    if first.type != "IDENT" and first.text not in KEYWORDS:
        return None
    word, start = first.text, 1
    if word in STRUCT_KEYWORDS:
        start = 2
        tag = lexer.peek(1)
        if tag.type != "IDENT" and tag.text not in KEYWORDS:
            return None
    end, open_ended = start, False
    while (kind := lexer.peek(end).type) in ("TIMES", "LBRACKET"):
        if kind == "TIMES":
            end, open_ended = end + 1, True
        else:
            length = _brackets(lexer, end)
            end, open_ended = end + length, length == 2
            if not length:
                return None
    return _TypeAhead(word, end, suffixed=end > start, open_ended=open_ended)


def _brackets(lexer: Lexer, index: int) -> int:
    """Number of tokens of a suffix ``[]`` or ``[N]`` at *index*; 0 if the bracket contains anything else."""
    size = lexer.peek(index + 1)
    if size.type == "RBRACKET":
        return 2
    known = size.type in ("INT", "IDENT") or size.text in KEYWORDS
    return 3 if known and lexer.peek(index + 2).type == "RBRACKET" else 0


def _is_typeof(lexer: Lexer) -> bool:
    return lexer.peek().type == "TYPEOF" and lexer.peek(1).type == "LPAREN"


def is_cast(lexer: Lexer) -> bool:
    """Whether the parenthesis just opened starts a cast.

    ``(name)`` before an expression is a cast unless the name is a builtin value, so that ``(pid) * 2`` is a product.
    """
    if _is_typeof(lexer):
        return True
    ahead = _type_ahead(lexer)
    if ahead is None or lexer.peek(ahead.end).type != "RPAREN":
        return False
    if ahead.word in STRUCT_KEYWORDS:
        return True
    known = ahead.word in TYPE_NAMES
    if not known and bare_builtin(ahead.word):
        return False
    return (known and ahead.open_ended) or _starts_expression(lexer, ahead.end + 1)


def _starts_expression(lexer: Lexer, index: int) -> bool:
    kind = lexer.peek(index).type
    if kind == "DECREMENT":
        return lexer.peek(index + 1).type in ("VARIABLE", "MAP")
    return kind in _EXPRESSION_STARTS


def is_type_operand(lexer: Lexer) -> bool:
    """Whether the operand of ``sizeof(`` or the like is a type."""
    if _is_typeof(lexer):
        return True
    ahead = _whole_type(lexer)
    return ahead is not None and (ahead.certain or (ahead.suffixed and not bare_builtin(ahead.word)))


def is_type_argument(lexer: Lexer) -> bool:
    """Whether an argument of a call is a type."""
    if _is_typeof(lexer):
        return True
    ahead = _whole_type(lexer)
    return ahead is not None and (ahead.certain or ahead.open_ended)


def _whole_type(lexer: Lexer) -> _TypeAhead | None:
    """A type that is the whole operand or argument."""
    ahead = _type_ahead(lexer)
    return ahead if ahead is not None and lexer.peek(ahead.end).type in ("RPAREN", "COMMA") else None
