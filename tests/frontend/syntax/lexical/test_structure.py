"""The tokens of an item as the grammar gets them: what is marked, and where the item ends."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax.lexer import Lexer
from pytrace.frontend.syntax.structure import Structure
from pytrace.frontend.syntax.tokens import Token
from tests.support.rows import each_row


def item(text: str, role: str = "item") -> tuple[Structure, Lexer]:
    """The item that *text* is the body of, and the lexer behind it."""
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", text), diagnostics)
    structure = Structure(lexer)
    first = Token("PROBE_ITEM", "", lexer.peek().span)
    if role == "probe":
        structure.probe(first)
    else:
        structure.item(first, role)
    assert not diagnostics.items, render_all(diagnostics.items)
    return structure, lexer


def kinds(text: str, role: str = "probe") -> str:
    return " ".join(token.type for token in item(text, role)[0].tokens[1:])


@each_row(
    ("text", "expected"),
    [
        ("/1/ { }", "PREDICATE_OPEN INT PREDICATE_CLOSE LBRACE RBRACE"),
        ("/1 / 2/ /* a */ < >", "PREDICATE_OPEN INT DIVIDE INT PREDICATE_CLOSE LBRACE RBRACE"),
        ("{ 1 / 2 }", "LBRACE INT DIVIDE INT RBRACE"),
        ("{ if 1 { } }", "LBRACE IF_STATEMENT INT LBRACE RBRACE RBRACE"),
        ("{ _ = if comptime 1 { 2 } }", "LBRACE IDENT ASSIGN IF IF_COMPTIME INT LBRACE INT RBRACE RBRACE"),
        ("{ { 1 } }", "LBRACE BLOCK_STATEMENT INT RBRACE RBRACE"),
        ("{ _ = { 1 } }", "LBRACE IDENT ASSIGN LBRACE INT RBRACE RBRACE"),
        ("{ < 1 > }", "LBRACE BLOCK_STATEMENT INT RBRACE RBRACE"),
        ("{ 1 < 2 }", "LBRACE INT LT INT RBRACE"),
        ("< < 1 >>", "LBRACE BLOCK_STATEMENT INT RBRACE RBRACE"),
        ("{ $a.if->for }", "LBRACE VARIABLE DOT IDENT ARROW IDENT RBRACE"),
        ("{ (int8)1 }", "LBRACE LPAREN TYPE_MARK IDENT RPAREN INT RBRACE"),
        ("{ f(1, int8) }", "LBRACE IDENT LPAREN INT COMMA TYPE_MARK IDENT RPAREN RBRACE"),
    ],
)
def test_marks(text: str, expected: str) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    ("text", "role", "end"),
    [
        ("{ 1 } kprobe:f { }", "probe", 5),
        ("< 1 > kprobe:f { }", "probe", 5),
        ("m() { { } } x", "item", 11),
        ("= { a = 1 } x", "config", 11),
        ("@a = hash(1); x", "map", 13),
        ("@a = hash(1) x", "map", 12),
    ],
)
def test_where_an_item_ends(text: str, role: str, end: int) -> None:
    structure, lexer = item(text, role)
    assert structure.tokens[-1].span.end == end
    lexer.root()
    assert lexer.peek().type == "ATTACH_POINT"
    assert text[end:].strip().startswith(lexer.peek().text)


def test_depths_and_starts() -> None:
    structure, _ = item("{ if (1) { f(2); } $a = 3 }", "probe")
    assert [structure.tokens[index].type for index in sorted(structure.starts)] == ["IF_STATEMENT", "IDENT", "VARIABLE"]
    inner = next(index for index, token in enumerate(structure.tokens) if token.text == "f")
    assert (structure.depths[inner], structure.direct[inner], structure.direct[inner + 2]) == (2, True, False)


def test_a_probe_behind_a_forgotten_brace_is_an_item_of_its_own() -> None:
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", "{ f(1);\nkprobe:g { }"), diagnostics)
    Structure(lexer).probe(Token("PROBE_ITEM", "", lexer.peek().span))
    assert [error.message for error in diagnostics.errors] == ["syntax: expected '}', found 'kprobe'"]
    lexer.root()
    assert lexer.token().text == "kprobe:g"
