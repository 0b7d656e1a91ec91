"""Tasks: the current one, others, and comparisons with the values of process filters in the session data."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from pytrace.codegen.emit.program import SESSION, Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, UINT32, UINT64, AddressSpace, Array, Field, Int, Struct

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


COMM = 16
"""TASK_COMM_LEN of include/linux/sched.h."""

_PLAIN = {"task_struct": ("comm", "cred", "pid", "tgid"), "cred": ("gid", "uid")}
"""Members that are read by plain loads, if the kernel has them all."""

_ONES, _HIGH = 0x0101010101010101, 0x8080808080808080

LEVELS = 8
"""Maximum depth of pid namespaces that is searched; 32 is the kernel's limit (MAX_PID_NS_LEVEL), 2 or 3 are usual."""


class CurrentTask(msgspec.Struct, frozen=True):
    """The task in whose context the program runs."""

    e: Emitter

    def process(self, namespace: str) -> Number:
        """Its process id in the ``tracer``'s pid namespace (0 outside of it) or in the ``init``ial one."""
        return self.e.tasks.process_ids(namespace)[0]

    def user(self) -> Number:
        """Its user id."""
        return self.e.tasks.user_ids()[0]

    def name(self, place: Ptr) -> None:
        """Write its name to *place*, :data:`COMM` zeroed bytes."""
        self.e.tasks.write_name(place)

    def cgroup(self, depth: Number) -> Number:
        """Id of its ancestor cgroup at this depth; 0 if its cgroup is not that deep."""
        return self.e.b.helper(helpers.GET_CURRENT_ANCESTOR_CGROUP_ID, depth)

    def network_namespace(self) -> Number:
        """Inode of its network namespace."""
        return self.e.tasks.namespace_of(self.e.b.helper(helpers.GET_CURRENT_TASK))


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
            inode: Number = e.load_time.integer("namespace", ("inode",), 0)
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
            place = e.b.add(e.b.add(pid, e.load_time.struct_offset(struct, "numbers")), depth * upid.size)
            space = self._read(e.b.add(place, e.load_time.struct_offset(upid, "ns")), UINT64)
            common = e.b.add(space, e.tasks.kernel_field("pid_namespace", "ns"))
            same = e.b.icmp("eq", self._member(common, "ns_common", "inum", UINT32), inode)
            number = self._read(e.b.add(place, e.load_time.struct_offset(upid, "nr")), INT32)
            result = e.b.select(e.b.both(same, e.b.icmp("uge", level, depth)), number, result)
        return result

    def user(self) -> Number:
        """Its user id."""
        credentials = self._member(self.address, "task_struct", "cred", UINT64)
        return self._member(credentials, "cred", "uid", UINT32)

    def name(self, place: Ptr) -> None:
        """Write the name, without bytes after its NUL."""
        e = self.e
        e.b.helper(helpers.PROBE_READ_KERNEL_STR, place, COMM, e.b.add(self.address, e.tasks.task_field("comm")))

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
            ancestor = self._read(
                e.b.add(e.b.add(own, e.tasks.kernel_field("cgroup", "ancestor_ids")), distance), UINT64
            )
        else:
            above = self._read(e.b.add(e.b.add(own, e.tasks.kernel_field("cgroup", "ancestors")), distance), UINT64)
            node = self._member(above, "cgroup", "kn", UINT64)
            ancestor = self._member(node, "kernfs_node", "id", UINT64)
        return e.b.select(e.b.icmp("uge", level, depth), ancestor, 0)

    def network_namespace(self) -> Number:
        """Inode of its network namespace."""
        return self.e.tasks.namespace_of(self.address)

    def _member(self, address: Number, owner: str, name: str, type_: Int) -> Number:
        return self._read(self.e.b.add(address, self.e.tasks.kernel_field(owner, name)), type_)

    def _read(self, address: Number, type_: Int) -> Number:
        return self.e.foreign.read_scalar(address, type_, AddressSpace.KERNEL).value


Task = CurrentTask | OtherTask
"""A task to which filters are applied."""


