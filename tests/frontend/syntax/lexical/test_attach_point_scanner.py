"""Attach points: where they end, and which slash starts the predicate."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax import parser


def probe(text: str) -> nodes.Probe:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    (found,) = program.probes
    return found


@pytest.mark.parametrize(
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
