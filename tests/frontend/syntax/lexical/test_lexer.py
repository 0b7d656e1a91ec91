"""Tokens and literals."""

from __future__ import annotations

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser
from pytrace.frontend.syntax.lexer import ROOT, SCRIPT, Lexer
from tests.support.rows import each_row


def kinds(text: str) -> list[str]:
    lexer = Lexer(Source("t", text), Diagnostics())
    found = []
    while (token := lexer.token()).type != "EOF":
        found.append(f"{token.type}:{token.text}")
    return found


def test_kinds() -> None:
    assert kinds("if $a @ @m $1 $# x1 // c\n /* d */ -> .. <<= 0..4") == [
        "IF:if", "VARIABLE:$a", "MAP:@", "MAP:@m", "PARAM:$1", "PARAM_COUNT:$#", "IDENT:x1", "ARROW:->", "RANGE:..",
        "OP_ASSIGN:<<=", "INT:0", "RANGE:..", "INT:4",
    ]  # fmt: skip


def test_comments_are_kept() -> None:
    lexer = Lexer(Source("t", "a // b\n/* c */ d"), Diagnostics())
    while lexer.token().type != "EOF":
        pass
    assert lexer.comments == {2: 6, 7: 14}


@each_row(
    ("text", "place", "message"),
    [
        ("5uu", "uu", "invalid suffix 'uu'"),
        ("0x10u", "u", "invalid suffix 'u'"),
        ("0b11", "b11", "invalid suffix 'b11'"),
        ("1_", "_", "'_' at the end"),
        ("089", "8", "not an octal digit"),
        ("0x", "0x", "without digits"),
        ("10e3", "10", "one digit"),
        ("1e20", "1e20", "does not fit"),
        ("18446744073709551616", "18446744073709551616", "does not fit"),
        ("4294967296u", "4294967296u", "does not fit"),
        ("9223372036854775808l", "9223372036854775808l", "does not fit"),
        ("300000d", "300000d", "does not fit"),
        ("9" * 5000, "9" * 5000, "does not fit"),
        ("1.5ms", "1.5", "a fraction has no unit"),
        ('"\\q"', "\\q", "unknown escape"),
        ('"\\400"', "\\400", "more than a byte"),
        ('"\\x"', "\\x", "without hexadecimal"),
        ('"abc', '"abc', "not closed"),
        ("'abc'", "'abc'", "double quotes"),
        ("/* a", "/*", "not closed"),
        ("$0", "$0", "not a parameter"),
        ("$ 1", "$", "without a name"),
        ("#", "#", "unexpected '#'"),
        ("\udce9", "\udce9", "unexpected byte 0xe9"),
        ("\x01", "\x01", "unexpected '\\x01'"),
    ],
)
def test_wrong_tokens(text: str, place: str, message: str) -> None:
    diagnostics = Diagnostics()
    assert parser.parse_expression(Source("t", text), diagnostics) is None
    first = diagnostics.errors[0]
    assert first.message.startswith("syntax: ")
    assert message in first.message
    assert first.span.text == place


def test_an_open_string_leaves_the_rest_of_the_script() -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", 'begin { print("abc); }\nend { print(1); }'), diagnostics)
    assert len(diagnostics.errors) == 1
    assert len(program.probes) == 2


def test_tokens_ahead_are_read_once() -> None:
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", "a ' b c"), diagnostics)
    assert [lexer.peek(index).text for index in (0, 2, 1, 3)] == ["a", "", "' b c", ""]
    assert lexer.here() == 0
    first = lexer.token()
    lexer.push(first)
    assert [lexer.token().text for _ in range(3)] == ["a", "' b c", ""]
    assert len(diagnostics.errors) == 1


def test_tokens_ahead_are_read_again_at_the_root() -> None:
    lexer = Lexer(Source("t", "a kprobe:f {"), Diagnostics())
    assert lexer.token().text == "a"
    assert [lexer.peek(index).type for index in range(3)] == ["IDENT", "COLON", "IDENT"]
    lexer.root()
    assert (lexer.peek().type, lexer.token().text) == ("ATTACH_POINT", "kprobe:f")
    lexer.seek(2, SCRIPT)
    assert lexer.token().type == "IDENT"


def test_lexers_do_not_share_what_they_read() -> None:
    one, two = (Lexer(Source("t", "k:f /* open"), Diagnostics(), state=ROOT) for _ in range(2))
    assert one.token().text == "k:f"
    assert one.token().type == "EOF"
    assert two.token().text == "k:f"
    assert (one.comments, two.comments) == ({4: 11}, {})
