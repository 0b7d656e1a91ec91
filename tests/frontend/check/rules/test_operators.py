"""Operators: types and signs of results, folding, and what cannot be computed or compared."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

from pytrace.frontend.syntax.typed_program import Signedness
from tests.frontend.checking import last_value, refusals, values, warnings
from tests.support.rows import each_row

# fmt: off
REFUSED = [
    ("begin { $a = 1; $b = *$a; }", "1:22-25", "int8 is not a pointer"),
    ("begin { print(1 + \"a\"); }", "1:15-22", "operator + needs integers, not string[2]"),
    ("begin { print(*true); }", "1:15-20", "bool is not a pointer"),
    ("begin { print(comm < \"b\"); }", "1:15-25", "cannot compare string[16] with string[2] by <"),
    ("begin { print((1,2) == (1,2,3)); }", "1:15-31", "cannot compare (int8,int8) with (int8,int8,int8) by =="),
    ("begin { print((1,\"a\") == (\"a\",1)); }",
     "1:15-33", "cannot compare (int8,string[2]) with (string[2],int8) by =="),
    ("begin { $s = \"a\"; $s++; }", "1:19-23", "++ needs an integer, not string[2]"),
    ("begin { print(9223372036854775807 * 4); }",
     "1:15-38", "the result of 9223372036854775807 * 4 does not fit 64 bits"),
    ("begin { print(5 / 0); }", "1:15-20", "division by zero"),
    ("begin { if (\"abc\" == 5) { } }", "1:13-23", "cannot compare string[4] with int8 by =="),
    ("begin { print(username == \"root\"); }", "1:15-33", "cannot compare username with string[5] by =="),
    ("begin { print(netns == 4026531833); }", "1:15-34", "cannot compare netns_t with int64 by =="),
    ("begin { print(comm + 1); }",
     "1:15-23", "+ of a string needs constants: an integer skips characters, another string is appended"),
    ("begin { print(\"a\" + -1); }", "1:21-23", "cannot skip a negative number of characters"),
    ("begin { print(curtask * 2); }", "1:15-26", "cannot compute struct task_struct * * int8"),
    ("begin { print(curtask + curtask); }", "1:15-32", "cannot compute struct task_struct * + struct task_struct *"),
    ("begin { print(5 - curtask); }", "1:15-26", "cannot compute int8 - struct task_struct *"),
    ("begin { print(\"a\" - 1); }", "1:15-22", "operator - needs integers, not string[2]"),
    ("begin { print(-\"a\"); }", "1:16-19", "the operand of - must be an integer, not string[2]"),
    ("begin { print(~comm); }", "1:16-20", "the operand of ~ must be an integer, not string[16]"),
    ("begin { print(*(void *)0); }", "1:15-25", "a void pointer cannot be dereferenced"),
    ("begin { print(*comm); }", "1:15-20", "string[16] is not a pointer"),
    ("begin { print(curtask == comm); }", "1:15-30", "cannot compare struct task_struct * with string[16] by =="),
    ("begin { print((1, 2) < (1, 2)); }", "1:15-30", "cannot compare (int8,int8) with (int8,int8) by <"),
    ("begin { print(1 % 0); }", "1:15-20", "division by zero"),
    ("begin { $p = curtask; $p *= 2; }", "1:23-30", "cannot compute struct task_struct * * int8"),
    ("begin { $s = \"a\"; $s += 1; }", "1:19-26", "operator + needs integers, not string[2]"),
    ("begin { print(-9223372036854775809 - 1); }",
     "1:15-35", "the result of 0 - 9223372036854775809 does not fit 64 bits"),
]
VALUES = [
    ("begin { print(1 + 2); }", "int8", 3),
    ("begin { print(7 / 2); }", "int8", 3),
    ("begin { print(nsecs + 1); }", "uint64", None),
    ("begin { print(nsecs - 1); }", "int64", None),
    ("begin { print(nsecs - nsecs); }", "int64", None),
    ("begin { print(pid * 2); }", "uint64", None),
    ("begin { print((int8)pid + 1); }", "int64", None),
    ("begin { print(nsecs >> 1); }", "uint64", None),
    ("begin { print((int32)pid << 1); }", "int64", None),
    ("begin { print(-5 + nsecs); }", "int64", None),
    ("begin { print(nsecs & 255); }", "uint64", None),
    ("begin { print(~0); }", "uint64", 18446744073709551615),
    ("begin { print(~pid); }", "uint64", None),
    ("begin { print(-pid); }", "int64", None),
    ("begin { print(-5); }", "int8", -5),
    ("begin { print(-(uint8)5); }", "int64", -5),
    ("begin { print(!pid); }", "bool", None),
    ("begin { print(!5); }", "bool", False),
    ("begin { print(1 == 1); }", "bool", True),
    ("begin { print(pid == 1); }", "bool", None),
    ("begin { print(\"a\" == \"a\"); }", "bool", True),
    ("begin { print(\"a\" < \"b\"); }", "bool", True),
    ("begin { print(comm == \"x\"); }", "bool", None),
    ("begin { print(1 && 0); }", "bool", False),
    ("begin { print(0 && nothing); }", "bool", False),
    ("begin { print(1 || nothing); }", "bool", True),
    ("begin { print(pid && 1); }", "bool", None),
    ("begin { print(\"hello\" + 2); }", "string[4]", b"llo"),
    ("begin { print(\"ab\" + \"cd\"); }", "string[5]", b"abcd"),
    ("begin { print(\"ab\" + 5); }", "string[1]", b""),
    ("begin { print((int32 *)0 + 1); }", "int32 *", None),
    ("begin { print(1 + (int32 *)0); }", "int32 *", None),
    ("begin { print(*(int32 *)0); }", "int32", None),
    ("begin { print(*5); }", "uint64", None),
    ("begin { print(*kptr(5)); }", "uint64", None),
    ("begin { print(*curtask.real_parent.mm); }", "struct mm_struct", None),
    ("begin { print((1, 2) == (1, 3)); }", "bool", None),
    ("begin { print(TASK_STOPPED | 1); }", "uint64", 5),
    ("begin { print((int64)-1 < (uint64)1); }", "bool", True),
    ("begin { print(-1 < 5); }", "bool", True),
    ("begin { print(true + true); }", "int8", 2),
    ("begin { print(9223372036854775807 + 1); }", "uint64", 9223372036854775808),
    ("begin { $x = 1; print(&$x); }", "int8 *", None),
    ("begin { @m = 1; print(&@m); }", "int8 *", None),
    ("begin { $x = (uint8)1; print($x++); }", "uint64", None),
    ("begin { let $x: uint8 = 1; print($x++); }", "uint8", None),
    ("begin { $p = (int32 *)0; print($p++); }", "int32 *", None),
    ("begin { @m = nsecs; print(@m--); }", "int64", None),
    ("begin { @m[1] = 1; print(++@m[1]); }", "int64", None),
]
WARNED = [
    ("begin { $a = (int32*)1; $b = (int64*)2; print($a == $b); }",
     "1:47-55", "compares pointers to different types, int32 * and int64 *"),
    ("begin { print((uint64)pid - 1); }", "1:15-23", "the difference is signed: this uint64 counts as int64"),
    ("begin { $a = (int64)pid; print($a < nsecs); }",
     "1:32-42", "compares signed with unsigned 64-bit integers, as signed ones"),
    ("begin { $a = (int64)pid; print($a + nsecs); }",
     "1:32-42", "mixes signed and unsigned 64-bit integers; the result is int64"),
    ("begin { $p = (int8 *)1; print(kptr($p) == uptr($p)); }",
     "1:31-51", "compares a pointer into kernel memory with one into user memory"),
    ("begin { print(\"ab\" + 5); }", "1:15-23", "skips 5 characters of a string that has 2"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)
test_warned = warnings(WARNED)


@each_row(
    ("expression", "signed"),
    [
        ("nsecs / 2", False), ("(int32)pid / 2", True), ("nsecs % 2", False), ("nsecs >> 1", False), ("(int8)pid >> nsecs", True),
        ("nsecs < 5", False), ("nsecs < -5", True), ("(int8)pid < 5", True), ("nsecs == nsecs", False),
        ("(uint64)pid < 18446744073709551615", False),
    ],
)  # fmt: skip
def test_signs(expression: str, signed: bool) -> None:
    program, node = last_value(f"begin {{ print({expression}); }}")
    assert program.fact(node, Signedness).signed is signed
