"""Properties of the syntax stage on generated input."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter, nodes, parser
from tests.frontend.programs import EXPRESSIONS, PIECES, PROGRAMS, scattered

QUICK = settings(
    max_examples=100, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)  # fmt: skip


SCATTERED = st.sampled_from(["// c\n", "/* d */", "\n// e\n"])


def comments(text: str) -> list[str]:
    found = parser.parse_with_tokens(Source("t", text), Diagnostics())[2]
    return [text[start:end] for start, end in sorted(found.items())]


@QUICK
@given(PROGRAMS)
def test_generated_programs_parse_and_format(text: str) -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    formatted = formatter.format_source(Source("t", text), diagnostics)
    again = parser.parse(Source("t", formatted), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items) + formatted
    assert nodes.same(program, again)
    assert comments(formatted) == comments(text)
    assert formatter.format_source(Source("t", formatted), diagnostics) == formatted


@QUICK
@given(EXPRESSIONS)
def test_generated_expressions_parse(text: str) -> None:
    diagnostics = Diagnostics()
    assert parser.parse_expression(Source("t", text), diagnostics) is not None
    assert not diagnostics.items


@QUICK
@given(EXPRESSIONS, st.lists(st.tuples(st.integers(0, 50), SCATTERED), max_size=4))
def test_comments_inside_statements_survive(text: str, places: list[tuple[int, str]]) -> None:
    text = "begin {\n " + scattered(f"$a = {text} ; print(1) ;", places) + "\n}"
    diagnostics = Diagnostics()
    formatted = formatter.format_source(Source("t", text), diagnostics)
    if diagnostics.errors:  # a comment came into a string
        return
    assert comments(formatted) == comments(text)
    assert formatter.format_source(Source("t", formatted), diagnostics) == formatted


def parse_everything(text: str) -> None:
    diagnostics = Diagnostics()
    source = Source("t", text)
    program = parser.parse(source, diagnostics)
    parser.parse_expression(source, diagnostics)
    parser.parse(Source("t", f"begin {{ let $x: {text}; }}"), Diagnostics())
    render_all(diagnostics.items)
    for node in nodes.walk(program):
        assert 0 <= node.span.start <= node.span.end <= len(text)
    for item in diagnostics.items:
        assert 0 <= item.span.start <= item.span.end <= len(text)


@settings(QUICK, max_examples=200)
@given(st.text(max_size=60))
def test_any_text_gives_diagnostics_only(text: str) -> None:
    parse_everything(text)


@settings(QUICK, max_examples=300)
@given(st.lists(PIECES, max_size=30).map(" ".join))
def test_any_tokens_give_diagnostics_only(text: str) -> None:
    parse_everything("begin { " + text)
    parse_everything(text)


@settings(QUICK, max_examples=100)
@given(PROGRAMS, st.data())
def test_damaged_programs_give_diagnostics_only(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    piece = data.draw(PIECES)
    parse_everything(text[:at] + piece + text[at + data.draw(st.integers(0, 5)) :])
    parse_everything(text[:at])


@settings(QUICK, max_examples=60)
@given(st.binary(max_size=80))
def test_any_bytes_give_diagnostics_only(data: bytes) -> None:
    parse_everything(data.decode("utf-8", "surrogateescape"))
