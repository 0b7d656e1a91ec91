"""The rules by state: which tokens there are, where the state changes, and that every text has tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.lexer import ROOT, SCRIPT, Lexer, states, tokens
from pytrace.frontend.syntax.tokens import OPERATORS
from tests.support.rows import each_row

INTO = {
    ROOT: "",
    "point": "k:f",
    "after": "k:f ",
    "points": "k:f, ",
    SCRIPT: "{",
    "definition": "struct a {",
    "comment": "/*",
}
"""Texts that lead into the states."""


def read(text: str, state: str = ROOT) -> tuple[list[str], Lexer, Diagnostics]:
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", text), diagnostics, state=state)
    found = []
    while (token := lexer.token()).type != "EOF":
        found.append(f"{token.type}:{token.span.text}")
    return found, lexer, diagnostics


@each_row(
    ("text", "expected"),
    [
        ("begin {", ["ATTACH_POINT:begin", "BODY:{", "LBRACE:{"]),
        ("k:f /1/ {", ["ATTACH_POINT:k:f", "BODY:/", "DIVIDE:/", "INT:1", "DIVIDE:/", "LBRACE:{"]),
        ("k:f<1", ["ATTACH_POINT:k:f", "BODY:<", "LT:<", "INT:1"]),
        ("k:f <<= 1", ["ATTACH_POINT:k:f", "BODY:<", "OP_ASSIGN:<<=", "INT:1"]),
        ("n = k:f, u:/a/b:c {", ["ATTACH_POINT:n = k:f", "COMMA:,", "ATTACH_POINT:u:/a/b:c", "BODY:{", "LBRACE:{"]),
        ("k:f, config = {", ["ATTACH_POINT:k:f", "COMMA:,", "OTHER:config"]),
        ("k:f g:h {", ["ATTACH_POINT:k:f", "OTHER:g", "OTHER::", "OTHER:h", "BODY:{", "LBRACE:{"]),
        (";", ["OTHER:;"]),
        ("config = {", ["CONFIG_ITEM:config", "ASSIGN:=", "LBRACE:{"]),
        ("config /* a */ = {", ["CONFIG_ITEM:config", "ASSIGN:=", "LBRACE:{"]),
        ('import "a"', ["IMPORT_ITEM:import", 'STRING:"a"']),
        ("macro m(", ["MACRO_ITEM:macro", "IDENT:m", "LPAREN:("]),
        ("fn f(", ["FUNCTION_ITEM:fn", "IDENT:f", "LPAREN:("]),
        ("let @a", ["MAP_ITEM:let", "MAP:@a"]),
        ("let@a", ["MAP_ITEM:let", "MAP:@a"]),
        ("#define A 1\n#define B", ["C_PART:#define A 1", "C_PART:#define B"]),
        ("struct a { int x; };begin", ["C_PART:struct a { int x; };", "ATTACH_POINT:begin"]),
        ("typedef struct { int x; } a; enum b;", ["C_PART:typedef struct { int x; } a;", "C_PART:enum b;"]),
    ],
)
def test_tokens_from_the_root_on(text: str, expected: list[str]) -> None:
    assert read(text)[0][: len(expected)] == expected


@each_row("word", ["config", "import", "macro", "fn", "let", "struct", "union", "enum", "typedef"])
@each_row(
    ("rest", "name", "point"),
    [(":x", None, "{}:x"), ("s:x", None, "{}s:x"), ("_1=k:x", "{}_1", "k:x"), ("s = k:x", "{}s", "k:x")],
)
def test_a_word_that_only_starts_like_a_keyword_is_an_attach_point(
    word: str, rest: str, name: str | None, point: str
) -> None:
    diagnostics = Diagnostics()
    (probe,) = parser.parse(Source("t", f"{word}{rest} {{ }}"), diagnostics).probes
    assert not diagnostics.items
    assert probe.attach_points[0].name == (name.format(word) if name else None)
    assert probe.attach_points[0].text == point.format(word)


def test_a_keyword_may_name_a_probe() -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", "fn=k:f { } enum = k:g { }"), diagnostics)
    assert not diagnostics.items
    assert [point.name for probe in program.probes for point in probe.attach_points] == ["fn", "enum"]


@pytest.mark.parametrize("state", [ROOT, "points", "after", SCRIPT])
def test_comments_are_kept_in_each_state(state: str) -> None:
    found, lexer, diagnostics = read("/* a * / ** // b */ // c /*\n /***/ /*x", state)
    assert not found
    assert lexer.comments == {0: 19, 20: 27, 29: 34, 35: 38}
    (error,) = diagnostics.errors
    assert (error.message, error.span.start, error.span.end) == ("syntax: the comment is not closed", 35, 37)


def test_an_attach_point_carries_its_node() -> None:
    token = Lexer(Source("t", " n=u:/a:f{"), Diagnostics(), state=ROOT).token()
    assert isinstance(token.data, nodes.AttachPoint)
    assert (token.data.name, token.data.text, token.data.span) == ("n", "u:/a:f", token.span)
    assert (token.span.start, token.span.end) == (1, 9)


@pytest.mark.parametrize("text", ["$t.0.1", "$t.0 .1", "$t. 0.1", "0..1"])
def test_indices_and_ranges_are_no_fractions(text: str) -> None:
    found, _, diagnostics = read(text, SCRIPT)
    assert not diagnostics.items
    assert [kind for kind in found if kind.startswith("INT")] == ["INT:0", "INT:1"]


def test_each_operator_is_one_token() -> None:
    for text, kind in OPERATORS.items():
        assert read(text, SCRIPT)[0] == [f"{kind}:{text}"]


def test_all_states_are_tried() -> None:
    assert set(INTO) == {ROOT, *(name for name, _ in states)}


@each_row("into", INTO.values(), ids=INTO)
@each_row("rest", ["", " ", "a", "{", "/"])
def test_a_rule_fits_every_character(into: str, rest: str) -> None:
    for code in (*range(0x100), 0x20AC, 0xDC80, 0xDCFF, 0xFFFF, 0x10FFFF):
        for text in (chr(code), chr(code) * 2, "a" + chr(code), "/" + chr(code)):
            read(into + text + rest)


@given(st.text(st.sampled_from("ab1 \n\t{}()[]<>;:,./\"'\\#@$=*&|!é")), st.sampled_from(list(INTO.values())))
def test_every_text_has_an_end(text: str, into: str) -> None:
    found, lexer, _ = read(into + text)
    assert len(found) <= 2 * len(into + text)
    assert lexer.token().span.start == len(into + text)


def test_kinds_are_declared() -> None:
    """PLY itself compares them only when told not to optimise."""
    text = 'struct a { int x; }; begin { if (1 < 2) { @a[$1] = "x"; $b = $#; } } ; config = { x = 1 }'
    lexer = Lexer(Source("t", text), Diagnostics(), state=ROOT)
    kinds = {lexer.token().type for _ in range(60)}
    assert "EOF" in kinds
    assert kinds <= set(tokens)
