"""Blocks, brackets and angle blocks: what the grammar cannot see."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.lexer import Lexer
from pytrace.frontend.syntax.structure import Structure
from pytrace.frontend.syntax.tokens import Token
from tests.support.rows import each_row


def item(text: str, role: str = "item") -> tuple[Structure, Lexer]:
    """The item that *text* is the body of, and the lexer behind it."""
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", text), diagnostics)
    structure = Structure(lexer)
    first = Token("PROBE_ITEM", "", lexer.peek().span)
    if role == "probe":
        structure.probe(first)
    else:
        structure.item(first, role)
    assert not diagnostics.items, render_all(diagnostics.items)
    return structure, lexer


def kinds(text: str, role: str = "probe") -> str:
    return " ".join(token.type for token in item(text, role)[0].tokens[1:])


@each_row(
    ("text", "expected"),
    [
        ("/1/ { }", "PREDICATE_OPEN INT PREDICATE_CLOSE LBRACE RBRACE"),
        ("/1 / 2/ /* a */ < >", "PREDICATE_OPEN INT DIVIDE INT PREDICATE_CLOSE LBRACE RBRACE"),
        ("{ 1 / 2 }", "LBRACE INT DIVIDE INT RBRACE"),
        ("{ if 1 { } }", "LBRACE IF_STATEMENT INT LBRACE RBRACE RBRACE"),
        ("{ _ = if comptime 1 { 2 } }", "LBRACE IDENT ASSIGN IF IF_COMPTIME INT LBRACE INT RBRACE RBRACE"),
        ("{ { 1 } }", "LBRACE BLOCK_STATEMENT INT RBRACE RBRACE"),
        ("{ _ = { 1 } }", "LBRACE IDENT ASSIGN LBRACE INT RBRACE RBRACE"),
        ("{ < 1 > }", "LBRACE BLOCK_STATEMENT INT RBRACE RBRACE"),
        ("{ 1 < 2 }", "LBRACE INT LT INT RBRACE"),
        ("< < 1 >>", "LBRACE BLOCK_STATEMENT INT RBRACE RBRACE"),
        ("{ $a.if->for }", "LBRACE VARIABLE DOT IDENT ARROW IDENT RBRACE"),
        ("{ (int8)1 }", "LBRACE LPAREN TYPE_MARK IDENT RPAREN INT RBRACE"),
        ("{ f(1, int8) }", "LBRACE IDENT LPAREN INT COMMA TYPE_MARK IDENT RPAREN RBRACE"),
    ],
)
def test_marks(text: str, expected: str) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    ("text", "role", "end"),
    [
        ("{ 1 } kprobe:f { }", "probe", 5),
        ("< 1 > kprobe:f { }", "probe", 5),
        ("m() { { } } x", "item", 11),
        ("= { a = 1 } x", "config", 11),
        ("@a = hash(1); x", "map", 13),
        ("@a = hash(1) x", "map", 12),
    ],
)
def test_where_an_item_ends(text: str, role: str, end: int) -> None:
    structure, lexer = item(text, role)
    assert structure.tokens[-1].span.end == end
    lexer.root()
    assert lexer.peek().type == "ATTACH_POINT"
    assert text[end:].strip().startswith(lexer.peek().text)


def test_depths_and_starts() -> None:
    structure, _ = item("{ if (1) { f(2); } $a = 3 }", "probe")
    assert [structure.tokens[index].type for index in sorted(structure.starts)] == ["IF_STATEMENT", "IDENT", "VARIABLE"]
    inner = next(index for index, token in enumerate(structure.tokens) if token.text == "f")
    assert (structure.depths[inner], structure.direct[inner], structure.direct[inner + 2]) == (2, True, False)


def test_a_probe_behind_a_forgotten_brace_is_an_item_of_its_own() -> None:
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", "{ f(1);\nkprobe:g { }"), diagnostics)
    Structure(lexer).probe(Token("PROBE_ITEM", "", lexer.peek().span))
    assert [error.message for error in diagnostics.errors] == ["syntax: expected '}', found 'kprobe'"]
    lexer.root()
    assert lexer.token().text == "kprobe:g"


# ----------------------------------------------------------------------------------------------------------------- scan


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


def test_names_and_spans_of_heads() -> None:
    found = probe("n=kprobe:f, kprobe:g { }")
    assert [(point.name, point.text) for point in found.attach_points] == [("n", "kprobe:f"), (None, "kprobe:g")]
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


# --------------------------------------------------------------------------------------------------------- angle blocks


def parse(text: str) -> nodes.Program:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    return program


TWINS = [
    ("k:do_sys_open < @[comm]=count(); >", "k:do_sys_open { @[comm]=count(); }"),
    ("k:do_sys_open < @[comm]=count() >", "k:do_sys_open { @[comm]=count() }"),
    ("k:f<@=count();>", "k:f{@=count();}"),
    ("k:f < >", "k:f { }"),
    ("k:f <> begin <>", "k:f {} begin {}"),
    ("k:f < if (arg2 > 5) < @ = 1 > >", "k:f { if (arg2 > 5) { @ = 1 } }"),
    ("k:f < if (arg2 > 5) < @ = 1 >>", "k:f { if (arg2 > 5) { @ = 1 }}"),
    ("k:f < if (arg2 > 5) < @ = 1; >>", "k:f { if (arg2 > 5) { @ = 1; }}"),
    ("k:f < if (arg2 > 5) { @ = 1 } >", "k:f { if (arg2 > 5) { @ = 1 } }"),
    ("k:f { if (arg2 > 5) < @ = 1 > }", "k:f { if (arg2 > 5) { @ = 1 } }"),
    ("k:f < $b = $a >> 2; >", "k:f { $b = $a >> 2; }"),
    ("k:f < $b = $a >> 2 >", "k:f { $b = $a >> 2 }"),
    ("k:f < $a >>= 2 >", "k:f { $a >>= 2 }"),
    ("k:f < $a = 5 >= 2 >", "k:f { $a = 5 >= 2 }"),
    ("k:f < $x = $a > $b >", "k:f { $x = $a > $b }"),
    ("k:f < $x = $a > -1 >", "k:f { $x = $a > -1 }"),
    ("k:f < $x = $a > (1) >", "k:f { $x = $a > (1) }"),
    ("k:f < $x = $a > *$p >", "k:f { $x = $a > *$p }"),
    ("k:f < $x = $a > nsecs >", "k:f { $x = $a > nsecs }"),
    ("k:f < @x[a > b ? 1 : 0] = 1 >", "k:f { @x[a > b ? 1 : 0] = 1 }"),
    ("k:f < $x = a > b ? 1 : 0 >", "k:f { $x = a > b ? 1 : 0 }"),
    ("k:f < $x = c ? a > b : d >", "k:f { $x = c ? a > b : d }"),
    ("k:f < $x = c ? 1 : a > b >", "k:f { $x = c ? 1 : a > b }"),
    ("k:f < print(1 > 2) >", "k:f { print(1 > 2) }"),
    ("k:f < @m[1] > 5 >", "k:f { @m[1] > 5 }"),
    ("k:f /a > b && c < d/ < print(1) >", "k:f /a > b && c < d/ { print(1) }"),
    ("k:f /a > b / 2/ < print(1) >", "k:f /a > b / 2/ { print(1) }"),
    ("k:f < print(1) > k:g < print(2) >", "k:f { print(1) } k:g { print(2) }"),
    ("k:f < @=count() > begin { print(1) }", "k:f { @=count() } begin { print(1) }"),
    ("k:f < @=count() > begin < print(1) >", "k:f { @=count() } begin { print(1) }"),
    ("k:f < @=count() > END/1/{ print(1) }", "k:f { @=count() } END/1/{ print(1) }"),
    ("k:f < @x = $a > begin { print(1) }", "k:f { @x = $a } begin { print(1) }"),
    ("k:f < @x = $a > kprobe:x, k:y { print(1) }", "k:f { @x = $a } kprobe:x, k:y { print(1) }"),
    ("k:f < @x = $a > *:x { print(1) }", "k:f { @x = $a } *:x { print(1) }"),
    ("k:f < @x = $a > k*:x { print(1) }", "k:f { @x = $a } k*:x { print(1) }"),
    ("k:f < @x = $a > n=k:x { print(1) }", "k:f { @x = $a } n=k:x { print(1) }"),
    ("k:f < @x = $a > macro m() < 1 >", "k:f { @x = $a } macro m() { 1 }"),
    ("k:f < @x = $a > fn g($a : int8) : int8 < return 1 >", "k:f { @x = $a } fn g($a : int8) : int8 { return 1 }"),
    ("k:f < @x = $a > let @m = hash(4); k:g {}", "k:f { @x = $a } let @m = hash(4); k:g {}"),
    ("k:f < @x = 1 > // end\nk:g {}", "k:f { @x = 1 } // end\nk:g {}"),
    ("k:f < @x = 1 /* > */ >", "k:f { @x = 1 /* > */ }"),
    ('k:f < print(">") >', 'k:f { print(">") }'),
    ("k:f < for ($i : 0..5) < print($i) > >", "k:f { for ($i : 0..5) { print($i) } }"),
    ("k:f < for $i : 0..5 < print($i) > >", "k:f { for $i : 0..5 { print($i) } }"),
    ("k:f < for ($kv : @m) < print($kv) > print(2) >", "k:f { for ($kv : @m) { print($kv) } print(2) }"),
    ("k:f < for $kv : @m < print($kv.0) >>", "k:f { for $kv : @m { print($kv.0) }}"),
    ("k:f < while ($i < 5) < $i++ > >", "k:f { while ($i < 5) { $i++ } }"),
    ("k:f < while ($i < 5) < $i++ > print($i) >", "k:f { while ($i < 5) { $i++ } print($i) }"),
    ("k:f < unroll(4) < $i += 2; > >", "k:f { unroll(4) { $i += 2; } }"),
    ("k:f < unroll 4 < $i += 2 > >", "k:f { unroll 4 { $i += 2 } }"),
    ("k:f < if (a) < print(1) > else < print(2) > >", "k:f { if (a) { print(1) } else { print(2) } }"),
    ("k:f < if (a) < $x = 1 > else if (b > c) < $x = 2 > else < $x = 3 > >",
     "k:f { if (a) { $x = 1 } else if (b > c) { $x = 2 } else { $x = 3 } }"),
    ("k:f < if (a) < print(1) > print(2); >", "k:f { if (a) { print(1) } print(2); }"),
    ("k:f < if (a) < print(1) > $x = 2; >", "k:f { if (a) { print(1) } $x = 2; }"),
    ("k:f < if (a) < $y = 1 > $x = 2; >", "k:f { if (a) { $y = 1 } $x = 2; }"),
    ("k:f < if (a) < $y = $z > @x[1, 2] = 2; >", "k:f { if (a) { $y = $z } @x[1, 2] = 2; }"),
    ("k:f < if (a) < $y = $z > $x++; >", "k:f { if (a) { $y = $z } $x++; }"),
    ("k:f < if (a) < $y = $z > if (b) < $x++ > >", "k:f { if (a) { $y = $z } if (b) { $x++ } }"),
    ("k:f < if (a) < $y = $z > _ = 1; >", "k:f { if (a) { $y = $z } _ = 1; }"),
    ("k:f < if (a) < $y = $z > 5; >>", "k:f { if (a) { $y = $z > 5; }}"),
    ("k:f < if (a) < $y = $z > $q; >>", "k:f { if (a) { $y = $z > $q; }}"),
    ("k:f < if (a) < break > >", "k:f { if (a) { break } }"),
    ("k:f < if (a) < return > >", "k:f { if (a) { return } }"),
    ("k:f < if $a < print(1) > >", "k:f { if $a { print(1) } }"),
    ("k:f < if $a > 5 { print(1) } >", "k:f { if $a > 5 { print(1) } }"),
    ("k:f < if $a < 5 { print(1) } >", "k:f { if $a < 5 { print(1) } }"),
    ("k:f { if $a < 5 && $b > 2 { print(1) } }", "k:f { if ($a < 5 && $b > 2) { print(1) } }"),
    ("k:f < if comptime (1 > 0) < print(1) > >", "k:f { if comptime (1 > 0) { print(1) } }"),
    ("k:f < $a = { let $b = 4; $b * 2 }; print($a) >", "k:f { $a = { let $b = 4; $b * 2 }; print($a) }"),
    ("k:f < $a = < let $b = 4; $b * 2 >; print($a) >", "k:f { $a = { let $b = 4; $b * 2 }; print($a) }"),
    ("k:f < $a = if (c) < 1 > else < 2 >; >", "k:f { $a = if (c) { 1 } else { 2 }; }"),
    ("k:f < { print(1) } < print(2) > >", "k:f { { print(1) } { print(2) } }"),
    ("k:f < { print(1) } >", "k:f { { print(1) } }"),
    ("k:f < if (a) { if (b) < print(1) > } >", "k:f { if (a) { if (b) { print(1) } } }"),
    ("k:f < if (a) < if (b) < if (c) < print(1) >>>>", "k:f { if (a) { if (b) { if (c) { print(1) }}}}"),
    ("macro m(x) < x > 5 > begin { m(1) }", "macro m(x) { x > 5 } begin { m(1) }"),
    ("macro m(x) < len(x) > 5 > begin { m(1) }", "macro m(x) { len(x) > 5 } begin { m(1) }"),
    ("k:f < $x = args->y > k:g { }", "k:f { $x = args->y } k:g { }"),
    ("k:f < $x-- > k:g { }", "k:f { $x-- } k:g { }"),
    ("uprobe:/bin/bash:readline < @ = 1 >", "uprobe:/bin/bash:readline { @ = 1 }"),
    ("k:f, k:g, < @ = 1 >", "k:f, k:g, { @ = 1 }"),
    ("k:f < @ = 1 > }", None),
]  # fmt: skip


@each_row(("angle", "brace"), [pair for pair in TWINS if pair[1]])
def test_twin(angle: str, brace: str) -> None:
    assert nodes.same(parse(angle), parse(brace))


def test_written_form_is_kept() -> None:
    program = parse("k:f < if (a) { } > k:g { if (a) < > }")
    first, second = program.probes
    assert first.body.angle
    assert not second.body.angle
    inner = [node.then.angle for node in nodes.walk(program) if isinstance(node, nodes.If)]
    assert inner == [False, True]
    text = "k:f < @ = 1 > k:g { }"
    assert parse(text).probes[0].body.span.text == "< @ = 1 >"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k:f < @ = 1", "expected '>', found the end of the text"),
        ("k:f < @ = 1 }", "expected '>', found '}'"),
        ("k:f < print((1; >", "expected ')', found ';'"),
        ("k:f < if (a) { print(1) >", "expected '}'"),
    ],
)
def test_wrong_ends(text: str, message: str) -> None:
    diagnostics = Diagnostics()
    parser.parse(Source("t", text), diagnostics)
    assert any(message in item.message for item in diagnostics.errors), render_all(diagnostics.items)


# ------------------------------------------------------------------------------------------------------------- brackets

_PAIRS = {"LPAREN": "RPAREN", "LBRACKET": "RBRACKET", "LBRACE": "RBRACE", "BLOCK_STATEMENT": "RBRACE"}


def read(text: str) -> tuple[Structure, list[tuple[str, int]]]:
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", text), diagnostics)
    structure = Structure(lexer)
    structure.probe(Token("PROBE_ITEM", "", lexer.peek().span))
    return structure, [(error.message.removeprefix("syntax: "), error.span.start) for error in diagnostics.errors]


@each_row(
    ("text", "errors"),
    [
        ("{ f(1; }", [("expected ')', found ';'", 5)]),
        ("{ f(1 }", [("expected ')', found '}'", 6)]),
        ("{ @a[1; }", [("expected ']', found ';'", 6)]),
        ("{ f(@a[1); }", [("expected ']', found ')'", 8)]),
        ("{ f(1)); }", [("')' without '('", 6)]),
        ("{ f(1]; }", [("']' without '['", 5), ("expected ')', found ';'", 6)]),
        ("{ if (1 { f(); } }", [("expected ')', found '{'", 8)]),
        ("{ f();", [("expected '}', found the end of the text", 6)]),
        ("< f(); }", [("expected '>', found '}'", 7)]),
        ("/1 { f(); }", [("the predicate is not closed", 3)]),
        ("/1/ { f((((1; }", [("expected ')', found ';'", 12)]),
    ],
)
def test_repairs(text: str, errors: list[tuple[str, int]]) -> None:
    structure, found = read(text)
    assert found == errors
    opened: list[str] = []
    for token in structure.tokens:
        if token.type in _PAIRS:
            opened.append(_PAIRS[token.type])
        elif token.type in _PAIRS.values():
            assert opened.pop() == token.type
    assert not opened


def test_what_repairs_leave() -> None:
    structure, _ = read("{ f(1; }")
    put_in = [token for token in structure.tokens[1:] if token.span.start == token.span.end]
    assert [(token.type, token.text, token.span.start) for token in put_in] == [("RPAREN", "", 5)]
    diagnostics = Diagnostics()
    lexer = Lexer(Source("t", "{ f(1; }"), diagnostics)
    Structure(lexer).probe(Token("PROBE_ITEM", "", lexer.peek().span))
    (error,) = diagnostics.errors
    assert error.hints == ("add ')'",)
    assert [(note.message, note.span.start) for note in error.notes] == [("'(' was opened here", 3)]
