"""Recorded facts about a made-up machine, for tests that need no kernel."""

from __future__ import annotations

from pytrace.core.kernel_info import FunctionPrototype, KernelFunction, TracepointField, UserSymbol
from pytrace.core.types import (
    INT8,
    INT32,
    INT64,
    UINT16,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Field,
    FieldLoader,
    Pointer,
    Struct,
    Type,
)
from tests.support.facts import RecordedKernel

CHAR_POINTER = Pointer(INT8)


def _mm() -> tuple[Field, ...]:
    return (Field("arg_start", UINT64, 0), Field("arg_end", UINT64, 8))


MM = Struct("struct", "mm_struct", 16, FieldLoader(_mm), origin="vmlinux")


def _task() -> tuple[Field, ...]:
    anonymous = Struct("union", "", 8, (Field("exit_code", INT32, 0), Field("exit_word", INT64, 0)), origin="anon1")
    return (
        Field("pid", INT32, 0),
        Field("tgid", INT32, 4),
        Field("comm", Array(INT8, 16), 8),
        Field("real_parent", Pointer(TASK), 24),
        Field("mm", Pointer(MM), 32),
        Field("", anonymous, 40),
        Field("flag", UINT32, 48, 3, 2),
        Field("bits", Array(UINT64, 4), 56),
        Field("user_buffer", Pointer(INT8, AddressSpace.USER), 88),
        Field("nsproxy", Pointer(NSPROXY), 96),
    )


NS_COMMON = Struct("struct", "ns_common", 24, (Field("inum", UINT32, 16),), origin="vmlinux")
NET = Struct("struct", "net", 32, (Field("ns", NS_COMMON, 8),), origin="vmlinux")
NSPROXY = Struct("struct", "nsproxy", 48, (Field("net_ns", Pointer(NET), 40),), origin="vmlinux")
TASK = Struct("struct", "task_struct", 104, FieldLoader(_task), origin="vmlinux")
SK_BUFF = Struct(
    "struct", "sk_buff", 16, (Field("len", UINT32, 0), Field("data", Pointer(INT8), 8)), origin="vmlinux"
)
SOCK = Struct("struct", "sock", 8, (Field("port", UINT16, 0),), origin="vmlinux")
PATH = Struct(
    "struct", "path", 16, (Field("mnt", Pointer(VOID), 0), Field("dentry", Pointer(VOID), 8)), origin="vmlinux"
)
FILE = Struct("struct", "file", 32, (Field("f_path", PATH, 0), Field("f_flags", UINT32, 16)), origin="vmlinux")
ITER_TASK = Struct("struct", "bpf_iter__task", 16, (Field("task", Pointer(TASK), 8),), origin="vmlinux")
STATE = Enum("task_state", 4, False, (("TASK_RUNNING", 0), ("TASK_STOPPED", 4)))

_ALL = (TASK, MM, SK_BUFF, SOCK, PATH, FILE, ITER_TASK, NSPROXY, NET, NS_COMMON)
STRUCTS = {(item.kind, item.name): item for item in _ALL}
TYPEDEFS: dict[str, Type] = {"pid_t": INT32, "uint64_t": UINT64, "unsigned int": UINT32, "int": INT32}

COMMON = (
    TracepointField("common_type", UINT16, 0, 2, "unsigned short common_type"),
    TracepointField("common_pid", INT32, 4, 4, "int common_pid"),
)
TRACEPOINTS: dict[tuple[str, str], tuple[TracepointField, ...]] = {
    ("syscalls", "sys_enter_openat"): (
        *COMMON,
        TracepointField("__syscall_nr", INT32, 8, 4, "int __syscall_nr"),
        TracepointField("dfd", INT64, 16, 8, "int dfd"),
        TracepointField("filename", CHAR_POINTER, 24, 8, "const char * filename"),
    ),
    ("syscalls", "sys_enter_execve"): (
        *COMMON,
        TracepointField("filename", CHAR_POINTER, 16, 8, "const char * filename"),
    ),
    ("sched", "sched_switch"): (
        *COMMON,
        TracepointField("prev_comm", Array(INT8, 16), 8, 16, "char prev_comm[16]"),
        TracepointField("next_pid", INT32, 24, 4, "pid_t next_pid"),
    ),
}
FUNCTIONS = {
    "vfs_read": FunctionPrototype(
        "vfs_read", "vmlinux", (("file", Pointer(FILE)), ("buf", CHAR_POINTER), ("count", UINT64)), INT64
    ),
    "tcp_sendmsg": FunctionPrototype("tcp_sendmsg", "vmlinux", (("sk", Pointer(SOCK)),), INT32),
    "vfs_getattr": FunctionPrototype("vfs_getattr", "vmlinux", (("path", Pointer(PATH)),), INT32),
}
RAW_TRACEPOINTS = {
    "sched_switch": FunctionPrototype(
        "sched_switch", "vmlinux", (("preempt", UINT32), ("prev", Pointer(TASK)), ("next", Pointer(TASK))), VOID
    ),
    "consume_skb": FunctionPrototype("consume_skb", "vmlinux", (("skb", Pointer(SK_BUFF)),), VOID),
}
SYMBOLS = {"jiffies": 0xFFFFFFFF82000000, "jiffies_64": 0xFFFFFFFF82000000, "vfs_read": 0xFFFFFFFF81234560}


class Facts(RecordedKernel):
    """A :class:`pytrace.core.kernel_info.KernelInfo` that knows a handful of things."""

    def __init__(self, *, missing: frozenset[str] = frozenset(), has_btf: bool = True) -> None:
        super().__init__(
            release="6.18.0-test",
            has_btf=has_btf,
            structs=STRUCTS if has_btf else {},
            enums={STATE.name: STATE},
            typedefs=TYPEDEFS,
            prototypes=tuple(FUNCTIONS.values()),
            traceable=tuple(KernelFunction(name) for name in FUNCTIONS),
            events=TRACEPOINTS,
            raw=RAW_TRACEPOINTS,
            files={"/bin/true": ["/bin/true"], "true": ["/bin/true"]},
            symbols={"/bin/true": (UserSymbol("main", 0x1000, 0x1000, 64), UserSymbol("counter", 0x4000, 0x3000, 4))},
            parameters={},
            usdt=(),
            loaded_modules=[],
        )
        self.missing = missing

    def feature(self, name: str) -> bool:
        return name not in self.missing

    def iterators(self) -> dict[str, Struct]:
        return {"task": ITER_TASK}

    def kernel_symbol(self, name: str) -> int | None:
        return SYMBOLS.get(name)

    def untraceable_reason(self, name: str) -> str:
        return ""

    def kernel_function_size(self, name: str, module: str = "") -> int | None:
        return 64 if name in FUNCTIONS else None

    def user_address(self, path: str, name: str) -> int | None:
        return 0x5000 if name == "table" else None

    def user_size(self, path: str, name: str) -> int:
        return 128 if name == "table" else 0

    def user_offset(self, path: str, address: int) -> int | None:
        return address

    def user_address_at(self, path: str, offset: int) -> int | None:
        return offset

    def cgroup_id(self, path: str) -> int | None:
        return 42 if path == "/sys/fs/cgroup" else None