class Tasks(Part):
    """Reads the current task, and applies filters to tasks."""

    def has_members(self, owners: Mapping[str, Sequence[str]]) -> bool:
        """Whether these members, by struct, can be read by plain loads, starting at ``bpf_get_current_task_btf``.

        One call serves all members of all builtins, and the helpers for single values are slower.
        """
        if self.script.ahead is not None or not self.script.kernel.feature("current_task_btf"):
            return False
        for owner, names in owners.items():
            struct = self.script.kernel.struct("struct", owner)
            if struct is None or any(struct.find(name) is None for name in names):
                return False
        return True

    def member(self, name: str, bits: int, distance: int = 0) -> I64:
        """*bits* at offset *distance* in a member of the current task; requires :func:`has_members`."""
        current = self.b.pointer(self.b.helper(helpers.GET_CURRENT_TASK_BTF))
        return self.b.load(self.b.offset(current, self.known_field("task_struct", name) + distance), bits)

    def pointer_member(self, name: str) -> Number:
        """A member of the current task that is a pointer, as a number, for code that runs seldom.

        To verify its plain load takes the kernel two milliseconds each time, as it looks for the member's type in all
        of its own (``btf_nested_type_is_trusted``, kernel/bpf/btf.c). The helper takes a few nanoseconds.
        """
        return self.read_word(self.b.add(self.b.helper(helpers.GET_CURRENT_TASK), self.task_field(name)))

    def user_ids(self) -> tuple[Number, Number]:
        """User id and group id."""
        if self.has_members(_PLAIN):
            credentials = self.b.pointer(self.member("cred", 64))
            uid, gid = (self.b.offset(credentials, self.known_field("cred", name)) for name in ("uid", "gid"))
            return self.b.load(uid, 32), self.b.load(gid, 32)
        both = self.b.helper(helpers.GET_CURRENT_UID_GID)
        return self.b.op("and", both, 0xFFFFFFFF), self.b.op("lshr", both, 32)

    def write_name(self, pointer: Ptr, align: int = 8) -> I64 | None:
        """Write the current task's name to *pointer*, padded with NUL. Returns the result of a helper that can fail."""
        if sys.byteorder != "little" or not self.has_members(_PLAIN):
            # Kernels before 6.3 do not clear the bytes after the NUL (strscpy), but keys must not differ there.
            self.e.memory.zero(pointer, COMM, align)
            return self.b.helper(helpers.GET_CURRENT_COMM, pointer, COMM)
        low, ends = self._to_nul(self.member("comm", 64))
        high, _ = self._to_nul(self.member("comm", 64, 8))
        self.b.store(low, pointer, 64, align)
        self.b.store(self.b.select(ends, 0, high), self.b.offset(pointer, 8), 64, align)
        return None

    def _to_nul(self, word: I64) -> tuple[I64, I1]:
        """Eight characters with zeros after the first NUL, and whether there is one.

        Kernels before 5.17 leave other bytes after the NUL. The lowest set bit of *marks* is the highest bit of
        the first byte that is zero.
        """
        marks = self.b.op("and", self.b.op("and", self.b.sub(word, _ONES), self.b.op("xor", word, -1)), _HIGH)
        before = self.b.sub(self.b.op("and", marks, self.b.sub(0, marks)), 1)
        return self.b.op("and", word, before), self.b.truth(marks)

    def process_ids(self, namespace: str) -> tuple[Number, Number]:
        """Process id and thread id, in the ``tracer``'s pid namespace or the ``init``ial one."""
        if self.script.ahead is not None and namespace == "tracer":
            return self._any_namespace()
        place = self.script.kernel.pid_namespace if namespace == "tracer" else None
        if place is None and self.has_members(_PLAIN):
            return self.member("tgid", 32), self.member("pid", 32)
        if place is None:
            both = self.b.helper(helpers.GET_CURRENT_PID_TGID)
            return self.b.op("lshr", both, 32), self.b.op("and", both, 0xFFFFFFFF)
        # struct bpf_pidns_info: thread id, then process id; zero for tasks outside of the namespace.
        self._ids_in(place[0], place[1])
        return self.b.load(self.b.offset(self.e.cell, 4), 32), self.b.load(self.e.cell, 32)

    def _ids_in(self, device: Number, inode: Number) -> None:
        """Store thread id and process id in the namespace to the cell."""
        cell = self.e.cell
        self.b.store(0, cell)
        self.b.helper(helpers.GET_NS_CURRENT_PID_TGID, device, inode, cell, 8)

    def _any_namespace(self) -> tuple[I64, I64]:
        """Ids if the tracer's namespace is known only at load time: the verifier removes one of the two branches."""
        inode = self.e.load_time.integer("namespace", ("inode",), 0)
        initial, other, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.icmp("eq", inode, 0), initial, other)
        self.b.start(initial)
        both = self.b.helper(helpers.GET_CURRENT_PID_TGID)
        ids = (self.b.op("lshr", both, 32), self.b.op("and", both, 0xFFFFFFFF))
        first = self.b.current
        self.b.jump(done)
        self.b.start(other)
        self._ids_in(self.e.load_time.integer("namespace", ("device",), 0), inode)
        inside = (self.b.load(self.b.offset(self.e.cell, 4), 32), self.b.load(self.e.cell, 32))
        second = self.b.current
        self.b.jump(done)
        self.b.start(done)
        process, thread = (self.b.phi([(a, first), (b, second)]) for a, b in zip(ids, inside, strict=True))
        return process, thread

    def task_field(self, name: str) -> Number:
        """Offset of a member of ``struct task_struct``."""
        return self.kernel_field("task_struct", name)

    def kernel_field(self, owner: str, name: str) -> Number:
        """Offset of a member of one of the kernel's structs."""
        return self.e.load_time.struct_offset(self._struct_with(owner, name)[0], name)

    def known_field(self, owner: str, name: str) -> int:
        """As :func:`kernel_field`, for code that is not compiled ahead of time."""
        return self._struct_with(owner, name)[1].offset

    def _struct_with(self, owner: str, name: str) -> tuple[Struct, Field]:
        struct = self.script.kernel.struct("struct", owner)
        member = None if struct is None else struct.find(name)
        if struct is None or member is None:
            raise TraceError(f"this needs the kernel's type information (BTF) of struct {owner}")
        return struct, member

    def network_namespace(self) -> Number:
        """Inode of the current task's network namespace."""
        return self.namespace_of(self.b.helper(helpers.GET_CURRENT_TASK))

    def namespace_of(self, address: Number) -> Number:
        """Inode of a task's network namespace; 0 for an exiting task, which has left its namespaces."""
        for owner, name in (("task_struct", "nsproxy"), ("nsproxy", "net_ns")):
            address = self._read(self.b.add(address, self.kernel_field(owner, name)), UINT64)
        address = self.b.add(address, self.kernel_field("net", "ns"))
        return self._read(self.b.add(address, self.kernel_field("ns_common", "inum")), UINT32)

    def read_word(self, address: Number) -> Number:
        """A 64-bit word of kernel memory; 0 on a fault."""
        return self._read(address, UINT64)

    def _read(self, address: Number, type_: Int) -> Number:
        return self.e.foreign.read_scalar(address, type_, AddressSpace.KERNEL).value

    # ---------------------------------------------------------------------------------------------- values of filters

    def is_own(self, process: Number, *places: int) -> I1:
        """Whether a process is the tracer (place 0), or one of its live view (4 and 8)."""
        same: Number = 0
        for place in places:
            own = self.b.load(self.e.session(SESSION.own + place), 32)
            same = self.b.op("or", same, self.b.number(self.b.icmp("eq", process, own)))
        return self.b.truth(same)

    def is_any_of(self, value: Number, offset: int, count: int) -> I1:
        """Whether *value* is one of the *count* numbers at the offset *offset* of the values."""
        different: Number = 1
        for number in range(count):
            candidate = self.b.load(self.e.session(SESSION.filters + offset + 8 * number))
            different = self.b.op("and", different, self.b.nonzero(self.b.op("xor", value, candidate)))
        return self.b.icmp("eq", different, 0)

    def is_named(self, task: Task, offset: int, count: int) -> I1:
        """Whether *task* has one of the *count* names at the offset *offset* of the values."""
        name = self.b.alloca(COMM)
        # Kernels before 6.3 do not clear the bytes after the NUL (strscpy).
        self.e.memory.zero(name, COMM, 8)
        task.name(name)
        low, high = self.b.load(name), self.b.load(self.b.offset(name, 8))
        different: Number = 1
        for number in range(count):
            place = SESSION.filters + offset + COMM * number
            one = self.b.op("xor", low, self.b.load(self.e.session(place)))
            other = self.b.op("xor", high, self.b.load(self.e.session(place + 8)))
            different = self.b.op("and", different, self.b.nonzero(self.b.op("or", one, other)))
        return self.b.icmp("eq", different, 0)

    def is_in_map(self, number: Number, name: str) -> I1:
        """Whether the 32-bit *number* is a key of the map *name*."""
        self.b.store(number, self.e.cell, 32)
        missing = self.b.number(
            self.b.is_null(self.b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(name), self.e.cell))
        )
        return self.b.icmp("eq", missing, 0)
