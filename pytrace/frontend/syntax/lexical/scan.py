"""The state of one run of PLY's lexer over a text: layout, attach points, C definitions; and PLY's lexemes.

An attach point is scanned as text, since its syntax depends on the provider;
:mod:`pytrace.frontend.attach.points.parts` splits it.
It ends at white space, ``,``, ``{``, ``<``, ``;`` or ``}`` outside quotes, or at a ``/`` that starts a predicate:

- after white space, ``/`` starts the predicate;
- providers whose second part is a file (uprobe, uretprobe, usdt, a name that is no provider, a name with a wildcard):
  in the second part a slash belongs to the path when it is the first character of the part, when the part started with
  one, ``./`` or ``../``, or when a ``:`` follows in the same attach point; later parts have no slashes;
- iter: slashes of the third part belong to the pin's path;
- all other providers have no slashes, so the first one starts the predicate.

A comment starts at ``//`` or ``/*`` wherever a slash would start the predicate. The text of a C definition is passed to
the C front end unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.probes.kinds import Context, probe_kind
from pytrace.core.source import Source, Span
from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.lexical.tokens import Token

LAYOUT = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"
"""White space and comments between tokens."""
_LAYOUT = re.compile(LAYOUT)


def skip_layout(text: str, position: int) -> int:
    """The offset after white space and comments at *position*."""
    match = _LAYOUT.match(text, position)
    return match.end() if match else position


# ---------------------------------------------------------------------------------------------- attach points

_RUN = re.compile(r'(?:"(?:[^"\\\n]|\\[^\n])*"|[^\s{},;<"])*')


class AttachPointScan:
    """An attach point that starts at *start*; its text starts at *begin*, after ``name=`` if it has a name."""

    __slots__ = ("begin", "name", "part", "part_start", "provider", "start")

    def __init__(self, start: int, begin: int, name: str | None) -> None:
        self.start = start
        self.begin = begin
        self.name = name
        self.part = 1
        self.part_start = begin
        self.provider = ""

    def next_part(self, text: str, colon: int) -> None:
        """Record the colon at offset *colon*."""
        if self.part == 1:
            self.provider = text[self.begin : colon]
        self.part += 1
        self.part_start = colon + 1

    def owns_slash(self, text: str, slash: int) -> bool:
        """Whether the slash at offset *slash* belongs to a path of the attach point."""
        if self.part == 1:
            return False
        kind = probe_kind(self.provider)
        if kind is not None and kind.context is Context.ITERATOR:
            return self.part >= 3
        if kind is not None and not kind.user:
            return False
        if self.part != 2:
            return False
        if text.startswith(("/", '"/', "./", "../"), self.part_start):
            return True
        run = _RUN.match(text, slash)
        return run is not None and ":" in run.group()


# ---------------------------------------------------------------------------------------------- C definitions

_GROUP = r"(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[[^\]]*\]\]|\[[^\]]*\])"
_BODY = re.compile(rf"(?:{LAYOUT}(?:[A-Za-z_][A-Za-z0-9_]*+|{_GROUP}))*+{LAYOUT}(?=[{{])")
_FORWARD = re.compile(rf"{LAYOUT}[A-Za-z_][A-Za-z0-9_]*{LAYOUT};")
_TYPEDEF = re.compile(r"\s+[A-Za-z_]")
_CONTINUED = r"\\(?:\r?\n|.|\Z)"
_DIRECTIVE = re.compile(
    rf"\#(?:[^\n\\/\"']|{_CONTINUED}|/\*(?:[^*]|\*(?!/))*\*/|//(?:[^\n\\]|{_CONTINUED})*|\"(?:[^\"\\\n]|\\.)*\""
    r"|'(?:[^'\\\n]|\\.)*'|[/\"'])*+",
    re.DOTALL,
)
_TRAILER = re.compile(rf"(?:{LAYOUT}__attribute__{LAYOUT}{_GROUP})*(?:{LAYOUT};)?")


def directive_end(text: str, start: int) -> int:
    """The end of a preprocessor line with its continuation lines, without trailing white space."""
    match = _DIRECTIVE.match(text, start)
    return start + len(match.group().rstrip()) if match else start + 1


class CDefinition:
    """The scanner's state in a definition: its start, whether it is a ``typedef``, and the number of open braces."""

    __slots__ = ("depth", "start", "typedef")

    def __init__(self, start: int, *, typedef: bool) -> None:
        self.start = start
        self.typedef = typedef
        self.depth = 0


