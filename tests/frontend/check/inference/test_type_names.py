"""Resolution of type names."""


from __future__ import annotations

from pytrace.frontend.check.members import NAMED
from pytrace.frontend.syntax.tokens import TYPE_NAMES
from tests.frontend.checking import refusals, values, warnings
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("begin { print(sizeof(struct nosuch)); }", "1:22-35", "unknown struct 'nosuch'"),
    ("begin { let $x: foo_t; }", "1:17-22", "there is no type 'foo_t'"),
    ("begin { print(offsetof(struct nosuch, a)); }", "1:24-37", "unknown struct 'nosuch'"),
    ("begin { let $x: itn32; }", "1:17-22", "there is no type 'itn32'"),
    ("begin { print(sizeof(struct task_strut)); }", "1:22-39", "unknown struct 'task_strut'"),
    ("begin { print(sizeof(union nothing *)); }", "1:22-37", "unknown union 'nothing'"),
    ("begin { print(sizeof(int8[0])); }", "1:27-28", "an array cannot have 0 elements"),
    ("begin { print(sizeof(int8[pid])); }", "1:27-30", "the number of elements must be an integer constant"),
    ("begin { print(sizeof(enum nothing)); }", "1:22-34", "unknown enum 'nothing'"),
]
VALUES = [
    ("begin { print(sizeof(int8)); }", "int8", 1),
    ("begin { print(sizeof(uint64)); }", "int8", 8),
    ("begin { print(sizeof(void *)); }", "int8", 8),
    ("begin { print(sizeof(size_t)); }", "int8", 8),
    ("begin { print(sizeof(pid_t)); }", "int8", 4),
    ("begin { print(sizeof(char)); }", "int8", 1),
    ("begin { print(sizeof(u16)); }", "int8", 2),
    ("begin { print(sizeof(struct task_struct)); }", "int8", 104),
    ("begin { print(sizeof(enum task_state)); }", "int8", 4),
    ("begin { print(sizeof(int32[3])); }", "int8", 12),
    ("begin { print(sizeof(string[7])); }", "int8", 7),
    ("begin { print(sizeof(buffer[4])); }", "int8", 8),
    ("begin { print(sizeof(inet)); }", "int8", 20),
    ("begin { print(sizeof(kstack_t)); }", "int16", 1024),
    ("begin { print(sizeof(typeof(nsecs))); }", "int8", 8),
    ("begin { print(sizeof(unsigned)); }", "int8", 4),
    ("begin { @m[(int16)1] = nsecs; print(sizeof(@m)); }", "int8", 2),
    ("begin { @m = (int32)1; print(sizeof(@m)); }", "int8", 4),
]
WARNED = [
    ("kprobe:vfs_read { print(((task_struct *)arg0)->pid); }", "1:27-38", "'task_struct' is the name of a struct"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)
test_warned = warnings(WARNED)


def test_suggestions_leave_endings_out() -> None:
    (error,) = analyse("begin { let $x: ksim_t; }").diagnostics.errors
    assert error.hints == ("did you mean 'ksym_t'?",)


def test_the_parser_knows_each_name() -> None:
    """Else it is a type where only a type may stand, and a variable in ``sizeof(NAME)``."""
    assert set(NAMED) - TYPE_NAMES == {"username"}, "which is a value, too"
