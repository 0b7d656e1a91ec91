"""Recorded facts: a :class:`~pytrace.core.kernel_info.KernelInfo` whose answers are what a test says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pytrace.core import instructions
from pytrace.core.instructions import BadCodeError, Exit, FunctionExits
from pytrace.core.kernel_info import (
    NO_HEADERS,
    DefinedEvent,
    FunctionPrototype,
    IndirectFunction,
    KernelFunction,
    KernelHeaders,
    ObjectFunction,
    TracepointField,
    UsdtProbe,
    UserParameter,
    UserSymbol,
)
from pytrace.core.probe_kinds import ProbeTarget, Way
from pytrace.core.types import (
    INT8,
    INT32,
    INT64,
    UINT32,
    UINT64,
    AddressSpace,
    Enum,
    Field,
    Pointer,
    String,
    Struct,
    Type,
)

TASK = Struct(
    "struct", "task_struct", 64, (Field("pid", INT32, 0), Field("comm", String(16), 8)), origin="vmlinux", alignment=8
)
FILE = Struct("struct", "file", 32, (Field("f_flags", UINT32, 0),), origin="vmlinux", alignment=8)
REGISTERS = Struct("struct", "pt_regs", 168, (Field("di", UINT64, 112),), origin="vmlinux", alignment=8)
LIST = Struct("struct", "list_head", 16, (Field("next", UINT64, 0), Field("prev", UINT64, 8)), origin="vmlinux")
ITER_TASK = Struct("struct", "bpf_iter__task", 16, (Field("task", Pointer(TASK), 8),), origin="vmlinux", alignment=8)

FEATURES = frozenset({
    "kprobe", "fentry", "uprobe", "tracepoint", "rawtracepoint", "iter", "get_attach_cookie", "watchpoint",
    "atomic_fetch", "for_each_map_elem", "get_func_ip", "iterator_paths", "lookup_percpu_elem", "socket_cookie",
    "stack_to_unset",
})  # fmt: skip


def tracepoint_field(
    name: str, kind: Type, offset: int, *, size: int = 0, data_loc: bool = False
) -> TracepointField:
    """One field of a tracepoint's record; *size* if it takes more than its type."""
    return TracepointField(name, kind, offset, size or (4 if data_loc else kind.size), f"{kind} {name}", data_loc)


def event(*fields: TracepointField) -> tuple[TracepointField, ...]:
    """A record: the common fields and *fields*."""
    return (TracepointField("common_type", UINT32, 0, 2, "unsigned short common_type"), *fields)


def function(
    name: str, *parameters: tuple[str, Type], result: Type = INT32, module: str = "vmlinux"
) -> FunctionPrototype:
    """A kernel function with type information."""
    return FunctionPrototype(name, module, parameters, result)


def _events() -> dict[tuple[str, str], tuple[TracepointField, ...]]:
    wakeup = event(tracepoint_field("comm", String(16), 8), tracepoint_field("pid", INT32, 24))
    return {
        ("sched", "sched_switch"): event(
            tracepoint_field("prev_comm", String(16), 8), tracepoint_field("prev_pid", INT32, 24)
        ),
        ("sched", "sched_wakeup"): wakeup,
        ("sched", "sched_wakeup_new"): wakeup,
        ("sched", "sched_process_exec"): event(
            tracepoint_field("filename", String(0), 8, data_loc=True), tracepoint_field("pid", INT32, 12)
        ),
        ("syscalls", "sys_enter_openat"): event(
            tracepoint_field("filename", Pointer(INT8, AddressSpace.USER), 24),
        ),
    }


def _raw() -> dict[str, FunctionPrototype]:
    return {
        "sched_switch": function("sched_switch", ("preempt", INT32), ("prev", Pointer(TASK)), ("next", Pointer(TASK))),
        "kfree_skb": function("kfree_skb", ("skb", Pointer(FILE))),
    }


