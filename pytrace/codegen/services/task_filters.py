"""``in_scope_task(task)``: the filters of processes for any task, by its ``struct task_struct``.

What :mod:`pytrace.codegen.services.process_filters` asks helper functions about the current task is read from the
kernel's structs here.
"""

from __future__ import annotations

from pytrace.codegen.aot import load_time_values
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.current_task import kernel_field
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, Number
from pytrace.codegen.services import process_following
from pytrace.codegen.services.wanted_values import is_any_of, is_in_map, is_one_name
from pytrace.codegen.storage.data_sections import SESSION
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.process_filters import COMM, PROCESS_MAP, UNROLLED
from pytrace.core.types import INT32, UINT32, UINT64, AddressSpace, Array, Int, Struct

DEEPEST = 4
"""Pid namespaces are nested at most 32 deep (MAX_PID_NS_LEVEL); a tracer inside of more than these finds no task."""


def in_scope_task(e: Emitter, task: Number) -> Number:
    """Whether *task*, the address of a ``struct task_struct``, passes all filters of the run: 1 or 0."""
    options = e.script.options
    shape = options.shape
    chosen: list[I1] = []
    if options.follow:
        chosen.append(_followed(e, task))
    elif shape.pids or e.script.ahead is not None:
        chosen.append(_wanted_process(e, task))
    if shape.uids:
        user = _read(e, _member(e, task, "task_struct", "cred"), "cred", "uid", UINT32)
        chosen.append(is_any_of(e, user, shape.uids_at, shape.uids))
    if shape.comms:
        chosen.append(_named(e, task))
    if shape.cgroups:
        chosen.append(_in_cgroup(e, task))
    if shape.namespaces:
        chosen.append(is_any_of(e, _network_namespace(e, task), shape.namespaces_at, shape.namespaces))
    result: Number = 1
    for held in chosen:
        result = e.b.op("and", result, e.b.number(held))
    return result


def _wanted_process(e: Emitter, task: Number) -> I1:
    process, count = _process(e, task), e.script.options.shape.pids
    if count > UNROLLED:
        return is_in_map(e, process, PROCESS_MAP)
    if e.script.ahead is not None and count < 2:
        wanted = load_time_values.integer(e, "pid", (), 0)
        any_ = e.b.number(e.b.icmp("eq", wanted, 0))
        return e.b.truth(e.b.op("or", any_, e.b.number(e.b.icmp("eq", process, wanted))))
    return is_any_of(e, process, 0, count)


def _followed(e: Emitter, task: Number) -> I1:
    """As :func:`pytrace.codegen.services.process_following.check`."""
    process, count = _process(e, task), e.script.options.shape.pids
    if count < 2:
        itself = e.b.icmp("eq", process, e.b.load(e.session(SESSION.root)))
    elif count > UNROLLED:
        itself = is_in_map(e, process, PROCESS_MAP)
    else:
        itself = is_any_of(e, process, 0, count)
    number = e.b.number(itself)
    follows = e.b.number(is_in_map(e, _read(e, task, "task_struct", "tgid", UINT32), process_following.MAP))
    return e.b.truth(e.b.op("or", number, follows))


def _process(e: Emitter, task: Number) -> Number:
    """Process id in the tracer's pid namespace; 0 outside of it. Ahead-of-time files see the initial namespace."""
    place = None if e.script.ahead is not None else e.script.kernel.pid_namespace
    if place is None:
        return _read(e, task, "task_struct", "tgid", UINT32)
    struct = e.script.kernel.struct("struct", "pid")
    numbers = None if struct is None else struct.find("numbers")
    upid = numbers.type.element if numbers is not None and isinstance(numbers.type, Array) else None
    if not isinstance(upid, Struct):
        raise TraceError("in_scope_task() needs the kernel's type information (BTF) of struct pid")
    pid = _member(e, _member(e, task, "task_struct", "group_leader"), "task_struct", "thread_pid")
    level = _read(e, pid, "pid", "level", UINT32)
    first = e.b.add(pid, kernel_field(e, "pid", "numbers"))
    found: Number = 0
    for depth in range(1, DEEPEST + 1):
        entry = e.b.add(first, depth * upid.size)
        namespace = e.b.add(_member(e, entry, "upid", "ns"), kernel_field(e, "pid_namespace", "ns"))
        same = e.b.icmp("eq", _read(e, namespace, "ns_common", "inum", UINT32), place[1])
        here = e.b.op("and", e.b.number(same), e.b.number(e.b.icmp("uge", level, depth)))
        found = e.b.select(e.b.truth(here), _read(e, entry, "upid", "nr", UINT32), found)
    return found


def _named(e: Emitter, task: Number) -> I1:
    shape = e.script.options.shape
    name = e.b.alloca(COMM)
    memory.zero(e, name, COMM, 8)
    e.b.helper(helpers.PROBE_READ_KERNEL_STR, name, COMM, e.b.add(task, kernel_field(e, "task_struct", "comm")))
    return is_one_name(e, name, shape.comms_at, shape.comms)


def _in_cgroup(e: Emitter, task: Number) -> I1:
    """The task's cgroup, or one above it, is a wanted one (``cgroup_ancestor``, include/linux/cgroup.h).

    Kernels before 6.1 keep the ids of the cgroups above, later ones the cgroups.
    """
    shape = e.script.options.shape
    group = _member(e, _member(e, task, "task_struct", "cgroups"), "css_set", "dfl_cgrp")
    level = _read(e, group, "cgroup", "level", INT32)
    struct = e.script.kernel.struct("struct", "cgroup")
    by_id = struct is not None and struct.find("ancestor_ids") is not None
    above = e.b.add(group, kernel_field(e, "cgroup", "ancestor_ids" if by_id else "ancestors"))
    same: Number = 0
    for number in range(shape.cgroups):
        place = SESSION.filters + shape.cgroups_at + 16 * number
        depth = e.b.load(e.session(place))
        inside = e.b.number(e.b.icmp("ule", depth, level))
        found = _scalar(e, e.b.add(above, e.b.mul(depth, 8)), UINT64)
        if not by_id:
            found = _read(e, _member(e, found, "cgroup", "kn"), "kernfs_node", "id", UINT64)
        equal = e.b.number(e.b.icmp("eq", found, e.b.load(e.session(place + 8))))
        same = e.b.op("or", same, e.b.op("and", inside, equal))
    return e.b.truth(same)


def _network_namespace(e: Emitter, task: Number) -> Number:
    net = _member(e, _member(e, task, "task_struct", "nsproxy"), "nsproxy", "net_ns")
    return _read(e, e.b.add(net, kernel_field(e, "net", "ns")), "ns_common", "inum", UINT32)


def _member(e: Emitter, address: Number, owner: str, name: str) -> Number:
    """A pointer in a kernel struct."""
    return _read(e, address, owner, name, UINT64)


def _read(e: Emitter, address: Number, owner: str, name: str, type_: Int) -> Number:
    return _scalar(e, e.b.add(address, kernel_field(e, owner, name)), type_)


def _scalar(e: Emitter, address: Number, type_: Int) -> Number:
    return memory.read_scalar(e, address, type_, AddressSpace.KERNEL).value
