"""Tokens of a text, one at a time: PLY's lexer with the rules of :mod:`pytrace.frontend.syntax.lexical.token_rules`.

What depends on more than a token's own text and state (which ``<`` is a block, where a type stands) is the business of
:mod:`pytrace.frontend.syntax.lexical.structure`, the filter between this lexer and the grammar.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Protocol

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax.lexical.scan import Scan
from pytrace.frontend.syntax.lexical.tokens import Token

ROOT = "INITIAL"
"""The state in front of a root item."""
SCRIPT = "script"
"""The state of code."""


class PlyLexer(Protocol):
    """PLY's lexer (``ply.lex.Lexer``); *scan* is what our rules keep in it."""

    lexpos: int
    lexstatestack: list[str]
    scan: Scan

    def clone(self) -> PlyLexer: ...
    def input(self, text: str) -> None: ...
    def begin(self, state: str) -> None: ...
    def token(self) -> Token: ...


class Lexer:
    """Gives the tokens of one source, first those of *state*."""

    def __init__(self, source: Source, diagnostics: Diagnostics, *, state: str = SCRIPT, in_c: bool = False) -> None:
        self.source = source
        self.diagnostics = diagnostics
        scan = Scan(source, diagnostics, in_c=in_c)
        self.comments = scan.comments
        """Start and end offsets of the comments that were passed."""
        self.error = scan.error
        self._ahead: deque[Token] = deque()
        self._ply = _ply_lexer().clone()
        self._ply.lexstatestack = []
        self._ply.scan = scan
        self._ply.input(source.text)
        self._ply.begin(state)

    def token(self) -> Token:
        """The next token; of kind EOF, again and again, at the end of the text."""
        if self._ahead:
            return self._ahead.popleft()
        return self._ply.token()

    def peek(self, index: int = 0) -> Token:
        """The token that comes next, or the one *index* tokens later, without consuming it."""
        ahead = self._ahead
        while len(ahead) <= index:
            ahead.append(self._ply.token())
        return ahead[index]

    def push(self, token: Token) -> None:
        """Put *token* back, so that it comes next."""
        self._ahead.appendleft(token)

    def here(self) -> int:
        """Where the next token starts."""
        return self.peek().span.start

    def seek(self, position: int, state: str = ROOT) -> None:
        """Go on at another place of the text; tokens that were looked at or put back are forgotten."""
        self._ahead.clear()
        self._ply.lexpos = position
        self._ply.begin(state)

    def root(self) -> None:
        """Go on with the next root item; tokens that were looked at or put back are read again as a part of it."""
        self.seek(self._ahead[0].span.start if self._ahead else self._ply.lexpos)


@cache
def _ply_lexer() -> PlyLexer:
    """PLY's lexer from the shipped tables, made at the first use."""
    from ply import lex

    from pytrace.frontend.syntax.lexical import lexer_tables, token_rules

    made = lex.Lexer()
    made.readtab(lexer_tables, vars(token_rules))
    made.lexoptimize = True  # do not compare the kind of each token with the list of kinds
    lexer: PlyLexer = made
    return lexer
