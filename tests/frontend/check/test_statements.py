"""Rules of statements, and conditions that are known at compile time."""

from __future__ import annotations

import pytest

from pytrace.core.options import CompileOptions, ProcessFilters
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from tests.frontend.checking import refusals, values, warnings
from tests.support.front import Result, analyse
from tests.support.recorded import Facts
from tests.support.rows import each_row

# fmt: off
REFUSED = [
    ("fn add($a: int64): int64 { return \"x\"; } begin { print(add(1)); }",
     "1:28-38", "add() returns int64, this is string[2]"),
    ("begin { @x[1] = hist(5); for ($kv : @x) { print($kv.0); } }",
     "1:37-39", "a loop cannot iterate over a map of hist_t"),
    ("begin { unroll($#) { } }", "1:16-18", "unroll repeats 1 to 100 times, not 0"),
    ("begin { continue; }", "1:9-17", "continue outside a loop"),
    ("begin { if comptime (pid == 4) { print(1); } }", "1:22-30", "this condition cannot be decided at compile time"),
    ("begin { $c = { let $d = 5; }; print($c); }", "1:14-29", "this block has no value at its end"),
    ("begin { print(if (pid > 5) { 1 }); }", "1:15-33", "an if without else has no value"),
    ("begin { break; }", "1:9-14", "break outside a loop"),
    ("begin { unroll(0) { } }", "1:16-17", "unroll repeats 1 to 100 times, not 0"),
    ("begin { unroll(101) { } }", "1:16-19", "unroll repeats 1 to 100 times, not 101"),
    ("begin { unroll(pid) { } }", "1:16-19", "the number of iterations must be an integer constant"),
    ("begin { for ($i : 0..comm) { } }", "1:22-26", "a bound of a range must be an integer, not string[16]"),
    ("begin { @s = 1; for ($kv : @s) { } }", "1:28-30", "@s has no keys to iterate over"),
    ("begin { for ($kv : @nothing) { } }", "1:20-28", "undefined map @nothing: nothing is ever stored in it"),
    ("begin { return \"a\"; }", "1:9-19", "a probe returns an integer, not string[2]"),
    ("fn f(): int64 { return; } begin { print(f()); }", "1:17-23", "f() returns int64, this is void"),
    ("fn f() { return 1; } begin { f(); }", "1:10-18", "f() returns void, this is int8"),
    ("begin { print({ 1; }); }", "1:15-21", "this block has no value at its end"),
    ("begin { print(if (0) { 1 }); }", "1:15-27", "this if has no value: its condition is false"),
    ("begin { if comptime (pid) { } }", "1:22-25", "this condition cannot be decided at compile time"),
    # assignments
    ("begin { let $x: hist_t; }", "1:9-23", "a variable cannot be hist_t"),
    ("begin { @ = count(); @ += 1; }", "1:22-28", "@ is count_t, which only its function updates"),
    ("begin { let $x: void; }", "1:9-21", "a variable cannot be void"),
    ("begin { let $x: string = 5; }", "1:9-27", "$x is a string, this is int8"),
    ("begin { @h = hist(1); let $x = @h; }", "1:32-34", "a value of hist_t cannot be read by the script"),
    ("begin { $x = stats(1); }", "1:14-22", "stats() must be assigned to a map directly"),
    ("begin { @s = stats(1); $x = @s; }", "1:29-31", "stats_t cannot be stored in a variable"),
    ("begin { @c = count(); @c = 5; }", "1:23-29", "the value of @c is count_t, this is int8"),
    ("begin { @c += count(); }", "1:9-22", "count_t can only be assigned with ="),
    ("begin { @a = @b; @b = hist(1); }", "1:14-16", "a value of hist_t cannot be read by the script"),
    ("begin { @s = stats(1); @t = @s; }", "1:24-31", "@s is stats_t, which cannot be copied"),
    # root conditions
    ("if comptime (pid == 1) { begin { } }", "1:14-17", "this is not known where items are chosen"),
    ("if comptime (1 && nsecs) { begin { } }", "1:19-24", "this is not known where items are chosen"),
    ("if comptime (strlen(\"a\")) { begin { } }", "1:14-25", "this is not known where items are chosen"),
    ("if comptime (@a == 1) { begin { } }", "1:14-16", "this is not known where items are chosen"),
    ("if comptime ($a) { begin { } }", "1:14-16", "this is not known where items are chosen"),
    ("if comptime (member_exist(args, x)) { begin { } }", "1:27-31", "a function has no args"),
    ("if comptime (1 / 0) { begin { } }", "1:14-19", "division by zero"),
    ("if comptime (kfunc_exist()) { begin { } }", "1:14-27", "kfunc_exist() takes 1 argument, not 0"),
    ("fail(\"no %s: %d\", \"kprobes\", 3);", "1:1-32", "no kprobes: 3"),
    ("if comptime (0) { begin { } } else if comptime (0) { } else { fail(\"none\"); }", "1:63-75", "none"),
    ("if comptime (1) { if comptime (1) { fail(\"deep\"); } }", "1:37-49", "deep"),
    ("fail(\"%d\", pid);", "1:12-15", "the values of fail() must be literals"),
]
VALUES = [
    ("begin { @m[1] = comm; for ($kv : @m) { print($kv); } }", "(int8,string[16])", None),
    ("begin { for ($i : 0..3) { print($i); } }", "int64", None),
    ("begin { @m[1] = sum(1); for ($kv : @m) { print($kv.1); } }", "int64", None),
    ("begin { unroll(100) { print(1); } }", "int8", 1),
    # assignments
    ("begin { let $s: string = \"a\"; $s = comm; print($s); }", "string[16]", None),
    ("begin { let $x: uint8 = 1; $x += 300; print($x); }", "uint8", None),
    ("begin { $x = 1; $x += nsecs; print($x); }", "uint64", None),
    ("begin { @a = count(); @b = (int64)@a; print(@b + 0); }", "int64", None),
]
WARNED = [
    ("begin { while (1) { break; } }", "1:9-29", "while is deprecated"),
    ("begin { 5; }", "1:9-10", "the value of this is not used"),
    ("begin { return; print(1); }", "1:17-25", "unreachable code"),
    ("begin { exit(); print(1); }", "1:17-25", "unreachable code"),
    ("begin { for ($i : 0..3) { break; print(1); } }", "1:34-42", "unreachable code"),
    ("begin { pid == 1; }", "1:9-17", "the value of this is not used"),
    ("begin { pid + 1 }", "1:9-16", "the value of this is not used"),
    ("begin { while (pid) { } }", "1:9-24", "while is deprecated"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)
test_warned = warnings(WARNED)


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("if (1) { print(1); } else { exit(); }", ["print_value"]),
        ("if (0) { print(1); } else if (1) { exit(); }", ["exit"]),
        ("0 ? print(1) : exit();", ["exit"]),
        ("if comptime (sizeof(int8) == 1) { print(1); } else { exit(); }", ["print_value"]),
        ("if (pid) { print(1); } else { exit(); }", ["print_value", "exit"]),
        ("return; print(1);", []),
    ],
)
def test_only_what_can_run_sends_events(body: str, kinds: list[str]) -> None:
    assert [event.kind for event in analyse(f"begin {{ {body} }}").checked().event_list] == kinds


