"""BPF helper functions: number and signature (``include/uapi/linux/bpf.h``).

A row is typed: ``Helper[[Ptr, Ptr], Ptr]`` takes two pointers and returns one, which mypy checks at each call
(:meth:`pytrace.codegen.ir.builder.Builder.helper`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar, overload

from pytrace.codegen.ir.values import I64, Number, Ptr

P = ParamSpec("P")
R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)
_Taken_co = TypeVar("_Taken_co", covariant=True)
_Given_co = TypeVar("_Given_co", covariant=True)


class Kind(Generic[_Taken_co, _Given_co]):
    """The type of a parameter or result."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Callable[[str], _Given_co]) -> None:
        self.text = text
        self.value = value


class Helper(Generic[P, _R_co]):
    """One row. Sizes and flags are passed as ``i64`` regardless of their C type: a BPF argument is a whole register."""

    __slots__ = ("attributes", "name", "number", "parameters", "result", "value")

    def __init__(self, name: str, number: int, parameters: tuple[str, ...], result: Kind[object, _R_co]) -> None:
        self.attributes = ""
        """LLVM's attributes of a call, each preceded by a space."""
        self.name = name
        self.number = number
        self.parameters = parameters
        self.result = result.text
        self.value = result.value
        """The result as a value of its type."""

    @property
    def symbol(self) -> str:
        """The helper's name in the kernel, and in messages."""
        return f"bpf_{self.name}"


_P: Kind[Ptr, Ptr] = Kind("ptr", Ptr)
_I: Kind[Number, I64] = Kind("i64", I64)
_NOTHING: Kind[object, None] = Kind("void", lambda _register: None)

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

T = Kind[A, object]
HELPERS: dict[str, Helper[..., object]] = {}


@overload
def _row(name: str, number: int, result: Kind[object, R], /) -> Helper[[], R]: ...
@overload
def _row(name: str, number: int, result: Kind[object, R], a: T[A], /) -> Helper[[A], R]: ...
@overload
def _row(name: str, number: int, result: Kind[object, R], a: T[A], b: T[B], /) -> Helper[[A, B], R]: ...
@overload
def _row(name: str, number: int, result: Kind[object, R], a: T[A], b: T[B], c: T[C], /) -> Helper[[A, B, C], R]: ...
@overload
def _row(
    name: str, number: int, result: Kind[object, R], a: T[A], b: T[B], c: T[C], d: T[D], /
) -> Helper[[A, B, C, D], R]: ...
@overload
def _row(
    name: str, number: int, result: Kind[object, R], a: T[A], b: T[B], c: T[C], d: T[D], e: T[E], /
) -> Helper[[A, B, C, D, E], R]: ...
def _row(name: str, number: int, result: Kind[object, R], /, *parameters: Kind[object, object]) -> Helper[..., R]:
    row: Helper[..., R] = Helper(name, number, tuple(parameter.text for parameter in parameters), result)
    HELPERS[name] = row
    return row


MAP_LOOKUP_ELEM = _row("map_lookup_elem", 1, _P, _P, _P)
MAP_UPDATE_ELEM = _row("map_update_elem", 2, _I, _P, _P, _P, _I)
MAP_DELETE_ELEM = _row("map_delete_elem", 3, _I, _P, _P)
PROBE_READ = _row("probe_read", 4, _I, _P, _I, _I)
KTIME_GET_NS = _row("ktime_get_ns", 5, _I)
TRACE_PRINTK: tuple[Helper[..., I64], ...] = (
    _row("trace_printk_0", 6, _I, _P, _I),
    _row("trace_printk_1", 6, _I, _P, _I, _I),
    _row("trace_printk_2", 6, _I, _P, _I, _I, _I),
    _row("trace_printk_3", 6, _I, _P, _I, _I, _I, _I),
)
"""Rows by the number of values after format and size (:meth:`~pytrace.codegen.ir.builder.Builder.trace_printk`)."""

