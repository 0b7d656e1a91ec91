"""Checks of builtins about the current process, CPU, cgroup and time."""

from __future__ import annotations

from pytrace.base.dispatch import handles_names
from pytrace.core.builtins import IN_SCOPE
from pytrace.core.probe_kinds import PROBE_KINDS
from pytrace.core.types import (
    BOOL,
    INT32,
    UINT32,
    UINT64,
    AddressSpace,
    CgroupPath,
    NetworkNamespace,
    Pointer,
    String,
    Timestamp,
    Type,
    Username,
)
from pytrace.frontend.check.checker import Arguments, Node
from pytrace.frontend.check.conversions import UNKNOWN
from pytrace.frontend.check.expressions import BuiltinChecks
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CgroupFilter, Clock, DateFormat, PidNamespace

COMM = String(16)
"""TASK_COMM_LEN of include/linux/sched.h."""
_TASK_OF_PID = "bpf_task_from_pid"
"""The kernel function (kernel/bpf/helpers.c) that finds a task; only some program types may call it."""
_NAMESPACES = {"curr_ns": "tracer", "init": "init"}


CLOCKS = ("monotonic", "boot", "tai", "sw_tai")
_TIMESTAMP_CLOCKS = {"boot": 0, "tai": 1, "sw_tai": 2}


