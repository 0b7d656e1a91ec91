"""Type information of the running kernel, its modules and loaded BPF programs: where it is, and look-ups over it."""

from __future__ import annotations

import os
import struct
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.base import private_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.text import matching, name_pattern
from pytrace.core.types import Enum, Struct, Type
from pytrace.runtime.binaries import btf_types
from pytrace.runtime.binaries import btf_types as btf_file
from pytrace.runtime.binaries.btf_types import Btf
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.machine import bpf, fingerprints
from pytrace.runtime.machine.syscalls import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytrace.core.kernel_info import FunctionPrototype
    from pytrace.runtime.binaries.btf_types import TypeReader


SYSTEM_BTF = "/sys/kernel/btf/vmlinux"
_SEARCH = (
    "/boot/vmlinux-{release}",
    "/lib/modules/{release}/vmlinux-{release}",
    "/lib/modules/{release}/build/vmlinux",
    "/usr/lib/modules/{release}/kernel/vmlinux",
    "/usr/lib/debug/boot/vmlinux-{release}",
    "/usr/lib/debug/boot/vmlinux-{release}.debug",
    "/usr/lib/debug/lib/modules/{release}/vmlinux",
)
"""ELF files that may carry ``.BTF`` where the kernel does not show its own."""

_FUNCTIONS, _RAW_TRACEPOINTS, _ITERATORS = "functions", "raw tracepoints", "iterators"
"""Kinds of cached lists of names."""

_OF_ALL = {"function": _FUNCTIONS, "rawtracepoint": _RAW_TRACEPOINTS, "iterator": _ITERATORS}
_DEFINED: dict[str, tuple[str, int]] = {
    "function": ("{}", btf_file.Kind.FUNC), "rawtracepoint": ("btf_trace_{}", btf_file.Kind.TYPEDEF),
    "iterator": ("bpf_iter__{}", btf_file.Kind.STRUCT),
}  # fmt: skip
"""The type in BTF that a name of :meth:`KernelTypes.owners` stands for."""


def locate(environment: Mapping[str, str]) -> str:
    """Path of the type information: ``PYTRACE_BTF``, ``BPFTRACE_BTF``, the kernel's own, or a ``vmlinux``; else empty.

    Raises:
        TraceError: a variable names a file that is not there, or is empty.
    """
    for variable in ("PYTRACE_BTF", "BPFTRACE_BTF"):
        path = environment.get(variable)
        if path:
            if not os.path.exists(path):
                raise TraceError(f"{variable} names a file that does not exist: {path}")
            if not _has_content(path):
                raise TraceError(f"{variable} names an empty file: {path}")
            return path
    release = os.uname().release
    candidates = [SYSTEM_BTF, *(path.format(release=release) for path in _SEARCH)]
    return next((path for path in candidates if _has_content(path)), "")


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def absence() -> TraceError:
    """The error for a script that needs types, where :func:`locate` finds none."""
    state = "is empty" if os.path.exists(SYSTEM_BTF) else "is missing"
    if os.path.isdir("/sys/kernel"):
        remedy = "kernels that are built with CONFIG_DEBUG_INFO_BTF=y have it, as those of distributions are"
    else:
        remedy = "it is in sysfs, which is not mounted: mount -t sysfs sysfs /sys"
    return TraceError(
        f"the kernel's type information (BTF), which this script asks for, is not there: {SYSTEM_BTF} {state}",
        hints=(remedy, "PYTRACE_BTF=FILE names a vmlinux of this kernel, as packages of debug symbols have it"),
    )


