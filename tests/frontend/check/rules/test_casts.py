"""Casts: allowed conversions, and casts of constants."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.types import AddressSpace, Pointer
from tests.frontend.checking import last_value, refusals, values, warnings
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("enum e { A, B }; begin { $x = (enum e)7; }", "1:31-40", "7 is not a member of enum e"),
    ("begin { $x = (struct task_struct)0; }", "1:14-35", "nothing can be cast to struct task_struct"),
    ("begin { $x = (int8[3])5; }", "1:14-24", "int8 has 1 bytes, int8[3] has 3"),
    ("begin { @ = stats(1); print((int64)@); }", "1:29-37", "cannot cast stats_t to int64"),
    ("begin { print((enum task_state)3); }", "1:15-33", "3 is not a member of enum task_state"),
    ("begin { print((int8[3])(uint32)5); }", "1:15-33", "uint32 has 4 bytes, int8[3] has 3"),
    ("begin { print((int64[])(uint8)5); }", "1:15-32", "cannot cast uint8 to int64[0]"),
    ("begin { print((string[4])5); }", "1:15-27", "cannot cast int8 to string[4]"),
    ("begin { print((int64)(1, 2)); }", "1:15-28", "cannot cast (int8,int8) to int64"),
    ("begin { print((void)1); }", "1:15-22", "nothing can be cast to void"),
    ("begin { print((bool)(1, 2)); }", "1:15-27", "cannot cast (int8,int8) to bool"),
    ("begin { print((int8 *)(1, 2)); }", "1:15-29", "cannot cast (int8,int8) to int8 *"),
    ("begin { print((int32)comm); }", "1:15-26", "cannot cast string[16] to int32"),
    ("begin { print((uint8[2])300000); }", "1:15-31", "int32 has 4 bytes, uint8[2] has 2"),
    ("begin { print((int8 *)true); }", "1:15-27", "cannot cast bool to int8 *"),
]
VALUES = [
    ("begin { print((uint8)300); }", "uint8", 44),
    ("begin { print((int8)200); }", "int8", -56),
    ("begin { print((uint64)-1); }", "uint64", 18446744073709551615),
    ("begin { print((int32)nsecs); }", "int32", None),
    ("begin { print((bool)5); }", "bool", True),
    ("begin { print((bool)0); }", "bool", False),
    ("begin { print((bool)\"\"); }", "bool", False),
    ("begin { print((bool)\"a\"); }", "bool", True),
    ("begin { print((enum task_state)4); }", "enum task_state", 4),
    ("begin { print((int64)curtask); }", "int64", None),
    ("begin { print((int64*)5); }", "int64 *", 5),
    ("begin { print((int8[4])(uint32)1); }", "int8[4]", None),
    ("begin { print((uint8[])(uint16)1); }", "uint8[2]", None),
    ("begin { print((uint8[8])5); }", "uint8[8]", None),
    ("begin { print((uint32)(uint8[4])(uint32)7); }", "uint32", None),
    ("begin { print((string[4])comm); }", "string[4]", None),
    ("begin { print((int8[])comm); }", "int8[16]", None),
    ("begin { print((uint64)ksym(5)); }", "uint64", None),
    ("begin { print((uint64)username); }", "uint64", None),
    ("begin { print((int8 *)curtask.bits); }", "int8 *", None),
    ("begin { print((int64)true); }", "int64", 1),
    ("begin { print((struct file *)curtask); }", "struct file *", None),
]
WARNED = [
    ("begin { $a = (int32)nsecs; print((int32)$a); }", "1:34-41", "the value already has type int32"),
    ("begin { $a = (uint8)1; print((uint8)$a); }", "1:30-37", "the value already has type uint8"),
    ("begin { print((uint64)nsecs); }", "1:15-23", "the value already has type uint64"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)
test_warned = warnings(WARNED)


def test_no_warning_in_a_macro() -> None:
    checked = analyse("macro wide(n) { (uint64)(n) } begin { print((wide(nsecs), wide(1))); }")
    assert not checked.diagnostics.items


@pytest.mark.parametrize(
    ("operand", "space"),
    [
        ("curtask.bits", AddressSpace.KERNEL),
        ("(struct task_struct *)uptr(1)", AddressSpace.USER),
        ("@m", AddressSpace.BPF),
        ("(struct task_struct *)5", AddressSpace.NONE),
    ],
)
def test_pointers_stay_in_their_memory(operand: str, space: AddressSpace) -> None:
    program, node = last_value(f"begin {{ @m = (uint8[4])(uint32)1; print((int8 *){operand}); }}")
    type_ = program.types[node]
    assert isinstance(type_, Pointer)
    assert type_.space is space


@pytest.mark.parametrize("body", ["$a = 5; print((typeof($a))$a);", "@m = nsecs; print((uint64)@m);", "print((int8)5);"])
def test_casts_that_say_something(body: str) -> None:
    assert not analyse(f"begin {{ {body} }}").warnings


@pytest.mark.parametrize(
    "script",
    [
        "begin { print((int32)curtask.pid); }",
        "begin { print((struct task_struct *)curtask.real_parent); }",
        "begin { print((int32)curtask.real_parent.pid); }",
        "begin { print((int32)((struct task_struct *)5).pid); }",
        "tracepoint:sched:sched_switch { print((int32)args.next_pid); }",
    ],
)
def test_types_of_the_machine_may_be_cast(script: str) -> None:
    """Another kernel may have other types, which a portable script casts."""
    assert not analyse(script).diagnostics.items


def test_the_type_of_curtask_is_the_same_everywhere() -> None:
    checked = analyse("begin { print((struct task_struct *)curtask); }")
    assert [message for _, message in checked.warnings] == ["the value already has type struct task_struct *"]


def test_types_of_the_script_need_no_cast() -> None:
    script = "struct own { int n; int a[2]; struct { int m; } in; }; begin { $p = (struct own *)5; "
    for member in ("n", "a[1]", "in.m"):
        checked = analyse(f"{script} print((int32)$p.{member}); }}")
        assert [message for _, message in checked.warnings] == ["the value already has type int32"]


def test_casts_in_macros_do_not_warn() -> None:
    assert not analyse("macro wide(n) { (uint64)n } begin { print((wide(nsecs), wide(cpu))); }").warnings
