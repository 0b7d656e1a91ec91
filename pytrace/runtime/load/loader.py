"""Loading: from a :class:`CompiledScript` to programs, maps and mapped data sections in the kernel.

Nothing is attached here.  Everything opened is closed by the caller's :class:`ExitStack`, in reverse order, also
after an exception.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import cache, partial

import msgspec

from pytrace.base import kernel_files
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import PENDING, CompiledScript, Manifest, MapType, ProgramSpec, RandomWords
from pytrace.core.probe_kinds import (
    RAW_TRACEPOINT,
    SYSTEM_CALLS,
    TypedFunctionTarget,
    known_kind,
    program_type,
    type_name,
)
from pytrace.runtime.load.loaded_script import Generations, LoadedScript, LoadError, MapSize, planned_bytes
from pytrace.runtime.machine import bpf, libbpf, perf
from pytrace.runtime.machine.bpf import AttachType, ProgramType
from pytrace.runtime.machine.syscalls import ZeroedMemory

_PROGRAM_TYPES = {
    "kprobe": ProgramType.KPROBE,
    "tracepoint": ProgramType.TRACEPOINT,
    "raw_tracepoint": ProgramType.RAW_TRACEPOINT,
    "tracing": ProgramType.TRACING,
    "perf_event": ProgramType.PERF_EVENT,
}
ATTACH_TYPES = {
    "": AttachType.NONE,
    "trace_raw_tp": AttachType.TRACE_RAW_TP,
    "trace_fentry": AttachType.TRACE_FENTRY,
    "trace_fexit": AttachType.TRACE_FEXIT,
    "trace_iter": AttachType.TRACE_ITER,
    SYSTEM_CALLS: AttachType.TRACE_RAW_TP,
    RAW_TRACEPOINT: AttachType.TRACE_RAW_TP,
    "kprobe_multi": AttachType.TRACE_KPROBE_MULTI,
    "kprobe_session": AttachType.TRACE_KPROBE_SESSION,
    "uprobe_multi": AttachType.TRACE_UPROBE_MULTI,
    "uprobe_session": AttachType.TRACE_UPROBE_SESSION,
}

_BRIEF = 4
"""``BPF_LOG_STATS``: a log of errors and statistics, without the instructions that the verifier followed."""

RING_SMALLEST = 256 << 10
RING_LARGEST = 16 << 20

_ZERO_SEED = 1 << 6
"""``BPF_F_ZERO_SEED``."""


def has_feature(name: str) -> bool:
    """Whether the kernel has a feature (:func:`pytrace.runtime.load.features.has`); most runs do not ask."""
    from pytrace.runtime.load import features  # unless no program depends on one

    return features.has(name)


class LoadOptions(msgspec.Struct, frozen=True):
    """How to load.

    *libbpf_log* and *verifier_log* receive log texts (``-d libbpf``, ``-d verifier``). *btf_path* replaces the
    kernel's own BTF. *disabled* are features to do without (``--no-feature``), *feature* answers whether the kernel has
    one. *entries* makes maps larger than they are in the file, by their symbols.
    """

    libbpf_log: Callable[[str], None] | None = None
    verifier_log: Callable[[str, str], None] | None = None
    """Called with a program's symbol and the verifier's text about it."""
    btf_path: str = ""
    disabled: frozenset[str] = frozenset()
    feature: Callable[[str], bool] = has_feature
    entries: Mapping[str, int] = msgspec.field(default_factory=dict)
    admit: Callable[[Mapping[str, int]], object] | None = None
    """Called with the bytes that each map will take, by symbol, before any is created; it may refuse."""

    def has(self, name: str) -> bool:
        """Whether the kernel has a feature that is not disabled."""
        return name not in self.disabled and self.feature(name)


class VerifierLogs:
    """Buffers for verifier logs: one that all programs share, or one for each when somebody wants to read them.

    A shared one is enough to explain a failure, because libbpf stops at the first program that is refused. With *brief*
    logs have no more than the reason, which then fits.
    """

    def __init__(self, size: int, reader: Callable[[str, str], None] | None, *, brief: bool = False) -> None:
        self._size = size
        self._reader = reader
        self._brief = brief
        self._buffers: dict[str, ZeroedMemory] = {}
        self._shared = ZeroedMemory(size)

    def prepare(self, lib: libbpf.Library, program: int, symbol: str) -> None:
        """Give a program the buffer that its log goes to."""
        buffer = self._shared
        if self._reader is not None:
            buffer = self._buffers[symbol] = ZeroedMemory(self._size)
            lib.bpf_program__set_log_level(program, 1)
        elif self._brief:
            lib.bpf_program__set_log_level(program, _BRIEF)
        lib.bpf_program__set_log_buf(program, buffer.address, self._size)

    def report(self) -> None:
        """Hand what was logged to the reader, if there is one."""
        for symbol, buffer in self._buffers.items():
            text = buffer.text()
            if self._reader is not None and text:
                self._reader(symbol, text)

    def of(self, symbol: str) -> str:
        """The log of a program that was refused."""
        return self._buffers.get(symbol, self._shared).text()

    def cut(self, text: str) -> bool:
        """Whether a log lacks its end: kernels before 6.4 keep what fits first, later ones what comes last."""
        return len(text.encode()) >= self._size - 1 and "processed " not in text[-300:]


def ring_size(pages: int) -> int:
    """Size of the event ring in bytes: *pages* memory pages, or for 0 based on free memory within fixed limits.

    The kernel requires a power of two that is a multiple of the page size.
    """
    if pages > 0:
        return _power_of_two_up(pages * mmap.PAGESIZE)
    return min(max(_nearest_power_of_two(available_memory()), RING_SMALLEST), RING_LARGEST)


def script_ring_size(manifest: Manifest) -> int:
    """Bytes of the event ring of a script, as its config says; the least where nothing can be lost.

    Creating and freeing the largest ring takes 5 ms. A script that sends no events except those of ``exit()`` gets the
    minimum: an ``exit()`` that does not fit the ring stores its status in the session's data.
    """
    pages = manifest.config.perf_rb_pages
    if not pages and all(item.kind == "exit" for item in manifest.events):
        return RING_SMALLEST
    return ring_size(pages)


def _power_of_two_up(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _nearest_power_of_two(size: int) -> int:
    above = _power_of_two_up(max(1, size))
    below = above >> 1
    return above if above - size <= size - below else below


def available_memory() -> int:
    """Bytes that programs can still get without swapping (``MemAvailable``); free ones where /proc has only pids."""
    for line in kernel_files.lines(kernel_files.read_text("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def draw_random_words(section: memoryview, place: RandomWords) -> None:
    """Fill in the random words of a script that was just loaded, so that nobody can choose keys of the same digest."""
    section[place.offset : place.offset + place.size] = os.urandom(place.size)


def load(script: CompiledScript, *, options: LoadOptions, stack: ExitStack) -> LoadedScript:
    """Load all programs and maps of *script*; *stack* unloads them.

    Raises:
        LoadError: the kernel rejected it; the message says why and where, the exception has the whole log.
    """
    try:
        loaded = _load(script, options, stack)
    except LoadError as error:
        if not error.cut:
            raise
        # The reason is at the end of the log, for which there was no room: without instructions there is.
        with ExitStack() as again:
            try:
                _load(script, options, again, brief=error)
            except LoadError as other:
                raise other from None
        raise
    if words := script.manifest.random_words:
        draw_random_words(loaded.section(words.section), words)
    for depth in script.manifest.stack_depths:
        most = perf.max_stack()
        struct.pack_into("=QQ", loaded.section(depth.section), depth.offset, min(most, depth.limit), most)
    for symbol, buffers in loaded.generations.items():
        buffers.start(loaded.map_fd(symbol))
    return loaded


def _planned_by_symbol(sizes: Iterable[MapSize]) -> dict[str, int]:
    """Bytes by symbol."""
    cpus = len(perf.possible_cpus())
    return {size.symbol: planned_bytes(size, cpus) for size in sizes}


def _load(
    script: CompiledScript, options: LoadOptions, stack: ExitStack, brief: LoadError | None = None
) -> LoadedScript:
    """The programs and maps in the kernel; with *brief*, the log after that error has only the reason."""
    lib = libbpf.library()
    with libbpf.Messages(options.libbpf_log) as messages:
        data, handle = _open(script, options, messages)
        stack.callback(lib.bpf_object__close, handle)
        reader = None if brief else options.verifier_log
        logs = VerifierLogs(script.manifest.config.log_size, reader, brief=brief is not None)
        maps = _members(lib.bpf_object__next_map, handle)
        programs = _members(lib.bpf_object__next_program, handle)
        _prepare_maps(lib, maps, script, options)
        if options.admit is not None:
            options.admit(_planned_by_symbol(_map_sizes(lib, maps, script)))
        generations = _prepare_generations(lib, maps, script, stack)
        with ExitStack() as targets:
            chosen = _prepare_programs(lib, programs, script, options, logs, targets)
            try:
                lib.bpf_object__load(handle)
            except OSError as error:
                from pytrace.runtime.load import refusals  # only what fails needs it

                logs.report()
                positions = partial(refusals.script_positions, data, chosen)
                raise refusals.explain(error, logs, script.manifest, messages, positions, brief, options.has) from None
        logs.report()
        for item in maps:
            if _map_name(lib, item).startswith(PENDING):
                stack.callback(_cancel, lib.bpf_map__fd(item))
        return LoadedScript(
            script,
            stack,
            programs={symbol: lib.bpf_program__fd(item) for symbol, item in chosen.items()},
            maps={_map_name(lib, item): lib.bpf_map__fd(item) for item in maps},
            multi={spec.symbol: _multi_link(spec, options) for spec in script.manifest.programs},
            generations=generations,
        )


def _cancel(descriptor: int) -> None:
    """Delete the events that wait for a system call: until it returns, they keep programs and maps in the kernel."""
    while (key := bpf.map_next_key(descriptor, None, 8)) is not None:
        bpf.map_delete(descriptor, key)


def _open(script: CompiledScript, options: LoadOptions, messages: libbpf.Messages) -> tuple[bytes, int]:
    """The ELF file of a script, and libbpf's object for it."""
    data = script.elf
    if script.manifest.objects:
        from pytrace.runtime.load import object_files  # scripts that import C

        data = object_files.link_objects(data, list(script.manifest.objects))
    try:
        return data, libbpf.open_memory(data, options.btf_path)
    except OSError as error:
        text = "\n".join(messages.warnings)
        raise LoadError(f"libbpf cannot read the compiled script: {_first(messages, error)}", log=text) from None


