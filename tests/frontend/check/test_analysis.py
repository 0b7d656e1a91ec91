"""The whole pass: scripts that it accepts, types that it finds, and what its tables hold for the code generator."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.event_layout import Formatted, HelperFailure, PrintedMap, RuntimeFailure
from pytrace.core.options import CompileOptions
from pytrace.core.types import (
    BOOL,
    INT64,
    UINT64,
    Hist,
    LHist,
    NetworkNamespace,
    Stack,
    StackMode,
    Stats,
    String,
    TSeries,
)
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import Signedness
from tests.support.front import analyse
from tests.support.rows import each_row

# fmt: off
ACCEPTED = [
    "begin { $x = (uint64)1; $y = $x + 1; let $z: uint64 = $y; print($z); }",
    "begin { @a[1] = 1; @a[(uint64)5] = 2; @a[-5] = 3; }",
    "begin { @s = sum(1); @s = sum(nsecs); @m = max(-5); }",
    "begin { $s = \"abc\"; $s = \"longer string\"; print($s); }",
    "begin { let $s: string = \"abcdef\"; $s = \"abcdefghi\"; print($s); }",
    "fn add($a: int64, $b: int64): int64 { return $a + $b; } begin { print(add(1, 2)); }",
    "begin { $t = (1, (2, \"x\")); print($t.1.1); print($t[0]); }",
    "begin { $r = (a=1, b=2); $r = (b=3, a=4); print($r.b); }",
    "begin { @x[1] = 5; for ($kv : @x) { $s = $kv.1; print($kv.0); } }",
    "begin { @x[1] = count(); for ($kv : @x) { print($kv.1); } if (@x[1] > 5) { print(1); } $v = @x[1]; @y[@x[1]] = 1; }",
    "begin { @b = 5; @a = count(); @b = @a; }",
    "begin { $c = curtask; printf(\"%s %d %p\", $c.comm, $c.pid, $c); print(*$c); }",
    "begin { print(ntop(0x0100007f)); @[ntop(1)] = count(); }",
    "begin { @[kstack] = count(); @[kstack] = count(); @u[ustack(perf, 5)] = count(); @[kstack(3)] = count(); }",
    "begin { @[kstack(3), comm] = count(); }",
    "begin { time(); time(\"%H\"); print(strftime(\"%F\", nsecs)); }",
    "begin { $a = pid(init); $b = tid(curr_ns); $c = nsecs(boot); print(($a,$b,$c)); }",
    "begin { printf(\"%s %s %d\", kstack, ksym(0), 5); printf(\"%r %rx\", buf(\"abc\", 2), buf(\"x\")); }",
    "let @a = lruhash(5); begin { @a[1] = 1; }",
    "let @a = percpulruhash(5); begin { @a[1] = count(); }",
    "begin { $x = 5; $p = &$x; print(*$p); @m[1] = 5; $q = &@m[1]; print(*$q); }",
    "begin { print(comm == \"bash\"); print(\"a\" == \"b\"); print((1,2) == (1,3)); }",
    "begin { unroll(3) { print(1); break; } }",
    "begin { $x = 1; $x++; --$x; @c++; @k[1]--; }",
    "begin { print(sizeof(struct task_struct)); print(offsetof(struct task_struct, comm)); print(sizeof(uint64)); }",
    "begin { $a = (uint32)1; let $b: typeof($a) = 7; let $c: typeof(1 + 1) = 2; }",
    "begin { let $b: int8 = -128; let $c: uint8 = 255; let $d: bool = true; }",
    "enum e { A, B }; begin { $x = (enum e)1; let $y: enum e = B; print($x == A); @[B] = 1; }",
    "struct s { int a; char b[8]; struct { int c; }; unsigned f:3; }; begin { $s = (struct s *)0; print($s->b); print($s.c); print($s.f); print($s.b[1]); }",
    "struct s { int a[4]; }; begin { $s = (struct s *)0; $i = 2; print($s.a[$i]); print($s[1].a[0]); }",
    "begin { $x = (uint8[4])(uint32)5; print($x[0]); print((uint32)$x); }",
    "begin { if comptime (sizeof(int32) == 4) { print(1); } else { nosuch(); } }",
    "begin { print(1 ? \"a\" : 5); print(0 ? nosuch() : 1); }",
    "begin { $c = nsecs; $c > 5 ? print(1) : print(2); }",
    "begin { $c = { let $d = 5; $d + 1 }; print($c); }",
    "begin { print(if (pid > 5) { \"big\" } else { \"small\" }); }",
    "begin { for ($i : 0..5) { if ($i == 3) { continue; } break; } }",
    "kprobe:vfs_read { print(reg(\"ip\")); print(func); print(arg2); print(ctx); }",
    "begin { static_assert(sizeof(int8) == 1, \"no\"); }",
    "begin { @x[1] = 5; if (find(@x, 1, $v)) { print($v); } }",
    "begin { join((int64*)0); join(0, \",\"); }",
    "begin { print(str(0)); print(str(0, 10)); $n = 5; print(str(0, $n)); print(strlen(str(0))); }",
    "begin { print(kptr(5)); print(str(uptr(0))); }",
    "begin { print(cgroup_path(cgroup)); print(cgroup_path(1, \"foo*\")); }",
    "begin { print(username); @[uid] = count(); print(macaddr((uint8[8])nsecs)); }",
    "begin { @h = hist(5); quantiles(@h); quantiles(@h, 50, \"99.9\"); print_clear(@h); @k[1]=1; print(@k, 0, 1, \"-key\"); }",
    "begin { $x = str($1); if ($x == \"\") { print(1); } }",
    "begin { @x = nsecs; @y = @x - 5; @z = @x / 2; }",
    "begin { @x = nsecs; @y = @x - nsecs; }",
    "begin { return 5; }",
    "begin { @a = 5; $b = @a++; }",
    "begin { print(strcap(\"abc\")); print(str_concat(\"a\", comm)); print(bswap((uint16)1)); print(config(\"max_strlen\")); print(default_str_length()); }",
    "begin { print(signal_name(9)); print(strerror(2)); print(is_err(5)); }",
    "begin { let $x: pid_t = 5; print((size_t)5); }",
    "begin { print(curtask.comm); print(pcomm); print(ppid); print(leader_comm(curtask)); }",
    "begin { @[probe, probetype] = count(); }",
    "tracepoint:sched:sched_switch { print(args.prev_comm); @[args.next_pid] = count(); print(args); }",
    "tracepoint:syscalls:sys_enter_* { @[probe] = count(); }",
    "profile:hz:99 { @[kstack, ustack, comm] = count(); }",
    "begin { $x = 1; if ($x) { } else if ($x == 2) { } }",
    "begin { @a = (1, \"ab\"); @a = (100000, \"abcd\"); }",
    "begin { @ = (uint8)1; @ = (int8)-1; @ = (uint32)7; }",
    "begin { $a = (int8)1; $a = (int32)nsecs; print(sizeof($a)); }",
    "begin { let $b: typeof(@m) = 3; @m = (int8)1; @m = (int32)nsecs; print($b); }",
    "begin { $a = (int8)1; if comptime (sizeof($a) == 1) { $b = 5; print($b); } }",
    "begin { print(sizeof(pid_t)); }",
    "begin { @start[tid] = nsecs; $d = nsecs - @start[tid]; @u = hist($d / 1000); }",
    "kprobe:vfs_read { @[tid] = nsecs; } kretprobe:vfs_read /@[tid]/ { @ns = hist(nsecs - @[tid]); delete(@, tid); }",
    "begin { @x = 5; delete(@x); @y[1,2] = 3; delete(@y, (1,2)); delete(@y[1,2]); if (pid > 1) { delete(@y, (1,3)) } }",
    "begin { $x = 10; $x -= 3; $y = -$x; $z = ~$x; $n = !$x; @f = $x & 0xff | 1 << 3; }",
]

REFUSED = [
    ("fn f($a: int64): int64 { return g($a); } fn g($a: int64): int64 { return f($a); } begin { print(f(1)); }",
     "1:74-79", "a function cannot call itself: f → g → f"),
    ("begin { $b = 5; $b(); }",
     "1:19-20", "syntax: unexpected '(', expected ';' or '='"),
    ("begin { print(&5); }",
     "1:16-17", "syntax: '&' needs a variable or a map"),
    ("begin { 5 = 6; }",
     "1:9-10", "syntax: expected a variable or a map before the assignment"),
    ("begin { for ($i : 5) { } }",
     "1:19-20", "syntax: expected a map or a range in 'for'"),
    ("begin { $x = (1,2); $x.0 = 5; }",
     "1:21-25", "syntax: fields cannot be assigned to"),
    ("begin { clear(@x); }",
     "1:15-17", "undefined map @x: nothing is ever stored in it"),
    ("begin { print(@x); }",
     "1:15-17", "undefined map @x: nothing is ever stored in it"),
]
# fmt: on


@each_row("script", ACCEPTED)
def test_accepted(script: str) -> None:
    result = analyse(script)
    assert not result.errors
    assert not result.warnings


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert analyse(script).errors[0] == (place, message)


VARIABLES = [
    ("$x = 1;", "int8"),
    ("$x = 200;", "int16"),
    ("$x = 3000000000;", "int64"),
    ("$x = 18446744073709551615;", "uint64"),
    ("$x = 1; $x = 70000;", "int32"),
    ("$x = 1; $x = (uint8)200;", "uint8"),
    ("$x = -1; $x = (uint8)200;", "int16"),
    ("$x = (uint8)200; $x = -1;", "int16"),
    ("$x = (uint16)1; $x = (int32)1000000;", "int32"),
    ("$x = 0; $x = nsecs;", "uint64"),
    ("$x = 0; $x++;", "int64"),
    ("$x = (uint32)0; $x++;", "uint64"),
    ("$x = 5; $x -= 1;", "int64"),
    ("let $x: uint16; $x = 5; $x += 1;", "uint16"),
    ("$x = 1 == 2;", "bool"),
    ("$x = true; $x = 5;", "int8"),
    ('$x = (1, "a"); $x = (1000, "abc");', "(int16,string[4])"),
    ("$x = (a=1, b=2); $x = (b=300, a=3);", "(a=int8,b=int16)"),
    ('$x = "a"; $x = comm;', "string[16]"),
    ("$x = str(0);", "string[1024]"),
    ("$x = str(0, 5);", "string[6]"),
    ("$x = nsecs - elapsed;", "int64"),
    ("$x = nsecs + 1;", "uint64"),
    ("$x = nsecs / 1000;", "uint64"),
    ("$x = ~5;", "uint64"),
    ("$x = !5;", "bool"),
    ("$x = curtask.comm;", "string[16]"),
    ("$x = curtask.flag;", "uint32"),
    ("$x = curtask.real_parent;", "struct task_struct *"),
    ("$x = curtask.bits;", "uint64[4]"),
    ("$x = (int8[])(uint32)5;", "int8[4]"),
    ('$x = pton("::1");', "uint8[16]"),
    ("$x = { let $y = 5; $y + 1 };", "int64"),
    ("$x = nsecs > 5 ? 1 : 1000;", "int16"),
    ("@m = count(); $x = @m;", "int64"),
    ("@m[1] = sum(nsecs); $x = @m[1];", "uint64"),
    ("$p = (int32 *)0; $x = $p + 1;", "int32 *"),
    ("$p = (int32 *)0; $x = *$p;", "int32"),
    ("$y = 5; $x = &$y;", "int8 *"),
    ("$x = bswap((uint16)1);", "uint16"),
    ("$x = kstack(3);", "kstack"),
    ('$a = kaddr("vfs_read"); $x = *$a;', "uint64"),
    ('$a = kaddr("vfs_read"); $x = *($a + 8);', "uint64"),
]


@each_row(("text", "wanted"), VARIABLES)
def test_variable(text: str, wanted: str) -> None:
    program = analyse(f"begin {{ {text} print($x); }}").checked()
    found = {info.name: str(info.type) for info in program.variables.values()}
    assert found["x"] == wanted


MAPS = [
    ("@m = 5;", "None", "int8", "global"),
    ("@m = count();", "None", "count_t", "global"),
    ("@m[1] = 5;", "int8", "int8", "hash"),
    ("@m[1] = 5; @m[1000] = nsecs;", "int16", "uint64", "hash"),
    ("@m[comm, pid] = count();", "(string[16],uint32)", "count_t", "percpuhash"),
    ("@m[(1, 2), 3] = 1;", "((int8,int8),int8)", "int8", "hash"),
    ("@m[probe]++;", "string[6]", "int64", "hash"),
    ("@m[kstack(3)] = count(); @m[kstack(5)] = count();", "kstack", "count_t", "percpuhash"),
    ("@m = sum((uint8)1);", "None", "usum_t", "global"),
    ("@m = sum((uint8)1); @m = sum(-1);", "None", "sum_t", "global"),
    ('@m[1] = (1, "a");', "int8", "(int8,string[2])", "hash"),
]


@each_row(("text", "key", "value", "kind"), MAPS)
def test_map(text: str, key: str, value: str, kind: str) -> None:
    info = analyse(f"begin {{ {text} }}").checked().maps["@m"]
    assert (str(info.key), str(info.value), info.kind) == (key, value, kind)


def test_types_come_from_later_uses() -> None:
    program = analyse("begin { $x = @m; @m2 = $x; } end { @m = nsecs; }").checked()
    assert program.maps["@m2"].value == UINT64


def test_declared_maps_and_aggregate_parameters() -> None:
    maps = analyse("let @a = lruhash(7); begin { @a[1] = 2; @b[1] = 2; }").checked().maps
    assert (maps["@a"].kind, maps["@a"].max_entries) == ("lruhash", 7)
    assert maps["@b"].max_entries == 4096
    maps = analyse('begin { @h = hist(1, 2); @l = lhist(1, 0, 10, 2); @t = tseries(1, 1s, 5, "max"); }').checked().maps
    assert maps["@h"].value == Hist(2)
    assert maps["@l"].value == LHist(0, 10, 2)
    assert maps["@t"].value == TSeries(1_000_000_000, 5, "max")
    maps = analyse("begin { @a[ustack(perf, 9)] = 1; }").checked().maps
    assert maps["@a"].key == Stack(True, 9, StackMode.PERF)


def test_events() -> None:
    program = analyse(
        'begin { printf("%s %d\\n", comm, pid); print(5); @m[1] = stats(5); print(@m, 3, 2); print(@m[1]); exit(3); }'
    ).checked()
    assert [(item.id, item.kind) for item in program.event_list] == [
        (0, "printf"), (1, "print_value"), (2, "print_map"), (3, "print_value"), (4, "exit"),
    ]  # fmt: skip
    first, _value, third, stats, last = program.event_list
    assert first.static == Formatted("%s %d\n")
    assert first.args[0] == String(16)
    # Number of entries and divisor have no effect on stats.
    assert third.static == PrintedMap("@m", top=0, div=1, order="", clear=False)
    assert stats.args == (Stats(True),)
    assert last.args == (INT64,)
    assert (first.location.file, first.location.line, first.location.column) == ("stdin", 1, 9)
    assert first.location.text.startswith("begin {")


def test_event_inside_macros_is_placed_in_the_script() -> None:
    program = analyse('macro say(x) { printf("%d", x); }\nbegin { say(5);\nassert(pid == 0, "no"); }').checked()
    first, second = program.event_list[:2]
    assert (first.location.line, [place.line for place in first.expansion]) == (1, [2])
    assert (second.kind, second.location.line, second.expansion) == ("errorf", 3, ())


def test_signedness_of_comparison_and_division() -> None:
    program = analyse(
        "begin { $a = pid / 2; $b = (int32)pid >> 1; $c = nsecs < 5; $d = -5 < $a; print(($a,$b,$c,$d)); }"
    ).checked()
    body = program.units[0].body
    signed = [program.fact(node, Signedness).signed for node in walk(body) if isinstance(node, nodes.Binary)]
    assert signed == [False, True, False, True]


def test_constants_are_folded_as_in_c() -> None:
    program = analyse(
        'begin { print(1 + 2 * 3); print(sizeof(uint64)); print("ab" == "ab"); print("hello" + 2); }'
    ).checked()
    values = [program.constants[arguments[0]] for arguments in program.event_arguments.values()]
    assert values == [7, 8, True, b"llo"]
    program = analyse(
        "begin { print(-7 / 2); print(-7 % 3); print(-8 >> 1); print((uint8)300); print((int8)200); }"
    ).checked()
    values = [program.constants[arguments[0]] for arguments in program.event_arguments.values()]
    assert values == [-3, -1, -4, 44, -56]


def test_what_is_known_at_compile_time_is_not_generated() -> None:
    program = analyse("begin { exit(); print(nosuch); }").checked()
    assert len(program.dead) == 1
    assert [item.kind for item in program.event_list] == ["exit"]
    program = analyse('begin { static_assert(1 == 1, "x"); print(1); assert_str("a") }').checked()
    assert len(program.dead) == 3
    program = analyse('begin { if comptime (is_str("a")) { print(1); } else { print($nothing); } }').checked()
    assert len(program.event_list) == 1


def test_what_a_script_asks_of_the_output() -> None:
    text = 'begin {{ if comptime ({0}) {{ output_format("folded:ordered"); }} print(1); }}'
    assert analyse(text.format("1 == 1")).checked().output_format == "folded:ordered"
    assert not analyse(text.format("1 == 2")).checked().output_format
    text = 'begin {{ stack_layout("names"); if comptime ({0}) {{ stack_layout("all"); }} stack_layout("names"); }}'
    assert analyse(text.format("1 == 1")).checked().stack_layout == ("names", "all")
    assert analyse(text.format("1 == 2")).checked().stack_layout == ("names",)


def test_report_makes_one_event_for_a_place() -> None:
    program = analyse("begin { $a = 5; print(10 / $a); }").checked()
    node = next(node for node in walk(program.units[0].body) if isinstance(node, nodes.Binary))
    failure = RuntimeFailure("division_by_zero")
    first = program.report(node, failure)
    assert first is program.report(node, RuntimeFailure("division_by_zero"))
    assert (first.kind, first.static, first.location.column) == ("runtime_error", failure, 23)
    assert program.report(node, HelperFailure("x")).args[0].size == 4


def test_functions() -> None:
    program = analyse("fn twice($a: int64): int64 { $b = $a * 2; return $b; } begin { print(twice(4)); }").checked()
    function = program.functions[0]
    assert (function.symbol, str(function.result), [item.name for item in function.parameters]) == (
        "fn_twice",
        "int64",
        ["a"],
    )


def test_strings_table() -> None:
    program = analyse(
        'begin { print(strftime("%F", nsecs)); print(strftime("%F", 5)); print(cgroup_path(5, "x")); }'
    ).checked()
    assert program.strings == ["%F", "x"]


def test_unsafe_gate() -> None:
    script = 'begin { system("ls"); }'
    assert "--unsafe" in analyse(script).errors[0][1]
    assert not analyse(script, CompileOptions(unsafe=True)).errors


def test_no_btf() -> None:
    from tests.support.recorded import Facts

    program = analyse("begin { print(curtask); }", kernel=Facts(has_btf=False)).checked()
    assert program.event_list[0].args == (UINT64,)


def test_the_network_namespace_needs_btf() -> None:
    from tests.support.recorded import Facts

    script = "begin { print(netns); }"
    assert analyse(script).checked().event_list[0].args == (NetworkNamespace(),)
    refused = analyse(script, kernel=Facts(has_btf=False)).errors
    assert refused == [("1:15-20", "netns needs the kernel's type information (BTF)")]


def test_bool_values() -> None:
    program = analyse("begin { @a = has_key(@b, 1); @b[1] = 1; }").checked()
    assert program.maps["@a"].value == BOOL


def test_deep_trees() -> None:
    macro = "macro m(x) { x" + " + 1" * 200 + " } "
    assert not analyse(macro + "begin { $x = m(m(nsecs)); }").errors


NAMES = [
    ("begin { @[comm, pid] = count(); }", ("comm", "pid")),
    ("begin { $t = (kstack, comm); if (has_key(@, $t)) { @[$t] = count(); } }", ("kstack", "comm")),
    ("begin { let $t = (ustack, pid); @[$t] = count(); }", ("ustack", "pid")),
    ('begin { @["waker", comm, "--", kstack] = count(); }', ('"waker"', "comm", '"--"', "kstack")),
    ('begin { @["reads"] = 1; @["writes"] = 2; @["others"] = 3; }', ('""',)),
    ("macro stack() { if comptime (false) { ustack } else { kstack } } begin { @[stack(), tid] = count(); }", ("ustack", "tid")),
    ("begin { @[pid > 5 ? comm : \"\"] = count(); }", ("comm",)),
    ("begin { @[1 + 1, str(0)] = count(); }", ("", "str")),
]


def test_members_of_keys_have_the_names_of_the_script() -> None:
    for script, names in NAMES:
        assert [info.key_names for info in analyse(script).checked().maps.values()] == [names], script
