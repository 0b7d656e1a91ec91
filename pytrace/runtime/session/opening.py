"""What a run needs, opened and loaded: output, child's unwinding, programs, session data, symbols.

Each function enters what has to be closed into the :class:`ExitStack` of the session.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.base.terminal import colour
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.process_filters import NOT_YET, PROCESS_MAP, UNROLLED, ProcessFilters
from pytrace.core.types import Stack, StackMode, Type, USym, parts
from pytrace.runtime.abi import privileges
from pytrace.runtime.host.clocks import Clock, together
from pytrace.runtime.load.loader import LoadedScript, LoadOptions, load
from pytrace.runtime.load.map_reader import MapReader
from pytrace.runtime.output.renderer import Renderer, RenderOptions, RunState
from pytrace.runtime.output.streams import Flush, Output
from pytrace.runtime.symbols.lazy import LazySymbols

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack

    from pytrace.base.interruption import EndRequests
    from pytrace.core.config import Config
    from pytrace.core.manifest import CompiledScript, Manifest, MapSpec, SessionData
    from pytrace.core.options.run_options import RunOptions
    from pytrace.core.types.tables import RowTable
    from pytrace.metrics.service import Metrics
    from pytrace.render.decoders import Values
    from pytrace.results.snapshot import SnapshotData
    from pytrace.runtime.capture.recording import Moment
    from pytrace.runtime.capture.row_keeper import RowKeeper
    from pytrace.runtime.output.handlers import Make
    from pytrace.runtime.session.child import Child
    from pytrace.runtime.session.reading_ahead import ReadingAhead
    from pytrace.runtime.session.run_end import RunEnd
    from pytrace.runtime.session.saving import Saving
    from pytrace.runtime.symbols.symbolizer import Symbolizer
    from pytrace.runtime.unwind.unwinder import Unwound


def raise_limits(manifest: Manifest) -> None:
    """Let this process open as many files as the probes and maps of a script need."""
    targets = sum(len(program.targets) for program in manifest.programs)
    privileges.raise_limits(privileges.descriptors_needed(targets, len(manifest.programs), len(manifest.maps)))


def namespace(options: RunOptions, stack: ExitStack) -> int | None:
    """The network namespace of ``--netns``, None without that.

    Raises:
        TraceError: there is no such namespace.
    """
    if options.netns is None:
        return None
    from pytrace.runtime.host.network import open_namespace

    descriptor = open_namespace(options.netns)
    stack.callback(os.close, descriptor)
    return descriptor


def output(options: RunOptions, requests: EndRequests, stack: ExitStack) -> Output:
    """Standard output, or the file of ``-o``; standard error where that is for a snapshot."""
    flush, colours = Flush(options.buffering), colour()
    json, csv = options.format == "json", options.format == "csv"
    if options.output is None or options.exports:
        opened = Output(
            2 if options.exports else 1,
            flush=flush, json=json, csv=csv, colour=colours, raw=options.raw, requests=requests,
        )  # fmt: skip
    else:
        opened = Output.to_file(
            options.output, flush=flush, json=json, csv=csv, colour=colours, raw=options.raw, requests=requests
        )
    stack.callback(opened.close)
    return opened


def child(command: str, stack: ExitStack, namespace: int | None, flush: bool) -> Child:
    """The process of ``-c``, which waits until probes are attached (:func:`pytrace.runtime.session.child.start`).

    *flush*: write first what waits in Python's standard streams, so that it comes before the command's output.
    """
    from pytrace.runtime.session import child as process  # most runs have none

    if flush:
        sys.stdout.flush()
        sys.stderr.flush()
        return process.start(command, stack, namespace)
    from pytrace.base.interruption import postponed  # in other programs Ctrl-C raises, and nobody would end the child

    with postponed():
        return process.start(command, stack, namespace)


def saving(
    manifest: Manifest, options: RunOptions, take: Callable[[], SnapshotData], warn: Callable[[str], None]
) -> Saving | None:
    """What saves snapshots and writes the last one in the format of ``-f``; None when neither is wanted.

    Raises:
        TraceError: they cannot be written where they are to be, or in that format.
    """
    if options.save is None and options.save_every is None and not options.exports:
        return None
    from pytrace.runtime.session.saving import Saving

    if not options.exports:
        return Saving(options, take, warn)
    from pytrace.runtime.session.exporting import Export

    return Saving(options, take, warn, Export(manifest, options))


def metrics(
    options: RunOptions, config: Config, take: Callable[[], SnapshotData], tell: Callable[[str], None], stack: ExitStack
) -> Metrics | None:
    """What serves metrics; None when nobody wants them.

    Raises:
        TraceError: they cannot be served where they are to be.
    """
    if options.metrics is None:
        return None
    from pytrace.metrics.service import Metrics

    served = Metrics(options.metrics, config, take, tell)
    stack.callback(served.close)
    return served


def rows() -> RowKeeper:
    """Where rows are kept for snapshots."""
    from pytrace.runtime.capture.row_keeper import RowKeeper

    return RowKeeper()


def moment() -> Moment:
    """This moment, by the wall clock and the monotonic one."""
    return time.time_ns(), time.monotonic_ns()


def unwound(manifest: Manifest, options: RunOptions, child: Child | None) -> Unwound | None:
    """What ``dw_ustack`` unwinds; the child is then held as the program that it will be."""
    if manifest.unwind is None:
        return None
    from pytrace.runtime.unwind.unwinder import Unwound

    return Unwound(manifest, options.filters.pid, (*options.filters.pids[1:], *options.dwarf_pids), child)


def programs(script: CompiledScript, options: RunOptions, unwind: Unwound | None, stack: ExitStack) -> LoadedScript:
    """The programs and maps of *script*, loaded.

    Raises:
        TraceError: the kernel refused them.
    """
    load_options = LoadOptions(
        libbpf_log=_to_stderr if "libbpf" in options.debug else None,
        verifier_log=_show_verifier if "verifier" in options.debug else None,
        btf_path=os.environ.get("PYTRACE_BTF", os.environ.get("BPFTRACE_BTF", "")),
        disabled=options.disabled,
        entries={} if unwind is None else unwind.entries(),
    )
    return load(script, options=load_options, stack=stack)


def fill_session_data(loaded: LoadedScript, options: RunOptions, child: Child | None) -> None:
    """Tell the programs what only a run knows: its start, clocks, and processes (docs/architecture.md)."""
    data = loaded.manifest.session
    if data is None:
        return
    memory = loaded.section(data.section)
    struct.pack_into("=Q", memory, data.start, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    struct.pack_into("=Q", memory, data.cpid, 0 if child is None else child.pid)
    atomic, boot = together(time.CLOCK_TAI, time.CLOCK_BOOTTIME)
    struct.pack_into("=q", memory, data.tai, atomic - boot)
    struct.pack_into("=q", memory, data.wall, Clock().boot_offset)
    root = options.filters.pid if child is None else child.pid
    struct.pack_into("=Q", memory, data.root, root or 0)
    if options.filters != ProcessFilters():
        _fill_filters(loaded, data, options)


def _fill_filters(loaded: LoadedScript, data: SessionData, options: RunOptions) -> None:
    """Tell the programs which processes are wanted."""
    memory, filters = loaded.section(data.section), options.filters
    if filters.exec_wait:
        struct.pack_into("=Q", memory, data.root, NOT_YET)
    # The process of an ahead-of-time file is a load-time value.
    if loaded.manifest.ahead is not None and len(filters.pids) < 2:
        filters = replace(filters, pids=())
    filters.pack(memory, data.filters)
    if filters.shape.pids <= UNROLLED:
        return
    from pytrace.runtime.abi import bpf_maps

    descriptor = loaded.map_fd(PROCESS_MAP)
    for pid in filters.pids:
        bpf_maps.update(descriptor, struct.pack("=I", pid), struct.pack("=I", 1))


def run_end(options: RunOptions, child: Child | None, loaded: LoadedScript, stack: ExitStack) -> RunEnd | None:
    """What tells that the traced processes have ended, or the time is over; None when nothing of that is waited for.

    Raises:
        TraceError: there is no such process.
    """
    if child is None and not options.filters.pids and not options.filters.exec_wait and options.duration is None:
        return None
    from pytrace.runtime.session.run_end import RunEnd

    return RunEnd(options, child, loaded, stack)


def shows_user_addresses(manifest: Manifest) -> bool:
    """Whether output has user addresses, whose processes may have ended by then."""
    roots = [kind for event in manifest.events for kind in event.args]
    roots += [kind for spec in manifest.maps for kind in _types(spec)]
    return any(isinstance(inner, USym) or (isinstance(inner, Stack) and inner.user) for inner in parts(roots))


def follow_mappings(
    manifest: Manifest, options: RunOptions, child: Child | None, lazy: LazySymbols, warn: Callable[[str], None]
) -> None:
    """Take note of what processes map, when the script shows user addresses: by then they may have ended."""
    unwinds = manifest.unwind is not None
    if not unwinds and not shows_user_addresses(manifest):
        return
    pid = child.pid if child is not None else options.filters.pid
    # Followed processes that run already are not known yet: any may be one. Nor is that of --exec-wait.
    if (options.follow and child is None) or options.filters.exec_wait:
        pid = None
    try:
        lazy.start(None if pid is None else [pid, *options.filters.pids[1:], *options.dwarf_pids], prompt=unwinds)
    except TraceError as error:
        warn(error.message)


def renderer(
    loaded: LoadedScript,
    options: RunOptions,
    written: Output,
    lazy: LazySymbols,
    within: int | None,
    stack: ExitStack,
    requests: EndRequests,
    handlers: Mapping[str, Make] | None,
    keep_row: Callable[[RowTable, Values], None] | None,
) -> Renderer:
    """What prints events and maps; *within* is the network namespace of interfaces.

    *handlers* handle events in place of those that print them; *keep_row* is also called with each row.
    """
    render = RenderOptions(
        quiet=options.quiet,
        warnings=options.warnings,
        namespace=within,
        tool=options.tool,
        printable=handlers is None and not options.raw and not written.json and written.terminal,
    )
    made = Renderer(
        loaded.manifest,
        written,
        lazy,
        MapReader(loaded),
        options=render,
        state=RunState(requests=requests),
        handlers=handlers,
        keep_row=keep_row,
    )
    stack.callback(made.close)
    return made


def symbols(config: Config, options: RunOptions, requests: EndRequests) -> LazySymbols:
    """The symboliser that the config asks for; after requests of the user to end the run it has little time."""

    def make() -> Symbolizer:
        from pytrace.runtime.symbols.symbolizer import Symbolizer

        return Symbolizer(
            cache=config.cache_user_symbols,
            demangled=config.cpp_demangle,
            lines=config.show_debug_info,
            debuginfo=options.debuginfo,
            vmlinux=os.environ.get("PYTRACE_VMLINUX", os.environ.get("BPFTRACE_VMLINUX", "")),
            requests=requests,
        )

    return LazySymbols(make)


def reading_ahead(loaded: LoadedScript, options: RunOptions, lazy: LazySymbols) -> ReadingAhead | None:
    """What reads the source lines of stacks in maps before these print; None when none will be shown."""
    config = loaded.manifest.config
    taken = options.save or options.save_every or options.exports
    shown = config.show_debug_info and (config.print_maps_on_exit or taken)
    specs = [spec for spec in loaded.manifest.maps if has_user_stacks(spec)] if shown else []
    if not specs:
        return None
    from pytrace.runtime.session.reading_ahead import ReadingAhead  # few scripts need it

    return ReadingAhead(loaded.manifest, specs, MapReader(loaded), lazy)


def has_user_stacks(spec: MapSpec) -> bool:
    """Whether printing a map shows functions of user stacks."""
    stacks = (inner for inner in parts(_types(spec)) if isinstance(inner, Stack))
    return any(stack.user and stack.mode not in (StackMode.RAW, StackMode.BUILD_ID) for stack in stacks)


def _types(spec: MapSpec) -> list[Type]:
    return [kind for kind in (spec.key, spec.value) if kind is not None]


def _to_stderr(text: str) -> None:
    sys.stderr.write(text if text.endswith("\n") else f"{text}\n")


def _show_verifier(symbol: str, text: str) -> None:
    sys.stderr.write(f"verifier log of {symbol}:\n{text}\n")
