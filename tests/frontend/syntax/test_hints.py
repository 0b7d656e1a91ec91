"""Hints for those who know another language."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("begin { if (1) { } elif (2) { } }", "write 'else if'"),
        ("begin { if (pid and tid) { } }", "write '&&'"),
        ("begin { if (not pid) { } }", "write '!'"),
        ("begin { switch (pid) { } }", "there is no 'switch'"),
        ("begin { for ($x in @m) { } }", "write ':'"),
        ("begin { if (pid + 1 = 1) { } }", "use '==' to compare"),
        ("begin { if (pid = = 1) { } }", "'==' is written without a space"),
        ("begin { m!(1); }", "macros are called without '!'"),
        ('begin { print("a" "b"); }', "strings next to each other are not joined"),
        ("let $x = 5; begin { }", "outside of probes, 'let' declares maps only"),
        ("begin { else { } }", "'else' must directly follow"),
        ("begin { let x = 5; }", "variables are written with '$': $x"),
        ("begin { for (int i : 0..5) { } }", "a type does not come first"),
        ("macro m { } begin { }", "a macro without parameters is written 'macro m() { … }'"),
        ("begin { let @m = hash(5); }", "maps are declared outside of probes"),
        ("begin { print(1 struct x); }", "a type stands in parentheses"),
        ("begin { print(1 2); }", "add ',' before it"),
        ("begin { $x = NULL 5; }", "there is no null value"),
    ],
)
def test_hints(text: str, hint: str) -> None:
    found = Diagnostics()
    parser.parse(Source("stdin", text), found)
    hints = [item for error in found.errors for item in error.hints]
    assert any(hint in item for item in hints), [(error.message, error.hints) for error in found.errors]


@pytest.mark.parametrize("text", ["begin { @ = ; }"])
def test_no_hint_where_nothing_is_known(text: str) -> None:
    found = Diagnostics()
    parser.parse(Source("stdin", text), found)
    assert found.errors
    assert not found.errors[0].hints
