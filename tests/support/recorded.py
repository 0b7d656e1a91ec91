"""Recorded facts about a made-up machine, for tests that need no kernel."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from pytrace.kernel import (
    FunctionPrototype,
    KernelFunction,
    ObjectFunction,
    TracepointField,
    UsdtProbe,
    UserParameter,
    UserSymbol,
)
from pytrace.types import (
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
    Pointer,
    Struct,
    Type,
)

CHAR_POINTER = Pointer(INT8)


def _mm() -> tuple[Field, ...]:
    return (Field("arg_start", UINT64, 0), Field("arg_end", UINT64, 8))


MM = Struct("struct", "mm_struct", 16, _mm, origin="vmlinux")


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
    )


TASK = Struct("struct", "task_struct", 96, _task, origin="vmlinux")
SK_BUFF = Struct("struct", "sk_buff", 8, (Field("len", UINT32, 0),), origin="vmlinux")
SOCK = Struct("struct", "sock", 8, (Field("port", UINT16, 0),), origin="vmlinux")
PATH = Struct(
    "struct", "path", 16, (Field("mnt", Pointer(VOID), 0), Field("dentry", Pointer(VOID), 8)), origin="vmlinux"
)
FILE = Struct("struct", "file", 32, (Field("f_path", PATH, 0), Field("f_flags", UINT32, 16)), origin="vmlinux")
ITER_TASK = Struct("struct", "bpf_iter__task", 16, (Field("task", Pointer(TASK), 8),), origin="vmlinux")
STATE = Enum("task_state", 4, False, (("TASK_RUNNING", 0), ("TASK_STOPPED", 4)))

STRUCTS = {(item.kind, item.name): item for item in (TASK, MM, SK_BUFF, SOCK, PATH, FILE, ITER_TASK)}
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
SYMBOLS = {"jiffies_64": 0xFFFFFFFF82000000, "vfs_read": 0xFFFFFFFF81234560}


class Facts:
    """A :class:`pytrace.kernel.KernelInfo` that knows a handful of things."""

    arch = "x86_64"
    release = "6.18.0-test"
    possible_cpus = 4
    pid_namespace = None

    def __init__(self, *, missing: frozenset[str] = frozenset(), has_btf: bool = True) -> None:
        self.missing = missing
        self.has_btf = has_btf

    def feature(self, name: str) -> bool:
        return name not in self.missing

    def struct(self, kind: str, name: str) -> Struct | None:
        return STRUCTS.get((kind, name)) if self.has_btf else None

    def enum(self, name: str) -> Enum | None:
        return STATE if name == STATE.name else None

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        return next(((STATE, value) for member, value in STATE.members if member == name), None)

    def typedef(self, name: str) -> Type | None:
        return TYPEDEFS.get(name)

    def type_id(self, kind: str, name: str) -> int:
        return 7 if (kind, name) in STRUCTS and self.has_btf else 0

    def object_functions(self, path: str, data: bytes) -> list[ObjectFunction]:
        return []

    def type_names(self, kind: str) -> Iterable[str]:
        return [name for found, name in STRUCTS if found == kind]

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        return FUNCTIONS.get(name)

    def function_prototypes(self, pattern: str, module: str = "") -> list[FunctionPrototype]:
        return [item for name, item in FUNCTIONS.items() if fnmatchcase(name, pattern)]

    def kernel_functions(self, pattern: str, module: str = "") -> list[KernelFunction]:
        return [KernelFunction(name) for name in FUNCTIONS if fnmatchcase(name, pattern)]

    def tracepoints(self, category: str, event: str) -> list[tuple[str, str]]:
        return [item for item in TRACEPOINTS if fnmatchcase(item[0], category) and fnmatchcase(item[1], event)]

    def tracepoint_fields(self, category: str, event: str) -> tuple[TracepointField, ...] | None:
        return TRACEPOINTS.get((category, event))

    def raw_tracepoints(self, pattern: str) -> list[tuple[str, str]]:
        return [("vmlinux", name) for name in RAW_TRACEPOINTS if fnmatchcase(name, pattern)]

    def raw_tracepoint_prototype(self, event: str) -> FunctionPrototype | None:
        return RAW_TRACEPOINTS.get(event)

    def iterators(self) -> dict[str, Struct]:
        return {"task": ITER_TASK}

    def kernel_symbol(self, name: str) -> int | None:
        return SYMBOLS.get(name)

    def binaries(self, target: str, pid: int | None) -> list[str]:
        return ["/bin/true"] if target in ("/bin/true", "true") else []

    def user_symbols(self, path: str, pattern: str) -> list[UserSymbol]:
        known = [UserSymbol("main", 0x1000, 0x1000, 64), UserSymbol("counter", 0x4000, 0x3000, 4)]
        return [item for item in known if fnmatchcase(item.name, pattern)]

    def untraceable_reason(self, name: str) -> str:
        return ""

    def kernel_function_size(self, name: str, module: str = "") -> int | None:
        return 64 if name in FUNCTIONS else None

    def modules(self) -> list[str]:
        return []

    def user_address(self, path: str, name: str) -> int | None:
        return 0x5000 if name == "table" else None

    def cpp_symbols(self, path: str, pattern: str) -> list[tuple[UserSymbol, str]]:
        return []

    def executable(self, path: str) -> bool:
        return True

    def depend_on_file(self, path: str) -> None:
        pass

    def dependencies(self) -> tuple[tuple[str, ...], ...]:
        return ()

    def user_offset(self, path: str, address: int) -> int | None:
        return address

    def user_result(self, path: str, symbol: str) -> Type | None:
        return None

    def user_parameters(self, path: str, symbol: str) -> tuple[UserParameter, ...] | None:
        return None

    def user_lines(self, path: str, file: str, line: int, column: int | None) -> list[UserSymbol]:
        return []

    def usdt_probes(self, path: str, provider: str, name: str) -> list[UsdtProbe]:
        return []

    def bpf_programs(self, pattern: str) -> list[tuple[int, str]]:
        return []

    def cgroup_id(self, path: str) -> int | None:
        return 42 if path == "/sys/fs/cgroup" else None

    def header_directories(self) -> list[str]:
        return []