class KernelTypes:
    """All type information of the kernel: ``vmlinux`` first, modules only when something is not found there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._module_readers: dict[str, TypeReader] = {}
        self._enumerators: dict[str, tuple[Enum, int] | None] = {}
        """Members by name, None for what no enumeration has: each look-up searches all strings (milliseconds)."""

    @cached_property
    def vmlinux(self) -> TypeReader:
        """Types of the kernel proper."""
        data = btf_file.map_file(self.path)
        if data[:4] == b"\x7fELF":
            with ElfFile.open(self.path) as file:
                section = file.section(".BTF")
                if section is None:
                    raise TraceError(f"{self.path} has no type information (.BTF section)")
                data = bytes(file.contents(section))
        stamp = fingerprints.kernel_fact(self.path)
        if self.path != SYSTEM_BTF:
            stamp += fingerprints.file_fact(self.path)[2:4]
        index = f"btf-index-{private_files.digest(' '.join(stamp).encode())}"
        btf = btf_file.Btf(data, "vmlinux", index=index)
        return btf_types.TypeReader(btf if self.path == SYSTEM_BTF else _checked(btf, index))

    @cached_property
    def modules(self) -> dict[str, str]:
        """Modules with type information, and where it is."""
        if self.path != SYSTEM_BTF:
            return {}
        folder = os.path.dirname(SYSTEM_BTF)
        return {name: f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name != "vmlinux"}

    def module(self, name: str) -> TypeReader | None:
        """Types of one module (or of ``vmlinux``)."""
        if name == "vmlinux":
            return self.vmlinux
        if name not in self.modules:
            return None
        reader = self._module_readers.get(name)
        if reader is None:
            with open(self.modules[name], "rb") as file:
                reader = btf_types.TypeReader(btf_file.Btf(file.read(), name, self.vmlinux.btf))
            self._module_readers[name] = reader
        return reader

    def readers(self, modules: str = "") -> Iterator[TypeReader]:
        """The kernel proper and its modules, as far as they match a ``*`` pattern (empty for all)."""
        names = ["vmlinux", *self.modules]
        for name in matching(modules, names) if modules else names:
            reader = self.module(name)
            if reader is not None:
                yield reader

    def find(self, name: str, *kinds: int, module: str = "") -> tuple[TypeReader, int] | None:
        """The first definition of a name, with who defines it."""
        for reader in self.readers(module):
            type_id = reader.btf.find(name, *kinds)
            if type_id:
                return reader, type_id
        return None

    def value_type(self, kind: str, name: str) -> Type | None:
        """A ``struct``, ``union``, ``enum`` or ``typedef`` by name; base types count as typedefs."""
        definition = self.find(name, *_named(kind))
        return definition[0].type(definition[1]) if definition else None

    def type_id(self, kind: str, name: str) -> int:
        """Id of a type of the kernel proper, named as for :meth:`value_type`; 0 when it has none."""
        return self.vmlinux.btf.find(name, *_named(kind))

    def names(self, kind: str) -> list[str]:
        """Names of all definitions of a kind, without repetition."""
        names: dict[str, None] = {}
        for reader in self.readers():
            names.update(dict.fromkeys(reader.btf.names(*btf_file.TYPE_KINDS[kind])))
        return list(names)

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration with a member of that name, and the member's value."""
        if name not in self._enumerators:
            self._enumerators[name] = self._find_enumerator(name)
        return self._enumerators[name]

    def _find_enumerator(self, name: str) -> tuple[Enum, int] | None:
        for reader in self.readers():
            type_id = _enum_with(reader, name)
            if type_id:
                type_ = reader.type(type_id)
                assert isinstance(type_, Enum)
                return type_, dict(type_.members)[name]
        return None

    # ---- functions

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        """Prototype of a function; the kernel proper wins over modules."""
        definition = self.find(name, btf_file.Kind.FUNC, module=module)
        return definition[0].prototype(definition[1]) if definition else None

    def functions(self, pattern: str, module: str = "") -> list[FunctionPrototype]:
        """Prototypes of all functions that match, in order of names."""
        prototypes = []
        for reader in self.readers(module):
            for name, type_id in self._function_ids(reader, pattern):
                prototypes.append((name, reader.prototype(type_id)))
        return [prototype for _, prototype in sorted(prototypes, key=lambda pair: (pair[0], pair[1].module))]

    def function_names(self, pattern: str, module: str = "") -> dict[str, list[str]]:
        """Names of all functions that match, each once, by module, without their types."""
        return self._listed(_FUNCTIONS, pattern, module)

    @staticmethod
    def _function_ids(reader: TypeReader, pattern: str) -> list[tuple[str, int]]:
        btf = reader.btf
        if "*" not in pattern:
            exact_id = btf.find(pattern, btf_file.Kind.FUNC)
            return [(pattern, exact_id)] if exact_id else []
        pairs = [(btf.type_name(type_id), type_id) for type_id in btf.ids(btf_file.Kind.FUNC)]
        wanted = set(matching(pattern, [name for name, _ in pairs]))
        return [pair for pair in pairs if pair[0] in wanted]

    # ---- raw tracepoints and iterators

    def raw_tracepoints(self, pattern: str) -> list[tuple[str, str]]:
        """``(module, event)`` of all raw tracepoints that match."""
        if "*" not in pattern:
            kind = btf_file.Kind.TYPEDEF
            readers = (reader for reader in self.readers() if reader.btf.find(f"btf_trace_{pattern}", kind))
            return [(reader.btf.name, pattern) for reader in readers]
        lists = self._listed(_RAW_TRACEPOINTS, pattern)
        return [(module, event) for module, events in lists.items() for event in events]

    def raw_tracepoint(self, event: str) -> tuple[TypeReader, int, list[str]] | None:
        """Who defines a raw tracepoint, its ``FUNC_PROTO``, and the names of its parameters after the context.

        The types are those of the typedef ``btf_trace_EVENT``, which the kernel itself goes by. Parameters of a
        function pointer may have no names in BTF; they are then those of a function that belongs to the tracepoint.
        """
        definition = self.find(f"btf_trace_{event}", btf_file.Kind.TYPEDEF)
        if definition is None:
            return None
        reader, type_id = definition
        words, at = reader.place(type_id)
        pointer, inside = reader.place(words[at + 2])
        proto_id = pointer[inside + 2]
        names = [name for name, _ in reader.parameters(proto_id)[1:]]
        for source in ("__bpf_trace", "__traceiter", "__probestub"):
            if all(names):
                break
            function = reader.btf.find(f"{source}_{event}", btf_file.Kind.FUNC)
            if function:
                others = [name for name, _ in reader.prototype(function, skip=1).parameters]
                names = others if len(others) == len(names) else names
        return reader, proto_id, [name or f"arg{number}" for number, name in enumerate(names)]

    def raw_tracepoint_prototype(self, event: str) -> FunctionPrototype | None:
        """Parameters of a raw tracepoint, without the context pointer that probes never see."""
        definition = self.raw_tracepoint(event)
        if definition is None:
            return None
        reader, proto_id, names = definition
        type_id = reader.btf.find(f"btf_trace_{event}", btf_file.Kind.TYPEDEF)
        prototype = reader.prototype_of(event, proto_id, type_id, skip=1)
        pairs = zip(names, prototype.parameters, strict=True)
        return replace(prototype, parameters=tuple((name, kind) for name, (_, kind) in pairs))

    def iterator_names(self) -> list[str]:
        """Names of all BPF iterator targets, sorted."""
        return sorted({name for names in self._listed(_ITERATORS, "*").values() for name in names})

    def iterators(self) -> dict[str, Struct]:
        """BPF iterator targets by name; the context struct is what ``bpf_iter_TARGET`` points to."""
        kinds = ((name, self.value_type("struct", f"bpf_iter__{name}")) for name in self.iterator_names())
        return {name: kind for name, kind in kinds if isinstance(kind, Struct)}

    # ---- modules

    def incomplete(self, what: str, pattern: str, module: str = "") -> bool:
        """Whether :meth:`owners` may have an answer: the kernel proper has no definition that comes before others."""
        if what == "enumerator" or module not in ("", "vmlinux") or "*" in pattern:
            return module != "vmlinux"
        if what in _DEFINED:
            form, kind = _DEFINED[what]
            return not self.vmlinux.btf.find(form.format(pattern), kind)
        return not self.type_id(what, pattern)

    def owners(self, what: str, pattern: str, module: str = "") -> list[str]:
        """The modules, as far as they match *module*, that have something which the kernel proper is not enough for.

        *what* is ``struct``, ``union``, ``enum``, ``typedef`` or ``enumerator`` with a name, which the first definition
        counts of; or ``function``, ``rawtracepoint`` or ``iterator`` with a ``*`` pattern.
        """
        if what not in _DEFINED:
            for reader in self.readers():
                if _enum_with(reader, pattern) if what == "enumerator" else reader.btf.find(pattern, *_named(what)):
                    return [] if reader.btf.name == "vmlinux" else [reader.btf.name]
            return []
        if "*" in pattern:
            return [name for name, names in self._listed(_OF_ALL[what], pattern, module).items()
                    if names and name != "vmlinux"]  # fmt: skip
        form, kind = _DEFINED[what]
        name = form.format(pattern)
        owners = [reader.btf.name for reader in self.readers(module) if reader.btf.find(name, kind)]
        return [owner for owner in owners if owner != "vmlinux"]

    # ---- long lists

    def _listed(self, what: str, pattern: str, module: str = "") -> dict[str, list[str]]:
        """The names of one sort that match, by module."""
        by_module = {}
        for owner in matching(module or "*", ["vmlinux", *self.modules]):
            names = self._lists.get(f"{what} {owner}")
            if names is not None:
                by_module[owner] = matching(pattern, names)
        return by_module

    @cached_property
    def _lists(self) -> dict[str, list[str]]:
        """Names by sort and module, cached as long as the kernel and its modules have the same type information."""
        own = () if self.path == SYSTEM_BTF else fingerprints.file_fact(self.path)
        # Times of files in sysfs are those of the kernel's cache; a module that is loaded again has another inode.
        modules = (
            f"{path} {size} {rest[-1:]}" for _, path, size, *rest in map(fingerprints.file_fact, self.modules.values())
        )
        return fingerprints.kept_lists(
            "btf-names", (*fingerprints.kernel_fact(self.path), *own, *modules), self._make_lists
        )

    def _make_lists(self) -> dict[str, list[str]]:
        lists = {}
        for reader in self.readers():
            btf = reader.btf
            iterators = [name.removeprefix("bpf_iter__") for name in btf.strings_with_prefix("bpf_iter__")]
            events = [name.removeprefix("btf_trace_") for name in btf.strings_with_prefix("btf_trace_")]
            # `bpf_iter__…__safe_trusted` and such are for the verifier's eyes.
            kind = btf_file.Kind.STRUCT
            targets = [name for name in iterators if "__" not in name and btf.find(f"bpf_iter__{name}", kind)]
            lists[f"{_FUNCTIONS} {btf.name}"] = list(dict.fromkeys(btf.names(btf_file.Kind.FUNC)))
            lists[f"{_RAW_TRACEPOINTS} {btf.name}"] = sorted(events)
            lists[f"{_ITERATORS} {btf.name}"] = targets
        return lists


