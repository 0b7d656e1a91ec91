"""The current task's numbers, in both pid namespaces, and its namespaces."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options import CompileOptions
from pytrace.core.types import INT32, UINT32, UINT64, Field, String, Struct
from tests.codegen.running import compiled, helpers, machine, ran
from tests.support.bpf_machine import PID, TID, Machine
from tests.support.recorded import Facts


def in_a_namespace() -> Facts:
    kernel = Facts()
    kernel.pid_namespace = (4, 4026531999)
    return kernel


def test_the_initial_namespace() -> None:
    found = ran("begin { print((pid, tid, pid(init), tid(init))); }")
    assert found.printed() == [(PID, TID, PID, TID)]
    assert 120 not in helpers(found)


def test_the_namespace_of_the_tracer() -> None:
    found = ran("begin { print((pid, tid, pid(init), tid(curr_ns))); }", in_a_namespace())
    assert found.printed() == [(21, 22, PID, 22)]
    assert (120, (4, 4026531999)) in [(number, given[:2]) for number, given in found.calls]


def test_files_compiled_ahead_are_for_both() -> None:
    script = compiled("begin { print(pid); }", options=CompileOptions(ahead=True))
    assert script.manifest.ahead is not None
    assert {(item.what, item.parts) for item in script.manifest.ahead.values} == {
        ("namespace", ("inode",)), ("namespace", ("device",)),
    }  # fmt: skip


def test_the_network_namespace() -> None:
    found = ran("begin { print(netns); }")
    assert found.printed() == [bytes(8)], "a task that exits has no namespaces"
    found.events.clear()
    net = found.region(bytes(8 + 16) + struct.pack("<I", 4026531840) + bytes(16))
    nsproxy = found.region(bytes(40) + struct.pack("<Q", net) + bytes(8))
    found.write(found.current + 96, struct.pack("<Q", nsproxy))
    found.run()
    assert struct.unpack("<Q", found.printed()[0]) == (4026531840,)


def test_kernels_whose_tasks_are_different() -> None:
    kernel = Facts()
    kernel.structs = {**kernel.structs, ("struct", "task_struct"): Struct("struct", "task_struct", 8, ())}
    with pytest.raises(TraceError, match=r"type information \(BTF\) of struct task_struct"):
        compiled("begin { print(netns); }", kernel)


# ---------------------------------------------------------------------------------------------- plain loads

_TYPED = Struct(
    "struct", "task_struct", 200,
    (
        Field("comm", String(16), 120), Field("pid", INT32, 136), Field("tgid", INT32, 140), Field("cred", UINT64, 144),
    ),
    origin="vmlinux",
)  # fmt: skip
_CREDENTIALS = Struct("struct", "cred", 32, (Field("uid", UINT32, 8), Field("gid", UINT32, 12)), origin="vmlinux")


def with_types() -> Facts:
    """A kernel whose current task can be read by plain loads."""
    kernel = Facts()
    kernel.structs = {**kernel.structs, ("struct", "task_struct"): _TYPED, ("struct", "cred"): _CREDENTIALS}
    return kernel


def task(found: Machine, name: bytes = b"name", process: int = 21, thread: int = 22) -> None:
    """Make this the current task."""
    credentials = found.region(struct.pack("<8xII", 1000, 100) + bytes(16))
    parts = (name.ljust(16, b"\0"), thread, process, credentials)
    found.current = found.region(struct.pack("<120x16siiQ48x", *parts))


def test_one_helper_serves_all_members() -> None:
    found = machine("begin { print((pid, tid, uid, gid, comm)); }", with_types())
    task(found)
    found.run()
    assert found.printed() == [(21, 22, 1000, 100, b"name")]
    assert [number for number in helpers(found) if number < 100 or number == 158] == [158]


@pytest.mark.parametrize("name", [b"", b"a", b"seven_7", b"eight__8", b"nine___9_", b"fifteen_letters", b"\x80\xff"])
@pytest.mark.parametrize("rest", [b"\0", b"\x01\x80\xff\x7f", b"\xff\0\x01\0", b"zzzzzzzzzzzzzzz"])
def test_what_follows_the_end_of_the_name_is_left_out(name: bytes, rest: bytes) -> None:
    """Before Linux 5.17 a shorter name leaves the end of the longer one before."""
    found = machine('begin { @[comm] = 1; print((comm, comm == "a", comm == "eight__8")); }', with_types())
    task(found, (name + b"\0" + (rest * 16)[:16])[:16])
    found.run()
    assert found.printed() == [(name, name == b"a", name == b"eight__8")]
    assert {key for key, _ in found.maps[found.names["map_"]].entries} == {name.ljust(16, b"\0")}


def test_a_process_namespace_is_asked_by_its_helper() -> None:
    kernel = with_types()
    kernel.pid_namespace = (4, 4026531999)
    found = machine("begin { print((pid, uid)); }", kernel)
    task(found)
    found.run()
    assert found.printed() == [(21, 1000)]
    assert 120 in helpers(found)


def test_kernels_without_the_helper_or_a_member() -> None:
    without = with_types()
    without.missing = frozenset({"current_task_btf"})
    other = with_types()
    other.structs = {**other.structs, ("struct", "cred"): Struct("struct", "cred", 8, ())}
    for kernel in (without, other):
        assert {14, 16} <= set(helpers(ran("begin { print((pid, comm)); }", kernel)))
