"""Brackets that are missing or wrong: one message where each is missed, and the rest is read as it was meant."""

from __future__ import annotations

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax.lexer import Lexer
from pytrace.frontend.syntax.structure import Structure
from pytrace.frontend.syntax.tokens import Token
from tests.support.rows import each_row

_PAIRS = {"LPAREN": "RPAREN", "LBRACKET": "RBRACKET", "LBRACE": "RBRACE", "BLOCK_STATEMENT": "RBRACE"}


def read(text: str) -> tuple[Structure, list[tuple[str, int]]]:
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", text), diagnostics)
    structure = Structure(lexer)
    structure.probe(Token("PROBE_ITEM", "", lexer.peek().span))
    return structure, [(error.message.removeprefix("syntax: "), error.span.start) for error in diagnostics.errors]


@each_row(
    ("text", "errors"),
    [
        ("{ f(1; }", [("expected ')', found ';'", 5)]),
        ("{ f(1 }", [("expected ')', found '}'", 6)]),
        ("{ @a[1; }", [("expected ']', found ';'", 6)]),
        ("{ f(@a[1); }", [("expected ']', found ')'", 8)]),
        ("{ f(1)); }", [("')' without '('", 6)]),
        ("{ f(1]; }", [("']' without '['", 5), ("expected ')', found ';'", 6)]),
        ("{ if (1 { f(); } }", [("expected ')', found '{'", 8)]),
        ("{ f();", [("expected '}', found the end of the text", 6)]),
        ("< f(); }", [("expected '>', found '}'", 7)]),
        ("/1 { f(); }", [("the predicate is not closed", 3)]),
        ("/1/ { f((((1; }", [("expected ')', found ';'", 12)]),
    ],
)
def test_repairs(text: str, errors: list[tuple[str, int]]) -> None:
    structure, found = read(text)
    assert found == errors
    opened: list[str] = []
    for token in structure.tokens:
        if token.type in _PAIRS:
            opened.append(_PAIRS[token.type])
        elif token.type in _PAIRS.values():
            assert opened.pop() == token.type
    assert not opened


def test_what_was_put_in_is_empty() -> None:
    structure, _ = read("{ f(1; }")
    put_in = [token for token in structure.tokens[1:] if token.span.start == token.span.end]
    assert [(token.type, token.text, token.span.start) for token in put_in] == [("RPAREN", "", 5)]


def test_a_message_shows_where_the_bracket_was_opened() -> None:
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", "{ f(1; }"), diagnostics)
    Structure(lexer).probe(Token("PROBE_ITEM", "", lexer.peek().span))
    (error,) = diagnostics.errors
    assert error.hints == ("add ')'",)
    assert [(note.message, note.span.start) for note in error.notes] == [("'(' was opened here", 3)]
