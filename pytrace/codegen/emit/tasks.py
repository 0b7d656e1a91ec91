"""Tasks for process filters: properties of the current task, by helpers, or of another one, from its memory, and
comparisons with the values of filters in the session data.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from pytrace.codegen.aot import load_time_values
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.current_task import (
    COMM,
    kernel_field,
    namespace_of,
    process_ids,
    task_field,
    user_ids,
    write_name,
)
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, Number, Ptr, global_pointer
from pytrace.codegen.storage.data_sections import SESSION
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, UINT32, UINT64, AddressSpace, Array, Int, Struct

LEVELS = 8
"""Maximum depth of pid namespaces that is searched; 32 is the kernel's limit (MAX_PID_NS_LEVEL), 2 or 3 are usual."""


class Task(Protocol):
    """A task to which filters are applied."""

    def process(self, namespace: str) -> Number:
        """Process id in the ``tracer``'s pid namespace (0 outside of it) or in the ``init``ial one."""

    def user(self) -> Number:
        """Its user id."""

    def name(self, place: Ptr) -> None:
        """Write the name to *place*, :data:`COMM` zeroed bytes."""

    def cgroup(self, depth: Number) -> Number:
        """Id of the ancestor cgroup at this depth; 0 if the task's cgroup is not that deep."""

    def network_namespace(self) -> Number:
        """Inode of its network namespace."""


class CurrentTask(msgspec.Struct, frozen=True):
    """The task in whose context the program runs."""

    e: Emitter

    def process(self, namespace: str) -> Number:
        """Its process id."""
        return process_ids(self.e, namespace)[0]

    def user(self) -> Number:
        """Its user id."""
        return user_ids(self.e)[0]

    def name(self, place: Ptr) -> None:
        """Write its name."""
        write_name(self.e, place)

    def cgroup(self, depth: Number) -> Number:
        """Id of its cgroup at this depth."""
        return self.e.b.helper(helpers.GET_CURRENT_ANCESTOR_CGROUP_ID, depth)

    def network_namespace(self) -> Number:
        """Inode of its network namespace."""
        return namespace_of(self.e, self.e.b.helper(helpers.GET_CURRENT_TASK))


