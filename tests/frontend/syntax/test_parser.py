"""Trees, spans, and how the parser goes on after a mistake."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter, nodes, parser
from tests.support.outputs import ROWS
from tests.support.pace import unit
from tests.support.rows import each_row


def parse(text: str) -> nodes.Program:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    return program


def body(text: str) -> nodes.Block:
    return parse(f"begin {{ {text} }}").probes[0].body


def expression(text: str) -> nodes.Expr:
    diagnostics = Diagnostics()
    node = parser.parse_expression(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    assert node is not None
    return node


def shape(node: nodes.Node | None) -> str:
    """The tree in a short form: operators, names and literals with parentheses."""
    match node:
        case None:
            return "-"
        case nodes.Binary():
            return f"({shape(node.left)} {node.operator} {shape(node.right)})"
        case nodes.Unary(postfix=True):
            return f"({shape(node.operand)} {node.operator})"
        case nodes.Unary():
            return f"({node.operator} {shape(node.operand)})"
        case nodes.Ternary():
            return f"({shape(node.condition)} ? {shape(node.then)} : {shape(node.other)})"
        case nodes.Cast():
            return f"cast({node.type.span.text}, {shape(node.operand)})"
        case nodes.IntLiteral() | nodes.Identifier() | nodes.Variable() | nodes.MapRef():
            return node.span.text
        case _:
            inner = ", ".join(shape(child) for child in nodes.children(node))
            return f"{type(node).__name__}({inner})"


@each_row(
    ("text", "expected"),
    [
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("1 - 2 - 3", "((1 - 2) - 3)"),
        ("1 | 2 == 2", "(1 | (2 == 2))"),
        ("1 + 2 << 1", "((1 + 2) << 1)"),
        ("5 & 3 == 3", "(5 & (3 == 3))"),
        ("1 < 2 == 1", "((1 < 2) == 1)"),
        ("2 ^ 3 & 1", "(2 ^ (3 & 1))"),
        ("a || b && c", "(a || (b && c))"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("a ? b ? 1 : 2 : 3", "(a ? (b ? 1 : 2) : 3)"),
        ("a ?: b ?: c", "(a ? - : (b ? - : c))"),
        ("a ? : b", "(a ? - : b)"),
        ("-a.b", "(- FieldAccess(a))"),
        ("!a == b", "((! a) == b)"),
        ("*$p++", "(* ($p ++))"),
        ("- -1", "(- (- 1))"),
        ("$a - -1", "($a - (- 1))"),
        ("&@m[1, 2]", "(& MapIndex(@m, 1, 2))"),
        ("++@m", "(++ @m)"),
        ("(uint64)x + 1", "(cast(uint64, x) + 1)"),
        ("(uint64)-1", "cast(uint64, (- 1))"),
        ("(int8[4])e", "cast(int8[4], e)"),
        ("(uint8[])(uint64)258", "cast(uint8[], cast(uint64, 258))"),
        ("(struct x *)e", "cast(struct x *, e)"),
        ("(struct x **)*e", "cast(struct x **, (* e))"),
        ("(uint64_t)e", "cast(uint64_t, e)"),
        ("(enum color)6", "cast(enum color, 6)"),
        ("(typeof($a))5", "cast(typeof($a), 5)"),
        ("(pid)*x", "(pid * x)"),
        ("(pid) * 2", "(pid * 2)"),
        ("(arg0) - 1", "(arg0 - 1)"),
        ("($a) - 1", "($a - 1)"),
        ("(a)", "a"),
        ("(a) && b", "(a && b)"),
        ("(a) != b", "(a != b)"),
        ("((struct task_struct *)curtask).comm", "FieldAccess(cast(struct task_struct *, curtask))"),
        ("f(int8, struct x *, y)", "Call(NamedType(), PointerTypeExpr(StructTypeExpr()), y)"),
        ("sizeof(int8 *) * 2", "(Sizeof(PointerTypeExpr(NamedType())) * 2)"),
        ("sizeof((uint64)1)", "Sizeof(cast(uint64, 1))"),
        ("sizeof($x.y)", "Sizeof(FieldAccess($x))"),
        ("sizeof(typeof($a))", "Sizeof(TypeofExpr($a))"),
        ("offsetof(struct x, a.b[2].c)", "Offsetof(StructTypeExpr())"),
        ("typeinfo(x)", "TypeInfo(x)"),
        ("comptime (1 + 2)", "Comptime((1 + 2))"),
        ("()", "TupleLiteral()"),
        ("(1,)", "TupleLiteral(1)"),
        ("(1, (2, 3),)", "TupleLiteral(1, TupleLiteral(2, 3))"),
        ("(a=1, b=(c=2))", "RecordLiteral(1, RecordLiteral(2))"),
        ("$t.0.1[2]->x", "FieldAccess(Index(TupleAccess(TupleAccess($t)), 2))"),
        ("username", "username"),
        ("args->import", "FieldAccess(args)"),
        ("config(1)", "Call(1)"),
    ],
)
def test_expressions(text: str, expected: str) -> None:
    assert shape(expression(text)) == expected


def parsed_type(text: str) -> nodes.TypeExpr | None:
    """The tree of a type where a declaration has it; None when it is wrong."""
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", f"begin {{ let $x: {text}; }}"), diagnostics)
    found = [node.type for node in nodes.walk(program) if isinstance(node, nodes.Let)]
    return found[0] if found and not diagnostics.errors else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string[8]", nodes.NamedType),
        ("int32*[4]", nodes.ArrayTypeExpr),
        ("int32[4]*", nodes.PointerTypeExpr),
        ("(int8, string)", nodes.TupleTypeExpr),
        ("typeof(int8)", nodes.TypeofExpr),
        ("union u", nodes.StructTypeExpr),
    ],
)
def test_types(text: str, expected: type[nodes.TypeExpr]) -> None:
    assert type(parsed_type(text)) is expected


def test_sized_types_keep_their_capacity() -> None:
    node = parsed_type("string[64]")
    assert isinstance(node, nodes.NamedType)
    assert node.capacity == 64
    assert parsed_type("int32*[") is None


@each_row(
    ("text", "spans"),
    [
        ('$a = "s";', ['$a = "s"']),
        ("@a[1] = 1;", ["@a[1] = 1"]),
        ("print(1, 2); nsecs;", ["print(1, 2)", "nsecs"]),
        ("let $a: uint16 = -1;", ["let $a: uint16 = -1"]),
        ("let $a;", ["let $a"]),
        ("unroll(0) { print(1); }", ["unroll(0) { print(1); }"]),
        ("for ($i : 0..5) { }", ["for ($i : 0..5) { }"]),
        ("for $i : @m { }", ["for $i : @m { }"]),
        ("while (1) { } break;", ["while (1) { }", "break"]),
        ('return "s";', ['return "s"']),
        ("_ = 5;", ["_ = 5"]),
        ('import "x";', ['import "x"']),
    ],
)
def test_statement_spans(text: str, spans: list[str]) -> None:
    assert [statement.span.text for statement in body(text).statements] == spans


def test_expression_spans() -> None:
    found = {type(node).__name__: node.span.text for node in nodes.walk(expression("$t.5 + (struct x *)f(1)[2]"))}
    assert found["TupleAccess"] == "$t.5"
    assert found["PointerTypeExpr"] == "struct x *"
    assert found["Cast"] == "(struct x *)f(1)[2]"
    assert found["Call"] == "f(1)"


def test_values_of_blocks() -> None:
    block = body("1; if (a) { 1 } else { 2 }")
    assert isinstance(block.value, nodes.If)
    assert isinstance(block.value.then.value, nodes.IntLiteral)
    assert body("if (a) { 1 };").value is None
    assert isinstance(body("{ 1 }").value, nodes.BlockExpr)
    assert body("$a = 1").value is None
    assert body("print(1);").value is None
    assert isinstance(body("print(1)").value, nodes.Call)


def test_if_comptime() -> None:
    node = body("if comptime (a == b) { } else if (c) { }").value
    assert isinstance(node, nodes.If)
    assert node.comptime
    assert isinstance(node.other, nodes.If)
    assert not node.other.comptime


def test_conditions_around_items() -> None:
    program = parse(
        "if comptime (a == 1) { begin { } macro m() { 1 } if comptime b { fail(\"x\", 1); } } "
        "else if comptime (c) { } else { let @m = hash(1); end { } } interval:s:1 { }"
    )
    first, last = program.items
    assert isinstance(first, nodes.RootIf)
    assert isinstance(last, nodes.Probe)
    assert shape(first.condition) == "(a == 1)"
    assert [type(item) for item in first.then] == [nodes.Probe, nodes.Macro, nodes.RootIf]
    (inner,) = first.other
    assert isinstance(inner, nodes.RootIf)
    assert inner.then == ()
    assert [type(item) for item in inner.other] == [nodes.MapDecl, nodes.Probe]
    assert first.span.text.endswith("end { } }")
    assert program.probes == (last,)


ROOT_MISTAKES = [
    ("if (1) { begin { } }", ["expected 'comptime' after 'if'"]),
    ("if comptime (1) { begin { }", ["the branch is not closed"]),
    ("if comptime (1 { begin { } }", ["expected ')', found '{'"]),
    ("if comptime (1) { } else { } else { }", ["'else' after the last 'else'"]),
    ("if comptime (1) { } else end { }", ["expected '{' after 'else', found 'end'", "expected an attach point"]),
    ("if comptime (1) { getopt(\"a\", 1); getopt (\"b\"); begin { } }", ["an option cannot be declared"] * 2),
    ("if comptime (1) { if comptime (1) { begin { }", ["the branch is not closed"]),
    ("if comptime (1) { import \"x.bt\"; begin { } }", ["imports must stand before the first"]),
    ("if comptime (1) { struct a { int b; }; begin { } }", ["C definitions must stand before the first"]),
    ("fail(\"x\") end { }", ["unexpected 'end'", "expected an attach point before '{'"]),
    ("fail(\"x\")", ["expected ';' after fail(), found the end of the text"]),
    ("if comptime (1) { kprobe:f { $x = ; } end { } }", ["unexpected ';'"]),
    ("if comptime 1 { " * 60 + "begin { }" + " }" * 60, ["conditions are nested more than 50 levels deep"]),
]  # fmt: skip


@each_row(("text", "messages"), ROOT_MISTAKES)
def test_mistakes_around_conditions(text: str, messages: list[str]) -> None:
    found = Diagnostics()
    parser.parse(Source("t", text), found)
    assert len(found.errors) == len(messages)
    for item, message in zip(found.errors, messages, strict=True):
        assert message in item.message


@pytest.mark.parametrize("text", ["if:x { }", "iffy { }", "failing { }", "fail:x { }", "if=kprobe:f { }"])
def test_attach_points_that_start_like_conditions(text: str) -> None:
    assert isinstance(parse(text).items[0], nodes.Probe)


def test_items() -> None:
    text = """#!/usr/bin/env pytrace
