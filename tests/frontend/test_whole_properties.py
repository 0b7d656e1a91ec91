"""No input makes the front end, analysis included, do anything but report: generated, mutated and recorded programs."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytrace.core.diagnostics import render_all
from pytrace.core.options import CompileOptions
from tests.frontend.programs import PIECES, PROGRAMS
from tests.support import outputs
from tests.support.cases import load_all
from tests.support.front import analyse

ROOT = Path(__file__).resolve().parent.parent.parent
QUICK = settings(
    max_examples=150, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)  # fmt: skip
OPTIONS = CompileOptions(unsafe=True, positional=("5", "text"))


def look(text: str) -> None:
    """All passes; whatever they say has a place in a text and can be shown."""
    result = analyse(text, OPTIONS)
    render_all(result.diagnostics.items)
    for item in result.diagnostics.items:
        assert 0 <= item.span.start <= item.span.end <= len(item.span.source.text)
        assert item.message


@QUICK
@given(PROGRAMS)
def test_generated_programs(text: str) -> None:
    look(text)


@QUICK
@given(st.lists(PIECES, max_size=30).map(" ".join))
def test_any_tokens(text: str) -> None:
    look("begin { " + text + " }")
    look(text)


@settings(QUICK, max_examples=100)
@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    look(data.decode("utf-8", "surrogateescape"))


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
