"""The parser: from text to AST.

:func:`parse` reads a script item by item: the lexer's first token determines the kind of item,
:mod:`pytrace.frontend.syntax.lexical.structure` collects its tokens, and PLY's parser builds its AST.  Syntax errors
are recorded as diagnostics; the result contains what could be parsed.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec
from ply import yacc

from pytrace.core.diagnostics import Diagnostics, Note
from pytrace.core.source import Source, Span
from pytrace.frontend.ast import nodes, visitor
from pytrace.frontend.syntax import grammar, grammar_tables, recovery
from pytrace.frontend.syntax.grammar_support import LRParser
from pytrace.frontend.syntax.lexical.lexer import ROOT, SCRIPT, Lexer
from pytrace.frontend.syntax.lexical.structure import Structure
from pytrace.frontend.syntax.lexical.tokens import Token, found_name

_SHEBANG = re.compile(r"#![^\n]*")
_BODY = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[{};]')
_MAX_ERRORS = 100
_MAX_DEPTH = 5000
"""Maximum nesting that the passes after the parser support."""
_MAX_NESTED = 50
"""Maximum nesting of ``if comptime`` around items."""
_OPTION = re.compile(r"getopt\s*\(")
_CLAUSE_ENDS = frozenset({"SEMI", "LBRACE", "RBRACE"})


def parse(source: Source, diagnostics: Diagnostics) -> nodes.Program:
    """Parse a script.

    Args:
        source: the script.
        diagnostics: receives syntax errors, in source order.

    Returns:
        The AST, without the statements and items that could not be parsed.
    """
    return parse_with_tokens(source, diagnostics)[0]


def parse_expression(source: Source, diagnostics: Diagnostics, *, in_c: bool = False) -> nodes.Expr | None:
    """The AST of a text that is one expression; None when it is empty or has an error, which is recorded.

    *in_c*: the text is the body of a C macro, whose numbers may have C's suffixes (``0x10UL``).
    """
    if not source.text.strip():
        return None
    known = len(diagnostics.errors)
    structure = Structure(Lexer(source, diagnostics, in_c=in_c))
    place = Span(source, 0, 0)
    structure.loose(Token("EXPRESSION_ITEM", "", place))
    node = _run_grammar(structure, place)
    return node if isinstance(node, nodes.Expr) and len(diagnostics.errors) == known else None


def _run_grammar(structure: Structure, head: Span, points: tuple[nodes.AttachPoint, ...] = ()) -> nodes.Node | None:
    """The node of one item, or None when it could not be parsed."""
    parser = _parser()
    item = recovery.Item(parser, structure, head, points)
    parser.errorfunc = item.handle
    try:
        return parser.parse(lexer=item)
    except recovery.AbandonedItem:
        return None


@cache
def _parser() -> LRParser:
    """PLY's parser from the shipped tables, created on first use."""
    table = yacc.LRTable()
    table.read_table(grammar_tables)
    table.bind_callables(grammar.names())
    parser: LRParser = yacc.LRParser(table, grammar.p_error)
    return parser


class ParsedItem(msgspec.Struct):
    """A root item or C part with its tokens, for the formatter; *head* is its first token or its attach points."""

    head: Span
    node: nodes.RootItem | nodes.CPart
    structure: Structure | None
    branches: tuple[Branch, ...] = ()
    """Of an ``if comptime``: its branches in order; *structure* is None."""


class Branch(msgspec.Struct):
    """One branch of an ``if comptime`` at the root; without *structure* and *condition* it is the last ``else``.

    *head* is ``if`` or ``else``, *opener* and *end* are the braces.
    """

    head: Span
    structure: Structure | None
    condition: nodes.Expr | None
    opener: Span
    end: Span
    items: list[nodes.RootItem]
    parsed_items: list[ParsedItem]


def parse_with_tokens(
    source: Source, diagnostics: Diagnostics
) -> tuple[nodes.Program, list[ParsedItem], dict[int, int]]:
    """Parse a script. Returns its AST, its items in source order with their tokens, and the spans of its comments."""
    known = len(diagnostics.items)
    run = _ProgramParser(source, diagnostics)
    program = run.run()
    diagnostics.items[known:] = sorted(diagnostics.items[known:], key=lambda item: item.span.start)
    return program, run.parsed_items, run.lexer.comments


