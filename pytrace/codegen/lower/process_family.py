"""Builtins about the current task, CPU and cgroup; clocks."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit.program import SESSION
from pytrace.codegen.emit.tasks import COMM, CurrentTask, OtherTask
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Made, Number, Operand, Ptr, Remote, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.walkers.program_filters import Filters
from pytrace.core.builtins import IN_SCOPE
from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import RuntimeFailure
from pytrace.core.types import INT32, UINT64, AddressSpace, CgroupPath, Pointer, String, Timestamp
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CgroupFilter, Clock, DateFormat, PidNamespace

Node = nodes.Call | nodes.Identifier


def _plain(helper: helpers.Helper[[], I64]) -> Callable[..., Operand]:
    def emit(family: ProcessBuiltins, node: Node) -> Operand:
        e = family.e
        return Scalar(e.memory.fit(e.b.helper(helper), e.type(node)), e.type(node))

    return emit


def _related_number(link: str, member: str) -> Callable[..., Operand]:
    def emit(family: ProcessBuiltins, node: Node) -> Operand:
        e = family.e
        address = e.b.add(family._related(node, link), e.tasks.task_field(member))
        return Scalar(e.foreign.read_scalar(address, INT32, AddressSpace.KERNEL).value, e.type(node))

    return emit


def _related_comm(link: str) -> Callable[..., Operand]:
    def emit(family: ProcessBuiltins, node: Node) -> Operand:
        e = family.e
        address = e.b.add(family._related(node, link), e.tasks.task_field("comm"))
        return Remote(address, String(COMM), AddressSpace.KERNEL)

    return emit


class ProcessBuiltins(Builtins):
    """The current task, CPU and cgroup."""

    @handles_names("pid")
    def _pid(self, node: Node) -> Operand:
        return Scalar(self.e.tasks.process_ids(self.checked.fact(node, PidNamespace).name)[0], self.e.type(node))

    @handles_names("tid")
    def _tid(self, node: Node) -> Operand:
        return Scalar(self.e.tasks.process_ids(self.checked.fact(node, PidNamespace).name)[1], self.e.type(node))

    @handles_names("uid")
    def _uid(self, node: Node) -> Operand:
        return Scalar(self.e.tasks.user_ids()[0], self.e.type(node))

    @handles_names("gid")
    def _gid(self, node: Node) -> Operand:
        return Scalar(self.e.tasks.user_ids()[1], self.e.type(node))

    @handles_names("username")
    def _username(self, node: Node) -> Operand:
        uid = self.e.tasks.user_ids()[0]
        return Made(self.e.type(node), lambda pointer, _align: self.b.store(uid, pointer))

    @handles_names("netns")
    def _netns(self, node: Node) -> Operand:
        inode = self.e.tasks.network_namespace()
        return Made(self.e.type(node), lambda pointer, _align: self.b.store(inode, pointer))

    @handles_names("comm")
    def _comm(self, node: Node) -> Operand:
        if isinstance(node, nodes.Call) and node.args:
            return self._comm_of(node)

        def write(pointer: Ptr, align: int) -> None:
            error = self.e.tasks.write_name(pointer, align)
            if error is not None:
                self.e.events.check_helper(node, "bpf_get_current_comm", error)

        return Made(self.e.type(node), write)

    def _comm_of(self, node: nodes.Call) -> Operand:
        """Name of another task, by ``bpf_task_from_pid`` (kernel/bpf/helpers.c); empty if there is no such task."""
        argument = node.args[0]
        type_ = self.e.type(node)
        if not isinstance(argument, nodes.Expr):
            raise InternalError("comm takes a process id")
        number = self.e.number(argument)

        def write(pointer: Ptr, align: int) -> None:
            self.e.memory.zero(pointer, type_.size, align)
            if self.script.ahead is not None:
                self.script.ahead.rely("kfunc", "bpf_task_from_pid", 1)
            self.module.kernel_function("bpf_task_from_pid", ("int",), "task_struct")
            self.module.kernel_function("bpf_task_release", ("task_struct",), "void")
            task = self.b.kernel_object("bpf_task_from_pid", number)
            with self.b.unless(self.b.is_null(task)):
                address = self.b.add(self.b.address(task), self.e.tasks.task_field("comm"))
                self.b.helper(helpers.PROBE_READ_KERNEL, pointer, COMM, address)
                self.b.release("bpf_task_release", task)

        return Made(type_, write)

    @handles_names("cpu")
    def _cpu(self, node: Node) -> Operand:
        return Scalar(self.e.cpu, self.e.type(node))

    @handles_names("curtask")
    def _curtask(self, node: Node) -> Operand:
        type_ = self.e.type(node)
        if isinstance(type_, Pointer) and type_.trusted:
            return Scalar(self.b.helper(helpers.GET_CURRENT_TASK_BTF), type_, direct=True)
        return Scalar(self.b.helper(helpers.GET_CURRENT_TASK), type_)

    @handles_names("user_registers")
    def _user_registers(self, node: Node) -> Operand:
        task = self.b.helper(helpers.GET_CURRENT_TASK_BTF)
        return Scalar(self.b.helper(helpers.TASK_PT_REGS, task), self.e.type(node), direct=True)

    @handles_names(IN_SCOPE)
    def _in_scope(self, node: Node) -> Operand:
        has_argument = isinstance(node, nodes.Call) and node.args
        task = OtherTask(self.e, self._task(node)) if has_argument else CurrentTask(self.e)
        return Scalar(Filters(self.e).in_scope(task), self.e.type(node))

    @handles_names("cpid")
    def _cpid(self, node: Node) -> Operand:
        # An ahead-of-time file may check has_cpid at run time; otherwise such code is removed when there is no child.
        if not any(item.what == "child" for item in self.checked.loaded.values()):
            self.checked.report(node, RuntimeFailure("no_child"))
        return Scalar(self.b.load(self.e.session(SESSION.cpid)), self.e.type(node))

    # ---------------------------------------------------------------------------------------------- other tasks

    def _task(self, node: Node) -> Number:
        if isinstance(node, nodes.Call) and node.args and isinstance(node.args[0], nodes.Expr):
            return self.e.number(node.args[0])
        return self.b.helper(helpers.GET_CURRENT_TASK)

    def _related(self, node: Node, link: str) -> Number:
        address = self.b.add(self._task(node), self.e.tasks.task_field(link))
        return self.e.foreign.read_scalar(address, UINT64, AddressSpace.KERNEL).value

    @handles_names("cgroup_path")
    def _cgroup_path(self, node: nodes.Call) -> Operand:
        if not isinstance(node.args[0], nodes.Expr):
            raise InternalError("cgroup_path takes an id")
        number = self.e.number(node.args[0])
        name = self.checked.fact(node, CgroupFilter).string

        def write(pointer: Ptr, _align: int) -> None:
            self.b.store(number, pointer)
            self.b.store(name, self.b.offset(pointer, 8), 32)
            self.b.store(0, self.b.offset(pointer, 12), 32)

        return Made(CgroupPath(), write)

    _cgroup = handles_names("cgroup")(_plain(helpers.GET_CURRENT_CGROUP_ID))
    _leader_comm = handles_names("leader_comm")(_related_comm("group_leader"))
    _leader_tid = handles_names("leader_tid")(_related_number("group_leader", "pid"))
    _numaid = handles_names("numaid")(_plain(helpers.GET_NUMA_NODE_ID))
    _pcomm = handles_names("pcomm")(_related_comm("real_parent"))
    _ppid = handles_names("ppid")(_related_number("real_parent", "tgid"))
    _rand = handles_names("rand")(_plain(helpers.GET_PRANDOM_U32))


# -------------------------------------------------------------------------------------------------------------- clocks


_CLOCKS = {
    "boot": helpers.KTIME_GET_BOOT_NS,
    "monotonic": helpers.KTIME_GET_NS,
    "tai": helpers.KTIME_GET_TAI_NS,
}


class TimeBuiltins(Builtins):
    """Clocks."""

    @handles_names("nsecs")
    def _nsecs(self, node: Node) -> Operand:
        clock = self.checked.fact(node, Clock).name
        if clock == "sw_tai":
            # The session writes the offset of the atomic clock from the boot clock.
            return Scalar(
                self.b.add(self._time(helpers.KTIME_GET_BOOT_NS), self.b.load(self.e.session(SESSION.tai))), UINT64
            )
        return Scalar(self._time(_CLOCKS[clock]), UINT64)

    @handles_names("elapsed")
    def _elapsed(self, _node: Node) -> Operand:
        return Scalar(
            self.b.sub(self._time(helpers.KTIME_GET_BOOT_NS), self.b.load(self.e.session(SESSION.start))), UINT64
        )

    def _time(self, clock: helpers.Helper[[], I64]) -> I64:
        """The time of the hit by a clock."""
        now = self.b.helper(clock)
        return now if self.e.kept is None else self.b.sub(now, self.e.deferred.kept_age())

    @handles_names("jiffies")
    def _jiffies(self, _node: Node) -> Operand:
        return Scalar(self.b.helper(helpers.JIFFIES64), UINT64)

    @handles_names("strftime")
    def _strftime(self, node: nodes.Call) -> Operand:
        format_ = self.checked.fact(node, DateFormat)
        if not isinstance(node.args[1], nodes.Expr):
            raise InternalError("strftime takes a time")
        when = self.e.number(node.args[1])

        def write(pointer: Ptr, _align: int) -> None:
            self.b.store(when, pointer)
            self.b.store(format_.string, self.b.offset(pointer, 8), 32)
            self.b.store(format_.clock, self.b.offset(pointer, 12), 32)

        return Made(Timestamp(), write)
