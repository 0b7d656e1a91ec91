"""Facts about the machine that the compiler uses: the interface between it and the kernel.

The compiler gets BTF, tracepoint formats, symbols, features and headers through :class:`KernelInfo` only.  The live
implementation is ``pytrace.runtime.load.live_kernel``; tests use recorded facts (``tests/support/facts.py``).  The same
script with the same facts compiles to the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from pytrace.core.diagnostics import TraceError
from pytrace.core.probe_kinds import ProbeTarget
from pytrace.core.types import Enum, Struct, Type

if TYPE_CHECKING:
    from pytrace.core.instructions import FunctionExits

FEATURES = (
    "atomic_fetch",
    "iterator_paths",
    "stack_to_unset",
    "kprobe",
    "perf_kprobe",
    "kprobe_multi",
    "kprobe_session",
    "uprobe",
    "perf_uprobe",
    "uprobe_multi",
    "uprobe_session",
    "sleepable_uprobe",
    "sleepable_fentry",
    "task_memory",
    "task_work",
    "call_return",
    "nop5_uprobes",
    "semaphores",
    "fentry",
    "rawtracepoint",
    "raw_syscalls",
    "tracepoint",
    "iter",
    "vma_iterator",
    "perf_link",
    "link_missed",
    "tracing_cookie",
    "perf_hardware",
    "watchpoint",
    "btf",
    "module_btf",
    "ringbuf",
    "batch_ops",
    "large_programs",
    "bpf_loop",
    "for_each_map_elem",
    "lookup_percpu_elem",
    "get_func_ip",
    "get_attach_cookie",
    "tracing_get_attach_cookie",
    "tai_clock",
    "boot_clock",
    "ns_pid",
    "probe_read_kernel",
    "current_task_btf",
    "snprintf",
    "strncmp",
    "jiffies64",
    "get_stack",
    "get_task_stack",
    "send_signal",
    "send_signal_thread",
    "override_return",
    "probe_write_user",
    "d_path",
    "socket_cookie",
    "skb_output",
    "kfunc_kprobe",
    "kfunc_tracepoint",
    "kfunc_perf_event",
    "kfunc_raw_tracepoint",
    "kfunc_tracing",
    "get_branch_snapshot",
)
"""Kernel features that pytrace probes for, as ``--no-feature`` lists them; ``runtime.load.features`` has a probe for
each."""


def known_features(names: Iterable[str]) -> frozenset[str]:
    """*names* of features.

    Raises:
        TraceError: one of them is unknown.
    """
    unknown = sorted(set(names) - set(FEATURES))
    if unknown:
        raise TraceError(f"unknown feature {unknown[0]!r}", hints=("features are " + ", ".join(FEATURES),))
    return frozenset(names)


COMMON_FIELDS_END = 8
"""Tracepoint records start with this many bytes that BPF programs must not read (``struct trace_entry``)."""


class TracepointField(msgspec.Struct, frozen=True):
    """One field of a tracepoint's record, from its ``format`` file.

    *declaration* is the C text as the kernel prints it (``const char * filename``).  *data_loc* fields hold a
    ``u32`` (offset in the low, length in the high half); *relative* ones count the offset from the end of the field.
    """

    name: str
    type: Type
    offset: int
    size: int
    declaration: str
    data_loc: bool = False
    relative: bool = False


class DefinedEvent(msgspec.Struct, frozen=True):
    """A trace event that somebody has defined in tracefs (``perf probe``, ``uprobe_events``, ``kprobe_events`` …).

    *letter* is the kind: ``p`` a probe, ``r`` one of returns; others are made of other events. *path* and *offset* are
    the file and place of a user probe; else *path* is empty, and *function*, *module* and *offset* the kernel's.
    *fetches* are the fields (``NAME=EXPRESSION:TYPE``, Documentation/trace/kprobetrace.rst).
    """

    definition: str
    letter: str
    path: str = ""
    function: str = ""
    module: str = ""
    offset: int = 0
    fetches: tuple[str, ...] = ()


class FunctionPrototype(msgspec.Struct, frozen=True):
    """A kernel function as BTF describes it. *module* is ``vmlinux`` or the module that defines it."""

    name: str
    module: str
    parameters: tuple[tuple[str, Type], ...]
    result: Type
    variadic: bool = False
    btf_id: int = 0

    @property
    def text(self) -> str:
        """The prototype in one line, for comparison and display."""
        return f"{self.result} ({', '.join(f'{kind} {name}' for name, kind in self.parameters)})"


class ObjectFunction(msgspec.Struct, frozen=True):
    """A function of a BPF object file; *static* ones cannot be called from outside."""

    prototype: FunctionPrototype
    static: bool = False


class KernelFunction(msgspec.Struct, frozen=True):
    """A function that kprobes may attach to; *module* is empty for the kernel proper.

    *number* static functions of several source files have the name.
    """

    name: str
    module: str = ""
    number: int = 1


class UserSymbol(msgspec.Struct, frozen=True):
    """A function in a user binary. *address* is its virtual address in the file, *offset* its position in the file.

    *go*: it is code of Go, which runs on stacks that move. *indirect*: it is the resolver of an IFUNC symbol.
    """

    name: str
    address: int
    offset: int
    size: int
    go: bool = False
    indirect: bool = False


class IndirectFunction(msgspec.Struct, frozen=True):
    """The functions that stand for an IFUNC symbol, with its name; if there are none, *reason* says why.

    *also* are other names that these functions stand for.
    """

    functions: tuple[UserSymbol, ...] = ()
    reason: str = ""
    also: tuple[str, ...] = ()


class UsdtProbe(msgspec.Struct, frozen=True):
    """One USDT location from a binary's ``.note.stapsdt``.

    *offset* and *semaphore_offset* are file offsets (semaphore 0 when there is none); *arguments* is the note's text.
    """

    path: str
    provider: str
    name: str
    address: int
    offset: int
    semaphore_offset: int
    arguments: str


class RegisterPart(msgspec.Struct, frozen=True):
    """*size* bytes at an *offset* of a value, which are in a register."""

    offset: int
    size: int
    register: str


class UserParameter(msgspec.Struct, frozen=True):
    """A parameter of a user function from DWARF; *location* is a register name, ``register+offset`` for memory, or
    ``=N`` for a constant (its bits without sign).

    *declaration* is its type as the language writes it. A value in several registers has *parts* and no location.
    *text*: it is a string of Go, address and length. *lost* are the members (``inner.price``) that are in
    floating-point registers, which programs cannot read: *type* does not have them. Of a value that is there as a whole
    it is an empty name, and there is no place.
    """

    name: str
    type: Type
    location: str
    declaration: str = ""
    parts: tuple[RegisterPart, ...] = ()
    text: bool = False
    lost: tuple[str, ...] = ()

    @property
    def readable(self) -> bool:
        """True if at least a part of it can be read."""
        return "" not in self.lost


class KernelHeaders(msgspec.Struct, frozen=True):
    """Headers of a kernel, with the include directories and macros of its own build.

    *trees* are the roots (source, build), *folders* the include directories in search order, *included* the files that
    are included first, *defines* macros (``NAME=VALUE``).
    """

    trees: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Problems of the trees that environment variables name."""

    def holds(self, path: str) -> bool:
        """Whether a file is one of these headers."""
        return path.startswith(tuple(f"{folder}/" for folder in self.folders))