# ---------------------------------------------------------------------------------------------------------- assignments

# fmt: off
# fmt: on




def test_copies_of_aggregations_show_how() -> None:
    (error,) = analyse("begin { @a = count(); @b = @a; }").diagnostics.errors
    assert error.message == "@a is count_t, which cannot be copied"
    assert error.hints == ("store its present value: (int64)@a",)


# --------------------------------------------------------------------------------------------------------- removed code

LEFT_OUT = 'config = { missing_probes = "ignore" }\n'


def map_types(found: Result, name: str = "@f") -> tuple[str | None, str]:
    info = found.checked().maps[name]
    return (None if info.key is None else str(info.key), str(info.value))


@each_row(
    "body",
    [
        "if (false) { @f[1, comm] = count(); }",
        "if (true) { $a = 1; } else { @f[1, comm] = count(); }",
        "if (1 == 2) { $a = 1; } else if (2 == 2) { $a = 2; } else { @f[1, comm] = count(); }",
        "false ? { @f[1, comm] = count(); } : { $a = 1; }",
        "if (cpid == 0) { return; @f[1, comm] = count(); }",
        "for ($i : 0..3) { break; @f[1, comm] = count(); }",
        "unroll(2) { if (0) { @f[1, comm] = count(); } }",
        "if comptime (false) { @f[1, comm] = count(); }",
        "if comptime (false) { if (true) { @f[1, comm] = count(); } }",
        "if (true || { @f[1, comm] = count(); true }) { $a = 1; }",
    ],
)
@each_row(
    "use",
    [
        "clear(@f)", "zero(@f)", "print(@f)", "print_clear(@f)", "_ = delete(@f, (1, comm))", "$n = len(@f)",
        "$h = has_key(@f, (1, comm))", "for ($kv : @f) { print($kv.0.1); }", "print(@f[1, comm])",
        "$x = (int64)@f[2, comm]",
    ],
)  # fmt: skip
def test_maps_that_only_removed_code_fills(body: str, use: str) -> None:
    assert map_types(analyse(f"begin {{ {body} }} end {{ {use}; }}")) == ("(int8,string[16])", "count_t")


