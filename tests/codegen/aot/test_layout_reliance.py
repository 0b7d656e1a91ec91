"""What the code of an ahead-of-time file relies on."""

from __future__ import annotations

import pytest

from pytrace.core.manifest import AheadOfTime
from pytrace.core.options import CompileOptions
from tests.codegen.running import compiled
from tests.support.facts import RecordedKernel
from tests.support.recorded import Facts


def ahead(script: str, kernel: RecordedKernel | None = None) -> AheadOfTime:
    found = compiled(script, kernel or Facts(), CompileOptions(ahead=True)).manifest.ahead
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("script", "kind", "part"),
    [
        ("tracepoint:sched:sched_switch { print(args.next_pid); }", "tracepoint", "next_pid"),
        ("tracepoint:sched:sched_switch { print(args); }", "tracepoint", "prev_comm"),
        ("rawtracepoint:sched_switch { print(arg0); }", "rawtracepoint", "sched_switch"),
        ("kprobe:vfs_read { print(args.count); }", "function", "vfs_read"),
        ("fentry:vfs_read { print(args.count); }", "function", "vfs_read"),
        ("iter:task { print(ctx.task.tgid); }", "member", "task"),
        ("begin { print(TASK_STOPPED); }", "enumerator", "TASK_STOPPED"),
        ("begin { $x = (enum task_state)pid; print($x); }", "names", "task_state"),
        ("begin { print(curtask[1].pid); }", "size", "task_struct"),
        ("begin { $p = curtask; $p++; print($p); }", "size", "task_struct"),
        ("begin { $p = curtask + 1; print($p); }", "size", "task_struct"),
        ("begin { print(curtask.flag); }", "member", "flag"),
        ("begin { print(*curtask.mm); }", "member", "arg_end"),
        ("begin { print(offsetof(struct task_struct, bits[1])); }", "size", ""),
        ('begin { print(kfunc_exist("vfs_read")); }', "kfunc", "vfs_read"),
        ("begin { print(type_exist(struct task_struct)); }", "type_exist", "task_struct"),
        ("begin { print(member_exist(struct task_struct, none)); }", "member_exist", "none"),
        ('begin { print(constant_exist("NONE")); }', "constant_exist", "NONE"),
        ('begin { print(symbol_exist("none")); }', "symbol_exist", "none"),
        ("if comptime (type_exist(struct none)) { begin { } } else { end { } }", "type_exist", "none"),
        ("begin { print(member_exist(curtask, none)); }", "build", "member_exist() of none in struct task_struct *"),
        ('config = { unstable_typeinfo = "enable" } begin { print(typeinfo(curtask.mm).full_type); }', "", ""),
    ],
)
def test_layouts(script: str, kind: str, part: str) -> None:
    rows = ahead(script).relies
    if part:
        assert any(row[0] == kind and part in row for row in rows), rows


@pytest.mark.parametrize(
    "script",
    [
        "begin { print(pid); }",
        "begin { print(curtask.tgid); }",
        "tracepoint:sched:sched_switch { @ = count(); }",
        "kprobe:vfs_read { print(arg0); }",
    ],
)
def test_what_moves_along_is_not_relied_on(script: str) -> None:
    assert not ahead(script).relies


BINARY = RecordedKernel()


@pytest.mark.parametrize(
    ("script", "row"),
    [
        ("uprobe:/bin/app:work { }", ("symbol", "/bin/app", "work", str(0x1040))),
        ("uprobe:/bin/app:work+4 { }", ("exact", "/bin/app", "the probe is inside a function")),
        ("uprobe:/bin/app:0x401040 { }", ("exact", "/bin/app", "the probe is on an address")),
        (
            "uprobe:/bin/app:work { print(args.n); }",
            ("exact", "/bin/app", "the code takes arguments from where its debug information says"),
        ),
        ("usdt:/bin/app:one:stop { }", ("usdt", "/bin/app", "one", "stop", str(0x1020), "4@$5")),
        ('uprobe:/bin/app:work { print(uaddr("main")); }', ("exact", "/bin/app", "uaddr() returns addresses in it")),
    ],
)
def test_binaries(script: str, row: tuple[str, ...]) -> None:
    assert row in ahead(script, BINARY).binaries
