"""Literals, names, variables, maps, conditionals, tuples and records."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

from pytrace.frontend.check.expressions import MOST_NESTED
from tests.frontend.checking import refusals, refused, values
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("begin { @a = hist(1); print((int64)@a); }", "1:36-38", "a value of hist_t cannot be read by the script"),
    ("begin { @a[1] = hist(1); print(@a[1]); }", "1:32-37", "a value of hist_t cannot be read by the script"),
    ("begin { print(comptime pid); }", "1:24-27", "this cannot be computed at compile time"),
    ("begin { $c = nsecs; print($c ? \"a\" : 5); }",
     "1:27-39", "the branches have different types, string[2] and int8"),
    ("begin { print(if (pid > 5) { 1 } else { \"s\" }); }",
     "1:15-46", "the branches have different types, int8 and string[2]"),
    ("begin { @x[@y] = 5; @y = hist(5); }", "1:12-14", "a value of hist_t cannot be read by the script"),
    ("begin { print(sarg0); }", "1:15-20", "unknown name 'sarg0'"),
    ("begin { print(undefd); }", "1:15-21", "unknown name 'undefd'"),
    ("begin { print(sizeof(nosuch)); }", "1:22-28", "unknown name 'nosuch'"),
    ("begin { @ = lhist(1, 0, 10, 1); $x = (uint64)@; }",
     "1:46-47", "a value of lhist_t cannot be read by the script"),
    ("begin { print(nothing); }", "1:15-22", "unknown name 'nothing'"),
    ("begin { print(strlen); }", "1:15-21", "strlen is a function: strlen(value)"),
    ("begin { @m[@h] = 1; @h = stats(1); }", "1:12-14", "stats_t cannot be a key"),
    ("begin { @m = 1; @m[1] = 1; }", "1:17-22", "@m has no key, so it cannot be indexed"),
    ("begin { @m[1] = 1; @m = 1; }", "1:20-22", "@m has keys, so it needs one here"),
    ("kprobe:vfs_read { @m[ctx] = 1; }", "1:22-25", "the context cannot be a key: it is gone after the probe"),
    ("begin { print((a=1, a=2)); }", "1:21-22", "syntax: the record has a field 'a' already"),
    ("begin { @h = hist(1); print((1, @h)); }", "1:33-35", "a value of hist_t cannot be read by the script"),
    ("begin { print(pid ? (1, 2) : 3); }", "1:15-31", "the branches have different types, (int8,int8) and int8"),
    ("begin { print(sargN); }", "1:15-20", "unknown name 'sargN'"),
    ("begin { print(\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"); }",
     "1:15-1041", "the string takes 1025 bytes, the limit is 1024"),
]
VALUES = [
    ("begin { print(5); }", "int8", 5),
    ("begin { print(128); }", "int16", 128),
    ("begin { print(-128); }", "int8", -128),
    ("begin { print(18446744073709551615); }", "uint64", 18446744073709551615),
    ("begin { print(true); }", "bool", True),
    ("begin { print(\"abc\"); }", "string[4]", b"abc"),
    ("begin { print(TASK_STOPPED); }", "enum task_state", 4),
    ("begin { print(()); }", "()", None),
    ("begin { print((1, \"a\")); }", "(int8,string[2])", None),
    ("begin { print((a=1, b=true)); }", "(a=int8,b=bool)", None),
    ("begin { print(pid ? 1 : 1000); }", "int16", None),
    ("begin { print(1 ? 5 : nothing); }", "int8", 5),
    ("begin { print(0 ? nothing : 5); }", "int8", 5),
    ("begin { print(pid ?: 5); }", "uint32", None),
    ("begin { print(5 ?: pid); }", "int8", 5),
    ("begin { print({ 7 }); }", "int8", 7),
    ("begin { print({ let $x = 7; $x }); }", "int8", None),
    ("begin { print(if (pid) { 1 } else { 300 }); }", "int16", None),
    ("begin { print(if (1) { 1 } else { 300 }); }", "int8", 1),
    ("begin { print(comptime (1 + 2)); }", "int8", 3),
    ("begin { print(comptime sizeof(int16)); }", "int8", 2),
    ("begin { @m = sum(nsecs); print((1, @m)); }", "(int8,uint64)", None),
    ("begin { @m[1] = avg(-1); print(@m[1]); }", "int64", None),
    ("begin { $x = 1; $x = nsecs; print($x); }", "uint64", None),
    ("begin { let $x; print($x); }", "int64", None),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


def test_values_nest_so_deeply() -> None:
    def script(levels: int) -> str:
        return f"begin {{ $x = {'(' * levels}1{',)' * levels}; }}"

    assert not analyse(script(MOST_NESTED)).errors
    assert refused(script(MOST_NESTED + 1))[1] == "values cannot be nested more than 64 levels deep"


def test_a_longer_literal_needs_a_longer_string() -> None:
    text = "x" * 1024
    (error,) = analyse(f'begin {{ print("{text}"); }}').diagnostics.errors
    assert error.hints == ("raise max_strlen in the config block to 1025 or more",)
    assert not analyse(f'config = {{ max_strlen = 1025 }} begin {{ print("{text}"); }}').errors
    assert not analyse(f'config = {{ max_strlen = 16 }} begin {{ print("{text[1:]}"); }}').errors
