"""Comments above something."""

from __future__ import annotations

import pytest

from pytrace.core.source import Source, Span
from pytrace.frontend.ast.comments import comment_above


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@", ""),
        ("// calls\n@", "calls"),
        ("begin {\n  // calls\n  @", "calls"),
        ("// one\n// two\n@", "one\ntwo"),
        ("// far\n\n// near\n@", "near"),
        ("// far\n\n@", ""),
        ("/* block */\n@", "block"),
        ("/*\n * one\n * two\n */\n@", "one\ntwo"),
        ("/** one */\n// two\n@", "two"),
        ("x; // of x\n@", ""),
        ("x; /* of x */\n@", ""),
        ("x; /* of\n x */\n@", ""),
        ("*/\n@", ""),
        ("///// line\n//\n@", "line"),
        ("//\n@", ""),
        ('printf("//");\n@', ""),
        ("// same line\nbegin { @", "same line"),
        ("// windows\r\n@", "windows"),
        ("/* windows\r\n * two */\r\n@", "windows\ntwo"),
    ],
)
def test_comments(text: str, expected: str) -> None:
    source = Source("x", text + "[1] = 1;\n// below")
    assert comment_above(Span(source, len(text) - 1, len(text))) == expected
