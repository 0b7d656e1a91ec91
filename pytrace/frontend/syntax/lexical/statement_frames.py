"""Open brackets of script code, with the state of the statement inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.frontend.syntax.lexical.tokens import Token


class Frame:
    """One open bracket, or the part of an item that is outside all brackets."""

    __slots__ = ("block", "call", "first", "header", "kind", "opener", "role", "start", "statement", "ternary")

    def __init__(self, kind: str, opener: Token | None, role: str = "") -> None:
        self.kind = kind
        """``( [ { <``, ``head`` (before the body of an item), ``predicate``, or ``loose`` (outside of items)."""
        self.block = kind in ("{", "<")
        """Whether it contains statements."""
        self.opener = opener
        self.role = role
        """Of a block: ``item``, ``body`` (of a header), ``statement`` (a bare block), ``config``, ``operand``; of a
        parenthesis: ``offsetof``."""
        self.start = self.block and role != "config"
        """Of a block: a statement starts here."""
        self.statement = ""
        """Kind of the current statement's first token."""
        self.first = 0
        """Index of the current statement's first token."""
        self.header = ""
        """Kind of the header (``IF`` …) whose block has not started yet."""
        self.ternary = 0
        """Number of ``?`` without their ``:`` so far."""
        self.call = False
        """Of a parenthesis: it contains arguments."""
