"""The lexer: PLY's lexer with the rules of :mod:`pytrace.frontend.syntax.lexical.token_rules`.

Decisions that depend on more than a token's own text and state (whether ``<`` opens a block, where a type is written)
are made by :mod:`pytrace.frontend.syntax.lexical.structure`, the filter between this lexer and the grammar.
"""

from __future__ import annotations

from collections import deque
from functools import cache

from ply import lex

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax.lexical import lexer_tables, token_rules
from pytrace.frontend.syntax.lexical.scan import PlyLexer, Scan
from pytrace.frontend.syntax.lexical.tokens import Token

ROOT = "INITIAL"
"""The state before a root item."""
SCRIPT = "script"
"""The state of code."""


class Lexer:
    """Tokenises one source, starting in *state*."""

    def __init__(self, source: Source, diagnostics: Diagnostics, *, state: str = SCRIPT, in_c: bool = False) -> None:
        self.source = source
        self.diagnostics = diagnostics
        scan = Scan(source, diagnostics, in_c=in_c)
        self.comments = scan.comments
        """Start and end offsets of the comments so far."""
        self.error = scan.error
        self._ahead: deque[Token] = deque()
        self._ply = _ply_lexer().clone()
        self._ply.lexstatestack = []
        self._ply.scan = scan
        self._ply.input(source.text)
        self._ply.begin(state)

    def token(self) -> Token:
        """The next token; at the end of the text every call returns a token of kind EOF."""
        return self._ahead.popleft() if self._ahead else self._ply.token()

    def peek(self, index: int = 0) -> Token:
        """The next token, or the one *index* tokens later, without consuming it."""
        ahead = self._ahead
        while len(ahead) <= index:
            ahead.append(self._ply.token())
        return ahead[index]

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


@cache
def _ply_lexer() -> PlyLexer:
    """PLY's lexer from the shipped tables, created on first use."""
    untyped = lex.Lexer()
    untyped.readtab(lexer_tables, token_rules.names())
    untyped.lexoptimize = True  # do not compare the kind of each token with the list of kinds
    lexer: PlyLexer = untyped
    return lexer
