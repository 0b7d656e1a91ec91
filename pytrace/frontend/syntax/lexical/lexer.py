"""The lexer: PLY's lexer with the rules of :mod:`pytrace.frontend.syntax.lexical.token_rules`.

Decisions that depend on more than a token's own text and state (whether ``<`` opens a block, where a type is written)
are made by :mod:`pytrace.frontend.syntax.lexical.structure`, the filter between this lexer and the grammar.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ply import lex

from pytrace.core.source import Source, Span
from pytrace.frontend.syntax.lexical import lexer_tables, token_rules
from pytrace.frontend.syntax.lexical.literals import encode
from pytrace.frontend.syntax.lexical.scan import Scan
from pytrace.frontend.syntax.lexical.token_rules import PLAIN
from pytrace.frontend.syntax.lexical.tokens import KINDS, Token

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from pytrace.core.diagnostics import Diagnostics

ROOT = "INITIAL"
"""The state before a root item."""
SCRIPT = "script"
"""The state of code."""


class PlyLexer(Protocol):
    """PLY's lexer (``ply.lex.Lexer``); *scan* is the state of our rules."""

    lexpos: int
    lexstate: str
    lexstatere: dict[str, list[tuple[re.Pattern[str], list[tuple[Callable[..., object] | None, str] | None]]]]
    lexstatestack: list[str]
    scan: Scan

    def input(self, text: str) -> None: ...
    def begin(self, state: str) -> None: ...
    def token(self) -> Token: ...


class Lexer:
    """Tokenises one source, starting in *state*."""

    def __init__(self, source: Source, diagnostics: Diagnostics, *, state: str = SCRIPT, in_c: bool = False) -> None:
        self.source = source
        self.diagnostics = diagnostics
        scan = Scan(source, diagnostics, in_c=in_c)
        self.comments = scan.comments
        """Start and end offsets of the comments so far."""
        self.error = scan.error
        self._plain = _plain_rules()
        self._ahead: deque[Token] = deque()
        self._ply = _ply_lexer().__class__()
        vars(self._ply).update(vars(_ply_lexer()))
        self._ply.lexstatestack = []
        self._ply.scan = scan
        self._ply.input(source.text)
        self._ply.begin(state)

    def token(self) -> Token:
        """The next token; at the end of the text every call returns a token of kind EOF."""
        if self._ahead:
            return self._ahead.popleft()
        return self._lex()

    def peek(self, index: int = 0) -> Token:
        """The next token, or the one *index* tokens later, without consuming it."""
        ahead = self._ahead
        while len(ahead) <= index:
            ahead.append(self._lex())
        return ahead[index]

    def _lex(self) -> Token:
        """The next token of the text. Most tokens of code need no rule function, so PLY's loop is bypassed for them."""
        ply = self._ply
        if ply.lexstate != SCRIPT:
            return ply.token()
        source = self.source
        expression, rules = self._plain
        match = expression.match(source.text, ply.lexpos)
        index = None if match is None else match.lastindex
        rule = None if index is None else rules[index]
        if match is None or index is None or rule is None:
            return ply.token()
        kind, value = rule
        word, end = match[index], match.end()
        if value is None:
            ply.lexpos = end
            return Token(KINDS.get(word, kind), word, Span(source, end - len(word), end))
        data = value(word)
        if data is _NOT_PLAIN:
            return ply.token()
        ply.lexpos = end
        return Token(kind, word, Span(source, end - len(word), end), data)

    def push(self, token: Token) -> None:
        """Push *token* back, so that it is the next one."""
        self._ahead.appendleft(token)

    def here(self) -> int:
        """The offset of the next token."""
        return self.peek().span.start

    def seek(self, position: int, state: str = ROOT) -> None:
        """Continue at another offset; tokens that were peeked at or pushed back are dropped."""
        self._ahead.clear()
        self._ply.lexpos = position
        self._ply.begin(state)

    def root(self) -> None:
        """Continue with the next root item; tokens that were peeked at or pushed back are lexed again as part of it."""
        self.seek(self._ahead[0].span.start if self._ahead else self._ply.lexpos)


_NOT_PLAIN = object()
_MOST_DIGITS = 19
"""Number of decimal digits that always fit into 64 bits."""


def _integer(word: str) -> object:
    """The value of a decimal number without suffix, separators and leading zeros."""
    return int(word) if word.isdecimal() and len(word) <= _MOST_DIGITS and (word[0] != "0") else _NOT_PLAIN


def _string(word: str) -> object:
    return _NOT_PLAIN if "\\" in word else encode(word[1:-1])


_VALUES: dict[str, Callable[[str], object]] = {
    "VARIABLE": lambda word: word[1:],
    "MAP": lambda word: word,
    "INT": _integer,
    "STRING": _string,
}
"""Functions that return :attr:`Token.data`, by kind of token."""

_Plain: TypeAlias = "tuple[str, Callable[[str], object] | None]"
"""Kind of a token (unless ``KINDS`` has its text) and the function that returns its data."""


@cache
def _plain_rules() -> tuple[re.Pattern[str], list[_Plain | None]]:
    """PLY's regular expression for code, and for each of its groups the token, if it needs no rule function."""
    ((expression, rules),) = _ply_lexer().lexstatere[SCRIPT]
    kinds = [PLAIN.get(rule[0]) if rule is not None else None for rule in rules]
    return expression, [None if kind is None else (kind, _VALUES.get(kind)) for kind in kinds]


@cache
def _ply_lexer() -> PlyLexer:
    """PLY's lexer from the shipped tables, created on first use."""
    untyped = lex.Lexer()
    untyped.readtab(lexer_tables, token_rules.names())
    untyped.lexoptimize = True  # do not compare the kind of each token with the list of kinds
    lexer: PlyLexer = untyped
    return lexer
