"""Comparing layouts with recorded kernels."""

from __future__ import annotations

from pytrace.core.types import INT32, UINT64, Field, Pointer, Struct
from pytrace.runtime.aot import layouts
from tests.support.facts import RecordedKernel
from tests.support.rows import each_row

INNER = Struct("struct", "", 16, (Field("low", INT32, 0), Field("flag", INT32, 4, 3, 2)), "vmlinux#9", 8)
OUTER = Struct("struct", "outer", 32, (Field("in", INNER, 8), Field("next", UINT64, 24)), origin="vmlinux", alignment=8)
HOLDER = Struct("struct", "holder", 8, (Field("out", Pointer(OUTER), 0),), origin="vmlinux", alignment=8)
KERNEL = RecordedKernel(structs={("struct", item.name): item for item in (OUTER, HOLDER)})


def test_a_path_gives_the_offset_in_the_last_struct() -> None:
    found = layouts.member(KERNEL, "struct", "outer", "in.flag")
    assert found is not None
    assert (found.offset, found.bit_offset, found.bit_size) == (4, 3, 2)
    assert layouts.member(KERNEL, "struct", "outer", "in.none") is None
    assert layouts.member(KERNEL, "struct", "outer", "next.none") is None


def test_a_path_follows_pointers() -> None:
    found = layouts.member(KERNEL, "struct", "holder", "out.in.low")
    assert found is not None
    assert found.type == INT32


@each_row(
    ("row", "message"),
    [
        (("member", "struct", "outer", "next", "24", "0", "0", "uint64"), ""),
        (("member", "struct", "outer", "next", "16", "0", "0", "uint64"), "is at offset 24 here, it was at offset 16"),
        (("member", "struct", "outer", "next", "24", "0", "0", "int64"), "is of type uint64 here, it was int64"),
        (
            ("member", "struct", "outer", "in.flag", "4", "1", "2", "int32"),
            "at offset 4 (bit 3, 2 bits) here, it was at offset 4 (bit 1, 2 bits)",
        ),
        (("member", "struct", "none", "x", "0", "0", "0", "int8"), "there is no struct none here"),
        (("size", "struct", "outer", "32"), ""),
        (("size", "struct", "none", "32"), "there is no struct none here"),
        (("tracepoint", "no", "such", "x", "8", "4", "int x"), "there is no tracepoint no:such here"),
        (("tracepoint", "sched", "sched_wakeup", "x", "8", "4", "int x"), "has no field x here"),
        (("tracepoint", "sched", "sched_wakeup", "pid", "24", "4", "long pid"), "is 'int32 pid' here, it was 'long"),
        (("tracepoint", "sched", "sched_wakeup", "pid", "24", "4", "int32 pid"), ""),
        (("rawtracepoint", "no_such", "int (x)"), "there is no raw tracepoint no_such here"),
        (("enumerator", "PIDTYPE_PID", "0"), ""),
        (("enumerator", "NO_SUCH", "0"), "there is no enumerator NO_SUCH here"),
        (("names", "pid_type", "8"), "enum pid_type has 4 bytes here, it had 8"),
        (("kfunc", "vfs_read", "1"), ""),
        (("kfunc", "vfs_read", "0"), "there is a function vfs_read here"),
        (("kfunc", "none", "1"), "there is no function none here"),
        (("type_exist", "struct", "outer", "1"), ""),
        (("type_exist", "struct", "outer", "0"), "there is a struct outer here"),
        (("type_exist", "enum", "none", "1"), "there is no enum none here"),
        (("member_exist", "struct", "holder", "out.in.low", "1"), ""),
        (("member_exist", "struct", "outer", "in.none", "1"), "struct outer has no member in.none here"),
        (("member_exist", "struct", "outer", "next", "0"), "struct outer has a member next here"),
        (("member_exist", "struct", "none", "x", "0"), ""),
        (("constant_exist", "PIDTYPE_PID", "0"), "there is a constant PIDTYPE_PID here"),
        (("constant_exist", "NO_SUCH", "1"), "there is no constant NO_SUCH here"),
        (("symbol_exist", "none", "0"), ""),
        (("symbol_exist", "none", "1"), "there is no symbol none here"),
        (("build", "typeinfo()"), "it uses typeinfo()"),
        (("of another version",), "unknown fact 'of another version'"),
    ],
)
def test_rows(row: tuple[str, ...], message: str) -> None:
    found = layouts.differences(KERNEL, [row])
    assert found == [] if not message else message in found[0]
