"""Lines of formatted text, and the comments between them."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter
from pytrace.frontend.syntax.formatter import Lines


def fmt(text: str) -> str:
    diagnostics = Diagnostics()
    found = formatter.format_source(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    again = formatter.format_source(Source("t", found), diagnostics)
    assert again == found
    return found


@pytest.mark.parametrize("text", ["begin { $a = 1 // one\n}", "begin { f(a, // one\n b) }", "begin { 1 /* c */ ; }"])
def test_comments_survive(text: str) -> None:
    assert ("one" in text) == ("// one" in fmt(text))
    assert ("/* c */" in text) == ("/* c */" in fmt(text))


def test_lines_and_blanks() -> None:
    lines = Lines("", [])
    lines.empty_line()
    lines.write("a")
    lines.space()
    lines.space()
    lines.write("b ")
    lines.break_line("  ")
    lines.empty_line()
    lines.empty_line()
    assert (lines.column, lines.fresh) == (2, True)
    lines.write("c")
    assert lines.text() == "a b\n\n  c\n"


def test_empty_lines_at_the_end_go() -> None:
    lines = Lines("", [])
    lines.write("a")
    lines.break_line()
    lines.empty_line()
    lines.drop_empty()
    assert lines.text() == "a\n"


def written(source: str, comment: str) -> Lines:
    """Lines after ``a;``, with a comment that is still to come."""
    start = source.index(comment)
    lines = Lines(source, [(start, start + len(comment))])
    lines.write_verbatim("a;", 2)
    return lines


@pytest.mark.parametrize(
    ("source", "comment", "wanted"),
    [
        ("a; // x\nb;", "// x", "a; // x\n    b;\n"),
        ("a; /* x */ b;", "/* x */", "a; /* x */b;\n"),
        ("a;\n// x\nb;", "// x", "a;b;\n"),
    ],
)
def test_comments_on_the_line_of_what_is_before_them(source: str, comment: str, wanted: str) -> None:
    lines = written(source, comment)
    lines.trailing_comments(source.rindex("b"), "    ")
    lines.write("b;")
    assert lines.text() == wanted


@pytest.mark.parametrize(
    ("source", "comment", "wanted"),
    [
        ("a;\n// x\nb;", "// x", "a;\n    // x\n    b;\n"),
        ("a;\n\n\n// x\nb;", "// x", "a;\n\n    // x\n    b;\n"),
        ("a;\n// x\n\n\nb;", "// x", "a;\n    // x\n\n    b;\n"),
        ("a;\n/* x */ b;", "/* x */", "a;\n    /* x */ b;\n"),
        ("a; /* x */ b;", "/* x */", "a; /* x */ b;\n"),
    ],
)
def test_comments_on_lines_of_their_own(source: str, comment: str, wanted: str) -> None:
    lines = written(source, comment)
    lines.comments_to(source.rindex("b"), 1)
    lines.write("b;")
    assert lines.text() == wanted
