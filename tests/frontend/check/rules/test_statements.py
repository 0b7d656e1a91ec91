"""Statements and blocks: values, loops, jumps, and code that cannot be reached."""


from __future__ import annotations

import pytest

from tests.frontend.checking import refusals, values, warnings
from tests.support.front import analyse

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
]
VALUES = [
    ("begin { @m[1] = comm; for ($kv : @m) { print($kv); } }", "(int8,string[16])", None),
    ("begin { for ($i : 0..3) { print($i); } }", "int64", None),
    ("begin { @m[1] = sum(1); for ($kv : @m) { print($kv.1); } }", "int64", None),
    ("begin { unroll(100) { print(1); } }", "int8", 1),
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