def _first(messages: libbpf.Messages, error: OSError) -> str:
    return messages.warnings[0] if messages.warnings else str(error.strerror)


def _members(step: Callable[[int, int | None], int | None], handle: int) -> list[int]:
    handles: list[int] = []
    current = step(handle, None)
    while current:
        handles.append(current)
        current = step(handle, current)
    return handles


def _map_name(lib: libbpf.Library, item: int) -> str:
    """The map's symbol; for a data section the section's name, which libbpf prefixes for ``.data`` and ``.bss``."""
    name: str = lib.bpf_map__name(item).decode()
    return name[name.index(".") :] if lib.bpf_map__is_internal(item) and "." in name else name


@cache
def same_order_flag() -> int:
    """The flag for maps of digests and of keys that makes the kernel keep both in the same order, 0 if it refuses.

    Otherwise each map has a random order. That is so because who chooses keys could choose those of one bucket: nobody
    can choose digests. The kernel wants CAP_SYS_ADMIN.
    """
    try:
        os.close(bpf.map_create(MapType.HASH, 4, 4, 1, flags=_ZERO_SEED))
    except OSError:
        return 0
    return _ZERO_SEED


def _prepare_maps(lib: libbpf.Library, maps: list[int], script: CompiledScript, options: LoadOptions) -> None:
    specs = [spec for spec in script.manifest.maps if spec.keys]
    digested = {spec.keys for spec in specs} | {spec.symbol for spec in specs if spec.inner is None}
    for item in maps:
        if lib.bpf_map__type(item) == MapType.RINGBUF:
            lib.bpf_map__set_max_entries(item, script_ring_size(script.manifest))
        name = _map_name(lib, item)
        entries = options.entries.get(name)
        if entries is not None:
            lib.bpf_map__set_max_entries(item, entries)
        if name in digested:
            lib.bpf_map__set_map_flags(item, same_order_flag())


