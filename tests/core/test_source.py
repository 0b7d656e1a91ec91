"""Positions and spans."""

from __future__ import annotations

import pytest

from pytrace.core.source import ExpandedSpan, Position, Source, Span, expansion_chain

TEXT = "ab\ncdé\r\n\nx"
SOURCE = Source("x.bt", TEXT)


@pytest.mark.parametrize(
    ("offset", "line", "column"),
    [(0, 1, 1), (2, 1, 3), (3, 2, 1), (6, 2, 4), (8, 3, 1), (9, 4, 1), (10, 4, 2), (99, 4, 2), (-5, 1, 1)],
)
def test_positions_count_characters(offset: int, line: int, column: int) -> None:
    assert SOURCE.position(offset) == Position(line, column)


@pytest.mark.parametrize(("number", "text"), [(0, ""), (1, "ab"), (2, "cdé"), (3, ""), (4, "x"), (5, "")])
def test_lines_have_no_ends(number: int, text: str) -> None:
    assert SOURCE.line(number) == text


def test_spans() -> None:
    span = Span(SOURCE, 0, 2)
    assert (span.text, str(span)) == ("ab", "x.bt:1:1-3")
    assert str(Span(SOURCE, 0, 5)) == "x.bt:1-2"
    assert Span(SOURCE, 3, 5).to(span) == span.to(Span(SOURCE, 3, 5)) == Span(SOURCE, 0, 5)


def test_expansions() -> None:
    call, inner = Span(SOURCE, 0, 2), Span(SOURCE, 3, 4)
    middle = ExpandedSpan(SOURCE, 3, 5, call)
    deep = ExpandedSpan(SOURCE, 3, 4, middle)
    assert expansion_chain(deep) == (middle, call)
    assert expansion_chain(inner) == ()
    joined = ExpandedSpan(SOURCE, 5, 6, call).to(middle)
    assert joined == ExpandedSpan(SOURCE, 3, 6, call)
    assert str(deep) == str(inner)