class StatedTypes(KernelTypes):
    """Type information of another kernel, as it states it: checked, since it may be damaged."""

    def __init__(self, vmlinux: bytes, modules: Mapping[str, bytes]) -> None:
        super().__init__("")
        self._data, self._modules_data = vmlinux, dict(sorted(modules.items()))

    @cached_property
    def vmlinux(self) -> TypeReader:
        index = f"btf-index-{private_files.digest(self._data)}"
        return btf_types.TypeReader(_checked(btf_file.Btf(self._data, "vmlinux", index=index), index))

    @cached_property
    def modules(self) -> dict[str, str]:
        """Modules with type information."""
        return dict.fromkeys(self._modules_data, "")

    def module(self, name: str) -> TypeReader | None:
        if name == "vmlinux":
            return self.vmlinux
        if name in self._modules_data and name not in self._module_readers:
            btf = btf_file.Btf(self._modules_data[name], name, self.vmlinux.btf)
            btf_types.check(btf)
            self._module_readers[name] = btf_types.TypeReader(btf)
        return self._module_readers.get(name)

    @cached_property
    def _lists(self) -> dict[str, list[str]]:
        return self._make_lists()


def _checked(btf: Btf, index: str) -> Btf:
    """Type information that was checked now or, under the name of its *index*, earlier.

    Raises:
        TraceError: it is damaged.
    """
    if fingerprints.read_kept(f"{index}-checked") is None:
        btf_types.check(btf)
        fingerprints.keep(f"{index}-checked", b"checked")
    return btf


