"""Opening of a run and its resources, in order (:func:`open_run`); the run's :class:`ExitStack` closes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from pytrace.base import progress
from pytrace.base.interruption import EndRequests, postponed
from pytrace.base.terminal import colour, unicode
from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import CompiledScript, Manifest, MapSpec
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.kinds import known_kind
from pytrace.core.types import Stack, StackMode, parts
from pytrace.render.text import Bars
from pytrace.runtime.abi import privileges
from pytrace.runtime.load import session_data
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.loader import LoadOptions, available_memory, load
from pytrace.runtime.load.map_reader import MapReader
from pytrace.runtime.load.verifier import LOG_HINT, LoadError
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.run_state import RenderOptions, RunState
from pytrace.runtime.output.streams import Flush, Output, create
from pytrace.runtime.ring.reader import EventLoop, RingReader, backlog_limit
from pytrace.runtime.session.confinement import Confinement, confine_view
from pytrace.runtime.session.consumer import Consumer
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.resources import Command, NoCommand, Notices, Resources
from pytrace.runtime.session.services.losses import SKIPPED, Losses, NoHeartbeat
from pytrace.runtime.session.services.processes import NothingUnwound, OwnModules, OwnProcess, Processes
from pytrace.runtime.session.services.service import Service
from pytrace.runtime.session.signals import Signals
from pytrace.runtime.session.snapshots import Snapshots
from pytrace.runtime.symbols.lazy import LazySymbols

if TYPE_CHECKING:
    from pytrace.live.view_process import Streams, ViewProcess
    from pytrace.runtime.capture.recording import RowKeeper
    from pytrace.runtime.python.functions import PythonFunctions
    from pytrace.runtime.python.processes import Walker
    from pytrace.runtime.session.embedding import Embedding
    from pytrace.runtime.session.services.costs import Costs
    from pytrace.runtime.session.services.memory_watch import MemoryWatch
    from pytrace.runtime.session.services.saving import Export
    from pytrace.runtime.symbols.symbolizer import Symbolizer
    from pytrace.runtime.unwind.unwinder import Unwound


def open_run(
    script: CompiledScript, options: RunOptions, stack: ExitStack, embedding: Embedding | None = None
) -> Resources:
    """Open the resources of a run, load its programs, and handle signals; *stack* closes them.

    *embedding* takes the place of standard output, of printing and of signals.

    Raises:
        TraceError: the kernel rejected a program, or the machine lacks a feature; nothing has been traced by then.
    """
    manifest = script.manifest
    raise_limits(manifest)
    requests = EndRequests()
    functions = python_functions(manifest)
    lazy = symbols(manifest.config, options, requests, functions)
    streams = terminal_streams(options, stack) if embedding is None else None
    signals = embedding.signals if embedding else stack.enter_context(Signals(requests, lazy.give_up_lines))
    within = namespace(options, stack)
    written = embedding.output if embedding else output(options, requests, stack, streams)
    view = view_process(options, written, streams, stack)
    notices = Notices(written, options)
    exports = check_saving(manifest, options)
    memory = memory_watch(manifest, options, embedded=embedding is not None)
    with streams.redirected() if streams is not None else nullcontext():
        traced = command(options, within, embedded=embedding is not None, stack=stack)
    loaded, processes = _load(script, options, traced, lazy, functions, notices, memory, stack)
    heart = heartbeat(loaded, options, embedding is not None, stack)
    rows = None
    if options.saves or embedding:
        from pytrace.runtime.capture.recording import RowKeeper  # few runs take snapshots

        rows = RowKeeper()
    printer = renderer(loaded, options, written, lazy, within, stack, requests, embedding, rows)
    ring = RingReader(loaded.map_fd(manifest.ring), stack, backlog=backlog_limit(available_memory()))
    if memory is not None:
        memory.loaded(loaded, ring, notices.tell, notices.warn)
    loop = EventLoop(ring, stack)
    probes = Probes(loaded, options, traced.pid, processes, notices, heart, stack)
    consumer = Consumer(ring, printer, written, requests, probes)
    losses = Losses(loaded, probes, consumer, printer, written, heart, notices.tell if options.verbose else _nowhere)
    measured = costs(options, loaded, written, notices.tell, stack)
    snapshots = Snapshots(manifest, options, printer, ring, lazy, probes, losses, rows, measured)
    all_services: list[Service] = [heart, *(() if embedding else (OwnProcess(),)), processes, losses]
    all_services += [service for service in (measured, memory) if service is not None]
    if options.budget is not None and measured is not None:
        from pytrace.runtime.session.services.budget import BudgetKeeper

        detach = probes.detach_program
        keeper = BudgetKeeper(options.budget, loaded, measured, printer, detach, written, notices.warn)
        all_services.append(keeper)
    all_services.append(OwnModules(manifest, options, embedded=embedding is not None))
    all_services += changes(manifest, options.filters.pids, probes, lazy, loop, notices, stack)
    if not options.keep_privileges and (embedding is None or embedding.confined):
        # First: services may start threads, which keep what they have at their start.
        all_services.insert(0, Confinement(options, loaded, probes, written, notices))
    all_services += services(options, exports, loaded, lazy, printer, snapshots, notices, traced, loop, stack)
    if view is not None and measured is not None:
        all_services.append(live_view(view, written, snapshots, measured, manifest, options))
    if traced.pid is None:
        printer.no_child()
    signals.begin()
    return Resources(
        options=options, embedded=embedding is not None, requests=requests, signals=signals, output=written,
        notices=notices, command=traced, loaded=loaded, symbols=lazy, renderer=printer, ring=ring, loop=loop,
        consumer=consumer, processes=processes, probes=probes, losses=losses, snapshots=snapshots,
        services=all_services,
    )  # fmt: skip


def _load(
    script: CompiledScript,
    options: RunOptions,
    traced: Command,
    lazy: LazySymbols,
    functions: PythonFunctions | None,
    notices: Notices,
    memory: MemoryWatch | None,
    stack: ExitStack,
) -> tuple[LoadedScript, Processes]:
    """Load the programs, and begin to follow processes; *traced* is the command, which is held."""
    manifest = script.manifest
    unwinding = unwound(manifest, options, traced)
    loaded = programs(script, options, unwinding, memory, stack)
    session_data.fill(loaded, options, traced.pid)
    if manifest.limits is not None or options.rates:
        from pytrace.runtime.session import rates  # few runs limit rates

        rates.write(loaded, options.rates)
    stack.callback(lazy.close)
    tell = notices.tell if options.verbose else _nowhere
    ring = manifest.unwind.requests if manifest.unwind is not None else ""
    requests = RingReader(loaded.map_fd(ring), stack) if ring else None
    tables = unwinding.start(loaded, stack, notices.warn, tell)
    if functions is not None:
        # Before mappings are followed: an execve that is noticed later would take away what was found for its process.
        traced.stop_after_exec()
    follow_mappings(manifest, options, traced.pid, lazy, notices.warn)
    python = None if functions is None else walker(manifest, options, traced, functions, loaded, stack, notices.warn)
    return loaded, Processes(lazy, tables, requests, python)


def _nowhere(_text: str) -> None:
    """Tell nobody."""


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


def output(options: RunOptions, requests: EndRequests, stack: ExitStack, streams: Streams | None = None) -> Output:
    """Standard output, or the file of ``-o``; standard error where that is for a snapshot.

    With *streams* a live view may cover the terminal.
    """
    to_file = options.output is not None and not options.exports
    printed, errors = (1, 2) if streams is None else (streams.output, streams.errors)
    make: type[Output] = Output
    if streams is not None:
        from pytrace.runtime.output import covered_output

        make = covered_output.CoveredOutput
    opened = make(
        create(options.output) if options.output is not None and to_file else errors if options.exports else printed,
        messages=errors, flush=Flush(options.buffering), json=options.format == "json", csv=options.format == "csv",
        colour=colour(), raw=options.raw, requests=requests, owned=to_file,
    )  # fmt: skip
    stack.callback(opened.close)
    return opened


def command(options: RunOptions, namespace: int | None, *, embedded: bool, stack: ExitStack) -> Command:
    """The process of ``-c``, which waits until probes are attached (:func:`pytrace.runtime.session.child.start`)."""
    if options.command is None:
        return NoCommand()
    from pytrace.runtime.session import child  # most runs have none

    if not embedded:
        # What waits in Python's standard streams comes before the command's output.
        sys.stdout.flush()
        sys.stderr.flush()
        return child.start(options.command, stack, namespace)
    # In other programs Ctrl-C raises, and nobody would end the child.
    with postponed():
        return child.start(options.command, stack, namespace)


def check_saving(manifest: Manifest, options: RunOptions) -> list[Export]:
    """Check that snapshots can be saved, and open the last one's output for a format of ``-f`` that shows it.

    Raises:
        TraceError: a file cannot be written, or the format shows nothing of the script.
    """
    if not options.saves:
        return []
    from pytrace.runtime.session.services import saving  # see services()

    saving.check(options)
    return [saving.Export(manifest, options)] if options.exports else []


def unwound(manifest: Manifest, options: RunOptions, traced: Command) -> Unwound | NothingUnwound:
    """The processes whose unwind tables are read at the start; the command is held after its exec for that."""
    if manifest.unwind is None:
        return NothingUnwound()
    from pytrace.runtime.unwind.unwinder import Unwound

    traced.stop_after_exec()
    pids = {*options.filters.pids, *options.dwarf_pids}
    return Unwound(manifest, pids if traced.pid is None else pids | {traced.pid})


def python_functions(manifest: Manifest) -> PythonFunctions | None:
    """Names of the functions in Python stacks; None for a script without them."""
    if manifest.python is None:
        return None
    from pytrace.runtime.python.functions import PythonFunctions

    return PythonFunctions(lines=manifest.config.show_debug_info)


def walker(
    manifest: Manifest,
    options: RunOptions,
    traced: Command,
    functions: PythonFunctions,
    loaded: LoadedScript,
    stack: ExitStack,
    warn: Callable[[str], None],
) -> Walker:
    """Keeps where the interpreters of the processes are whose Python stacks are walked, as of now.

    Without -p and -c these are all; the command is held after its exec.
    """
    from pytrace.runtime.python.processes import WalkedProcesses

    pids = set(options.filters.pids) if traced.pid is None else {traced.pid, *options.filters.pids}
    walked = WalkedProcesses(manifest, None if follows_all(options, traced.pid) else pids, functions)
    return walked.start(loaded, stack, warn)


def memory_watch(manifest: Manifest, options: RunOptions, *, embedded: bool) -> MemoryWatch | None:
    """The limit of memory; a script that has no probes and no keyed maps does not need one."""
    wanted = options.max_memory or manifest.config.max_memory
    small = all(known_kind(program.kind).special for program in manifest.programs)
    if small and not wanted and all(spec.key is None for spec in manifest.maps):
        return None
    from pytrace.runtime.session.services.memory_watch import MemoryWatch

    return MemoryWatch(wanted, manifest, embedded=embedded)


def programs(
    script: CompiledScript,
    options: RunOptions,
    unwind: Unwound | NothingUnwound,
    memory: MemoryWatch | None,
    stack: ExitStack,
) -> LoadedScript:
    """The programs and maps of *script*, loaded.

    Raises:
        TraceError: the kernel refused them.
    """
    load_options = LoadOptions(
        libbpf_log=_to_stderr if "libbpf" in options.debug else None,
        verifier_log=_show_verifier if "verifier" in options.debug else None,
        btf_path=os.environ.get("PYTRACE_BTF", os.environ.get("BPFTRACE_BTF", "")),
        disabled=options.disabled,
        entries=unwind.entries(),
        admit=None if memory is None else memory.admit,
    )
    try:
        with progress.step("loading programs into the kernel"):
            return load(script, options=load_options, stack=stack)
    except LoadError as error:
        if options.verbose and error.log and "verifier" not in options.debug:
            _show_refusal(error)
        raise


def heartbeat(loaded: LoadedScript, options: RunOptions, embedded: bool, stack: ExitStack) -> NoHeartbeat:
    """The heartbeat that programs watch, unless the watchdog is off or none of the programs has one."""
    manifest = loaded.manifest
    seconds = manifest.config.watchdog if options.watchdog is None else options.watchdog
    counters, data = manifest.counters, manifest.session
    if not seconds or counters is None or data is None or all(kind != SKIPPED for kind, _ in counters.names):
        return NoHeartbeat()
    from pytrace.runtime.session.services.heartbeat import Heartbeat  # only for programs that are attached

    return Heartbeat(loaded, data, seconds, stack, embedded=embedded)


def follow_mappings(
    manifest: Manifest, options: RunOptions, command: int | None, lazy: LazySymbols, warn: Callable[[str], None]
) -> None:
    """Follow the mappings of processes, if the script shows user addresses: processes may end before the output."""
    unwinds = (manifest.unwind is not None and manifest.unwind.selected) or manifest.python is not None
    if not unwinds and not manifest.shows_user_addresses():
        return
    pid = options.filters.pid if command is None else command
    if follows_all(options, command):
        pid = None
    try:
        lazy.start(None if pid is None else [pid, *options.filters.pids[1:], *options.dwarf_pids], prompt=unwinds)
    except TraceError as error:
        warn(error.message)


def follows_all(options: RunOptions, command: int | None) -> bool:
    """Whether any process may be traced: without -p and -c, and as a followed one or that of --exec-wait."""
    pid = options.filters.pid if command is None else command
    return pid is None or (options.follow and command is None) or bool(options.filters.exec_wait)


def renderer(
    loaded: LoadedScript,
    options: RunOptions,
    written: Output,
    lazy: LazySymbols,
    within: int | None,
    stack: ExitStack,
    requests: EndRequests,
    embedding: Embedding | None,
    rows: RowKeeper | None,
) -> Renderer:
    """The printer of events and maps; *within* is the network namespace of interfaces. *rows* keeps rows, too."""
    shown = embedding is None and not written.json and written.terminal
    coloured = shown and not options.plain and colour(written.descriptor)
    render = RenderOptions(
        quiet=options.quiet,
        warnings=options.warnings,
        namespace=within,
        tool=options.tool,
        printable=shown and not options.raw,
        bars=Bars.COLOUR if coloured and unicode() else Bars.SIGNS,
        heat=(Bars.COLOUR if coloured else Bars.SIGNS) if options.heat else None,
    )
    opened = Renderer(
        loaded.manifest,
        written,
        lazy,
        MapReader(loaded),
        options=render,
        state=RunState(requests=requests),
        handlers=embedding.handlers(lazy) if embedding else None,
        keep_row=rows.keep if rows else None,
    )
    stack.callback(opened.close)
    return opened


def symbols(
    config: Config, options: RunOptions, requests: EndRequests, python: PythonFunctions | None
) -> LazySymbols:
    """The symbolizer that the config asks for; after requests to end the run it gives up source lines early."""

    def make() -> Symbolizer:
        from pytrace.runtime.symbols.symbolizer import Symbolizer

        return Symbolizer(
            cache=config.cache_user_symbols,
            demangled=config.cpp_demangle,
            lines=config.show_debug_info,
            debuginfo=options.debuginfo,
            vmlinux=os.environ.get("PYTRACE_VMLINUX", os.environ.get("BPFTRACE_VMLINUX", "")),
            requests=requests,
            python=python,
        )

    return LazySymbols(make)


def _to_stderr(text: str) -> None:
    sys.stderr.write(text if text.endswith("\n") else f"{text}\n")


def _show_refusal(error: LoadError) -> None:
    """Print the log of an error, which needs no hint any more that says how to see it."""
    name = error.program.symbol if error.program is not None else "libbpf"
    note = "the log is longer than log_size: a part of it is shown\n" if error.cut else ""
    _show_verifier(name, f"{error.log.rstrip()}\n{note}")
    error.hints = tuple(hint for hint in error.hints if hint != LOG_HINT)


def _show_verifier(symbol: str, text: str) -> None:
    sys.stderr.write(f"verifier log of {symbol}:\n{text}\n")


# ---------------------------------------------------------------------------------------------- services


def services(
    options: RunOptions,
    exports: Iterable[Export],
    loaded: LoadedScript,
    lazy: LazySymbols,
    printer: Renderer,
    snapshots: Snapshots,
    notices: Notices,
    command: Command,
    loop: EventLoop,
    stack: ExitStack,
) -> list[Service]:
    """Services that options or the script ask for, in the order of their calls. Each is imported for runs that have it.

    Raises:
        TraceError: metrics cannot be served where they are to be, there is no process to trace, or no histogram for
            ``--heat``.
    """
    wanted: list[Service] = []
    if specs := maps_with_lines(loaded.manifest, options):
        from pytrace.runtime.session.services.reading_ahead import ReadingAhead

        wanted.append(ReadingAhead(specs, MapReader(loaded), lazy, saved=options.saves))
    if options.saves and not options.dry_run:
        from pytrace.runtime.session.services.saving import Saving

        wanted.append(Saving(options, exports, snapshots.take, notices.warn))
    if options.metrics is not None:
        from pytrace.runtime.session.services.metrics import Metrics

        served = Metrics(options.metrics, loaded.manifest.config, snapshots.take, notices.tell)
        stack.callback(served.close)
        wanted.append(served)
    if options.heat:
        from pytrace.runtime.session.services.heat import Heat

        wanted.append(Heat(loaded.manifest, printer))
    filters = options.filters
    if command.descriptors or filters.pids or filters.exec_wait or options.duration is not None:
        from pytrace.runtime.session.services.run_end import RunEnd

        wanted.append(RunEnd(options, command.descriptors, loaded, loop, stack))
    return wanted


def costs(
    options: RunOptions, loaded: LoadedScript, written: Output, tell: Callable[[str], None], stack: ExitStack
) -> Costs | None:
    """The measurement of the run's costs, if it is wanted."""
    if options.dry_run or not (options.measure or options.budget or options.live):
        return None
    from pytrace.runtime.session.services.costs import Costs

    return Costs(loaded, written, tell if options.measure and not options.quiet else None, stack)


