"""From text to tree.

:func:`parse` reads a script item by item: it finds out what kind of item begins, lets
:mod:`pytrace.frontend.syntax.lexical.structure` collect its tokens and PLY's parser build its tree.  Mistakes are
recorded as diagnostics; the result holds what could be parsed.
"""

from __future__ import annotations

import re
from typing import Any

from pytrace.base.fast_dataclass import dataclass
from pytrace.base.lazy_regex import late
from pytrace.core.diagnostics import Diagnostics, Note
from pytrace.core.source import Source, Span
from pytrace.frontend.ast import nodes, visitor
from pytrace.frontend.syntax.lexical import attach_point_scanner, c_preamble
from pytrace.frontend.syntax.lexical.lexer import LAYOUT, Lexer
from pytrace.frontend.syntax.lexical.structure import Structure
from pytrace.frontend.syntax.lexical.tokens import Token
from pytrace.frontend.syntax.recovery import AbandonedItem, Item

_SHEBANG = re.compile(r"#![^\n]*")
_ITEM = re.compile(
    rf"(?:(?P<config>config)(?={LAYOUT}=)|(?P<import>import)(?={LAYOUT}\")|(?P<macro>macro)(?={LAYOUT}[A-Za-z_$@(])"
    rf"|(?P<fn>fn)(?={LAYOUT}[A-Za-z_(])|(?P<let>let)(?=[\s$@]))"
)
_WORD = late(r"[A-Za-z0-9_$@]+|.", re.DOTALL)
_STRAY = late(r"['`´‘’“”«»\\^~!?|&%+>)\]-]+")
"""What no attach point starts with, and what is no sign of the language between probes."""
_BODY = late(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[{};]')
_MAX_ERRORS = 100
_MAX_DEPTH = 5000
"""Levels of nesting that the passes behind the parser are made for."""


def parse(source: Source, diagnostics: Diagnostics) -> nodes.Program:
    """The tree of a script; mistakes are recorded, in source order, and what could not be parsed is left out."""
    return parse_pieces(source, diagnostics)[0]


def parse_expression(source: Source, diagnostics: Diagnostics, *, in_c: bool = False) -> nodes.Expr | None:
    """The tree of a text that is one expression; None when it is wrong, which is recorded, or empty.

    *in_c*: the text is the body of a C macro, whose numbers may have C's suffixes (``0x10UL``).
    """
    if not source.text.strip():
        return None
    node = _parse_loose(source, diagnostics, "EXPRESSION_ITEM", in_c=in_c)
    return node if isinstance(node, nodes.Expr) else None


def parse_type(source: Source | str, diagnostics: Diagnostics | None = None) -> nodes.TypeExpr | None:
    """The tree of a text that is one type, such as ``struct x *``; None when it is wrong (recorded) or empty."""
    if isinstance(source, str):
        source = Source("type", source)
    if not source.text.strip():
        return None
    node = _parse_loose(source, diagnostics if diagnostics is not None else Diagnostics(), "TYPE_ITEM")
    return node if isinstance(node, nodes.TypeExpr) else None


def _parse_loose(source: Source, diagnostics: Diagnostics, kind: str, *, in_c: bool = False) -> Any:
    known = len(diagnostics.errors)
    structure = Structure(Lexer(source, diagnostics, in_c=in_c))
    place = Span(source, 0, 0)
    structure.loose(Token(kind, "", place))
    node = run_grammar(Item(structure, place))
    return node if len(diagnostics.errors) == known else None


def run_grammar(item: Item) -> Any:
    """The node of one item, or None when it could not be parsed."""
    parser = _grammar_parser()
    item.parser = parser
    parser.errorfunc = item.handle
    try:
        return parser.parse(lexer=item)
    except AbandonedItem:
        return None
    finally:
        item.parser = None


_parser: Any = None


def _grammar_parser() -> Any:
    """PLY's parser from the shipped tables, made at the first use."""
    global _parser  # noqa: PLW0603
    if _parser is None:
        from ply import yacc

        from pytrace.frontend.syntax import grammar, grammar_tables

        table = yacc.LRTable()
        table.read_table(grammar_tables)
        table.bind_callables(vars(grammar))
        _parser = yacc.LRParser(table, grammar.p_error)
    return _parser


@dataclass(slots=True)
class Piece:
    """One root item or C part with the tokens that it was made from, for the formatter; *head* is where it starts."""

    head: Span
    node: nodes.RootItem | nodes.CPart
    structure: Structure | None


def parse_pieces(source: Source, diagnostics: Diagnostics) -> tuple[nodes.Program, list[Piece], dict[int, int]]:
    """The tree of a script with all its pieces in source order, and where its comments are."""
    known = len(diagnostics.items)
    run = _ProgramParser(source, diagnostics)
    program = run.run()
    diagnostics.items[known:] = sorted(diagnostics.items[known:], key=lambda item: item.span.start)
    return program, run.pieces, run.lexer.comments


class _ProgramParser:
    """One run over a script."""

    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source = source
        self.text = source.text
        self.diagnostics = diagnostics
        self.lexer = Lexer(source, diagnostics)
        self.c_parts: list[nodes.CPart] = []
        self.items: list[nodes.RootItem] = []
        self.body: Span | None = None
        """The first item behind the preamble."""
        self.pieces: list[Piece] = []

    def run(self) -> nodes.Program:
        shebang = self._shebang()
        while True:
            at = self.lexer.here()
            if at >= len(self.text):
                break
            if len(self.diagnostics.errors) >= _MAX_ERRORS:
                self.lexer.error("too many errors, the rest of the script was not read", Span(self.source, at, at))
                break
            self._item(at)
            self.lexer.rewind()
        return nodes.Program(
            Span(self.source, 0, len(self.text)),
            shebang,
            tuple(self.c_parts),
            tuple(self.items),
        )

    def _shebang(self) -> str | None:
        """The ``#!`` line, which may stand after blank lines and comments."""
        at = self.lexer.here()
        match = _SHEBANG.match(self.text, at)
        if match is None:
            return None
        text = match.group().rstrip()
        span = Span(self.source, at, at + len(text))
        self.pieces.append(Piece(span, nodes.CPart(span, text), None))
        self.lexer.seek(span.end)
        return text

    def _item(self, at: int) -> None:
        if c_preamble.starts(self.text, at):
            part = c_preamble.read(self.lexer, at)
            self.c_parts.append(part)
            first_line = part.span.text.split("{")[0].split("\n")[0].rstrip()
            self._check_early("C definitions", Span(self.source, at, at + len(first_line)))
            self.pieces.append(Piece(part.span, part, None))
            return
        match = _ITEM.match(self.text, at)
        if match is None:
            self._probe(at)
            return
        kind = match.lastgroup
        assert kind is not None
        head = Span(self.source, at, match.end())
        self.lexer.seek(match.end())
        _ITEMS[kind](self, head)

    def _check_early(self, what: str, place: Span) -> None:
        if self.body is not None:
            self.diagnostics.error(
                f"syntax: {what} must stand before the first probe, macro, function or map declaration", place,
                hints=("move it to the top of the script",), notes=(Note("the first one is here", self.body),),
            )  # fmt: skip

    def _add(self, structure: Structure, head: Span, points: tuple[nodes.AttachPoint, ...] = ()) -> None:
        node = run_grammar(Item(structure, head, points))
        if node is not None and len(structure.tokens) > _MAX_DEPTH:
            node = self._check_depth(node)
        if node is not None:
            self.items.append(node)
            self.pieces.append(Piece(head, node, structure))

    def _check_depth(self, node: nodes.RootItem) -> nodes.RootItem | None:
        deep = visitor.deeper_than(node, _MAX_DEPTH)
        if deep is None:
            return node
        self.lexer.error(f"nested more than {_MAX_DEPTH} levels deep", deep.span, "use variables for parts of it")
        return None

    # ------------------------------------------------------------------------------------------ kinds

    def _config(self, head: Span) -> None:
        self._check_early("the config block", head)
        structure = Structure(self.lexer)
        structure.item(Token("CONFIG_ITEM", "", head), "config")
        self._add(structure, head)

    def _import(self, head: Span) -> None:
        self._check_early("imports", head)
        structure = Structure(self.lexer)
        structure.statement(Token("IMPORT_ITEM", "", head))
        self._add(structure, head)

    def _macro(self, head: Span) -> None:
        self._later(head, "MACRO_ITEM", "item")

    def _function(self, head: Span) -> None:
        self._later(head, "FUNCTION_ITEM", "item")

    def _map(self, head: Span) -> None:
        self._later(head, "MAP_ITEM", "map")

    def _later(self, head: Span, kind: str, role: str) -> None:
        self.body = self.body or head
        structure = Structure(self.lexer)
        structure.item(Token(kind, "", head), role)
        self._add(structure, head)

    def _probe(self, at: int) -> None:
        stray = _STRAY.match(self.text, at)
        if stray is not None:
            self._report_stray(Span(self.source, at, stray.end()))
            return
        points = attach_point_scanner.read_attach_points(self.lexer)
        if points:
            self.body = self.body or points[0].span
        behind = self.lexer.here()
        char = self.text[behind : behind + 1]
        if not points and not self._without_points(behind, char):
            return
        if char not in ("{", "<", "/") or not char:
            if not self._find_body(behind, points):
                return
        structure = Structure(self.lexer)
        structure.probe(Token("PROBE_ITEM", "", points[0].span if points else Span(self.source, at, at)))
        if points:
            self._add(structure, points[0].span, points)

    def _without_points(self, at: int, char: str) -> bool:
        """Report that no probe starts at *at*; True when a body is there that can be passed over."""
        word = self._word(at)
        if char == "{":
            self.lexer.error("expected an attach point in front of '{'", word, "write, for example, begin { … }")
            return True
        self.lexer.error(f"expected a probe, found '{_shown(word.text)}'", word)
        self.lexer.seek(word.end)
        return False

    def _report_stray(self, place: Span) -> None:
        """Report characters with which no probe starts, and go past them."""
        quote = ("was the script in quotes of a shell? they are no part of it",) if "'" in place.text else ()
        self.lexer.error(f"expected a probe, found {_quoted(place.text)}", place, *quote)
        self.lexer.seek(place.end)

    def _find_body(self, at: int, points: tuple[nodes.AttachPoint, ...]) -> bool:
        """Report what stands between the attach points and the body, and go to the body if there is one."""
        if at >= len(self.text):
            end = points[-1].span.end if points else at
            place = Span(self.source, end, end)
            self.lexer.error("expected '{' behind the attach points, found the end of the text", place)
            return False
        word = self._word(at)
        hints = () if self.text[at] in ";})" else ('an attach point has spaces only inside quotes: kprobe:"a b"',)
        self.lexer.error(
            f"expected '{{', '/' or ',' behind the attach point, found '{_shown(word.text)}'", word, *hints
        )
        body = _next_brace(self.text, at)
        if body is None:
            self.lexer.seek(word.end)
            return False
        self.lexer.seek(body)
        return True

    def _word(self, at: int) -> Span:
        match = _WORD.match(self.text, at)
        return Span(self.source, at, match.end() if match else at)


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{_shown(text)}'"


def _shown(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _next_brace(text: str, at: int) -> int | None:
    """The offset of the next ``{`` unless a ``;`` or ``}`` comes before it."""
    for match in _BODY.finditer(text, at):
        if match.group() == "{":
            return match.start()
        if match.group() in (";", "}"):
            return None
    return None


_ITEMS = {
    "config": _ProgramParser._config,
    "import": _ProgramParser._import,
    "macro": _ProgramParser._macro,
    "fn": _ProgramParser._function,
    "let": _ProgramParser._map,
}