class _ProgramParser:
    """Parses one script."""

    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source = source
        self.text = source.text
        self.diagnostics = diagnostics
        self.lexer = Lexer(source, diagnostics, state=ROOT)
        self.c_parts: list[nodes.CPart] = []
        self.items: list[nodes.RootItem] = []
        self.body: Span | None = None
        """The first item after the preamble."""
        self.parsed_items: list[ParsedItem] = []
        self.nested = 0
        """Number of ``if comptime`` around the current item."""
        self.abandoned = False
        """Whether the rest of the script is skipped, because a branch is not closed."""

    def run(self) -> nodes.Program:
        shebang = self._shebang()
        while True:
            start = self.lexer.here()
            if start >= len(self.text):
                break
            if len(self.diagnostics.errors) >= _MAX_ERRORS:
                span = Span(self.source, start, start)
                self.lexer.error("too many errors, the rest of the script was not read", span)
                break
            self._item(self.lexer.token())
            self.lexer.root()
        return nodes.Program(
            Span(self.source, 0, len(self.text)),
            shebang,
            tuple(self.c_parts),
            tuple(self.items),
        )

    def _shebang(self) -> str | None:
        """The ``#!`` line, which blank lines and comments may precede."""
        start = self.lexer.here()
        match = _SHEBANG.match(self.text, start)
        if match is None:
            return None
        text = match.group().rstrip()
        span = Span(self.source, start, start + len(text))
        self.parsed_items.append(ParsedItem(span, nodes.CPart(span, text), None))
        self.lexer.seek(span.end)
        return text

    def _item(self, token: Token) -> None:
        _ITEMS.get(token.type, _ProgramParser._probe)(self, token)

    def _check_early(self, what: str, place: Span) -> None:
        if self.body is not None:
            self.diagnostics.error(
                f"syntax: {what} must stand before the first probe, macro, function or map declaration", place,
                hints=("move it to the top of the script",), notes=(Note("the first one is here", self.body),),
            )  # fmt: skip

    def _add(self, structure: Structure, head: Span, points: tuple[nodes.AttachPoint, ...] = ()) -> None:
        node = _run_grammar(structure, head, points)
        if not isinstance(node, nodes.RootItem):
            return
        if len(structure.tokens) <= _MAX_DEPTH or self._check_depth(node):
            self.items.append(node)
            self.parsed_items.append(ParsedItem(head, node, structure))

    def _check_depth(self, node: nodes.RootItem) -> bool:
        deep = visitor.deeper_than(node, _MAX_DEPTH)
        if deep is not None:
            self.lexer.error(f"nested more than {_MAX_DEPTH} levels deep", deep.span, "use variables for parts of it")
        return deep is None

    # ------------------------------------------------------------------------------------------ kinds

    def _c_part(self, token: Token) -> None:
        part = nodes.CPart(token.span, token.text)
        self.c_parts.append(part)
        first_line = token.text.split("{")[0].split("\n")[0].rstrip()
        self._check_early("C definitions", Span(self.source, token.span.start, token.span.start + len(first_line)))
        self.parsed_items.append(ParsedItem(part.span, part, None))

    def _config(self, token: Token) -> None:
        self._check_early("the config block", token.span)
        structure = Structure(self.lexer)
        structure.item(token, "config")
        self._add(structure, token.span)

    def _import(self, token: Token) -> None:
        self._check_early("imports", token.span)
        structure = Structure(self.lexer)
        structure.statement(token)
        self._add(structure, token.span)

    def _body_item(self, token: Token) -> None:
        """A macro, a function, or the declaration of a map."""
        self.body = self.body or token.span
        structure = Structure(self.lexer)
        structure.item(token, "map" if token.type == "MAP_ITEM" else "item")
        self._add(structure, token.span)

    def _option(self, token: Token) -> None:
        """A declaration of an option, allowed before and after imports and the C part."""
        structure = Structure(self.lexer)
        structure.item(token, "map")
        self._add(structure, token.span)

    # ------------------------------------------------------------------------------------------ conditions

    def _conditional(self, token: Token) -> None:
        """``if comptime``, with all its ``else if`` and ``else``."""
        self.body = self.body or token.span
        branches = [self._branch(token.span, self._condition(token))]
        while branches[-1] is not None and self.lexer.peek().text == "else":
            word = self.lexer.peek()
            if branches[-1].condition is None:
                self.lexer.error("'else' after the last 'else'", word.span, "only one branch has no condition")
            self.lexer.seek(word.span.end)
            following = self.lexer.peek()
            structure = self._condition(self.lexer.token()) if following.type == "IF_ITEM" else None
            branches.append(self._branch(word.span, structure))
        whole = tuple(item for item in branches if item is not None)
        if len(whole) == len(branches) and (whole[0].condition is not None):
            node = _root_if(whole)
            self.items.append(node)
            self.parsed_items.append(ParsedItem(token.span, node, None, whole))

    def _condition(self, token: Token) -> Structure:
        """The tokens of a condition after ``if``, up to its brace."""
        if self.lexer.peek().type == "COMPTIME":
            self.lexer.token()
        else:
            self.lexer.error(
                "expected 'comptime' after 'if'", token.span,
                "at the root of a script, conditions are decided at compile time: if comptime (…) { … }",
            )  # fmt: skip
        structure = Structure(self.lexer)
        structure.clause(Token("EXPRESSION_ITEM", "", token.span), frozenset({"LBRACE", "SEMI"}))
        return structure

    def _branch(self, head: Span, structure: Structure | None) -> Branch | None:
        """Parse a branch, starting at its condition; None if it has no braces."""
        node = _run_grammar(structure, head) if structure is not None else None
        opener = self.lexer.token()
        if opener.text != "{":
            what = "the condition" if structure is not None else "'else'"
            self.lexer.error(f"expected '{{' after {what}, found {found_name(opener)}", opener.span)
            return None
        condition = node if isinstance(node, nodes.Expr) else None
        if structure is not None and condition is None:
            condition = nodes.BoolLiteral(head, False)  # its error is reported
        kept = self.items, self.parsed_items
        self.items, self.parsed_items = [], []
        end = self._branch_items(opener)
        items, parsed_items = self.items, self.parsed_items
        self.items, self.parsed_items = kept
        return Branch(head, structure, condition, opener.span, end, items, parsed_items)

    def _branch_items(self, opener: Token) -> Span:
        """Parse items up to the closing brace. Returns the span of the brace."""
        self.nested += 1
        self.lexer.seek(opener.span.end)
        while True:
            token = self.lexer.peek()
            if self._cannot_go_on(token, opener):
                self.lexer.seek(len(self.text))
                break
            if token.text == "}":
                self.lexer.seek(token.span.end)
                break
            if _OPTION.match(self.text, token.span.start):
                self._option_inside(token)
            else:
                self._item(self.lexer.token())
            self.lexer.root()
        self.nested -= 1
        return token.span

    def _cannot_go_on(self, token: Token, opener: Token) -> bool:
        """Whether a branch ends without its brace; reported once."""
        if len(self.diagnostics.errors) >= _MAX_ERRORS:
            return True
        if self.nested > _MAX_NESTED:
            self.lexer.error(f"conditions are nested more than {_MAX_NESTED} levels deep", opener.span)
            self.abandoned = True
        elif token.type == "EOF" and not self.abandoned:
            self.lexer.error("the branch is not closed", opener.span, "add '}' at its end")
            self.abandoned = True
        return token.type == "EOF" or self.abandoned

    def _option_inside(self, token: Token) -> None:
        """Report a declaration of an option in a branch, and skip it."""
        self.lexer.seek(token.span.start, SCRIPT)
        place = self.lexer.peek().span
        self.lexer.error(
            "an option cannot be declared inside 'if comptime'", place,
            "declare it at the root of the script: its value may decide the condition",
        )  # fmt: skip
        Structure(self.lexer).clause(Token("EXPRESSION_ITEM", "", place), _CLAUSE_ENDS)
        if self.lexer.peek().type == "SEMI":
            self.lexer.token()

    def _fail(self, token: Token) -> None:
        """``fail(…);``."""
        self.body = self.body or token.span
        structure = Structure(self.lexer)
        structure.clause(Token("EXPRESSION_ITEM", "", token.span), _CLAUSE_ENDS)
        call = _run_grammar(structure, token.span)
        end = self.lexer.peek()
        if end.type == "SEMI":
            self.lexer.token()
        elif call is not None:
            self.lexer.error(f"expected ';' after fail(), found {found_name(end)}", end.span)
        if isinstance(call, nodes.Expr):
            node = nodes.RootFail(call.span, call)
            self.items.append(node)
            self.parsed_items.append(ParsedItem(token.span, node, structure))

    # ------------------------------------------------------------------------------------------ probes

    def _probe(self, token: Token) -> None:
        points, token = self._attach_points(token)
        if points:
            self.body = self.body or points[0].span
        elif not self._without_points(token):
            return
        if token.type != "BODY" and not self._find_body(token, points):
            return
        head = points[0].span if points else token.span
        structure = Structure(self.lexer)
        structure.probe(Token("PROBE_ITEM", "", head))
        if points:
            self._add(structure, head, points)

    def _attach_points(self, token: Token) -> tuple[tuple[nodes.AttachPoint, ...], Token]:
        """The attach points from *token* on, and the token after them; a trailing comma is allowed."""
        points: list[nodes.AttachPoint] = []
        while isinstance(token.data, nodes.AttachPoint):
            points.append(token.data)
            token = self.lexer.token()
            if token.type != "COMMA":
                break
            token = self.lexer.token()
        return tuple(points), token

    def _without_points(self, token: Token) -> bool:
        """Report that no probe starts at *token*. Returns whether a body follows, which can be skipped."""
        if token.text == "{":
            self.lexer.error("expected an attach point before '{'", token.span, "write, for example, begin { … }")
            return True
        self.lexer.error(f"expected a probe, found '{_shown(token.text)}'", token.span)
        self.lexer.seek(token.span.end)
        return False

    def _stray(self, token: Token) -> None:
        """Report characters that cannot start a probe, and skip them."""
        quote = ("remove the shell's quotes: they are not part of the script",) if "'" in token.text else ()
        self.lexer.error(f"expected a probe, found {_quoted(token.text)}", token.span, *quote)

    def _find_body(self, token: Token, points: tuple[nodes.AttachPoint, ...]) -> bool:
        """Report unexpected text between the attach points and the body, and continue at the body if there is one."""
        if token.type == "EOF":
            end = points[-1].span.end if points else token.span.end
            place = Span(self.source, end, end)
            self.lexer.error("expected '{' after the attach points, found the end of the text", place)
            return False
        ended = token.text in (";", "}", ")")
        hints = () if ended else ('an attach point with spaces must be quoted: kprobe:"a b"',)
        if points and "\n" in self.text[points[-1].span.end : token.span.start]:
            hints = ("several attach points of one block are separated by commas; each block is { … }",)
        self.lexer.error(
            f"expected '{{', '/' or ',' after the attach point, found '{_shown(token.text)}'", token.span, *hints
        )
        body = _next_brace(self.text, token.span.start)
        if body is None:
            return False
        self.lexer.seek(body, SCRIPT)
        return True