class ProcessChecks(BuiltinChecks):
    """Checks of builtins about the current process, CPU, cgroup and time."""

    @handles_names("cpid", "cpu", "numaid", "rand")
    def unsigned32(self, _node: Node, _arguments: Arguments) -> Type:
        """``cpu`` and the like."""
        return UINT32

    @handles_names("cgroup", "gid", "uid", "elapsed", "jiffies")
    def unsigned64(self, _node: Node, _arguments: Arguments) -> Type:
        """``uid`` and the like."""
        return UINT64

    @handles_names("username")
    def username(self, _node: Node, _arguments: Arguments) -> Type:
        """``username``."""
        return Username()

    @handles_names("comm")
    def comm(self, node: Node, arguments: Arguments) -> Type:
        """``comm`` and ``comm(pid)``."""
        if not arguments:
            return COMM
        self.checks.integer(node, arguments[0], "the process id")
        if self.checker.kernel.function(_TASK_OF_PID) is None:
            message = f"comm() of another process needs a kernel with {_TASK_OF_PID} (6.2)"
            return self.checker.error(message, node.span, kernel=True)
        kind = self.checker.unit.kind if self.checker.unit is not None else None
        if kind is not None and not self.checker.kernel.feature(f"kfunc_{kind.program_type}"):
            return self.checker.error(
                f"comm() of another process is not possible in {kind.name} probes: "
                f"the kernel does not let their programs call {_TASK_OF_PID}",
                node.span,
                hints=[self._where_allowed()],
                kernel=True,
            )
        return String(64)

    def _where_allowed(self) -> str:
        able = [row.name for row in PROBE_KINDS if self.checker.kernel.feature(f"kfunc_{row.program_type}")]
        return f"{', '.join(able)} probes can" if able else "this kernel lets no probe do it"

    @handles_names("has_cpid")
    def has_cpid(self, node: Node, _arguments: Arguments) -> Type:
        """``has_cpid``."""
        self.checker.set_fact(node, self.checker.options.child, "child")
        return BOOL

    @handles_names("has_filter")
    def has_filter(self, node: Node, _arguments: Arguments) -> Type:
        """``has_filter``."""
        self.checker.set_constant(node, self.checker.options.restricted)
        return BOOL

    @handles_names("has_self")
    def has_self(self, node: Node, _arguments: Arguments) -> Type:
        """``has_self``."""
        self.checker.set_constant(node, not self.checker.options.without_self)
        return BOOL

    @handles_names(IN_SCOPE)
    def in_scope(self, node: Node, arguments: Arguments) -> Type:
        """``in_scope``: a constant if no process is selected, but not ahead of time: a file may be run with ``-p``."""
        if arguments:
            self._task_argument(node, arguments)
        options = self.checker.options
        if not options.restricted and not options.ahead and not options.foreign:
            self.checker.set_constant(node, True)
        return BOOL

    @handles_names("ncpus")
    def ncpus(self, node: Node, _arguments: Arguments) -> Type:
        """``ncpus``."""
        self.checker.set_fact(node, self.checker.kernel.possible_cpus, "cpus")
        return UINT64

    @handles_names("curtask")
    def curtask(self, _node: Node, _arguments: Arguments) -> Type:
        """``curtask``: typed if the kernel has BTF; the verifier knows the type if a helper returns it (Linux 5.11)."""
        task = self.checker.definitions.struct("struct", "task_struct")
        if task is None:
            return UINT64
        return Pointer(task, AddressSpace.KERNEL, trusted=self.checker.kernel.feature("current_task_btf"))

    @handles_names("user_registers")
    def user_registers(self, node: Node, _arguments: Arguments) -> Type:
        """``user_registers``: the verifier knows the type that ``bpf_task_pt_regs`` returns."""
        registers = self.checker.definitions.struct("struct", "pt_regs")
        if registers is None or not self.checker.kernel.feature("bpf_loop"):
            message = "user_registers needs Linux 5.17 and the kernel's type information (BTF)"
            return self.checker.error(message, node.span)
        return Pointer(registers, AddressSpace.KERNEL, trusted=True)

    @handles_names("netns")
    def netns(self, node: Node, _arguments: Arguments) -> Type:
        """``netns``."""
        if any(self.checker.kernel.struct("struct", name) is None for name in ("task_struct", "nsproxy", "net")):
            return self.checker.error("netns needs the kernel's type information (BTF)", node.span)
        return NetworkNamespace()

    @handles_names("pid", "tid")
    def process_id(self, node: Node, arguments: Arguments) -> Type:
        """``pid`` and ``tid``."""
        namespace = "tracer"
        if arguments:
            word = arguments[0]
            name = word.name if isinstance(word, nodes.Identifier) else ""
            selected = _NAMESPACES.get(name)
            if selected is None:
                return self.checker.error(f"{node.name}() takes curr_ns or init", node.span)
            namespace = selected
        self.checker.program.facts[node] = PidNamespace(namespace)
        return UINT32

    def _task_argument(self, node: Node, arguments: Arguments) -> None:
        task = self.checker.definitions.struct("struct", "task_struct")
        if task is None:
            self.checker.error(f"{node.name} needs the kernel's type information (BTF)", node.span)
        elif arguments:
            self.checks.struct(node, arguments[0], "task_struct")

    @handles_names("leader_comm", "pcomm")
    def task_name(self, node: Node, arguments: Arguments) -> Type:
        """``pcomm`` and ``leader_comm``."""
        self._task_argument(node, arguments)
        return COMM

    @handles_names("leader_tid", "ppid")
    def task_number(self, node: Node, arguments: Arguments) -> Type:
        """``ppid`` and ``leader_tid``."""
        self._task_argument(node, arguments)
        return INT32

    @handles_names("cgroupid")
    def cgroupid(self, node: Node, arguments: Arguments) -> Type:
        """``cgroupid("path")``."""
        path = self.checker.constant_text(arguments[0], "the path of cgroupid()")
        if path is None:
            return UNKNOWN
        cgroup_id = self.checker.kernel.cgroup_id(path.decode("utf-8", "surrogateescape"))
        if cgroup_id is None:
            return self.checker.error(f"there is no cgroup at {path.decode(errors='replace')!r}", node.span)
        self.checker.set_fact(node, cgroup_id, "cgroup", path.decode("utf-8", "surrogateescape"))
        return UINT64

    @handles_names("cgroup_path")
    def cgroup_path(self, node: Node, arguments: Arguments) -> Type:
        """``cgroup_path(id[, filter])``."""
        self.checks.integer(node, arguments[0], "the cgroup id")
        wanted: bytes | None = b""
        if len(arguments) > 1:
            wanted = self.checker.constant_text(arguments[1], "the filter of cgroup_path()")
        if wanted is None:
            return UNKNOWN
        self.checker.program.facts[node] = CgroupFilter(self.events.string_index(wanted))
        return CgroupPath()

    @handles_names("nsecs")
    def nsecs(self, node: Node, arguments: Arguments) -> Type:
        """``nsecs`` and ``nsecs(clock)``."""
        clock = "boot"
        if arguments:
            word = arguments[0]
            clock = word.name if isinstance(word, nodes.Identifier) else ""
            if clock not in CLOCKS:
                return self.checker.error(f"nsecs() takes {', '.join(CLOCKS)}", node.span)
            if clock == "tai" and not self.checker.kernel.feature("tai_clock"):
                hints = ["sw_tai computes it in the tracer"]
                return self.checker.error("the kernel has no helper for the tai clock", node.span, hints=hints)
        self.checker.program.facts[node] = Clock(clock)
        return UINT64

    @handles_names("strftime")
    def strftime(self, node: Node, arguments: Arguments) -> Type:
        """``strftime(fmt, ns)``."""
        text = self.checker.constant_text(arguments[0], "the format of strftime()")
        value = self.checks.expression(arguments[1])
        self.checks.integer(node, value, "the time of strftime()")
        source = self.checker.program.find_fact(value, Clock)
        clock = source.name if source is not None else "boot"
        if clock == "monotonic":
            hints = ["use nsecs or nsecs(boot)"]
            return self.checker.error("the monotonic clock cannot be turned into a date", value.span, hints=hints)
        known = self.checker.constant(value)
        if isinstance(known, int) and known < 0:
            return self.checker.error(f"strftime() takes no time before 1970, and this is {known} ns", value.span)
        if text is None:
            return UNKNOWN
        self.checker.program.facts[node] = DateFormat(self.events.string_index(text), _TIMESTAMP_CLOCKS[clock])
        return Timestamp()


FAMILIES = (ProcessChecks,)
