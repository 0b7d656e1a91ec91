"""The current task: process and thread ids in pid namespaces, and members of its ``struct task_struct``."""

from __future__ import annotations

from pytrace.codegen.aot import load_time_values
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Number
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import UINT32, UINT64, AddressSpace, Int


def process_ids(e: Emitter, namespace: str) -> tuple[I64, I64]:
    """Process id and thread id, in the ``tracer``'s pid namespace or the ``init``ial one."""
    if e.script.ahead is not None and namespace == "tracer":
        return _any_namespace(e)
    place = e.script.kernel.pid_namespace if namespace == "tracer" else None
    if place is None:
        both = e.b.helper(helpers.GET_CURRENT_PID_TGID)
        return e.b.op("lshr", both, 32), e.b.op("and", both, 0xFFFFFFFF)
    # struct bpf_pidns_info: thread id, then process id; zero for tasks outside of the namespace.
    _ids_in(e, place[0], place[1])
    return e.b.load(e.b.offset(e.cell, 4), 32), e.b.load(e.cell, 32)


def _ids_in(e: Emitter, device: Number, inode: Number) -> None:
    """Store thread and process id in the namespace to the cell."""
    cell = e.cell
    e.b.store(0, cell)
    e.b.helper(helpers.GET_NS_CURRENT_PID_TGID, device, inode, cell, 8)


def _any_namespace(e: Emitter) -> tuple[I64, I64]:
    """Ids if the tracer's namespace is known at load time only: the verifier removes one of the two branches."""
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
    struct = e.script.kernel.struct("struct", owner)
    if struct is None or struct.find(name) is None:
        raise TraceError(f"this needs the kernel's type information (BTF) of struct {owner}")
    return load_time_values.struct_offset(e, struct, name)


def network_namespace(e: Emitter) -> Number:
    """Inode of the current task's network namespace."""
    return namespace_of(e, e.b.helper(helpers.GET_CURRENT_TASK))


def namespace_of(e: Emitter, address: Number) -> Number:
    """Inode of the network namespace of a task; 0 for one that has left its namespaces (it exits)."""
    for owner, name in (("task_struct", "nsproxy"), ("nsproxy", "net_ns")):
        address = _read(e, e.b.add(address, kernel_field(e, owner, name)), UINT64)
    address = e.b.add(address, kernel_field(e, "net", "ns"))
    return _read(e, e.b.add(address, kernel_field(e, "ns_common", "inum")), UINT32)


def read_word(e: Emitter, address: Number) -> Number:
    """A 64-bit word of the kernel's memory; 0 where there is none."""
    return _read(e, address, UINT64)


def _read(e: Emitter, address: Number, type_: Int) -> Number:
    return memory.read_scalar(e, address, type_, AddressSpace.KERNEL).value