def _named(kind: str) -> tuple[int, ...]:
    return (*btf_file.TYPE_KINDS[kind], btf_file.Kind.INT) if kind == "typedef" else btf_file.TYPE_KINDS[kind]


def _enum_with(reader: TypeReader, name: str) -> int:
    """Id of the first enumeration that has a member of a name."""
    btf = reader.btf
    for offset in btf.string_offsets(name):
        for type_id in btf.with_member(offset):
            kind = btf.kind(type_id)
            if kind not in (btf_file.Kind.ENUM, btf_file.Kind.ENUM64):
                continue
            words, at = reader.place(type_id)
            step = 2 if kind == btf_file.Kind.ENUM else 3
            if offset in words[at + 3 : at + 3 + step * (words[at + 1] & 0xFFFF) : step]:
                return type_id
    return 0


# ---------------------------------------------------------------------------------------------- loaded programs


# Offsets in `struct bpf_prog_info` (include/uapi/linux/bpf.h), which only ever grows.
_BTF_ID, _RECORD_SIZE, _RECORDS, _RECORD_COUNT, _INFO_SIZE = 128, 132, 136, 144, 232
_BTF_INFO_SIZE = 16


def program_functions(pattern: str = "*") -> list[tuple[int, str]]:
    """``(id, function)`` of the functions and sub-programs of all loaded programs that have type information.

    Raises:
        TraceError: this user may not list programs.
    """
    accepts = name_pattern(pattern).fullmatch
    try:
        numbers = bpf.ids("prog")
    except PermissionError:
        raise TraceError(
            "this user may not see which BPF programs are loaded", hints=("that needs CAP_SYS_ADMIN, or root",)
        ) from None
    return [(number, name) for number in numbers for name in functions_of_program(number) if accepts(name)]


