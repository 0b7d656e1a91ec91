"""Values between registers, memory and other address spaces."""

from __future__ import annotations

import pytest

from pytrace.core.types import INT8, UINT64, AddressSpace, Field, Pointer, Struct
from tests.codegen.running import machine, printed, ran
from tests.support.facts import FILE, TASK, RecordedKernel, function


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("(int8)(pid - 4321 - 1)", -1), ("(uint8)(pid - 4321 - 1)", 255),
        ("(int16)(pid * 100)", 432100 % 65536 - 65536), ("(uint32)(0 - pid)", 2**32 - 4321), ("(bool)pid", True),
        ("(bool)(pid - 4321)", False), ("(int8)pid", 4321 % 256 - 256),
    ],
)  # fmt: skip
def test_widths(expression: str, wanted: int) -> None:
    assert printed(f"print({expression});") == [wanted]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ('$t = (1, "a"); $t = (1000, "abc"); print($t);', (1000, b"abc")),
        ('$t = ((int64)1, "abc"); $t = ((int8)2, "d"); print($t);', (2, b"d")),
        ("$r = (a=1, b=2000); $r = (b=3, a=400); print($r);", (400, 3)),
        ('@t = (1, "abcdef"); @t = (2, "x"); print((@t.0, @t.1));', (2, b"x")),
        ('$s = "abcdef"; $s = "x"; @s[$s] = 1; @s["x"] = 2; print(len(@s));', 1),
        ("$a = (uint8[4])(uint32)0x04030201; print($a);", (1, 2, 3, 4)),
        ("print((uint32)(uint8[4])(uint32)0x04030201);", 0x04030201),
        ("print((string[2])comm);", b"ta"),
    ],
)
def test_conversions(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_shorter_values_leave_nothing_of_longer_ones() -> None:
    """Equal values have equal bytes: keys are compared so."""
    found = ran('begin { $s = "longer text"; @m[$s] = 1; $s = "lo"; @m[$s] = 2; @m["lo"] = 3; }')
    assert found.entries("@m") == {b"longer text": 1, b"lo": 3}
    found = ran("begin { $t = ((int8)1, (int64)2); @m[$t] = 1; @m[((int8)1, 2)] = 2; }")
    assert found.entries("@m") == {(1, 2): 2}


@pytest.mark.parametrize(("kind", "size"), [("int8", 1), ("uint16", 2), ("int32", 4), ("uint64", 8)])
def test_reads_of_each_width(kind: str, size: int) -> None:
    found = machine(f"kprobe:vfs_read {{ print(*({kind} *)arg0); }}")
    context = bytearray(168)
    context[112:120] = found.region(b"\xfe" * 8).to_bytes(8, "little")
    found.run(context=bytes(context))
    wanted = int.from_bytes(b"\xfe" * size, "little", signed=kind.startswith("int"))
    assert found.printed() == [wanted]


def test_what_cannot_be_read_is_zero() -> None:
    assert printed("print(*(uint64 *)kptr(8)); print(str(kptr(8)));") == [0, b""]


_LISTS = "struct item { struct item *next; int n; }; struct all { struct item first; struct item *of[2]; };"


_VECTOR = Struct("struct", "iovec", 16, (Field("base", Pointer(UINT64, AddressSpace.KERNEL), 8),), origin="vmlinux")
_HEADER = Struct("struct", "header", 16, (Field("iov", Pointer(_VECTOR, AddressSpace.KERNEL), 8),), origin="vmlinux")


@pytest.mark.parametrize(
    ("probe", "expression", "numbers"),
    [
        # 112 and 114 read user memory, 113 kernel memory; for 4 and 45 the address decides.
        ("begin", "*(uint64 *)kptr(1)", [4]),
        ("begin", "*(uint64 *)uptr(1)", [112]),
        ("kprobe:vfs_read", "*(uint64 *)arg0", [4]),
        ("kprobe:vfs_read", "str(uptr(arg0)) == str(kptr(arg1))", [113, 114, 113, 45]),
        ("kprobe:vfs_read", "*uptr(arg0) + uptr(arg1)", [112]),
        ("kprobe:vfs_read", "*((struct header *)arg0).iov.base", [4, 4, 4]),
        ("uprobe:/bin/app:work", "*(uint64 *)arg0", [112]),
        ("uprobe:/bin/app:work", "*((struct header *)curtask).iov.base", [4, 4, 4]),
        # A structure in user memory has pointers into user memory, also the kernel's.
        ("uprobe:/bin/app:work", "*((struct header *)arg0).iov.base", [112, 112, 112]),
        ("tracepoint:syscalls:sys_enter_openat", "*((struct header *)args.filename).iov.base", [112, 112, 112]),
        ("begin", "*(*(struct header *)uptr(1)).iov[1].base", [112, 112, 112]),
        ("begin", "((struct all *)uptr(1)).first.next.next.n", [112, 112, 112]),
        ("begin", "((struct all *)uptr(1)).of[1].n", [112, 112]),
    ],
)
def test_each_address_space_has_its_helpers(probe: str, expression: str, numbers: list[int]) -> None:
    structs = {(item.kind, item.name): item for item in (_VECTOR, _HEADER, TASK)}
    found = machine(f"{_LISTS} {probe} {{ @ = {expression}; }}", RecordedKernel(structs=structs), task=bytes(300))
    address = found.region(bytes(200) + (8).to_bytes(8, "little"))
    found.run(context=address.to_bytes(8, "little") * 40)
    assert [n for n, _ in found.calls if n in (4, 45, 112, 113, 114)] == numbers


_ANY = Struct("union", "any", 8, (Field("of_kernel", Pointer(TASK), 0),), origin="vmlinux")
_MIXED = Struct("struct", "mixed", 8, (Field("any", _ANY, 0),), origin="vmlinux")
_POINTING = Struct("struct", "pointing", 16, (Field("task", Pointer(TASK), 0), Field("n", UINT64, 8)), origin="vmlinux")


@pytest.mark.parametrize(
    ("expression", "numbers"),
    [
        # Only the kernel has these: plain loads at typed pointers.
        ("args.file.f_flags", []),
        ("args.pointing.n", []),
        # 4 and 45 are the helpers for which the address decides; 113 clears.
        ("args.vec.base", [4]),
        ("*args.vec.base", [4, 4]),
        ("args.vec[1].base", [4]),
        ("args.mixed.any.of_kernel", [4]),
        ("uptr(args.vec).base", [112]),
        ('str(args.text) == "a"', [113, 45]),
    ],
)
def test_typed_pointers_into_either_memory(expression: str, numbers: list[int]) -> None:
    parameters = [("file", FILE), ("vec", _VECTOR), ("mixed", _MIXED), ("pointing", _POINTING), ("text", INT8)]
    prototype = function("vfs_read", *((name, Pointer(type_)) for name, type_ in parameters))
    found = machine(f"fentry:vfs_read {{ @ = {expression}; }}", RecordedKernel(prototypes=(prototype,)))
    place = found.region(bytes(64))
    found.run(context=place.to_bytes(8, "little") * 8)
    assert [n for n, _ in found.calls if n in (4, 45, 112, 113, 114, 115)] == numbers


@pytest.mark.parametrize(("readable", "numbers"), [(True, [113]), (False, [113, 112])])
def test_machines_whose_spaces_overlap(readable: bool, numbers: list[int]) -> None:
    """There user memory is read when a read of the kernel's fails."""
    found = machine("fentry:vfs_read { @ = (*(uint64 *)args.file); }", RecordedKernel(arch="s390x"))
    place = found.region(bytes(64)) if readable else 8
    found.run(context=place.to_bytes(8, "little") * 8)
    assert [n for n, _ in found.calls if n in (4, 112, 113)] == numbers


def test_strings_in_full_arrays_have_no_nul() -> None:
    found = machine("begin { print(curtask.comm); }", task=bytes(8) + b"0123456789abcdef" + bytes(208))
    found.run()
    assert found.printed() == [b"0123456789abcdef"]