def _root_if(branches: tuple[Branch, ...]) -> nodes.RootIf:
    """The node of an ``if comptime`` from its branches."""
    other: tuple[nodes.RootItem, ...] = ()
    end = branches[-1].end
    for branch in reversed(branches):
        if branch.condition is None:
            other = tuple(branch.items)
        else:
            other = (nodes.RootIf(branch.head.to(end), branch.condition, tuple(branch.items), other, branch.head),)
    outermost = other[0]
    assert isinstance(outermost, nodes.RootIf)
    return outermost


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{_shown(text)}'"


def _shown(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _next_brace(text: str, offset: int) -> int | None:
    """The offset of the next ``{`` unless a ``;`` or ``}`` comes before it."""
    for match in _BODY.finditer(text, offset):
        if match.group() == "{":
            return match.start()
        if match.group() in (";", "}"):
            return None
    return None


_ITEMS = {
    "C_PART": _ProgramParser._c_part,
    "CONFIG_ITEM": _ProgramParser._config,
    "IMPORT_ITEM": _ProgramParser._import,
    "MACRO_ITEM": _ProgramParser._body_item,
    "FUNCTION_ITEM": _ProgramParser._body_item,
    "MAP_ITEM": _ProgramParser._body_item,
    "IF_ITEM": _ProgramParser._conditional,
    "FAIL_ITEM": _ProgramParser._fail,
    "OPTION_ITEM": _ProgramParser._option,
    "STRAY": _ProgramParser._stray,
}
"""Parser methods of items, by first token; all other tokens start probes."""
