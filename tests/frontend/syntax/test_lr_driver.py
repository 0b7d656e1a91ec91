"""The driver of PLY's tables gives what PLY's own loop gives, and leaves items with errors to that."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.diagnostics import Diagnostics, render
from pytrace.core.source import Source
from pytrace.frontend.syntax import lr_driver, parser
from pytrace.frontend.syntax.lexical import lexer

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SCRIPTS = sorted((*ROOT.glob("docs/examples/**/*.bt"), *ROOT.glob("pytrace/**/*.bt")))

WRONG = [
    "begin { @x = ; @y = 1; }",
    "begin { if (1 { @a = 1 } print(2) }",
    "begin { @[1, ] = count(; }",
    "begin /pid == / { exit(); }\nend { @ = 08; @b = 1.5; }",
    "macro m($a) { $a + } begin { m(1); }",
    'begin { print("open); } end { print(1and 2); }',
    "begin { f(); ",
    "fn f($a : ) : int { return 1; }",
]

NO_SEMICOLONS = "begin { $a = 1 $b = 2; print($a) print($b) }"

LEXEMES = """begin { $long_name = 0x1F + 18446744073709551615 + 1e6 + 10ms + 1_000 + 017 + 0 - 00;
@ = 1; @named = "a\\tb"; @["ä\\n", 'x'] = $1 + $#; // comment
/* another */ print(($t.0.1, @a++, --@b, -@c, 7 >> 1 <= 2 && 3 << 4)); $x = @y->z.w ? "" : ""; }"""


def outcome(text: str) -> tuple[str, list[str]]:
    """The AST, and the messages."""
    diagnostics = Diagnostics()
    program = parser.parse(Source("script", text, "script"), diagnostics)
    return repr(program), [render(item) for item in diagnostics.items]


def give_up(*_arguments: object) -> None:
    raise lr_driver.SyntaxMistake


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_give_the_same(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = script.read_text()
    quick = outcome(text)
    assert quick[1] == []
    monkeypatch.setattr(lr_driver, "parse", give_up)
    assert outcome(text) == quick


@pytest.mark.parametrize("text", WRONG)
def test_errors_are_those_of_plys_loop(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = outcome(text)
    assert quick[1]
    monkeypatch.setattr(lr_driver, "parse", give_up)
    assert outcome(text) == quick


@pytest.mark.parametrize("text", [LEXEMES, NO_SEMICOLONS, *WRONG])
def test_tokens_are_those_of_plys_loop(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = outcome(text)
    expression, kinds = lexer._plain_rules()
    assert {kind[0] for kind in kinds if kind is not None} == {"", "IDENT", "VARIABLE", "MAP", "STRING", "INT"}
    monkeypatch.setattr(lexer, "_plain_rules", lambda: (expression, [None] * len(kinds)))
    assert outcome(text) == quick


def test_items_without_errors_do_not_reach_plys_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser._tables().parser, "parse", give_up)
    assert outcome(LEXEMES.replace("'x'", '"x"').replace(" + 00", "").replace(" - 00", ""))[1] == []


def test_productions_that_pass_a_value_on_are_not_called() -> None:
    passed = {name for name, length, function in parser._tables().reductions if function is None and length == 1}
    assert {"expr", "unary", "postfix"} <= passed
    called = [name for name, length, function in parser._tables().reductions if function is not None and length == 1]
    assert "primary" in called
    assert "block_body" in called


def test_an_error_of_a_production_is_that_of_plys_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a production reported before the error is not reported twice."""
    text = "begin { 1 = 2; @x = ; }"
    first = outcome(text)[1]
    assert len(first) == len(set(first))
    monkeypatch.setattr(lr_driver, "parse", give_up)
    assert outcome(text)[1] == first


@pytest.mark.parametrize("end", range(9, len(LEXEMES), 11))
def test_errors_at_any_token_are_those_of_plys_loop(end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions that do not look at the next token come before its error is found."""
    for text in (LEXEMES[:end], f"{LEXEMES[:end]} ) {LEXEMES[end:]}", f"{LEXEMES[:end]} = {LEXEMES[end:]}"):
        with monkeypatch.context() as patched:
            quick = outcome(text)
            patched.setattr(lr_driver, "parse", give_up)
            assert outcome(text) == quick


def test_states_with_one_reduction_do_not_look_at_the_next_token() -> None:
    tables = parser._tables()
    for actions, default in zip(tables.actions, tables.defaults, strict=True):
        wanted = {*actions.values()}
        assert default == (min(wanted) if len(wanted) == 1 and min(wanted) < 0 else None)
    passing = {
        state
        for state, default in enumerate(tables.defaults)
        if default is not None and tables.reductions[-default][2] is None
    }
    assert passing
    assert not passing & {state for row in tables.goto for state in row.values()}, "they are passed through"
