"""Matching of brackets; a missing or wrong one is reported once and repaired."""

from __future__ import annotations

from pytrace.core.diagnostics import Note
from pytrace.core.source import Span
from pytrace.frontend.syntax.lexical.lexer import Lexer
from pytrace.frontend.syntax.lexical.tokens import Token

_CLOSER = {"(": ("RPAREN", ")"), "[": ("RBRACKET", "]"), "{": ("RBRACE", "}"), "<": ("RBRACE", ">")}
_BODY_STATEMENTS = frozenset({"IF", "FOR", "WHILE", "UNROLL"})


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


class Brackets:
    """The tokens of one root item so far, and its open brackets."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.tokens: list[Token] = []
        self.depths: list[int] = []
        """For each token, the number of open blocks around it."""
        self.direct: list[bool] = []
        """For each token, whether the innermost bracket around it is a block."""
        self.starts: set[int] = set()
        """Indices of the tokens that start a statement."""
        self.unended: set[int] = set()
        """Those whose preceding statement has no semicolon; set by the parser."""
        self.roles: dict[int, str] = {}
        """Roles of blocks by the index of the opening token."""
        self.stack: list[Frame] = []
        self._blocks = 0
        self._done = False
        self._last = ""

    def _put(self, token: Token) -> None:
        self.tokens.append(token)
        self.depths.append(self._blocks)
        stack = self.stack
        self.direct.append(stack[-1].block if stack else False)
        self._last = token.type

    def _open(self, kind: str, token: Token, role: str = "") -> Frame:
        frame = Frame(kind, token, role)
        if role:
            if role == "body" and not (self.stack[-1].block and self.stack[-1].statement in _BODY_STATEMENTS):
                role = "value"
            self.roles[len(self.tokens)] = role
        self._put(token)
        self.stack.append(frame)
        if frame.block:
            self._blocks += 1
        return frame

    def _predicate_end(self, _frame: Frame, token: Token) -> None:
        self.lexer.error("the predicate is not closed", before(token), "add '/' before the body")
        self.stack.pop()
        self._put(Token("PREDICATE_CLOSE", "", before(token)))

    def _close_paren(self, frame: Frame, token: Token) -> None:
        wanted = "(" if token.text == ")" else "["
        if frame.kind == wanted:
            self._pop(token)
            return
        for outer in reversed(self.stack):
            if outer.kind == wanted:
                while self.stack[-1] is not outer:
                    self._close_top(token, report=True)
                self._pop(token)
                return
            if outer.block or outer.opener is None:
                break
        self.lexer.error(f"'{token.text}' without '{wanted}'", token.span)

    def _close_brace(self, frame: Frame, token: Token) -> None:
        if frame.kind != "{":
            if not any(outer.kind == "{" for outer in self.stack):
                self._stray_brace(frame, token)
                return
            while self.stack[-1].kind != "{":
                self._close_top(token, report=True)
        self._pop(token)

    def _stray_brace(self, _frame: Frame, token: Token) -> None:
        blocks = [outer for outer in self.stack if outer.kind == "<"]
        if blocks and blocks[-1] is self.stack[-1]:
            opener = blocks[-1].opener
            notes = (Note("the block was opened here", opener.span),) if opener else ()
            self.lexer.diagnostics.error("syntax: expected '>', found '}'", token.span, notes=notes)
            self._pop(token)
            return
        self.lexer.error("'}' without '{'", token.span)
        if self.stack[0].kind == "head" and not blocks:
            self._close_all(token, report=False)
            self._done = True

    def _pop(self, token: Token) -> None:
        """Close the innermost frame with *token*."""
        frame = self.stack.pop()
        if frame.block:
            self._blocks -= 1
            token.type = "RBRACE"
        self._put(token)
        if not self.stack:
            return
        outer = self.stack[-1]
        if not frame.block:
            if outer.kind == "head" and outer.role == "map" and frame.kind == "(":
                self._end_declaration()
        elif outer.kind == "head":
            self._done = True
        elif frame.role == "statement":
            outer.start = True
        elif frame.role == "body" and outer.block and outer.statement in _BODY_STATEMENTS:
            outer.start = self.lexer.peek().type != "ELSE"

    def _end_declaration(self) -> None:
        if self.lexer.peek().type == "SEMI":
            self._put(self.lexer.token())
        self._done = True

    def _close_top(self, token: Token, *, report: bool) -> None:
        """Insert the closing bracket of the innermost frame before *token*."""
        frame = self.stack[-1]
        place = before(token)
        if frame.kind == "predicate":
            self._predicate_end(frame, token)
            return
        if frame.opener is None or frame.kind == "head":
            self.stack.pop()
            return
        kind, closer = _CLOSER[frame.kind]
        if report:
            where = token.span if token.text else place
            what = "the end of the text" if token.type == "EOF" else f"'{token.text}'"
            self.lexer.diagnostics.error(
                f"syntax: expected '{closer}', found {what}", where,
                hints=(f"add '{closer}'",), notes=(Note(f"'{frame.opener.text}' was opened here", frame.opener.span),),
            )  # fmt: skip
        self._pop(Token(kind, "", place))

    def _close_brackets(self, token: Token) -> None:
        """Close parentheses and brackets down to the enclosing block, with one message."""
        report = True
        while self.stack[-1].kind in ("(", "["):
            self._close_top(token, report=report)
            report = False

    def _close_all(self, token: Token, *, report: bool) -> None:
        while self.stack:
            frame = self.stack[-1]
            self._close_top(token, report=report)
            report = report and frame.opener is None


def before(token: Token) -> Span:
    """The empty span before *token*."""
    return Span(token.span.source, token.span.start, token.span.start)
