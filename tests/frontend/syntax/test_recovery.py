"""Recovery from syntax errors always comes to an end; hints for those who know another language."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser
from tests.support.outputs import ROWS
from tests.support.rows import each_row

TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z0-9_$@#]+|\s+|.', re.DOTALL)
PIECES = (
    "{", "}", "(", ")", "[", "]", ";", ",", ":", "=", "@", "$", "#", "<", ">", ">>", "/", '"', "\\", "?", "..", "!",
    "\n", "config", "begin", "import", "macro", "fn", "let", "if", "else", "comptime", "for", "while", "unroll",
    "return", "sizeof", "struct", "and", "true", "1", "$x", "@x", "exit();", "config = {", "/*", "//", "#define",
)  # fmt: skip
LIMIT = 5.0
"""Seconds for one program; each needs some milliseconds."""

WRITTEN = [
    "config = { max_strlen = 8 } config = { max_strlen = 9 } begin { exit(); }",
    'config = { missing_probes = "warn"; max_map_keys = 3; } import "a.bt"; begin { exit(); }',
    "let @a = hash(5); macro m($a, @b, c) { $a + c } fn f($a: int32): int32 { return $a; }",
    "begin /pid == 1/ { if comptime (1) { print(1) } else if 2 { print((a=1, b=(2,))) } else { unroll(3) { $x++ } } }",
    "interval:s:1 < for $k : @a { while 1 { break; continue; } } > end { print({ let $a = 1; $a }); return 5; }",
]
ROW_PROGRAMS = [json.loads(line)["program"] for line in ROWS.read_text(encoding="utf-8").splitlines()]
PROGRAMS = WRITTEN + [text for text in ROW_PROGRAMS if text]


class TooSlowError(Exception):
    """Parsing did not end."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    former = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def mutated(text: str, dice: random.Random) -> str:
    """*text* with some of its tokens dropped, doubled, exchanged or replaced."""
    tokens = TOKENS.findall(text)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(tokens))
        other = dice.randrange(len(tokens))
        change = dice.randrange(5)
        if change == 0:
            tokens[at] = ""
        elif change == 1:
            tokens[at] *= 2
        elif change == 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif change == 3:
            tokens[at] = dice.choice(PIECES)
        else:
            tokens[at] += dice.choice(PIECES)
    return "".join(tokens)


def parse(text: str) -> Diagnostics:
    diagnostics = Diagnostics()
    with time_limit(LIMIT):
        parser.parse(Source("t", text), diagnostics)
    return diagnostics


def test_a_wrong_token_in_a_second_config_block() -> None:
    text = "config = { max_strlen = 8 } config = { max_strlen = 9 @} begin { ;exit(); }"
    (found,) = parse(text).errors
    assert found.span.text == "@"
    assert "unexpected '@'" in found.message


@pytest.mark.parametrize("text", WRITTEN)
def test_programs_that_are_mutated_are_right_before(text: str) -> None:
    assert not parse(text).errors


@pytest.mark.parametrize("seed", range(8))
def test_mutated_programs_come_to_an_end(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(1000):
        text = mutated(dice.choice(PROGRAMS) if dice.random() < 0.5 else dice.choice(WRITTEN), dice)
        try:
            parse(text)
        except TooSlowError:
            pytest.fail(f"parsing does not end: {text!r}")


@each_row(
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
        ("begin { if (1) exit(); }", "stands in braces"),
        ("begin { for ($i = 0; $i < 3; $i++) { } }", "a loop goes over a range or a map"),
        ("begin { for (i = 0; i < 3; i++) { } }", "a loop goes over a range or a map"),
        ("begin\nend { }", "several attach points of one block are separated by commas"),
        ("kprobe:a b { }", "an attach point with spaces must be quoted"),
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