def functions_of_program(number: int) -> list[str]:
    """Names of a program's functions, the main one first; empty without type information or when it is gone."""
    try:
        descriptor = bpf.open_by_id("prog", number)
    except FileNotFoundError:
        # Unloaded since it was listed.
        return []
    try:
        size = bpf.info_size(descriptor, _INFO_SIZE)
        if size < _RECORD_COUNT + 4:
            return []
        data = bpf.info(descriptor, size)
        btf_id, record_size = struct.unpack_from("=II", data, _BTF_ID)
        (count,) = struct.unpack_from("=I", data, _RECORD_COUNT)
        if not btf_id or not count:
            return []
        records = _function_records(descriptor, count, record_size)
        # The open program keeps its type information, too.
        types = program_types(btf_id)
    finally:
        os.close(descriptor)
    return [types.type_name(type_id) for type_id in records]


def _function_records(descriptor: int, count: int, record_size: int) -> list[int]:
    """Type ids of the functions: ``struct bpf_func_info`` records, copied out by the kernel on request."""
    room = Memory(count * record_size)
    request = bytearray(_INFO_SIZE)
    struct.pack_into("=I", request, _RECORD_SIZE, record_size)
    struct.pack_into("=Q", request, _RECORDS, room.address)
    struct.pack_into("=I", request, _RECORD_COUNT, count)
    memory = Memory(request)
    bpf.command(bpf.Command.OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, _INFO_SIZE, memory.address))
    data = bytes(room.data)
    return [struct.unpack_from("=II", data, number * record_size)[1] for number in range(count)]


def program_types(btf_id: int) -> Btf:
    """The type information object of a program."""
    descriptor = bpf.open_by_id("btf", btf_id)
    try:
        (size,) = struct.unpack_from("=I", bpf.info(descriptor, _BTF_INFO_SIZE), 8)
        room = Memory(size)
        memory = Memory(struct.pack("=QII", room.address, size, 0))
        bpf.command(bpf.Command.OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, _BTF_INFO_SIZE, memory.address))
    finally:
        os.close(descriptor)
    return Btf(bytes(room.data), f"BPF program's BTF {btf_id}")
