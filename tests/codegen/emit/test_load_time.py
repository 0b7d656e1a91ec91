"""What only a load knows."""

from __future__ import annotations

import struct

import pytest

from pytrace.codegen.emit.program import Ahead
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import LOAD_TIME_SECTION, AheadOfTime
from pytrace.core.options import CompileOptions
from pytrace.core.types import INT32, Array, Field, Pointer, Struct
from tests.codegen.running import compiled, machine
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel
from tests.support.recorded import FILE, NET, PATH, TASK, Facts


def opened(body: str) -> tuple[Machine, dict[tuple[str, ...], int]]:
    """A machine, and where its open values are."""
    found = machine(f"begin {{ {body} }}", options=CompileOptions(ahead=True), task=bytes(range(256)) + bytes(3840))
    ahead = found.script.manifest.ahead
    assert ahead is not None
    return found, {(item.what, *item.parts): item.offset for item in ahead.values}


def test_offsets_of_members_follow_the_kernel() -> None:
    found, places = opened("print(curtask.tgid);")
    place = places["member", "struct", "task_struct", "tgid", "int32"]
    start = found.section(LOAD_TIME_SECTION)
    assert found.load(start + place, 8) == 4, "as on the machine that compiled it"
    for offset in (4, 12):
        found.write(start + place, struct.pack("<Q", offset))
        found.events.clear()
        found.run()
        assert found.printed() == [int.from_bytes(bytes(range(offset, offset + 4)), "little")]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("print(ncpus);", ("cpus",)),
        ("print(has_cpid);", ("child",)),
        ("print($1);", ("parameter", "1", "number", "0", "0")),
        ('print(kaddr("vfs_read"));', ("kaddr", "vfs_read")),
        ('print(cgroupid("/sys/fs/cgroup"));', ("cgroup", "/sys/fs/cgroup")),
        ("print(sizeof(struct task_struct));", ("size", "struct", "task_struct")),
    ],
)
def test_what_a_run_knows(body: str, what: tuple[str, ...]) -> None:
    _, places = opened(body)
    assert what in places


def test_places_of_values_of_the_load() -> None:
    found, places = opened("print(ncpus); print(ncpus); print(curtask.tgid + curtask.tgid);")
    assert len(places) == 2
    ahead = found.script.manifest.ahead
    assert ahead is not None
    assert len(ahead.values) == 2
    ahead = Ahead(Facts())
    first, again, second = (ahead.place("a", (part,), bytes(size)) for part, size in (("x", 3), ("x", 3), ("y", 8)))
    assert first == again != second
    assert [(item.offset, item.size) for item in ahead.values] == [(0, 3), (8, 8)]
    assert len(ahead.data) == 16


def test_texts_of_parameters() -> None:
    found, places = opened("print(str($1));")
    (place,) = places.values()
    found.write(found.section(LOAD_TIME_SECTION) + place, b"given\0")
    found.run()
    assert found.printed() == [b"given"]


def test_layouts_are_relied_on_with_all_that_they_hold() -> None:
    ahead = Ahead(Facts())
    ahead.rely_on_type(Array(FILE, 2))
    sizes = {row[2] for row in ahead.relies if row[0] == "size"}
    assert sizes == {"file", "path"}
    assert ("member", "struct", "file", "f_flags", "16", "0", "0", "uint32") in ahead.relies


def test_only_the_kernels_own_structs_count() -> None:
    ahead = Ahead(Facts())
    own = Struct("struct", "mine", 4, (Field("x", INT32, 0),), origin="script")
    for type_ in (own, Pointer(TASK), INT32):
        ahead.rely_on_type(type_)
        ahead.rely_on_size(type_)
    ahead.rely_on_member(own, own.fields[0])
    assert not ahead.relies
    assert ahead.is_kernel(NET)
    assert not ahead.is_kernel(Struct("struct", "path", PATH.size + 8, (), origin="script"))


def test_type_information_that_lacks_a_member_is_an_error() -> None:
    with pytest.raises(TraceError, match="has no member exe_file of struct mm_struct"):
        machine("uprobe:/bin/true:main { print(dw_ustack); }")


# ------------------------------------------------------------------------------------------------------ layout reliance


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
