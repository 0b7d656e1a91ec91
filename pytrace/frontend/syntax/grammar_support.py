"""Shared parts of the productions: spans, error reports, a marker for the empty statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pytrace.core.source import Source, Span
from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.lexical.tokens import Token


class Symbol(Protocol):
    """A symbol of the grammar on the parser's stack."""

    type: str


class Production(Protocol):
    """A rule of the grammar: *len* symbols become the symbol *name*."""

    name: str
    len: int


class LRParser(Protocol):
    """PLY's parser (``ply.yacc.LRParser``), with its tables and stacks."""

    errorfunc: Callable[[Token | None], Token | None]
    action: dict[int, dict[str, int]]
    goto: dict[int, dict[str, int]]
    productions: Sequence[Production]
    symstack: Sequence[Symbol]
    statestack: Sequence[int]

    def errok(self) -> None: ...
    def parse(self, *, lexer: ItemTokens) -> nodes.Node | None: ...


class ItemTokens(Protocol):
    """The token source of one item, which productions reach as ``p.lexer``."""

    source: Source
    head: Span
    points: tuple[nodes.AttachPoint, ...]

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record a syntax error."""


class Rule(Protocol):
    """PLY's production: ``p[0]`` is the result, ``p[1]`` … the parts."""

    lexer: ItemTokens
    parser: LRParser

    def __getitem__(self, index: int) -> Any: ...

    def __setitem__(self, index: int, value: object) -> None: ...

    def __len__(self) -> int: ...


EMPTY = nodes.Break(Span(Source("", ""), 0, 0))
"""Marker of an empty statement, removed when its block is created."""


def span_of(p: Rule) -> Span:
    """The span from the first part of the production to the last."""
    first: Span = p[1].span
    last: Span = p[len(p) - 1].span
    return Span(first.source, first.start, last.end)


def report(p: Rule, message: str, span: Span, *hints: str) -> None:
    """Record a syntax error that the grammar itself does not detect."""
    p.lexer.error(message, span, *hints)


IfRest = tuple[nodes.Expr, nodes.Block, nodes.Block | nodes.If | None, bool, Span]
"""Condition, block, else part, whether comptime, span of the last part."""


def make_if(first: Token, rest: IfRest) -> nodes.If:
    """The node of an ``if`` from its first token and the rest of it."""
    condition, then, other, comptime, end = rest
    return nodes.If(first.span.to(end), condition, then, other, comptime)