def _symbols() -> dict[str, tuple[UserSymbol, ...]]:
    return {
        "/bin/app": (
            UserSymbol("main", 0x401000, 0x1000, 64),
            UserSymbol("work", 0x401040, 0x1040, 32),
            UserSymbol("work_more", 0x401060, 0x1060, 32),
        )
    }


@dataclass
class RecordedKernel:
    """A small kernel: a few functions, tracepoints, types and one user binary, all of which tests may replace."""

    arch: str = "x86_64"
    release: str = "6.1.0-test"
    possible_cpus: int = 4
    pid_namespace: tuple[int, int] | None = None
    has_btf: bool = True
    features: frozenset[str] = FEATURES
    features_used: frozenset[str] = frozenset()
    sleepable_functions: frozenset[str] = frozenset()
    structs: dict[tuple[str, str], Struct] = field(
        default_factory=lambda: {(item.kind, item.name): item for item in (TASK, FILE, REGISTERS, LIST)}
    )
    enums: dict[str, Enum] = field(
        default_factory=lambda: {"pid_type": Enum("pid_type", 4, False, (("PIDTYPE_PID", 0), ("PIDTYPE_MAX", 4)))}
    )
    typedefs: dict[str, Type] = field(default_factory=lambda: {"u64": UINT64, "pid_t": INT32, "s64": INT64})
    prototypes: tuple[FunctionPrototype, ...] = (
        function("vfs_read", ("file", Pointer(FILE)), ("count", UINT64), result=INT64),
        function("vfs_write", ("file", Pointer(FILE)), ("count", UINT64), result=INT64),
        function("vfs_open", ("path", Pointer(INT8)), ("file", Pointer(FILE))),
        function("do_exit", ("code", INT64)),
        function("helper", ("x", INT32), module="mod_a"),
        function("helper", ("x", INT32), module="mod_b"),
    )
    traceable: tuple[KernelFunction, ...] = (
        KernelFunction("vfs_read"),
        KernelFunction("vfs_write"),
        KernelFunction("vfs_open"),
        KernelFunction("vfs_open.part.0"),
        KernelFunction("do_exit"),
        KernelFunction("helper", "mod_a"),
        KernelFunction("helper", "mod_b"),
    )
    reasons: dict[str, str] = field(default_factory=lambda: {"preempt_schedule": "notrace"})
    events: dict[tuple[str, str], tuple[TracepointField, ...]] = field(default_factory=_events)
    raw: dict[str, FunctionPrototype] = field(default_factory=_raw)
    files: dict[str, list[str]] = field(default_factory=lambda: {"/bin/app": ["/bin/app"], "app": ["/bin/app"]})
    symbols: dict[str, tuple[UserSymbol, ...]] = field(default_factory=_symbols)
    cpp: dict[str, tuple[tuple[UserSymbol, str], ...]] = field(default_factory=dict)
    parameters: dict[tuple[str, str], tuple[UserParameter, ...]] = field(
        default_factory=lambda: {
            ("/bin/app", "work"): (UserParameter("n", INT32, "di"), UserParameter("m", INT64, "sp+8"))
        }
    )
    defined_events: dict[tuple[str, str], DefinedEvent] = field(default_factory=dict)
    implementations: dict[str, IndirectFunction] = field(default_factory=dict)
    goroutines: dict[str, int] = field(default_factory=dict)
    go_results: dict[tuple[str, str], tuple[UserParameter, ...]] = field(default_factory=dict)
    code: bytes = b"\x90\x90\x90\x90" + b"\x48\x89\xe5" * 20
    code_at: dict[int, bytes] = field(default_factory=dict)
    """Code at file offsets, where it is not *code*."""
    lines: dict[tuple[str, int], list[UserSymbol]] = field(default_factory=dict)
    usdt: tuple[UsdtProbe, ...] = (
        UsdtProbe("/bin/app", "one", "start", 0x401010, 0x1010, 0, "-4@%edi 8@-24(%rbp)"),
        UsdtProbe("/bin/app", "one", "stop", 0x401020, 0x1020, 0x3000, "4@$5"),
        UsdtProbe("/bin/app", "two", "stop", 0x401030, 0x1030, 0, ""),
    )
    programs: list[tuple[int, str]] = field(default_factory=list)
    loaded_modules: list[str] = field(default_factory=lambda: ["mod_a", "mod_b"])
    kernel_headers: KernelHeaders = NO_HEADERS


    other_modules: dict[str, str] = field(default_factory=lambda: {"ext9": "installed", "compiled": "built in"})
    read_files: list[str] = field(default_factory=list)
    objects: dict[str, list[ObjectFunction]] = field(default_factory=dict)

    def feature(self, name: str) -> bool:
        return name in self.features

    def attach_type(self, place: ProbeTarget) -> int:
        return 0

    def struct(self, kind: str, name: str) -> Struct | None:
        return self.structs.get((kind, name))

    def enum(self, name: str) -> Enum | None:
        return self.enums.get(name)

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        found = (item for item in self.enums.values() if name in dict(item.members))
        return next(((item, dict(item.members)[name]) for item in found), None)

    def typedef(self, name: str) -> Type | None:
        return self.typedefs.get(name)

    def type_id(self, kind: str, name: str) -> int:
        return 7 if (kind, name) in self.structs else 0

    def object_functions(self, path: str, data: bytes) -> list[ObjectFunction]:
        return self.objects.get(path, [])

    def type_names(self, kind: str) -> Iterable[str]:
        return [name for found, name in self.structs if found == kind]

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        return next(iter(self.function_prototypes(name, module)), None)

    def function_prototypes(self, pattern: str, module: str = "") -> list[FunctionPrototype]:
        return [
            item
            for item in self.prototypes
            if fnmatchcase(item.name, pattern) and (not module or fnmatchcase(item.module, module))
        ]

    def kernel_functions(self, pattern: str, module: str = "") -> list[KernelFunction]:
        return [
            item
            for item in self.traceable
            if fnmatchcase(item.name, pattern) and (not module or fnmatchcase(item.module or "vmlinux", module))
        ]

    def untraceable_reason(self, name: str) -> str:
        return self.reasons.get(name, "missing")

    def kernel_function_size(self, name: str, module: str = "") -> int | None:
        return 128

    def sleepable_function(self, name: str) -> bool:
        return name in self.sleepable_functions

    def modules(self) -> list[str]:
        return self.loaded_modules

    def module_state(self, name: str) -> str:
        return "loaded" if name in self.loaded_modules else self.other_modules.get(name, "absent")

    def unloaded_modules(self, pattern: str) -> tuple[list[str], bool]:
        return [name for name in self.other_modules if pattern.startswith(f"{name}_")], False

    def tracepoints(self, category: str, event: str) -> list[tuple[str, str]]:
        return [item for item in sorted(self.events) if fnmatchcase(item[0], category) and fnmatchcase(item[1], event)]

    def tracepoint_fields(self, category: str, event: str) -> tuple[TracepointField, ...] | None:
        return self.events.get((category, event))

    def defined_event(self, category: str, event: str) -> DefinedEvent | None:
        return self.defined_events.get((category, event))

    def raw_tracepoints(self, pattern: str) -> list[tuple[str, str]]:
        return [("vmlinux", name) for name in sorted(self.raw) if fnmatchcase(name, pattern)]

    def raw_tracepoint_prototype(self, event: str) -> FunctionPrototype | None:
        return self.raw.get(event)

    def iterators(self) -> dict[str, Struct]:
        return {"task": ITER_TASK}

    def kernel_symbol(self, name: str) -> int | None:
        return 0xFFFFFFFF81000000 if name in self.reasons else None

    def binaries(self, target: str, pid: int | None, command: str = "") -> list[str]:
        return self.files.get(target, [])

    def user_symbols(self, path: str, pattern: str) -> list[UserSymbol]:
        return [item for item in self.symbols.get(path, ()) if fnmatchcase(item.name, pattern)]

    def user_implementations(self, path: str, function: UserSymbol, pid: int | None) -> IndirectFunction:
        return self.implementations.get(function.name, IndirectFunction(reason="nothing says it"))

    def user_code(self, path: str, offset: int, size: int) -> bytes:
        return self.code_at.get(offset, self.code)[:size]

    def user_codes(self, path: str, offsets: Sequence[int], size: int) -> list[bytes]:
        return [self.user_code(path, offset, size) for offset in offsets]

    def user_exits(self, path: str, function: UserSymbol) -> FunctionExits:
        code = self.user_code(path, function.offset, function.size)
        try:
            found = instructions.control_flow(code, function.address, self.arch)
        except BadCodeError as error:
            return FunctionExits(problem=str(error))
        start = function.offset - function.address
        returns = (Exit(start + at, at - function.address) for at in found.returns)
        ways = (Exit(start + at.address, at.address - function.address, Way.JUMP, at.condition) for at in found.jumps)
        problem = "it jumps to a function of another file" if found.jumps else ""
        return FunctionExits((*returns, *ways), problem, function.name.startswith("_Z"))

    def user_address(self, path: str, name: str) -> int | None:
        return {"counter": 0x404000}.get(name)

    def user_size(self, path: str, name: str) -> int:
        return {"counter": 4}.get(name, 0)

    def user_thread_local(self, path: str, name: str) -> bool:
        return False

    def cpp_symbols(self, path: str, pattern: str) -> list[tuple[UserSymbol, str]]:
        found = self.cpp.get(path, ())
        return [
            item for item in found if fnmatchcase(item[1] if "(" in pattern else item[1].partition("(")[0], pattern)
        ]

    def executable(self, path: str) -> bool:
        return not path.endswith(".txt")

    def user_offset(self, path: str, address: int) -> int | None:
        return address - 0x400000 if 0x401000 <= address < 0x402000 else None

    def user_address_at(self, path: str, offset: int) -> int | None:
        return offset + 0x400000 if 0x1000 <= offset < 0x2000 else None

    def user_type(self, path: str, kind: str, name: str) -> Type | None:
        return None

    def user_result(self, path: str, symbol: str, _address: int | None = None) -> Type | None:
        return INT32 if (path, symbol) in self.parameters else None

    def user_parameters(
        self, path: str, symbol: str, _address: int | None = None
    ) -> tuple[UserParameter, ...] | None:
        return self.parameters.get((path, symbol))

    def user_goid(self, path: str, offset: int) -> int | None:
        return self.goroutines.get(path)

    def user_go_results(self, path: str, symbol: str) -> tuple[UserParameter, ...]:
        return self.go_results.get((path, symbol), ())

    def user_debug_problems(self, path: str) -> list[str]:
        return []

    def user_lines(self, path: str, file: str, line: int, column: int | None) -> list[UserSymbol]:
        return self.lines.get((file, line), [])

    def usdt_probes(self, path: str, provider: str, name: str) -> list[UsdtProbe]:
        return [
            item
            for item in self.usdt
            if item.path == path and fnmatchcase(item.provider, provider) and fnmatchcase(item.name, name)
        ]

    def bpf_programs(self, pattern: str) -> list[tuple[int, str]]:
        return [item for item in self.programs if fnmatchcase(item[1], pattern)]

    def cgroup_id(self, path: str) -> int | None:
        return None

    def headers(self) -> KernelHeaders:
        return self.kernel_headers

    def depend_on_file(self, path: str) -> None:
        self.read_files.append(path)

    def depend_on_path(self, path: str) -> None:
        """Where names lead does not change."""

    def depend_on_headers(self, paths: Iterable[str]) -> None:
        self.read_files.extend(paths)

    def dependencies(self) -> tuple[tuple[str, ...], ...]:
        return ()
