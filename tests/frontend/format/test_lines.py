"""Lines of formatted text, and the comments between them."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.format import formatter
from pytrace.frontend.format.lines import Lines


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


@pytest.mark.parametrize(
    ("source", "after", "wanted"),
    [
        ("a; // x\nb;", 2, "a; // x\nb;\n"),
        ("a; /* x */ b;", 2, "a; /* x */ b;\n"),
        ("a;\n// x\nb;", 2, "a;\n    // x\n    b;\n"),
        ("a;\n\n\n// x\nb;", 2, "a;\n\n    // x\n    b;\n"),
        ("a;\n\nb;", 2, "a;\n\n    b;\n"),
    ],
)
def test_comments_between(source: str, after: int, wanted: str) -> None:
    start = min((at for at in (source.find("//"), source.find("/*")) if at >= 0), default=-1)
    end = source.find("\n", start) if source.startswith("//", start) else source.find("*/") + 2
    lines = Lines(source, [(start, end)] if start >= 0 else [])
    lines.write_verbatim(source[:after], after)
    place = source.rindex("b")
    lines.trailing_comments(place, "    ")
    if "\n" in lines.gap(place) and not lines.fresh and "b" not in wanted.partition("\n")[0]:
        lines.break_line("    ")
    lines.comments_to(place, 1)
    lines.space() if not lines.fresh else None
    lines.write("b;")
    assert [line.strip() for line in lines.text().splitlines()] == [line.strip() for line in wanted.splitlines()]
