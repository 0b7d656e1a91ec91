"""What messages call tokens."""

from __future__ import annotations

import pytest

from pytrace.core.source import Source, Span
from pytrace.frontend.syntax.tokens import KEYWORDS, OPERATORS, Token, found_name, kind_name

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
