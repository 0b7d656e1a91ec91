"""Items chosen at compile time."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

from pytrace.core.options import CompileOptions, ProcessFilters
from tests.frontend.checking import refusals
from tests.support.front import analyse
from tests.support.recorded import Facts
from tests.support.rows import each_row

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


REFUSED = [
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

test_refused = refusals(REFUSED)


def test_branches_not_taken_are_only_parsed() -> None:
    other = "kprobe:no_such { print(args.x); } macro m() { 1 } fn f($a: struct no_such *): void { } let @m = hash(0); fail(\"no\");"
    for script in (
        f"if comptime (0) {{ {other} }} else {{ macro m() {{ 2 }} begin {{ print(m()); }} }}",
        f"if comptime (1) {{ begin {{ }} }} else {{ {other} }}",
        f"if comptime (0) {{ {other} }} else if comptime (1) {{ begin {{ }} }} else {{ {other} }}",
        f"begin {{ }} if comptime (0) {{ {other} }}",
    ):
        assert analyse(script).checked().units


def test_warnings_about_branches_not_taken_are_dropped() -> None:
    script = "if comptime (%d) { begin { print($1); } } else if comptime (%d) { begin { print($2); } } else { end { print($3); } }"
    for first, second, number in ((1, 1, 1), (0, 1, 2), (0, 0, 3)):
        result = analyse(script % (first, second))
        assert [message for _, message in result.warnings] == [f"parameter ${number} was not given; it is 0"]


def test_items_stay_in_order() -> None:
    script = "begin { } if comptime (1) { kprobe:vfs_read { } if comptime (1) { interval:s:1 { } } } end { }"
    kinds = [unit.kind.name for unit in analyse(script).checked().units]
    assert kinds == ["begin", "kprobe", "interval", "end"]


def test_the_first_branch_that_holds_is_taken() -> None:
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
