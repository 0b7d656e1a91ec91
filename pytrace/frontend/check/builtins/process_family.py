"""Builtins about the current process, CPU, cgroup and time."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.event_layout import CurrentTime
from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.core.types import (
    BOOL,
    INT32,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    CgroupPath,
    NetworkNamespace,
    Pointer,
    String,
    Timestamp,
    Type,
    Username,
)
from pytrace.frontend.check.inference.argument_checks import expression, integer_argument, struct_argument
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN
from pytrace.frontend.check.inference.resources import send, string_index, text_of
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CgroupFilter, Clock, DateFormat, PidNamespace

COMM = String(16)
"""TASK_COMM_LEN of include/linux/sched.h."""

TASK_OF_PID = "bpf_task_from_pid"
"""The kernel function (kernel/bpf/helpers.c) that finds a task; only some program types may call it."""

_NAMESPACES = {"curr_ns": "tracer", "init": "init"}


def _always(type_: Type) -> Callable[[Checker, Node, Arguments], Type]:
    """The check of a value that needs none."""
    return lambda _checker, _node, _arguments: type_


unsigned32 = _always(UINT32)
unsigned64 = _always(UINT64)
username = _always(Username())


def comm(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``comm`` and ``comm(pid)``."""
    if not arguments:
        return COMM
    integer_argument(checker, node, arguments[0], "the process id")
    if checker.kernel.function(TASK_OF_PID) is None:
        message = f"comm() of another process needs a kernel with {TASK_OF_PID} (6.2)"
        return checker.error(message, node.span, kernel=True)
    kind = checker.unit.kind if checker.unit is not None else None
    if kind is not None and not checker.kernel.feature(f"kfunc_{kind.program_type}"):
        return checker.error(
            f"comm() of another process is not possible in {kind.name} probes: "
            f"the kernel does not let their programs call {TASK_OF_PID}",
            node.span,
            hints=[_where_allowed(checker)],
            kernel=True,
        )
    return String(64)


def _where_allowed(checker: Checker) -> str:
    able = [row.name for row in PROBE_KINDS if checker.kernel.feature(f"kfunc_{row.program_type}")]
    return f"{', '.join(able)} probes can" if able else "this kernel lets no probe do it"


def has_cpid(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``has_cpid``."""
    checker.set_fact(node, checker.options.child, "child")
    return BOOL


def has_filter(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``has_filter``."""
    checker.set_constant(node, checker.options.restricted)
    return BOOL


def has_self(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``has_self``."""
    checker.set_constant(node, not checker.options.without_self)
    return BOOL


def in_scope(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``in_scope``: a constant if no process is selected; not in ahead-of-time files, which may be run with ``-p``."""
    if arguments:
        _task_argument(checker, node, arguments)
    options = checker.options
    if not options.restricted and not options.ahead and not options.foreign:
        checker.set_constant(node, True)
    return BOOL


def ncpus(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``ncpus``."""
    checker.set_fact(node, checker.kernel.possible_cpus, "cpus")
    return UINT64


def curtask(checker: Checker, _node: Node, _arguments: Arguments) -> Type:
    """``curtask``: has a type if the kernel has BTF, which the verifier knows if a helper returns it (Linux 5.11)."""
    task = checker.definitions.struct("struct", "task_struct")
    if task is None:
        return UINT64
    return Pointer(task, AddressSpace.KERNEL, trusted=checker.kernel.feature("current_task_btf"))


def netns(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``netns``."""
    if any(checker.kernel.struct("struct", name) is None for name in ("task_struct", "nsproxy", "net")):
        return checker.error("netns needs the kernel's type information (BTF)", node.span)
    return NetworkNamespace()


def process_id(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``pid`` and ``tid``."""
    namespace = "tracer"
    if arguments:
        word = arguments[0]
        name = word.name if isinstance(word, nodes.Identifier) else ""
        selected = _NAMESPACES.get(name)
        if selected is None:
            return checker.error(f"{node.name}() takes curr_ns or init", node.span)
        namespace = selected
    checker.program.facts[node] = PidNamespace(namespace)
    return UINT32


def _task_argument(checker: Checker, node: Node, arguments: Arguments) -> None:
    task = checker.definitions.struct("struct", "task_struct")
    if task is None:
        checker.error(f"{node.name} needs the kernel's type information (BTF)", node.span)
    elif arguments:
        struct_argument(checker, node, arguments[0], "task_struct")


def task_name(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``pcomm`` and ``leader_comm``."""
    _task_argument(checker, node, arguments)
    return COMM


def task_number(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``ppid`` and ``leader_tid``."""
    _task_argument(checker, node, arguments)
    return INT32


def cgroupid(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``cgroupid("path")``."""
    path = checker.constant_text(arguments[0], "the path of cgroupid()")
    if path is None:
        return UNKNOWN
    cgroup_id = checker.kernel.cgroup_id(path.decode("utf-8", "surrogateescape"))
    if cgroup_id is None:
        return checker.error(f"there is no cgroup at {path.decode(errors='replace')!r}", node.span)
    checker.set_fact(node, cgroup_id, "cgroup", path.decode("utf-8", "surrogateescape"))
    return UINT64


def cgroup_path(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``cgroup_path(id[, filter])``."""
    integer_argument(checker, node, arguments[0], "the cgroup id")
    wanted: bytes | None = b""
    if len(arguments) > 1:
        wanted = checker.constant_text(arguments[1], "the filter of cgroup_path()")
    if wanted is None:
        return UNKNOWN
    checker.program.facts[node] = CgroupFilter(string_index(checker, wanted))
    return CgroupPath()


# ---------------------------------------------------------------------------------------------- time

CLOCKS = ("monotonic", "boot", "tai", "sw_tai")
TIMESTAMP_CLOCKS = {"boot": 0, "tai": 1, "sw_tai": 2}
DEFAULT_TIME = b"%H:%M:%S\n"


def nsecs(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``nsecs`` and ``nsecs(clock)``."""
    clock = "boot"
    if arguments:
        word = arguments[0]
        clock = word.name if isinstance(word, nodes.Identifier) else ""
        if clock not in CLOCKS:
            return checker.error(f"nsecs() takes {', '.join(CLOCKS)}", node.span)
        if clock == "tai" and not checker.kernel.feature("tai_clock"):
            hints = ["sw_tai computes it in the tracer"]
            return checker.error("the kernel has no helper for the tai clock", node.span, hints=hints)
    checker.program.facts[node] = Clock(clock)
    return UINT64


def strftime(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``strftime(fmt, ns)``."""
    text = checker.constant_text(arguments[0], "the format of strftime()")
    value = expression(checker, arguments[1])
    integer_argument(checker, node, value, "the time of strftime()")
    source = checker.program.find_fact(value, Clock)
    clock = source.name if source is not None else "boot"
    if clock == "monotonic":
        hints = ["use nsecs or nsecs(boot)"]
        return checker.error("the monotonic clock cannot be turned into a date", value.span, hints=hints)
    known = checker.constant(value)
    if isinstance(known, int) and known < 0:
        return checker.error(f"strftime() takes no time before 1970, and this is {known} ns", value.span)
    if text is None:
        return UNKNOWN
    checker.program.facts[node] = DateFormat(string_index(checker, text), TIMESTAMP_CLOCKS[clock])
    return Timestamp()


def time(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``time([fmt])``."""
    text: bytes | None = DEFAULT_TIME
    if arguments:
        text = checker.constant_text(arguments[0], "the format of time()")
    if text is not None:
        send(checker, node, "time", CurrentTime(text_of(text)))
    return VOID
