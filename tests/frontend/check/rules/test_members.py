"""Members, fields of tuples, elements: their types, and the memory that pointers among them point into."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import RegisterPart, UserParameter
from pytrace.core.options import CompileOptions
from pytrace.core.types import INT32, UINT8, UINT64, VOID, AddressSpace, Array, Field, Pointer, Struct
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import BoundsCheck
from tests.frontend.checking import last_value, refusals, refused, value, values
from tests.support.facts import FILE, RecordedKernel, function
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("begin { $t = (1, 2); $i = 1; print($t[$i]); }", "1:39-41", "the index of a tuple must be a constant"),
    ("begin { $r = (a=1, b=2); print($r.c); }", "1:32-36", "the record has no field 'c'"),
    ("begin { $p = curtask; print($p->nosuch); }", "1:29-39", "struct task_struct has no member 'nosuch'"),
    ("begin { $a = 1; $b = $a.x; }", "1:22-26", "int8 has no member 'x'"),
    ("struct s { int a[4]; }; begin { $s = (struct s *)0; print($s.a[4]); }",
     "1:59-66", "index 4 is outside of int32[4], which has 4 elements"),
    ("tracepoint:sched:sched_switch { print(args.nosuch); }", "1:39-50", "tracepoint:sched:sched_switch has no argument 'nosuch'"),
    ("begin { print(curtask.nosuch); }", "1:15-29", "struct task_struct has no member 'nosuch'"),
    ("begin { print(pid.x); }", "1:15-20", "uint32 has no member 'x'"),
    ("begin { print(curtask.pdi); }", "1:15-26", "struct task_struct has no member 'pdi'"),
    ("begin { print((a=1).b); }", "1:15-22", "the record has no field 'b'"),
    ("begin { print((1, 2).2); }", "1:15-23", "the tuple has 2 fields, so there is no field 2"),
    ("begin { print((1, 2)[-1]); }", "1:15-25", "the tuple has 2 fields, so there is no field -1"),
    ("begin { print(5[1]); }", "1:15-19", "int8 cannot be indexed"),
    ("begin { print(((void *)0)[1]); }", "1:16-29", "void * cannot be indexed: the size of void is not known"),
    ("begin { print(curtask.bits[4]); }", "1:15-30", "index 4 is outside of uint64[4], which has 4 elements"),
    ("begin { print(curtask.bits[-1]); }", "1:15-31", "index -1 is outside of uint64[4], which has 4 elements"),
    ("begin { print(curtask.bits[comm]); }", "1:28-32", "the index must be an integer, not string[16]"),
    ("begin { print(pid.0); }", "1:15-20", "uint32 is not a tuple"),
    ("begin { print(((struct nothing2 *)0)[1]); }", "1:17-34", "unknown struct 'nothing2'"),
    ("tracepoint:sched:sched_switch { print(args.next_pdi); }", "1:39-52", "tracepoint:sched:sched_switch has no argument 'next_pdi'"),
]
VALUES = [
    ("begin { print(curtask.pid); }", "int32", None),
    ("begin { print(curtask->comm); }", "string[16]", None),
    ("begin { print(curtask.exit_code); }", "int32", None),
    ("begin { print(curtask.flag); }", "uint32", None),
    ("begin { print(curtask.bits); }", "uint64[4]", None),
    ("begin { print(curtask.bits[1]); }", "uint64", None),
    ("begin { print(curtask.real_parent.pid); }", "int32", None),
    ("begin { print((a=1, b=nsecs).b); }", "uint64", None),
    ("begin { print((1, nsecs).1); }", "uint64", None),
    ("begin { print((1, nsecs)[1]); }", "uint64", None),
    ("begin { print(comm[0]); }", "uint8", None),
    ("begin { print(((int32 *)0)[3]); }", "int32", None),
    ("begin { print(((struct path *)0)[1].mnt); }", "void *", None),
    ("tracepoint:sched:sched_switch { print(args.prev_comm); }", "string[16]", None),
    ("tracepoint:sched:sched_switch { print(args.next_pid); }", "int32", None),
]
# fmt: on

ITEM = Struct(
    "struct",
    "item",
    24,
    (Field("n", INT32, 0), Field("of", Array(Struct("struct", "part", 8, (), "app"), 1), 8)),
    "app",
)
LOST = RecordedKernel(
    parameters={
        ("/bin/app", "work"): (
            UserParameter("rate", Array(UINT8, 8), "", lost=("",)),
            UserParameter("item", ITEM, "", parts=(RegisterPart(0, 4, "ax"),), lost=("price", "of.price")),
        )
    }
)


@pytest.mark.parametrize("name", ["args.rate", "args.item.price", "args.item.of[0].price"])
def test_what_is_in_floating_point_registers(name: str) -> None:
    reason = f"{name.replace('[0]', '')} is in a floating-point register, which BPF programs cannot read"
    assert refused(f"uprobe:/bin/app:work {{ print({name}); }}", kernel=LOST)[1] == reason
    assert value("uprobe:/bin/app:work { print(args.item.n); }", LOST) == ("int32", None)
    assert refused("uprobe:/bin/app:work { print(args.item.x); }", kernel=LOST)[1] == "struct item has no member 'x'"


test_refused = refusals(REFUSED)
test_values = values(VALUES)


@pytest.mark.parametrize(
    ("script", "space", "trusted"),
    [
        ("begin { print(curtask.real_parent); }", AddressSpace.KERNEL, True),
        ("begin { print(curtask.user_buffer); }", AddressSpace.USER, False),
        ("begin { print(((struct task_struct *)uptr(1)).mm); }", AddressSpace.USER, False),
        ("tracepoint:syscalls:sys_enter_openat { print(args.filename); }", AddressSpace.USER, False),
        ("iter:task { print(ctx.task); }", AddressSpace.KERNEL, False),
    ],
)
def test_pointers_point_into_the_memory_of_their_holder(script: str, space: AddressSpace, trusted: bool) -> None:
    program, node = last_value(script)
    type_ = program.types[node]
    assert isinstance(type_, Pointer)
    assert (type_.space, type_.trusted) == (space, trusted)


@pytest.mark.parametrize(("index", "checked"), [("1", False), ("pid", True)])
def test_only_an_unknown_index_is_checked_when_the_script_runs(index: str, checked: bool) -> None:
    program, node = last_value(f"begin {{ print(curtask.bits[{index}]); }}")
    assert program.fact(node, BoundsCheck).needed is checked


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { print(curtask.pdi); }", "pid"),
        ("begin { print(pid.x); }", "cast it to a pointer to a struct first"),
        ("tracepoint:sched:sched_switch { print(args.what); }", "there are prev_comm, next_pid"),
    ],
)
def test_hints(script: str, hint: str) -> None:
    assert hint in analyse(script).diagnostics.errors[0].hints[0]


# fmt: off
REFUSED_type_queries = [
    ("struct s { int a; } begin { print(offsetof(struct s, b)); }", "1:35-56", "struct s has no member 'b'"),
    ("struct s { int a; } begin { print(offsetof(struct s, a.b)); }", "1:35-58", "int32 has no member 'b'"),
    ("begin { print(offsetof(struct task_struct, flag)); }",
     "1:15-49", "'flag' is a bitfield, which has no byte offset"),
    ("begin { print(offsetof(struct task_struct, pid[1])); }", "1:15-51", "int32 cannot be indexed by 1"),
    ("begin { print(offsetof(int64, x)); }", "1:15-33", "int64 has no member 'x'"),
    ("begin { print(offsetof(struct task_struct, pdi)); }", "1:15-48", "struct task_struct has no member 'pdi'"),
    ("begin { print(typeinfo(5)); }", "1:15-26", "typeinfo is unstable and disabled"),
]
VALUES_type_queries = [
    ("struct s { int a; char c[4]; }; begin { print(offsetof(struct s, c[3])); }", "int8", 7),
    ("begin { print(sizeof(struct task_struct)); }", "int8", 104),
    ("begin { print(sizeof(curtask.bits)); }", "int8", 32),
    ("begin { print(sizeof(nsecs)); }", "int8", 8),
    ("begin { print(sizeof(\"abc\")); }", "int8", 4),
    ("begin { print(offsetof(struct task_struct, tgid)); }", "int8", 4),
    ("begin { print(offsetof(struct task_struct, bits[2])); }", "int8", 72),
    ("begin { print(offsetof(curtask, comm)); }", "int8", 8),
    ("begin { print(offsetof(struct task_struct, bits[2])); }", "int8", 72),
    ("begin { print(offsetof(curtask, bits[0x3])); }", "int8", 80),
    ("begin { print(offsetof(struct task_struct, exit_word)); }", "int8", 40),
    ("struct a { int x; struct { char y[4]; } z[3]; }; begin { print(offsetof(struct a, z[2].y[1])); }", "int8", 13),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(curtask).full_type); }",
     "string[21]", b"struct task_struct *"),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(struct task_struct).btf_id); }", "int8", 7),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(5).btf_id); }", "int8", 0),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(pid).base_type); }", "string[4]", b"int"),
]
# fmt: on

test_refused_type_queries = refusals(REFUSED_type_queries)
test_values_type_queries = values(VALUES_type_queries)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("sizeof(struct task_struct)", ("size", ("struct", "task_struct"))),
        ("offsetof(struct task_struct, tgid)", ("member", ("struct", "task_struct", "tgid", "int32"))),
        ("sizeof(int64)", None),
        ("offsetof(struct task_struct, bits[1])", None),
    ],
)
def test_files_compiled_ahead_ask_the_machine_that_runs_them(
    query: str, parts: tuple[str, tuple[str, ...]] | None
) -> None:
    program = analyse(f"begin {{ print({query}); }}", CompileOptions(ahead=True)).checked()
    (node,) = (item for item in walk(program.units[0].body) if isinstance(item, nodes.Sizeof | nodes.Offsetof))
    open_value = program.loaded.get(node)
    assert (open_value and (open_value.what, open_value.parts)) == parts
    assert (node in program.constants) is (parts is None)


_VECTOR = Struct("struct", "iovec", 16, (Field("iov_base", Pointer(VOID), 0), Field("iov_len", UINT64, 8)), origin="vmlinux")


_VECTORS = RecordedKernel(prototypes=(function("vfs_read", ("file", Pointer(FILE)), ("vec", Pointer(_VECTOR))),))


@pytest.mark.parametrize("verbose", [True, False])
def test_arguments_that_may_point_to_user_memory(verbose: bool) -> None:
    """Said once for each argument, however often it is used, but not of structs that only the kernel has."""
    script = "fentry:vfs_read { print(args.vec.iov_len); print(args.vec->iov_len); print(args.file.f_flags); }"
    found = analyse(script, CompileOptions(verbose=verbose), kernel=_VECTORS)
    assert not found.errors
    told = "args.vec may point to kernel or user memory: its members are read where its address is"
    assert [note.message for note in found.diagnostics.notes] == [told] * verbose
    marked = analyse(script.replace("args.vec", "uptr(args.vec)"), CompileOptions(verbose=verbose), kernel=_VECTORS)
    assert not marked.errors
    assert not marked.diagnostics.notes
