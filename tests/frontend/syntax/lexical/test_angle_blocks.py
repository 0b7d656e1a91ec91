"""``< … >`` as a block: each script in angle brackets has the tree of its twin in braces."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from tests.support.rows import each_row


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


def test_span_of_an_angle_block() -> None:
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
