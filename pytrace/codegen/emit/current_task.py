"""The current task: process and thread ids in pid namespaces, and members of its ``struct task_struct``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from pytrace.codegen.aot import load_time_values
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, I64, Number, Ptr
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import UINT32, UINT64, AddressSpace, Field, Int, Struct

COMM = 16
"""TASK_COMM_LEN of include/linux/sched.h."""

_PLAIN = {"task_struct": ("comm", "cred", "pid", "tgid"), "cred": ("gid", "uid")}
"""Members that are read by plain loads, if the kernel has them all."""

_ONES, _HIGH = 0x0101010101010101, 0x8080808080808080


def has_members(e: Emitter, owners: Mapping[str, Sequence[str]]) -> bool:
    """Whether these members, by struct, can be read by plain loads, starting at ``bpf_get_current_task_btf``.

    One call serves all members of all builtins, and the helpers for single values are slower.
    """
    if e.script.ahead is not None or not e.script.kernel.feature("current_task_btf"):
        return False
    structs = [(e.script.kernel.struct("struct", owner), names) for owner, names in owners.items()]
    return all(struct is not None and struct.find(name) is not None for struct, names in structs for name in names)


def _typed_task(e: Emitter) -> bool:
    return has_members(e, _PLAIN)


def member(e: Emitter, name: str, bits: int, distance: int = 0) -> I64:
    """*bits* at offset *distance* in a member of the current task; requires :func:`has_members`."""
    current = e.b.pointer(e.b.helper(helpers.GET_CURRENT_TASK_BTF))
    return e.b.load(e.b.offset(current, known_field(e, "task_struct", name) + distance), bits)


def user_ids(e: Emitter) -> tuple[Number, Number]:
    """User id and group id."""
    if _typed_task(e):
        credentials = e.b.pointer(member(e, "cred", 64))
        uid, gid = (e.b.offset(credentials, known_field(e, "cred", name)) for name in ("uid", "gid"))
        return e.b.load(uid, 32), e.b.load(gid, 32)
    both = e.b.helper(helpers.GET_CURRENT_UID_GID)
    return e.b.op("and", both, 0xFFFFFFFF), e.b.op("lshr", both, 32)


def write_name(e: Emitter, pointer: Ptr, align: int = 8) -> I64 | None:
    """Write the current task's name to *pointer*, padded with NUL. Returns the result of a helper that can fail."""
    if sys.byteorder != "little" or not _typed_task(e):
        # Kernels before 6.3 do not clear the bytes after the NUL (strscpy), but keys must not differ there.
        memory.zero(e, pointer, COMM, align)
        return e.b.helper(helpers.GET_CURRENT_COMM, pointer, COMM)
    low, ends = _to_nul(e, member(e, "comm", 64))
    high, _ = _to_nul(e, member(e, "comm", 64, 8))
    e.b.store(low, pointer, 64, align)
    e.b.store(e.b.select(ends, 0, high), e.b.offset(pointer, 8), 64, align)
    return None


def _to_nul(e: Emitter, word: I64) -> tuple[I64, I1]:
    """Eight characters with zeros after the first NUL, and whether there is one.

    Kernels before 5.17 leave other bytes after the NUL. The lowest set bit of *marks* is the highest bit of the first
    byte that is zero.
    """
    marks = e.b.op("and", e.b.op("and", e.b.sub(word, _ONES), e.b.op("xor", word, -1)), _HIGH)
    before = e.b.sub(e.b.op("and", marks, e.b.sub(0, marks)), 1)
    return e.b.op("and", word, before), e.b.truth(marks)


def process_ids(e: Emitter, namespace: str) -> tuple[Number, Number]:
    """Process id and thread id, in the ``tracer``'s pid namespace or the ``init``ial one."""
    if e.script.ahead is not None and namespace == "tracer":
        return _any_namespace(e)
    place = e.script.kernel.pid_namespace if namespace == "tracer" else None
    if place is None and _typed_task(e):
        return member(e, "tgid", 32), member(e, "pid", 32)
    if place is None:
        both = e.b.helper(helpers.GET_CURRENT_PID_TGID)
        return e.b.op("lshr", both, 32), e.b.op("and", both, 0xFFFFFFFF)
    # struct bpf_pidns_info: thread id, then process id; zero for tasks outside of the namespace.
    _ids_in(e, place[0], place[1])
    return e.b.load(e.b.offset(e.cell, 4), 32), e.b.load(e.cell, 32)


def _ids_in(e: Emitter, device: Number, inode: Number) -> None:
    """Store thread id and process id in the namespace to the cell."""
    cell = e.cell
    e.b.store(0, cell)
    e.b.helper(helpers.GET_NS_CURRENT_PID_TGID, device, inode, cell, 8)


def _any_namespace(e: Emitter) -> tuple[I64, I64]:
    """Ids if the tracer's namespace is known only at load time: the verifier removes one of the two branches."""
    inode = load_time_values.integer(e, "namespace", ("inode",), 0)
    initial, other, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.icmp("eq", inode, 0), initial, other)
    e.b.start(initial)
    both = e.b.helper(helpers.GET_CURRENT_PID_TGID)
    ids = (e.b.op("lshr", both, 32), e.b.op("and", both, 0xFFFFFFFF))
    first = e.b.current
    e.b.jump(done)
    e.b.start(other)
    _ids_in(e, load_time_values.integer(e, "namespace", ("device",), 0), inode)
    inside = (e.b.load(e.b.offset(e.cell, 4), 32), e.b.load(e.cell, 32))
    second = e.b.current
    e.b.jump(done)
    e.b.start(done)
    process, thread = (e.b.phi([(a, first), (b, second)]) for a, b in zip(ids, inside, strict=True))
    return process, thread


def task_field(e: Emitter, name: str) -> Number:
    """Offset of a member of ``struct task_struct``."""
    return kernel_field(e, "task_struct", name)


def kernel_field(e: Emitter, owner: str, name: str) -> Number:
    """Offset of a member of one of the kernel's structs."""
    return load_time_values.struct_offset(e, _struct_with(e, owner, name)[0], name)


def known_field(e: Emitter, owner: str, name: str) -> int:
    """As :func:`kernel_field`, for code that is not compiled ahead of time."""
    return _struct_with(e, owner, name)[1].offset


def _struct_with(e: Emitter, owner: str, name: str) -> tuple[Struct, Field]:
    struct = e.script.kernel.struct("struct", owner)
    member = None if struct is None else struct.find(name)
    if struct is None or member is None:
        raise TraceError(f"this needs the kernel's type information (BTF) of struct {owner}")
    return struct, member


def network_namespace(e: Emitter) -> Number:
    """Inode of the current task's network namespace."""
    return namespace_of(e, e.b.helper(helpers.GET_CURRENT_TASK))


def namespace_of(e: Emitter, address: Number) -> Number:
    """Inode of a task's network namespace; 0 for an exiting task, which has left its namespaces."""
    for owner, name in (("task_struct", "nsproxy"), ("nsproxy", "net_ns")):
        address = _read(e, e.b.add(address, kernel_field(e, owner, name)), UINT64)
    address = e.b.add(address, kernel_field(e, "net", "ns"))
    return _read(e, e.b.add(address, kernel_field(e, "ns_common", "inum")), UINT32)


def read_word(e: Emitter, address: Number) -> Number:
    """A 64-bit word of kernel memory; 0 on a fault."""
    return _read(e, address, UINT64)


def _read(e: Emitter, address: Number, type_: Int) -> Number:
    return memory.read_scalar(e, address, type_, AddressSpace.KERNEL).value
