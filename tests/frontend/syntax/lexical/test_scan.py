"""Attach points: where they end, and which slash starts the predicate; the C part, kept word for word."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from tests.support.rows import each_row


def probe(text: str) -> nodes.Probe:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    (found,) = program.probes
    return found


@each_row(
    ("text", "points", "predicate"),
    [
        ("begin { }", ["begin"], None),
        ("BEGIN{}", ["BEGIN"], None),
        ("begin/1/{}", ["begin"], "1"),
        ("uprobe:/bin/bash:readline /pid==1/ { }", ["uprobe:/bin/bash:readline"], "pid==1"),
        ("uprobe:/bin/bash:readline/pid==1/{ }", ["uprobe:/bin/bash:readline"], "pid==1"),
        ("uprobe:readline /pid==1/ { }", ["uprobe:readline"], "pid==1"),
        ("uprobe:readline/pid==1/ { }", ["uprobe:readline"], "pid==1"),
        ("uprobe:./a/b:f {}", ["uprobe:./a/b:f"], None),
        ("uprobe:./a {}", ["uprobe:./a"], None),
        ("uprobe:../a/b /1/ {}", ["uprobe:../a/b"], "1"),
        ("uprobe:a/b:f {}", ["uprobe:a/b:f"], None),
        ("kprobe:f/pid/{ }", ["kprobe:f"], "pid"),
        ("kprobe:f/a?b:c/{ }", ["kprobe:f"], "a?b:c"),
        ("kprobe:mod:f+0x10 {}", ["kprobe:mod:f+0x10"], None),
        ("tracepoint:a:b,\n tracepoint:c:d {}", ["tracepoint:a:b", "tracepoint:c:d"], None),
        ("tracepoint:a:b , // one\n /* two */ tracepoint:c:d,\n {}", ["tracepoint:a:b", "tracepoint:c:d"], None),
        ('uprobe:"/my path/x":f {}', ['uprobe:"/my path/x":f'], None),
        ('uprobe:/usr/lib*.so:"foo(int, char const*)" {}', ['uprobe:/usr/lib*.so:"foo(int, char const*)"'], None),
        (r'uprobe:/a:"x\"y{" {}', [r'uprobe:/a:"x\"y{"'], None),
        ("uprobe:/usr/lib/*/x.so:f {}", ["uprobe:/usr/lib/*/x.so:f"], None),
        ("uprobe:/x@src/a.c:12:3 /1/ {}", ["uprobe:/x@src/a.c:12:3"], "1"),
        ("uprobe:/a/b.apk!/lib/c.so:f {}", ["uprobe:/a/b.apk!/lib/c.so:f"], None),
        ("usdt:/a/b:ns:probe /1/ {}", ["usdt:/a/b:ns:probe"], "1"),
        ("U:*:p {}", ["U:*:p"], None),
        ("iter:task:/sys/fs/bpf/x {}", ["iter:task:/sys/fs/bpf/x"], None),
        ("iter:task:dir/pin /1/ {}", ["iter:task:dir/pin"], "1"),
        ("iter:task/1/ {}", ["iter:task"], "1"),
        ("*:/bin/bash:f {}", ["*:/bin/bash:f"], None),
        ("interval:s:1 {}", ["interval:s:1"], None),
        ("kprobe:$1 {}", ["kprobe:$1"], None),
        ("watchpoint:0x1000:8:rw {}", ["watchpoint:0x1000:8:rw"], None),
        ("k:f < >", ["k:f"], None),
        ("k:f// note\n{ }", ["k:f"], None),
        ("k:f /* note */ { }", ["k:f"], None),
        ("k:f /a > b && c < d/ < >", ["k:f"], "a > b && c < d"),
        ("k:f /a / 2 / b == 1/ { }", ["k:f"], "a / 2 / b == 1"),
        ("k:f[1] { }", ["k:f[1]"], None),
    ],
)
def test_points_and_predicate(text: str, points: list[str], predicate: str | None) -> None:
    found = probe(text)
    assert [point.text for point in found.attach_points] == points
    assert (found.predicate.span.text if found.predicate else None) == predicate


def test_name() -> None:
    found = probe("n=kprobe:f, kprobe:g { }")
    assert [(point.name, point.text) for point in found.attach_points] == [("n", "kprobe:f"), (None, "kprobe:g")]


def test_spans() -> None:
    found = probe("  kprobe:f, kprobe:g /1/ { }")
    assert [point.span.text for point in found.attach_points] == ["kprobe:f", "kprobe:g"]
    assert found.head.text == "kprobe:f, kprobe:g"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("kprobe f { }", "expected '{', '/' or ','", "f"),
        ("begin", "expected '{' after the attach points", ""),
        ("{ }", "expected an attach point", "{"),
        ("}", "expected a probe", "}"),
        ('uprobe:"/a:f { }', "not closed", '"/a:f { }'),
        ("begin /1 { }", "the predicate is not closed", ""),
        ("begin /1/ print(1); }", "expected a block after the predicate", ";"),
    ],
)
def test_wrong_heads(text: str, message: str, place: str) -> None:
    diagnostics = Diagnostics()
    parser.parse(Source("t", text), diagnostics)
    first = diagnostics.errors[0]
    assert message in first.message
    assert first.span.text == place


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


@each_row("part", PARTS)
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
