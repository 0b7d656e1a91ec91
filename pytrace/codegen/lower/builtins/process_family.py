"""Builtins about the current task, CPU and cgroup."""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.storage import SESSION
from pytrace.codegen.emit.tasks import COMM, CurrentTask, OtherTask
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Made, Number, Operand, Ptr, Remote, Scalar
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.services import process_filters
from pytrace.core.builtins import IN_SCOPE
from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import RuntimeFailure
from pytrace.core.types import INT32, UINT64, AddressSpace, CgroupPath, Pointer, String
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CgroupFilter, PidNamespace

Node = nodes.Call | nodes.Identifier


def _pid(e: Emitter, node: Node) -> Operand:
    return Scalar(e.tasks.process_ids(e.checked.fact(node, PidNamespace).name)[0], e.type(node))


def _tid(e: Emitter, node: Node) -> Operand:
    return Scalar(e.tasks.process_ids(e.checked.fact(node, PidNamespace).name)[1], e.type(node))


def _uid(e: Emitter, node: Node) -> Operand:
    return Scalar(e.tasks.user_ids()[0], e.type(node))


def _gid(e: Emitter, node: Node) -> Operand:
    return Scalar(e.tasks.user_ids()[1], e.type(node))


def _username(e: Emitter, node: Node) -> Operand:
    uid = e.tasks.user_ids()[0]
    return Made(e.type(node), lambda pointer, _align: e.b.store(uid, pointer))


def _netns(e: Emitter, node: Node) -> Operand:
    inode = e.tasks.network_namespace()
    return Made(e.type(node), lambda pointer, _align: e.b.store(inode, pointer))


def _comm(e: Emitter, node: Node) -> Operand:
    if isinstance(node, nodes.Call) and node.args:
        return _comm_of(e, node)

    def write(pointer: Ptr, align: int) -> None:
        error = e.tasks.write_name(pointer, align)
        if error is not None:
            e.events.check_helper(node, "bpf_get_current_comm", error)

    return Made(e.type(node), write)


def _comm_of(e: Emitter, node: nodes.Call) -> Operand:
    """Name of another task, by ``bpf_task_from_pid`` (kernel/bpf/helpers.c); empty if there is no such task."""
    argument = node.args[0]
    type_ = e.type(node)
    if not isinstance(argument, nodes.Expr):
        raise InternalError("comm takes a process id")
    number = e.number(argument)

    def write(pointer: Ptr, align: int) -> None:
        e.memory.zero(pointer, type_.size, align)
        if e.script.ahead is not None:
            e.script.ahead.rely("kfunc", "bpf_task_from_pid", 1)
        e.module.kernel_function("bpf_task_from_pid", ("int",), "task_struct")
        e.module.kernel_function("bpf_task_release", ("task_struct",), "void")
        task = e.b.kernel_object("bpf_task_from_pid", number)
        with e.b.unless(e.b.is_null(task)):
            address = e.b.add(e.b.address(task), e.tasks.task_field("comm"))
            e.b.helper(helpers.PROBE_READ_KERNEL, pointer, COMM, address)
            e.b.release("bpf_task_release", task)

    return Made(type_, write)


def _cpu(e: Emitter, node: Node) -> Operand:
    return Scalar(e.cpu, e.type(node))


def _plain(helper: helpers.Helper[[], I64]) -> Emission:
    def emit(e: Emitter, node: Node) -> Operand:
        return Scalar(e.memory.fit(e.b.helper(helper), e.type(node)), e.type(node))

    return emit


def _curtask(e: Emitter, node: Node) -> Operand:
    type_ = e.type(node)
    if isinstance(type_, Pointer) and type_.trusted:
        return Scalar(e.b.helper(helpers.GET_CURRENT_TASK_BTF), type_, direct=True)
    return Scalar(e.b.helper(helpers.GET_CURRENT_TASK), type_)


def _in_scope(e: Emitter, node: Node) -> Operand:
    has_argument = isinstance(node, nodes.Call) and node.args
    task = OtherTask(e, _task(e, node)) if has_argument else CurrentTask(e)
    return Scalar(process_filters.in_scope(e, task), e.type(node))


def _cpid(e: Emitter, node: Node) -> Operand:
    # An ahead-of-time file may check has_cpid at run time; otherwise such code is removed when there is no child.
    if not any(item.what == "child" for item in e.checked.loaded.values()):
        e.checked.report(node, RuntimeFailure("no_child"))
    return Scalar(e.b.load(e.session(SESSION.cpid)), e.type(node))


# ---------------------------------------------------------------------------------------------- other tasks


def _task(e: Emitter, node: Node) -> Number:
    if isinstance(node, nodes.Call) and node.args and isinstance(node.args[0], nodes.Expr):
        return e.number(node.args[0])
    return e.b.helper(helpers.GET_CURRENT_TASK)


def _related(e: Emitter, node: Node, link: str) -> Number:
    address = e.b.add(_task(e, node), e.tasks.task_field(link))
    return e.foreign.read_scalar(address, UINT64, AddressSpace.KERNEL).value


def _related_number(link: str, member: str) -> Emission:
    def emit(e: Emitter, node: Node) -> Operand:
        address = e.b.add(_related(e, node, link), e.tasks.task_field(member))
        return Scalar(e.foreign.read_scalar(address, INT32, AddressSpace.KERNEL).value, e.type(node))

    return emit


def _related_comm(link: str) -> Emission:
    def emit(e: Emitter, node: Node) -> Operand:
        address = e.b.add(_related(e, node, link), e.tasks.task_field("comm"))
        return Remote(address, String(COMM), AddressSpace.KERNEL)

    return emit


def _cgroup_path(e: Emitter, node: nodes.Call) -> Operand:
    if not isinstance(node.args[0], nodes.Expr):
        raise InternalError("cgroup_path takes an id")
    number = e.number(node.args[0])
    name = e.checked.fact(node, CgroupFilter).string

    def write(pointer: Ptr, _align: int) -> None:
        e.b.store(number, pointer)
        e.b.store(name, e.b.offset(pointer, 8), 32)
        e.b.store(0, e.b.offset(pointer, 12), 32)

    return Made(CgroupPath(), write)


EMIT: dict[str, Emission] = {
    "cgroup": _plain(helpers.GET_CURRENT_CGROUP_ID),
    "cgroup_path": _cgroup_path,
    "comm": _comm,
    "cpid": _cpid,
    "cpu": _cpu,
    "curtask": _curtask,
    "gid": _gid,
    IN_SCOPE: _in_scope,
    "leader_comm": _related_comm("group_leader"),
    "leader_tid": _related_number("group_leader", "pid"),
    "netns": _netns,
    "numaid": _plain(helpers.GET_NUMA_NODE_ID),
    "pcomm": _related_comm("real_parent"),
    "pid": _pid,
    "ppid": _related_number("real_parent", "tgid"),
    "rand": _plain(helpers.GET_PRANDOM_U32),
    "tid": _tid,
    "uid": _uid,
    "username": _username,
}
