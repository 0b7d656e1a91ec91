"""What --fmt prints."""

from __future__ import annotations

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter
from tests.support.rows import each_row


def fmt(text: str) -> str:
    diagnostics = Diagnostics()
    found = formatter.format_source(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    again = formatter.format_source(Source("t", found), diagnostics)
    assert again == found
    return found


def test_wrong_scripts_are_not_touched() -> None:
    diagnostics = Diagnostics()
    text = "begin   { $a = ; }"
    assert formatter.format_source(Source("t", text), diagnostics) == text
    assert diagnostics.errors


@each_row("before", ["", "\n\n", "// c\n", "/* a\n b */\n", "  "])
@each_row("line", ["#!/usr/bin/env pytrace", "#! /usr/bin/env -S pytrace -q \t", "#!"])
@each_row("behind", ["\n", "\n\n\n// x\n", "\n#define X 1\n"])
@each_row("end", ["\n", "\r\n"])
def test_interpreter_line(before: str, line: str, behind: str, end: str) -> None:
    text = f"{before}{line}{behind}begin {{ exit(); }}\n".replace("\n", end)
    once = fmt(text)
    assert once.count("\r") == 0
    assert line.rstrip() in once.splitlines()


def test_windows_line_ends() -> None:
    text = "#define A \\\n  5\nstruct foo {\n  int a; /* x\n y */\n};\n\nbegin {\n    print(A); // e\n}\n"
    assert fmt(text.replace("\n", "\r\n")) == text
    text = "begin { print( }\r\n"
    diagnostics = Diagnostics()
    assert formatter.format_source(Source("x", text), diagnostics) == text
    assert diagnostics.failed


# --------------------------------------------------------------------------------------------------------- item printer

BEFORE = r"""#!/usr/bin/env bpftrace
// top comment

/* block
 * comment */
#include <linux/sched.h>
#define X 5
struct a { int x; };
config = { max_strlen = 8; print_maps_on_exit=false }
import "x";
let @m=lruhash(10)
let @n = hash(3);
macro sq(x) { x*x }
fn f($a:int8,$b:struct x*):uint64 { return $a+$b }
BEGIN { printf("hi\n"); // trailing
 /* lead */ print( 1,2 ,
      3 ); // c2
 // own line


 print(-1 - -2 + - -3, !$a, ~ $b, *$p, &$x, $x ++, -- $y);
 let $x:int8*=5; let $p : struct task_struct ** = (struct task_struct **) $q; $arr = (int8[4]) 5; $k=(uint64)-1;
 $a=if ($b>3) {1} else {2}; $c = { let $b=4; $b*2 };
 if($a==1){print("one")}else if ($a==2)
 {
 print("two")
 } else { print("many"); } // after if
 for($i:0..10){print($i);} for $kv:@m {print($kv.0.1);}
 while($i<5){$i++;continue} unroll(3){ ; print(1);; }
 @m[1,"a"]=count() ; @x = a?b:c ; @y = a?:c; @z[sizeof(struct x*), offsetof(struct x,a.b[2].c)] = 1;
 { print(1) }
 if (a) {} else {}
 $r = (a=1,b=(2,),c=());
 // last comment
}
tracepoint:a:b,tracepoint:c:d,  // why
n=kprobe:x   /pid==1 && $a / 2 > 1/ <
@=count() >
k:f < if (a) < $x = 1 > else < print(2) > >
// end
"""

AFTER = r"""#!/usr/bin/env bpftrace
// top comment

/* block
 * comment */
#include <linux/sched.h>
#define X 5
struct a { int x; };
config = {
    max_strlen = 8;
    print_maps_on_exit = false;
}
import "x";
let @m = lruhash(10);
let @n = hash(3);

macro sq(x) {
    x * x
}

fn f($a: int8, $b: struct x *): uint64 {
    return $a + $b;
}

BEGIN {
    printf("hi\n"); // trailing
    /* lead */ print(1, 2,
        3); // c2
    // own line

    print(-1 - -2 + - -3, !$a, ~$b, *$p, &$x, $x++, --$y);
    let $x: int8 *= 5;
    let $p: struct task_struct ** = (struct task_struct **)$q;
    $arr = (int8[4])5;
    $k = (uint64)-1;
    $a = if ($b > 3) { 1 } else { 2 };
    $c = { let $b = 4; $b * 2 };
    if ($a == 1) {
        print("one")
    } else if ($a == 2) {
        print("two")
    } else {
        print("many");
    } // after if
    for ($i : 0..10) {
        print($i);
    }
    for $kv : @m {
        print($kv.0.1);
    }
    while ($i < 5) {
        $i++;
        continue;
    }
    unroll (3) {
        print(1);
    }
    @m[1, "a"] = count();
    @x = a ? b : c;
    @y = a ?: c;
    @z[sizeof(struct x *), offsetof(struct x, a.b[2].c)] = 1;
    {
        print(1)
    }
    if (a) {} else {}
    $r = (a = 1, b = (2,), c = ());
    // last comment
}

tracepoint:a:b,
tracepoint:c:d, // why
n=kprobe:x /pid == 1 && $a / 2 > 1/ <
    @ = count();
>

k:f <
    if (a) <
        $x = 1;
    > else <
        print(2)
    >
>
// end
"""


def test_style() -> None:
    assert fmt(BEFORE) == AFTER


@each_row(
    ("text", "expected"),
    [
        ("", ""),
        ("// only\n", "// only\n"),
        ("// only\n\n\n", "// only\n"),
        ("begin {}\n\n/* a\n b */\n\n\n", "begin {}\n\n/* a\n b */\n"),
        ("begin {\n\n// x\n/* a\n b */ }", "begin {\n\n    // x\n    /* a\n b */\n}\n"),
        ("begin{}", "begin {}\n"),
        ("begin{/*x*/}", "begin { /*x*/\n}\n"),
        ("begin {\n// x\n}", "begin {\n    // x\n}\n"),
        ("begin { // x\n1 }", "begin { // x\n    1\n}\n"),
        ("begin /* why */ { 1 }", "begin /* why */ {\n    1\n}\n"),
        ("begin {1}\n\n\n\nend {2}", "begin {\n    1\n}\n\nend {\n    2\n}\n"),
        ("begin {\n1;\n\n\n2;\n\n}", "begin {\n    1;\n\n    2;\n}\n"),
        ("begin { $a = 1 // one\n}", "begin {\n    $a = 1; // one\n}\n"),
        ("begin { f(a, // one\n b) }", "begin {\n    f(a, // one\n        b)\n}\n"),
        ("begin { $a = 1 + // one\n // two\n 2; }",
         "begin {\n    $a = 1 + // one\n        // two\n        2;\n}\n"),
        ("begin { if (a) { 1 } // x\n else { 2 } }",
         "begin {\n    if (a) {\n        1\n    } // x\n        else {\n        2\n    }\n}\n"),
        ("begin { /* a */ /* b */ 1 /* c */ ; /* d */ }", "begin { /* a */ /* b */\n    1 /* c */ ; /* d */\n}\n"),
        ("begin { a; // x\nb; }", "begin {\n    a; // x\n    b;\n}\n"),
        ("begin { a; /* x */ b; }", "begin {\n    a; /* x */\n    b;\n}\n"),
        ("begin { a;\n// x\nb; }", "begin {\n    a;\n    // x\n    b;\n}\n"),
        ("begin { a;\n\n\n// x\nb; }", "begin {\n    a;\n\n    // x\n    b;\n}\n"),
        ("begin { a;\n// x\n\n\nb; }", "begin {\n    a;\n    // x\n\n    b;\n}\n"),
        ("begin { a;\n/* x */ b; }", "begin {\n    a;\n    /* x */ b;\n}\n"),
        ("begin {\n\n\na;\n\n}\n\n\n", "begin {\n    a;\n}\n"),
        ("begin { $x = $a - --$b - -$c; $y = $a + ++$b; $z = - -$q; }",
         "begin {\n    $x = $a - --$b - -$c;\n    $y = $a + ++$b;\n    $z = - -$q;\n}\n"),
        ("begin { if (a) { 1 }; }", "begin {\n    if (a) {\n        1\n    };\n}\n"),
        ("begin { f({ 1 }, if (a) { 2 } else { 3 }); }", "begin {\n    f({ 1 }, if (a) { 2 } else { 3 });\n}\n"),
        ("begin { $a = {\n1 }; }", "begin {\n    $a = {\n        1\n    };\n}\n"),
        ("begin { $a = cond\n? 1\n: 2; }", "begin {\n    $a = cond\n        ? 1\n        : 2;\n}\n"),
        ('begin { print("  // kept  ") ; }', 'begin {\n    print("  // kept  ");\n}\n'),
        ("begin { import\"x\"; }", 'begin {\n    import "x";\n}\n'),
        ("begin { $a=(uint64)(x)+1 }", "begin {\n    $a = (uint64)(x) + 1;\n}\n"),
        ("k:f,k:g,{ }", "k:f, k:g {}\n"),
        ("syscall:read,write, call:libc:f{ }", "syscall:read,write, call:libc:f {}\n"),
        ("begin { $x = a*b / -c; *$p; }", "begin {\n    $x = a * b / -c;\n    *$p;\n}\n"),
        ("begin { 0x1F + 1_000 }\r\n", "begin {\n    0x1F + 1_000\n}\n"),
    ],
)  # fmt: skip
def test_cases(text: str, expected: str) -> None:
    assert fmt(text) == expected


def test_long_heads() -> None:
    points = [f"kprobe:a_rather_long_function_name_{index}" for index in range(4)]
    assert fmt(",".join(points) + " { }") == ",\n".join(points) + " {}\n"
    head, predicate = "kprobe:" + "f" * 70, " && ".join(f"@m{index} > 1" for index in range(5))
    assert fmt(f"{head} /{predicate}/ {{ }}") == f"{head}\n/{predicate}/ {{}}\n"


def test_statements_without_semicolons() -> None:
    text = "begin { $a = { 1 } $b = 2 // two\n if ($a) { f() g() }\n"
    text += " for ($i : 0..2) { f() } @c++ $d = if ($a) { 1 } else { 2 }\n h() }"
    assert fmt(text).split("\n")[1:-2] == [
        "    $a = { 1 };",
        "    $b = 2; // two",
        "    if ($a) {",
        "        f();",
        "        g()",
        "    }",
        "    for ($i : 0..2) {",
        "        f()",
        "    }",
        "    @c++;",
        "    $d = if ($a) { 1 } else { 2 };",
        "    h()",
    ]