def starts_definition(text: str, word: str, after: int) -> bool:
    """Whether *word* (``struct``, ``union``, ``enum`` or ``typedef``), which ends at *after*, starts a definition."""
    return (_TYPEDEF if word == "typedef" else _BODY).match(text, after) is not None


def declaration_end(text: str, word: str, after: int) -> int | None:
    """The end of a declaration without a body (``struct x;``) whose *word* ends at *after*; None if it is not one."""
    match = None if word == "typedef" else _FORWARD.match(text, after)
    return match.end() if match else None


def trailer_end(text: str, after: int) -> int:
    """The end of the attributes and the semicolon that may follow the closing brace before *after*."""
    match = _TRAILER.match(text, after)
    return match.end() if match else after


# ---------------------------------------------------------------------------------------------- state and lexemes


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
    """PLY's lexer (``ply.lex.Lexer``) with our :class:`Scan`."""

    scan: Scan
    lexdata: str
    """The whole text."""
    lexpos: int
    """Offset of the next token; rules may change it."""
    lexstate: str
    lexstatestack: list[str]

    def clone(self) -> PlyLexer: ...
    def input(self, text: str) -> None: ...
    def token(self) -> Token: ...

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

    def attach(rule: _Rule) -> _Rule:
        vars(rule)["regex"] = expression
        return rule

    return attach


# ---------------------------------------------------------------------------------------------- shared actions of rules


def token(kind: str, lexeme: Lexeme, data: object = None) -> Token:
    """The token of a lexeme."""
    start = lexeme.lexpos
    text = lexeme.value
    return Token(kind, text, Span(lexeme.lexer.scan.source, start, start + len(text)), data)


def span_of(lexeme: Lexeme) -> Span:
    """The span of a lexeme."""
    return Span(lexeme.lexer.scan.source, lexeme.lexpos, lexeme.lexpos + len(lexeme.value))


def c_part(lexeme: Lexeme, start: int, end: int) -> Token:
    """The token of a C part; another root item may follow."""
    lexer = lexeme.lexer
    lexer.begin("INITIAL")
    lexer.lexpos = end
    return Token("C_PART", lexer.lexdata[start:end], Span(lexer.scan.source, start, end))


def as_attach_point(lexeme: Lexeme) -> None:
    """Lex a word that starts no item and no definition again, as an attach point."""
    lexeme.lexer.lexpos = lexeme.lexpos
    lexeme.lexer.begin("points")


_WORD = re.compile(r"[A-Za-z0-9_$@]+|.", re.DOTALL)


def other(lexeme: Lexeme) -> Token:
    """The token of an unexpected word."""
    lexer = lexeme.lexer
    match = _WORD.match(lexer.lexdata, lexeme.lexpos)
    lexeme.value = match.group() if match else ""
    lexer.lexpos = lexeme.lexpos + len(lexeme.value)
    return token("OTHER", lexeme)


def enter_point(lexeme: Lexeme) -> None:
    """Start an attach point at this lexeme unless the state is in one already."""
    lexer = lexeme.lexer
    if lexer.lexstate != "point":
        lexer.scan.point = AttachPointScan(lexeme.lexpos, lexeme.lexpos, None)
        lexer.begin("point")


def end_point(lexeme: Lexeme) -> Token:
    """The token of the attach point that ends before the lexeme."""
    lexer, end = lexeme.lexer, lexeme.lexpos
    point, source = lexer.scan.point, lexer.scan.source
    lexer.begin("after")
    lexer.lexpos = end
    span = Span(source, point.start, end)
    node = nodes.AttachPoint(span, source.text[point.begin : end], point.name)
    return Token("ATTACH_POINT", span.text, span, node)
