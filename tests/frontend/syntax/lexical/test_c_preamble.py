"""The C part, kept word for word."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser

PARTS = [
    "#include <linux/sched.h>",
    "#define X \\\n  5",
    "#define Y /* over\n lines */ 5",
    "struct a { int x; }",
    "struct a { int x; };",
    "struct a { struct { int y; } b; union { char c[4]; }; unsigned f:3; } __attribute__((packed));",
    "struct a { int x; } __attribute__((packed)) __attribute__((aligned(8)));",
    "struct __attribute__((packed)) a { int x; };",
    "union u { int a; long b; };",
    "enum e { A, B = 2 };",
    "enum { A, B = 2 };",
    "struct a; ",
    "struct a { char c; /* } */ // }\n int d; }; ",
    "typedef struct { int x; } name_t;",
    "typedef unsigned long (*fn)(int, char);",
]


@pytest.mark.parametrize("part", PARTS)
def test_kept_verbatim(part: str) -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", f"{part}\nbegin {{ }}"), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    assert [found.text for found in program.c_parts] == [part.strip()]
    assert len(program.probes) == 1


def test_several() -> None:
    diagnostics = Diagnostics()
    text = "#if 1\nstruct a { int x; } struct b { struct a c; };\n#endif\nbegin { $x = (struct a *)1; }"
    program = parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items
    texts = [found.text for found in program.c_parts]
    assert texts == ["#if 1", "struct a { int x; }", "struct b { struct a c; };", "#endif"]


def test_a_provider_may_be_named_like_a_keyword() -> None:
    program = parser.parse(Source("t", "struct:x { } enum:y, union:z { }"), Diagnostics())
    points = [point.text for probe in program.probes for point in probe.attach_points]
    assert points == ["struct:x", "enum:y", "union:z"]


@pytest.mark.parametrize(
    "line",
    [
        '#define A "/*"',
        "#define A '\"' /* one */",
        "#define A 1 // no /* comment",
        "#error don't /* over\n lines */ stop",
        '#define A "\\"/*"',
        "#define A 4 / 2",
        "#define A \\\r\n 5",
        "#define A 1 /* over\n lines */ + \\\n 2",
    ],
)
def test_what_looks_like_a_comment_does_not_swallow_the_script(line: str) -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", f"{line}  \r\nbegin {{ /* x */ }}"), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    assert [found.text for found in program.c_parts] == [line]
    assert len(program.probes) == 1


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("struct a { int x; struct { int y; };\nint z;", "struct a { int x; struct { int y; };", "add '}' at its end"),
        ("typedef int x", "typedef int x", "add ';'"),
        ("typedef struct { int x;", "typedef struct { int x;", "add '}' at its end"),
        ("struct a { /* } */ // }", "struct a { /* } */ // }", "add '}' at its end"),
    ],
)
def test_a_definition_that_is_not_closed(text: str, place: str, hint: str) -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    error = diagnostics.errors[-1]
    assert error.message == "syntax: the C definition is not closed"
    assert (error.span.text, error.hints) == (place, (hint,))
    assert program.c_parts[0].span.end == len(text)