class OtherTask(msgspec.Struct, frozen=True):
    """The task whose ``struct task_struct`` is at *address*."""

    e: Emitter
    address: Number

    def process(self, namespace: str) -> Number:
        """Its process id."""
        e = self.e
        outside = self._member(self.address, "task_struct", "tgid", INT32)
        if namespace != "tracer":
            return outside
        if e.script.ahead is not None:
            inode: Number = load_time_values.integer(e, "namespace", ("inode",), 0)
            return e.b.select(e.b.icmp("eq", inode, 0), outside, self._process_in(inode))
        place = e.script.kernel.pid_namespace
        return outside if place is None else self._process_in(place[1])

    def _process_in(self, inode: Number) -> Number:
        """Process id in the pid namespace with this inode (``task_tgid_nr_ns``, kernel/pid.c); 0 outside of it."""
        e = self.e
        leader = self._member(self.address, "task_struct", "group_leader", UINT64)
        pid = self._member(leader, "task_struct", "thread_pid", UINT64)
        level = self._member(pid, "pid", "level", UINT32)
        struct = e.script.kernel.struct("struct", "pid")
        numbers = None if struct is None else struct.find("numbers")
        upid = None if numbers is None or not isinstance(numbers.type, Array) else numbers.type.element
        if struct is None or not isinstance(upid, Struct):
            raise TraceError("this needs the kernel's type information (BTF) of struct pid")
        result: Number = 0
        for depth in range(LEVELS):
            place = e.b.add(e.b.add(pid, load_time_values.struct_offset(e, struct, "numbers")), depth * upid.size)
            space = self._read(e.b.add(place, load_time_values.struct_offset(e, upid, "ns")), UINT64)
            common = e.b.add(space, kernel_field(e, "pid_namespace", "ns"))
            same = e.b.icmp("eq", self._member(common, "ns_common", "inum", UINT32), inode)
            number = self._read(e.b.add(place, load_time_values.struct_offset(e, upid, "nr")), INT32)
            result = e.b.select(e.b.both(same, e.b.icmp("uge", level, depth)), number, result)
        return result

    def user(self) -> Number:
        """Its user id."""
        credentials = self._member(self.address, "task_struct", "cred", UINT64)
        return self._member(credentials, "cred", "uid", UINT32)

    def name(self, place: Ptr) -> None:
        """Write the name, without bytes after its NUL."""
        e = self.e
        e.b.helper(helpers.PROBE_READ_KERNEL_STR, place, COMM, e.b.add(self.address, task_field(e, "comm")))

    def cgroup(self, depth: Number) -> Number:
        """Id of its cgroup at this depth."""
        e = self.e
        sets = self._member(self.address, "task_struct", "cgroups", UINT64)
        own = self._member(sets, "css_set", "dfl_cgrp", UINT64)
        level = self._member(own, "cgroup", "level", UINT32)
        distance = e.b.mul(depth, 8)
        struct = e.script.kernel.struct("struct", "cgroup")
        # Before Linux 6.1 a cgroup had the ids of its ancestors, since then pointers to them.
        if struct is not None and struct.find("ancestors") is None:
            ancestor = self._read(e.b.add(e.b.add(own, kernel_field(e, "cgroup", "ancestor_ids")), distance), UINT64)
        else:
            above = self._read(e.b.add(e.b.add(own, kernel_field(e, "cgroup", "ancestors")), distance), UINT64)
            node = self._member(above, "cgroup", "kn", UINT64)
            ancestor = self._member(node, "kernfs_node", "id", UINT64)
        return e.b.select(e.b.icmp("uge", level, depth), ancestor, 0)

    def network_namespace(self) -> Number:
        """Inode of its network namespace."""
        return namespace_of(self.e, self.address)

    def _member(self, address: Number, owner: str, name: str, type_: Int) -> Number:
        return self._read(self.e.b.add(address, kernel_field(self.e, owner, name)), type_)

    def _read(self, address: Number, type_: Int) -> Number:
        return memory.read_scalar(self.e, address, type_, AddressSpace.KERNEL).value


# ---------------------------------------------------------------------------------------------- values of filters


def is_any_of(e: Emitter, value: Number, offset: int, count: int) -> I1:
    """Whether *value* is one of the *count* numbers at the offset *offset* of the values."""
    same: Number = 0
    for number in range(count):
        candidate = e.b.load(e.session(SESSION.filters + offset + 8 * number))
        same = e.b.op("or", same, e.b.number(e.b.icmp("eq", value, candidate)))
    return e.b.truth(same)


def is_named(e: Emitter, task: Task, offset: int, count: int) -> I1:
    """Whether *task* has one of the *count* names at the offset *offset* of the values."""
    name = e.b.alloca(COMM)
    # Kernels before 6.3 do not clear the bytes after the NUL (strscpy).
    memory.zero(e, name, COMM, 8)
    task.name(name)
    low, high = e.b.load(name), e.b.load(e.b.offset(name, 8))
    different: Number | None = None
    for number in range(count):
        place = SESSION.filters + offset + COMM * number
        one = e.b.op("xor", low, e.b.load(e.session(place)))
        other = e.b.op("xor", high, e.b.load(e.session(place + 8)))
        differs = e.b.number(e.b.truth(e.b.op("or", one, other)))
        different = differs if different is None else e.b.op("and", different, differs)
    return e.b.icmp("eq", different or 0, 0)


def is_in_map(e: Emitter, number: Number, name: str) -> I1:
    """Whether the 32-bit *number* is a key of the map *name*."""
    e.b.store(number, e.cell, 32)
    missing = e.b.number(e.b.is_null(e.b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(name), e.cell)))
    return e.b.icmp("eq", missing, 0)
