"""Load-time values of ahead-of-time files."""

from __future__ import annotations

import struct

import pytest

from pytrace.codegen.emit.storage import Ahead
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import LOAD_TIME_SECTION
from pytrace.core.options import CompileOptions
from pytrace.core.types import INT32, Array, Field, Pointer, Struct
from tests.codegen.running import machine
from tests.support.bpf_machine import Machine
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


def test_equal_values_have_one_place() -> None:
    found, places = opened("print(ncpus); print(ncpus); print(curtask.tgid + curtask.tgid);")
    assert len(places) == 2
    ahead = found.script.manifest.ahead
    assert ahead is not None
    assert len(ahead.values) == 2


def test_texts_of_parameters() -> None:
    found, places = opened("print(str($1));")
    (place,) = places.values()
    found.write(found.section(LOAD_TIME_SECTION) + place, b"given\0")
    found.run()
    assert found.printed() == [b"given"]


def test_places_are_aligned() -> None:
    ahead = Ahead(Facts())
    first, again, second = (ahead.place("a", (part,), bytes(size)) for part, size in (("x", 3), ("x", 3), ("y", 8)))
    assert first == again != second
    assert [(item.offset, item.size) for item in ahead.values] == [(0, 3), (8, 8)]
    assert len(ahead.data) == 16


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