@pytest.mark.parametrize("declared", ["", "let @f = hash(10); "])
def test_predicates_that_never_hold(declared: str) -> None:
    found = analyse(declared + "begin /has_cpid/ { @f[1] = 1; } end { clear(@f); }")
    assert map_types(found) == ("int8", "int8")
    assert not found.warnings


def test_types_do_not_depend_on_what_runs() -> None:
    script = 'begin { if (has_cpid) { @f["longer key"] = (uint8)1; } @f["k"] = (uint32)7; }'
    assert (
        map_types(analyse(script)) == map_types(analyse(script, CompileOptions(child=True))) == ("string[11]", "uint32")
    )


@pytest.mark.parametrize(
    "script",
    [
        'begin { @f = 1; if (false) { @f = "text"; } }',
        'begin { if (false) { @f = "text"; } @f = 1; }',
        "begin { if (false) { @f[1] = 1; } @f = 1; }",
        "begin { @f = 1; exit(); @f[2] = 1; }",
        "begin { if (false) { @f = (@f, 1); } @f = 1; }",
        "begin { if (false) { @f = nosuch + args.x; @f = sum(1); } @f = 1; }",
        "begin { if (false) { $s = sizeof(@f); @f = (int8)$s; } @f = 1; }",
    ],
)
def test_code_that_runs_decides(script: str) -> None:
    assert map_types(analyse(script)) == (None, "int8")


def test_nothing_of_it_reaches_the_generator() -> None:
    found = analyse('begin { if (false) { printf("%d", nosuch()); @only = 1; } @f = 1; exit(); print(@f); }').checked()
    assert [item.kind for item in found.event_list] == ["exit"]
    assert set(found.maps) == {"@f"}
    typed = {node for node in found.types if isinstance(node, nodes.Expr)}
    removed = [node for node in walk(found.units[0].body) if isinstance(node, nodes.StringLiteral)]
    assert removed
    assert not typed.intersection(removed)


def test_variables_take_their_types_from_it() -> None:
    found = analyse('begin { let $x; if (false) { $x = "text"; } printf("%s", $x); }')
    assert [str(info.type) for info in found.checked().variables.values()] == ["string[5]"] * 2
    assert not found.warnings


@pytest.mark.parametrize(
    ("declared", "types"),
    [("hash(5)", ("int64", "int64")), ("percpuhash(5)", ("int64", "count_t")), ("lruhash(5)", ("int64", "int64"))],
)
def test_a_declared_map_exists(declared: str, types: tuple[str, str]) -> None:
    found = analyse(f"let @f = {declared}; begin {{ clear(@f); print(@f); $n = len(@f); }}")
    assert map_types(found) == types
    assert found.checked().maps["@f"].kind == declared.partition("(")[0]


def test_maps_that_only_removed_code_uses() -> None:
    assert map_types(analyse("let @f = hash(5); begin { if (has_key(@f, comm)) { clear(@f); } }")) == (
        "string[16]",
        "int64",
    )
    assert not analyse("let @f = hash(5); begin { if (false) { @f[1] = 2; } }").warnings
    assert "never used" in analyse("let @f = hash(5); begin { }").warnings[0][1]
    assert map_types(analyse(LEFT_OUT + "kprobe:nosuch { @f[arg0, comm] = count(); } begin { clear(@f); }")) == (
        "(uint64,string[16])",
        "count_t",
    )
    script = "tracepoint:syscalls:sys_enter_openat { @f[args.dfd] = 1; } interval:s:1 { clear(@f); }"
    assert map_types(analyse(script, CompileOptions(probe_filter="interval"))) == map_types(analyse(script))


@pytest.mark.parametrize(
    ("script", "message", "note", "place"),
    [
        ("begin { clear(@f); }", "nothing is ever stored", "", ""),
        (LEFT_OUT + "tracepoint:no:such { @f[args.x] = 1; } begin { clear(@f); }", "only removed code",
         "this probe was skipped", "tracepoint:no:such"),
        (LEFT_OUT + "begin { print(@f[1]); } tracepoint:no:such { @f[1] = args.x; }", "only removed code",
         "this probe was skipped", "tracepoint:no:such"),
        ("begin { if (false) { @f = nosuch; } print(@f); }", "only removed code", "unreachable code",
         "@f = nosuch"),
        ("begin { if comptime (false) { @f = nosuch; } print(@f); }", "only removed code", "removed by if comptime",
         "@f = nosuch"),
    ],
)  # fmt: skip
def test_types_that_nothing_tells(script: str, message: str, note: str, place: str) -> None:
    found = analyse(script)
    (error,) = found.diagnostics.errors
    assert message in error.message
    assert [(item.message, item.span.text) for item in error.notes] == ([(note, place)] if note else [])


