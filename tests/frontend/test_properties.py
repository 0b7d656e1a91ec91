"""Properties of any text, of generated and of recorded programs."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter, nodes, parser
from tests.frontend.programs import EXPRESSIONS, PIECES, PROGRAMS, scattered
from tests.support import outputs
from tests.support.cases import load_all
from tests.support.examples import examples
from tests.support.front import analyse
from tests.support.rows import each_row

ROOT = Path(__file__).resolve().parent.parent.parent
OPTIONS = CompileOptions(unsafe=True, positional=("5", "text"))


def few(count: int) -> settings:
    """The same *count* examples in each run, in proportion more to soak."""
    unlikely = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(examples(count), derandomize=True, suppress_health_check=unlikely)


def look(text: str) -> None:
    """All passes; whatever they say has a place in a text and can be shown."""
    result = analyse(text, OPTIONS)
    render_all(result.diagnostics.items)
    for item in result.diagnostics.items:
        assert 0 <= item.span.start <= item.span.end <= len(item.span.source.text)
        assert item.message


@few(70)
@given(st.lists(PIECES, max_size=30).map(" ".join))
def test_any_tokens(text: str) -> None:
    for whole in ("begin { " + text + " }", text, "begin { " + text):
        look(whole)
        parse_everything(whole)


@few(70)
@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    look(text)
    parse_everything(text)


def known_programs() -> list[str]:
    """Programs of the recorded outputs, of the case files and of the examples."""
    found = [row.program for row in outputs.rows()]
    found += [case.program for case in load_all() if case.program]
    found += [path.read_text() for path in sorted((ROOT / "docs" / "examples").glob("*.bt"))]
    return found


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[$@]?\w+|\s+|[^\w\s]')


def mutated(text: str, random_: random.Random, pool: list[str]) -> str:
    """*text* with some of its tokens left out, doubled, exchanged, or replaced by those of other programs."""
    tokens = _TOKEN.findall(text)
    for _ in range(random_.randint(1, 4)):
        if not tokens:
            break
        at = random_.randrange(len(tokens))
        what = random_.randrange(5)
        if what == 0:
            del tokens[at]
        elif what == 1:
            tokens.insert(at, tokens[at])
        elif what == 2:
            other = random_.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif what == 3:
            tokens[at] = random_.choice(pool)
        else:
            tokens.insert(at, random_.choice(pool))
    return "".join(tokens)


PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_programs(part: int) -> None:
    programs = known_programs()
    pool = sorted({token for text in programs for token in _TOKEN.findall(text) if not token.isspace()})
    random_ = random.Random(part)
    for text in programs[part::PARTS]:
        changed = mutated(text, random_, pool)
        try:
            look(changed)
        except Exception as problem:
            raise AssertionError(f"{problem!r} from {changed!r}") from problem


def test_known_programs() -> None:
    for text in known_programs():
        try:
            look(text)
        except Exception as problem:
            raise AssertionError(f"{problem!r} from {text!r}") from problem


# ----------------------------------------------------------------------------------------------------------- properties


SCATTERED = st.sampled_from(["// c\n", "/* d */", "\n// e\n"])


def comments(text: str) -> list[str]:
    found = parser.parse_with_tokens(Source("t", text), Diagnostics())[2]
    return [text[start:end] for start, end in sorted(found.items())]


@few(70)
@given(PROGRAMS)
def test_generated_programs_parse_and_format(text: str) -> None:
    look(text)
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    formatted = formatter.format_source(Source("t", text), diagnostics)
    again = parser.parse(Source("t", formatted), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items) + formatted
    assert nodes.same(program, again)
    assert comments(formatted) == comments(text)
    assert formatter.format_source(Source("t", formatted), diagnostics) == formatted


@few(60)
@given(EXPRESSIONS)
def test_generated_expressions_parse(text: str) -> None:
    diagnostics = Diagnostics()
    assert parser.parse_expression(Source("t", text), diagnostics) is not None
    assert not diagnostics.items


@few(60)
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


@few(100)
@given(st.text(max_size=60))
def test_any_text_gives_diagnostics_only(text: str) -> None:
    parse_everything(text)


@few(50)
@given(PROGRAMS, st.data())
def test_damaged_programs_give_diagnostics_only(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    piece = data.draw(PIECES)
    parse_everything(text[:at] + piece + text[at + data.draw(st.integers(0, 5)) :])
    parse_everything(text[:at])


# -------------------------------------------------------------------------------------------------------- recorded rows

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "cases" / "outputs.jsonl").read_text(encoding="utf-8").splitlines()
]
ELSEWHERE = {"error_unterminated", "error_missing_brace", "error_bad_token"}
"""Rows whose place belongs to the parser."""

WIDER = {"error_break_outside", "error_range_type", "error_return_val", "error_c_after_probe"}
"""Rows where the peer points at more than what is wrong."""


def options(row: dict[str, Any]) -> CompileOptions:
    """The options that a row was recorded with."""
    positional, named, behind = [], [], False
    for argument in row.get("args") or []:
        if argument == "--":
            behind = True
        elif behind and argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            named.append((name, value if equals else None))
        else:
            positional.append(argument)
    return CompileOptions(positional=tuple(positional), named=tuple(named), unsafe=bool(row.get("unsafe")))


@each_row("row", ROWS, ids=lambda row: row["name"])
def test_row(row: dict[str, Any]) -> None:
    result = analyse(row["program"], options(row))
    wrong = row["name"].startswith("error_") and row["exit"] != 0
    assert bool(result.errors) == wrong, result.errors
    places = [item["at"] for item in row.get("diagnostics", []) if item["class"] == "ERROR"]
    if not wrong or not places or row["name"] in ELSEWHERE | WIDER:
        return
    assert _inside(result.errors[0][0], places[0])


def _inside(found: str, wanted: str) -> bool:
    return _columns(wanted)[0] <= _columns(found)[0] and _columns(found)[1] <= _columns(wanted)[1]


def _columns(place: str) -> tuple[int, int]:
    first, last = place.split(":")[1].split("-")
    return int(first), int(last)
