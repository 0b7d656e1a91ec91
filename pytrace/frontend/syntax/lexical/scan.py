"""The state of one run of PLY's lexer over a text, and its lexemes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from pytrace.frontend.syntax.lexical.attach_point_scanner import AttachPointScan
from pytrace.frontend.syntax.lexical.c_preamble import CDefinition

if TYPE_CHECKING:
    from pytrace.core.diagnostics import Diagnostics
    from pytrace.core.source import Source, Span


class Scan:
    """The source text, and the state of the rules between tokens."""

    __slots__ = ("comment_start", "comments", "definition", "diagnostics", "in_c", "point", "source")

    def __init__(self, source: Source, diagnostics: Diagnostics, *, in_c: bool) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.in_c = in_c
        """Whether the text comes from a C macro."""
        self.comments: dict[int, int] = {}
        """Start and end offsets of the comments so far."""
        self.comment_start = 0
        """In state ``comment``: the offset of the comment."""
        self.point = AttachPointScan(0, 0, None)
        """In state ``point``: the attach point so far."""
        self.definition = CDefinition(0, typedef=False)
        """In state ``definition``: the C definition so far."""

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record a syntax error."""
        self.diagnostics.error(f"syntax: {message}", span, hints=hints)


class PlyLexer(Protocol):
    """PLY's lexer with our :class:`Scan`."""

    scan: Scan
    lexdata: str
    """The whole text."""
    lexpos: int
    """Offset of the next token; rules may change it."""
    lexstate: str

    def begin(self, state: str) -> None:
        """Switch to another state."""

    def push_state(self, state: str) -> None:
        """Switch to another state, from which :meth:`pop_state` returns."""

    def pop_state(self) -> None:
        """Return to the state before :meth:`push_state`."""


class Lexeme(Protocol):
    """The argument of a token rule: the text that its expression matched."""

    value: str
    lexpos: int
    """Its offset."""
    lexer: PlyLexer


_Rule = TypeVar("_Rule", bound=Callable[[Lexeme], object])


def matches(expression: str) -> Callable[[_Rule], _Rule]:
    """Attach a regular expression to a token rule; a typed version of PLY's ``TOKEN``."""

    def give(rule: _Rule) -> _Rule:
        vars(rule)["regex"] = expression
        return rule

    return give
