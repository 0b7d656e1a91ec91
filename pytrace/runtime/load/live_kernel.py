"""The live :class:`~pytrace.core.kernel_info.KernelInfo`: facts of this machine, each looked up when it is first
asked for.

What the answers depend on is recorded and handed out by :meth:`LiveKernel.dependencies`, so that a cached
compilation can be checked with :func:`pytrace.runtime.machine.fingerprints.still_true`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.base import cgroups, kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import (
    DefinedEvent,
    FunctionPrototype,
    IndirectFunction,
    KernelFunction,
    KernelHeaders,
    ObjectFunction,
    Question,
    TracepointField,
    UsdtProbe,
    UserParameter,
    UserSymbol,
)
from pytrace.core.probe_kinds import TRACEPOINT_TYPES, ProbeTarget, TypedFunctionTarget, type_name
from pytrace.core.types import Enum, Struct, Type
from pytrace.runtime.binaries.btf_types import Kind
from pytrace.runtime.binaries.elf_file import attach_path
from pytrace.runtime.binaries.kernel_types import SYSTEM_BTF, KernelTypes, absence, locate, program_functions
from pytrace.runtime.load import features
from pytrace.runtime.machine import fingerprints, perf, tracefs
from pytrace.runtime.machine.fingerprints import Fact
from pytrace.runtime.machine.foreign_files import open_regular
from pytrace.runtime.machine.kernel_functions import Kallsyms, KernelFunctions, ModuleIndex, never_traceable
from pytrace.runtime.machine.procfs import check_exists
from pytrace.runtime.machine.tracefs import Tracepoints

if TYPE_CHECKING:
    from pytrace.core.instructions import FunctionExits
    from pytrace.runtime.binaries.user_binary import Binary, UserBinaries
    from pytrace.runtime.stacks.function_exits import ExitFinder


AHEAD_CPUS = 64
"""Number of CPUs that ahead-of-time files have room for at least; of a larger machine, as many as that has."""


def check_visible(pid: int) -> None:
    """Refuse a process that does not exist, or whose program this user may not see.

    Raises:
        TraceError: with what is missing.
    """
    check_exists(pid)
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        raise TraceError(
            f"process {pid} belongs to another user, and its program and files cannot be seen",
            hints=("that needs CAP_SYS_PTRACE, or root",),
        ) from None
    except OSError:
        # Kernel threads have no program.
        return


class LiveKernel:
    """Facts about the running kernel and the user binaries of this machine.

    *environment* holds the variables that matter (``PYTRACE_BTF`` …; default the process's own). *traceable_functions*
    is the file of ``--traceable-functions``, *debuginfo* the directories of ``--debuginfo``. *disabled* are
    features that count as missing (``--no-feature``). *ahead*: the code will run on other
    machines, so the number of CPUs is :data:`AHEAD_CPUS` at least, and *cpus*.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        traceable_functions: str | None = None,
        debuginfo: Iterable[str] = (),
        disabled: Iterable[str] = (),
        ahead: bool = False,
        cpus: int = 0,
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._traceable_file = traceable_functions
        self._debuginfo = tuple(debuginfo)
        self._disabled = frozenset(disabled)
        self._least_cpus = max(AHEAD_CPUS if ahead else 0, cpus)
        self._features_used: set[str] = set()
        """Features that were asked for and are available."""
        self._exit_finders: dict[str, tuple[Binary, ExitFinder]] = {}
        self._system = os.uname()
        self._facts: dict[Fact, None] = {}
        self.questions: dict[Question, None] = {}
        """What was asked about the kernel, in the form of :mod:`pytrace.runtime.load.remote_kernel`."""

    def dependencies(self) -> tuple[Fact, ...]:
        """The facts that the answers so far depend on."""
        return (fingerprints.kernel_fact(self._btf_path or "/sys/kernel/btf/vmlinux"), *self._facts)

    def depend_on_file(self, path: str) -> None:
        self._depend(fingerprints.file_fact(path))

    def depend_on_path(self, path: str) -> None:
        self._depend(fingerprints.path_fact(path))

    def depend_on_headers(self, paths: Iterable[str]) -> None:
        self._depend(fingerprints.files_fact(paths))

    def _depend(self, fact: Fact) -> None:
        self._facts[fact] = None
        if fact[0] == "file" and not os.path.isabs(fact[1]):
            self.depend_on_path(".")

    def _ask(self, *question: str) -> None:
        self.questions[question] = None

    def _ask_owners(self, what: str, name: str, module: str = "") -> None:
        """Ask for modules that define something, unless it is clear that the kernel proper does."""
        if self.types is not None and self.types.incomplete(what, name, module):
            self._ask("owners", what, name, module)

    # ---- machine

    @property
    def arch(self) -> str:
        return self._system.machine

    @property
    def release(self) -> str:
        return self._system.release

    @property
    def pid_namespace(self) -> tuple[int, int] | None:
        fact = fingerprints.pid_namespace_fact()
        self._depend(fact)
        # PROC_PID_INIT_INO of include/linux/proc_ns.h
        return None if fact[2] in ("0", str(0xEFFFFFFC)) else (int(fact[1]), int(fact[2]))

    @cached_property
    def possible_cpus(self) -> int:
        return max(self._least_cpus, perf.possible_cpus()[-1] + 1)

    @property
    def has_btf(self) -> bool:
        return bool(self._btf_path)

    def feature(self, name: str) -> bool:
        there = name not in self._disabled and features.has(name)
        if there:
            self._features_used.add(name)
        return there

    @property
    def features_used(self) -> frozenset[str]:
        return frozenset(self._features_used)

    # ---- types

    @cached_property
    def _btf_path(self) -> str:
        path = locate(self._environment)
        if path and not path.startswith("/sys/"):
            self._depend(fingerprints.file_fact(path))
        return path

    @cached_property
    def types(self) -> KernelTypes | None:
        """All type information; None on a kernel without."""
        return KernelTypes(self._btf_path) if self._btf_path else None

    def absent_types(self) -> TraceError | None:
        """The error that explains others: types were asked for, and this kernel shows none. Otherwise None."""
        asked = "types" in self.__dict__  # the cached property
        return absence() if asked and not self.has_btf else None

    def attach_type(self, place: ProbeTarget) -> int:
        if self._btf_path != SYSTEM_BTF or self.types is None or getattr(place, "module", "") not in ("", "vmlinux"):
            return 0
        if isinstance(place, TypedFunctionTarget) and place.program_id is not None:
            return 0
        prefix, name = type_name(place)
        kind = Kind.TYPEDEF if prefix == TRACEPOINT_TYPES else Kind.FUNC
        return self.types.vmlinux.btf.find(f"{prefix}{name}", kind)

    def _value_type(self, kind: str, name: str) -> Type | None:
        if self.types is None:
            return None
        type_ = self.types.value_type(kind, name)
        self._ask_owners(kind, name)
        if type_ is None or (isinstance(type_, Struct) and type_.origin not in ("vmlinux", "")):
            self._depend_on_modules()
        return type_

    def _depend_on_modules(self) -> None:
        """An answer that another set of loaded modules could change."""
        if os.path.exists("/proc/modules"):
            self._depend(fingerprints.modules_fact())

    def struct(self, kind: str, name: str) -> Struct | None:
        type_ = self._value_type(kind, name)
        return type_ if isinstance(type_, Struct) else None

    def enum(self, name: str) -> Enum | None:
        type_ = self._value_type("enum", name)
        return type_ if isinstance(type_, Enum) else None

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        enumerator = self.types.enumerator(name) if self.types else None
        if enumerator is None:
            self._depend_on_modules()
        self._ask_owners("enumerator", name)
        return enumerator

    def typedef(self, name: str) -> Type | None:
        return self._value_type("typedef", name)

    def type_names(self, kind: str) -> Iterable[str]:
        return self.types.names(kind) if self.types else []

    def type_id(self, kind: str, name: str) -> int:
        return self.types.type_id(kind, name) if self.types else 0

    def object_functions(self, path: str, data: bytes) -> list[ObjectFunction]:
        from pytrace.runtime.load import object_files  # few scripts import object files

        return object_files.object_functions(path, data)

    # ---- kernel probes

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        self._ask_owners("function", name, module)
        prototype = self.types.function(name, module) if self.types else None
        if prototype is None or prototype.module != "vmlinux":
            self._depend_on_modules()
        return prototype

    def function_prototypes(self, pattern: str, module: str = "") -> list[FunctionPrototype]:
        self._ask_owners("function", pattern, module)
        if module != "vmlinux":
            self._depend_on_modules()
        return self.types.functions(pattern, module) if self.types else []

    @cached_property
    def kallsyms(self) -> Kallsyms:
        """The kernel's symbol table."""
        return Kallsyms()

    @cached_property
    def _functions(self) -> KernelFunctions:
        if self._traceable_file is not None:
            self._depend(fingerprints.file_fact(self._traceable_file))
            return KernelFunctions(self._traceable_file, lambda: self.kallsyms, live=False)
        path = next((f"{root}/available_filter_functions" for root in fingerprints.TRACEFS if os.path.isdir(root)), "")
        try:
            return KernelFunctions(path, lambda: self.kallsyms)
        except OSError:
            # Built without ftrace, or not readable: kallsyms has the names, too.
            return KernelFunctions("", lambda: self.kallsyms)

    def kernel_function_lists(self, pattern: str, module: str = "") -> Mapping[str, list[str]]:
        """Names of the functions of :meth:`kernel_functions`, by module (empty for the kernel proper).

        Each is there as often as functions have it.
        """
        self._ask("kernel_functions", pattern, module)
        names = self._functions.match(pattern, module)
        if module or "*" in pattern or names.keys() != {""}:
            self._depend_on_modules()
        return names

    def kernel_functions(self, pattern: str, module: str = "") -> list[KernelFunction]:
        lists = self.kernel_function_lists(pattern, module)
        return [
            KernelFunction(name, owner, number)
            for owner, names in lists.items()
            for name, number in Counter(names).items()
        ]

    def kernel_function_size(self, name: str, module: str = "") -> int | None:
        self._ask("kernel_function_size", name, module)
        return self.kallsyms.function_size(name, module)

    def sleepable_function(self, name: str) -> bool:
        self._ask("sleepable_function", name)
        try:
            return features.sleepable_function(name)
        except PermissionError:
            return False

    def modules(self) -> list[str]:
        self._ask("modules")
        self._depend_on_modules()
        return [line.split()[0] for line in kernel_files.lines(kernel_files.read_text("/proc/modules"))]

    def untraceable_reason(self, name: str) -> str:
        """Why :meth:`kernel_functions` does not have a function; empty when it does have it.

        ``missing``, ``blacklisted`` (by the kernel), ``inlined`` (only its type is known), ``notrace``, ``variable``,
        or ``excluded`` (by pytrace).
        """
        self._ask("untraceable_reason", name)
        if self.kernel_functions(name):
            return ""
        if never_traceable(name):
            return "excluded"
        if self._functions.blacklisted(name):
            return "blacklisted"
        if self.kallsyms.owners(name):
            return "notrace"
        if self.function(name) is not None:
            return "inlined"
        return "variable" if self.kallsyms.has(name) else "missing"

    @cached_property
    def _module_index(self) -> ModuleIndex:
        return ModuleIndex(self.release)

    def module_state(self, name: str) -> str:
        self._ask("module_state", name)
        index = self._module_index
        if name in self.modules():
            return "loaded"
        if name in index.installed:
            return "installed"
        if name in index.built_in:
            return "built in"
        return "absent" if index.installed else ""

    def unloaded_modules(self, pattern: str) -> tuple[list[str], bool]:
        self._ask("unloaded_modules", pattern)
        index, loaded = self._module_index, set(self.modules())
        exporting = [name for name in index.exporting(pattern) if name not in loaded]
        if exporting and "*" not in pattern:
            return exporting, True
        names = [*index.named_like(pattern), *exporting]
        # Where the kernel has functions of that family, a name that it does not have is rather misspelt.
        if not names and not self.kernel_functions(f"{pattern.lstrip('_').partition('_')[0]}_*"):
            names = index.of_family(pattern)
        return [name for name in dict.fromkeys(names) if name not in loaded], False

    @cached_property
    def tracepoint_files(self) -> Tracepoints:
        """The tracefs and its tracepoints."""
        return tracefs.Tracepoints(fingerprints.tracefs_root(), self._tracepoint_type)

    def _tracepoint_type(self, kind: str, name: str) -> Type | None:
        return self._value_type(kind, name)

    def tracepoints(self, category: str, event: str) -> list[tuple[str, str]]:
        self._ask("tracepoints", category, event)
        root = self.tracepoint_files.path
        if "*" in category + event:
            self._depend(fingerprints.tracepoints_fact(root))
        else:
            self._depend(fingerprints.tracepoint_fact(root, category, event))
        return self.tracepoint_files.match(category, event)

    def tracepoint_fields(self, category: str, event: str) -> tuple[TracepointField, ...] | None:
        self._ask("tracepoint_format", category, event)
        self._depend(fingerprints.tracepoint_fact(self.tracepoint_files.path, category, event))
        return self.tracepoint_files.fields(category, event)

    def defined_event(self, category: str, event: str) -> DefinedEvent | None:
        found = self.tracepoint_files.defined(category, event)
        if found is not None:
            self._depend(("never",))
        return found

    def raw_tracepoints(self, pattern: str) -> list[tuple[str, str]]:
        self._ask("raw_tracepoints", pattern)
        self._ask_owners("rawtracepoint", pattern)
        self._depend_on_modules()
        return self.types.raw_tracepoints(pattern) if self.types else []

    def raw_tracepoint_prototype(self, event: str) -> FunctionPrototype | None:
        self._ask_owners("rawtracepoint", event)
        return self.types.raw_tracepoint_prototype(event) if self.types else None

    def iterator_names(self) -> list[str]:
        """Names of the targets of :meth:`iterators`."""
        return self.types.iterator_names() if self.types else []

    def iterators(self) -> dict[str, Struct]:
        self._ask_owners("iterator", "*")
        return self.types.iterators() if self.types else {}

    # ---- symbols

    def kernel_symbol(self, name: str) -> int | None:
        self._ask("kernel_symbol", name)
        self._depend(fingerprints.boot_fact())
        address = self.kallsyms.address(name)
        if address is None and self.kallsyms.withheld and self.kallsyms.has(name):
            raise TraceError(
                f"the kernel hides the address of {name!r} from this process", hints=(self.kallsyms.withheld,)
            )
        if address is None or not self.kallsyms.in_kernel(name):
            self._depend_on_modules()
        return address

    @cached_property
    def _binaries(self) -> UserBinaries:
        from pytrace.runtime.binaries.user_binary import UserBinaries  # for user probes

        return UserBinaries(self._debuginfo, self._environment)

    def binaries(self, target: str, pid: int | None, command: str = "") -> list[str]:
        paths = self._binaries.libraries.find(target, pid, command)
        if not paths and pid is not None:
            check_visible(pid)
        if "*" in target:
            # Files of other processes come and go; what has been opened can be asked about to the end.
            paths = [path for path in paths if self._binaries.can_open(path)]
        for fact in self._binaries.libraries.dependencies(target, pid):
            self._depend(fact)
        return paths

    def user_symbols(self, path: str, pattern: str) -> list[UserSymbol]:
        symbols = self._binaries.symbols(path, pattern)
        self._depend_on_debug_files(path)
        return symbols

    def user_implementations(self, path: str, function: UserSymbol, pid: int | None) -> IndirectFunction:
        # What processes have resolved depends on them and on the processor.
        self._depend(("never",))
        self._depend_on_debug_files(path)
        return self._binaries.implementations(path, function, pid)

    def user_code(self, path: str, offset: int, size: int) -> bytes:
        return self.user_codes(path, [offset], size)[0]

    def user_codes(self, path: str, offsets: Sequence[int], size: int) -> list[bytes]:
        try:
            with open_regular(self._depend_on_binary(path)) as file:
                return [os.pread(file.fileno(), size, offset) for offset in offsets]
        except OSError:
            return [b""] * len(offsets)

    def user_exits(self, path: str, function: UserSymbol) -> FunctionExits:
        binary = self._binaries.binary(path)
        known = self._exit_finders.get(path)
        if known is None or known[0] is not binary:
            from pytrace.runtime.stacks.function_exits import ExitFinder  # returns of user functions

            known = self._exit_finders[path] = (binary, ExitFinder(binary))
        self._depend_on_debug_files(path)
        with self._binaries.limits(path):
            return known[1].exits(function.address, function.size)

    def user_address(self, path: str, name: str) -> int | None:
        self._depend_on_binary(path)
        variable = self._binaries.variable(path, name)
        return None if variable is None else variable.address

    def user_size(self, path: str, name: str) -> int:
        self._depend_on_binary(path)
        variable = self._binaries.variable(path, name)
        return 0 if variable is None else variable.size

    def user_thread_local(self, path: str, name: str) -> bool:
        self._depend_on_binary(path)
        variable = self._binaries.variable(path, name)
        return variable is not None and variable.thread_local

    def user_symbol_names(self, path: str, pattern: str) -> list[str]:
        """Names of the functions that :meth:`user_symbols` returns, sorted, each once."""
        names = self._binaries.function_names(path, pattern)
        self._depend_on_debug_files(path)
        return names

    def cpp_symbols(self, path: str, pattern: str) -> list[tuple[UserSymbol, str]]:
        symbols = self._binaries.cpp_symbols(path, pattern)
        self._depend_on_debug_files(path)
        return symbols

    def executable(self, path: str) -> bool:
        self._depend_on_binary(path)
        return self._binaries.executable(path)

    def user_offset(self, path: str, address: int) -> int | None:
        self._depend_on_binary(path)
        return self._binaries.offset(path, address)

    def user_address_at(self, path: str, offset: int) -> int | None:
        self._depend_on_binary(path)
        return self._binaries.address_at(path, offset)

    def user_parameters(
        self, path: str, symbol: str, address: int | None = None
    ) -> tuple[UserParameter, ...] | None:
        parameters = self._binaries.parameters(path, symbol, address)
        self._depend_on_debug_files(path)
        return parameters

    def user_type(self, path: str, kind: str, name: str) -> Type | None:
        type_ = self._binaries.named_type(path, kind, name)
        self._depend_on_debug_files(path)
        return type_

    def user_result(self, path: str, symbol: str, address: int | None = None) -> Type | None:
        type_ = self._binaries.result(path, symbol, address)
        self._depend_on_debug_files(path)
        return type_

    def user_goid(self, path: str, offset: int) -> int | None:
        place = self._binaries.goid(path, offset)
        self._depend_on_debug_files(path)
        return place

    def user_go_results(self, path: str, symbol: str) -> tuple[UserParameter, ...]:
        results = self._binaries.go_results(path, symbol)
        self._depend_on_debug_files(path)
        return results

    def user_lines(self, path: str, file: str, line: int, column: int | None) -> list[UserSymbol]:
        symbols = self._binaries.lines(path, file, line, column)
        self._depend_on_debug_files(path)
        return symbols

    def user_debug_problems(self, path: str) -> list[str]:
        return self._binaries.problems(path)

    def debug_problems(self) -> list[str]:
        """Which files with debug information all questions so far missed, as sentences."""
        return self._binaries.all_problems() if "_binaries" in self.__dict__ else []

    def _depend_on_binary(self, path: str) -> str:
        """Depend on a binary's file, which is the archive for a member of one. Returns the file's path."""
        file = attach_path(path)
        self._depend(fingerprints.file_fact(file))
        return file

    def _depend_on_debug_files(self, path: str) -> None:
        for file in self._binaries.files(path):
            self._depend(fingerprints.file_fact(file))

    def usdt_probes(self, path: str, provider: str, name: str) -> list[UsdtProbe]:
        self._depend_on_binary(path)
        return self._binaries.usdt(path, provider, name)

    def bpf_programs(self, pattern: str) -> list[tuple[int, str]]:
        # Any program may be gone at the next start.
        self._depend(("never",))
        return program_functions(pattern)

    # ---- other

    def cgroup_id(self, path: str) -> int | None:
        self._ask("cgroup_id", path)
        # The id of a cgroup is the inode number of its directory (kernfs).
        directory = path if os.path.isabs(path) else os.path.join(self._cgroup_root, path)
        self._depend(fingerprints.file_fact(directory))
        if not os.path.exists(os.path.join(directory, "cgroup.procs")):
            return None
        return os.stat(directory).st_ino

    @cached_property
    def _cgroup_root(self) -> str:
        """Where the unified cgroup hierarchy is mounted."""
        return next((mount.point for mount in cgroups.hierarchies() if mount.unified), "/sys/fs/cgroup")

    def headers(self) -> KernelHeaders:
        from pytrace.runtime.machine import kernel_headers  # few scripts have C definitions

        for path in kernel_headers.candidates(self.release):
            self.depend_on_file(path)
        return kernel_headers.find(self.release, self.arch, self._environment)