def test_hints_of_removed_code() -> None:
    found = analyse(LEFT_OUT + "tracepoint:no:such { @f[args.x] = count(); } begin { clear(@f); }")
    assert "let @f = percpuhash(" in found.diagnostics.errors[0].hints[0]
    assert not analyse("begin { if (false) { @f[1] = 1; } clear(@f); }", CompileOptions(ahead=True)).errors


# ------------------------------------------------------------------------------------------------------ root conditions

# ruff: noqa: E501 - one script a line



TRUE = [
    "1", "true", "(1)", "!0", "2 * 3 == 6", "1 && !0", "0 || 1", "\"a\" == \"a\"", "\"a\" != \"b\"", "1 ? 1 : 0", "-1 < 0",
    "comptime (1 + 1 == 2)", 'kfunc_exist("vfs_read")', 'kfunc_allowed("vfs_read")', '!kfunc_exist("nothing")',
    'probe_exist("kprobe:vfs_read")', "type_exist(struct task_struct)", "!member_exist(struct task_struct, no.such)",
    '!constant_exist("NOTHING")', 'one_of(80, "80,443")', 'config("license") == "GPL"', 'getopt("x", "a") == "a"',
    "$# == 1", "$1 == 7", "!has_filter",
]  # fmt: skip


@each_row("condition", TRUE)
def test_conditions(condition: str) -> None:
    options = CompileOptions(positional=("7",))
    for text, kind in ((condition, "begin"), (f"!({condition})", "end")):
        result = analyse(f"if comptime ({text}) {{ begin {{ }} }} else {{ end {{ }} }}", options)
        assert [unit.kind.name for unit in result.checked().units] == [kind]


def test_whether_processes_are_selected() -> None:
    script = "if comptime (has_filter) { begin { } } else { end { } }"
    for pid, kind in ((1, "begin"), (None, "end")):
        result = analyse(script, CompileOptions(filters=ProcessFilters(() if pid is None else (pid,))))
        assert [unit.kind.name for unit in result.checked().units] == [kind]





def test_branches_not_taken_are_only_parsed() -> None:
    other = "kprobe:no_such { print(args.x); } macro m() { 1 } fn f($a: struct no_such *): void { } let @m = hash(0); fail(\"no\");"
    for script in (
        f"if comptime (0) {{ {other} }} else {{ macro m() {{ 2 }} begin {{ print(m()); }} }}",
        f"if comptime (1) {{ begin {{ }} }} else {{ {other} }}",
        f"if comptime (0) {{ {other} }} else if comptime (1) {{ begin {{ }} }} else {{ {other} }}",
        f"begin {{ }} if comptime (0) {{ {other} }}",
    ):
        assert analyse(script).checked().units


def test_branches_of_the_root() -> None:
    script = "if comptime (%d) { begin { print($1); } } else if comptime (%d) { begin { print($2); } } else { end { print($3); } }"
    for first, second, number in ((1, 1, 1), (0, 1, 2), (0, 0, 3)):
        result = analyse(script % (first, second))
        assert [message for _, message in result.warnings] == [f"parameter ${number} was not given; it is 0"]
    script = "begin { } if comptime (1) { kprobe:vfs_read { } if comptime (1) { interval:s:1 { } } } end { }"
    kinds = [unit.kind.name for unit in analyse(script).checked().units]
    assert kinds == ["begin", "kprobe", "interval", "end"]
    script = "if comptime (0) { end { } } else if comptime (1) { begin { } } else if comptime (1) { fail(\"x\"); }"
    assert [unit.kind.name for unit in analyse(script).checked().units] == ["begin"]


def test_what_the_kernel_can_attach_decides() -> None:
    script = (
        "if comptime (probe_exist(\"kprobe:vfs_read\")) { kprobe:vfs_read { } } "
        "else if comptime (probe_exist(\"fentry:vfs_read\")) { fentry:vfs_read { } } else { fail(\"neither\"); }"
    )
    for missing, kind in ((set(), "kprobe"), ({"kprobe"}, "fentry")):
        units = analyse(script, kernel=Facts(missing=frozenset(missing))).checked().units
        assert [unit.kind.name for unit in units] == [kind]
    result = analyse(script, kernel=Facts(missing=frozenset({"kprobe", "fentry"})))
    assert [message for _, message in result.errors] == ["neither"]


def test_many_alternatives() -> None:
    script = "".join("if comptime (0) { end { } } else " for _ in range(2000)) + "{ begin { } }"
    assert len(analyse(script).checked().units) == 1