def _map_sizes(lib: libbpf.Library, maps: list[int], script: CompiledScript) -> list[MapSize]:
    """The parameters of all maps; of double-buffered ones those of the two buffers."""
    buffers = {
        spec.symbol: MapSize(spec.symbol, *spec.inner, spec.max_entries, 2)
        for spec in script.manifest.maps
        if spec.inner is not None
    }
    sizes = []
    for item in maps:
        name = _map_name(lib, item)
        parameters = (lib.bpf_map__type(item), lib.bpf_map__key_size(item), lib.bpf_map__value_size(item))
        sizes.append(buffers.get(name) or MapSize(name, *parameters, lib.bpf_map__max_entries(item)))
    return sizes


def _prepare_generations(
    lib: libbpf.Library, maps: list[int], script: CompiledScript, stack: ExitStack
) -> dict[str, Generations]:
    """Create the buffers of double-buffered maps and set them as inner maps in libbpf."""
    items = {_map_name(lib, item): item for item in maps}
    generations: dict[str, Generations] = {}
    for spec in script.manifest.maps:
        if spec.inner is not None:
            flags = same_order_flag() if spec.keys else 0
            try:
                buffers = Generations(spec.inner, spec.max_entries, spec.symbol, stack, flags)
            except OSError as error:
                from pytrace.runtime.load import refusals  # after an error

                raise refusals.map_refused(spec, error) from None
            generations[spec.symbol] = buffers
            lib.bpf_map__set_inner_map_fd(items[spec.symbol], buffers.current)
    return generations


