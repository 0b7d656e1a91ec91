"""Services that all rules share: constants that are asked for, values that must fit a variable or map."""


from __future__ import annotations

import pytest

from tests.frontend.checking import refusals, warnings
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("begin { let $s: string[4] = \"abcdef\"; }", "1:9-37", "$s is string[4], this is string[7]"),
    ("begin { $r = (a=1, b=2); $r = (a=1, c=2); }", "1:26-41", "$r is (a=int8,b=int8), this is (a=int8,c=int8)"),
    ("begin { @a = count(); @b = 5; @a = @b; }", "1:31-38", "the value of @a is count_t, this is int8"),
    ("begin { @[ustack] = 1; @[kstack] = 1; }",
     "1:24-33", "the key of @ is ustack in bpftrace mode, this is kstack in bpftrace mode"),
    ("begin { @ = hist(1, 2); @ = hist(1, 3); }",
     "1:29-39", ("the value of @ is a histogram with 4 buckets a power of two, this is a "
     "histogram with 8 buckets a power of two")),
    ("begin { @ = lhist(1, 0, 10, 1); @ = lhist(1, 0, 20, 1); }",
     "1:37-55", "the value of @ is lhist_t from 0 to 10 by 1, this is lhist_t from 0 to 20 by 1"),
    ("begin { $a = 1; print(sizeof($a)); $a = 100000; }",
     "1:36-47", "$a is int8, which holds -128 to 127, not 100000"),
    ("begin { let $b: uint8 = 256; }", "1:9-28", "$b is uint8, which holds 0 to 255, not 256"),
    ("begin { let $b: uint32 = -1; }", "1:9-28", "$b is uint32, which holds 0 to 4294967295, not -1"),
    ("begin { let $b: bool = 5; }", "1:9-25", "$b is bool, this is int8"),
    ("begin { @x = count; @x = 5; }", "1:21-27", "the value of @x is count_t, this is int8"),
    ("begin { if (comm) { } }", "1:13-17", "a condition must be an integer, bool or pointer, not string[16]"),
    ("begin { $a = (1, 2); $a = (1, 2, 3); }", "1:22-36", "$a is (int8,int8), this is (int8,int8,int8)"),
    ("begin { @a = (1, \"ab\"); @a = (\"x\", \"abcd\"); }",
     "1:25-43", "the value of @a is (int8,string[3]), this is (string[2],string[5])"),
    ("begin { $x = join(0); }", "1:14-21", "join() returns nothing"),
    ("begin { @ = sum(1); @++; }", "1:21-24", "the value of @ is sum_t, this is int64"),
    ("begin { let $x: uint8 = 5; $x = 300; }", "1:28-36", "$x is uint8, which holds 0 to 255, not 300"),
    ("begin { let $x: int8 = comm; }", "1:9-28", "$x is int8, this is string[16]"),
    ("begin { @m[(1, 2)] = 1; @m[1] = 1; }", "1:25-30", "the key of @m is (int8,int8), this is int8"),
    ("let @m = hash(nsecs); begin { @m[1] = 1; }", "1:15-20", "the size of a map must be an integer constant"),
]
WARNED = [
    ("begin { @ = nsecs; @ = (int8)-1; }",
     "1:20-32", "the value of @ becomes int64: it holds signed and unsigned 64-bit values"),
    ("begin { $x = nsecs; $x = (int64)pid; print($x); }",
     "1:21-36", "$x becomes int64: it holds both signed and unsigned 64-bit values"),
    ("kprobe:vfs_read { $p = kptr((int8 *)arg0); $p = uptr((int8 *)arg1); print($p); }",
     "1:44-67", "a pointer into user memory is assigned where one into kernel memory was"),
    ("begin { let $x: int32 = pid; }", "1:9-28", "$x is int32: the value, which is uint32, is cast to it"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_warned = warnings(WARNED)


def test_notes_say_where_the_type_comes_from() -> None:
    for script, note, place in (
        ("begin { let $x: uint8 = 5; $x = comm; }", "declared here", 8),
        ("begin { $x = 5; $x = comm; }", "first used here", 8),
        ("begin { $x = 5; print(sizeof($x)); $x = 700; }", "its type is used here", 29),
    ):
        (error,) = analyse(script).diagnostics.errors
        assert [(item.message, item.span.start) for item in error.notes] == [(note, place)], script


def test_a_value_that_is_cut_on_purpose_needs_a_cast() -> None:
    (error,) = analyse("begin { let $x: uint8 = 300; }").diagnostics.errors
    assert error.hints == ("write (uint8) before the value to truncate it on purpose",)
    (error,) = analyse("begin { let $x: uint8 = comm; }").diagnostics.errors
    assert "cast" not in error.hints[0]


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ('begin { if (comm = "bash") { } }', "use '==' to compare"),
        ("begin { if (comm == bash) { } }", 'a string is written in quotes: "bash"'),
        ("begin { if (bash != comm) { } }", 'a string is written in quotes: "bash"'),
        ("begin { $x = pid; if (x == 1) { } }", "variables are written with '$': $x"),
        ("begin { $x = 1; } end { print($x); }", "a variable belongs to one run of one probe; a map such as @x[ti"),
        ("begin { @[1] = 1; print(@, top); }", "print(@, 10) prints the 10 largest entries"),
        ('begin { $x = 1; $x = "a"; }', "a variable, and the key and value of a map, keep one type: use another name"),
        ("t:sched:sched_switch { print(retval); }", "use args.ret"),
        ("t:sched:sched_switch { print(arg0); }", "use args.NAME; pytrace -lv 'tracepoint:sched:sched_switch' lists "),
    ],
)
def test_hints(script: str, hint: str) -> None:
    (error,) = analyse(script).diagnostics.errors
    assert error.hints[0].startswith(hint)


def test_a_value_with_an_error_explains_that_its_map_has_no_type() -> None:
    (error,) = analyse("begin { @x = exit(); print(@x); $y = @x; }").diagnostics.errors
    assert error.message == "exit() returns nothing"


@pytest.mark.parametrize("comparison", ['comm == "sixteen bytes and more"', '"sixteen bytes and more" != comm'])
def test_a_text_that_is_longer_than_what_it_is_compared_with(comparison: str) -> None:
    diagnostics = analyse(f"begin {{ if ({comparison}) {{ }} if (comm == \"fifteen bytes  \") {{ }} }}").diagnostics
    (warning,) = diagnostics.warnings
    assert warning.message == "compares the first 15 of 22 bytes: string[16] holds no more than 15"


def test_types_are_found_however_late_they_are_known() -> None:
    """Each map takes its type from the next one, so there is a pass for each."""
    chain = " ".join(f"@m{at} = @m{at + 1};" for at in range(12))
    assert str(analyse(f"begin {{ {chain} @m12 = nsecs; }}").checked().maps["@m0"].value) == "uint64"


def test_numbers_are_guessed_where_nothing_else_says_what_a_map_holds() -> None:
    assert str(analyse("begin { @n = @n + 1; }").checked().maps["@n"].value) == "int64"
