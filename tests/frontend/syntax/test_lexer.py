"""Tokens: rules, literals, angle blocks, brackets, positions of types, and the structure of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.lexer import ROOT, SCRIPT, Lexer, states, tokens
from pytrace.frontend.syntax.parser import found_name, kind_name
from pytrace.frontend.syntax.tokens import KEYWORDS, OPERATORS, Token
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


@each_row(
    ("text", "place", "message"),
    [
        ("5uu", "uu", "invalid suffix 'uu'"),
        ("0x10u", "u", "invalid suffix 'u'"),
        ("0x1g", "g", "invalid suffix 'g' of a hexadecimal number"),
        ("1x", "x", "invalid suffix 'x' of a number"),
        ("0b11", "b11", "invalid suffix 'b11'"),
        ("1_", "_", "'_' at the end"),
        ("089", "8", "not an octal digit"),
        ("08", "8", "'8' is not an octal digit"),
        ("09", "9", "'9' is not an octal digit"),
        ("0x1_", "_", "'_' at the end"),
        ("0x", "0x", "hexadecimal number without digits"),
        ("10e3", "10", "'10' before the exponent is not one digit from 1 to 9"),
        ("0e3", "0", "'0' before the exponent"),
        ("1e20", "1e20", "does not fit"),
        ("2e19", "2e19", "does not fit"),
        ("18446744073709551616", "18446744073709551616", "does not fit into 64 bits"),
        ("0x10000000000000000", "0x10000000000000000", "does not fit into 64 bits"),
        ("1" * 65, "1" * 65, "does not fit"),
        ("4294967296u", "4294967296u", "its suffix 'u'"),
        ("9223372036854775808l", "9223372036854775808l", "its suffix 'l'"),
        ("213504d", "213504d", "the duration does not fit"),
        ("9" * 5000, "9" * 5000, "does not fit"),
        ("1.5ms", "1.5", "a fraction has no unit"),
        ('"a\\q"', "\\q", "unknown escape '\\q'"),
        ('"\\400"', "\\400", "more than a byte"),
        ('"\\x"', "\\x", "without hexadecimal"),
        ('"abc', '"abc', "not closed"),
        ("'abc'", "'abc'", "double quotes"),
        ("/* a", "/*", "not closed"),
        ("$0", "$0", "not a parameter: they count from $1"),
        ("$2147483648", "$2147483648", "they count from $1"),
        ("$99999999999999", "$99999999999999", "they count from $1"),
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
    assert parser.parse_expression(Source("t", "$2147483647"), Diagnostics()) is not None


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


# --------------------------------------------------------------------------------------------------------------- tokens

SPAN = Span(Source("stdin", "x"), 0, 1)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("IDENT", "a name"),
        ("SEMI", "';'"),
        ("LBRACE", "'{'"),
        ("IF", "'if'"),
        ("OP_ASSIGN", "'+='"),
        ("RESYNC", "the end of the statement"),
        ("NEW", "'NEW'"),
    ],
)
def test_expected(kind: str, name: str) -> None:
    assert kind_name(kind) == name


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("IDENT", "abc", "'abc'"), ("STRING", '"a"', 'string "a"'), ("EOF", "", "the end of the text"),
        ("RESYNC", "", "the end of the statement"), ("IDENT", "x" * 40, "'" + "x" * 40 + "'"),
        ("IDENT", "x" * 41, "'" + "x" * 37 + "...'"),
    ],
)  # fmt: skip
def test_found(kind: str, text: str, name: str) -> None:
    assert found_name(Token(kind, text, SPAN)) == name


def test_each_keyword_and_operator_has_a_name() -> None:
    for kind in {*KEYWORDS.values(), *OPERATORS.values()}:
        assert kind_name(kind) != f"'{kind}'"


# ---------------------------------------------------------------------------------------------------------- token rules

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


# ------------------------------------------------------------------------------------------------------------- literals


@each_row(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("0777", 511), ("0x10", 16), ("0Xff", 255), ("0x1_0", 16), ("1_000_000", 1_000_000),
        ("1e3", 1000), ("5e9", 5_000_000_000), ("1ns", 1), ("5us", 5000), ("3ms", 3_000_000), ("2s", 2_000_000_000),
        ("1m", 60_000_000_000), ("1h", 3_600_000_000_000), ("1d", 86_400_000_000_000), ("5u", 5), ("5UL", 5),
        ("5ull", 5), ("1e19", 10**19), ("213503d", 213503 * 86_400 * 10**9), ("00", 0), ("1_0_0", 100), ("0xF_F", 255),
        ("4294967295u", 4294967295), ("9223372036854775807ll", (1 << 63) - 1), ("18446744073709551615", (1 << 64) - 1),
        ("9223372036854775807L", (1 << 63) - 1),
    ],
)  # fmt: skip
def test_numbers(text: str, value: int) -> None:
    diagnostics = Diagnostics()
    node = parser.parse_expression(Source("t", text), diagnostics)
    assert isinstance(node, nodes.IntLiteral)
    assert (node.value, node.text) == (value, text)
    assert not diagnostics.items


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x10UL", 16), ("0xffu", 255), ("5LLU", 5), ("010l", 8), ("0xFFFFFFFFFFFFFFFFull", (1 << 64) - 1)],
)
def test_numbers_of_c_macros(text: str, value: int) -> None:
    node = parser.parse_expression(Source("t", text), Diagnostics(), in_c=True)
    assert isinstance(node, nodes.IntLiteral)
    assert node.value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\tb\\c\"d\x41\101\n"', b'a\tb\\c"d\x41\x41\n'),
        (r'"\xff\x1\0\r"', b"\xff\x01\x00\r"),
        ('"é"', "é".encode()),
        ('"// no comment"', b"// no comment"),
        ('"\udcff"', b"\xff"),
    ],
)
def test_strings(text: str, value: bytes) -> None:
    node = parser.parse_expression(Source("t", text), Diagnostics())
    assert isinstance(node, nodes.StringLiteral)
    assert node.value == value


# ------------------------------------------------------------------------------------------------------- type positions


def expression(text: str) -> nodes.Expr:
    diagnostics = Diagnostics()
    found = parser.parse_expression(Source("t", text), diagnostics)
    assert found is not None, [item.message for item in diagnostics.items]
    return found


@each_row(
    "text",
    [
        "(uint8)1", "(uint8)-1", "(uint8)!$a", "(uint8)~$a", "(uint8)*$a", "(uint8)&$a", "(uint8)++$a", "(uint8)--$a",
        "(uint8)--@a", '(string[4])"a"', "(uint8)(1)", "(uint8)true", "(uint8)pid", "(uint8)$1", "(uint8)$#",
        "(struct a *)1", "(struct a)$x", "(enum e)1", "(name *)1", "(name)1", "(int8[])$a",
        "(int8[4][N])$a", "(uint8 * *)1", "( /* a */ uint8 // b\n * ) /* c */ 1", "(typeof($a))1",
    ],
)  # fmt: skip
def test_casts(text: str) -> None:
    assert isinstance(expression(text), nodes.Cast)


@each_row(
    "text",
    ["(pid) * 2", "(pid) - 1", "(name)", "(name) + 1", "(name) != 1", "(name) && 1", "($a) * 2", "(a * 2)", "(a, b)",
     "(a[1])", "(a[1] * b)", "(name) -- "],
)  # fmt: skip
def test_no_casts(text: str) -> None:
    assert not isinstance(parser.parse_expression(Source("t", text), Diagnostics()), nodes.Cast)


TYPES = ["uint8", "struct a", "name *", "name[]", "uint8[4]", "typeof($a)", "/* a */ name * // b\n"]


@pytest.mark.parametrize("text", TYPES)
def test_types_as_operands_and_arguments(text: str) -> None:
    for call in (f"sizeof({text})", f"typeinfo({text})"):
        node = expression(call)
        assert isinstance(node, (nodes.Sizeof, nodes.TypeInfo))
        assert isinstance(node.operand, nodes.TypeExpr)
    call = expression(f"f(1, {text}, {text})")
    assert isinstance(call, nodes.Call)
    assert [isinstance(argument, nodes.TypeExpr) for argument in call.args] == [False, True, True]


@pytest.mark.parametrize("text", ["name", "pid", "$a", "name[4].x", "name + 1", "(name)", "a * b"])
def test_values_as_operands_and_arguments(text: str) -> None:
    operand = expression(f"sizeof({text})")
    assert isinstance(operand, nodes.Sizeof)
    assert not isinstance(operand.operand, nodes.TypeExpr)
    call = expression(f"f({text}, {text})")
    assert isinstance(call, nodes.Call)
    assert not any(isinstance(argument, nodes.TypeExpr) for argument in call.args)


def test_a_name_with_a_size_is_a_type_in_sizeof_and_an_element_in_a_call() -> None:
    operand = expression("sizeof(name[4])")
    assert isinstance(operand, nodes.Sizeof)
    assert isinstance(operand.operand, nodes.TypeExpr)
    call = expression("f(name[4])")
    assert isinstance(call, nodes.Call)
    assert not isinstance(call.args[0], nodes.TypeExpr)


def test_a_wrong_character_behind_a_cast_is_one_error() -> None:
    diagnostics = Diagnostics()
    parser.parse_expression(Source("t", "(uint8)é$a"), diagnostics)
    assert [error.message for error in diagnostics.errors] == ["syntax: unexpected 'é'"]