def _prepare_programs(
    lib: libbpf.Library,
    programs: list[int],
    script: CompiledScript,
    options: LoadOptions,
    logs: VerifierLogs,
    targets: ExitStack,
) -> dict[str, int]:
    """Set type and attach target of each program in libbpf. Returns the programs to load, by symbol."""
    specs = {spec.symbol: spec for spec in script.manifest.programs if not spec.part_of}
    chosen: dict[str, int] = {}
    for item in programs:
        symbol = lib.bpf_program__name(item).decode()
        spec = specs.pop(symbol, None)
        if spec is None or not _prepare_program(lib, item, spec, options, targets):
            lib.bpf_program__set_autoload(item, False)
            continue
        logs.prepare(lib, item, symbol)
        chosen[symbol] = item
    if specs:
        raise InternalError(f"programs of the manifest are not in the ELF file: {', '.join(specs)}")
    return chosen


def _multi_link(spec: ProgramSpec, options: LoadOptions) -> str:
    """The multi link to load a program for.

    User probes take it even for one target where the kernel has it: a single uprobe of perf takes two tenths of a
    second to detach, one after the other (``perf_uprobe_destroy`` waits for all programs under a global lock).
    """
    if spec.multi or not known_kind(spec.kind).user:
        return spec.multi
    return "uprobe_multi" if options.has("uprobe_multi") else ""


def _prepare_program(
    lib: libbpf.Library, item: int, spec: ProgramSpec, options: LoadOptions, targets: ExitStack
) -> bool:
    """Set up one program. Returns False if its target does not exist any more."""
    kind, multi = known_kind(spec.kind), _multi_link(spec, options)
    type_ = program_type(spec.kind, multi)
    lib.bpf_program__set_type(item, _PROGRAM_TYPES[type_])
    attach_type = ATTACH_TYPES[multi or kind.attach_type]
    if attach_type:
        lib.bpf_program__set_expected_attach_type(item, attach_type)
    if spec.sleepable:
        lib.bpf_program__set_flags(item, bpf.SLEEPABLE)
    if type_ != "tracing":
        return True
    if spec.type_id and libbpf.attach_to_type(item, spec.type_id):
        return True
    return _set_target(lib, item, spec, targets)


def _set_target(lib: libbpf.Library, item: int, spec: ProgramSpec, targets: ExitStack) -> bool:
    target = spec.targets[0]
    name = type_name(target.place)[1]
    function = target.place if isinstance(target.place, TypedFunctionTarget) else None
    number = function.program_id if function is not None else None
    try:
        descriptor = 0
        if number is not None:
            descriptor = bpf.open_by_id("prog", number)
            # libbpf keeps the number, not the file, so it stays open until the load is done.
            targets.callback(os.close, descriptor)
        lib.bpf_program__set_attach_target(item, descriptor, name.encode(errors="surrogateescape"))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH):
            if function is not None and function.by_pattern:
                return False
            raise LoadError(f"{target.probe}: the kernel has no type information for {name!r}", program=spec) from None
        # Programs and modules are found by the numbers of what is loaded, which only CAP_SYS_ADMIN may read.
        hints = ("types of modules and of BPF programs need CAP_SYS_ADMIN",) if error.errno == errno.EPERM else ()
        raise LoadError(f"{target.probe}: {error.strerror}", program=spec, hints=hints) from None
    return True