def terminal_streams(options: RunOptions, stack: ExitStack) -> Streams | None:
    """The standard streams of a run that is shown live."""
    if not options.live:
        return None
    from pytrace.live.view_process import Streams

    return Streams(stack)


def view_process(
    options: RunOptions, written: Output, streams: Streams | None, stack: ExitStack
) -> ViewProcess | None:
    """The process of a live view, which imports what it needs while the programs are loaded."""
    if streams is None:
        return None
    from pytrace.live.view_process import ViewProcess
    from pytrace.runtime.output.covered_output import CoveredOutput

    assert isinstance(written, CoveredOutput)
    stack.callback(written.uncover)
    confine = (lambda: None) if options.keep_privileges else confine_view
    return ViewProcess(streams, confine, written.collect, stack)


def live_view(
    view: ViewProcess, written: Output, snapshots: Snapshots, costs: Costs, manifest: Manifest, options: RunOptions
) -> Service:
    """The service that sends the state of the run to its live view."""
    from pytrace.runtime.output.covered_output import CoveredOutput
    from pytrace.runtime.session.services.live_view import LiveView

    assert isinstance(written, CoveredOutput)
    return LiveView(view, written, snapshots, costs, manifest, options)


def changes(
    manifest: Manifest,
    pids: tuple[int, ...],
    probes: Probes,
    lazy: LazySymbols,
    loop: EventLoop,
    notices: Notices,
    stack: ExitStack,
) -> list[Service]:
    """The service that looks for changes of the machine, for scripts that attach to anything."""
    if all(known_kind(program.kind).special for program in manifest.programs):
        return []
    from pytrace.runtime.session.services import machine_changes

    return [machine_changes.MachineChanges(probes, lazy, loop, manifest, pids, notices.warn, stack)]


def maps_with_lines(manifest: Manifest, options: RunOptions) -> list[MapSpec]:
    """Maps that are printed or saved with functions of user stacks, which have source lines."""
    config = manifest.config
    shown = config.show_debug_info and (config.print_maps_on_exit or options.saves) and not options.dry_run
    return [spec for spec in manifest.maps if has_user_stacks(spec)] if shown else []


def has_user_stacks(spec: MapSpec) -> bool:
    """Whether printing a map shows functions of user stacks."""
    stacks = (inner for inner in parts(spec.types) if isinstance(inner, Stack))
    return any(stack.user and stack.mode not in (StackMode.RAW, StackMode.BUILD_ID) for stack in stacks)
