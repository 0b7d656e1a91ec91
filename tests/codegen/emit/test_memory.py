"""Data sections, scratch memory, and memory that is read and copied."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.codegen.emit.program import (
    CACHE_LINE,
    CLAIM,
    COPIES,
    Layout,
    Scratch,
    area_name,
    emptied,
    resettable,
    snapshots,
)
from pytrace.codegen.ir.module import Module
from pytrace.core.event_layout import Location
from pytrace.core.manifest import SLOT_FLAG
from pytrace.core.probe_kinds import probe_kind
from pytrace.core.source import Source, Span
from pytrace.core.types import INT8, INT64, UINT64, AddressSpace, Count, Field, Hist, Pointer, String, Struct, Type
from pytrace.frontend.syntax.typed_program import CheckedProgram, MapInfo
from tests.codegen.running import machine, printed, ran
from tests.support.facts import FILE, TASK, RecordedKernel, function
from tests.support.front import analyse


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


# -------------------------------------------------------------------------------------------------------- data sections

SPAN = Span(Source("stdin", "@", None), 0, 1)


def checked(**values: Type) -> CheckedProgram:
    maps = {f"@{name}": MapInfo(f"@{name}", None, value, "global", 1, SPAN) for name, value in values.items()}
    return CheckedProgram(maps=maps)


def test_copies_are_a_power_of_two() -> None:
    assert [Layout.plan(CheckedProgram(), cpus).copies for cpus in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]


def test_aggregates_are_per_cpu_and_do_not_overlap() -> None:
    program = checked(a=Count(), b=Hist(0), c=Count())
    layout = Layout.plan(program, 4)
    places = sorted((layout.slots[name], SLOT_FLAG + info.value.size) for name, info in program.maps.items())
    for (start, size), (following, _) in pairwise(places):
        assert start + size <= following
    layout.finish(Module(None, "GPL"))
    assert layout.stride % CACHE_LINE == 0
    assert layout.stride >= places[-1][0] + places[-1][1]
    assert layout.total == 4 * layout.stride
    slot = layout.slot(program.maps["@b"])
    assert slot is not None
    assert (slot.copies, slot.stride) == (4, layout.stride)


def test_scalars_are_shared_and_on_lines_of_their_own() -> None:
    program = checked(x=INT64, y=String(100))
    layout = Layout.plan(program, 4)
    assert layout.slots["@x"] % CACHE_LINE == 0
    assert layout.slots["@y"] % CACHE_LINE == 0
    assert layout.slots["@x"] != layout.slots["@y"]
    slot = layout.slot(program.maps["@x"])
    assert slot is not None
    assert slot.copies == 1


def test_preemptible_programs_have_several_copies_of_their_area() -> None:
    plain, claimed = Layout(2), Layout(2)
    plain.area("guarded", 1024)
    claimed.area("user", 1024)
    for layout in (plain, claimed):
        layout.finish(Module(None, "GPL"))
    assert plain.stride >= 1024
    assert claimed.stride >= CLAIM + COPIES * 1024


def test_counters_come_behind_the_slots_in_the_order_of_use() -> None:
    layout = Layout.plan(checked(a=Count()), 2)
    assert [layout.counter(*key) for key in (("map_full", 0), ("lost", 3), ("map_full", 0))] == [0, 8, 0]
    layout.finish(Module(None, "GPL"))
    counters = layout.manifest_counters()
    assert counters.names == (("map_full", 0), ("lost", 3))
    assert counters.offset >= layout.slots["@a"] + SLOT_FLAG + 8


def test_a_place_where_a_helper_fails_has_one_counter() -> None:
    layout = Layout.plan(checked(), 2)
    places = [Location("stdin", 1, column) for column in (1, 5, 1)]
    assert [layout.site("bpf_probe_read_user", place) for place in places] == [0, 1, 0]
    assert [site.location for site in layout.manifest_counters().sites] == places[:2]


def test_random_words_are_for_the_largest_digested_key() -> None:
    maps = {
        f"@{size}": MapInfo(f"@{size}", String(size), INT64, "hash", 5, SPAN) for size in (100, 333, 1000)
    }
    layout = Layout.plan(CheckedProgram(maps=maps), 1, digested=frozenset({"@100", "@333"}))
    words = layout.random_words()
    assert words is not None
    assert words.size == 2 * (336 + 8)
    assert words.offset % CACHE_LINE == 0
    assert layout.shared >= words.offset + words.size
    assert Layout.plan(CheckedProgram(maps=maps), 1).random_words() is None


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("@m[1] = 1; print(@m);", set()),
        ("@m[1] = 1; clear(@m);", set()),
        ("@m[1] = 1; print(@m); clear(@m);", {"@m"}),
        ("@m[1] = 1; print_clear(@m);", {"@m"}),
        ("@m[1] = count(); print(@m); clear(@m);", {"@m"}),
        ("@s = 1; clear(@s);", {"@s"}),
        ("@s = 1; zero(@s);", {"@s"}),
        ("@s = 1; print(@s); clear(@s);", {"@s"}),
        ("@s = 1; print(@s);", set()),
        ("@c = count(); clear(@c);", set()),
        ("@c = count(); print(@c); clear(@c);", set()),
        ("@c = count(); $x = (int64)@c; clear(@c);", {"@c"}),
        ("@h = hist(1); clear(@h);", set()),
        ("@h = hist(1); quantiles(@h); clear(@h);", set()),
        ("@x = max(1); clear(@x);", {"@x"}),
        ("@a = 1; @b = count(); @b = count(); clear(@b); @a = (int64)@b;", {"@b"}),
        ("@m[1] = 1; print(@m); @m[2] = 2; clear(@m);", set()),
    ],
)
def test_names(body: str, names: set[str]) -> None:
    assert snapshots(analyse(f"begin {{ {body} }}").checked()) == names


@pytest.mark.parametrize(
    ("body", "names", "buffered"),
    [
        ("@c = count();", {"@c"}, set()),
        ("@c = count(); $x = (int64)@c;", {"@c"}, {"@c"}),
        ("@c[tid] = count(); @h = hist(1);", {"@c", "@h"}, {"@c"}),
        ("@m = max(1); @s[comm] = stats(1); print(@m);", {"@m", "@s"}, {"@m", "@s"}),
        ("@n++; --@m[1]; @o[tid] += 2; @p -= tid;", {"@n", "@m", "@o", "@p"}, {"@n", "@m", "@o", "@p"}),
        ("@n[1]++; if (@n[1] > 3) { exit(); }", set(), set()),
        ("@n++; @n = 5;", set(), set()),
        ("$x = @n++; @k[@j++]++;", {"@k"}, {"@k"}),
        ("@n[1]++; _ = delete(@n, 1); @o[@a] += @b; @a = 1; @b = 2;", {"@o"}, {"@o"}),
        ("@start[tid] = nsecs; @text = comm; @t[1] = (1, 2);", set(), set()),
    ],
)
def test_what_the_user_may_reset(body: str, names: set[str], buffered: set[str]) -> None:
    program = analyse(f"begin {{ {body} }}").checked()
    assert resettable(program) == names
    assert snapshots(program, resets=True) == buffered
    assert snapshots(program) == set()
    layout = Layout.plan(program, 2, resets=True)
    assert layout.emptied == names
    assert layout.awaited == set(), "programs may sleep as without the view"


def test_maps_that_functions_read_and_events_empty() -> None:
    text = "fn f(): int64 { return (int64)@c; } begin { @c = count(); clear(@c); print(f()); }"
    assert snapshots(analyse(text).checked()) == {"@c"}
    body = "@a[1] = 1; @b[1] = 1; @c[1] = 1; @d[1] = 1; @e = 1; print(@a); clear(@a); clear(@b); zero(@c); print(@d);"
    assert emptied(analyse(f"begin {{ {body} clear(@e); }}").checked()) >= {"@a", "@b", "@e"}
    assert "@d" not in emptied(analyse(f"begin {{ {body} clear(@e); }}").checked())


# ------------------------------------------------------------------------------------------------------- scratch memory

def test_released_memory_is_used_again() -> None:
    scratch = Scratch()
    first = scratch.allocate(100)
    second = scratch.allocate(8)
    scratch.release(first, 100)
    assert scratch.allocate(40) == first
    assert scratch.allocate(64) == first + 40
    assert second == 104
    assert scratch.size == 112


def test_neighbours_merge() -> None:
    scratch = Scratch()
    offsets = [scratch.allocate(16) for _ in range(3)]
    for offset in offsets:
        scratch.release(offset, 16)
    assert scratch.allocate(48) == 0


@given(st.lists(st.tuples(st.integers(1, 200), st.booleans())))
def test_live_ranges_never_overlap(steps: list[tuple[int, bool]]) -> None:
    scratch = Scratch()
    live: list[tuple[int, int]] = []
    for size, free in steps:
        offset = scratch.allocate(size)
        assert offset % 8 == 0
        assert all(offset + size <= start or start + room <= offset for start, room in live)
        assert offset + size <= scratch.size
        live.append((offset, size))
        if free:
            scratch.release(*live.pop(0))


def test_programs_that_can_interrupt_each_other_have_areas_of_their_own() -> None:
    names = {}
    for kind in ("kprobe", "tracepoint", "profile", "uprobe", "begin", "fentry", "rawtracepoint"):
        row = probe_kind(kind)
        assert row is not None
        names[kind] = area_name(row, f"{kind}_0")
    assert names["kprobe"] == names["tracepoint"] == names["profile"]
    assert len({names[kind] for kind in ("kprobe", "uprobe", "begin", "fentry", "rawtracepoint")}) == 5
