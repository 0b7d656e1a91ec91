"""Facts and listings on the running kernel, held against what the kernel's own files say."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, AddressSpace, Pointer, String, Struct
from pytrace.runtime.load import listing
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine import fingerprints, perf
from tests.support.btf_builder import BtfBuilder
from tests.support.machine import own_cgroup
from tests.support.pace import unit

needs_btf = pytest.mark.skipif(not os.path.exists("/sys/kernel/btf/vmlinux"), reason="the kernel shows no BTF")


@pytest.fixture
def kernel() -> LiveKernel:
    return LiveKernel()


def _bpftool_struct(name: str) -> str:
    """The members of a struct as bpftool sees them."""
    try:
        dump = subprocess.run(
            ["bpftool", "btf", "dump", "file", "/sys/kernel/btf/vmlinux"], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("bpftool is not installed")
    start = dump.stdout.index(f"STRUCT '{name}' size=")
    return dump.stdout[start : dump.stdout.index("\n[", start)]


@pytest.mark.each_kernel
@needs_btf
@pytest.mark.needs("bpftool")
def test_task_struct_as_bpftool_has_it(kernel: LiveKernel) -> None:
    task = kernel.struct("struct", "task_struct")
    assert task is not None
    rows = _bpftool_struct("task_struct").splitlines()
    assert rows[0].split("size=")[1].split()[0] == str(task.size)
    members = [row for row in rows[1:] if row.startswith("\t'")]
    assert len(members) == len(task.fields)
    for row, field in zip(members, task.fields, strict=True):
        name = row.split("'")[1]
        bits = int(row.split("bits_offset=")[1].split()[0])
        assert field.name == ("" if name == "(anon)" else name)
        assert 8 * field.offset + field.bit_offset == bits
        if "bitfield_size=" in row:
            assert field.bit_size == int(row.split("bitfield_size=")[1])
    comm, parent = task.find("comm"), task.find("real_parent")
    assert comm is not None
    assert comm.type == String(16)
    assert parent is not None
    assert parent.type == Pointer(task, AddressSpace.KERNEL)


@needs_btf
def test_types(kernel: LiveKernel) -> None:
    assert kernel.typedef("pid_t") == INT32
    assert kernel.struct("union", "task_struct") is None
    assert kernel.struct("struct", "no_such_struct") is None
    found = kernel.enumerator("PIDTYPE_TGID")
    assert found is not None
    assert (found[0].name, found[1]) == ("pid_type", 1)
    assert kernel.enum("pid_type") == found[0]
    assert kernel.enumerator("NO_SUCH_MEMBER") is None
    assert "task_struct" in kernel.type_names("struct")


@pytest.mark.core
@needs_btf
def test_prototypes(kernel: LiveKernel) -> None:
    read = kernel.function("vfs_read")
    assert read is not None
    assert [name for name, _ in read.parameters] == ["file", "buf", "count", "pos"]
    buffer = dict(read.parameters)["buf"]
    assert isinstance(buffer, Pointer)
    assert kernel.function("no_such_function") is None
    assert {item.name for item in kernel.function_prototypes("vfs_rea*")} >= {"vfs_read"}


@pytest.mark.each_kernel
@needs_btf
def test_raw_tracepoints(kernel: LiveKernel) -> None:
    assert kernel.raw_tracepoints("sched_switch") == [("vmlinux", "sched_switch")]
    switch = kernel.raw_tracepoint_prototype("sched_switch")
    assert switch is not None
    assert [name for name, _ in switch.parameters][:3] == ["preempt", "prev", "next"]
    following = dict(switch.parameters)["next"]
    assert isinstance(following, Pointer)
    assert isinstance(following.target, Struct)
    assert following.target.name == "task_struct"
    assert kernel.raw_tracepoint_prototype("no_such_event") is None


@pytest.mark.each_kernel
@needs_btf
def test_iterators(kernel: LiveKernel) -> None:
    found = kernel.iterators()
    assert "task" in found
    assert found["task"].find("task") is not None
    assert not any("__" in name for name in found)


@pytest.mark.each_kernel
def test_tracepoints_as_tracefs_has_them(kernel: LiveKernel) -> None:
    root = Path(kernel.tracepoint_files.path)
    names = {tuple(row.split(":")) for row in (root / "available_events").read_text().split()}
    # Other tests define user probes there, for a while.
    names = {pair for pair in names if pair[0] != "ftrace" and not pair[0].startswith("pytrace_")}
    assert set(kernel.tracepoints("*", "*")) == names
    assert kernel.tracepoints("sched", "sched_switch") == [("sched", "sched_switch")]
    assert kernel.tracepoints("sched", "no_such_event") == []


@pytest.mark.each_kernel
def test_every_format_is_understood(kernel: LiveKernel) -> None:
    """Each field has a type that lies inside what the record has for it."""
    # The kernel takes milliseconds over each format while others attach probes, so not all of them are read.
    for category, event in kernel.tracepoints("*", "*")[::25]:
        for field in kernel.tracepoint_fields(category, event) or ():
            if not field.data_loc:
                assert field.type.size <= field.size, (category, event, field)
    name = {item.name: item for item in kernel.tracepoint_fields("syscalls", "sys_enter_openat") or ()}["filename"]
    assert isinstance(name.type, Pointer)
    assert name.type.space is AddressSpace.USER


@pytest.mark.each_kernel
def test_what_is_indexed_by_processor_has_room_for_the_highest_number(
    kernel: LiveKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "read_text", {"/sys/devices/system/cpu/possible": "0-2,8\n"}.__getitem__)
    assert perf.possible_cpus() == [0, 1, 2, 8]
    assert kernel.possible_cpus == 9


def test_numbers(kernel: LiveKernel) -> None:
    assert kernel.possible_cpus >= (os.cpu_count() or 1)
    assert kernel.arch == os.uname().machine
    assert kernel.kernel_symbol("vfs_read")
    assert kernel.kernel_symbol("no_such_symbol") is None
    size = kernel.kernel_function_size("vfs_read")
    assert size is not None
    assert 16 <= size < 65536


def test_cgroups(kernel: LiveKernel) -> None:
    with own_cgroup() as made:
        assert kernel.cgroup_id(str(made)) == made.stat().st_ino
        assert kernel.cgroup_id(made.name) == made.stat().st_ino, "relative to the mount"
    assert kernel.cgroup_id("/tmp") is None


@pytest.mark.each_kernel
def test_dependencies_hold_and_tell_what_was_asked(kernel: LiveKernel) -> None:
    kernel.tracepoints("sched", "*")
    kernel.kernel_symbol("vfs_read")
    kernel.user_symbols("/bin/sh", "main")
    found = kernel.dependencies()
    assert {fact[0] for fact in found} == {"kernel", "tracepoints", "boot", "file"}
    kernel.tracepoint_fields("sched", "sched_switch")
    assert ("tracepoint", kernel.tracepoint_files.path, "sched", "sched_switch") in {
        fact[:4] for fact in kernel.dependencies()
    }
    assert fingerprints.still_true(found)


def test_features_can_be_switched_off() -> None:
    assert not LiveKernel(disabled={"ring_buffer"}).feature("ring_buffer")


@needs_btf
def test_another_btf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    other, builder = tmp_path / "btf", BtfBuilder()
    builder.struct("task_struct", 4, ("of_the_file", builder.integer("int", 4), 0))
    other.write_bytes(builder.build())
    kernel = LiveKernel(environment={"PYTRACE_BTF": str(other)})
    found = kernel.struct("struct", "task_struct")
    assert found is not None
    assert [member.name for member in found.fields] == ["of_the_file"]
    assert any(fact[:2] == ("file", str(other)) for fact in kernel.dependencies())
    with pytest.raises(TraceError, match="PYTRACE_BTF"):
        _ = LiveKernel(environment={"PYTRACE_BTF": "/no/such/file"}).has_btf


@pytest.mark.each_kernel
@needs_btf
def test_modules(kernel: LiveKernel) -> None:
    """Functions and types that a module defines."""
    assert kernel.types is not None
    loaded = [name for name in kernel.modules() if name in kernel.types.modules]
    if not loaded:
        pytest.skip("no module with type information is loaded")
    module = loaded[0]
    reader = kernel.types.module(module)
    assert reader is not None
    prototypes = kernel.function_prototypes("*", module)
    assert prototypes
    assert {item.module for item in prototypes} == {module}
    own = next(item for item in prototypes if kernel.types.vmlinux.btf.find(item.name, 12) == 0)
    found = kernel.function(own.name)
    assert found is not None
    assert found.module in loaded
    assert kernel.function(own.name, "vmlinux") is None
    name = next(name for name in reader.btf.names(4) if kernel.types.vmlinux.btf.find(name, 4) == 0)
    struct = kernel.struct("struct", name)
    assert struct is not None
    assert struct.origin != "vmlinux"
    assert all(field.offset <= struct.size for field in struct.fields)
    assert any(fact[0] == "modules" for fact in kernel.dependencies())
    symbols = [item for item in kernel.kernel_functions("*", module) if item.module == module]
    assert symbols
    address = next(a for item in symbols if (a := kernel.kallsyms.address(item.name)) is not None)
    place = kernel.kallsyms.place(address)
    assert place is not None
    assert place.offset == 0


@pytest.mark.core
def test_traceable_functions_as_ftrace_has_them(kernel: LiveKernel) -> None:
    try:
        text = Path(kernel.tracepoint_files.path, "available_filter_functions").read_text()
    except OSError:
        pytest.skip("this kernel does not show its traceable functions")
    names = [line.split()[0] for line in text.splitlines()]
    assert "vfs_read" in names
    assert [item.name for item in kernel.kernel_functions("vfs_read")] == ["vfs_read"]
    wanted = {name for name in names if name.startswith("vfs_") and ".part." not in name}
    assert {item.name for item in kernel.kernel_functions("vfs_*")} == wanted
    assert kernel.kernel_functions("rcu_*") == []
    assert kernel.untraceable_reason("vfs_read") == ""


# ---------------------------------------------------------------------------------------------- listing


def _lines(kernel: LiveKernel, pattern: str | None, **options: int | bool) -> list[str]:
    return listing.listing(kernel, pattern, **options).splitlines()  # type: ignore[arg-type]


@pytest.mark.each_kernel
def test_list_all_kernel_kinds_quickly(kernel: LiveKernel) -> None:
    start = time.process_time()
    kinds = {line.partition(":")[0] for line in _lines(kernel, None)}
    assert time.process_time() - start < 500 * unit()
    assert kinds >= {"kprobe", "tracepoint", "software", "hardware", "rawtracepoint"}


@pytest.mark.core
@needs_btf
def test_list_trampolines(kernel: LiveKernel) -> None:
    found = _lines(kernel, "fentry:vfs_*")
    assert "fentry:vmlinux:vfs_read" in found
    assert found == list(dict.fromkeys(found))
    assert _lines(kernel, "fentry:vfs_*,fentry:vfs_read") == found, "place by place"
    assert _lines(kernel, "fexit:vmlinux:vfs_read") == ["fexit:vmlinux:vfs_read"]


def test_every_probe_kind_can_be_listed() -> None:
    from pytrace.core.probe_kinds import PROBE_KINDS

    assert set(listing.LISTED_KINDS) == {row.name for row in PROBE_KINDS}


BAD = "a\udcd4r"
"""A name with a byte that is no UTF-8, as Python has it."""


def test_names_that_are_no_utf8(kernel: LiveKernel) -> None:
    assert not kernel.kernel_functions(BAD)
    assert not kernel.kernel_functions(f"{BAD}*", BAD)
    assert kernel.untraceable_reason(BAD) == "missing"
    assert kernel.function(BAD) is None
    assert kernel.struct("struct", BAD) is None
    assert kernel.enumerator(BAD) is None
    assert kernel.kernel_symbol(BAD) is None
    assert kernel.kernel_function_size(BAD, "") is None