#include <a.h>
#define X \\
   5
struct a { int x; struct { int y; }; } __attribute__((packed));
enum e { A, B }
config = { max_strlen = 8; stack_mode = perf; license = "GPL"; lazy_symbolication = true }
import "lib.bt";
let @m = lruhash(10);
macro m($v, @m, e) { e }
fn f($a : int8, $b : struct a *) : uint64 { return 1; }
begin { }
"""
    program = parse(text)
    assert program.shebang == "#!/usr/bin/env pytrace"
    assert [part.text.split()[0] for part in program.c_parts] == ["#include", "#define", "struct", "enum"]
    config, imported, declaration, macro, function, probe = program.items
    assert isinstance(config, nodes.ConfigBlock)
    assert [(entry.key, entry.value) for entry in config.entries] == [
        ("max_strlen", 8), ("stack_mode", "perf"), ("license", b"GPL"), ("lazy_symbolication", True),
    ]  # fmt: skip
    assert [entry.span.text for entry in config.entries][:2] == ["max_strlen = 8", "stack_mode = perf"]
    assert isinstance(imported, nodes.Import)
    assert imported.path == "lib.bt"
    assert isinstance(declaration, nodes.MapDecl)
    assert (declaration.map.name, declaration.kind) == ("@m", "lruhash")
    assert isinstance(macro, nodes.Macro)
    assert [type(parameter) for parameter in macro.parameters] == [nodes.Variable, nodes.MapRef, nodes.Identifier]
    assert macro.head.text == "macro m"
    assert isinstance(function, nodes.Function)
    assert function.result is not None
    assert isinstance(probe, nodes.Probe)


def test_preamble_may_be_mixed() -> None:
    program = parse('config = { a = 1 } struct x { int a; }; import "y"; #define Z 1\nbegin { }')
    assert len(program.c_parts) == 2
    assert len(program.items) == 3


# ---------------------------------------------------------------------------------------------- mistakes

MISTAKES = [
    ("begin { if ($a = 5) { } }", "=", "unexpected '='", "'=='"),
    ("begin { if (a) { } elif (b) { } }", "{", "unexpected '{'", "else if"),
    ("begin { unless (a) { } }", "{", "unexpected '{'", "no 'unless'"),
    ("begin { a and b; }", "and", "unexpected 'and'", "&&"),
    ("begin { m!(1) }", "!", "unexpected '!'", "without '!'"),
    ("begin { for ($x in @m) { } }", "in", "expected ':'", "':'"),
    ('begin { print("a" "b"); }', '"b"', 'unexpected string "b"', "not joined"),
    ("begin { print(1 2); }", "2", "expected ')' or ','", "','"),
    ("begin { $a = ; }", ";", "expected an expression", ""),
    ("begin { let @x = 1; }", "@x", "expected a variable", "declared outside"),
    ("begin { 5 = 3; }", "5", "expected a variable or a map", ""),
    ("begin { $t.0 = 3; }", "$t.0", "cannot be assigned", "never change"),
    ("begin { pid++; }", "pid", "'++' needs", ""),
    ("begin { &5; }", "5", "'&' needs", ""),
    ("begin { (a=1, a=2); }", "a", "a field 'a' already", ""),
    ("begin { for ($k : 5) { } }", "5", "map or a range", "0..10"),
    ("begin { $x[1, 2]; }", "2", "one index", "maps"),
    ("begin { else { } }", "else", "unexpected 'else'", "directly follow"),
    ("begin { print(1)); }", ")", "')' without '('", ""),
    ("begin { print((1; }", ";", "expected ')'", "add ')'"),
    ("begin { @a[1; }", ";", "expected ']'", "add ']'"),
    ("begin { print(1);", "", "expected '}', found the end", "add '}'"),
    ("begin { print(1 @@ 2); }", "@", "unexpected '@'", ""),
    ("begin { } struct a { int x; };", "struct a", "before the first probe", "top"),
    ("begin { } #define X", "#define X", "before the first probe", "top"),
    ("begin { } config = { a = 1 }", "config", "before the first probe", "top"),
    ('begin { } import "x";', "import", "before the first probe", "top"),
    ('import "x" begin { }', "", "expected ';'", ""),
    ("macro m { 1 }", "{", "expected '('", "macro m()"),
    ("let $a = 1;", "$a", "expected a map", "maps only"),
    ("struct x { int a;", "struct x { int a;", "not closed", "'}'"),
    ("begin { x = 5; }", "x", "expected a variable or a map", "$x"),
    ("begin { let x = 5; }", "x", "expected a variable", "$x"),
    ("begin { for (i : 0..3) { } }", "i", "expected a variable", "$i"),
    ("begin { for (int i : 0..3) { } }", "int", "expected a variable", "for ($i : 0..10)"),
    ("begin { let int $x = 5; }", "int", "expected a variable", "let $name: type"),
    ("begin { struct x y; }", "struct", "unexpected 'struct'", "parentheses"),
]


@each_row(("text", "place", "message", "hint"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_mistakes(text: str, place: str, message: str, hint: str) -> None:
    diagnostics = Diagnostics()
    parser.parse(Source("t", text), diagnostics)
    (found,) = diagnostics.errors
    assert found.message.startswith("syntax: ")
    assert message in found.message
    assert found.span.text == place
    assert hint in " ".join(found.hints)


def test_many_mistakes_in_one_run() -> None:
    text = """begin {
    print(1 2);
    $a = ;
    if (x { print(3); }
    print(4);
}
end { print(; }
kprobe f { print(6) }
interval:s:1 { print(7); }
"""
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", text), diagnostics)
    assert [item.span.first.line for item in diagnostics.errors] == [2, 3, 4, 7, 8]
    assert len(program.probes) == 4


def test_a_forgotten_brace_does_not_swallow_the_next_probe() -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", "begin { print(1);\nkprobe:f { print(2); }\n"), diagnostics)
    (found,) = diagnostics.errors
    assert found.span.first.line == 2
    assert found.notes[0].span.text == "{"
    assert len(program.probes) == 2


def test_names_of_probes_are_names_inside_blocks() -> None:
    assert len(parse("macro m(begin, end) {\n end / 2;\n _ = 1;\n end < begin\n}\nbegin { m(1, 2) }").items) == 2


def test_the_rest_is_kept_after_mistakes() -> None:
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", "begin { if (a) { $x = ; print(1); } print(2); }"), diagnostics)
    assert len(diagnostics.errors) == 1
    calls = [node for node in nodes.walk(program) if isinstance(node, nodes.Call)]
    assert len(calls) == 2
    diagnostics = Diagnostics()
    parser.parse(Source("t", "begin { 1 = 2; @x = ; }"), diagnostics)
    messages = [item.message for item in diagnostics.errors]
    assert len(messages) == len(set(messages)) == 2


def test_errors_are_limited_and_deep_trees_refused() -> None:
    diagnostics = Diagnostics()
    parser.parse(Source("t", "begin { $a = ; }\n" * 1000), diagnostics)
    assert "too many errors" in diagnostics.errors[-1].message
    assert len(diagnostics.errors) < 150
    diagnostics = Diagnostics()
    program = parser.parse(Source("t", "begin { $a = " + "1 + " * 20000 + "1; } end { }"), diagnostics)
    assert "levels deep" in diagnostics.errors[0].message
    assert len(program.items) == 1
    parser.parse(Source("t", "begin { $a = " + "(" * 20000), Diagnostics())


def test_loose_texts() -> None:
    diagnostics = Diagnostics()
    assert parser.parse_expression(Source("t", " "), diagnostics) is None
    assert not diagnostics.items
    assert parser.parse_expression(Source("t", "1 2"), diagnostics) is None
    assert diagnostics.errors


# ------------------------------------------------------------------------------------------------------------- recovery

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


def recovery_parse(text: str) -> Diagnostics:
    diagnostics = Diagnostics()
    with time_limit(LIMIT):
        parser.parse(Source("t", text), diagnostics)
    return diagnostics


def test_a_wrong_token_in_a_second_config_block() -> None:
    text = "config = { max_strlen = 8 } config = { max_strlen = 9 @} begin { ;exit(); }"
    (found,) = recovery_parse(text).errors
    assert found.span.text == "@"
    assert "unexpected '@'" in found.message


@pytest.mark.parametrize("text", WRITTEN)
def test_programs_that_are_mutated_are_right_before(text: str) -> None:
    assert not recovery_parse(text).errors


@pytest.mark.parametrize("seed", range(8))
def test_mutated_programs_come_to_an_end(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(1000):
        text = mutated(dice.choice(PROGRAMS) if dice.random() < 0.5 else dice.choice(WRITTEN), dice)
        try:
            recovery_parse(text)
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
        ("kprobe:a @[comm] = count()", "put the statements in { }"),
        ('kprobe:a printf("x\\n")', "put the statements in { }"),
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



# -------------------------------------------------------------------------------------------------------------- grammar

ROOT = Path(__file__).parents[3]
GRAMMAR_PROGRAMS = [json.loads(line) for line in (ROOT / "tests/cases/outputs.jsonl").read_text().splitlines()]
SYNTAX_ERRORS = {
    "error_unterminated": "1:15-23",  # the peer points behind it
    "error_missing_brace": "1:18-18",
    "error_bad_token": "1:17-18",
    "error_c_after_probe": "1:19-27",  # the peer underlines all of it
}


@each_row("row", GRAMMAR_PROGRAMS, ids=[row["name"] for row in GRAMMAR_PROGRAMS])
def test_reference_programs(row: dict[str, str]) -> None:
    diagnostics = Diagnostics()
    source = Source("stdin", row["program"])
    program = parser.parse(source, diagnostics)
    expected = SYNTAX_ERRORS.get(row["name"])
    if expected is not None:
        (found,) = diagnostics.errors
        assert str(found.span) == f"stdin:{expected}"
        return
    assert not diagnostics.items, render_all(diagnostics.items)
    text = formatter.format_source(source, diagnostics)
    assert nodes.same(parser.parse(Source("stdin", text), diagnostics), program)
    assert formatter.format_source(Source("stdin", text), diagnostics) == text


PROBE = """kprobe:vfs_read, kprobe:vfs_write /pid == 1234 && comm != "bash"/ {
    $start = @start[tid, pid];
    if ($start > 0 && arg2 >= 4096) {
        $delta = (nsecs - $start) / 1000;
        @usecs[comm, "read"] = hist($delta);
        printf("%-16s %-6d %d\\n", comm, pid, $delta);
    } else {
        delete(@start, (tid, pid));
    }
}
"""
ANGLE = "k:f < if (arg2 > 5) < @x[a > b ? 1 : 0] = $y > print(1) > if ($a) < $b = $c >> 2 >>\n"


def _calls(text: str) -> int:
    """Calls of functions, in Python and in C, that parsing takes: a measure of work that no other load changes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    diagnostics = Diagnostics()
    sys.setprofile(count)
    try:
        parser.parse(Source("t", text), diagnostics)
    finally:
        sys.setprofile(None)
    assert not diagnostics.items
    return calls


@pytest.mark.parametrize("line", [PROBE, ANGLE], ids=["probes", "angles"])
def test_work_is_linear(line: str) -> None:
    few, many = (_calls(line * copies) for copies in (20, 200))
    assert few > 1000
    assert many < few * 10 * 1.25


def test_one_long_block_is_linear() -> None:
    def calls(count: int) -> int:
        return _calls("begin <\n" + "@a[comm, pid] = sum($x > 5 ? 1 : 2);\n" * count + ">\n")

    assert calls(1000) < calls(100) * 10 * 1.25


@pytest.mark.parametrize(
    "text",
    [PROBE * 800, ANGLE * 2000, "begin <\n" + "@a[comm, pid] = sum($x > 5 ? 1 : 2);\n" * 4000 + ">\n"],
    ids=["probes", "angles", "block"],
)
def test_long_scripts_end_soon(text: str) -> None:
    """What the count of calls does not see, such as text that is copied in each: a bound far from usual times."""
    started = time.process_time()
    parser.parse(Source("t", text), Diagnostics())
    assert time.process_time() - started < 3000 * unit()