GET_PRANDOM_U32 = _row("get_prandom_u32", 7, _I)
GET_SMP_PROCESSOR_ID = _row("get_smp_processor_id", 8, _I)
GET_CURRENT_PID_TGID = _row("get_current_pid_tgid", 14, _I)
GET_CURRENT_UID_GID = _row("get_current_uid_gid", 15, _I)
GET_CURRENT_COMM = _row("get_current_comm", 16, _I, _P, _I)
GET_CURRENT_TASK = _row("get_current_task", 35, _I)
PERF_EVENT_OUTPUT = _row("perf_event_output", 25, _I, _P, _P, _I, _P, _I)
PROBE_WRITE_USER = _row("probe_write_user", 36, _I, _P, _P, _I)
GET_NUMA_NODE_ID = _row("get_numa_node_id", 42, _I)
PROBE_READ_STR = _row("probe_read_str", 45, _I, _P, _I, _I)
GET_SOCKET_COOKIE = _row("get_socket_cookie", 46, _I, _I)
OVERRIDE_RETURN = _row("override_return", 58, _I, _P, _I)
GET_STACK = _row("get_stack", 67, _I, _P, _P, _I, _I)
GET_CURRENT_CGROUP_ID = _row("get_current_cgroup_id", 80, _I)
GET_CURRENT_ANCESTOR_CGROUP_ID = _row("get_current_ancestor_cgroup_id", 123, _I, _I)
SEND_SIGNAL = _row("send_signal", 109, _I, _I)
PROBE_READ_USER = _row("probe_read_user", 112, _I, _P, _I, _I)
PROBE_READ_KERNEL = _row("probe_read_kernel", 113, _I, _P, _I, _I)
PROBE_READ_USER_STR = _row("probe_read_user_str", 114, _I, _P, _I, _I)
PROBE_READ_KERNEL_STR = _row("probe_read_kernel_str", 115, _I, _P, _I, _I)
SEND_SIGNAL_THREAD = _row("send_signal_thread", 117, _I, _I)
JIFFIES64 = _row("jiffies64", 118, _I)
GET_NS_CURRENT_PID_TGID = _row("get_ns_current_pid_tgid", 120, _I, _I, _I, _P, _I)
KTIME_GET_BOOT_NS = _row("ktime_get_boot_ns", 125, _I)
SEQ_PRINTF = _row("seq_printf", 126, _I, _I, _P, _I, _P, _I)
SEQ_WRITE = _row("seq_write", 127, _I, _I, _P, _I)
RINGBUF_OUTPUT = _row("ringbuf_output", 130, _I, _P, _P, _I, _I)
RINGBUF_RESERVE = _row("ringbuf_reserve", 131, _P, _P, _I, _I)
RINGBUF_SUBMIT = _row("ringbuf_submit", 132, _NOTHING, _P, _I)
GET_TASK_STACK = _row("get_task_stack", 141, _I, _P, _P, _I, _I)
COPY_FROM_USER = _row("copy_from_user", 148, _I, _P, _I, _I)
D_PATH = _row("d_path", 147, _I, _I, _P, _I)
GET_CURRENT_TASK_BTF = _row("get_current_task_btf", 158, _I)
FOR_EACH_MAP_ELEM = _row("for_each_map_elem", 164, _I, _P, _P, _P, _I)
SNPRINTF = _row("snprintf", 165, _I, _P, _I, _P, _P, _I)
GET_FUNC_IP = _row("get_func_ip", 173, _I, _P)
GET_ATTACH_COOKIE = _row("get_attach_cookie", 174, _I, _P)
TASK_PT_REGS = _row("task_pt_regs", 175, _I, _I)
LOOP = _row("loop", 181, _I, _I, _P, _P, _I)
COPY_FROM_USER_TASK = _row("copy_from_user_task", 191, _I, _P, _I, _I, _P, _I)
MAP_LOOKUP_PERCPU_ELEM = _row("map_lookup_percpu_elem", 195, _P, _P, _P, _I)
KTIME_GET_TAI_NS = _row("ktime_get_tai_ns", 208, _I)

_STEADY = (
    GET_SMP_PROCESSOR_ID,
    GET_CURRENT_PID_TGID,
    GET_CURRENT_UID_GID,
    GET_CURRENT_TASK,
    GET_NUMA_NODE_ID,
    GET_CURRENT_TASK_BTF,
)
"""Helpers whose result does not change during a run of a program, which stays on its CPU."""

for _helper in _STEADY:
    # LLVM calls such a helper once, and only on paths that use its result.
    _helper.attributes = " nounwind willreturn memory(none)"

ReadHelper = Helper[[Ptr, Number, Number], I64]
"""A helper that reads bytes from an address into the program's memory: destination, size, address."""