NO_HEADERS = KernelHeaders()


class KernelInfo(Protocol):
    """Queries of the compiler about the machine. Look-ups without a result return None or an empty list."""

    @property
    def arch(self) -> str:
        """Machine name as in ``uname -m``."""

    @property
    def release(self) -> str:
        """Kernel release as in ``uname -r``."""

    @property
    def possible_cpus(self) -> int:
        """One more than the highest number of a possible CPU: the length of arrays that are indexed by CPU."""

    @property
    def pid_namespace(self) -> tuple[int, int] | None:
        """Device and inode of the tracer's pid namespace, None in the initial one."""

    @property
    def has_btf(self) -> bool:
        """True when the kernel has type information."""

    def feature(self, name: str) -> bool:
        """Whether the kernel has a feature of ``pytrace.runtime.load.features`` (``kprobe_multi``, ``bpf_loop`` …)."""

    # ---- types

    def attach_type(self, place: ProbeTarget) -> int:
        """Number in the kernel's own BTF of what a tracing program attaches to; 0 for what is not in there."""

    def struct(self, kind: str, name: str) -> Struct | None:
        """The ``struct`` or ``union`` of that name."""

    def enum(self, name: str) -> Enum | None:
        """The enumeration of that name."""

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration that has a member of that name, and the member's value."""

    def typedef(self, name: str) -> Type | None:
        """The type of a typedef or a C base type (``unsigned int``)."""

    def type_names(self, kind: str) -> Iterable[str]:
        """Names of all ``struct``, ``union``, ``enum`` or ``typedef`` definitions, for suggestions and listing."""

    def type_id(self, kind: str, name: str) -> int:
        """Id of a ``struct``, ``union``, ``enum`` or ``typedef`` in the BTF of the kernel proper, or 0."""

    # ---- probes

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        """Prototype of a kernel function; any module when *module* is empty."""

    def function_prototypes(self, pattern: str, module: str = "") -> list[FunctionPrototype]:
        """Prototypes of all BTF functions whose name matches a ``*`` pattern (module likewise; empty for any)."""

    def kernel_functions(self, pattern: str, module: str = "") -> list[KernelFunction]:
        """Functions that kprobes may attach to, by ``*`` pattern; *module* likewise, empty for any."""

    def untraceable_reason(self, name: str) -> str:
        """The reason why :meth:`kernel_functions` lacks a function; empty if it does not.

        ``missing``, ``blacklisted`` (by the kernel), ``inlined`` (only its type is known), ``notrace``, ``variable``,
        or ``excluded`` (by pytrace).
        """

    def kernel_function_size(self, name: str, module: str = "") -> int | None:
        """Bytes of a kernel function (distance to the next symbol), None when it is not known."""

    def sleepable_function(self, name: str) -> bool:
        """Whether a fentry or fexit program of a function of the kernel proper may wait for memory."""

    def modules(self) -> list[str]:
        """Names of the loaded kernel modules."""

    def module_state(self, name: str) -> str:
        """``loaded``, ``installed`` (and could be loaded), ``built in``, ``absent``, or empty when it is not known."""

    def unloaded_modules(self, pattern: str) -> tuple[list[str], bool]:
        """Modules that are not loaded and may define a function (by ``*`` pattern), and whether that is certain."""

    def tracepoints(self, category: str, event: str) -> list[tuple[str, str]]:
        """``(category, event)`` of all tracepoints that match two ``*`` patterns."""

    def tracepoint_fields(self, category: str, event: str) -> tuple[TracepointField, ...] | None:
        """Fields of a tracepoint's record, the common ones (offset < 8) included."""

    def defined_event(self, category: str, event: str) -> DefinedEvent | None:
        """How somebody has defined a trace event; None for the kernel's own tracepoints."""

    def raw_tracepoints(self, pattern: str) -> list[tuple[str, str]]:
        """``(module, event)`` of raw tracepoints by ``*`` pattern; module ``vmlinux`` for the kernel proper."""

    def raw_tracepoint_prototype(self, event: str) -> FunctionPrototype | None:
        """Parameters of a raw tracepoint (without the leading context), from ``btf_trace_EVENT``."""

    def iterators(self) -> dict[str, Struct]:
        """BPF iterator targets and their context structs (``bpf_iter__task`` for ``task``)."""

    # ---- symbols

    def kernel_symbol(self, name: str) -> int | None:
        """Address of a kernel symbol (kallsyms).

        Raises:
            TraceError: this process may not read kernel addresses.
        """

    def binaries(self, target: str, pid: int | None, command: str = "") -> list[str]:
        """Paths of the user binaries that a uprobe or USDT target names: path, glob, library or program name, ``*``.

        ``*`` stands for all binaries that processes have mapped, and for the program of *command* (``-c``).

        Raises:
            TraceError: there is no result because process *pid* does not exist or belongs to another user.
        """

    def user_symbols(self, path: str, pattern: str) -> list[UserSymbol]:
        """Functions of a binary whose name matches a ``*`` pattern."""

    def user_implementations(self, path: str, function: UserSymbol, pid: int | None) -> IndirectFunction:
        """The functions that stand for an IFUNC symbol of a binary, in process *pid* (None for any process)."""

    def user_code(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a binary at a file offset; fewer (or none) when the file does not have them."""

    def user_codes(self, path: str, offsets: Sequence[int], size: int) -> list[bytes]:
        """Like :meth:`user_code` for each of *offsets*; opens the file once."""

    def user_exits(self, path: str, function: UserSymbol) -> FunctionExits:
        """The instructions at which a function of a binary is left."""

    def user_address(self, path: str, name: str) -> int | None:
        """Virtual address of a symbol of a binary, variables included."""

    def user_size(self, path: str, name: str) -> int:
        """Size in bytes of such a symbol, 0 when the binary does not have it."""

    def user_thread_local(self, path: str, name: str) -> bool:
        """Whether such a symbol is a variable of which each thread has its own."""

    def cpp_symbols(self, path: str, pattern: str) -> list[tuple[UserSymbol, str]]:
        """Functions of a binary whose demangled C++ name matches a ``*`` pattern, with that name.

        A pattern without ``(`` is compared with the qualified name without parameters, ``_Z…`` and ``_R…`` with the
        mangled name.
        """

    def executable(self, path: str) -> bool:
        """Whether a file is an ELF program or library."""

    def user_offset(self, path: str, address: int) -> int | None:
        """File offset of a virtual address of a binary."""

    def user_address_at(self, path: str, offset: int) -> int | None:
        """Virtual address of a file offset of a binary's code."""

    def user_parameters(
        self, path: str, symbol: str, address: int | None = None
    ) -> tuple[UserParameter, ...] | None:
        """Parameters of a user function, from DWARF; of that at *address* where several have the name."""

    def user_type(self, path: str, kind: str, name: str) -> Type | None:
        """The ``struct``, ``union`` or ``enum`` (*kind*) that a user binary's DWARF has under a name."""

    def user_result(self, path: str, symbol: str, address: int | None = None) -> Type | None:
        """Type of a user function's result, from DWARF; void when it has none. *address* as for parameters."""

    def user_goid(self, path: str, offset: int) -> int | None:
        """Where in ``runtime.g`` the number of a goroutine is; None if no code of Go is at a file offset."""

    def user_go_results(self, path: str, symbol: str) -> tuple[UserParameter, ...]:
        """The results of a function of Go when it returns, from DWARF; empty where there are none."""

    def user_debug_problems(self, path: str) -> list[str]:
        """Messages about debug files that the queries above could not read for a binary."""

    def user_lines(self, path: str, file: str, line: int, column: int | None) -> list[UserSymbol]:
        """Code addresses of a source line, from DWARF."""

    def usdt_probes(self, path: str, provider: str, name: str) -> list[UsdtProbe]:
        """USDT locations of a binary by ``*`` patterns."""

    def bpf_programs(self, pattern: str) -> list[tuple[int, str]]:
        """``(id, function name)`` of loaded BPF programs and sub-programs with BTF."""

    # ---- other

    def object_functions(self, path: str, data: bytes) -> list[ObjectFunction]:
        """Functions of a BPF object file (*data*; *path* is for messages) other than its programs."""

    def cgroup_id(self, path: str) -> int | None:
        """Id of a cgroup v2 directory."""

    def headers(self) -> KernelHeaders:
        """Installed headers of the running kernel."""

    def depend_on_file(self, path: str) -> None:
        """Record that the compilation read a file (an import, a header)."""

    def depend_on_path(self, path: str) -> None:
        """Record that the compilation depends on where a name leads; ``.`` is the working directory."""

    def depend_on_headers(self, paths: Iterable[str]) -> None:
        """Record that the compilation read many files (the kernel's headers)."""

    @property
    def features_used(self) -> frozenset[str]:
        """Features that were queried and are present, for ahead-of-time files."""

    def dependencies(self) -> tuple[tuple[str, ...], ...]:
        """Fingerprints of the facts that the answers so far depend on, for the compile cache; checked by
        ``runtime.machine.fingerprints.still_true``.
        """


# --------------------------------------------------------------------------------------------------------- kernel facts

# Facts about one machine as data: what a compilation of one script asks its `KernelInfo`, with the answers.
#
# A machine that cannot compile states them, and another one compiles with them
# (`runtime.load.remote_kernel.RemoteKernel`). Equal facts have equal digests. The form is bounded, as facts may come
# from a machine that is not trusted.


MOST_CPUS = 8192
"""``CONFIG_NR_CPUS`` of the largest kernels (arch/x86/Kconfig)."""
LARGEST_FACTS = 64 << 20
"""Bytes of facts; the type information of a kernel has 5 to 15 MB, that of a module 100 KB."""
LARGEST_PACKED_FACTS = 23 << 20
"""Bytes of compressed facts, which fit into a message."""
MOST_QUESTIONS = 16384

Word: TypeAlias = Annotated[str, Meta(max_length=4096)]
Question: TypeAlias = Annotated[tuple[Word, ...], Meta(min_length=1, max_length=4)]
"""A kind of :mod:`pytrace.runtime.load.remote_kernel`, and what it is about."""
Questions: TypeAlias = Annotated[tuple[Question, ...], Meta(max_length=MOST_QUESTIONS)]
Answer: TypeAlias = Annotated[tuple[Annotated[str, Meta(max_length=1 << 20)], ...], Meta(max_length=1 << 18)]
Digest: TypeAlias = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")]
"""SHA-256, in hex; empty for none."""
Release: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}\Z")]
"""Paths are made of it."""
Machine: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,32}\Z")]
Module: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}\Z")]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says of itself."""

    machine: Machine
    release: Release
    build: tuple[Word, ...]
    """The fact of :func:`pytrace.runtime.machine.fingerprints.kernel_fact`."""
    cpus: Annotated[int, Meta(ge=1, le=MOST_CPUS)]
    """CPUs that code must have room for: the next power of two, so that machines of many sizes are one kind."""
    features: Annotated[tuple[Word, ...], Meta(max_length=len(FEATURES))]
    btf: bytes = b""
    """Type information of the kernel proper; empty without."""
    modules: dict[Module, bytes] = {}
    """That of modules which an answer names."""
    answers: Annotated[tuple[tuple[Question, Answer], ...], Meta(max_length=MOST_QUESTIONS)] = ()
    """Sorted by questions."""

    def encoded(self) -> bytes:
        """The form that :func:`digest` is of.

        Raises:
            TraceError: they are too large, or a name in them is no text.
        """
        try:
            data = _ENCODER.encode(self)
        except UnicodeEncodeError as error:
            raise TraceError(f"the facts about this kernel have a name that is no text: {error.object!r}") from None
        if len(data) > LARGEST_FACTS:
            raise TraceError(f"the facts about this kernel have {len(data)} bytes, more than are sent")
        return data


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def rounded_cpus(cpus: int) -> int:
    """The power of two that a number of CPUs counts as: of machines of many sizes, a few variants serve all."""
    return 1 << (cpus - 1).bit_length()


def facts_digest(encoded: bytes) -> str:
    """What encoded facts are known by."""
    return hashlib.sha256(encoded).hexdigest()


def decoded_facts(encoded: bytes) -> Facts:
    """Facts that were encoded.

    Raises:
        TraceError: they are damaged.
    """
    try:
        return msgspec.msgpack.decode(encoded, type=Facts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"the facts about a kernel are damaged: {error}") from None
